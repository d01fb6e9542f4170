//! Gives stacks to waits that have none of their own: of threads that were asleep when they were
//! first seen, and of those that have slept for a second since they were left unwalked, stand for
//! others, or were walked before it was known what their process has mapped. Their registers are
//! taken from outside, their memory is read by a process that can be killed, and the stack is
//! followed here. No thread is stopped or slowed down; if it ran meanwhile, the stack is thrown
//! away.
//!
//! Waits whose begin was seen are looked at as far as the budget goes: those that are not found are
//! divided by the ones that were drawn. So whom to look at depends on nothing that tells whether a
//! wait was drawn (docs/semantics.md section 4).
//!
//! When and how often says this module; how a stack is followed `walk`, how memory is read
//! `sys::memory_reader`.

mod subject;
mod walk;

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;
use std::time::Duration;

use profiler_common::StackEnd;
use profiler_common::unwind::UnwindFailure;
use tracing::{debug, warn};

use crate::kernel::{Asked, Kernel, Looks, Pass, RawStack, RowFinder, StartError, UnwalkedWait};
use crate::sys::clock::monotonic_ns;
use crate::sys::memory_reader::{
    MAX_RANGES, MemoryReader, PageRange, ReadEnd, ReaderCounts, SUBCOMMAND,
};
use crate::units::MonoNs;

use subject::Subject;
use walk::Copies;

/// A wait whose beginning was seen is looked at when it has lasted so long: most are over by then.
const LONG_WAIT_NS: u64 = 1_000_000_000;
/// Threads that are looked at together: more of them where many wait, since each look goes through
/// all tasks; never so many that it takes long.
const BATCH: std::ops::RangeInclusive<usize> = 128..=2048;
/// The part of those that wait that is looked at together.
const BATCH_PART: usize = 2;
/// Of these, those whose memory is copied at a time: never so many that it matters.
const COPIED: usize = 256;
/// No more are followed after so long: it takes some 10 us each, unless their memory is slow to
/// come.
const FOLLOW_NS: u64 = 100_000_000;
/// One turn ends after the batch that reaches this time, and the next one comes when nine times its
/// length has passed: no more than a tenth of the collector's time is spent here.
const TURN_NS: u64 = 20_000_000;
const RESTS: u64 = 9;
/// What waits whose begin was seen may take at once, after a rest: twenty thousand threads take
/// little more.
const SAVED_NS: f64 = 1e9;
/// Once nobody is left, the next turn comes so long after this one: threads that are looked at
/// together cost less. It comes at once for threads that slept when they were first seen: whoever
/// has just chosen them is asking.
const GATHER_NS: u64 = 1_000_000_000;
/// How long the reading of the memory of up to [`MAX_RANGES`] threads may take: it takes about a
/// millisecond.
const READ_WITHIN: Duration = Duration::from_millis(100);
/// A stack that ended for want of memory is looked at again after so long, then twice as long, and
/// so on.
const AGAIN_NS: u64 = 1_000_000_000;
/// So often.
const TRIES: u32 = 4;
/// A process whose memory kept the reader waiting is not asked for so long, then twice as long, and
/// so on.
const BARRED_NS: u64 = 10_000_000_000;
/// For how long it is remembered that a process has other unwind rows: a wait is noted after a
/// second, or a late pass.
const RENEWED_NS: u64 = 10_000_000_000;
/// Doubled so often at most.
const MAX_DOUBLED: u32 = 10;

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutsideCounts {
    /// Threads looked at.
    pub tried: u64,
    /// Waits that got a stack.
    pub kept: u64,
    /// Stacks thrown away because the thread ran meanwhile.
    pub torn: u64,
    /// Threads that were left alone because the memory of their process keeps readers waiting, or
    /// kept this one.
    pub late: u64,
    /// Threads whose memory could not be read.
    pub unreadable: u64,
    /// Time spent, nanoseconds.
    pub busy_ns: u64,
    /// The processes that read memory.
    pub reader: ReaderCounts,
}

