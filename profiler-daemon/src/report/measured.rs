//! Functions that were measured exactly: the values of instrumentation, with what the probes
//! themselves cost subtracted.

use profiler_common::Class;
use profiler_common::measured::histogram::{BUCKETS, lower_bound_ns};
use profiler_common::measured::{Extremes, MeasuredRow, PROBE_KINDS, elapsed_ns};
use serde::Serialize;

use super::spans::{SpanValues, UsdtValues, followed};
use super::values::ClassValues;
use crate::collect::{MeasuredFunction, MeasuredFunctions};
use crate::kernel::ProbeCosts;

/// Below so many times what a probe takes within a call, a call is mostly probe.
const MOSTLY_PROBE: f64 = 10.0;

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
    /// What they cost here, measured when the first function was.
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
    /// Entries.
    pub calls: u64,
    /// Calls during which no other one of the function was open in the thread, from entry to exit:
    /// what inclusive times, means and quantiles are of.
    pub outermost: u64,
    /// Calls under way.
    pub open: u64,
    /// Calls that ended without an exit: an exception, a jump across frames, or the end of the
    /// thread or the program. Their time is their caller's.
    pub left_unseen: u64,
    /// Calls that were only counted, because too many were open or no times could be read.
    pub counted_only: u64,
    /// Exits of calls that had begun before the function was measured.
    pub exits_unmatched: u64,
    /// All of the time.
    pub elapsed: MeasuredTimes,
    /// The part of it in user mode outside system calls; handling page faults is in it.
    pub application: MeasuredTimes,
    /// Inclusive time by class.
    pub classes: ClassValues,
    /// Exclusive time by class: less the calls of other measured functions that it made.
    pub exclusive_classes: ClassValues,
    /// Page faults during its calls that waited for no device.
    pub minor_faults: u64,
    /// Those that did.
    pub major_faults: u64,
    /// Complete calls during which system calls were not traced: the whole of their running time is
    /// application time.
    pub untraced_calls: u64,
    /// What probes took within its calls, nanoseconds: subtracted.
    pub probe_ns: u64,
    /// How far the subtracted may be off, nanoseconds.
    pub error_ns: u64,
    /// Whether its calls are so short that most of what was measured was the probes.
    pub mostly_probe: bool,
    /// How its exits were found: "sites", its own returns and jumps to other functions; "none":
    /// calls are counted.
    pub exits: &'static str,
    /// How long after the recording began its probes were attached, nanoseconds: calls before that
    /// are not in its values.
    pub attached_after_ns: u64,
    /// Why there are no times, or not to the end.
    #[schema(required)]
    pub why: Option<String>,
}

/// One of the two times of a measured function.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct MeasuredTimes {
    /// From entry to exit, of outermost calls, nanoseconds.
    pub inclusive_ns: u64,
    /// Less the calls of other measured functions that it made.
    pub exclusive_ns: u64,
    /// The shortest outermost call; `null` where there is none, as in the next ones.
    #[schema(required)]
    pub min_ns: Option<u64>,
    /// The mean of them.
    #[schema(required)]
    pub mean_ns: Option<u64>,
    /// The longest.
    #[schema(required)]
    pub max_ns: Option<u64>,
    /// Half of them took no longer; to a fifth.
    #[schema(required)]
    pub p50_ns: Option<u64>,
    /// Nine of ten.
    #[schema(required)]
    pub p90_ns: Option<u64>,
    /// Ninety-nine of a hundred.
    #[schema(required)]
    pub p99_ns: Option<u64>,
    /// Their durations: the least one of a bucket, nanoseconds, and how many calls are in it.
    pub histogram: Vec<(u64, u32)>,
}

/// The values of all measured functions, of a recording that began at `began_ns`.
#[must_use]
pub fn measured(all: &MeasuredFunctions, began_ns: u64) -> Measured {
    let functions: Vec<MeasuredValues> = all
        .functions
        .iter()
        .map(|function| values(function, &all.costs, began_ns))
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
            .map(|(kind, entry, exit)| KindCost {
                entry,
                exit: *exit,
                inside_ns: all.costs[*kind].inside_ns,
                outside_ns: all.costs[*kind].outside_ns,
                error_ns: all.costs[*kind].error_ns,
            })
            .collect(),
    }
}

/// The kinds of probed calls that there are, with the instructions at their entries and exits.
const KINDS: [(usize, &str, Option<&str>); 6] = [
    (0, EMULATED, None),
    (1, STEPPED, None),
    (4, EMULATED, Some(EMULATED)),
    (5, EMULATED, Some(STEPPED)),
    (6, STEPPED, Some(EMULATED)),
    (7, STEPPED, Some(STEPPED)),
];
const EMULATED: &str = "emulated";
const STEPPED: &str = "stepped";

