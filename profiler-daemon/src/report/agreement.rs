//! Whether what was sampled of a function and what was measured of it agree.
//!
//! Both are compared of the same time and the same processes: from the first pass after the probes
//! were attached to the last one before they were detached, and of the processes that were
//! measured. What probes took is in both: sampling sees it as the time of the program that it is.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use serde::Serialize;

use super::{
    call_values::cost,
    covered::Covered,
    fold::Folding,
    merged_tree::{Label, MergedTree, Standing, TreeFunction},
    query::FrameScope,
    scope::View,
    tree_options::TreeOptions,
};
use crate::kernel::ProbeCosts;
use crate::processes::{ids::ProcessKey, module::ModuleId};
use crate::profile::measured::{Calls, Counted};
use crate::units::{ModuleAddress, MonoNs};

/// For so many times and sets of processes it is looked what was sampled of them; an answer has
/// more of them only where much was measured piecemeal.
const MAX_COMPARED: usize = 4;
/// What a function can have at most of which there is no mark at all, in marks: at 95 %
/// confidence.
const MARKS_OF_NONE: u64 = 4;

/// The two that were compared, nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct Compared {
    /// Where the interval of the sampled elapsed inclusive time begins.
    pub sampled_low_ns: u64,
    /// Where it ends.
    pub sampled_high_ns: u64,
    /// The least that the measured one can be, with what its probes took.
    pub measured_low_ns: u64,
    /// The most.
    pub measured_high_ns: u64,
    /// The time compared, nanoseconds.
    pub span_ns: u64,
}

impl Compared {
    /// The number in one of the columns.
    pub(super) fn column(&self, name: &str) -> Option<f64> {
        let ns = match name {
            "sampled_low_ns" => self.sampled_low_ns,
            "sampled_high_ns" => self.sampled_high_ns,
            "measured_low_ns" => self.measured_low_ns,
            "measured_high_ns" => self.measured_high_ns,
            "span_ns" => self.span_ns,
            _ => return None,
        };
        Some(ns as f64)
    }
}

/// See [`super::measured_rows::MeasuredGroup`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Agreement {
    pub(super) agrees: Option<bool>,
    pub(super) why: Option<String>,
    pub(super) compared: Option<Compared>,
}

impl Agreement {
    /// It cannot be told.
    pub(super) fn unknown(why: &str) -> Self {
        Self {
            agrees: None,
            why: Some(why.to_owned()),
            compared: None,
        }
    }
}

/// Of which processes, from which border of the recent past to which.
type ProcessPeriod = (BTreeSet<ProcessKey>, (MonoNs, MonoNs));

/// Of which instrumentation, from which border to which: what is looked at once.
type Once = (u64, (MonoNs, MonoNs));

/// Collects what is to be compared.
pub(super) struct Comparing<'v, 'a, 'n> {
    view: &'v View<'a>,
    frames: FrameScope,
    label: Label<'n>,
    folding: &'v Folding,
    /// By instrumentation and time.
    parts: BTreeMap<Once, BTreeSet<ProcessKey>>,
}

/// What was sampled.
pub(super) struct Sampled {
    parts: HashMap<Once, Result<SampledPart, &'static str>>,
}

/// What was sampled of one part: intervals, nanoseconds.
struct SampledPart {
    by_place: HashMap<(ModuleId, ModuleAddress), (u64, u64)>,
    by_name: HashMap<(ModuleId, String), (u64, u64)>,
    /// Of functions without a mark.
    none: (u64, u64),
}

/// The time of a function in a view that can be compared; or why there is none.
fn time_of(view: &View<'_>, of: &Covered<'_>) -> Result<(MonoNs, MonoNs), &'static str> {
    let (from_ns, to_ns) = of.state.borders;
    let from_ns = from_ns.unwrap_or(MonoNs::MAX).max(view.coverage.from_ns);
    let to_ns = to_ns.unwrap_or(MonoNs::MAX).min(view.coverage.to_ns);
    if from_ns >= to_ns {
        return Err("it was measured for less than a second");
    }
    let time = view.snapshot.borders_within(from_ns, to_ns);
    time.ok_or("what was sampled in that time is no longer kept apart")
}

