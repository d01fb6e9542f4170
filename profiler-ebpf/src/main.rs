//! The kernel programs: one file per hook family, each `find the thread -> drive its clock ->
//! perhaps walk its stack`.
//!
//! Nothing here decides what time means: that is `profiler_common::clock`. Nothing here streams:
//! per-thread records and sums are kept in maps, which the daemon drains; only frames of stacks
//! that are new in a drain period travel.
//!
//! They are compiled twice: as they are, and with the feature `before_5_17` for kernels from 5.10
//! to 5.16, which lack helpers that newer ones have. The difference is which file is the module
//! `kernel`.
#![no_std]
#![no_main]
// `measure` adds to what other threads add to: the compiler has no atomic addition for BPF.
#![feature(asm_experimental_arch)]

#[cfg(not(feature = "before_5_17"))]
mod areas;
mod attribute;
mod calls;
mod capture;
mod counters;
mod evaluate;
mod filter;
mod goroutine;
#[cfg_attr(feature = "before_5_17", path = "before_5_17.rs")]
#[cfg_attr(not(feature = "before_5_17"), path = "since_5_17.rs")]
mod kernel;
mod life;
mod look;
mod maps;
mod measure;
#[cfg(not(feature = "before_5_17"))]
mod probes;
mod queue;
mod seed;
mod settings;
mod span;
mod switch;
mod syscall;
#[cfg(not(feature = "before_5_17"))]
mod table_maps;
#[cfg(not(feature = "before_5_17"))]
mod tables;
mod task;
mod tick;
mod unwind;
mod waking;

#[panic_handler]
fn panic(_: &core::panic::PanicInfo<'_>) -> ! {
    // Unreachable: the verifier refuses a program that could get here.
    loop {}
}

/// The helpers used are for GPL-compatible programs only.
#[unsafe(link_section = "license")]
#[unsafe(no_mangle)]
static LICENSE: [u8; 13] = *b"Dual MIT/GPL\0";
