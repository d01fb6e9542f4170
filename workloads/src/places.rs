//! Where a program's time went, by function, as the program itself measured it: the truth that a
//! division of time among functions is held against.
//!
//! Clocks are read between functions, never inside their loops, and without a system call. Counted
//! work is measured in rounds and done in short slices: one that took about as long as its rounds
//! do was not preempted, and its time is user code; of one that was, as much is user code as its
//! rounds take in the others, and the rest was spent off the processor.

use std::hint::black_box;

use serde_json::{Map, Value, json};

use crate::sys;
use crate::work::rounds_per_ms;

/// A slice is whole if it took at most this many times what its rounds take at their fastest: a
/// processor that shares its core with another is slower, one that was given to another thread is
/// gone for much longer.
const WHOLE: f64 = 1.7;
/// What one pair of clock readings adds to a measured time, at most.
const READING_NS: u64 = 60;

/// The time of one function. All in nanoseconds of wall time.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Times {
    /// Rounds of counted work.
    pub(crate) rounds: u64,
    /// In counted work, on the processor or not.
    pub(crate) work_ns: u64,
    /// Of the rounds, those in slices that were not preempted.
    pub(crate) whole_rounds: u64,
    /// Of the wall time, that of slices that were not preempted.
    pub(crate) whole_ns: u64,
    /// In user code measured as such, running.
    pub(crate) user_ns: u64,
    /// In page faults, running.
    pub(crate) fault_ns: u64,
    /// In system calls, running or not.
    pub(crate) call_ns: u64,
    /// Off the processor outside any call.
    pub(crate) outside_ns: u64,
    /// How many times a clock was read for these, in pairs.
    pub(crate) readings: u64,
    /// By how much the user part may be wrong for reasons that only this function has.
    pub(crate) user_error_ns: u64,
    /// By how much the whole may be wrong for reasons that only this function has.
    pub(crate) error_ns: u64,
}

impl Times {
    /// Adds the times of the same function in another thread or process.
    pub(crate) fn add(&mut self, other: &Self) {
        self.rounds += other.rounds;
        self.work_ns += other.work_ns;
        self.whole_rounds += other.whole_rounds;
        self.whole_ns += other.whole_ns;
        self.user_ns += other.user_ns;
        self.fault_ns += other.fault_ns;
        self.call_ns += other.call_ns;
        self.outside_ns += other.outside_ns;
        self.readings += other.readings;
        self.user_error_ns += other.user_error_ns;
        self.error_ns += other.error_ns;
    }
}

/// The functions of one program (or thread) and their times.
#[derive(Debug)]
pub(crate) struct Places {
    names: Vec<&'static str>,
    times: Vec<Times>,
    per_ms: u64,
    /// What the host had taken from the processors when this began.
    stolen_before_ns: u64,
}

