//! The file in which a process names code that it makes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::perf_map(bytes));