impl<'v, 'a, 'n> Comparing<'v, 'a, 'n> {
    pub(super) fn new(
        view: &'v View<'a>,
        (frames, label, folding): (FrameScope, Label<'n>, &'v Folding),
    ) -> Self {
        Self {
            view,
            frames,
            label,
            folding,
            parts: BTreeMap::new(),
        }
    }

    /// This one is to be compared.
    pub(super) fn want(&mut self, of: &Covered<'_>) {
        if let Ok(time) = time_of(self.view, of) {
            let key = (of.state.function.instrumentation, time);
            let keys = self.parts.entry(key).or_default();
            keys.extend(of.calls.keys());
        }
    }

    /// What was sampled of all that is wanted.
    pub(super) fn sampled(self) -> Sampled {
        let Self {
            view,
            frames,
            label,
            folding,
            parts,
        } = self;
        let parts = parts.into_iter().enumerate();
        let parts = parts.map(|(index, (key, keys))| {
            let part = if index < MAX_COMPARED {
                sampled_part(view, (frames, label, folding), &(keys, key.1))
            } else {
                Err("too many measurements are in this answer to compare them all")
            };
            (key, part)
        });
        Sampled {
            parts: parts.collect(),
        }
    }
}

fn sampled_part(
    view: &View<'_>,
    (frames, label, folding): (FrameScope, Label<'_>, &Folding),
    (keys, (from_ns, to_ns)): &ProcessPeriod,
) -> Result<SampledPart, &'static str> {
    let is_wanted = |key: ProcessKey| keys.contains(&key);
    let members = view.members.iter();
    let members = members.filter(|of| of.process.is_some_and(|(key, _)| is_wanted(key)));
    let members: Vec<_> = members.copied().collect();
    if members.len() < keys.len() {
        return Err("a process that was measured is no longer kept by itself");
    }
    let to_ns = (*to_ns < view.snapshot.now_ns()).then_some(*to_ns);
    let coverage = view.snapshot.between(*from_ns, to_ns);
    let coverage = coverage.map_err(|_| "what was sampled in that time is no longer kept apart")?;
    let part = view.part(members, coverage);
    let shape = TreeOptions {
        folding: folding.clone(),
        ..TreeOptions::plain(frames, label)
    };
    let tree = MergedTree::new(&part, shape);
    let intervals: Vec<(u64, u64)> = tree
        .inclusive()
        .iter()
        .map(|figures| {
            let ns = figures.values.elapsed_ns();
            let accuracy = figures.accuracy.as_ref();
            let interval = accuracy.map(|accuracy| accuracy.elapsed.interval(ns));
            interval.map_or((ns, ns), |interval| (interval.low_ns, interval.high_ns))
        })
        .collect();
    let by_name = names(&tree.functions).into_iter();
    let by_name = by_name.map(|((module, name), row)| ((module, name.to_owned()), intervals[row]));
    let periods = view.snapshot.mark_periods();
    let of_none = MARKS_OF_NONE.saturating_mul(periods.tick_ns.saturating_add(periods.gap_ns));
    Ok(SampledPart {
        by_place: places(&tree.functions)
            .into_iter()
            .map(|(place, row)| (place, intervals[row]))
            .collect(),
        by_name: by_name.collect(),
        none: (0, of_none.saturating_mul(part.members.len() as u64)),
    })
}

impl SampledPart {
    /// What was sampled of a function.
    fn of(&self, of: &Covered<'_>) -> (u64, u64) {
        let function = &of.state.function;
        let place = self.by_place.get(&(function.module, function.address));
        let named = || {
            let names = std::iter::once(&function.name).chain(&function.aliases);
            let mut names = names.map(|name| (function.module, name.to_string()));
            names.find_map(|name| self.by_name.get(&name))
        };
        place.or_else(named).copied().unwrap_or(self.none)
    }
}

