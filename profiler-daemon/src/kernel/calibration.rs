//! What the probes of a call cost on this machine, measured on functions of this program that do
//! nothing.
//!
//! A probed call takes time in two parts: what lies between the snapshot at its entry and the one
//! at its exit, which is in its own times, and all the rest, which its caller sees. What it takes
//! depends on the first instruction and on the one at the exit: those that the kernel imitates
//! (push, jmp) cost a tenth of those that it has to execute elsewhere, one step at a time.
//!
//! It also depends on the moment and on whose caches they are: on a virtual machine the same probe
//! moves by a tenth within minutes, by a third within a second where another machine shares the
//! processor, and by a third where the program has used other memory in between. So it is measured
//! anew while functions are, each time stands for the time around it, and how far a probe without
//! warm caches is from one with them is a part of the error.

use std::collections::VecDeque;
use std::fs::File;
use std::sync::Arc;

use profiler_common::measured::{
    CALIBRATION, CallCost, CallCosts, MeasuredKey, PROBE_KINDS, elapsed_ns,
};
use serde::{Deserialize, Serialize};
use tracing::warn;

use super::measure_error::MeasureError;
use super::measured::FunctionProbes;
use super::probing::Probing;
use super::targets::TargetControl;
use crate::sys::clock::{monotonic_ns, thread_ns};
use crate::sys::proc_fs;
use crate::units::{FileOffset, MonoNs, VirtualAddress};

mod functions;
mod over_time;

use functions::{CalibratedProbe, PROBED, call, profiler_calibrate_without};
use over_time::{quantile, stretches};

/// Numbers of functions that are used here: 1 to this.
pub(super) const FUNCTIONS: u32 = PROBED.len() as u32;
/// Batches of calls of each kind with which it begins.
const FIRST_BATCHES: usize = 3;
/// Runs of calls of one of them, whose middle it is: 0.1 to 3 ms.
const FIRST_RUNS: usize = 15;
/// Runs of one batch later on: all kinds together take 2 ms.
const LATER_RUNS: usize = 3;
/// Calls of one run.
const RUN_CALLS: u32 = 10;
/// The time from one batch of each kind to the next, and that between those after the first ones:
/// when something begins to be measured, more runs beside it than a moment later, and where two
/// processors share a core probes take a third longer then.
const INTERVAL_NS: u64 = 2_000_000_000;
const EARLY_INTERVAL_NS: u64 = 250_000_000;
/// Batches until then.
const EARLY_BATCHES: u32 = 12;
/// Batches that are kept of each kind: those of four minutes.
const MAX_BATCHES: usize = 120;
/// What was measured so long ago is no news of what probes cost now.
const OLD_NS: u64 = 600_000_000_000;
/// Calls without warm caches: all kinds together take 20 ms.
const COLD_CALLS: usize = 41;
/// What is written before each of these calls, bytes: more than the caches of one processor hold.
const COLD_BYTES: usize = 4 << 20;
const CACHE_LINE: usize = 64;
/// Most mappings of this program that are looked at.
const MAX_MAPPINGS: usize = 4096;

/// Nanoseconds a call: the middle of all batches, each of which stands for the time around it, and
/// how far one may be off.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeCost {
    /// In the call's own times.
    pub inside_ns: f64,
    /// In those of its caller.
    pub outside_ns: f64,
    /// How far off the first may be: the larger distance from the middle to the lowest and the
    /// highest tenth of the time, or what cold caches add.
    pub inside_error_ns: f64,
    /// How far off the sum of both may be, likewise.
    pub error_ns: f64,
}

/// By kind of probed call ([`profiler_common::measured::probe_kind`]).
pub type ProbeCosts = [ProbeCost; PROBE_KINDS];

/// Nanoseconds a call that probes have added.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Added {
    at_ns: MonoNs,
    whole_ns: f64,
    /// Those between the two snapshots.
    inside_ns: f64,
}

/// What is known of a kind of probed call.
#[derive(Debug)]
struct CallKind {
    /// One of [`PROBED`].
    probed: &'static CalibratedProbe,
    /// Its number as a function: its index there, and one.
    number: u32,
    /// A call without probes.
    without_ns: f64,
    /// What the first probes have added to a call with cold caches.
    cold_ns: f64,
    /// Where its calls are counted, once there was one.
    key: Option<MeasuredKey>,
    batches: VecDeque<Added>,
}

/// What probes cost: measured where that is needed first, and again and again as long as functions
/// are measured.
#[derive(Debug, Default)]
pub struct Calibration {
    /// Empty until it was measured.
    kinds: Vec<CallKind>,
    /// What came of it so far.
    costs: Option<ProbeCosts>,
    /// The probes of the functions here are attached.
    is_attached: bool,
    /// When the last batch was.
    last_ns: MonoNs,
    /// Batches since the probes were attached.
    since_attached: u32,
}

