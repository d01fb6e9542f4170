//! What is known of the calls of one function in one thread.

use super::call_frame::one_hit;
use super::histogram::{BUCKETS, bucket};
use super::{PROBE_KINDS, add, elapsed_ns};
use crate::clock::{Class, ClassNs};

/// Shortest and longest. Of nothing: [`u64::MAX`] and 0.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extremes {
    /// Nanoseconds of the shortest.
    pub min_ns: u64,
    /// Nanoseconds of the longest.
    pub max_ns: u64,
}

impl Extremes {
    /// Of nothing.
    pub const NONE: Self = Self {
        min_ns: u64::MAX,
        max_ns: 0,
    };

    /// One more.
    #[inline(always)]
    pub fn add(&mut self, ns: u64) {
        if ns < self.min_ns {
            self.min_ns = ns;
        }
        if ns > self.max_ns {
            self.max_ns = ns;
        }
    }

    /// Of both.
    pub fn merge(&mut self, other: &Self) {
        self.min_ns = self.min_ns.min(other.min_ns);
        self.max_ns = self.max_ns.max(other.max_ns);
    }
}

/// Calls of one function in one thread. Grows only, but for [`MeasuredRow::open`]. Of a function of
/// Go: those that the thread has begun or ended, and their elapsed time alone, as if all of it were
/// user time.
///
/// Written by the thread itself, under [`MeasuredRow::sequence`]. "Complete" calls are those whose
/// entry and exit were seen; "outermost" those during which no other call of the function was open
/// in the thread.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MeasuredRow {
    /// Odd while it is being changed.
    pub sequence: u32,
    /// Calls under way; of a function of Go those that the thread has begun less those that it has
    /// ended, modulo 2^32.
    pub open: u32,
    /// Entries.
    pub calls: u64,
    /// Complete calls that were outermost.
    pub outermost: u64,
    /// Complete calls.
    pub complete: u64,
    /// Calls that ended without an exit: an exception, or a jump across frames.
    pub left_unseen: u64,
    /// Calls that ended because the program was replaced by another.
    pub left_exec: u64,
    /// Calls that ended because the thread did. Written by the daemon.
    pub left_exit: u64,
    /// Exits of calls whose entry was not seen.
    pub exits_unmatched: u64,
    /// Calls that were only counted, because too many were open.
    pub too_deep: u64,
    /// Calls that were only counted, because the thread's times were not known at their entry, or
    /// there was no room for the open calls of their thread or goroutine.
    pub no_times: u64,
    /// Complete calls during which system calls were not traced: their running time is all `user`.
    pub untraced: u64,
    /// Time by class from entry to exit, of outermost calls.
    pub inclusive: ClassNs,
    /// The same of all complete calls, less what measured calls made directly by them took.
    pub exclusive: ClassNs,
    /// Minor and major page faults of outermost calls.
    pub faults: [u64; 2],
    /// Of outermost calls: elapsed, then application time, less what their own probes took.
    pub inclusive_extremes: [Extremes; 2],
    /// Probed calls that were made during outermost calls, at any depth, by kind; other hits of
    /// probes are among those that are counted.
    pub probes_below: [u64; PROBE_KINDS],
    /// Probed calls made directly by complete calls, by kind.
    pub probes_direct: [u64; PROBE_KINDS],
    /// Complete calls, by kind. Of a function whose exits are probed, those that are counted are
    /// hits that began no call and ended none.
    pub probes_own: [u64; PROBE_KINDS],
    /// Outermost calls, by kind.
    pub probes_outermost: [u64; PROBE_KINDS],
    /// Outermost calls by elapsed and by application time, less what their own probes took.
    pub histograms: [[u32; BUCKETS]; 2],
}

/// A complete call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CompleteCall<'a> {
    /// Time by class from entry to exit.
    pub inclusive: &'a ClassNs,
    /// Less what measured calls made directly by it took.
    pub exclusive: &'a ClassNs,
    /// Minor and major page faults.
    pub faults: [u32; 2],
    /// Probed calls below it.
    pub probes_below: &'a [u32; PROBE_KINDS],
    /// Probed calls directly below it.
    pub probes_direct: &'a [u32; PROBE_KINDS],
    /// What its probes and those below it took of it.
    pub probes_ns: u64,
    /// How it was probed itself.
    pub kind: usize,
    /// Was it outermost?
    pub outermost: bool,
    /// Were system calls not traced at its entry or exit?
    pub untraced: bool,
}

