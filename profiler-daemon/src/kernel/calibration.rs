//! What the probes of a call cost on this machine, measured on functions of this program that do
//! nothing.
//!
//! A probed call takes time in two parts: what lies between the snapshot at its entry and the one
//! at its exit, which is in its own times, and all the rest, which its caller sees. What it takes
//! depends on the first instruction and on the one at the exit: those that the kernel imitates
//! (push, jmp) cost a tenth of those that it has to execute elsewhere, one step at a time.

use std::arch::global_asm;
use std::fs::File;
use std::sync::Arc;

use profiler_common::measured::{CALIBRATION, Cookie, PROBE_KINDS, elapsed_ns, probe_kind};
use serde::{Deserialize, Serialize};

use super::measure_error::MeasureError;
use super::measured::{FunctionProbes, ProbePoint};
use super::targets::TargetControl;
use crate::sys::clock::thread_ns;
use crate::sys::proc_fs;
use crate::units::{FileOffset, VirtualAddress};

/// Numbers of functions that are used here: 1 to this.
pub(super) const FUNCTIONS: u32 = PROBED.len() as u32;
/// Loops of each kind.
const BATCHES: usize = 5;
/// Calls of one loop: 0.1 to 3 ms.
const CALLS: u32 = 150;
/// Most mappings of this program that are looked at.
const MAX_MAPPINGS: usize = 4096;

global_asm!(
    ".pushsection .text.profiler_probe_calibration, \"ax\", @progbits",
    ".balign 64",
    // The first instruction is imitated, and the exit is a jump: 1 byte, then 1, then 2.
    "profiler_calibrate_emulated_emulated: push rbp",
    "pop rbp",
    "jmp 2f",
    ".balign 64",
    "profiler_calibrate_emulated_stepped: push rbp",
    "pop rbp",
    "ret",
    ".balign 64",
    // The first instruction is stepped: 2 bytes, then the exit.
    "profiler_calibrate_stepped_emulated: xor eax, eax",
    "jmp 2f",
    ".balign 64",
    "profiler_calibrate_stepped_stepped: xor eax, eax",
    "ret",
    // The same, to be counted only.
    ".balign 64",
    "profiler_calibrate_emulated: push rbp",
    "pop rbp",
    "ret",
    ".balign 64",
    "profiler_calibrate_stepped: xor eax, eax",
    "ret",
    ".balign 64",
    "2: ret",
    ".popsection",
);

unsafe extern "C" {
    safe fn profiler_calibrate_emulated();
    safe fn profiler_calibrate_stepped();
    safe fn profiler_calibrate_emulated_emulated();
    safe fn profiler_calibrate_emulated_stepped();
    safe fn profiler_calibrate_stepped_emulated();
    safe fn profiler_calibrate_stepped_stepped();
}

/// Nanoseconds: the middle of several batches, and how far they are apart.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProbeCost {
    /// In the call's own times.
    pub inside_ns: f64,
    /// In those of its caller.
    pub outside_ns: f64,
    /// How far off the sum of both may be for one call: the larger distance from the middle to the
    /// second lowest and the second highest batch.
    pub error_ns: f64,
}

/// By kind of probed call ([`probe_kind`]).
pub type ProbeCosts = [ProbeCost; PROBE_KINDS];

/// A function and how it is probed.
struct CalibratedProbe {
    function: extern "C" fn(),
    entry_stepped: bool,
    exit_stepped: bool,
    /// Where its exit is, from its entry, bytes; `None`: its entries are counted.
    exit: Option<u64>,
}

const PROBED: [CalibratedProbe; 6] = [
    CalibratedProbe {
        function: profiler_calibrate_emulated,
        entry_stepped: false,
        exit_stepped: false,
        exit: None,
    },
    CalibratedProbe {
        function: profiler_calibrate_stepped,
        entry_stepped: true,
        exit_stepped: false,
        exit: None,
    },
    CalibratedProbe {
        function: profiler_calibrate_emulated_emulated,
        entry_stepped: false,
        exit_stepped: false,
        exit: Some(2),
    },
    CalibratedProbe {
        function: profiler_calibrate_emulated_stepped,
        entry_stepped: false,
        exit_stepped: true,
        exit: Some(2),
    },
    CalibratedProbe {
        function: profiler_calibrate_stepped_emulated,
        entry_stepped: true,
        exit_stepped: false,
        exit: Some(2),
    },
    CalibratedProbe {
        function: profiler_calibrate_stepped_stepped,
        entry_stepped: true,
        exit_stepped: true,
        exit: Some(2),
    },
];

