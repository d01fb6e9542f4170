//! What reads lines, for `crate::fuzzing`.

use std::panic::{AssertUnwindSafe, catch_unwind};

use super::{
    NoLine, Steps,
    dwarf::{DebugSections, FileLines},
    launch,
    protocol::MAX_STEPS,
};
use crate::{
    symbols::demangle::MAX_NAME_BYTES, sys::memory_file::memory_file, units::ModuleAddress,
};

/// What the worker finds at these addresses of a file.
pub(in crate::symbols) fn check(file: &[u8], addresses: impl Iterator<Item = ModuleAddress>) {
    let Ok(sections) = DebugSections::read(file) else {
        return;
    };
    let opened = catch_unwind(AssertUnwindSafe(|| FileLines::open(&sections, None)));
    let Ok(Ok(lines)) = opened else {
        return;
    };
    for address in addresses {
        // As the worker has it: a reader that breaks over an address costs that address.
        let Ok(Ok(steps)) = catch_unwind(AssertUnwindSafe(|| lines.steps(address))) else {
            continue;
        };
        assert!(steps.len() <= MAX_STEPS);
        for step in steps {
            for text in [step.function, step.file].into_iter().flatten() {
                assert!(text.len() <= MAX_NAME_BYTES);
                assert!(!text.chars().any(char::is_control));
            }
            assert_ne!(step.line, Some(0));
        }
    }
}

/// What the daemon makes of what a worker wrote.
pub(in crate::symbols) fn answers(text: &[u8]) -> Vec<Result<Steps, NoLine>> {
    let output = memory_file(text).expect("there is room for a small file");
    launch::read(&output, 1 << 20)
}
