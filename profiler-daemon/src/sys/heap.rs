//! Has the C library's heap give memory back: the daemon needs a lot for moments (tables of large files) and little for long.
//! Where the C library is another one than glibc, its own way stays as it is.

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

/// Gives back what is free. Takes milliseconds: for when a large piece of work is done.
pub fn trim() {
    #[cfg(target_env = "gnu")]
    // SAFETY: takes a number; safe to call on any thread.
    unsafe {
        libc::malloc_trim(0);
    }
}
