//! Functions whose calls are measured exactly, as of a pass: what reports show beside what was
//! sampled. Plain data; it does not know how a probe is made.
//!
//! What is counted only grows, so that the calls of a window are those at its end less those at its
//! beginning: each border of the recent past has what had been counted then.

use std::{collections::BTreeMap, sync::Arc};

use profiler_common::{
    ClassNs,
    measured::{MeasuredRow, PROBE_KINDS, histogram::BUCKETS},
};
use serde::{Deserialize, Serialize};

use super::now::At;
use crate::kernel::{ProbeCost, ProbeCosts};
use crate::processes::{ids::ProcessKey, module::ModuleId};
use crate::units::{ModuleAddress, MonoNs};

/// Functions by process that all borders of the recent past hold together: some 20 MB. Beyond, the
/// oldest borders forget theirs.
pub(super) const MAX_HELD: usize = 20_000;
/// The longest time that a probe is believed to take, nanoseconds.
const MAX_PROBE_NS: f64 = 1e9;

/// How long calls took, of those that were outermost.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    /// The shortest, nanoseconds; `None`: there is none, or it is not known of these.
    pub min_ns: Option<u64>,
    /// The longest, likewise.
    pub max_ns: Option<u64>,
    /// How many are in each bucket ([`profiler_common::measured::histogram`]); what follows the
    /// last one is empty.
    pub histogram: Vec<u32>,
}

/// Calls of one function in one process. The fields are those of [`MeasuredRow`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Calls {
    /// Entries.
    pub calls: u64,
    /// Calls under way.
    pub open: u64,
    /// Complete calls during which no other call of the function was open in the thread.
    pub outermost: u64,
    /// Calls that ended without an exit.
    pub left_unseen: u64,
    /// Calls that were only counted.
    pub counted_only: u64,
    /// Exits of calls whose entry was not seen.
    pub exits_unmatched: u64,
    /// Complete calls during which system calls were not traced.
    pub untraced: u64,
    /// Minor and major page faults of outermost calls.
    pub faults: [u64; 2],
    /// Time by class from entry to exit, of outermost calls, nanoseconds.
    pub inclusive: ClassNs,
    /// The same of all complete calls, less what measured calls made directly by them took.
    pub exclusive: ClassNs,
    /// By all of their time.
    pub elapsed: Durations,
    /// By their time in user mode.
    pub application: Durations,
    /// Probed calls that were made during outermost calls, by kind.
    pub probes_below: [u64; PROBE_KINDS],
    /// Probed calls made directly by complete calls, by kind.
    pub probes_direct: [u64; PROBE_KINDS],
    /// Complete calls, by kind; hits that are no calls among those that are counted.
    pub probes_own: [u64; PROBE_KINDS],
    /// Outermost calls, by kind.
    pub probes_outermost: [u64; PROBE_KINDS],
}

impl From<&MeasuredRow> for Calls {
    fn from(row: &MeasuredRow) -> Self {
        let durations = |value: usize| {
            let extremes = row.inclusive_extremes[value];
            let histogram = &row.histograms[value];
            let used = histogram.iter().rposition(|count| *count > 0);
            Durations {
                min_ns: (row.outermost > 0).then_some(extremes.min_ns),
                max_ns: (row.outermost > 0).then_some(extremes.max_ns),
                histogram: histogram[..used.map_or(0, |last| last + 1)].to_vec(),
            }
        };
        Self {
            calls: row.calls,
            open: row.open().into(),
            outermost: row.outermost,
            left_unseen: row.left_unseen + row.left_exec + row.left_exit,
            counted_only: row.too_deep + row.no_times,
            exits_unmatched: row.exits_unmatched,
            untraced: row.untraced,
            faults: row.faults,
            inclusive: row.inclusive,
            exclusive: row.exclusive,
            elapsed: durations(0),
            application: durations(1),
            probes_below: row.probes_below,
            probes_direct: row.probes_direct,
            probes_own: row.probes_own,
            probes_outermost: row.probes_outermost,
        }
    }
}

impl Durations {
    /// Adds those of other calls. `has_any` says of each side whether there are any.
    fn merge(&mut self, other: &Self, has_any: (bool, bool)) {
        let join = |own: Option<u64>, other: Option<u64>, of: fn(u64, u64) -> u64| match has_any {
            (true, true) => Some(of(own?, other?)),
            (false, true) => other,
            (_, false) => own,
        };
        self.min_ns = join(self.min_ns, other.min_ns, u64::min);
        self.max_ns = join(self.max_ns, other.max_ns, u64::max);
        if self.histogram.len() < other.histogram.len() {
            self.histogram.resize(other.histogram.len(), 0);
        }
        for (to, from) in self.histogram.iter_mut().zip(&other.histogram) {
            *to = to.saturating_add(*from);
        }
    }

