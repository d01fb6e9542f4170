//! System calls that do not return to where they were entered, by the numbers of both tables of
//! x86-64.

use crate::limits::COMPAT_CALL;

/// Does the call leave to another stack than it was entered from, or not at all? (`vfork`,
/// `execve`, `execveat`, `exit` and `exit_group`.)
#[must_use]
#[inline(always)]
pub const fn leaves_elsewhere(number: u32) -> bool {
    if number & COMPAT_CALL == 0 {
        matches!(number, 58 | 59 | 322 | 60 | 231)
    } else {
        matches!(number & !COMPAT_CALL, 190 | 11 | 358 | 1 | 252)
    }
}

/// Does it leave to where a signal came in? (`rt_sigreturn`, and `sigreturn` of the 32-bit table.)
#[must_use]
#[inline(always)]
pub const fn leaves_to_signal(number: u32) -> bool {
    if number & COMPAT_CALL == 0 {
        number == 15
    } else {
        matches!(number & !COMPAT_CALL, 119 | 173)
    }
}

/// The number under which calls are counted that a user probe made, not the program: `uretprobe`
/// (Linux 6.11). `uprobe` (6.18) is counted with it.
pub const PROBES: u32 = 335;

/// The number under which a call of the 64-bit table is counted.
#[must_use]
#[inline(always)]
pub const fn counted_as(number: u32) -> u32 {
    if number == PROBES + 1 { PROBES } else { number }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that each table has its own numbers: 11 is munmap in one and execve in the other, 59
    // execve and oldolduname.
    #[test]
    fn tables_are_told_apart() {
        for (number, of_64, of_32) in [(11, false, true), (59, true, false), (1, false, true)] {
            assert_eq!(leaves_elsewhere(number), of_64);
            assert_eq!(leaves_elsewhere(number | COMPAT_CALL), of_32);
        }
        for (number, of_64, of_32) in [(15, true, false), (119, false, true), (173, false, true)] {
            assert_eq!(leaves_to_signal(number), of_64);
            assert_eq!(leaves_to_signal(number | COMPAT_CALL), of_32);
        }
    }
    // Check that the two calls that probes make are counted as one, and no other with them.
    #[test]
    fn probes_are_counted_as_one_call() {
        for number in [335, 336] {
            assert_eq!(counted_as(number), PROBES);
        }
        for number in [0, 334, 337, 424] {
            assert_eq!(counted_as(number), number);
        }
    }
}