/// A wait without a stack.
#[derive(Clone, Copy, Debug)]
struct Wait {
    since_ns: MonoNs,
    pid: u32,
    begin_seen: bool,
    tries: u32,
    /// It is not looked at sooner.
    not_before_ns: MonoNs,
    /// When it is to be looked at; `None`: no more.
    next_ns: Option<MonoNs>,
    /// Its stack ended for want of a table or a mapping: it is looked at when there are others.
    lacks_rows: bool,
    /// So did the walk as it began: it has that stack unless a whole one is found.
    cut_short: bool,
}

/// A process whose memory keeps readers waiting.
#[derive(Clone, Copy, Debug)]
struct Barred {
    times: u32,
    until_ns: MonoNs,
}

/// See the module.
pub(super) struct Outside {
    reader: MemoryReader,
    /// By slot.
    waits: HashMap<u32, Wait>,
    /// By process id.
    barred: HashMap<u32, Barred>,
    /// When processes had other unwind rows last.
    renewed: HashMap<u32, MonoNs>,
    /// No wait is to be looked at sooner.
    soonest_ns: MonoNs,
    /// Some whose begin was not seen is.
    has_unseen: bool,
    rest_until_ns: MonoNs,
    gather_until_ns: MonoNs,
    /// What waits whose begin was seen may take now, nanoseconds.
    saved_ns: f64,
    saved_at_ns: MonoNs,
    max_frames: usize,
    counts: OutsideCounts,
}

impl Outside {
    /// `program` is this program; stacks have at most `max_frames` frames.
    pub(super) fn new(program: PathBuf, max_frames: usize) -> Self {
        Self {
            reader: MemoryReader::new(program, &[SUBCOMMAND]),
            waits: HashMap::new(),
            barred: HashMap::new(),
            renewed: HashMap::new(),
            soonest_ns: MonoNs::MAX,
            has_unseen: false,
            rest_until_ns: MonoNs::ZERO,
            gather_until_ns: MonoNs::ZERO,
            saved_ns: SAVED_NS,
            saved_at_ns: MonoNs::ZERO,
            max_frames,
            counts: OutsideCounts::default(),
        }
    }

    /// What happened so far.
    pub(super) fn counts(&self) -> OutsideCounts {
        OutsideCounts {
            reader: self.reader.counts(),
            ..self.counts
        }
    }

    /// Takes note of the waits that a pass found without a stack of their own.
    pub(super) fn note(&mut self, pass: &Pass) {
        let threads = pass.threads.iter();
        let waits = threads.map(|thread| (thread.slot, thread.pid, thread.unwalked));
        self.note_waits(pass.at_ns, waits);
        self.reader.rest();
    }

    /// The waits of the threads that are told, with the slot and the process of each; those of who
    /// is left out go on.
    fn note_waits(
        &mut self,
        at_ns: MonoNs,
        waits: impl Iterator<Item = (u32, u32, Option<UnwalkedWait>)>,
    ) {
        for (slot, pid, wait) in waits {
            let Some(wait) = wait else {
                self.waits.remove(&slot);
                continue;
            };
            let known = self.waits.get(&slot);
            if known.is_some_and(|known| known.since_ns == wait.since_ns) {
                continue;
            }
            let renewed_ns = self.renewed.get(&pid).copied();
            // With the same rows it would come no further.
            let lacks_rows = wait.cut_short && renewed_ns.is_none_or(|at_ns| at_ns < wait.since_ns);
            let not_before_ns = if wait.begin_seen {
                wait.since_ns + LONG_WAIT_NS
            } else {
                self.gather_until_ns = MonoNs::ZERO;
                self.has_unseen = true;
                at_ns
            };
            let noted = Wait {
                since_ns: wait.since_ns,
                pid,
                begin_seen: wait.begin_seen,
                tries: 0,
                not_before_ns,
                next_ns: (!lacks_rows).then_some(not_before_ns),
                lacks_rows,
                cut_short: wait.cut_short,
            };
            self.waits.insert(slot, noted);
            self.soonest_ns = self.soonest_ns.min(not_before_ns);
        }
        self.renewed
            .retain(|_, renewed_ns| at_ns < renewed_ns.saturating_add(RENEWED_NS));
        self.barred
            .retain(|_, barred| at_ns < barred.until_ns.saturating_add(BARRED_NS));
    }

