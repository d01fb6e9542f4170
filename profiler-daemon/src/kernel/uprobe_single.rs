//! Attaches a program to one user probe by a perf event of its own, with a cookie (Linux 5.15): for
//! kernels without links of many probes.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use super::bpf_call::{BPF_LINK_CREATE, bpf};
use super::probe_program::Probe;
use crate::sys::uprobe_event;

/// `BPF_PERF_EVENT`.
const PERF_EVENT: u32 = 41;

/// `union bpf_attr`, the member of `BPF_LINK_CREATE` for perf events.
#[repr(C)]
#[derive(Default)]
struct EventLinkCreate {
    program: u32,
    event: u32,
    attach_type: u32,
    flags: u32,
    cookie: u64,
}

/// Attaches a program to a probe of the file that `path` leads to, in the memory of one process
/// alone if `pid` is one: as long as the link is open, which keeps the event.
///
/// # Errors
/// What the kernel says.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    path: &CStr,
    probe: Probe,
    pid: Option<u32>,
) -> io::Result<OwnedFd> {
    let event = uprobe_event::open(path, probe.offset, probe.counter, pid)?;
    let create = EventLinkCreate {
        program: program.as_raw_fd().cast_unsigned(),
        event: event.as_raw_fd().cast_unsigned(),
        attach_type: PERF_EVENT,
        cookie: probe.cookie,
        ..EventLinkCreate::default()
    };
    bpf(BPF_LINK_CREATE, &create)
}
