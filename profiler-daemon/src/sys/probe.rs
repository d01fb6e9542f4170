//! Asks the kernel whether two system calls are allowed here, by making the smallest harmless call
//! of each.
//!
//! What an answer means is `doctor`'s to say.

use std::io;
use std::mem;
use std::os::fd::{FromRawFd as _, OwnedFd};

/// `BPF_MAP_CREATE` of the kernel's `bpf(2)` interface.
const BPF_MAP_CREATE: libc::c_int = 0;
/// `BPF_MAP_TYPE_ARRAY`.
const BPF_MAP_TYPE_ARRAY: u32 = 2;
/// `PERF_TYPE_SOFTWARE` and `PERF_COUNT_SW_CPU_CLOCK`, and the size of the first version of the
/// attributes.
const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_COUNT_SW_CPU_CLOCK: u64 = 0;
const PERF_ATTR_SIZE_VER0: u32 = 64;
/// The descriptor does not outlive this program.
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 8;

/// The head of `union bpf_attr` for `BPF_MAP_CREATE`; the kernel takes the rest as zero.
#[repr(C)]
struct MapCreate {
    map_type: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    map_flags: u32,
}

/// The first version of `struct perf_event_attr`.
#[repr(C)]
struct PerfAttributes {
    kind: u32,
    size: u32,
    config: u64,
    sample_period: u64,
    sample_type: u64,
    read_format: u64,
    flags: u64,
    wakeup_events: u32,
    breakpoint_type: u32,
    breakpoint_address: u64,
}

const _: () = assert!(mem::size_of::<PerfAttributes>() == PERF_ATTR_SIZE_VER0 as usize);

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
    let attributes = PerfAttributes {
        kind: PERF_TYPE_SOFTWARE,
        size: PERF_ATTR_SIZE_VER0,
        config: PERF_COUNT_SW_CPU_CLOCK,
        sample_period: 0,
        sample_type: 0,
        read_format: 0,
        // Bit 0: it is born switched off.
        flags: 1,
        wakeup_events: 0,
        breakpoint_type: 0,
        breakpoint_address: 0,
    };
    let (every_process, first_processor, no_group): (libc::pid_t, libc::c_int, libc::c_int) =
        (-1, 0, -1);
    // SAFETY: the pointer names a live structure of the size it states, which the call reads and
    // does not keep.
    let answer = unsafe {
        libc::syscall(
            libc::SYS_perf_event_open,
            &raw const attributes,
            every_process,
            first_processor,
            no_group,
            PERF_FLAG_FD_CLOEXEC,
        )
    };
    closed(answer)
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