    /// These processes have other unwind rows by now: stacks that ended for want of some may be
    /// followed further.
    pub(super) fn renew(&mut self, now_ns: MonoNs, processes: &HashSet<u32>) {
        if processes.is_empty() {
            return;
        }
        self.renewed
            .extend(processes.iter().map(|pid| (*pid, now_ns)));
        for wait in self.waits.values_mut() {
            if wait.lacks_rows && processes.contains(&wait.pid) {
                wait.lacks_rows = false;
                self.has_unseen |= !wait.begin_seen;
                wait.next_ns = Some(wait.not_before_ns);
                self.soonest_ns = self.soonest_ns.min(wait.not_before_ns);
            }
        }
    }

    /// Looks at threads whose time has come, for a short time: at those whose wait was seen to
    /// begin for no more than this `share` of one processor's time (`None`: any) in the long run.
    /// `add` gets the frames of each stack that is kept.
    pub(super) fn work(
        &mut self,
        kernel: &mut Kernel,
        share: Option<f64>,
        add: &mut dyn FnMut(&RawStack),
    ) {
        let began_ns = monotonic_ns();
        self.save(began_ns, share);
        if began_ns < self.rest_until_ns.max(self.gather_until_ns) {
            return;
        }
        let (mut worked, mut nobody_is_left) = (false, false);
        loop {
            let batch_ns = monotonic_ns();
            let slots = self.due(batch_ns);
            if slots.is_empty() {
                nobody_is_left = true;
                break;
            }
            worked = true;
            let seen = self.part_seen(&slots);
            let looked = self.batch(kernel, &slots, add);
            let took_ns = monotonic_ns().saturating_since(batch_ns);
            self.saved_ns -= seen * took_ns as f64;
            match looked {
                Ok(true) => {}
                // That was much time already.
                Ok(false) => break,
                Err(error) => {
                    warn!("cannot look at threads from outside: {error}");
                    break;
                }
            }
            if monotonic_ns() >= began_ns + TURN_NS {
                break;
            }
        }
        if worked {
            let took_ns = monotonic_ns().saturating_since(began_ns);
            self.counts.busy_ns += took_ns;
            self.rest_until_ns = began_ns + took_ns * (1 + RESTS);
            self.gather_until_ns = if nobody_is_left {
                began_ns + GATHER_NS
            } else {
                MonoNs::ZERO
            };
        }
    }

    /// Of the time until now, this share is for waits whose begin was seen.
    fn save(&mut self, now_ns: MonoNs, share: Option<f64>) {
        let past_ns = now_ns.saturating_since(std::mem::replace(&mut self.saved_at_ns, now_ns));
        let saved_ns = share.map_or(SAVED_NS, |share| share * past_ns as f64);
        self.saved_ns = (self.saved_ns + saved_ns).min(SAVED_NS);
    }

    /// The part of these waits whose begin was seen.
    fn part_seen(&self, slots: &[u32]) -> f64 {
        let is_seen = |slot: &&u32| self.waits.get(slot).is_some_and(|wait| wait.begin_seen);
        slots.iter().filter(is_seen).count() as f64 / slots.len().max(1) as f64
    }

