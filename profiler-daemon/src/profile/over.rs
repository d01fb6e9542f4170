//! What an aggregate weighs over the session or over a part of it: the one place that knows where
//! weights come from. Reports never see the difference.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
};

use profiler_common::{
    Class, ClassNs,
    kinds::{Kind, KindNs, Primary},
};

use super::{
    aggregate::{AggregateView, Open},
    calls::CallTotals,
    segments::{CellKind, FOLDED},
    sleep_runs::Holder,
    threads::Thread,
    tree::{Node, NodeId},
    values::{Totals, WAIT_CLASSES, add_kinds},
    weights::add_to,
};
use crate::processes::ids::ThreadKey;
use crate::units::MonoNs;
use profiler_common::limits::UNTRACED_CALL;

/// What a report covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Everything since the session began.
    Session,
    /// Whole buckets of the recent past.
    Between {
        /// The beginning of the first, monotonic nanoseconds.
        from_ns: MonoNs,
        /// The end of the last; `u64::MAX` when it is still growing.
        to_ns: MonoNs,
    },
}

impl Span {
    /// Whether it goes on: what comes with the next pass is a part of it. One that was ended does
    /// not, even if it was by the last pass.
    #[must_use]
    pub fn goes_on(self) -> bool {
        match self {
            Self::Session => true,
            Self::Between { to_ns, .. } => to_ns == MonoNs::MAX,
        }
    }
}

/// What a thread gained.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Gain {
    /// Nanoseconds by class.
    Time(ClassNs),
    /// Timer ticks that found this (an index of [`Primary::ticks`]).
    Ticks(usize, u64),
    /// Nanoseconds, of those by class, of running where calls were not traced.
    Untraced(u64),
    /// Page faults that read nothing.
    MinorFaults(u64),
    /// Page faults that waited for a page to be read.
    MajorFaults(u64),
    /// Switches that were not seen.
    SwitchesMissed(u64),
    /// Nanoseconds that profiling has cost.
    ProfilerCost(u64),
    /// See [`Totals::tick_excess`].
    TickExcess(u64),
}

impl Gain {
    fn time(class: usize, ns: u64) -> Self {
        Self::Time(std::array::from_fn(|of| if of == class { ns } else { 0 }))
    }
}

/// The threads of an aggregate over a [`Span`].
#[derive(Debug)]
pub struct ThreadsOver<'a> {
    /// A row per thread that is still known.
    pub rows: Vec<(ThreadKey, &'a Thread, Totals)>,
    /// The other threads together.
    pub folded: Totals,
    /// How many those are. Not known of a part of the session: which of them were there was not
    /// kept.
    pub folded_count: Option<u64>,
    /// Nanoseconds by kind of all threads together.
    pub kinds: KindNs,
}

impl ThreadsOver<'_> {
    /// Rows and folded threads together.
    #[must_use]
    pub fn total(&self) -> Totals {
        let mut total = self.folded;
        for (_, _, totals) in &self.rows {
            total.add(totals);
        }
        total.kinds = self.kinds;
        total
    }
}

impl AggregateView {
    /// The call tree's nodes, root first, parents before children.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// What each node that received anything received itself, open intervals included.
    #[must_use]
    pub fn held_over(&self, span: Span) -> BTreeMap<NodeId, Primary> {
        let mut held: BTreeMap<NodeId, Primary> = BTreeMap::new();
        match span {
            Span::Session => {
                for (node, what, amount) in self.weights.iter() {
                    add_to(held.entry(node).or_default(), what, amount);
                }
            }
            Span::Between { from_ns, to_ns } => {
                for segment in self.history.within(from_ns, to_ns) {
                    for ((node, what), amount) in &segment.nodes {
                        add_to(held.entry(*node).or_default(), *what, *amount);
                    }
                }
                for sleep_run in self.history.sleep_runs() {
                    let ns = sleep_run.within(from_ns, to_ns);
                    if let (Some(Holder::Stack(leaf)), 1..) = (sleep_run.holder, ns) {
                        let wait = usize::from(sleep_run.class == Class::Runnable as usize);
                        held.entry(leaf).or_default().exact[wait] += ns;
                    }
                }
            }
        }
        for open in self.open_over(span) {
            for (wait, ns) in open.exact.into_iter().enumerate().filter(|(_, ns)| *ns > 0) {
                held.entry(open.leaf).or_default().exact[wait] += ns;
            }
        }
        // A file may have numbers that are zero.
        held.retain(|_, primary| *primary != Primary::default());
        held
    }

