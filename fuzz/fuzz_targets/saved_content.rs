//! A recorded profile, unpacked and without its head.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::saved_content(bytes));
