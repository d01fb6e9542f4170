//! Where functions of a program file are to be probed.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::chosen_functions(bytes));