fn values(function: &MeasuredFunction, costs: &ProbeCosts, began_ns: u64) -> MeasuredValues {
    let mut row = MeasuredRow::EMPTY;
    for calls in function.calls.values() {
        row.merge(calls);
    }
    let inside = |kind: usize| costs[kind].inside_ns;
    let own_ns = cost(&row.probes_outermost, inside);
    let below_ns = cost(&row.probes_below, |kind| total_ns(costs, kind));
    let direct_ns = cost(&row.probes_direct, |kind| costs[kind].outside_ns);
    let probe_ns = own_ns + below_ns;
    let exclusive_probe_ns = cost(&row.probes_own, inside) + direct_ns;
    let error_ns = cost(&row.probes_outermost, |kind| costs[kind].error_ns)
        + cost(&row.probes_below, |kind| costs[kind].error_ns);
    let per_call_ns = if row.outermost == 0 {
        0.0
    } else {
        probe_ns / row.outermost as f64
    };
    // What probes take is user time: the handling of a breakpoint is no system call.
    let lessened = |times: &[u64; 5], probe_ns: f64| {
        let mut times = *times;
        let user = &mut times[Class::User as usize];
        *user = user.saturating_sub(probe_ns as u64);
        times
    };
    let inclusive = lessened(&row.inclusive, probe_ns);
    let exclusive = lessened(&row.exclusive, exclusive_probe_ns);
    let user = Class::User as usize;
    let times = |which: usize, inclusive_ns: u64, exclusive_ns: u64| {
        let histogram = &row.histograms[which];
        let extremes = row.inclusive_extremes[which];
        of_calls(
            (inclusive_ns, exclusive_ns),
            (row.outermost, extremes, histogram),
            per_call_ns,
        )
    };
    let mostly_probe =
        row.outermost > 0 && (elapsed_ns(&row.inclusive) as f64) < MOSTLY_PROBE * own_ns;
    MeasuredValues {
        function: function.plan.name.clone(),
        aliases: function.plan.aliases.clone(),
        module: function.plan.module.to_string(),
        calls: row.calls,
        outermost: row.outermost,
        open: u64::from(row.open),
        left_unseen: row.left_unseen + row.left_exec + row.left_exit,
        counted_only: row.too_deep + row.no_times,
        exits_unmatched: row.exits_unmatched,
        elapsed: times(0, elapsed_ns(&inclusive), elapsed_ns(&exclusive)),
        application: times(1, inclusive[user], exclusive[user]),
        classes: ClassValues::from(&inclusive),
        exclusive_classes: ClassValues::from(&exclusive),
        minor_faults: row.faults[0],
        major_faults: row.faults[1],
        untraced_calls: row.untraced,
        probe_ns: probe_ns as u64,
        error_ns: error_ns as u64,
        mostly_probe,
        exits: if function.plan.exits.is_ok() {
            "sites"
        } else {
            "none"
        },
        attached_after_ns: function.attached_ns.saturating_sub(began_ns),
        why: function
            .gave_up
            .clone()
            .or_else(|| function.plan.exits.as_ref().err().cloned()),
    }
}

fn of_calls(
    (inclusive_ns, exclusive_ns): (u64, u64),
    (outermost, extremes, histogram): (u64, Extremes, &[u32; BUCKETS]),
    per_call_ns: f64,
) -> MeasuredTimes {
    let less = |ns: u64| ns.saturating_sub(per_call_ns as u64);
    let any = outermost > 0;
    let quantile = |share: f64| {
        let ns = quantile(histogram, share)?;
        Some(less(ns.clamp(extremes.min_ns, extremes.max_ns)))
    };
    MeasuredTimes {
        inclusive_ns,
        exclusive_ns,
        min_ns: any.then(|| less(extremes.min_ns)),
        mean_ns: inclusive_ns.checked_div(outermost),
        max_ns: any.then(|| less(extremes.max_ns)),
        p50_ns: quantile(0.5),
        p90_ns: quantile(0.9),
        p99_ns: quantile(0.99),
        histogram: (0..BUCKETS)
            .filter(|bucket| histogram[*bucket] > 0)
            .map(|bucket| (lower_bound_ns(bucket), histogram[bucket]))
            .collect(),
    }
}

