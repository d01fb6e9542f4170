//! Goroutines: what takes the place of a thread in calls of Go's functions.
//!
//! A goroutine is run by one thread at a time, but not always by the same, and its stack is moved
//! when it grows. So its open calls are found by its `g`, and where one of them is on the stack is
//! told from the end of the stack, which stays as far away.

/// The stack of a goroutine, as it begins its `g`: from `low` up to `high`, below which the first
/// call's frame is.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GoroutineStack {
    /// The lowest address.
    pub low: u64,
    /// Where it ends.
    pub high: u64,
}

/// What a stack pointer at the end of the stack becomes.
const END: u64 = 1 << 63;

impl GoroutineStack {
    /// Where a stack pointer of its goroutine is, wherever the stack is moved to: the further out a
    /// call is, the higher. `None`: the stack pointer is not on this stack, so the register was not
    /// that of the goroutine.
    #[must_use]
    #[inline(always)]
    pub const fn position(&self, sp: u64) -> Option<u64> {
        if self.low < sp && sp < self.high {
            Some(END - (self.high - sp))
        } else {
            None
        }
    }
}

/// Which goroutine open calls are of.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Goroutine {
    /// Start of its process since boot, nanoseconds.
    pub process_start_boot_ns: u64,
    /// Where its `g` is. Go uses that of one that is over again.
    pub g: u64,
    /// The process's id.
    pub pid: u32,
    /// Unused.
    pub padding: u32,
}

const _: () = assert!(size_of::<GoroutineStack>() == 16 && size_of::<Goroutine>() == 24);

#[cfg(test)]
mod tests {
    use super::*;

    // Check that a call is at the same place once its stack was moved to a larger one, that the
    // further out one is, the higher it is, and that another stack's pointer has no place.
    #[test]
    fn places_stay_as_stacks_move() {
        let small = GoroutineStack {
            low: 0xc000_0000,
            high: 0xc000_0800,
        };
        let large = GoroutineStack {
            low: 0xc010_0000,
            high: 0xc010_1000,
        };
        let outer = small.position(0xc000_07f8);
        assert_eq!(outer, large.position(0xc010_0ff8));
        assert!(outer > small.position(0xc000_0700));
        assert!(small.position(0xc000_0700).is_some());
        for sp in [0, 0xc000_0000, 0xc000_0800, 0xc010_0800, u64::MAX] {
            assert_eq!(small.position(sp), None, "{sp:#x}");
        }
        let garbage = GoroutineStack {
            low: u64::MAX,
            high: 0,
        };
        assert_eq!(garbage.position(1), None);
    }
}
