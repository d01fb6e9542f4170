//! Functions that were measured exactly: the values of instrumentation, with what the probes
//! themselves cost subtracted.

use profiler_common::measured::MeasuredRow;
use serde::Serialize;

use super::call_values::{About, CallValues, ProbeTimes, cost, total_ns};
use super::spans::{SpanValues, UsdtValues, followed};
use crate::collect::{MeasuredFunction, MeasuredFunctions};
use crate::kernel::{ProbeCost, ProbeCosts};
use crate::profile::frames::FrameId;
use crate::profile::measured::Calls;
use crate::units::MonoNs;

mod callers;

pub use callers::{MeasuredCaller, caller_frames, caller_name};

/// All measured functions.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Measured {
    /// Each of them.
    pub functions: Vec<MeasuredValues>,
    /// USDT points whose hits were counted; left out where none was asked for, as the next.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub usdt: Vec<UsdtValues>,
    /// Spans whose time was taken.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub spans: Vec<SpanValues>,
    /// What probes of functions took in all, nanoseconds: subtracted from their values.
    pub probes_ns: u64,
    /// What they cost here, measured before and while functions were; of functions of Go where any
    /// was.
    pub probe_costs: Vec<KindCost>,
}

/// What the probes of one call cost, nanoseconds.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct KindCost {
    /// How the kernel executes the instruction at the entry: "emulated" or "stepped", out of its
    /// line.
    pub entry: &'static str,
    /// The same of the exit; `null` where calls are counted.
    #[schema(required)]
    pub exit: Option<&'static str>,
    /// Whether it is what calls of goroutines cost: of functions of Go.
    pub goroutines: bool,
    /// In the times of the call itself.
    pub inside_ns: f64,
    /// In those of its caller.
    pub outside_ns: f64,
    /// How far the sum may be off.
    pub error_ns: f64,
}

/// One measured function: calls of all processes.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct MeasuredValues {
    /// Its name.
    pub function: String,
    /// Other names of the same code.
    pub aliases: Vec<String>,
    /// Its file.
    pub module: String,
    /// Its calls.
    #[serde(flatten)]
    pub values: CallValues,
    /// How long after the recording began its probes were attached, nanoseconds: calls before that
    /// are not in its values.
    pub attached_after_ns: u64,
    /// The functions that call it, those with most time first: 64 places of a process are told
    /// apart.
    pub callers: Vec<MeasuredCaller>,
}

/// The values of all measured functions, of a recording that began at `began_ns`. `name_of`
/// tells the function and the file of each of [`caller_frames`], as [`caller_name`] does.
#[must_use]
pub fn measured(
    all: &MeasuredFunctions,
    name_of: impl Fn(FrameId) -> (String, String),
    began_ns: MonoNs,
) -> Measured {
    let functions: Vec<MeasuredValues> = all
        .functions
        .iter()
        .map(|function| MeasuredValues {
            callers: callers::callers(function, &name_of, &all.costs),
            ..values(function, &all.costs, began_ns)
        })
        .collect();
    let own = all.functions.iter().flat_map(|function| {
        let rows = function.calls.values();
        rows.map(|row| cost(&row.probes_own, |kind| total_ns(&all.costs, kind)))
    });
    let (usdt, spans) = followed(&all.items, &all.costs, began_ns);
    Measured {
        functions,
        usdt,
        spans,
        probes_ns: own.sum::<f64>() as u64,
        probe_costs: KINDS
            .iter()
            .filter(|(kind, .., goroutines)| {
                !goroutines || all.costs[*kind] != ProbeCost::default()
            })
            .map(|(kind, entry, exit, goroutines)| KindCost {
                entry,
                exit: *exit,
                goroutines: *goroutines,
                inside_ns: all.costs[*kind].inside_ns,
                outside_ns: all.costs[*kind].outside_ns,
                error_ns: all.costs[*kind].error_ns,
            })
            .collect(),
    }
}

/// The kinds of probed calls that there are, with the instructions at their entries and exits, and
/// whether they are of goroutines.
const KINDS: [(usize, &str, Option<&str>, bool); 8] = [
    (0, EMULATED, None, false),
    (1, STEPPED, None, false),
    (2, EMULATED, Some(STEPPED), true),
    (3, STEPPED, Some(STEPPED), true),
    (4, EMULATED, Some(EMULATED), false),
    (5, EMULATED, Some(STEPPED), false),
    (6, STEPPED, Some(EMULATED), false),
    (7, STEPPED, Some(STEPPED), false),
];
const EMULATED: &str = "emulated";
const STEPPED: &str = "stepped";