impl Sampled {
    /// Whether a function's calls agree with it.
    pub(super) fn compare(&self, view: &View<'_>, of: &Covered<'_>) -> Agreement {
        let function = &of.state.function;
        if function.counted_only.is_some() {
            return Agreement::unknown("its calls are counted only");
        }
        if function.goroutines {
            return Agreement::unknown("it is Go's, whose calls wait without a thread");
        }
        let time = match time_of(view, of) {
            Ok(time) => time,
            Err(why) => return Agreement::unknown(why),
        };
        let look = match self.parts.get(&(function.instrumentation, time)) {
            Some(Ok(look)) => look,
            Some(Err(why)) => return Agreement::unknown(why),
            None => return Agreement::unknown("it was not looked at"),
        };
        let snapshot = view.snapshot;
        let (Some(then), Some(now)) = (snapshot.counted_at(time.0), snapshot.counted_at(time.1))
        else {
            return Agreement::unknown("what had been counted then is forgotten");
        };
        let known = ComparedCalls::new(of, then, now);
        let began_before = of.calls.keys().any(|key| {
            let started_ns = snapshot.unix_ns_of_boot_ns(key.start_ns);
            started_ns < function.attached.unix_ns
        });
        known.compare(
            look.of(of),
            time.1 - time.0,
            began_before,
            &snapshot.measured().costs_of(function),
        )
    }
}

/// The calls that are compared.
struct ComparedCalls {
    calls: Calls,
    /// Calls under way at the beginning.
    open_before: u64,
    /// The longest one known, nanoseconds.
    longest_ns: u64,
}

impl ComparedCalls {
    fn new(of: &Covered<'_>, then: &Counted, now: &Counted) -> Self {
        let number = of.state.function.number;
        let mut known = Self {
            calls: Calls::default(),
            open_before: 0,
            longest_ns: 0,
        };
        for key in of.calls.keys() {
            let Some(calls) = now.get(&(number, *key)) else {
                continue;
            };
            known.longest_ns = known
                .longest_ns
                .max(calls.elapsed.max_ns.unwrap_or_default());
            match then.get(&(number, *key)) {
                Some(earlier) => {
                    known.open_before = known.open_before.saturating_add(earlier.open);
                    known.calls.merge(&calls.since(earlier));
                }
                None => known.calls.merge(calls),
            }
        }
        known
    }

    /// Compares them with what was sampled of a span. `began_before`: calls may have been under way
    /// when the probes were attached.
    fn compare(
        &self,
        (sampled_low_ns, sampled_high_ns): (u64, u64),
        span_ns: u64,
        began_before: bool,
        costs: &ProbeCosts,
    ) -> Agreement {
        let calls = &self.calls;
        let raw_ns = calls.raw_elapsed_ns();
        let own = |each: fn(&ProbeCosts, usize) -> f64| {
            cost(&calls.probes_outermost, |kind| each(costs, kind)) as u64
        };
        let error_ns = own(|costs, kind| costs[kind].error_ns);
        // The handling of a breakpoint is sampled as its function's, before the entry is seen, too.
        let outside_ns = own(|costs, kind| costs[kind].outside_ns);
        let at_begin_ns = self.open_before.saturating_mul(self.longest_ns);
        let at_end_ns = calls.open.saturating_mul(self.longest_ns);
        let measured_low_ns = raw_ns.saturating_sub(error_ns).saturating_sub(at_begin_ns);
        let measured_high_ns = raw_ns
            .saturating_add(outside_ns)
            .saturating_add(error_ns)
            .saturating_add(at_end_ns);
        let compared = Some(Compared {
            sampled_low_ns,
            sampled_high_ns,
            measured_low_ns,
            measured_high_ns,
            span_ns,
        });
        let (agrees, why) = if measured_low_ns > sampled_high_ns {
            (
                Some(false),
                Some(
                    "more was measured than sampled: its callers may be missing on stacks that could not be walked; and one interval of twenty misses".to_owned(),
                ),
            )
        } else if measured_high_ns >= sampled_low_ns {
            (Some(true), None)
        } else if let Some(why) = self.lacks(
            sampled_high_ns.saturating_sub(measured_low_ns),
            span_ns,
            began_before,
        ) {
            (None, Some(format!("more was sampled than measured: {why}")))
        } else {
            (
                Some(false),
                Some("more was sampled than measured: one interval of twenty misses".to_owned()),
            )
        };
        Agreement {
            agrees,
            why,
            compared,
        }
    }

    /// Why there may be so much more than was measured.
    fn lacks(&self, more_ns: u64, span_ns: u64, began_before: bool) -> Option<&'static str> {
        let calls = &self.calls;
        if calls.open > 0 {
            Some("a call is under way, whose time counts when it ends")
        } else if calls.left_unseen > 0 {
            Some("calls ended without a return, whose time is their callers'")
        } else if calls.counted_only > 0 {
            Some("some calls were counted only")
        } else if calls.exits_unmatched > 0 {
            Some("calls were under way when its probes were attached")
        } else if began_before && more_ns >= span_ns {
            // Such a call has the whole of the span.
            Some("a call may be under way that began before its probes were attached")
        } else {
            None
        }
    }
}

