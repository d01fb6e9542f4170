//! Stacks as pprof profiles, the format that `go tool pprof`, Grafana Pyroscope, Parca and others
//! read.
//!
//! Addresses are those of the module, the same in every process that maps it: the offset in the
//! file, or for the kernel and for code made at run time the address itself. So a mapping begins
//! where its file does, and its bounds do not depend on what was seen. What is no frame
//! (`[incomplete: no_table]`, `(cut)`) has a location without mapping and address.

pub mod proto;

use std::{
    collections::HashMap,
    io::{self, Write},
};

use flate2::{Compression, GzBuilder};
use prost::Message as _;

use crate::{
    processes::module::ModuleKind,
    report::product::Values,
    report::{StackTree, stacks::StackModule},
};
use proto::{
    Function, Location, PprofLabel, PprofLine, PprofMapping, PprofProfile, Sample, ValueType,
};

/// The kernel's half of the address space begins here.
const KERNEL_START: u64 = 0xffff_8000_0000_0000;
/// The programs' half of the address space ends here.
const USER_LIMIT: u64 = 1 << 47;
/// The smallest mapping of a file.
const MIN_FILE_BYTES: u64 = 1 << 20;

/// What a profile tells of each stack.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// Samples, and the time on a processor that they stand for.
    Cpu,
    /// All time, and application time.
    Wall,
    /// Everything.
    All,
}

struct ValueColumn {
    name: &'static str,
    unit: &'static str,
    value: fn(&Values, u64) -> u64,
}

const fn nanoseconds(name: &'static str, value: fn(&Values, u64) -> u64) -> ValueColumn {
    ValueColumn {
        name,
        unit: "nanoseconds",
        value,
    }
}

const SAMPLES: ValueColumn = ValueColumn {
    name: "samples",
    unit: "count",
    value: |values, _| values.samples,
};
/// What readers take it for: that many periods. The times of the other columns are unbiased
/// estimates too, with exact sums.
const CPU: ValueColumn = nanoseconds("cpu", |values, period_ns| {
    values.samples.saturating_mul(period_ns)
});
const ELAPSED: ValueColumn = nanoseconds("elapsed", |values, _| values.elapsed_ns());
const APPLICATION: ValueColumn = nanoseconds("application", |values, _| values.application_ns());
const BLOCKED: ValueColumn = nanoseconds("blocked", |values, _| {
    values.classes[profiler_common::Class::Blocked as usize]
});
const RUNNABLE: ValueColumn = nanoseconds("runnable", |values, _| {
    values.classes[profiler_common::Class::Runnable as usize]
});

impl Content {
    /// The columns, the one that is shown first, and what is between two samples.
    fn columns(self) -> (&'static [ValueColumn], &'static ValueColumn) {
        match self {
            Self::Cpu => (&[SAMPLES, CPU], &CPU),
            Self::Wall => (&[ELAPSED, APPLICATION], &ELAPSED),
            Self::All => (
                &[SAMPLES, CPU, ELAPSED, APPLICATION, BLOCKED, RUNNABLE],
                &CPU,
            ),
        }
    }
}

/// Writes a profile, compressed with gzip as the format wants it. The same stacks give the same
/// bytes.
///
/// # Errors
/// When `out` cannot be written to.
pub fn write(
    stacks: &StackTree,
    content: Content,
    sampling_period_ns: u64,
    out: &mut impl Write,
) -> io::Result<()> {
    let profile = profile(stacks, content, sampling_period_ns);
    // Neither a time nor a name in the header.
    let mut gzip = GzBuilder::new().write(out, Compression::default());
    gzip.write_all(&profile.encode_to_vec())?;
    gzip.finish()?;
    Ok(())
}