fn values(function: &MeasuredFunction, costs: &ProbeCosts, began_ns: MonoNs) -> MeasuredValues {
    let mut row = MeasuredRow::EMPTY;
    for calls in function.calls.values() {
        row.merge(calls);
    }
    let about = About {
        counted_only: function.plan.exits.as_ref().err().map(String::as_str),
        gave_up: function.gave_up.as_deref().or(function.unseen.as_deref()),
        goroutines: function.plan.goroutines,
    };
    let calls = Calls::from(&row);
    MeasuredValues {
        function: function.plan.name.clone(),
        aliases: function.plan.aliases.clone(),
        module: function.plan.module.to_string(),
        callers: Vec::new(),
        values: CallValues::new(&calls, about, ProbeTimes::of(&calls, costs), None),
        attached_after_ns: function.attached_ns.saturating_since(began_ns),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::sync::Arc;

    use profiler_common::measured::{CallerRow, Condition, Extremes, histogram::bucket};

    use super::*;
    use crate::collect::{Callers, PlannedFunction, PlannedPoint};
    use crate::processes::ids::ProcessKey;
    use crate::units::{BootNs, FileOffset, ModuleAddress};

    /// A function of two processes with a thousand calls of 10 us each, of which each makes two
    /// probed calls.
    fn function() -> MeasuredFunctions {
        let mut row = MeasuredRow::EMPTY;
        row.calls = 1000;
        row.outermost = 1000;
        row.complete = 1000;
        row.inclusive = [8_000_000, 1_000_000, 500_000, 500_000, 0];
        row.exclusive = [6_000_000, 1_000_000, 500_000, 500_000, 0];
        row.probes_own[3] = 1000;
        row.probes_outermost[3] = 1000;
        row.probes_below[2] = 2000;
        row.probes_direct[2] = 2000;
        // Each of them is less its probes already.
        row.inclusive_extremes[0] = Extremes {
            min_ns: 7_300,
            max_ns: 10_300,
        };
        row.histograms[0][bucket(8_300)] = 1000;
        let mut costs = ProbeCosts::default();
        costs[2] = ProbeCost {
            inside_ns: 100.0,
            outside_ns: 400.0,
            inside_error_ns: 10.0,
            error_ns: 10.0,
        };
        costs[3] = ProbeCost {
            inside_ns: 700.0,
            outside_ns: 5_000.0,
            inside_error_ns: 20.0,
            error_ns: 50.0,
        };
        let file = Arc::new(File::open("/proc/self/exe").unwrap());
        let plan = PlannedFunction {
            name: "work".to_owned(),
            aliases: Vec::new(),
            module: "/usr/bin/app".into(),
            address: ModuleAddress::new(0x1000),
            file,
            shared: false,
            entry: PlannedPoint {
                offset: FileOffset::ZERO,
                stepped: false,
                condition: Condition::ALWAYS,
            },
            exits: Ok(Vec::new()),
            loops: false,
            goroutines: false,
        };
        let process = |pid| ProcessKey {
            pid,
            start_ns: BootNs::ZERO,
        };
        MeasuredFunctions {
            functions: vec![MeasuredFunction {
                plan: Arc::new(plan),
                attached_ns: MonoNs::ZERO,
                gave_up: None,
                unseen: None,
                calls: BTreeMap::from([(process(1), row), (process(2), row)]),
                callers: Callers::new(),
            }],
            items: Vec::new(),
            costs,
        }
    }

    /// Frames 1 and 2 are in one function, all others in another.
    fn name_of(frame: FrameId) -> (String, String) {
        let function = if frame.0 <= 2 { "near" } else { "far" };
        (function.to_owned(), "/usr/bin/app".to_owned())
    }

    // Check that callers are told by function, those with most time first, with what probes took
    // within their calls subtracted, and that further ones are together.
    #[test]
    fn callers_are_told_by_function() {
        let mut all = function();
        let of = |calls: u64, elapsed_ns: u64| {
            let mut row = CallerRow {
                calls,
                outermost: calls,
                elapsed_ns,
                application_ns: elapsed_ns / 2,
                ..CallerRow::EMPTY
            };
            row.probes_outermost[3] = calls;
            row.probes_below[2] = 2 * calls;
            row
        };
        all.functions[0].callers = Callers::from([
            (Some(FrameId(1)), of(100, 1_000_000)),
            (Some(FrameId(2)), of(200, 2_000_000)),
            (Some(FrameId(3)), of(10, 20_000_000)),
            (None, of(5, 50_000)),
        ]);
        assert_eq!(caller_frames(&all), [FrameId(1), FrameId(2), FrameId(3)]);
        let callers = &measured(&all, name_of, MonoNs::ZERO).functions[0].callers;
        let told: Vec<_> = callers
            .iter()
            .map(|one| (one.function.as_str(), one.calls, one.elapsed_ns))
            .collect();
        let less = |calls: u64, ns: u64| ns - calls * (700 + 2 * 500);
        assert_eq!(
            told,
            [
                ("far", 10, less(10, 20_000_000)),
                ("near", 300, less(300, 3_000_000)),
                ("[other callers]", 5, less(5, 50_000)),
            ]
        );
        assert_eq!(callers[1].application_ns, Some(less(300, 1_500_000)));
    }

    // Check that what probes took is subtracted where it fell: of the function's own calls the part
    // within, of those below all, and of exclusive times what their callers see.
    #[test]
    fn probes_are_subtracted() {
        let report = measured(&function(), name_of, MonoNs::ZERO);
        let values = &report.functions[0].values;
        assert_eq!((values.calls, values.outermost), (2000, 2000));
        assert_eq!(values.probe_ns, 2000 * 700 + 4000 * 500);
        assert_eq!(values.error_ns, 2000 * 20 + 4000 * 10);
        assert_eq!(values.elapsed.inclusive_ns, 20_000_000 - values.probe_ns);
        assert_eq!(
            values.elapsed.exclusive_ns,
            16_000_000 - 2000 * 700 - 4000 * 400
        );
        assert_eq!(
            values.application.as_ref().unwrap().inclusive_ns,
            16_000_000 - values.probe_ns
        );
        assert_eq!(values.elapsed.mean_ns, Some(8_300));
        assert_eq!(values.elapsed.min_ns, Some(7_300));
        assert_eq!(report.probes_ns, 2000 * 5_700);
        assert!(!values.mostly_probe);
        let p50_ns = values.elapsed.p50_ns.unwrap();
        assert!((7_300..=10_300).contains(&p50_ns), "{p50_ns}");
    }

    // Check that a function without calls has no mean, and that calls shorter than their probes
    // are not below nothing.
    #[test]
    fn nothing_and_next_to_nothing() {
        let mut none = function();
        none.functions[0].calls.clear();
        let report = measured(&none, name_of, MonoNs::ZERO);
        assert_eq!(report.functions[0].values.elapsed.mean_ns, None);
        assert_eq!(report.functions[0].values.elapsed.p99_ns, None);
        let mut short = function();
        for row in short.functions[0].calls.values_mut() {
            row.inclusive = [600_000, 0, 0, 0, 0];
        }
        let report = measured(&short, name_of, MonoNs::ZERO);
        assert_eq!(report.functions[0].values.elapsed.inclusive_ns, 0);
        assert!(report.functions[0].values.mostly_probe);
        // Calls below that are shorter than their probes take nothing from what they are made by.
        let mut below = function();
        for row in below.functions[0].calls.values_mut() {
            row.probes_below[2] *= 10;
        }
        let values = &measured(&below, name_of, MonoNs::ZERO).functions[0].values;
        let [inclusive_ns, exclusive_ns] =
            [values.elapsed.inclusive_ns, values.elapsed.exclusive_ns];
        assert_eq!([inclusive_ns, exclusive_ns], [13_000_000; 2]);
        assert_eq!(inclusive_ns + values.probe_ns, 20_000_000);
        // Long calls, of which those that they made are more than half probes.
        let mut busy = function();
        for row in busy.functions[0].calls.values_mut() {
            row.exclusive[0] = 1_000_000;
            row.probes_below[2] *= 6;
        }
        let values = &measured(&busy, name_of, MonoNs::ZERO).functions[0].values;
        assert!(values.elapsed.inclusive_ns < values.probe_ns && values.mostly_probe);
    }
}
