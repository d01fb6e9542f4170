//! Go's table of functions.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::go_table(bytes));
