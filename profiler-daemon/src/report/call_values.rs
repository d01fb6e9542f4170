//! What is told of the calls of a measured function: the values of instrumentation, with what the
//! probes themselves took subtracted.

use std::ops::AddAssign;

use profiler_common::Class;
use profiler_common::measured::histogram::{BUCKETS, lower_bound_ns};
use profiler_common::measured::{PROBE_KINDS, elapsed_ns};
use serde::Serialize;

use super::values::{ClassValues, Denominators, percent};
use crate::kernel::ProbeCosts;
use crate::profile::measured::{Calls, Durations};

/// What is to be known of functions of Go.
const OF_GOROUTINES: &str =
    "it is Go's: threads take turns to run its calls, of which elapsed time alone is known";

/// Below so many times what a probe takes within a call, a call is mostly probe.
const MOSTLY_PROBE: f64 = 10.0;

/// The calls of a measured function.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct CallValues {
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
    /// Calls that were only counted, because too many were open, no times could be read, or too
    /// many threads have measured calls.
    pub counted_only: u64,
    /// Exits of calls whose entry was not seen: they began before the function was measured, or as
    /// its probes were being detached.
    pub exits_unmatched: u64,
    /// All of the time.
    pub elapsed: MeasuredTimes,
    /// The part of it in user mode outside system calls; handling page faults is in it. Null of
    /// functions of Go, as the next ones: threads take turns to run their calls.
    #[schema(required)]
    pub application: Option<MeasuredTimes>,
    /// Inclusive time by class.
    #[schema(required)]
    pub classes: Option<ClassValues>,
    /// Exclusive time by class: less the calls of other measured functions that it made.
    #[schema(required)]
    pub exclusive_classes: Option<ClassValues>,
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
    /// Whether its calls are so short, or made so many measured calls, that most of what was
    /// measured was the probes.
    pub mostly_probe: bool,
    /// How its exits were found: "sites", its own returns and jumps to other functions; "none":
    /// calls are counted.
    #[schema(pattern = "^(sites|none)$")]
    pub exits: &'static str,
    /// Why there are no times, or not all, or not to the end.
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
    /// The shortest outermost call; null where there is none, or where it is not known whether it
    /// was in the window, as in the next ones.
    #[schema(required)]
    pub min_ns: Option<u64>,
    /// The mean of them.
    #[schema(required)]
    pub mean_ns: Option<u64>,
    /// The longest.
    #[schema(required)]
    pub max_ns: Option<u64>,
    /// Half of them took no longer: to a fifth; beyond 8.6 s by their share of the calls between
    /// that and the longest, and null where that is not known.
    #[schema(required)]
    pub p50_ns: Option<u64>,
    /// Nine of ten.
    #[schema(required)]
    pub p90_ns: Option<u64>,
    /// Ninety-nine of a hundred.
    #[schema(required)]
    pub p99_ns: Option<u64>,
    /// Of the session's inclusive time, as of the sampled values; application time of the session's
    /// time outside of system calls, page faults included, as it is measured. Absent where the
    /// function is not beside sampled ones, and of functions of Go, whose calls wait without a
    /// thread; as the next ones.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inclusive_percent: Option<f64>,
    /// Of the session's inclusive time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive_percent: Option<f64>,
    /// Of the process's inclusive time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub inclusive_percent_of_process: Option<f64>,
    /// Of the process's inclusive time.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub exclusive_percent_of_process: Option<f64>,
    /// How long calls took, shortest first; durations of no call are missing.
    pub histogram: Vec<MeasuredBucket>,
}

/// Outermost calls of about one duration, less what the probes of each took.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct MeasuredBucket {
    /// They took so long at least, nanoseconds.
    pub from_ns: u64,
    /// And less than this; null: the last bucket has no end.
    #[schema(required)]
    pub to_ns: Option<u64>,
    /// How many there were.
    pub calls: u64,
}

/// What is known of the function beside its calls.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct About<'a> {
    /// Why its calls are counted only.
    pub(super) counted_only: Option<&'a str>,
    /// Why its probes were detached before the end.
    pub(super) gave_up: Option<&'a str>,
    /// Whether its calls are of goroutines, of which elapsed time alone is known.
    pub(super) goroutines: bool,
}

