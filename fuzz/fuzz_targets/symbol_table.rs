//! The symbol table of a program file.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::symbol_table(bytes));
