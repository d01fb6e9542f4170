//! Machine code that no unwind information describes.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::machine_code(bytes));
