//! Functions of this program that do nothing, to be probed in each way that there is.

use std::arch::global_asm;

use profiler_common::measured::{CALIBRATION, Condition, Cookie, GoroutineStack, probe_kind};

use super::super::measured::ProbePoint;
use crate::units::FileOffset;

/// How far above a call of a made up goroutine its stack ends, bytes.
const STACK_BYTES: u64 = 1 << 20;

global_asm!(
    ".pushsection .text.profiler_probe_calibration, \"ax\", @progbits",
    // Rust's code that calls them may be in another object.
    ".globl profiler_calibrate_without",
    ".hidden profiler_calibrate_without",
    ".globl profiler_calibrate_emulated",
    ".hidden profiler_calibrate_emulated",
    ".globl profiler_calibrate_stepped",
    ".hidden profiler_calibrate_stepped",
    ".globl profiler_calibrate_emulated_emulated",
    ".hidden profiler_calibrate_emulated_emulated",
    ".globl profiler_calibrate_emulated_stepped",
    ".hidden profiler_calibrate_emulated_stepped",
    ".globl profiler_calibrate_stepped_emulated",
    ".hidden profiler_calibrate_stepped_emulated",
    ".globl profiler_calibrate_stepped_stepped",
    ".hidden profiler_calibrate_stepped_stepped",
    ".globl profiler_calibrate_goroutine_emulated",
    ".hidden profiler_calibrate_goroutine_emulated",
    ".globl profiler_calibrate_goroutine_stepped",
    ".hidden profiler_calibrate_goroutine_stepped",
    ".globl profiler_call_as_goroutine",
    ".hidden profiler_call_as_goroutine",
    ".balign 64",
    // Calls what it is given first, as a function of Go of the goroutine that comes second.
    "profiler_call_as_goroutine: push r14",
    "mov r14, rsi",
    "call rdi",
    "pop r14",
    "ret",
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
    // The same, as functions of Go.
    ".balign 64",
    "profiler_calibrate_goroutine_emulated: push rbp",
    "pop rbp",
    "ret",
    ".balign 64",
    "profiler_calibrate_goroutine_stepped: xor eax, eax",
    "ret",
    // And to be counted only.
    ".balign 64",
    "profiler_calibrate_emulated: push rbp",
    "pop rbp",
    "ret",
    ".balign 64",
    "profiler_calibrate_stepped: xor eax, eax",
    "ret",
    ".balign 64",
    "profiler_calibrate_without: push rbp",
    "pop rbp",
    "ret",
    ".balign 64",
    "2: ret",
    ".popsection",
);

unsafe extern "C" {
    pub(super) safe fn profiler_calibrate_without();
    safe fn profiler_calibrate_emulated();
    safe fn profiler_calibrate_stepped();
    safe fn profiler_calibrate_emulated_emulated();
    safe fn profiler_calibrate_emulated_stepped();
    safe fn profiler_calibrate_stepped_emulated();
    safe fn profiler_calibrate_stepped_stepped();
    safe fn profiler_calibrate_goroutine_emulated();
    safe fn profiler_calibrate_goroutine_stepped();
    safe fn profiler_call_as_goroutine(function: extern "C" fn(), g: &GoroutineStack);
}

/// A function of this program and how it is probed.
#[derive(Debug)]
pub(super) struct CalibratedProbe {
    pub(super) function: extern "C" fn(),
    entry_stepped: bool,
    exit_stepped: bool,
    /// Where its exit is, from its entry, bytes; `None`: its entries are counted.
    exit: Option<u64>,
    /// Whether it is probed as a function of Go.
    pub(super) goroutines: bool,
}

/// All of them.
pub(super) const PROBED: [CalibratedProbe; 8] = [
    CalibratedProbe {
        function: profiler_calibrate_emulated,
        entry_stepped: false,
        exit_stepped: false,
        exit: None,
        goroutines: false,
    },
    CalibratedProbe {
        function: profiler_calibrate_stepped,
        entry_stepped: true,
        exit_stepped: false,
        exit: None,
        goroutines: false,
    },
    CalibratedProbe {
        function: profiler_calibrate_emulated_emulated,
        entry_stepped: false,
        exit_stepped: false,
        exit: Some(2),
        goroutines: false,
    },
    CalibratedProbe {
        function: profiler_calibrate_emulated_stepped,
        entry_stepped: false,
        exit_stepped: true,
        exit: Some(2),
        goroutines: false,
    },
    CalibratedProbe {
        function: profiler_calibrate_stepped_emulated,
        entry_stepped: true,
        exit_stepped: false,
        exit: Some(2),
        goroutines: false,
    },
    CalibratedProbe {
        function: profiler_calibrate_stepped_stepped,
        entry_stepped: true,
        exit_stepped: true,
        exit: Some(2),
        goroutines: false,
    },
    CalibratedProbe {
        function: profiler_calibrate_goroutine_emulated,
        entry_stepped: false,
        exit_stepped: true,
        exit: Some(2),
        goroutines: true,
    },
    CalibratedProbe {
        function: profiler_calibrate_goroutine_stepped,
        entry_stepped: true,
        exit_stepped: true,
        exit: Some(2),
        goroutines: true,
    },
];

impl CalibratedProbe {
    /// What its probed calls are to whoever subtracts their cost.
    pub(super) fn kind(&self) -> usize {
        probe_kind(self.cookie(0, self.exit.is_some()))
    }

    const fn cookie(&self, number: u32, exit: bool) -> Cookie {
        Cookie {
            function: number,
            instrumentation: CALIBRATION,
            exit,
            stepped: if exit {
                self.exit_stepped
            } else {
                self.entry_stepped
            },
            entry_stepped: self.entry_stepped,
            counted_only: self.exit.is_none(),
            goroutines: self.goroutines,
            loops: false,
            condition: Condition::ALWAYS,
        }
    }

    pub(super) fn points(&self, number: u32, entry: FileOffset) -> Vec<ProbePoint> {
        let mut points = vec![ProbePoint {
            offset: entry,
            cookie: self.cookie(number, false),
        }];
        points.extend(self.exit.map(|distance| ProbePoint {
            offset: entry + distance,
            cookie: self.cookie(number, true),
        }));
        points
    }
}

/// Calls a function. One of Go is told that this is a goroutine; others do not care.
pub(super) fn call(function: extern "C" fn()) {
    let here = 0_u8;
    let high = (&raw const here as u64).saturating_add(STACK_BYTES);
    let g = GoroutineStack { low: 1, high };
    profiler_call_as_goroutine(std::hint::black_box(function), std::hint::black_box(&g));
}