impl Calibration {
    /// What probes cost; `None`: not measured yet.
    #[must_use]
    pub const fn costs(&self) -> Option<ProbeCosts> {
        self.costs
    }

    /// Whether it was never measured, or so long ago that it says nothing of now.
    fn is_old(&self) -> bool {
        self.costs.is_none() || monotonic_ns().saturating_since(self.last_ns) > OLD_NS
    }

    /// Whether functions of Go are measured, and what that costs is not known.
    fn lacks_goroutines(&self, measured: &FunctionProbes) -> bool {
        measured.has_goroutines() && !self.kinds.iter().any(|kind| kind.probed.goroutines)
    }

    /// Measures each kind in about a tenth of a second, unless that was done of late, and again
    /// from now on ([`Calibration::again`]) where the kernel detaches probes fast enough for that.
    /// Those of goroutines are measured once [`FunctionProbes::follow_goroutines`] was called.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn begin(
        &mut self,
        measured: &mut FunctionProbes,
        targets: &mut TargetControl,
    ) -> Result<(), MeasureError> {
        let goes_on = matches!(FunctionProbes::supported()?, Probing::Many { .. });
        let is_known = !self.lacks_goroutines(measured);
        if is_known && (self.is_attached || (!goes_on && !self.is_old())) {
            return Ok(());
        }
        if !self.is_attached {
            // What was measured before says what probes cost then.
            self.kinds.iter_mut().for_each(|kind| kind.batches.clear());
        }
        self.end(measured, targets)?;
        let begun = self.attach(measured, targets);
        (self.is_attached, self.since_attached) = (true, 0);
        if begun.is_ok() {
            self.measure(measured);
        }
        if begun.is_err() || !goes_on {
            self.detach(measured, targets)?;
        }
        begun
    }

    /// The same, where nothing is going to be measured now.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn once(
        &mut self,
        measured: &mut FunctionProbes,
        targets: &mut TargetControl,
    ) -> Result<(), MeasureError> {
        let was_attached = self.is_attached;
        if !self.lacks_goroutines(measured) && (was_attached || !self.is_old()) {
            return Ok(());
        }
        self.begin(measured, targets)?;
        if was_attached {
            return Ok(());
        }
        self.end(measured, targets)
    }

    /// One more batch of each kind, where it is time.
    pub fn again(&mut self, measured: &mut FunctionProbes, now_ns: MonoNs) {
        let interval_ns = if self.since_attached < EARLY_BATCHES {
            EARLY_INTERVAL_NS
        } else {
            INTERVAL_NS
        };
        if self.is_attached && now_ns.saturating_since(self.last_ns) >= interval_ns {
            self.batch(measured, LATER_RUNS);
        }
    }

    /// Nothing is measured any more.
    ///
    /// # Errors
    /// [`MeasureError`] if the programs cannot be told; the probes are detached in any case.
    pub fn end(
        &mut self,
        measured: &mut FunctionProbes,
        targets: &mut TargetControl,
    ) -> Result<(), MeasureError> {
        if !self.is_attached {
            return Ok(());
        }
        self.batch(measured, LATER_RUNS);
        self.detach(measured, targets)
    }

    /// Attaches the probes, which are of this process alone.
    fn attach(
        &mut self,
        measured: &mut FunctionProbes,
        targets: &mut TargetControl,
    ) -> Result<(), MeasureError> {
        const MODULE: &str = "/proc/self/exe";
        let refused = |reason| MeasureError::Probes {
            module: MODULE.to_owned(),
            reason,
        };
        let own = proc_fs::own_pid(std::process::id()).unwrap_or_else(std::process::id);
        let file = Arc::new(File::open(MODULE).map_err(refused)?);
        let mut points = Vec::new();
        let has_goroutines = measured.has_goroutines();
        let probed = || {
            let numbered = (1..).zip(&PROBED);
            numbered.filter(move |(_, probed)| has_goroutines || !probed.goroutines)
        };
        for (number, probed) in probed() {
            let entry = offset_of(probed.function).ok_or_else(|| {
                refused(std::io::Error::other(
                    "this program does not find its own functions",
                ))
            })?;
            points.extend(probed.points(number, entry));
        }
        if self.is_old() {
            self.kinds.clear();
            self.costs = None;
        }
        for (number, probed) in probed() {
            if self.kinds.iter().all(|kind| kind.number != number) {
                self.kinds.push(CallKind {
                    probed,
                    number,
                    without_ns: middle_of((0..FIRST_RUNS).map(|_| run_ns(probed.function))),
                    cold_ns: 0.0,
                    key: None,
                    batches: VecDeque::new(),
                });
            }
        }
        measured.choose(CALIBRATION, Some(&[own]), false, targets)?;
        // All at once: some kernels take a second to detach.
        measured.attach(&file, MODULE, &points, Some(own))
    }

    fn detach(
        &mut self,
        measured: &mut FunctionProbes,
        targets: &mut TargetControl,
    ) -> Result<(), MeasureError> {
        self.is_attached = false;
        let detached = measured.detach(CALIBRATION, targets);
        let is_its = |function| function <= FUNCTIONS;
        measured.remove(|_| false, |key| is_its(key.function));
        measured.remove_callers(|key| is_its(key.function));
        for kind in &mut self.kinds {
            kind.key = None;
        }
        detached
    }

    /// The first batches.
    fn measure(&mut self, measured: &mut FunctionProbes) {
        // Rows are made by the first call.
        for kind in &mut self.kinds {
            call(kind.probed.function);
        }
        for (key, _) in measured.rows() {
            if let Some(kind) = self
                .kinds
                .iter_mut()
                .find(|kind| kind.number == key.function)
            {
                kind.key = Some(key);
            }
        }
        let new = self.kinds.iter_mut().filter(|kind| kind.batches.is_empty());
        let mut memory = Vec::new();
        for kind in new {
            memory.resize(COLD_BYTES, 0_u8);
            kind.cold_ns = cold_ns(kind.probed.function, &mut memory);
        }
        for _ in 0..FIRST_BATCHES {
            self.batch(measured, FIRST_RUNS);
        }
    }

    fn batch(&mut self, measured: &mut FunctionProbes, runs: usize) {
        let mut costs = ProbeCosts::default();
        for kind in &mut self.kinds {
            if let Some(added) = kind.added(measured, runs) {
                if kind.batches.len() == MAX_BATCHES {
                    kind.batches.pop_front();
                }
                kind.batches.push_back(added);
            }
            costs[kind.probed.kind()] = cost_of(&kind.batches, kind.cold_ns);
        }
        self.costs = Some(costs);
        if let Err(error) = measured.tell_costs(&told(&costs)) {
            warn!("shortest and longest calls are not lessened by what probes cost now: {error}");
        }
        self.last_ns = monotonic_ns();
        self.since_attached = self.since_attached.saturating_add(1);
    }
}