impl Places {
    /// Measures what a round takes, then starts with nothing.
    pub(crate) fn new(names: &[&'static str]) -> Self {
        Self::with_rate(names, rounds_per_ms())
    }

    /// Starts with nothing; `per_ms` rounds take about a millisecond.
    pub(crate) fn with_rate(names: &[&'static str], per_ms: u64) -> Self {
        Self {
            names: names.to_vec(),
            times: vec![Times::default(); names.len()],
            per_ms,
            stolen_before_ns: sys::stolen_ns(),
        }
    }

    /// Rounds that take about a millisecond.
    pub(crate) fn per_ms(&self) -> u64 {
        self.per_ms
    }

    /// Rounds that take about so many microseconds.
    pub(crate) fn rounds(&self, microseconds: u64) -> u64 {
        (self.per_ms * microseconds / 1000).max(1)
    }

    /// Lets `worker` work, in slices of at most half a millisecond.
    #[inline(always)]
    pub(crate) fn work(&mut self, place: usize, rounds: u64, worker: fn(u64) -> u64) {
        let mut left = rounds;
        while left > 0 {
            let slice = left.min(self.per_ms / 2);
            let start_ns = sys::monotonic_ns();
            black_box(worker(slice));
            self.worked(place, slice, sys::monotonic_ns() - start_ns);
            left -= slice;
        }
    }

    /// Adds counted work that was timed by the caller.
    pub(crate) fn worked(&mut self, place: usize, rounds: u64, wall_ns: u64) {
        let times = &mut self.times[place];
        times.rounds += rounds;
        times.work_ns += wall_ns;
        times.readings += 1;
        if wall_ns as f64 * self.per_ms as f64 <= WHOLE * 1e6 * rounds as f64 {
            times.whole_rounds += rounds;
            times.whole_ns += wall_ns;
        }
    }

    /// Lets a function make its call, and returns how long that took.
    #[inline(always)]
    pub(crate) fn call(&mut self, place: usize, function: impl FnOnce()) -> u64 {
        let start_ns = sys::monotonic_ns();
        function();
        let took_ns = sys::monotonic_ns() - start_ns;
        let times = &mut self.times[place];
        times.call_ns += took_ns;
        times.readings += 1;
        // The ways in and out of the call are not in it.
        times.user_error_ns += 300;
        took_ns
    }

    /// The times of one function, to add to.
    pub(crate) fn of(&mut self, place: usize) -> &mut Times {
        &mut self.times[place]
    }

    /// Adds the times of a thread with the same functions.
    pub(crate) fn merge(&mut self, other: &Self) {
        for (times, other) in self.times.iter_mut().zip(&other.times) {
            times.add(other);
        }
    }

    /// What a round took, over all slices that were not preempted.
    fn round_ns(&self) -> f64 {
        let rounds: u64 = self.times.iter().map(|times| times.whole_rounds).sum();
        let whole_ns: u64 = self.times.iter().map(|times| times.whole_ns).sum();
        if rounds == 0 {
            1e6 / self.per_ms as f64
        } else {
            whole_ns as f64 / rounds as f64
        }
    }

    /// The truth by function: user code, page faults, system calls (running or not) and time off
    /// the processor outside any call, the first as application time and all as elapsed time, each
    /// with the error of this measurement.
    pub(crate) fn json(&self) -> Value {
        let round_ns = self.round_ns();
        // Nobody knows from which function the host took it, nor does a tick fall in it.
        let stolen_ns = sys::stolen_ns().saturating_sub(self.stolen_before_ns);
        let running_ns = |times: &Times| times.work_ns + times.user_ns + times.fault_ns;
        let all_running_ns: u64 = self.times.iter().map(running_ns).sum();
        let mut functions = Map::new();
        for (name, times) in self.names.iter().zip(&self.times) {
            let cut_ns = (times.rounds - times.whole_rounds) as f64 * round_ns;
            let worked_ns = (times.whole_ns + cut_ns as u64).min(times.work_ns);
            let user_ns = worked_ns + times.user_ns;
            let outside_ns = times.work_ns - worked_ns + times.outside_ns;
            let elapsed_ns = user_ns + times.fault_ns + times.call_ns + outside_ns;
            let stolen_ns =
                stolen_ns as f64 * running_ns(times) as f64 / all_running_ns.max(1) as f64;
            let reading_ns = times.readings * READING_NS + stolen_ns as u64;
            functions.insert(
                (*name).to_owned(),
                json!({
                    "application_ns": user_ns,
                    "application_error_ns": user_ns / 100 + cut_ns as u64 / 20 + reading_ns + times.user_error_ns,
                    "elapsed_ns": elapsed_ns,
                    "elapsed_error_ns": elapsed_ns / 1000 + reading_ns + times.error_ns,
                    "fault_ns": times.fault_ns,
                    "call_ns": times.call_ns,
                    "outside_ns": outside_ns,
                }),
            );
        }
        Value::Object(functions)
    }
}