/// Measures each kind: the probes are of this process alone, and detached by whoever asked.
///
/// # Errors
/// [`MeasureError`].
pub(super) fn measure(
    measured: &mut FunctionProbes,
    targets: &mut TargetControl,
) -> Result<ProbeCosts, MeasureError> {
    let own = proc_fs::own_pid(std::process::id()).unwrap_or_else(std::process::id);
    let file = File::open("/proc/self/exe").map_err(|reason| MeasureError::Probes {
        module: "/proc/self/exe".to_owned(),
        reason,
    })?;
    let file = Arc::new(file);
    measured.choose(CALIBRATION, Some(&[own]), false, targets)?;
    let mut points = Vec::new();
    let mut kinds = Vec::new();
    for (number, probed) in (1..).zip(&PROBED) {
        let cookie = Cookie {
            function: number,
            instrumentation: CALIBRATION,
            exit: false,
            stepped: probed.entry_stepped,
            entry_stepped: probed.entry_stepped,
            counted_only: probed.exit.is_none(),
        };
        let exit = Cookie {
            exit: true,
            stepped: probed.exit_stepped,
            ..cookie
        };
        let entry = offset_of(probed.function).ok_or_else(|| MeasureError::Probes {
            module: "/proc/self/exe".to_owned(),
            reason: std::io::Error::other("this program does not find its own functions"),
        })?;
        points.push(ProbePoint {
            offset: entry,
            cookie,
        });
        points.extend(probed.exit.map(|distance| ProbePoint {
            offset: entry + distance,
            cookie: exit,
        }));
        let without_ns = ns_per_call(probed.function);
        kinds.push((
            probe_kind(if probed.exit.is_some() { exit } else { cookie }),
            without_ns,
        ));
    }
    // All at once: some kernels take a second to detach.
    measured.attach(&file, "/proc/self/exe", &points, Some(own))?;
    let mut costs = ProbeCosts::default();
    for ((number, probed), (kind, without_ns)) in (1..).zip(&PROBED).zip(kinds) {
        costs[kind] = cost_of(measured, number, probed.function, without_ns);
    }
    Ok(costs)
}

/// What is measured of a probed function that takes so long without.
fn cost_of(
    measured: &FunctionProbes,
    number: u32,
    function: extern "C" fn(),
    without_ns: f64,
) -> ProbeCost {
    // Its rows are made by the first call.
    function();
    let so_far = || {
        let row = measured.row(number);
        row.map_or((0, 0), |row| (elapsed_ns(&row.inclusive), row.complete))
    };
    let mut batches: Vec<(f64, f64)> = (0..BATCHES)
        .map(|_| {
            let before = so_far();
            let whole_ns = ns_per_call(function) - without_ns;
            let after = so_far();
            let calls = after.1.saturating_sub(before.1);
            let inside_ns = if calls == 0 {
                0.0
            } else {
                after.0.saturating_sub(before.0) as f64 / calls as f64 - without_ns
            };
            (whole_ns.max(0.0), inside_ns.max(0.0))
        })
        .collect();
    batches.sort_by(|a, b| a.0.total_cmp(&b.0));
    let middle = batches[BATCHES / 2];
    let apart = [middle.0 - batches[1].0, batches[BATCHES - 2].0 - middle.0];
    ProbeCost {
        inside_ns: middle.1.min(middle.0),
        outside_ns: (middle.0 - middle.1).max(0.0),
        error_ns: apart[0].max(apart[1]),
    }
}

/// What a call takes this thread, with the loop around it.
fn ns_per_call(function: extern "C" fn()) -> f64 {
    let began_ns = thread_ns();
    for _ in 0..CALLS {
        std::hint::black_box(function)();
    }
    thread_ns().saturating_sub(began_ns) as f64 / f64::from(CALLS)
}

/// Where a function of this program lies in its file.
fn offset_of(function: extern "C" fn()) -> Option<FileOffset> {
    let address = VirtualAddress::new(function as usize as u64);
    let maps = proc_fs::exec_maps(std::process::id(), MAX_MAPPINGS)?;
    let mut entries = maps.entries.iter();
    let entry = entries.find(|entry| (entry.start..entry.end).contains(&address))?;
    Some(entry.file_offset + (address - entry.start))
}
