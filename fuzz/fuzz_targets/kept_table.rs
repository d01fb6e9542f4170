//! An unwind table that was kept on disk.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::kept_table(bytes));
