//! Survives files that shrink while they are read through a memory mapping. The kernel then sends
//! SIGBUS, which would end this process, and any user can bring that about. While guarded, a page
//! that is gone reads as zeros instead.

use std::{
    cell::Cell,
    sync::{
        Once,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
};

thread_local! {
    /// Whether this thread reads mapped files right now. Has no destructor, so the handler may read
    /// it.
    static GUARDED: Cell<bool> = const { Cell::new(false) };
}

static INSTALL: Once = Once::new();
static PAGES: AtomicU64 = AtomicU64::new(0);
/// Page size, set before the handler is installed.
static PAGE_BYTES: AtomicUsize = AtomicUsize::new(0);

/// How many pages read as zeros because their file had shrunk.
#[must_use]
pub fn pages_replaced() -> u64 {
    PAGES.load(Ordering::Relaxed)
}

/// Runs `read`, which reads files through mappings and handles wrong contents, on this thread. The
/// first call installs the process's SIGBUS handler; outside of guarded code the signal ends the
/// process as ever.
pub fn while_guarded<T>(read: impl FnOnce() -> T) -> T {
    struct Reset;
    impl Drop for Reset {
        fn drop(&mut self) {
            GUARDED.set(false);
        }
    }
    INSTALL.call_once(install);
    GUARDED.set(true);
    let _reset = Reset;
    read()
}

fn install() {
    let page = usize::try_from(super::own_cost::page_bytes()).unwrap_or(4096);
    PAGE_BYTES.store(page, Ordering::Relaxed);
    // SAFETY: all-zero bytes are a valid sigaction: an empty mask and no flags.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    action.sa_flags = libc::SA_SIGINFO | libc::SA_NODEFER | libc::SA_ONSTACK;
    action.sa_sigaction = on_bus_error
        as extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void)
        as usize;
    // SAFETY: `action` is valid, and its handler only does what is allowed in one.
    unsafe { libc::sigaction(libc::SIGBUS, &raw const action, std::ptr::null_mut()) };
}

/// Only system calls and plain stores: nothing here allocates or locks.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: with SA_SIGINFO the kernel passes a valid siginfo, which for SIGBUS holds an address.
    let (code, address) = unsafe { ((*info).si_code, (*info).si_addr() as usize) };
    let page = PAGE_BYTES.load(Ordering::Relaxed);
    if code == libc::BUS_ADRERR && GUARDED.get() && page.is_power_of_two() {
        let start = (address & !(page - 1)) as *mut libc::c_void;
        // SAFETY: the page is part of a file mapping of this thread's reader and cannot be read any
        // more, so nothing that is in use is replaced.
        let mapped = unsafe {
            libc::mmap(
                start,
                page,
                libc::PROT_READ,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED,
                -1,
                0,
            )
        };
        if mapped == start {
            PAGES.fetch_add(1, Ordering::Relaxed);
            return;
        }
    }
    // Not ours: the access is made again and ends the process.
    // SAFETY: restores the default for this signal.
    unsafe { libc::signal(signal, libc::SIG_DFL) };
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsRawFd as _;

    // Check that a mapped file that shrinks reads as zeros where it is gone, and as before where it
    // is not.
    #[test]
    fn a_file_that_shrinks() {
        let file = tempfile::tempfile().unwrap();
        let page = usize::try_from(crate::sys::own_cost::page_bytes()).unwrap();
        std::os::unix::fs::FileExt::write_all_at(&file, &vec![7; 3 * page], 0).unwrap();
        // SAFETY: a new mapping at an address of the kernel's choice.
        let memory = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                3 * page,
                libc::PROT_READ,
                libc::MAP_SHARED,
                file.as_raw_fd(),
                0,
            )
        };
        assert_ne!(memory, libc::MAP_FAILED);
        let byte = |at: usize| {
            // SAFETY: inside the mapping above.
            unsafe { memory.cast::<u8>().add(at).read_volatile() }
        };
        assert_eq!(byte(2 * page), 7);
        file.set_len(page as u64).unwrap();
        let before = pages_replaced();
        let seen = while_guarded(|| [byte(0), byte(page), byte(2 * page + 5)]);
        assert_eq!(seen, [7, 0, 0]);
        assert_eq!(pages_replaced() - before, 2);
        // SAFETY: exactly the mapping above.
        unsafe { libc::munmap(memory, 3 * page) };
    }
}