/// The profile of these stacks. `stacks` tell places in functions apart.
#[must_use]
pub fn profile(stacks: &StackTree, content: Content, sampling_period_ns: u64) -> PprofProfile {
    let (columns, default) = content.columns();
    let mut text = Strings::new();
    let mut value_type = |column: &ValueColumn| ValueType {
        r#type: text.number(column.name),
        unit: text.number(column.unit),
    };
    let sample_type = columns.iter().map(&mut value_type).collect();
    let period_type = Some(value_type(default));
    let mut profile = PprofProfile {
        sample_type,
        period_type,
        period: match content {
            Content::Wall => 1,
            Content::Cpu | Content::All => number(sampling_period_ns),
        },
        time_nanos: number(stacks.from_unix_ns.ns()),
        duration_nanos: number(stacks.duration_ns),
        default_sample_type: text.number(default.name),
        comment: remarks(stacks)
            .iter()
            .map(|remark| text.number(remark))
            .collect(),
        ..PprofProfile::default()
    };
    let mappings = mappings(stacks, &mut text, &mut profile);
    let locations = locations(stacks, &mappings, &mut text, &mut profile);
    let values = |values: &Values| -> Vec<i64> {
        let value = |column: &ValueColumn| number((column.value)(values, sampling_period_ns));
        columns.iter().map(value).collect()
    };
    samples(stacks, values, &locations, &mut text, &mut profile);
    profile.string_table = text.table;
    profile
}

/// What the profile lacks, and how its values are to be read.
fn remarks(stacks: &StackTree) -> Vec<String> {
    let lacks = &stacks.completeness;
    let mut remarks = vec![
        "cpu is an estimate, samples x period; sums of elapsed, application, blocked and runnable are exact, their division among functions is an estimate by marks"
            .to_owned(),
        format!(
            "lacks: elapsed_unattributed_ns={} elapsed_unknown_ns={} samples_lost={} stacks_truncated={} stacks_unwind_failed={} frames_unknown_percent={:.2}",
            lacks.elapsed_unattributed_ns,
            lacks.elapsed_unknown_ns,
            lacks.samples_lost,
            lacks.stacks_truncated,
            lacks.stacks_unwind_failed,
            lacks.frames_unknown_percent,
        ),
    ];
    if let Some(reasons) = &lacks.frames_unknown {
        let reasons = reasons
            .iter()
            .map(|(why, share)| format!("{why}={share:.2}"));
        let reasons: Vec<String> = reasons.collect();
        remarks.push(format!("frames unknown, percent: {}", reasons.join(" ")));
    }
    if !lacks.causes.is_empty() {
        let causes: Vec<String> = lacks
            .causes
            .iter()
            .map(|(cause, count)| format!("{cause}={count}"))
            .collect();
        remarks.push(format!("causes: {}", causes.join(" ")));
    }
    if stacks.cut_nodes > 0 {
        remarks.push(format!("cut: {} small nodes, as (cut)", stacks.cut_nodes));
    }
    if stacks.shrunk_ns > 0 {
        remarks.push(format!(
            "moved: {} ns went to other stacks meanwhile",
            stacks.shrunk_ns
        ));
    }
    remarks
}

/// Makes the mappings, the most important first. Answers with the id of each module's, 0 for none.
fn mappings(stacks: &StackTree, text: &mut Strings, profile: &mut PprofProfile) -> Vec<u64> {
    let mut highest: Vec<Option<u64>> = vec![None; stacks.modules.len()];
    let mut weights: Vec<(u64, u64)> = vec![(0, 0); stacks.modules.len()];
    for function in &stacks.functions {
        if let Some(offset) = function.offset {
            let highest = &mut highest[function.module];
            *highest = (*highest).max(Some(offset));
        }
    }
    for node in stacks.nodes.iter().skip(1) {
        let weight = &mut weights[stacks.functions[node.function as usize].module];
        weight.0 += node.own.samples;
        weight.1 += node.own.elapsed_ns();
    }
    let shown = |module: &usize| {
        highest[*module].is_some() && stacks.modules[*module].kind != ModuleKind::Unknown
    };
    let mut order: Vec<usize> = (0..stacks.modules.len()).filter(shown).collect();
    // The first is shown as the file of the whole profile: the program itself, else the busiest
    // file.
    order.sort_by_key(|index| {
        let module = &stacks.modules[*index];
        let is_program = stacks.exe.as_deref() == Some(&module.name);
        let is_file = module.kind == ModuleKind::User;
        std::cmp::Reverse((is_program, is_file, weights[*index]))
    });
    let mut ids = vec![0; stacks.modules.len()];
    for index in order {
        let module = &stacks.modules[index];
        let id = profile.mapping.len() as u64 + 1;
        ids[index] = id;
        let (memory_start, memory_limit) = bounds(module, highest[index].unwrap_or_default());
        let name = match module.kind {
            ModuleKind::Kernel => "[kernel.kallsyms]",
            _ => &module.name,
        };
        profile.mapping.push(PprofMapping {
            id,
            memory_start,
            memory_limit,
            file_offset: memory_start,
            filename: text.number(name),
            build_id: module
                .build_id
                .as_deref()
                .map_or(0, |build_id| text.number(build_id)),
            has_functions: true,
            ..PprofMapping::default()
        });
    }
    ids
}

