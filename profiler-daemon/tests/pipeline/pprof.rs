//! The pprof format: every rule that its readers rely on, the difference of two moments, and
//! Google's own reader.

use std::{
    collections::BTreeSet,
    io::{Read as _, Write as _},
    path::PathBuf,
    process::Command,
};

use profiler_daemon::{
    export::pprof::{
        self, Content,
        proto::{PprofMapping, PprofProfile as Pprof},
    },
    profile::{
        Profile, budget::NODE_BYTES, input::ThreadState, limits::Limits, snapshot::Snapshot,
    },
    report::{
        self, Fold, FrameScope, Scope, SectionMode, StackQuery, StackTree, TreeQuery, ViewQuery,
        names::Names, product::Values,
    },
};
use proptest::prelude::*;
use prost::Message as _;

use crate::{
    golden::{OF_PROCESS, compare, service},
    ledger,
    machine::{ByOffset, Machine, PassPlan, SECOND_NS, START_NS, START_UNIX_NS, plans},
    small::{self, PROCESS, Small, THREAD},
};

const PERIOD_NS: u64 = 10_101_010;

fn query(sections: SectionMode) -> StackQuery {
    StackQuery {
        places: true,
        sections,
        tree: TreeQuery {
            frames: FrameScope::All,
            ..TreeQuery::default()
        },
    }
}

fn written(stacks: &StackTree, content: Content) -> Vec<u8> {
    let mut bytes = Vec::new();
    pprof::write(stacks, content, PERIOD_NS, &mut bytes).unwrap();
    bytes
}

fn read(bytes: &[u8]) -> Pprof {
    let mut plain = Vec::new();
    flate2::read::GzDecoder::new(bytes)
        .read_to_end(&mut plain)
        .unwrap();
    Pprof::decode(&*plain).unwrap()
}

fn text(profile: &Pprof, number: i64) -> &str {
    &profile.string_table[usize::try_from(number).unwrap()]
}

/// The names of the functions of a stack, innermost first.
fn names(profile: &Pprof, locations: &[u64]) -> Vec<String> {
    let name = |id: &u64| {
        let location = &profile.location[*id as usize - 1];
        let function = &profile.function[location.line[0].function_id as usize - 1];
        text(profile, function.name).to_owned()
    };
    locations.iter().map(name).collect()
}

fn mapping<'a>(profile: &'a Pprof, name: &str) -> &'a PprofMapping {
    let named = |mapping: &&PprofMapping| text(profile, mapping.filename) == name;
    profile.mapping.iter().find(named).unwrap()
}