    /// Threads whose time has come, who has waited longest first; no more than are looked at
    /// together. While nothing is saved for others, those whose begin was not seen.
    fn due(&mut self, now_ns: MonoNs) -> Vec<u32> {
        let mut due: Vec<(MonoNs, u32)> = Vec::new();
        let affords_seen = self.saved_ns > 0.0;
        if now_ns < self.soonest_ns || !(affords_seen || self.has_unseen) {
            return Vec::new();
        }
        self.soonest_ns = MonoNs::MAX;
        self.has_unseen = false;
        for (slot, wait) in &mut self.waits {
            let Some(next_ns) = &mut wait.next_ns else {
                continue;
            };
            self.has_unseen |= !wait.begin_seen;
            match self.barred.get(&wait.pid) {
                Some(barred) if *next_ns <= now_ns && now_ns < barred.until_ns => {
                    self.counts.late += 1;
                    *next_ns = barred.until_ns;
                }
                _ if *next_ns <= now_ns && (affords_seen || !wait.begin_seen) => {
                    due.push((*next_ns, *slot));
                }
                _ => {}
            }
            // Of those that are due too: not all of them are looked at together.
            self.soonest_ns = self.soonest_ns.min(*next_ns);
        }
        due.sort_unstable();
        due.truncate((due.len() / BATCH_PART).clamp(*BATCH.start(), *BATCH.end()));
        due.into_iter().map(|(_, slot)| slot).collect()
    }

    /// Looks at these threads. False if a reader was late, or it took too long.
    fn batch(
        &mut self,
        kernel: &mut Kernel,
        slots: &[u32],
        add: &mut dyn FnMut(&RawStack),
    ) -> Result<bool, StartError> {
        let now_ns = monotonic_ns();
        for slot in slots {
            // Who is not found now runs, and has another wait soon.
            self.put_off(*slot, now_ns + LONG_WAIT_NS);
        }
        let pids: HashSet<u32> = slots
            .iter()
            .filter_map(|slot| Some(self.waits.get(slot)?.pid))
            .collect();
        let pids: Vec<u32> = pids.into_iter().collect();
        let asked = Asked {
            slots,
            pids: &pids,
            of_threads: kernel.drain.threads_used(),
        };
        let looks = kernel.looks.look(asked, &mut kernel.programs)?;
        let mut subjects: Vec<Subject> = looks
            .into_iter()
            .filter(|look| {
                let wait = self.waits.get(&look.head.slot);
                wait.is_some_and(|wait| wait.since_ns == MonoNs::new(look.head.since_ns))
            })
            .map(Subject::new)
            .collect();
        self.counts.tried += subjects.len() as u64;
        let in_time = self.follow(RowFinder::new(kernel.unwind.as_ref()), &mut subjects);
        let found: Vec<u32> = subjects
            .iter()
            .map(|subject| subject.look.head.slot)
            .collect();
        let asked = Asked {
            slots: &found,
            ..asked
        };
        let again: HashMap<u32, (u32, u64, u64)> = kernel
            .looks
            .look_again(asked, &mut kernel.programs)?
            .iter()
            .map(|look| {
                let head = &look.head;
                (head.slot, (head.tid, head.since_ns, head.switches))
            })
            .collect();
        for subject in &subjects {
            let head = &subject.look.head;
            if again.get(&head.slot) != Some(&(head.tid, head.since_ns, head.switches)) {
                self.counts.torn += 1;
            } else if !in_time && subject.is_unfinished() {
                // Another took the time: this one's turn comes again, as if it had not been.
                self.counts.tried -= 1;
                self.put_off(head.slot, now_ns);
            } else {
                self.keep(&mut kernel.looks, subject, add);
            }
        }
        Ok(in_time)
    }

    fn put_off(&mut self, slot: u32, next_ns: MonoNs) {
        if let Some(wait) = self.waits.get_mut(&slot) {
            wait.next_ns = Some(next_ns);
            self.soonest_ns = self.soonest_ns.min(next_ns);
        }
    }

    /// Follows their user stacks, as far as their memory can be had. False if a reader was late, or
    /// it took too long: the rest was not followed then.
    fn follow(&mut self, mut rows: RowFinder<'_>, subjects: &mut [Subject]) -> bool {
        let until_ns = monotonic_ns() + FOLLOW_NS;
        subjects.sort_unstable_by_key(|subject| subject.look.head.pid);
        subjects.chunks_mut(COPIED).all(|subjects| {
            let in_time = monotonic_ns() < until_ns && self.follow_together(&mut rows, subjects);
            for subject in subjects {
                subject.copies = Copies::default();
            }
            in_time
        })
    }

