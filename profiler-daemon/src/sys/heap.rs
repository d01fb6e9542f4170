//! Has the C library's heap give memory back: the daemon needs a lot for moments (tables of large
//! files) and little for long. Where the C library is another one than glibc, its own way stays as
//! it is.

/// Allocations from this size on get memory of their own, which goes back when they are freed.
#[cfg(target_env = "gnu")]
const OWN_MAPPING_BYTES: libc::c_int = 256 << 10;
/// Heaps that threads share: fewer hold less that is free but not given back.
#[cfg(target_env = "gnu")]
const HEAPS: libc::c_int = 2;

/// Sets the heap up. Call it before there are threads. Without effect where it is refused.
pub fn tune() {
    #[cfg(target_env = "gnu")]
    // SAFETY: sets numbers of the allocator; no thread allocates meanwhile.
    unsafe {
        libc::mallopt(libc::M_MMAP_THRESHOLD, OWN_MAPPING_BYTES);
        libc::mallopt(libc::M_ARENA_MAX, HEAPS);
    }
}

/// What the heap holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HeapUse {
    /// What is allocated, bytes.
    pub in_use_bytes: u64,
    /// What was freed and not given back to the system, bytes.
    pub free_bytes: u64,
}

/// What the heap holds now; `None` where the C library does not tell (glibc does from 2.33 on).
/// Takes a millisecond or more where much is free.
#[must_use]
pub fn usage() -> Option<HeapUse> {
    #[cfg(target_env = "gnu")]
    {
        // By its name: programs that were built where it exists start where it does not.
        // SAFETY: a zero-terminated name.
        let function = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"mallinfo2".as_ptr()) };
        if function.is_null() {
            return None;
        }
        // SAFETY: this is the function of that name, which takes nothing and returns these numbers.
        let told = unsafe {
            std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> libc::mallinfo2>(function)
        }();
        let bytes = |size: usize| u64::try_from(size).unwrap_or(u64::MAX);
        Some(HeapUse {
            in_use_bytes: bytes(told.uordblks.saturating_add(told.hblkhd)),
            free_bytes: bytes(told.fordblks),
        })
    }
    #[cfg(not(target_env = "gnu"))]
    None
}

/// Gives back what is free if that is much: more than a quarter of what is in use, and more than 8
/// MiB.
pub fn trim_if_much() {
    const MUCH_BYTES: u64 = 8 << 20;
    let is_much =
        |held: HeapUse| held.free_bytes > MUCH_BYTES && held.free_bytes > held.in_use_bytes / 4;
    if usage().is_some_and(is_much) {
        trim();
    }
}

/// Gives back what is free. Takes milliseconds: for when a large piece of work is done.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number; safe to call on any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_allocated_is_told() {
        // Check that a block that is in use is part of what is, where the C library tells.
        let block = vec![1_u8; 100 << 20];
        if let Some(held) = usage() {
            assert!(held.in_use_bytes >= 100 << 20, "{held:?}");
        }
        trim_if_much();
        assert!(block.iter().all(|byte| *byte == 1));
    }
}