/// So much of what is in the buckets is not longer than this: within its bucket by its place there.
fn quantile(histogram: &[u32; BUCKETS], share: f64) -> Option<u64> {
    let all: u64 = histogram.iter().map(|count| u64::from(*count)).sum();
    let wanted = share * all as f64;
    let mut below = 0.0;
    for (bucket, count) in histogram
        .iter()
        .enumerate()
        .filter(|(_, count)| **count > 0)
    {
        let count = f64::from(*count);
        if below + count >= wanted {
            let from_ns = lower_bound_ns(bucket) as f64;
            let to_ns = lower_bound_ns(bucket + 1) as f64;
            return Some((from_ns + (to_ns - from_ns) * (wanted - below) / count) as u64);
        }
        below += count;
    }
    None
}

fn total_ns(costs: &ProbeCosts, kind: usize) -> f64 {
    costs[kind].inside_ns + costs[kind].outside_ns
}

fn cost(counts: &[u64; PROBE_KINDS], each_ns: impl Fn(usize) -> f64) -> f64 {
    let counts = counts.iter().enumerate();
    counts
        .map(|(kind, count)| *count as f64 * each_ns(kind))
        .sum()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::fs::File;
    use std::sync::Arc;

    use profiler_common::measured::histogram::bucket;

    use super::*;
    use crate::collect::{PlannedFunction, PlannedPoint};
    use crate::kernel::ProbeCost;
    use crate::processes::ids::ProcessKey;

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
        row.inclusive_extremes[0] = Extremes {
            min_ns: 9_000,
            max_ns: 12_000,
        };
        row.histograms[0][bucket(10_000)] = 1000;
        let mut costs = ProbeCosts::default();
        costs[2] = ProbeCost {
            inside_ns: 100.0,
            outside_ns: 400.0,
            error_ns: 10.0,
        };
        costs[3] = ProbeCost {
            inside_ns: 700.0,
            outside_ns: 5_000.0,
            error_ns: 50.0,
        };
        let file = Arc::new(File::open("/proc/self/exe").unwrap());
        let plan = PlannedFunction {
            name: "work".to_owned(),
            aliases: Vec::new(),
            module: "/usr/bin/app".into(),
            address: 0,
            file,
            shared: false,
            entry: PlannedPoint {
                offset: 0,
                stepped: false,
            },
            exits: Ok(Vec::new()),
        };
        let process = |pid| ProcessKey { pid, start_ns: 0 };
        MeasuredFunctions {
            functions: vec![MeasuredFunction {
                plan: Arc::new(plan),
                attached_ns: 0,
                gave_up: None,
                calls: BTreeMap::from([(process(1), row), (process(2), row)]),
            }],
            items: Vec::new(),
            costs,
        }
    }

    // Check that what probes took is subtracted where it fell: of the function's own calls the part
    // within, of those below all, and of exclusive times what their callers see.
    #[test]
    fn probes_are_subtracted() {
        let report = measured(&function(), 0);
        let values = &report.functions[0];
        assert_eq!((values.calls, values.outermost), (2000, 2000));
        assert_eq!(values.probe_ns, 2000 * 700 + 4000 * 500);
        assert_eq!(values.error_ns, 2000 * 50 + 4000 * 10);
        assert_eq!(values.elapsed.inclusive_ns, 20_000_000 - values.probe_ns);
        assert_eq!(
            values.elapsed.exclusive_ns,
            16_000_000 - 2000 * 700 - 4000 * 400
        );
        assert_eq!(
            values.application.inclusive_ns,
            16_000_000 - values.probe_ns
        );
        assert_eq!(values.elapsed.mean_ns, Some(8_300));
        assert_eq!(values.elapsed.min_ns, Some(9_000 - 1_700));
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
        let report = measured(&none, 0);
        assert_eq!(report.functions[0].elapsed.mean_ns, None);
        assert_eq!(report.functions[0].elapsed.p99_ns, None);
        let mut short = function();
        for row in short.functions[0].calls.values_mut() {
            row.inclusive = [600_000, 0, 0, 0, 0];
        }
        let report = measured(&short, 0);
        assert_eq!(report.functions[0].elapsed.inclusive_ns, 0);
        assert!(report.functions[0].mostly_probe);
    }

    #[test]
    fn quantiles_lie_in_their_buckets() {
        let mut histogram = [0; BUCKETS];
        histogram[bucket(1_000)] = 90;
        histogram[bucket(1_000_000)] = 10;
        let at = |share| quantile(&histogram, share).map(bucket);
        assert_eq!(at(0.5), Some(bucket(1_000)));
        assert_eq!(at(0.99), Some(bucket(1_000_000)));
        assert_eq!(quantile(&[0; BUCKETS], 0.5), None);
    }
}
