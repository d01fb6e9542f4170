//! The completeness of an answer: what it lacks, and why.

use std::collections::BTreeMap;

use serde::Serialize;

use super::{
    covered::probes_ns,
    places::Places,
    product::Values,
    query::FrameScope,
    scope::View,
    values::percent,
    walks::{DataLosses, Stacks},
};
use crate::{
    processes::{mappings, module::ModuleId},
    profile::{
        input::CounterName,
        tree::{Node, NodePlace},
        values::sum,
    },
    report::names::{Lines, Names},
    symbols::lines::NoLine,
};

/// The cause under which time of functions stands some of whose callers were folded.
pub(super) const CALLERS_FOLDED: &str = "callers_folded_ns";

/// What this very answer lacks.
#[derive(Clone, Debug, Default, Serialize, PartialEq, utoipa::ToSchema)]
pub struct Completeness {
    /// Samples that could not be stored at all. Nobody knows whose they were: the session's number,
    /// in every answer.
    pub samples_lost: u64,
    /// Walks of user stacks that ended before the outermost frame, at the bound on frames.
    pub stacks_truncated: u64,
    /// Walks of user stacks that could not go on, or whose result was lost.
    pub stacks_unwind_failed: u64,
    /// Time in the totals that no row has.
    pub elapsed_unattributed_ns: u64,
    /// Time of no known function: in answers that show user functions it is in the rows `[not
    /// sampled]`, `[unknown: reason]`, `[folded]` and `[dropped]`. Nothing in lists of totals.
    pub elapsed_unknown_ns: u64,
    /// Share of the walks of user stacks that reached the outermost frame, percent.
    pub stacks_complete_percent: f64,
    /// Share of the time that is neither unattributed nor unknown, percent.
    pub elapsed_attributed_percent: f64,
    /// So many samples tell as much as one that stands for itself: ticks of very deep stacks that
    /// were not walked, since the budget was short, are stood for by others. Absent where each
    /// sample stands for itself.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub samples_each: Option<f64>,
    /// Share of frames without a name, each weighted by the time it was on the stack. Where no
    /// names are shown: of those of which not even the module is known, such as frames that found
    /// no room.
    pub frames_unknown_percent: f64,
    /// The same by reason; the shares sum to it. Absent where there is none, and where neither
    /// names nor modules are shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub frames_unknown: Option<BTreeMap<&'static str, f64>>,
    /// Share of frames whose line is not known, weighted likewise; absent where lines are not
    /// shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines_unknown_percent: Option<f64>,
    /// The same by reason; the shares sum to it. Absent where lines are not shown.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub lines_unknown: Option<BTreeMap<&'static str, f64>>,
    /// What probes of measured functions took of the time covered, nanoseconds: it is in the
    /// sampled values. Absent where nothing was measured.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub probes_ns: Option<u64>,
    /// Losses by cause: the counters of the session, or the lost stacks of one process. And of this
    /// answer's own time, that of stacks which were folded (`folded_ns`), and that of functions
    /// some of whose callers were (`callers_folded_ns`).
    #[schema(value_type = BTreeMap<String, u64>)]
    pub causes: BTreeMap<CounterName, u64>,
    /// `callers_folded_ns` of all time, percent: whether the text says so.
    #[serde(skip)]
    #[schema(ignore)]
    pub callers_folded_percent: f64,
}

/// What an answer about stacks knows beyond the view.
pub(super) struct StackAnswer {
    pub(super) stacks: Stacks,
    pub(super) losses: DataLosses,
    pub(super) unattributed_ns: u64,
    pub(super) of_no_function_ns: u64,
    pub(super) frames_unknown: Unknown,
}

/// Shares of frames without a name, percent.
#[derive(Default)]
pub(super) struct Unknown {
    /// All.
    percent: f64,
    /// By reason; `None` where that is not told.
    reasons: Option<BTreeMap<&'static str, f64>>,
}

