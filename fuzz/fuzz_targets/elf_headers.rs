//! The headers of a program file, and its build ID.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::elf_headers(bytes));