impl MeasuredRow {
    /// Of no calls.
    pub const EMPTY: Self = Self {
        sequence: 0,
        open: 0,
        calls: 0,
        outermost: 0,
        complete: 0,
        left_unseen: 0,
        left_exec: 0,
        left_exit: 0,
        exits_unmatched: 0,
        too_deep: 0,
        no_times: 0,
        untraced: 0,
        inclusive: [0; 5],
        exclusive: [0; 5],
        faults: [0; 2],
        inclusive_extremes: [Extremes::NONE; 2],
        probes_below: [0; PROBE_KINDS],
        probes_direct: [0; PROBE_KINDS],
        probes_own: [0; PROBE_KINDS],
        probes_outermost: [0; PROBE_KINDS],
        histograms: [[0; BUCKETS]; 2],
    };

    /// One more complete call.
    #[inline(always)]
    pub fn complete(&mut self, call: &CompleteCall<'_>) {
        self.complete += 1;
        self.untraced += call.untraced as u64;
        add(&mut self.exclusive, call.exclusive);
        if let Some(own) = self.probes_own.get_mut(call.kind) {
            *own += 1;
        }
        let mut kind = 0;
        while kind < PROBE_KINDS {
            self.probes_direct[kind] += call.probes_direct[kind] as u64;
            kind += 1;
        }
        if !call.outermost {
            return;
        }
        self.outermost += 1;
        add(&mut self.inclusive, call.inclusive);
        self.faults[0] += call.faults[0] as u64;
        self.faults[1] += call.faults[1] as u64;
        if let Some(own) = self.probes_outermost.get_mut(call.kind) {
            *own += 1;
        }
        kind = 0;
        while kind < PROBE_KINDS {
            self.probes_below[kind] += call.probes_below[kind] as u64;
            kind += 1;
        }
        // What probes take is user time.
        let values = [
            elapsed_ns(call.inclusive).saturating_sub(call.probes_ns),
            call.inclusive[Class::User as usize].saturating_sub(call.probes_ns),
        ];
        let mut value = 0;
        while value < 2 {
            self.inclusive_extremes[value].add(values[value]);
            // Forgotten what it is made of: the verifier has to see that it is small.
            let bucket = core::hint::black_box(bucket(values[value]));
            if let Some(count) = self.histograms[value].get_mut(bucket) {
                *count += 1;
            }
            value += 1;
        }
    }

    /// A probe of the function was hit that begins no call and ends none: another turn of a loop
    /// around the function, or a jump that is not taken. `stepped`: the instruction is executed out
    /// of its line.
    #[inline(always)]
    pub fn pass(&mut self, stepped: bool) {
        self.sequence = self.sequence.wrapping_add(1);
        self.probes_own[one_hit(stepped)] += 1;
        self.sequence = self.sequence.wrapping_add(1);
    }

    /// Hits of its probes by what a whole call costs at most: entries, exits of nobody's call, and
    /// what [`MeasuredRow::pass`] has counted where exits are probed (`has_exits`).
    #[must_use]
    pub const fn hits(&self, has_exits: bool) -> u64 {
        let passed = if has_exits {
            self.probes_own[one_hit(false)] + self.probes_own[one_hit(true)]
        } else {
            0
        };
        self.calls + self.exits_unmatched + passed
    }

    /// Calls under way. Where rows of several threads are read one after the other, one may seem to
    /// have ended before it began.
    #[must_use]
    pub const fn open(&self) -> u32 {
        if self.open > i32::MAX as u32 {
            0
        } else {
            self.open
        }
    }

    /// Adds the calls of another thread.
    pub fn merge(&mut self, other: &Self) {
        self.open = self.open.wrapping_add(other.open);
        self.calls += other.calls;
        self.outermost += other.outermost;
        self.complete += other.complete;
        self.left_unseen += other.left_unseen;
        self.left_exec += other.left_exec;
        self.left_exit += other.left_exit;
        self.exits_unmatched += other.exits_unmatched;
        self.too_deep += other.too_deep;
        self.no_times += other.no_times;
        self.untraced += other.untraced;
        add(&mut self.inclusive, &other.inclusive);
        add(&mut self.exclusive, &other.exclusive);
        for (to, from) in self.faults.iter_mut().zip(other.faults) {
            *to += from;
        }
        for value in 0..2 {
            self.inclusive_extremes[value].merge(&other.inclusive_extremes[value]);
            for (to, from) in self.histograms[value]
                .iter_mut()
                .zip(other.histograms[value])
            {
                *to = to.saturating_add(from);
            }
        }
        let probes = [
            (&mut self.probes_below, &other.probes_below),
            (&mut self.probes_direct, &other.probes_direct),
            (&mut self.probes_own, &other.probes_own),
            (&mut self.probes_outermost, &other.probes_outermost),
        ];
        for (to, from) in probes {
            for (to, from) in to.iter_mut().zip(from) {
                *to += from;
            }
        }
    }
}

const _: () = assert!(size_of::<MeasuredRow>() == 920);
