//! Whether a snapshot that came from a file holds together: every number that names something names
//! something that is there, and no sum over it overflows. What a snapshot of this program's own
//! [`Profile`](super::Profile) holds does so by construction; a file can hold anything.

use std::collections::BTreeMap;

use profiler_common::{
    CLASS_COUNT,
    kinds::{Kind, NUMBERS},
};
use thiserror::Error;

use super::{
    aggregate::AggregateView,
    calls::CallTotals,
    measured::{self, Counted, FunctionState, MeasuredCalls},
    sessions::{Session, Sessions},
    sleep_runs::{Holder, SleepRun},
    snapshot::Snapshot,
    threads::Thread,
    timeline::{Counters, TimelineRings},
    tree::{MAX_DEPTH, NodeId, NodePlace},
    values::{Totals, WAIT_CLASSES, class_of},
    weights,
};
use crate::{
    config::{MAX_SESSION_SPANS, MAX_SESSIONS},
    processes::ids::ThreadKey,
    units::MonoNs,
};

/// The largest moment, and the largest sum of one kind of number over a whole profile: reports add
/// up two kinds at most, and some formats have signed numbers. Of nanoseconds it is 292 years of
/// one thread, or 21 days of 5000, which `limits.session_thread_time` keeps to.
const LARGEST_SUM: u128 = i64::MAX as u128;

const TOO_LARGE: &str = "its numbers are larger than any profile's";

