//! Asks the kernel whether two system calls are allowed here, by making the smallest harmless call
//! of each.
//!
//! What an answer means is `doctor`'s to say.

use std::io;
use std::mem;
use std::os::fd::{FromRawFd as _, OwnedFd};

use perf_event_open_sys::bindings::{PERF_COUNT_SW_CPU_CLOCK, perf_event_attr};

use super::perf_attr::open_software;

/// `BPF_MAP_CREATE` of the kernel's `bpf(2)` interface.
const BPF_MAP_CREATE: libc::c_int = 0;
/// `BPF_MAP_TYPE_ARRAY`.
const BPF_MAP_TYPE_ARRAY: u32 = 2;
/// The head of `union bpf_attr` for `BPF_MAP_CREATE`; the kernel takes the rest as zero.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// Creates a map of one entry and drops it.
///
/// # Errors
///
/// What the kernel said: `EPERM` without the privilege, `ENOSYS` without `bpf(2)`.
pub fn bpf_map() -> io::Result<()> {
    let attributes = MapCreate {
        map_type: BPF_MAP_TYPE_ARRAY,
        key_size: 4,
        value_size: 8,
        max_entries: 1,
        map_flags: 0,
    };
    // SAFETY: the pointer and the size name a live structure laid out as the kernel reads it, which
    // the call does not keep; the kernel writes nothing to it for this command.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            BPF_MAP_CREATE,
            &raw const attributes,
            mem::size_of::<MapCreate>(),
        )
    };
    closed(answer)
}

/// Opens a counter of processor time for all that runs on the first processor, and drops it.
///
/// # Errors
///
/// What the kernel said: `EACCES` or `EPERM` without the privilege, `ENODEV` where processor 0 is
/// offline.
pub fn perf_event_system_wide() -> io::Result<()> {
    let mut attr = perf_event_attr {
        config: PERF_COUNT_SW_CPU_CLOCK.into(),
        ..perf_event_attr::default()
    };
    attr.set_disabled(1);
    open_software(attr, 0).map(drop)
}

/// Closes the descriptor that a system call answered with, or says why there is none.
fn closed(answer: libc::c_long) -> io::Result<()> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    let descriptor = libc::c_int::try_from(answer).map_err(io::Error::other)?;
    // SAFETY: the kernel has just given this descriptor to us, and nobody else knows it.
    drop(unsafe { OwnedFd::from_raw_fd(descriptor) });
    Ok(())
}
