//! Records of processes and mappings from the kernel.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::process_records(bytes));
