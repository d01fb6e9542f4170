//! `/proc/kallsyms`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::kernel_names(bytes));
