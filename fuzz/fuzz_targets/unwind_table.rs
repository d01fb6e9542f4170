//! A program file as a whole, to its unwind table.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::unwind_table(bytes));
