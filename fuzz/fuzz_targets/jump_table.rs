//! Where a program file jumps to functions of others.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::jump_table(bytes));