/// As the programs know it.
fn told(costs: &ProbeCosts) -> CallCosts {
    CallCosts {
        of_kind: costs.map(|cost| CallCost {
            inside_ns: cost.inside_ns as u32,
            outside_ns: cost.outside_ns as u32,
        }),
    }
}

impl CallKind {
    /// What its probes add to a call: the middle of so many runs. `None` if they are not counted.
    fn added(&self, measured: &FunctionProbes, runs: usize) -> Option<Added> {
        let key = self.key.as_ref()?;
        let counted_ns = || Some(elapsed_ns(&measured.row(key)?.inclusive));
        let (mut whole_ns, mut inside_ns) = (Vec::new(), Vec::new());
        for _ in 0..runs {
            let before_ns = counted_ns()?;
            whole_ns.push(run_ns(self.probed.function) - self.without_ns);
            let counted_ns = counted_ns()?.saturating_sub(before_ns);
            inside_ns.push(counted_ns as f64 / f64::from(RUN_CALLS) - self.without_ns);
        }
        let whole_ns = middle_of(whole_ns).max(0.0);
        Some(Added {
            at_ns: monotonic_ns(),
            whole_ns,
            inside_ns: middle_of(inside_ns).clamp(0.0, whole_ns),
        })
    }
}

fn middle_of(values: impl IntoIterator<Item = f64>) -> f64 {
    let mut sorted: Vec<f64> = values.into_iter().collect();
    sorted.sort_by(f64::total_cmp);
    sorted.get(sorted.len() / 2).copied().unwrap_or_default()
}

/// The middle of these batches, and how far calls may be from it: cold caches add to both parts of
/// a call alike.
fn cost_of(batches: &VecDeque<Added>, cold_ns: f64) -> ProbeCost {
    let of = |each: fn(&Added) -> f64| {
        let values = batches.iter().map(|added| (added.at_ns, each(added)));
        let stretches = stretches(&values.collect::<Vec<_>>());
        let [low, middle, high] = [0.1, 0.5, 0.9].map(|share| quantile(&stretches, share));
        (middle, (middle - low).max(high - middle))
    };
    let (whole_ns, whole_apart_ns) = of(|added| added.whole_ns);
    let (inside_ns, inside_apart_ns) = of(|added| added.inside_ns);
    let inside_ns = inside_ns.min(whole_ns);
    let cold_ns = (cold_ns - whole_ns).max(0.0);
    let cold_inside_ns = if whole_ns > 0.0 {
        cold_ns * inside_ns / whole_ns
    } else {
        0.0
    };
    ProbeCost {
        inside_ns,
        outside_ns: whole_ns - inside_ns,
        inside_error_ns: inside_apart_ns.max(cold_inside_ns),
        error_ns: whole_apart_ns.max(cold_ns),
    }
}