/// What does not hold together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{0}")]
pub struct Flaw(&'static str);

/// A sentence where `holds` does not.
fn expect(holds: bool, flaw: &'static str) -> Result<(), Flaw> {
    if holds { Ok(()) } else { Err(Flaw(flaw)) }
}

/// Sums over a whole profile, by what is summed.
#[derive(Default)]
struct Sums {
    /// Time of threads, by class and as stacks have it.
    elapsed: u128,
    attributed: u128,
    /// What else is counted of threads.
    unobserved: u128,
    profiler_cost: u128,
    thread_events: u128,
    /// Waits that stacks have, exact and weighted; their marks and walks.
    waits: u128,
    marks: u128,
    calls: CallSums,
    /// The same of the recent past.
    past_elapsed: u128,
    past_attributed: u128,
    past_kinds: u128,
    past_waits: u128,
    past_marks: u128,
    past_calls: CallSums,
}

impl Sums {
    fn check(&self) -> Result<(), Flaw> {
        let all = [
            self.elapsed,
            self.attributed,
            self.unobserved,
            self.profiler_cost,
            self.thread_events,
            self.waits,
            self.marks,
            self.past_elapsed,
            self.past_attributed,
            self.past_kinds,
            self.past_waits,
            self.past_marks,
        ];
        let calls = self.calls.0.iter().chain(&self.past_calls.0);
        let fit = all.iter().chain(calls).all(|sum| *sum <= LARGEST_SUM);
        expect(fit, TOO_LARGE)
    }

    fn add_totals(&mut self, totals: &Totals) {
        let sum = |numbers: &[u64]| {
            numbers
                .iter()
                .map(|number| u128::from(*number))
                .sum::<u128>()
        };
        self.elapsed += sum(&totals.classes);
        self.attributed += sum(&totals.attributed);
        self.unobserved += u128::from(totals.unobserved_ns);
        self.profiler_cost += u128::from(totals.profiler_cost_ns);
        let faults = [totals.minor_faults, totals.major_faults];
        let others = [totals.switches_missed, totals.tick_excess];
        self.thread_events += sum(&faults) + sum(&others) + sum(&totals.ticks);
    }
}

/// Sums over system calls: each number of [`CallTotals`], and the time of those under way.
#[derive(Default)]
struct CallSums([u128; 7]);

impl CallSums {
    fn add(&mut self, calls: &CallTotals) {
        let numbers = [
            calls.count,
            calls.returned_ns,
            calls.time.total_ns,
            calls.time.running_ns,
            calls.time.blocked_ns,
            calls.max_ns,
        ];
        for (sum, number) in self.0.iter_mut().zip(numbers) {
            *sum += u128::from(number);
        }
    }

    fn add_open(&mut self, ns: u64) {
        self.0[6] += u128::from(ns);
    }
}

fn check_totals(totals: &Totals) -> Result<(), Flaw> {
    let fits = (0..CLASS_COUNT).all(|class| totals.attributed[class] <= totals.classes[class]);
    expect(fits, "stacks have more time than their thread")?;
    let mut kinds = [0u128; CLASS_COUNT];
    for kind in Kind::ALL {
        kinds[class_of(kind) as usize] += u128::from(totals.kinds[kind as usize]);
    }
    let fits = (0..CLASS_COUNT).all(|class| kinds[class] <= u128::from(totals.attributed[class]));
    expect(
        fits,
        "a thread has more time of some kind than of its class",
    )
}

impl SleepRun {
    fn makes_sense(&self, aggregate: &AggregateView) -> bool {
        let is_wait = WAIT_CLASSES
            .iter()
            .any(|class| *class as usize == self.class);
        let fits = match self.holder {
            None => self.class < CLASS_COUNT,
            Some(Holder::Stack(leaf)) => is_wait && aggregate.holds(leaf),
            Some(Holder::Kind(kind)) => Kind::ALL
                .get(usize::from(kind))
                .is_some_and(|kind| class_of(*kind) as usize == self.class),
        };
        fits && self.from_ns <= self.to_ns
    }
}

impl Snapshot {
    /// Checks a snapshot that came from elsewhere: what passes can be reported on without an
    /// overflow and without an index out of bounds.
    ///
    /// # Errors
    /// The first thing that does not hold together.
    pub fn check(&self) -> Result<(), Flaw> {
        expect(self.started_ns <= self.now_ns, "it ends before it begins")?;
        expect(u128::from(self.now_ns.ns()) <= LARGEST_SUM, TOO_LARGE)?;
        self.timeline.check(self.now_ns)?;
        self.sessions.is_whole(self.now_ns)?;
        self.counters.check()?;
        let ended = self.images.iter().map(|image| u128::from(image.ended));
        expect(ended.sum::<u128>() <= LARGEST_SUM, TOO_LARGE)?;
        let mut places = self.dropped.values().map(|ended| ended.place as usize);
        expect(
            places.all(|place| place < self.images.len()),
            "a process is of an image that is not there",
        )?;
        expect(self.modules.is_whole(), "its table of modules is broken")?;
        expect(self.frames.is_whole(), "its table of frames is broken")?;
        let mut sums = Sums::default();
        let images = self.images.iter().map(|image| &image.aggregate);
        let kept = self.processes.iter().map(|(key, process)| {
            expect(
                process.info.key == *key,
                "a process goes by another's number",
            )?;
            Ok(&process.aggregate)
        });
        for aggregate in kept.chain(images.map(Ok)) {
            aggregate?.check(self, &mut sums)?;
        }
        sums.check()?;
        self.measured.check(self)
    }
}

impl MeasuredCalls {
    fn check(&self, of: &Snapshot) -> Result<(), Flaw> {
        expect(
            self.costs.values().all(measured::are_costs),
            "probes cost what none can",
        )?;
        let known = |state: &FunctionState| {
            let function = &state.function;
            let ends = state
                .detached
                .is_none_or(|at| at.ns >= function.attached.ns);
            ends && u128::from(function.attached.ns.ns()) <= LARGEST_SUM
                && of.modules.holds(function.module)
        };
        expect(
            self.functions.iter().all(known),
            "a measured function is of a file that is not there, or ends before it begins",
        )?;
        check_counted(&self.counted)
    }
}

fn check_counted(counted: &Counted) -> Result<(), Flaw> {
    let sum = measured::sum(counted);
    expect(
        sum.is_some(),
        "calls have a duration that is not told apart",
    )?;
    expect(sum.is_none_or(|sum| sum <= LARGEST_SUM), TOO_LARGE)
}

impl AggregateView {
    fn check(&self, snapshot: &Snapshot, sums: &mut Sums) -> Result<(), Flaw> {
        self.check_nodes(snapshot)?;
        self.check_rows(snapshot.now_ns, sums)?;
        self.check_segments(sums)
    }

    fn check_nodes(&self, snapshot: &Snapshot) -> Result<(), Flaw> {
        let nodes = &self.nodes;
        // An aggregate that never had a stack has no node, not even the root.
        expect(
            nodes.first().is_none_or(|root| root.parent == NodeId::ROOT),
            "a call tree has no root",
        )?;
        let mut depths: Vec<usize> = Vec::with_capacity(nodes.len());
        for (index, node) in nodes.iter().enumerate() {
            if index == 0 {
                depths.push(0);
                continue;
            }
            let parent = node.parent.index();
            expect(parent < index, "a call tree runs in a circle")?;
            let depth = depths[parent] + 1;
            expect(depth <= MAX_DEPTH + 1, "a call tree is too deep")?;
            depths.push(depth);
            expect(
                match node.place {
                    NodePlace::User(frame) | NodePlace::Kernel(frame) => {
                        snapshot.frames.holds(frame)
                            && snapshot.modules.holds(snapshot.frame(frame).module)
                    }
                    NodePlace::Lost(_) => parent == 0,
                    NodePlace::Cut | NodePlace::Folded { .. } => true,
                },
                "a call tree names a frame that is not there",
            )?;
        }
        expect(
            self.weights.is_whole(nodes.len()),
            "its weights do not fit the call tree",
        )
    }

    fn holds(&self, node: NodeId) -> bool {
        node.index() < self.nodes.len()
    }

    fn check_rows(&self, now_ns: MonoNs, sums: &mut Sums) -> Result<(), Flaw> {
        let threads: &BTreeMap<ThreadKey, Thread> = &self.threads;
        for thread in threads.values() {
            check_totals(&thread.totals)?;
            expect(
                thread.first_ns <= thread.last_ns,
                "a thread ends before it begins",
            )?;
            sums.add_totals(&thread.totals);
            if thread.in_syscall.is_some() {
                let under_way_ns = now_ns.saturating_since(thread.in_syscall_since_ns);
                sums.calls.add_open(under_way_ns);
            }
        }
        check_totals(&self.folded.totals)?;
        sums.add_totals(&self.folded.totals);
        sums.thread_events += u128::from(self.folded.count);
        for (_, what, amount) in self.weights.iter() {
            if weights::is_time(what) {
                sums.waits += u128::from(amount);
            } else if !weights::is_square(what) {
                sums.marks += u128::from(amount);
            }
        }
        self.calls.values().for_each(|calls| sums.calls.add(calls));
        for open in self.open.iter() {
            expect(
                self.holds(open.leaf),
                "an open interval has no place in the call tree",
            )?;
            sums.waits += open.exact.iter().map(|ns| u128::from(*ns)).sum::<u128>();
        }
        sums.check()
    }

    fn check_segments(&self, sums: &mut Sums) -> Result<(), Flaw> {
        let begins = self
            .history
            .within(MonoNs::ZERO, MonoNs::MAX)
            .map(|segment| segment.from_ns);
        expect(
            begins.is_sorted_by(|a, b| a < b),
            "its segments are out of order",
        )?;
        for segment in self.history.within(MonoNs::ZERO, MonoNs::MAX) {
            expect(
                segment
                    .nodes
                    .keys()
                    .all(|(node, what)| self.holds(*node) && usize::from(*what) < NUMBERS),
                "a segment has weights without a place in the call tree",
            )?;
            expect(
                segment.has_known_cells(),
                "a segment counts what is not known",
            )?;
            for (_, _, cell) in segment.cells() {
                sums.past_elapsed += u128::from(cell.total);
                sums.past_attributed += u128::from(cell.attributed);
            }
            for ((_, what), amount) in &segment.nodes {
                if weights::is_time(*what) {
                    sums.past_waits += u128::from(*amount);
                } else if !weights::is_square(*what) {
                    sums.past_marks += u128::from(*amount);
                }
            }
            sums.past_kinds += segment.kinds.iter().map(|ns| u128::from(*ns)).sum::<u128>();
            segment
                .calls
                .values()
                .for_each(|calls| sums.past_calls.add(calls));
        }
        for sleep_run in self.history.sleep_runs() {
            expect(sleep_run.makes_sense(self), "a sleep makes no sense")?;
            let ns = sleep_run.to_ns - sleep_run.from_ns;
            sums.past_elapsed += u128::from(ns);
            sums.past_attributed += u128::from(ns);
            sums.past_kinds += u128::from(ns);
            sums.past_waits += u128::from(ns);
            if sleep_run.call.is_some() {
                sums.past_calls.add(&sleep_run.call_time(ns));
            }
        }
        sums.check()
    }
}

impl Sessions {
    fn is_whole(&self, now_ns: MonoNs) -> Result<(), Flaw> {
        let spans: usize = self.list().iter().map(|session| session.spans.len()).sum();
        expect(
            self.list().len() <= MAX_SESSIONS && spans <= MAX_SESSION_SPANS,
            "it has more named sessions, or spans of them, than any profile",
        )?;
        let makes_sense = |session: &Session| {
            let begins = session.spans.iter().map(|span| span.from);
            let moments = begins.chain(session.stopped);
            !session.spans.is_empty()
                && moments.clone().all(|at| at.ns <= now_ns)
                && moments.is_sorted_by(|a, b| a.ns <= b.ns && a.unix_ns <= b.unix_ns)
        };
        expect(
            self.list().iter().all(makes_sense),
            "a named session makes no sense",
        )
    }
}

impl Counters {
    fn check(&self) -> Result<(), Flaw> {
        let counts = self.losses.iter().chain(&self.discarded);
        let counts = counts.chain(&self.throttled);
        let counts = counts.map(|(_, count)| u128::from(*count));
        let sum = counts.sum::<u128>() + u128::from(self.samples_lost);
        expect(sum <= LARGEST_SUM, TOO_LARGE)
    }
}

impl TimelineRings {
    fn check(&self, now_ns: MonoNs) -> Result<(), Flaw> {
        let begins = self.starts.iter().map(|start| start.from_ns);
        let rises = begins.clone().zip(begins.skip(1)).all(|(a, b)| a <= b)
            && self
                .starts
                .back()
                .is_some_and(|last| last.from_ns <= now_ns);
        expect(rises, "its recent past is out of order")?;
        self.starts.iter().try_for_each(|start| {
            start.counters.check()?;
            start.measured.as_deref().map_or(Ok(()), check_counted)
        })
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::super::{
        Profile,
        calls::CallTime,
        input::{CommName, DrainPass, OpenCall, ProcessInfo, ThreadState, ThreadUpdate},
        limits::Limits,
        sessions::SessionChange,
    };
    use super::*;
    use crate::processes::ids::ProcessKey;
    use crate::units::{BootNs, UnixNs};

    const SECOND_NS: u64 = 1_000_000_000;
    const PROCESS: ProcessKey = ProcessKey {
        pid: 7,
        start_ns: BootNs::new(SECOND_NS),
    };

    /// Of a process with a thread inside a system call, and a session that runs.
    fn snapshot() -> Snapshot {
        let mut profile = Profile::new(
            Limits::default(),
            MonoNs::new(SECOND_NS),
            UnixNs::new(SECOND_NS),
        );
        for second in 2..5 {
            let now_ns = second * SECOND_NS;
            profile.apply(DrainPass {
                now_ns: MonoNs::new(now_ns),
                now_unix_ns: UnixNs::new(now_ns),
                processes: vec![ProcessInfo::unknown(
                    PROCESS,
                    CommName::new("p"),
                    UnixNs::ZERO,
                )],
                threads: vec![ThreadUpdate {
                    thread: ThreadKey {
                        tid: 7,
                        start_ns: BootNs::new(SECOND_NS),
                    },
                    process: PROCESS,
                    comm: CommName::new("p"),
                    state: ThreadState::Blocked,
                    first_event_ns: MonoNs::new(SECOND_NS),
                    last_event_ns: MonoNs::new(now_ns),
                    unobserved_ns: 0,
                    classes: [0, now_ns - SECOND_NS, 0, 0, 0],
                    kinds: [0, 0, 0, now_ns - SECOND_NS, 0, 0, 0, 0],
                    minor_faults: 0,
                    major_faults: 0,
                    switches_missed: 0,
                    profiler_cost_ns: 0,
                    call: Some(OpenCall {
                        number: 1,
                        since_ns: MonoNs::new(SECOND_NS),
                        entry_seen: true,
                        time: CallTime {
                            total_ns: now_ns - SECOND_NS,
                            running_ns: now_ns - SECOND_NS,
                            blocked_ns: 0,
                        },
                    }),
                    slot: 1,
                }],
                losses: vec![("ring_full".into(), 2)],
                discarded: vec![("idle".into(), 3)],
                ..DrainPass::default()
            });
            if second == 2 {
                let change = SessionChange::Start { name: None };
                profile.change_session(change).unwrap();
            }
        }
        profile.snapshot()
    }

    /// Whether a snapshot in which that was changed is refused, and the sentence has this part.
    fn refused(part: &str, change: impl FnOnce(&mut Snapshot)) -> bool {
        let mut snapshot = snapshot();
        change(&mut snapshot);
        let flaw = snapshot.check();
        flaw.is_err_and(|flaw| flaw.to_string().contains(part))
    }

    // Check that each number which a report adds to or takes from another is refused where that
    // could overflow.
    #[test]
    fn numbers() {
        assert_eq!(snapshot().check(), Ok(()));
        let large = "larger than any";
        assert!(refused(large, |of| of.now_ns = MonoNs::MAX));
        assert!(refused(large, |of| of.images[0].ended = u64::MAX));
        assert!(refused(large, |of| {
            Arc::make_mut(&mut of.counters).losses[0].1 = u64::MAX;
        }));
        assert!(refused(large, |of| {
            Arc::make_mut(&mut of.counters).discarded[0].1 = u64::MAX;
        }));
        assert!(refused(large, |of| {
            Arc::make_mut(&mut of.counters).samples_lost = u64::MAX;
        }));
        assert!(refused(large, |of| {
            let starts = Arc::make_mut(&mut of.timeline.starts);
            Arc::make_mut(&mut starts[1].counters).losses[0].1 = u64::MAX;
        }));
        // A thread that has been inside a call for most of the largest moment there is, and another
        // one.
        assert!(refused(large, |of| {
            of.now_ns = MonoNs::new(1 << 62);
            let aggregate = &mut of.processes.get_mut(&PROCESS).unwrap().aggregate;
            let threads = Arc::make_mut(&mut aggregate.threads);
            let mut other = threads.values().next().unwrap().clone();
            other.in_syscall_since_ns = MonoNs::ZERO;
            for tid in 8..20 {
                threads.insert(
                    ThreadKey {
                        tid,
                        start_ns: BootNs::ZERO,
                    },
                    other.clone(),
                );
            }
        }));
    }

    // Check that named sessions are refused that begin or end after the profile, or that are more
    // than any daemon keeps.
    #[test]
    fn sessions() {
        let sense = "makes no sense";
        assert!(refused(sense, |of| {
            of.sessions.kept_mut()[0].spans[0].from.ns = of.now_ns + 1;
        }));
        assert!(refused(sense, |of| {
            let mut end = of.sessions.list()[0].from();
            end.ns = of.now_ns + 1;
            of.sessions.kept_mut()[0].stopped = Some(end);
        }));
        let more = "more named sessions";
        assert!(refused(more, |of| {
            let kept = of.sessions.kept_mut();
            let one = kept[0].clone();
            kept.resize(MAX_SESSIONS + 1, one);
        }));
        assert!(refused(more, |of| {
            let spans = &mut of.sessions.kept_mut()[0].spans;
            let one = spans[0];
            spans.resize(MAX_SESSION_SPANS + 1, one);
        }));
    }
}