fn bounds(module: &StackModule, highest: u64) -> (u64, u64) {
    match module.kind {
        ModuleKind::Kernel | ModuleKind::KernelModule if highest >= KERNEL_START => {
            (KERNEL_START, u64::MAX)
        }
        ModuleKind::Jit if highest < USER_LIMIT => (0, USER_LIMIT),
        _ => {
            let limit = highest.saturating_add(1).max(MIN_FILE_BYTES);
            (0, limit.checked_next_power_of_two().unwrap_or(u64::MAX))
        }
    }
}

/// Makes a location for each place, and the functions. Answers with the id of each place's, 0 for
/// none.
fn locations(
    stacks: &StackTree,
    mappings: &[u64],
    text: &mut Strings,
    profile: &mut PprofProfile,
) -> Vec<u64> {
    let mut ids = vec![0; stacks.functions.len()];
    let mut functions: HashMap<(usize, i64), u64> = HashMap::new();
    for (index, place) in stacks.functions.iter().enumerate() {
        if place.section.is_some() {
            continue;
        }
        let name = text.number(&place.name);
        let list = &mut profile.function;
        let function_id = *functions.entry((place.module, name)).or_insert_with(|| {
            let id = list.len() as u64 + 1;
            list.push(Function {
                id,
                name,
                system_name: name,
                ..Function::default()
            });
            id
        });
        ids[index] = profile.location.len() as u64 + 1;
        profile.location.push(Location {
            id: ids[index],
            mapping_id: if place.offset.is_some() {
                mappings[place.module]
            } else {
                0
            },
            address: place.offset.unwrap_or_default(),
            line: vec![PprofLine {
                function_id,
                line: 0,
            }],
        });
    }
    ids
}

/// A sample for each stack that has anything in one of the columns.
fn samples(
    stacks: &StackTree,
    values: impl Fn(&Values) -> Vec<i64>,
    locations: &[u64],
    text: &mut Strings,
    profile: &mut PprofProfile,
) {
    for (index, node) in stacks.nodes.iter().enumerate().skip(1) {
        let value = values(&node.own);
        if value.iter().all(|value| *value == 0) {
            continue;
        }
        let mut sample = Sample {
            value,
            ..Sample::default()
        };
        for function in stacks.path(index).into_iter().rev() {
            let function = function as usize;
            match &stacks.functions[function].section {
                None => sample.location_id.push(locations[function]),
                Some(section) => match (&section.comm, section.pid) {
                    (Some(comm), Some(pid)) => {
                        sample.label.push(text.label("comm", comm));
                        sample.label.push(PprofLabel {
                            key: text.number("pid"),
                            num: pid.into(),
                            ..PprofLabel::default()
                        });
                    }
                    _ => sample.label.push(text.label("group", &section.name)),
                },
            }
        }
        profile.sample.push(sample);
    }
}

fn number(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// All text by number.
struct Strings {
    table: Vec<String>,
    numbers: HashMap<String, i64>,
}

impl Strings {
    fn new() -> Self {
        let mut strings = Self {
            table: Vec::new(),
            numbers: HashMap::new(),
        };
        // The format wants the empty text first.
        strings.number("");
        strings
    }

    fn number(&mut self, text: &str) -> i64 {
        if let Some(number) = self.numbers.get(text) {
            return *number;
        }
        let number = number(self.table.len() as u64);
        self.table.push(text.to_owned());
        self.numbers.insert(text.to_owned(), number);
        number
    }

    fn label(&mut self, key: &str, text: &str) -> PprofLabel {
        PprofLabel {
            key: self.number(key),
            str: self.number(text),
            ..PprofLabel::default()
        }
    }
}