impl Unknown {
    /// Of these weights by reason, and that of all frames.
    pub(super) fn of(weights: &BTreeMap<&'static str, u64>, all: u64) -> Self {
        let unknown = weights.values().copied().fold(0, u64::saturating_add);
        let weights = weights.iter().filter(|(_, weight)| **weight > 0);
        let shares = weights.map(|(why, weight)| (*why, percent(*weight, all)));
        Self {
            percent: percent(unknown, all),
            reasons: (unknown > 0).then(|| shares.collect()),
        }
    }
}

impl Completeness {
    /// The completeness of an answer whose rows are exact totals: no time is missing from them.
    pub(super) fn of_totals(view: &View<'_>, places: &Places, names: &dyn Names) -> Self {
        Self::new(
            view,
            &StackAnswer {
                stacks: places.all_stacks(view, names),
                losses: places.losses(view),
                unattributed_ns: 0,
                of_no_function_ns: 0,
                frames_unknown: Unknown {
                    percent: modules_unknown_percent(view, places),
                    reasons: None,
                },
            },
        )
    }

    /// The completeness of an answer that is one total: how much of it has no function.
    pub(super) fn of_one_total(view: &View<'_>, places: &Places, names: &dyn Names) -> Self {
        let (unattributed_ns, unknown_ns) = (
            sum(&view.totals().unattributed()),
            places.of_no_function_ns(view),
        );
        Self {
            elapsed_unattributed_ns: unattributed_ns,
            elapsed_unknown_ns: unknown_ns,
            ..Self::of_totals(view, places, names)
        }
        .of_elapsed(view.total.values.elapsed_ns())
    }

    pub(super) fn new(view: &View<'_>, seen: &StackAnswer) -> Self {
        Self {
            samples_lost: view.coverage.samples_lost,
            stacks_truncated: seen.stacks.truncated,
            stacks_unwind_failed: seen.stacks.failed,
            elapsed_unattributed_ns: seen.unattributed_ns,
            elapsed_unknown_ns: seen.of_no_function_ns,
            stacks_complete_percent: complete_percent(
                seen.stacks.truncated + seen.stacks.failed,
                seen.stacks.walked,
            ),
            elapsed_attributed_percent: 100.0,
            samples_each: Some(view.denominators.samples_each).filter(|each| *each > 1.0),
            frames_unknown_percent: seen.frames_unknown.percent,
            frames_unknown: seen.frames_unknown.reasons.clone(),
            lines_unknown_percent: None,
            lines_unknown: None,
            probes_ns: probes_ns(view),
            causes: causes(view, &seen.losses),
            callers_folded_percent: percent(
                seen.losses.callers_folded_ns,
                view.total.values.elapsed_ns(),
            ),
        }
        .of_elapsed(view.total.values.elapsed_ns())
    }

    /// With the share of `elapsed_ns` that has a function.
    pub(super) fn of_elapsed(mut self, elapsed_ns: u64) -> Self {
        let lacking = self.elapsed_unattributed_ns;
        let lacking = lacking.saturating_add(self.elapsed_unknown_ns);
        self.elapsed_attributed_percent = complete_percent(lacking, elapsed_ns);
        self
    }
}

impl Completeness {
    /// With the share of frames that have no line, of those that were asked for.
    pub(super) fn with_lines(
        mut self,
        view: &View<'_>,
        frames: FrameScope,
        lines: &dyn Lines,
    ) -> Self {
        let unknown = lines_unknown(view, frames, lines);
        self.lines_unknown_percent = Some(unknown.values().sum());
        self.lines_unknown = Some(unknown);
        self
    }

    /// What grew since an earlier answer about the same scope: counts of the session, and causes.
    pub(super) fn since(mut self, earlier: &Self) -> Self {
        let grown = |now: &mut u64, then: u64| *now = now.saturating_sub(then);
        grown(&mut self.samples_lost, earlier.samples_lost);
        for (cause, count) in &mut self.causes {
            grown(
                count,
                earlier.causes.get(cause).copied().unwrap_or_default(),
            );
        }
        self.causes.retain(|_, count| *count > 0);
        self
    }
}