    /// Those that came since `earlier`, which had so many. An extreme is known where it is of
    /// these.
    fn since(&self, earlier: &Self, had_any: bool) -> Self {
        let newer = |now: Option<u64>, then: Option<u64>| now.filter(|_| !had_any || now != then);
        let then = earlier.histogram.iter().chain(std::iter::repeat(&0));
        let counts = self.histogram.iter().zip(then);
        Self {
            min_ns: newer(self.min_ns, earlier.min_ns),
            max_ns: newer(self.max_ns, earlier.max_ns),
            histogram: counts
                .map(|(now, then)| now.saturating_sub(*then))
                .collect(),
        }
    }
}

impl Calls {
    /// Adds those of another process, or of another function.
    pub fn merge(&mut self, other: &Self) {
        let has_any = (self.outermost > 0, other.outermost > 0);
        self.elapsed.merge(&other.elapsed, has_any);
        self.application.merge(&other.application, has_any);
        self.combine(other, u64::saturating_add);
        self.open = self.open.saturating_add(other.open);
    }

    /// Those that ended since `earlier`. What is under way is under way now.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let had_any = earlier.outermost > 0;
        let mut since = self.clone();
        since.combine(earlier, u64::saturating_sub);
        since.elapsed = self.elapsed.since(&earlier.elapsed, had_any);
        since.application = self.application.since(&earlier.application, had_any);
        if since.outermost == 0 {
            since.elapsed = Durations::default();
            since.application = Durations::default();
        }
        since
    }

    /// All that is counted, but for what is under way.
    fn combine(&mut self, other: &Self, with: fn(u64, u64) -> u64) {
        let numbers = self.numbers_mut().into_iter().zip(other.clone().numbers());
        for (own, other) in numbers {
            *own = with(*own, other);
        }
    }

    fn numbers_mut(&mut self) -> Vec<&mut u64> {
        let single = [
            &mut self.calls,
            &mut self.outermost,
            &mut self.left_unseen,
            &mut self.counted_only,
            &mut self.exits_unmatched,
            &mut self.untraced,
        ];
        let arrays = self
            .faults
            .iter_mut()
            .chain(&mut self.inclusive)
            .chain(&mut self.exclusive)
            .chain(&mut self.probes_below)
            .chain(&mut self.probes_direct)
            .chain(&mut self.probes_own)
            .chain(&mut self.probes_outermost);
        single.into_iter().chain(arrays).collect()
    }

    fn numbers(mut self) -> Vec<u64> {
        self.numbers_mut().into_iter().map(|n| *n).collect()
    }

    /// The sum of all of its numbers.
    fn sum(&self) -> u128 {
        let extremes = [&self.elapsed, &self.application];
        let extremes = extremes.into_iter().flat_map(|of| [of.min_ns, of.max_ns]);
        let numbers = self.clone().numbers().into_iter();
        let numbers = numbers.chain(extremes.flatten()).chain([self.open]);
        numbers.map(u128::from).sum()
    }

    /// All of their time, probes included, nanoseconds.
    #[must_use]
    pub fn raw_elapsed_ns(&self) -> u64 {
        self.inclusive
            .iter()
            .fold(0, |sum, ns| sum.saturating_add(*ns))
    }
}

/// What was counted at a moment: by function and process.
pub type Counted = BTreeMap<(u32, ProcessKey), Arc<Calls>>;

/// A function that is, or was, measured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProbedFunction {
    /// Its number, never used again.
    pub number: u32,
    /// Which were asked for together, of the same processes, have this in common.
    pub instrumentation: u64,
    /// Its name.
    pub name: Box<str>,
    /// Other names of the same code.
    pub aliases: Vec<Box<str>>,
    /// Its file.
    pub module: ModuleId,
    /// Where it begins, a virtual address of the file.
    pub address: ModuleAddress,
    /// Why its calls are counted only, if they are.
    pub counted_only: Option<Box<str>>,
    /// Whether its calls are of goroutines, of which elapsed time alone is known.
    pub goroutines: bool,
    /// When its probes were attached.
    pub attached: At,
}

/// The same with what changes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FunctionState {
    /// What does not.
    pub function: Arc<ProbedFunction>,
    /// When its probes were detached; `None`: they are attached.
    pub detached: Option<At>,
    /// Why they were detached before the end.
    pub gave_up: Option<Arc<str>>,
    /// A border of the recent past since which every call is counted that begins, and one up to
    /// which, monotonic nanoseconds: set by the profile.
    pub borders: (Option<MonoNs>, Option<MonoNs>),
}

/// All that is measured, as of a pass. Cheap to clone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct MeasuredCalls {
    /// The functions, in the order in which they were asked for.
    pub functions: Arc<Vec<FunctionState>>,
    /// What probes cost while each instrumentation ran.
    pub costs: BTreeMap<u64, ProbeCosts>,
    /// Their calls so far.
    pub counted: Arc<Counted>,
}

