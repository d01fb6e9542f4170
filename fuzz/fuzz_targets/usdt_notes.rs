//! Notes of USDT points.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::usdt_notes(bytes));