    fn follow_together(&mut self, rows: &mut RowFinder<'_>, subjects: &mut [Subject]) -> bool {
        loop {
            let mut wanted: Vec<(usize, PageRange)> = Vec::new();
            for (index, subject) in subjects.iter_mut().enumerate() {
                if subject.step(rows, self.max_frames)
                    && let Some(range) = subject.range()
                {
                    wanted.push((index, range));
                }
            }
            if wanted.is_empty() {
                return true;
            }
            for wanted in wanted.chunks(MAX_RANGES) {
                if !self.read(wanted, subjects) {
                    return false;
                }
            }
        }
    }

    /// Reads what is wanted. False if the reader was late, or cannot be had.
    fn read(&mut self, wanted: &[(usize, PageRange)], subjects: &mut [Subject]) -> bool {
        let ranges: Vec<PageRange> = wanted.iter().map(|(_, range)| *range).collect();
        let ended = self.reader.read(&ranges, READ_WITHIN, &mut |index, found| {
            let (subject, range) = wanted[index];
            subjects[subject].take(range, found);
        });
        let culprit = match ended {
            Ok(ReadEnd::Whole) => return true,
            Ok(ReadEnd::Late(index) | ReadEnd::Died(index)) => index,
            Err(error) => {
                warn!("memory of processes cannot be read: {error}");
                for (subject, _) in wanted {
                    subjects[*subject].unreadable = true;
                }
                return false;
            }
        };
        if let Some((subject, _)) = wanted.get(culprit) {
            let subject = &mut subjects[*subject];
            subject.late = true;
            self.bar(subject.look.head.pid);
        }
        false
    }

    /// The memory of a process kept the reader waiting.
    fn bar(&mut self, pid: u32) {
        let barred = self.barred.entry(pid).or_insert(Barred {
            times: 0,
            until_ns: MonoNs::ZERO,
        });
        let length_ns = BARRED_NS << barred.times.min(MAX_DOUBLED);
        barred.times += 1;
        barred.until_ns = monotonic_ns() + length_ns;
        debug!("the memory of process {pid} keeps readers waiting: it is left alone");
    }

    /// The thread has not run meanwhile: its wait gets what was found.
    fn keep(&mut self, looks: &mut Looks, subject: &Subject, add: &mut dyn FnMut(&RawStack)) {
        let head = &subject.look.head;
        let now_ns = monotonic_ns();
        let Some(wait) = self.waits.get_mut(&head.slot) else {
            return;
        };
        wait.tries += 1;
        self.counts.late += u64::from(subject.late);
        self.counts.unreadable += u64::from(subject.unreadable);
        let lacks_memory = subject.lacks.is_some() && (subject.late || !subject.is_at_its_bound());
        let end = subject.end();
        wait.lacks_rows = matches!(
            end,
            StackEnd::Incomplete(UnwindFailure::NoTable | UnwindFailure::NoMapping)
        );
        wait.next_ns =
            (lacks_memory && wait.tries < TRIES).then(|| now_ns + (AGAIN_NS << (wait.tries - 1)));
        self.soonest_ns = self.soonest_ns.min(wait.next_ns.unwrap_or(MonoNs::MAX));
        if wait.cut_short && !matches!(end, StackEnd::Complete | StackEnd::TRUNCATED) {
            // What was walked as it began says as much.
            return;
        }
        let raw = subject.raw(now_ns);
        if raw.head.user == 0 && raw.head.kernel == 0 {
            self.counts.unreadable += 1;
            return;
        }
        self.counts.kept += 1;
        add(&raw);
        looks.hand_over(head.slot, MonoNs::new(head.since_ns), &raw.head);
    }
}

#[cfg(test)]
mod tests;