impl MeasuredCalls {
    /// Whether nothing was ever measured.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.functions.is_empty()
    }

    /// What probes cost while a function was measured.
    #[must_use]
    pub fn costs_of(&self, function: &ProbedFunction) -> ProbeCosts {
        let known = self.costs.get(&function.instrumentation);
        known.copied().unwrap_or_default()
    }

    /// Whether a border of the recent past is one of a function's time.
    pub(super) fn is_border(&self, at_ns: MonoNs) -> bool {
        let mut functions = self.functions.iter();
        functions.any(|of| of.borders.0 == Some(at_ns) || of.borders.1 == Some(at_ns))
    }

    /// Takes the borders over that were known `earlier`. Who comes has one at `now_ns`, and who
    /// goes the last one before. True if anybody comes.
    pub(super) fn take_borders(&mut self, earlier: &Self, last_ns: MonoNs, now_ns: MonoNs) -> bool {
        let known: BTreeMap<u32, &FunctionState> = earlier
            .functions
            .iter()
            .map(|of| (of.function.number, of))
            .collect();
        let mut is_new = false;
        let borders = self.functions.iter().map(|of| {
            let known = known.get(&of.function.number).map(|known| known.borders);
            let (from_ns, to_ns) = known.unwrap_or_default();
            is_new |= from_ns.is_none();
            let to_ns = to_ns.or(of.detached.map(|_| last_ns));
            (from_ns.or(Some(now_ns)), to_ns)
        });
        let borders: Vec<_> = borders.collect();
        if self
            .functions
            .iter()
            .map(|of| of.borders)
            .ne(borders.iter().copied())
        {
            for (of, borders) in Arc::make_mut(&mut self.functions).iter_mut().zip(borders) {
                of.borders = borders;
            }
        }
        is_new
    }
}

/// Whether what a file says was counted can be added up: the sum of it, or `None`.
pub(super) fn sum(counted: &Counted) -> Option<u128> {
    let known = |calls: &Arc<Calls>| {
        [&calls.elapsed, &calls.application]
            .iter()
            .all(|of| of.histogram.len() <= BUCKETS)
    };
    let known = counted.values().all(known);
    known.then(|| counted.values().map(|calls| calls.sum()).sum())
}

/// Whether costs are numbers that a probe can have.
pub(super) fn are_costs(costs: &ProbeCosts) -> bool {
    let numbers = |of: &ProbeCost| [of.inside_ns, of.outside_ns, of.inside_error_ns, of.error_ns];
    let mut numbers = costs.iter().flat_map(numbers);
    numbers.all(|ns| (0.0..=MAX_PROBE_NS).contains(&ns))
}

#[cfg(test)]
mod tests {
    use profiler_common::measured::{Extremes, histogram::bucket};

    use super::*;

    /// A row of calls of these lengths, all of it user time.
    fn row(calls_ns: &[u64]) -> MeasuredRow {
        let mut row = MeasuredRow::EMPTY;
        for ns in calls_ns {
            row.calls += 1;
            row.outermost += 1;
            row.complete += 1;
            row.inclusive[0] += ns;
            row.exclusive[0] += ns;
            row.probes_own[7] += 1;
            row.probes_outermost[7] += 1;
            for value in 0..2 {
                row.inclusive_extremes[value].add(*ns);
                row.histograms[value][bucket(*ns)] += 1;
            }
        }
        row
    }

    // Check that calls of a window are the later ones alone: sums, buckets, and extremes only where
    // they are known to be of these.
    #[test]
    fn since() {
        let earlier = Calls::from(&row(&[100, 5_000]));
        let now = Calls::from(&row(&[100, 5_000, 700, 90_000]));
        let since = now.since(&earlier);
        assert_eq!((since.calls, since.outermost), (2, 2));
        assert_eq!(since.inclusive[0], 90_700);
        assert_eq!(since.probes_own[7], 2);
        assert_eq!(since.elapsed.max_ns, Some(90_000));
        assert_eq!(
            since.elapsed.min_ns, None,
            "the shortest may be an earlier one"
        );
        let counts = since.elapsed.histogram.iter().sum::<u32>();
        assert_eq!(counts, 2);
        assert_eq!(since.elapsed.histogram[bucket(700)], 1);
        let nothing = now.since(&now);
        assert_eq!((nothing.calls, nothing.elapsed), (0, Durations::default()));
        assert_eq!(now.since(&Calls::default()), now);
    }

    // Check that those of two processes are added up, and that what is not known of one is not
    // known of both.
    #[test]
    fn merged() {
        let mut sum = Calls::default();
        sum.merge(&Calls::from(&row(&[100])));
        sum.merge(&Calls::from(&row(&[300, 200_000])));
        assert_eq!(sum, Calls::from(&row(&[100, 300, 200_000])));
        let mut unknown = Calls::from(&row(&[100]));
        unknown.elapsed.max_ns = None;
        sum.merge(&unknown);
        assert_eq!(sum.elapsed.max_ns, None);
        assert_eq!(sum.elapsed.min_ns, Some(100));
        let none = Calls::from(&MeasuredRow::EMPTY);
        assert_eq!(none, Calls::default());
        assert_eq!(MeasuredRow::EMPTY.inclusive_extremes[0], Extremes::NONE);
    }
}