/// What is not among those that lack something, percent; all, where there is nothing.
fn complete_percent(lacking: u64, all: u64) -> f64 {
    if all == 0 {
        100.0
    } else {
        100.0 - percent(lacking.min(all), all)
    }
}

/// Losses by cause, and how much of what is in scope was folded.
fn causes(view: &View<'_>, losses: &DataLosses) -> BTreeMap<CounterName, u64> {
    let mut causes: BTreeMap<CounterName, u64> = BTreeMap::new();
    if view.is_session() {
        causes.extend(view.coverage.losses.iter().cloned());
    } else {
        let lost = losses.lost.iter();
        causes.extend(lost.map(|(name, count)| ((*name).into(), *count)));
    }
    let folded = [
        ("folded_ns", losses.folded_ns),
        (CALLERS_FOLDED, losses.callers_folded_ns),
    ];
    let folded = folded.into_iter().filter(|(_, ns)| *ns > 0);
    causes.extend(folded.map(|(name, ns)| (name.into(), ns)));
    causes
}

/// Share of user frames in no known module, weighted by time, or by samples where no time was
/// measured.
fn modules_unknown_percent(view: &View<'_>, places: &Places) -> f64 {
    let is_unknown = |node: &Node| match node.place {
        NodePlace::User(frame) => view.snapshot.frame(frame).module == ModuleId::UNKNOWN,
        NodePlace::Kernel(_) | NodePlace::Lost(_) | NodePlace::Cut | NodePlace::Folded { .. } => {
            false
        }
    };
    let mut nodes = view.members.iter().flat_map(|of| of.aggregate.nodes());
    if !nodes.any(is_unknown) {
        return 0.0;
    }
    let (mut all, mut unknown) = (Values::default(), Values::default());
    for (index, member) in view.members.iter().enumerate() {
        let totals = places.inclusive(index, member);
        for (node, total) in member.aggregate.nodes().iter().zip(&totals).skip(1) {
            if !matches!(
                node.place,
                NodePlace::Kernel(_) | NodePlace::Folded { kernel: true }
            ) {
                all.add(total);
            }
            if is_unknown(node) {
                unknown.add(total);
            }
        }
    }
    if all.elapsed_ns() > 0 {
        percent(unknown.elapsed_ns(), all.elapsed_ns())
    } else {
        percent(unknown.samples, all.samples)
    }
}

/// Shares of frames without a line, by reason: weighted by time, or by samples where no time was
/// measured.
fn lines_unknown(
    view: &View<'_>,
    frames: FrameScope,
    lines: &dyn Lines,
) -> BTreeMap<&'static str, f64> {
    let (mut all, mut unknown) = (Values::default(), BTreeMap::<&'static str, Values>::new());
    let places = Places::new(view);
    for (index, member) in view.members.iter().enumerate() {
        let nodes = member.aggregate.nodes();
        let totals = places.inclusive(index, member);
        let hide_kernel = frames == FrameScope::User && !member.kernel_thread;
        for (node, total) in nodes.iter().zip(&totals).skip(1) {
            let why = match node.place {
                NodePlace::Kernel(_) | NodePlace::Folded { kernel: true } if hide_kernel => {
                    continue;
                }
                NodePlace::User(frame) | NodePlace::Kernel(frame) => {
                    let frame = view.snapshot.frame(frame);
                    let place = mappings::Place {
                        module: frame.module,
                        offset: frame.offset,
                    };
                    match lines.code(place) {
                        None => continue,
                        Some(code) => code.source().err(),
                    }
                }
                NodePlace::Lost(_) | NodePlace::Cut | NodePlace::Folded { .. } => {
                    Some(NoLine::NoProgram)
                }
            };
            all.add(total);
            if let Some(why) = why {
                unknown.entry(why.name()).or_default().add(total);
            }
        }
    }
    let weight: fn(&Values) -> u64 = if all.elapsed_ns() > 0 {
        Values::elapsed_ns
    } else {
        |values| values.samples
    };
    unknown.retain(|_, values| weight(values) > 0);
    let percents = unknown
        .into_iter()
        .map(|(why, values)| (why, percent(weight(&values), weight(&all))));
    percents.collect()
}