/// What probes took of calls, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ProbeTimes {
    /// The calls' own, of the inclusive time.
    own_ns: f64,
    /// Those of calls below, of the inclusive time.
    below_ns: f64,
    /// Of the exclusive time.
    exclusive_ns: f64,
    /// How far the first two together may be off.
    error_ns: f64,
}

impl ProbeTimes {
    /// Of these calls, where probes cost this.
    pub(super) fn of(calls: &Calls, costs: &ProbeCosts) -> Self {
        let inside = |kind: usize| costs[kind].inside_ns;
        let direct_ns = cost(&calls.probes_direct, |kind| costs[kind].outside_ns);
        Self {
            own_ns: cost(&calls.probes_outermost, inside),
            below_ns: cost(&calls.probes_below, |kind| total_ns(costs, kind)),
            exclusive_ns: cost(&calls.probes_own, inside) + direct_ns,
            error_ns: cost(&calls.probes_outermost, |kind| costs[kind].inside_error_ns)
                + cost(&calls.probes_below, |kind| costs[kind].error_ns),
        }
    }

    /// All of the inclusive time.
    fn inclusive_ns(&self) -> f64 {
        self.own_ns + self.below_ns
    }

    /// The inclusive and the exclusive times of these calls without them. What probes take is user
    /// time: the handling of a breakpoint is no system call.
    ///
    /// Estimates may exceed the time there was, of short calls. Each part is subtracted from what
    /// it is a part of, so that such calls below do not make the function's own time less: its
    /// inclusive time stays its exclusive one and that of the calls below.
    fn subtracted(&self, calls: &Calls) -> [[u64; 5]; 2] {
        let user = Class::User as usize;
        let (mut inclusive, mut exclusive) = (calls.inclusive, calls.exclusive);
        let (all_ns, own_ns) = (self.inclusive_ns() as u64, self.exclusive_ns as u64);
        exclusive[user] = exclusive[user].saturating_sub(own_ns);
        // There is more exclusive time than inclusive where outermost calls are open still.
        let below = calls.inclusive[user].checked_sub(calls.exclusive[user]);
        inclusive[user] = match below.zip(all_ns.checked_sub(own_ns)) {
            Some((below_ns, probes_ns)) => exclusive[user] + below_ns.saturating_sub(probes_ns),
            None => inclusive[user].saturating_sub(all_ns),
        };
        [inclusive, exclusive]
    }
}

impl AddAssign for ProbeTimes {
    fn add_assign(&mut self, other: Self) {
        self.own_ns += other.own_ns;
        self.below_ns += other.below_ns;
        self.exclusive_ns += other.exclusive_ns;
        self.error_ns += other.error_ns;
    }
}

impl CallValues {
    /// Of these calls, of which `probes` took this. `of`: what percentages are of, if anything.
    pub(super) fn new(
        calls: &Calls,
        about: About<'_>,
        probes: ProbeTimes,
        of: Option<&Denominators>,
    ) -> Self {
        let user = Class::User as usize;
        let [inclusive, exclusive] = probes.subtracted(calls);
        let times = |inclusive_ns: u64, exclusive_ns: u64, durations: &Durations| {
            MeasuredTimes::new((inclusive_ns, exclusive_ns), (calls.outermost, durations))
        };
        let mut elapsed = times(
            elapsed_ns(&inclusive),
            elapsed_ns(&exclusive),
            &calls.elapsed,
        );
        let mut application = times(inclusive[user], exclusive[user], &calls.application);
        if let Some(of) = of.filter(|_| !about.goroutines) {
            let process = of.process.as_ref();
            elapsed.set_shares(
                of.session.elapsed_ns(),
                process.map(|process| process.elapsed_ns()),
            );
            // By the clock that measured it: what ticks say of page faults and of untraced calls is
            // not in application time of sampled values, and is in this.
            application.set_shares(of.session_user_ns, of.process_user_ns);
        }
        let raw_ns = calls.raw_elapsed_ns();
        let probe_ns = raw_ns.saturating_sub(elapsed_ns(&inclusive));
        Self {
            calls: calls.calls,
            outermost: calls.outermost,
            open: calls.open,
            left_unseen: calls.left_unseen,
            counted_only: calls.counted_only,
            exits_unmatched: calls.exits_unmatched,
            elapsed,
            application: (!about.goroutines).then_some(application),
            classes: (!about.goroutines).then(|| ClassValues::from(&inclusive)),
            exclusive_classes: (!about.goroutines).then(|| ClassValues::from(&exclusive)),
            minor_faults: calls.faults[0],
            major_faults: calls.faults[1],
            untraced_calls: calls.untraced,
            probe_ns,
            error_ns: probes.error_ns as u64,
            mostly_probe: calls.outermost > 0
                && (raw_ns as f64)
                    < (MOSTLY_PROBE * probes.own_ns).max(2.0 * probes.inclusive_ns()),
            exits: if about.counted_only.is_none() {
                "sites"
            } else {
                "none"
            },
            why: about
                .gave_up
                .or(about.counted_only)
                .or(about.goroutines.then_some(OF_GOROUTINES))
                .map(str::to_owned),
        }
    }

