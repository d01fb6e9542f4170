//! `.eh_frame` or `.debug_frame`.
#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| profiler_daemon::fuzzing::frame_section(bytes));
