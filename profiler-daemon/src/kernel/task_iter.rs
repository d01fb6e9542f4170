//! Iterators over the threads of one process, for which aya has no call: it only iterates over all
//! tasks of the machine.

use std::fs::File;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use aya::util::KernelVersion;

use super::bpf_call::{BPF_LINK_CREATE, bpf};

const BPF_ITER_CREATE: libc::c_long = 33;
const BPF_TRACE_ITER: u32 = 28;
/// The kernel that looks at `bpf_iter_link_info.task` first. Those before take no notice of it, or
/// refuse it.
const SINCE: KernelVersion = KernelVersion::new(6, 1, 0);

/// `union bpf_iter_link_info`, the member for tasks. With `tid`, kernels before 6.12 find the first
/// thread of a process only; with `pid` all find all of them.
#[repr(C)]
#[derive(Default)]
struct TaskInfo {
    tid: u32,
    pid: u32,
    pid_fd: u32,
    padding: u32,
}

/// `union bpf_attr`, the member of `BPF_LINK_CREATE`.
#[repr(C)]
#[derive(Default)]
struct IteratorLinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    info: u64,
    info_bytes: u32,
    padding: u32,
}

/// `union bpf_attr`, the member of `BPF_ITER_CREATE`.
#[repr(C)]
struct IterCreate {
    link: u32,
    flags: u32,
}

/// Whether this kernel iterates over the threads of one process.
#[must_use]
pub(super) fn is_supported() -> bool {
    KernelVersion::current().is_ok_and(|version| version >= SINCE)
}

/// What `program`, an iterator over tasks, writes about the threads of process `pid`, as this
/// process numbers it. One that is gone has none.
///
/// # Errors
/// What the kernel says.
pub(super) fn of_process(program: BorrowedFd<'_>, pid: u32) -> io::Result<File> {
    let info = TaskInfo {
        pid,
        ..TaskInfo::default()
    };
    let create = IteratorLinkCreate {
        program: program.as_raw_fd().cast_unsigned(),
        attach_type: BPF_TRACE_ITER,
        info: (&raw const info) as u64,
        info_bytes: size_of::<TaskInfo>() as u32,
        ..IteratorLinkCreate::default()
    };
    let link = bpf(BPF_LINK_CREATE, &create)?;
    // The iterator keeps the link.
    let iterator = IterCreate {
        link: link.as_raw_fd().cast_unsigned(),
        flags: 0,
    };
    bpf(BPF_ITER_CREATE, &iterator).map(File::from)
}