/// Rows by where their functions begin.
pub(super) fn places(functions: &[TreeFunction<'_>]) -> HashMap<(ModuleId, ModuleAddress), usize> {
    let own = functions.iter().enumerate().filter(|(_, of)| is_own(of));
    own.filter_map(|(row, of)| Some(((of.module, of.address?), row)))
        .collect()
}

/// Rows by the names of their functions.
pub(super) fn names<'f>(functions: &'f [TreeFunction<'_>]) -> HashMap<(ModuleId, &'f str), usize> {
    let own = functions.iter().enumerate().filter(|(_, of)| is_own(of));
    own.map(|(row, of)| ((of.module, &*of.name), row)).collect()
}

/// Whether it is a function as symbols tell of it.
fn is_own(function: &TreeFunction<'_>) -> bool {
    !function.inlined && function.standing == Standing::Named && function.section.is_none()
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    fn calls(count: u64, each_ns: u64) -> ComparedCalls {
        let mut calls = Calls {
            calls: count,
            outermost: count,
            inclusive: [count * each_ns, 0, 0, 0, 0],
            ..Calls::default()
        };
        calls.probes_outermost[7] = count;
        ComparedCalls {
            calls,
            open_before: 0,
            longest_ns: each_ns,
        }
    }

    fn costs() -> ProbeCosts {
        let mut costs = ProbeCosts::default();
        costs[7].outside_ns = 1_000.0;
        costs[7].error_ns = 100.0;
        costs
    }

    fn agrees(known: &ComparedCalls, sampled: (u64, u64), began_before: bool) -> Option<bool> {
        let found = known.compare(sampled, 1_000 * MS, began_before, &costs());
        assert_eq!(found.why.is_none(), found.agrees == Some(true), "{found:?}");
        found.agrees
    }

    // Check that the measured time must lie in the sampled interval, give or take what its probes
    // took outside of it.
    #[test]
    fn intervals() {
        let known = calls(1_000, 500_000);
        assert_eq!(agrees(&known, (490 * MS, 510 * MS), false), Some(true));
        assert_eq!(agrees(&known, (501 * MS, 520 * MS), false), Some(true));
        assert_eq!(agrees(&known, (502 * MS, 520 * MS), false), Some(false));
        assert_eq!(agrees(&known, (480 * MS, 499 * MS), false), Some(false));
    }

    // Check that nothing is claimed where calls may lack whose time was sampled, but that having
    // measured more than was sampled is a disagreement whatever lacks.
    #[test]
    fn what_lacks() {
        let sampled = (700 * MS, 720 * MS);
        let lacking: [fn(&mut Calls); 4] = [
            |calls| calls.open = 1,
            |calls| calls.left_unseen = 1,
            |calls| calls.counted_only = 1,
            |calls| calls.exits_unmatched = 1,
        ];
        for lack in lacking {
            let mut known = calls(1_000, 500_000);
            lack(&mut known.calls);
            assert_eq!(agrees(&known, sampled, false), None);
            assert_eq!(agrees(&known, (400 * MS, 450 * MS), false), Some(false));
        }
        // A call that began before has the whole span, or its exit was seen.
        let known = calls(1_000, 500_000);
        assert_eq!(agrees(&known, sampled, true), Some(false));
        assert_eq!(agrees(&known, (1_480 * MS, 1_520 * MS), true), None);
        assert_eq!(agrees(&known, (1_480 * MS, 1_520 * MS), false), Some(false));
    }

    // Check that calls that were under way at the begin or at the end may have passed for no more
    // than the longest call in either.
    #[test]
    fn under_way() {
        let mut known = calls(4, 100 * MS);
        known.calls.open = 1;
        assert_eq!(agrees(&known, (480 * MS, 520 * MS), false), Some(true));
        let mut known = calls(4, 100 * MS);
        known.open_before = 1;
        assert_eq!(agrees(&known, (310 * MS, 340 * MS), false), Some(true));
        assert_eq!(agrees(&known, (210 * MS, 240 * MS), false), Some(false));
    }
}
