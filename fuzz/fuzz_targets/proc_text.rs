//! The other texts of `/proc`: each reader is given all of them.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::proc_text(bytes));