/// What a call takes this thread, nanoseconds, in a run of them, with the loop around it.
fn run_ns(function: extern "C" fn()) -> f64 {
    let began_ns = thread_ns();
    for _ in 0..RUN_CALLS {
        call(function);
    }
    thread_ns().saturating_sub(began_ns) as f64 / f64::from(RUN_CALLS)
}

/// What probes add to a call where the program uses more memory between two calls than the caches
/// hold, that memory's coming back included: the median of pairs with a function that has none.
fn cold_ns(function: extern "C" fn(), memory: &mut [u8]) -> f64 {
    let mut took_ns = |function: extern "C" fn()| {
        let began_ns = monotonic_ns();
        call(function);
        for line in std::hint::black_box(&mut *memory).chunks_mut(CACHE_LINE) {
            line[0] = line[0].wrapping_add(1);
        }
        monotonic_ns().saturating_since(began_ns) as f64
    };
    took_ns(function);
    let added_ns = (0..COLD_CALLS).map(|_| took_ns(function) - took_ns(profiler_calibrate_without));
    middle_of(added_ns).max(0.0)
}

/// Where a function of this program lies in its file.
fn offset_of(function: extern "C" fn()) -> Option<FileOffset> {
    let address = VirtualAddress::new(function as usize as u64);
    let maps = proc_fs::exec_maps(std::process::id(), MAX_MAPPINGS)?;
    let mut entries = maps.entries.iter();
    let entry = entries.find(|entry| (entry.start..entry.end).contains(&address))?;
    Some(entry.file_offset + (address - entry.start))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Batches that were measured at these milliseconds.
    fn batches(whole_ns: &[(u64, f64)]) -> VecDeque<Added> {
        let added = whole_ns.iter().map(|(at_ms, whole_ns)| Added {
            at_ns: MonoNs::new(at_ms * 1_000_000),
            whole_ns: *whole_ns,
            inside_ns: whole_ns / 4.0,
        });
        added.collect()
    }

    /// The same, a second apart.
    fn evenly(whole_ns: &[f64]) -> VecDeque<Added> {
        let seconds = (1..).map(|second| second * 1000);
        let all: Vec<_> = seconds.zip(whole_ns.iter().copied()).collect();
        batches(&all)
    }

    // Check that a cost is the middle of the batches, that a tenth of them on either side is no
    // part of its error, and that what cold caches add is.
    #[test]
    fn the_error_holds_most_batches_and_cold_caches() {
        let mut twenty = vec![1000.0; 10];
        twenty.extend([980.0; 5]);
        twenty.extend([1020.0; 4]);
        twenty.push(4000.0);
        let costs = |cold_ns: f64| {
            let cost = cost_of(&evenly(&twenty), cold_ns);
            let all = [
                cost.inside_ns,
                cost.outside_ns,
                cost.inside_error_ns,
                cost.error_ns,
            ];
            all.map(f64::round)
        };
        assert_eq!(costs(0.0), [250.0, 750.0, 5.0, 20.0]);
        assert_eq!(costs(1300.0), [250.0, 750.0, 75.0, 300.0]);
        let none = cost_of(&VecDeque::new(), 0.0);
        assert_eq!(none, ProbeCost::default());
    }

    // Check that batches of one moment stand for no more than one of another, so that what was
    // measured before a short program ran and after it counts alike, with an error that holds both.
    #[test]
    fn each_batch_stands_for_the_time_around_it() {
        let began = [(1000, 13_000.0), (1001, 13_000.0), (1002, 13_000.0)];
        let costs = |all: &[(u64, f64)]| {
            let cost = cost_of(&batches(all), 0.0);
            [cost.inside_ns + cost.outside_ns, cost.error_ns].map(f64::round)
        };
        assert_eq!(costs(&began[..1]), [13_000.0, 0.0]);
        assert_eq!(costs(&began), [13_000.0, 0.0]);
        // Two milliseconds of 110 are at 13 us, the others between both.
        let ended = [began.as_slice(), &[(1110, 9_000.0)]].concat();
        assert_eq!(costs(&ended), [11_037.0, 1_630.0]);
    }
}
