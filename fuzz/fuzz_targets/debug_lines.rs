//! Debug information, as the process that finds lines reads it.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::debug_lines(bytes));