    /// The number in one of the columns that it has in tables.
    pub(super) fn column(&self, name: &str) -> Option<f64> {
        if let Some((group, column)) = name.split_once('.') {
            return match group {
                "elapsed" => self.elapsed.column(column),
                "application" => self.application.as_ref()?.column(column),
                "classes" => self.classes.as_ref()?.class(column),
                "exclusive_classes" => self.exclusive_classes.as_ref()?.class(column),
                _ => None,
            };
        }
        Some(match name {
            "calls" => self.calls as f64,
            "outermost" => self.outermost as f64,
            "open" => self.open as f64,
            "left_unseen" => self.left_unseen as f64,
            "counted_only" => self.counted_only as f64,
            "exits_unmatched" => self.exits_unmatched as f64,
            "minor_faults" => self.minor_faults as f64,
            "major_faults" => self.major_faults as f64,
            "untraced_calls" => self.untraced_calls as f64,
            "probe_ns" => self.probe_ns as f64,
            "error_ns" => self.error_ns as f64,
            "mostly_probe" => f64::from(u8::from(self.mostly_probe)),
            _ => return None,
        })
    }
}

impl MeasuredTimes {
    fn new(
        (inclusive_ns, exclusive_ns): (u64, u64),
        (outermost, durations): (u64, &Durations),
    ) -> Self {
        let (min_ns, max_ns) = (durations.min_ns, durations.max_ns);
        let quantile = |share: f64| {
            let ns = quantile(&durations.histogram, share, (min_ns, max_ns))?;
            // What a file says may contradict itself.
            Some(ns.max(min_ns.unwrap_or(0)).min(max_ns.unwrap_or(u64::MAX)))
        };
        let buckets = durations.histogram.iter().enumerate();
        let buckets = buckets.filter(|(_, calls)| **calls > 0);
        let last = profiler_common::measured::histogram::BUCKETS - 1;
        Self {
            inclusive_ns,
            exclusive_ns,
            min_ns,
            mean_ns: inclusive_ns.checked_div(outermost),
            max_ns,
            p50_ns: quantile(0.5),
            p90_ns: quantile(0.9),
            p99_ns: quantile(0.99),
            inclusive_percent: None,
            exclusive_percent: None,
            inclusive_percent_of_process: None,
            exclusive_percent_of_process: None,
            histogram: buckets
                .map(|(bucket, calls)| MeasuredBucket {
                    from_ns: lower_bound_ns(bucket),
                    to_ns: (bucket < last).then(|| lower_bound_ns(bucket + 1)),
                    calls: (*calls).into(),
                })
                .collect(),
        }
    }

    fn set_shares(&mut self, session_ns: u64, process_ns: Option<u64>) {
        let (inclusive_ns, exclusive_ns) = (self.inclusive_ns, self.exclusive_ns);
        // Calls count whole where they end: of those that began before a window a part is older.
        let share = |part_ns: u64, of_ns: u64| percent(part_ns, of_ns).min(100.0);
        self.inclusive_percent = Some(share(inclusive_ns, session_ns));
        self.exclusive_percent = Some(share(exclusive_ns, session_ns));
        self.inclusive_percent_of_process = process_ns.map(|ns| share(inclusive_ns, ns));
        self.exclusive_percent_of_process = process_ns.map(|ns| share(exclusive_ns, ns));
    }

