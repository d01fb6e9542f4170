//! The address of an HTTP request, then lines with what is accepted and which host is meant.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::http_query(bytes));
