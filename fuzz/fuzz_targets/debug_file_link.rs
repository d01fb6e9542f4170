//! The sections that name a file with debug information.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::debug_file_link(bytes));