    /// The exact time by kind that is divided by marks, of all threads.
    #[must_use]
    pub fn kinds_over(&self, span: Span) -> KindNs {
        let mut kinds = KindNs::default();
        match span {
            Span::Session => {
                kinds = self.folded.totals.kinds;
                for thread in self.threads.values() {
                    add_kinds(&mut kinds, &thread.totals.kinds);
                }
            }
            Span::Between { from_ns, to_ns } => {
                for segment in self.history.within(from_ns, to_ns) {
                    add_kinds(&mut kinds, &segment.kinds);
                }
                for sleep_run in self.history.sleep_runs() {
                    if let Some(Holder::Kind(kind)) = sleep_run.holder {
                        kinds[usize::from(kind)] += sleep_run.within(from_ns, to_ns);
                    }
                }
            }
        }
        kinds
    }

    /// The exact totals of each thread.
    #[must_use]
    pub fn threads_over(&self, span: Span) -> ThreadsOver<'_> {
        let mut by_index = self.totals_by_index(span);
        for open in self.open_over(span) {
            let attributed = &mut by_index.entry(open.thread).or_default().attributed;
            for (class, ns) in WAIT_CLASSES.into_iter().zip(open.exact) {
                attributed[class as usize] += ns;
            }
        }
        let rows = self
            .threads
            .iter()
            .map(|(key, thread)| {
                (
                    *key,
                    thread,
                    by_index.remove(&thread.index).unwrap_or_default(),
                )
            })
            .collect();
        let mut folded = Totals::default();
        for totals in by_index.values() {
            folded.add(totals);
        }
        ThreadsOver {
            rows,
            folded,
            folded_count: (span == Span::Session).then_some(self.folded.count),
            kinds: self.kinds_over(span),
        }
    }

    /// System calls by number. Waits in calls that were not traced are time of them; they are no
    /// calls that were counted.
    #[must_use]
    pub fn calls_over(&self, span: Span) -> Cow<'_, BTreeMap<u32, CallTotals>> {
        let mut calls: BTreeMap<u32, CallTotals> = BTreeMap::new();
        let mut add = |number: u32, totals: &CallTotals| {
            let to = calls.entry(number & !UNTRACED_CALL).or_default();
            if number & UNTRACED_CALL == 0 {
                to.add(totals);
            } else {
                to.time.add(&totals.time);
            }
        };
        match span {
            Span::Session => {
                // The last number is the largest: without that bit, none has it.
                let last = self.calls.keys().next_back();
                if last.is_none_or(|number| number & UNTRACED_CALL == 0) {
                    return Cow::Borrowed(&self.calls);
                }
                self.calls
                    .iter()
                    .for_each(|(number, totals)| add(*number, totals));
            }
            Span::Between { from_ns, to_ns } => {
                for segment in self.history.within(from_ns, to_ns) {
                    segment
                        .calls
                        .iter()
                        .for_each(|(number, totals)| add(*number, totals));
                }
                for sleep_run in self.history.sleep_runs() {
                    let ns = sleep_run.within(from_ns, to_ns);
                    if let Some(number) = sleep_run.call.filter(|_| ns > 0) {
                        add(number, &sleep_run.call_time(ns));
                    }
                }
            }
        }
        Cow::Owned(calls)
    }

    /// Tells what each thread (those without a row: `None`) gained in neighbouring spans of whole
    /// buckets. `borders_ns` are the beginnings of the spans, and the end of the last one.
    pub fn gains_by_span(
        &self,
        borders_ns: &[MonoNs],
        mut add: impl FnMut(Option<ThreadKey>, usize, Gain),
    ) {
        let (Some(from_ns), Some(to_ns)) = (borders_ns.first(), borders_ns.last()) else {
            return;
        };
        let keys = self.keys();
        let key = |thread: u32| keys.get(&thread).copied();
        let span_of = |at_ns: MonoNs| {
            let begun = borders_ns.partition_point(|border_ns| *border_ns <= at_ns);
            begun.saturating_sub(1)
        };
        for segment in self.history.within(*from_ns, *to_ns) {
            let span = span_of(segment.from_ns);
            for (thread, what, cell) in segment.cells() {
                match what {
                    CellKind::Class(class) => add(key(thread), span, Gain::time(class, cell.total)),
                    CellKind::Ticks(tick) => add(key(thread), span, Gain::Ticks(tick, cell.total)),
                    CellKind::Untraced => add(key(thread), span, Gain::Untraced(cell.total)),
                    CellKind::MinorFaults => add(key(thread), span, Gain::MinorFaults(cell.total)),
                    CellKind::MajorFaults => add(key(thread), span, Gain::MajorFaults(cell.total)),
                    CellKind::SwitchesMissed => {
                        add(key(thread), span, Gain::SwitchesMissed(cell.total));
                    }
                    CellKind::ProfilerCost => {
                        add(key(thread), span, Gain::ProfilerCost(cell.total));
                    }
                    CellKind::TickExcess => add(key(thread), span, Gain::TickExcess(cell.total)),
                    CellKind::Unobserved => {}
                }
            }
        }
        for sleep_run in self.history.sleep_runs() {
            for span in span_of(sleep_run.from_ns)..borders_ns.len() - 1 {
                let ns = sleep_run.within(borders_ns[span], borders_ns[span + 1]);
                if borders_ns[span] >= sleep_run.to_ns {
                    break;
                }
                add(key(sleep_run.thread), span, Gain::time(sleep_run.class, ns));
                if sleep_run.holder == Some(Holder::Kind(Kind::Untraced as u8)) {
                    add(key(sleep_run.thread), span, Gain::Untraced(ns));
                }
            }
        }
    }

    /// Tells where threads were blocked, and how long, as far as that is known by thread: waits of
    /// whole passes, and those under way.
    pub fn blocked_at(&self, span: Span, mut add: impl FnMut(ThreadKey, NodeId, u64)) {
        let keys = self.keys();
        let (from_ns, to_ns) = match span {
            Span::Session => (MonoNs::ZERO, MonoNs::MAX),
            Span::Between { from_ns, to_ns } => (from_ns, to_ns),
        };
        let slept = self.history.sleep_runs().filter_map(|sleep_run| {
            let is_blocked = sleep_run.class == Class::Blocked as usize;
            let leaf = sleep_run.holder.and_then(Holder::leaf)?;
            is_blocked.then(|| (sleep_run.thread, leaf, sleep_run.within(from_ns, to_ns)))
        });
        let open = self.open_over(span);
        let open = open.map(|open| (open.thread, open.leaf, open.exact[0]));
        for (thread, leaf, ns) in slept.chain(open) {
            if let Some(key) = keys.get(&thread).filter(|_| ns > 0) {
                add(*key, leaf, ns);
            }
        }
    }

    /// The threads by what segments call them.
    fn keys(&self) -> HashMap<u32, ThreadKey> {
        let threads = self.threads.iter();
        threads.map(|(key, thread)| (thread.index, *key)).collect()
    }

    fn totals_by_index(&self, span: Span) -> BTreeMap<u32, Totals> {
        let mut by_index: BTreeMap<u32, Totals> = BTreeMap::new();
        match span {
            Span::Session => {
                by_index.extend(
                    self.threads
                        .values()
                        .map(|thread| (thread.index, thread.totals)),
                );
                by_index.insert(FOLDED, self.folded.totals);
            }
            Span::Between { from_ns, to_ns } => {
                for sleep_run in self.history.sleep_runs() {
                    let ns = sleep_run.within(from_ns, to_ns);
                    if ns > 0 {
                        let totals = by_index.entry(sleep_run.thread).or_default();
                        totals.classes[sleep_run.class] += ns;
                        if sleep_run.holder == Some(Holder::Kind(Kind::Untraced as u8)) {
                            totals.kinds[Kind::Untraced as usize] += ns;
                        }
                        totals.attributed[sleep_run.class] +=
                            ns * u64::from(sleep_run.holder.is_some());
                    }
                }
                for segment in self.history.within(from_ns, to_ns) {
                    for (thread, what, cell) in segment.cells() {
                        let totals = by_index.entry(thread).or_default();
                        match what {
                            CellKind::Class(class) => {
                                totals.classes[class] += cell.total;
                                totals.attributed[class] += cell.attributed;
                            }
                            CellKind::Unobserved => totals.unobserved_ns += cell.total,
                            CellKind::Ticks(tick) => totals.ticks[tick] += cell.total,
                            CellKind::TickExcess => {
                                totals.tick_excess = totals.tick_excess.saturating_add(cell.total);
                            }
                            CellKind::Untraced => {
                                totals.kinds[Kind::Untraced as usize] += cell.total
                            }
                            CellKind::MinorFaults => totals.minor_faults += cell.total,
                            CellKind::MajorFaults => totals.major_faults += cell.total,
                            CellKind::SwitchesMissed => totals.switches_missed += cell.total,
                            CellKind::ProfilerCost => totals.profiler_cost_ns += cell.total,
                        }
                    }
                }
            }
        }
        by_index
    }

    /// The open intervals, cut to the span.
    fn open_over(&self, span: Span) -> impl Iterator<Item = Open> {
        self.open.iter().map(move |open| match span {
            Span::Session => *open,
            Span::Between { from_ns, to_ns } => Open {
                exact: self
                    .history
                    .open_within(from_ns, to_ns, open.thread, &open.exact),
                ..*open
            },
        })
    }
}