/// What every reader relies on.
fn check_rules(profile: &Pprof) {
    assert_eq!(profile.string_table[0], "");
    let distinct: BTreeSet<&String> = profile.string_table.iter().collect();
    assert_eq!(distinct.len(), profile.string_table.len());
    for (index, function) in profile.function.iter().enumerate() {
        assert_eq!(function.id, index as u64 + 1);
        assert!(!text(profile, function.name).is_empty());
        assert_eq!((function.filename, function.start_line), (0, 0));
    }
    for (index, mapping) in profile.mapping.iter().enumerate() {
        assert_eq!(mapping.id, index as u64 + 1);
        assert!(mapping.memory_start < mapping.memory_limit);
        assert!(!text(profile, mapping.filename).is_empty());
        let build_id = text(profile, mapping.build_id);
        assert!(
            build_id
                .bytes()
                .all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
        );
        // Without this, readers look for the file on their own machine; and nothing else is told.
        assert!(mapping.has_functions);
        let more = (
            mapping.has_filenames,
            mapping.has_line_numbers,
            mapping.has_inline_frames,
        );
        assert_eq!(more, (false, false, false));
    }
    for (index, location) in profile.location.iter().enumerate() {
        assert_eq!(location.id, index as u64 + 1);
        assert_eq!(location.line.len(), 1);
        let function = location.line[0].function_id;
        assert!((1..=profile.function.len() as u64).contains(&function));
        assert!(location.mapping_id <= profile.mapping.len() as u64);
        if location.mapping_id > 0 {
            let mapping = &profile.mapping[location.mapping_id as usize - 1];
            assert!((mapping.memory_start..mapping.memory_limit).contains(&location.address));
        }
    }
    let mut seen = BTreeSet::new();
    for sample in &profile.sample {
        assert_eq!(sample.value.len(), profile.sample_type.len());
        assert!(sample.value.iter().all(|value| *value >= 0));
        assert!(sample.value.iter().any(|value| *value > 0));
        assert!(!sample.location_id.is_empty());
        let known = 1..=profile.location.len() as u64;
        assert!(sample.location_id.iter().all(|id| known.contains(id)));
        let labels: Vec<_> = sample
            .label
            .iter()
            .map(|label| (label.key, label.str, label.num))
            .collect();
        let keys: BTreeSet<i64> = labels.iter().map(|label| label.0).collect();
        assert_eq!(keys.len(), labels.len());
        assert!(
            seen.insert((sample.location_id.clone(), labels)),
            "a stack comes twice"
        );
    }
    let types: Vec<_> = profile.sample_type.iter().map(|kind| kind.r#type).collect();
    assert!(types.contains(&profile.default_sample_type));
    assert!(profile.period > 0 && types.contains(&profile.period_type.unwrap().r#type));
}

fn sum(profile: &Pprof, column: usize) -> u64 {
    profile
        .sample
        .iter()
        .map(|sample| sample.value[column] as u64)
        .sum()
}

// Check the profile of one process: types, times, program first, addresses, build IDs, kernel,
// order, remarks and sums.
#[test]
fn a_process() {
    let (snapshot, known) = service();
    let stacks = report::stacks(&snapshot, &OF_PROCESS, &query(SectionMode::None), &known).unwrap();
    let bytes = written(&stacks, Content::All);
    assert_eq!(
        bytes,
        written(&stacks, Content::All),
        "the same bytes again"
    );
    assert_eq!(&bytes[..2], [0x1f, 0x8b]);
    assert_eq!(bytes[4..8], [0; 4], "no time in the header");
    let profile = read(&bytes);
    check_rules(&profile);
    let types: Vec<_> = profile
        .sample_type
        .iter()
        .map(|kind| {
            format!(
                "{}/{}",
                text(&profile, kind.r#type),
                text(&profile, kind.unit)
            )
        })
        .collect();
    assert_eq!(
        types,
        [
            "samples/count",
            "cpu/nanoseconds",
            "elapsed/nanoseconds",
            "application/nanoseconds",
            "blocked/nanoseconds",
            "runnable/nanoseconds"
        ]
    );
    assert_eq!(text(&profile, profile.default_sample_type), "cpu");
    let period = profile.period_type.unwrap();
    assert_eq!(text(&profile, period.r#type), "cpu");
    assert_eq!(text(&profile, period.unit), "nanoseconds");
    assert_eq!(profile.period, PERIOD_NS as i64);
    assert_eq!(profile.time_nanos, START_UNIX_NS.ns() as i64);
    assert_eq!(profile.duration_nanos, 10 * SECOND_NS as i64);
    assert_eq!(text(&profile, profile.mapping[0].filename), "/usr/bin/app");
    assert_eq!(text(&profile, profile.mapping[0].build_id), "ab01");
    let kernel = mapping(&profile, "[kernel.kallsyms]");
    assert_eq!(kernel.file_offset, kernel.memory_start);
    assert!(profile.sample.iter().all(|sample| sample.label.is_empty()));
    let reading = profile
        .sample
        .iter()
        .map(|sample| (names(&profile, &sample.location_id), &sample.value))
        .find(|(names, _)| names[0] == "vfs_read")
        .unwrap();
    assert_eq!(
        reading.0,
        ["vfs_read", "do_syscall", "load", "main", "_start"]
    );
    let ms = 1_000_000;
    let cpu = 3 * PERIOD_NS as i64;
    assert_eq!(*reading.1, [3, cpu, 1000 * ms, 0, 700 * ms, 0]);
    // The lost ones and those that cannot be named are there too.
    let shown: Vec<Vec<String>> = profile
        .sample
        .iter()
        .map(|sample| names(&profile, &sample.location_id))
        .collect();
    assert!(
        shown.contains(&vec!["[unknown: map_full]".to_owned()]),
        "{shown:?}"
    );
    assert!(
        shown
            .iter()
            .any(|names| names.contains(&"app+0x99?".to_owned()))
    );
    let remarks: Vec<&str> = profile.comment.iter().map(|n| text(&profile, *n)).collect();
    assert!(
        remarks
            .iter()
            .any(|remark| remark.contains("samples_lost=1")),
        "{remarks:?}"
    );
    let process = report::process(
        &snapshot,
        &Scope::Process(report::ProcessSelector {
            pid: 42,
            start_ticks: None,
        }),
        &ViewQuery::default(),
        &known,
    )
    .unwrap();
    let missing = process.completeness.elapsed_unattributed_ns;
    assert_eq!(sum(&profile, 0), process.process.totals.samples);
    assert_eq!(
        sum(&profile, 2) + missing,
        process.process.totals.elapsed_ns
    );
}

// Check that stacks of the session are told apart by group or process in labels, never by what only
// looks like a function.
#[test]
fn labels() {
    let (snapshot, known) = service();
    for (sections, keys) in [
        (SectionMode::None, &[][..]),
        (SectionMode::Group, &["group"]),
        (SectionMode::Process, &["comm", "pid"]),
    ] {
        let stacks = report::stacks(&snapshot, &Scope::Session, &query(sections), &known).unwrap();
        let profile = read(&written(&stacks, Content::Cpu));
        check_rules(&profile);
        for sample in &profile.sample {
            let found: Vec<_> = sample.label.iter().map(|l| text(&profile, l.key)).collect();
            assert_eq!(found, keys);
        }
        if sections == SectionMode::Process {
            let of_kernel = profile
                .sample
                .iter()
                .find(|sample| names(&profile, &sample.location_id)[0] == "worker_thread");
            let label = &of_kernel.unwrap().label;
            assert_eq!(text(&profile, label[0].str), "kworker/0:1");
            assert_eq!((label[1].str, label[1].num), (0, 7));
        }
    }
}

// Check that hidden modules have no location, and the sums stay.
#[test]
fn folded_modules() {
    let (snapshot, known) = service();
    let mut query = query(SectionMode::None);
    let whole = report::stacks(&snapshot, &OF_PROCESS, &query, &known).unwrap();
    query.tree.fold = Fold {
        hide: vec!["[kernel]".to_owned()],
        ..Fold::default()
    };
    let stacks = report::stacks(&snapshot, &OF_PROCESS, &query, &known).unwrap();
    let (profile, whole) = (
        pprof::profile(&stacks, Content::All, 1),
        pprof::profile(&whole, Content::All, 1),
    );
    assert!(profile.mapping.len() < whole.mapping.len());
    for column in 0..6 {
        assert_eq!(sum(&profile, column), sum(&whole, column));
    }
}

fn total(stacks: &StackTree) -> Values {
    let mut total = Values::default();
    for node in &stacks.nodes {
        total.add(&node.own);
    }
    total
}

// Check that between two moments only what passed between them is there: a new stack, more of an
// old one, an interval that is still open; and the times of the window.
#[test]
fn between_two_moments() {
    let mut small = Small::new(Limits::default());
    let step =
        |small: &mut Small, second: u64, work: u64, blocked: u64, rows: &[(&[&str], u64)]| {
            let mut pass = small.pass(second);
            let classes = [work * SECOND_NS, 0, blocked * SECOND_NS, 0, 0];
            pass.processes.push(small::info(PROCESS));
            pass.threads.push(small::thread(
                PROCESS,
                THREAD,
                ThreadState::Blocked,
                classes,
            ));
            for (frames, seconds) in rows {
                let classes = [seconds * SECOND_NS, 0, 0, 0, 0];
                pass.stacks
                    .push(small.delta(frames, &[], *seconds, classes));
            }
            let waits = [0, 0, blocked * SECOND_NS, 0, 0];
            pass.open.push(small.open(&["main", "wait"], &[], waits));
            small.profile.apply(pass);
            small.profile.snapshot()
        };
    let before = step(&mut small, 10, 5, 5, &[(&["main", "old"], 5)]);
    let after = step(
        &mut small,
        20,
        9,
        11,
        &[(&["main", "old"], 1), (&["main", "new"], 3)],
    );
    let query = query(SectionMode::Process);
    for scope in [OF_PROCESS, Scope::Session] {
        let stacks = report::stacks_between(&before, &after, &scope, &query, &small.names).unwrap();
        let profile = read(&written(&stacks, Content::Wall));
        check_rules(&profile);
        assert_eq!(profile.period, 1);
        assert_eq!(
            profile.time_nanos,
            (START_UNIX_NS + 10 * SECOND_NS).ns() as i64
        );
        assert_eq!(profile.duration_nanos, 10 * SECOND_NS as i64);
        let mut rows: Vec<_> = profile
            .sample
            .iter()
            .map(|sample| {
                let seconds = sample.value.iter().map(|v| v / SECOND_NS as i64);
                (
                    names(&profile, &sample.location_id)[0].clone(),
                    seconds.collect(),
                )
            })
            .collect();
        rows.sort();
        let expected: [(String, Vec<i64>); 3] = [
            ("new".to_owned(), vec![3, 3]),
            ("old".to_owned(), vec![1, 1]),
            ("wait".to_owned(), vec![6, 0]),
        ];
        assert_eq!(rows, expected);
        assert_eq!(stacks.shrunk_ns, 0);
        // Of what was gained: 10 s of each of two classes, of which a stack has 4 and 6.
        let share = stacks.completeness.elapsed_attributed_percent;
        assert!((share - 100.0).abs() < 1e-9, "{share}");
    }
    let nothing = report::stacks_between(&after, &after, &OF_PROCESS, &query, &small.names);
    assert_eq!(total(&nothing.unwrap()), Values::default());
}

/// The difference between two passes of a random machine is the difference of the sums, but for
/// what moved.
fn check_between(earlier: &Snapshot, later: &Snapshot, names: &dyn Names) {
    for sections in [SectionMode::None, SectionMode::Group, SectionMode::Process] {
        let query = query(sections);
        let all =
            |snapshot| total(&report::stacks(snapshot, &Scope::Session, &query, names).unwrap());
        let between =
            report::stacks_between(earlier, later, &Scope::Session, &query, names).unwrap();
        check_rules(&pprof::profile(&between, Content::Wall, 1));
        let found = total(&between);
        assert_eq!(
            found.elapsed_ns() + all(earlier).elapsed_ns(),
            all(later).elapsed_ns() + between.shrunk_ns
        );
    }
}

fn run(limits: Limits, plans: &[PassPlan]) {
    let mut profile = Profile::new(limits, START_NS, START_UNIX_NS);
    let mut machine = Machine::new(&mut profile);
    let names = ByOffset::new(&mut profile);
    let mut snapshots = vec![profile.snapshot()];
    for plan in plans {
        profile.apply(machine.pass(plan));
        snapshots.push(profile.snapshot());
    }
    let later = &snapshots[snapshots.len() - 1];
    for earlier in &snapshots {
        check_between(earlier, later, &names);
    }
}

proptest! {
    #![proptest_config(ledger::config(24))]

    // Check that what a window holds is exact for any two moments of a random machine, with room,
    // and while processes are dropped and trees folded in between.
    #[test]
    fn differences_are_exact(plans in plans()) {
        run(Limits::default(), &plans);
    }

    // Check the same with little room.
    #[test]
    fn differences_are_exact_without_room(plans in plans()) {
        run(Limits { tree_bytes: 70 * NODE_BYTES, exited_processes: 1, ..Limits::default() }, &plans);
    }
}

/// Google's reader, where it is installed: on its own, or within a Go distribution.
fn reader() -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let in_path = std::env::split_paths(&path).map(|folder| folder.join("pprof"));
    let of_go = std::fs::read_dir("/usr/lib")
        .into_iter()
        .flatten()
        .flatten();
    let of_go = of_go
        .filter(|entry| entry.file_name().to_string_lossy().starts_with("go-"))
        .map(|entry| entry.path().join("pkg/tool/linux_amd64/pprof"));
    in_path.chain(of_go).find(|file| file.is_file())
}

// Check that Google's reader takes the profiles, shows what is in them, and finds nothing to
// complain about.
#[test]
fn the_reference_reader() {
    let Some(reader) = reader() else {
        let sentence = "skipped: pprof is not installed, so it did not read the profiles";
        // Past the harness, which would keep it to itself.
        writeln!(std::io::stderr(), "{sentence}").unwrap();
        return;
    };
    let (snapshot, known) = service();
    let folder = tempfile::tempdir().unwrap();
    let run = |file: &PathBuf, arguments: &[&str]| {
        let output = Command::new(&reader)
            .args(arguments)
            .arg(file)
            .env("PPROF_TMPDIR", folder.path())
            .env("PPROF_BINARY_PATH", folder.path())
            .env("HOME", folder.path())
            .output()
            .unwrap();
        let complaints = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{complaints}");
        assert_eq!(complaints, "", "{arguments:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    for (name, scope, sections, content) in [
        ("process", OF_PROCESS, SectionMode::None, Content::All),
        (
            "session",
            Scope::Session,
            SectionMode::Process,
            Content::Cpu,
        ),
        ("wall", Scope::Session, SectionMode::Group, Content::Wall),
    ] {
        let stacks = report::stacks(&snapshot, &scope, &query(sections), &known).unwrap();
        let file = folder.path().join(format!("{name}.pb.gz"));
        std::fs::write(&file, written(&stacks, content)).unwrap();
        // It shows the time in the reader's own zone, and the numbers of strings nowhere.
        let raw = run(&file, &["-raw"]);
        let raw: Vec<&str> = raw
            .lines()
            .filter(|line| !line.starts_with("Time:"))
            .collect();
        compare(&format!("pprof-{name}.raw"), &(raw.join("\n") + "\n"));
        let top = run(&file, &["-top", "-nodecount=3"]);
        let first = match content {
            Content::Wall => "wait",
            _ => "inner",
        };
        assert!(top.contains(first), "{top}");
        run(&file, &["-traces"]);
        run(&file, &["-tags"]);
        run(&file, &["-tree"]);
        let twice = format!("-diff_base={}", file.display());
        assert!(
            run(&file, &["-top", &twice]).contains("Showing nodes"),
            "{name}"
        );
    }
}