    fn column(&self, name: &str) -> Option<f64> {
        let ns = match name {
            "inclusive_ns" => Some(self.inclusive_ns),
            "exclusive_ns" => Some(self.exclusive_ns),
            "min_ns" => self.min_ns,
            "mean_ns" => self.mean_ns,
            "max_ns" => self.max_ns,
            "p50_ns" => self.p50_ns,
            "p90_ns" => self.p90_ns,
            "p99_ns" => self.p99_ns,
            "inclusive_percent" => return self.inclusive_percent,
            "exclusive_percent" => return self.exclusive_percent,
            "inclusive_percent_of_process" => return self.inclusive_percent_of_process,
            "exclusive_percent_of_process" => return self.exclusive_percent_of_process,
            _ => None,
        };
        ns.map(|ns| ns as f64)
    }
}

/// So much of what is in the buckets is not longer than this: within its bucket by its place there.
/// The last bucket ends with the longest: `None` where it is in that one and the longest is not
/// known.
fn quantile(
    histogram: &[u32],
    share: f64,
    (min_ns, max_ns): (Option<u64>, Option<u64>),
) -> Option<u64> {
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
            let is_last = bucket + 1 >= BUCKETS;
            let from_ns = lower_bound_ns(bucket).max(min_ns.unwrap_or(0)) as f64;
            let to_ns = if is_last {
                max_ns?
            } else {
                lower_bound_ns(bucket + 1)
            } as f64;
            return Some((from_ns + (to_ns - from_ns) * (wanted - below) / count) as u64);
        }
        below += count;
    }
    None
}

/// What a probed call of a kind takes in all, nanoseconds.
pub(super) fn total_ns(costs: &ProbeCosts, kind: usize) -> f64 {
    costs[kind].inside_ns + costs[kind].outside_ns
}

/// What so many probed calls take, by kind, nanoseconds.
pub(super) fn cost(counts: &[u64; PROBE_KINDS], each_ns: impl Fn(usize) -> f64) -> f64 {
    let counts = counts.iter().enumerate();
    counts
        .map(|(kind, count)| *count as f64 * each_ns(kind))
        .sum()
}

#[cfg(test)]
mod tests {
    use profiler_common::measured::histogram::{BUCKETS, bucket};

    use super::quantile;

    // Check that quantiles lie in the buckets that hold them, and that there is none of nothing.
    #[test]
    fn quantiles_lie_in_their_buckets() {
        let mut histogram = [0; BUCKETS];
        histogram[bucket(1_000)] = 90;
        histogram[bucket(1_000_000)] = 10;
        let at = |share| quantile(&histogram, share, (None, None)).map(bucket);
        assert_eq!(at(0.5), Some(bucket(1_000)));
        assert_eq!(at(0.99), Some(bucket(1_000_000)));
        assert_eq!(quantile(&[0; BUCKETS], 0.5, (None, None)), None);
    }

    // Check that quantiles of calls that are all in the last bucket lie between the shortest and
    // the longest by their share, and that there is none where nobody knows the longest.
    #[test]
    fn quantiles_of_the_longest_calls() {
        const SECOND_NS: u64 = 1_000_000_000;
        let mut histogram = [0; BUCKETS];
        histogram[bucket(100 * SECOND_NS)] = 100;
        assert_eq!(histogram[BUCKETS - 1], 100);
        let extremes = (Some(100 * SECOND_NS), Some(300 * SECOND_NS));
        let at = |share, extremes| quantile(&histogram, share, extremes);
        assert_eq!(at(0.5, extremes), Some(200 * SECOND_NS));
        assert_eq!(at(0.99, extremes), Some(298 * SECOND_NS));
        assert_eq!(at(0.5, (None, None)), None);
        histogram[bucket(1_000)] = 300;
        let at = |share| quantile(&histogram, share, (Some(1_000), Some(300 * SECOND_NS)));
        assert_eq!(at(0.5).map(bucket), Some(bucket(1_000)));
        let tail = at(0.99).unwrap_or_default();
        assert!((280 * SECOND_NS..300 * SECOND_NS).contains(&tail), "{tail}");
    }
}
