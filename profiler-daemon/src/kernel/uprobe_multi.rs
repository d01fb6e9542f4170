//! Attaches a program to many user probes by one link (Linux 6.6), for which aya has no call.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};

use super::bpf_call::{BPF_LINK_CREATE, bpf};
use super::probe_program::{self, Probe, UPROBE_MULTI};
use crate::units::FileOffset;

/// `union bpf_attr`, the member of `BPF_LINK_CREATE` for user probes.
#[repr(C)]
#[derive(Default)]
struct MultiLinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    counters: u64,
    cookies: u64,
    count: u32,
    probe_flags: u32,
    pid: u32,
    padding: u32,
}

/// What a kernel knows of such links.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkSupport {
    /// Nothing.
    Nothing,
    /// Them, but where one is of a process, it is of a thread (before 6.10).
    Links,
    /// Also those of one process.
    LinksOfProcesses,
}

/// Asks the kernel, by links that it has to refuse: what it says of them differs.
///
/// # Errors
/// It does not tell, for want of privilege most often.
pub(super) fn ask() -> io::Result<LinkSupport> {
    let program = probe_program::load_empty()?;
    let refusal = |pid| match create(program.as_fd(), c"/", &[Probe::START], pid) {
        Ok(_) => Err(io::Error::other("probes of a folder were attached")),
        Err(error) => Ok(error.raw_os_error()),
    };
    // A folder cannot be probed; where there are no such links, nobody looks whether it is one.
    if refusal(0)? != Some(libc::EBADF) {
        return Ok(LinkSupport::Nothing);
    }
    // No process has this number; where it would be a thread's, that is found out later.
    Ok(match refusal(u32::MAX)? {
        Some(libc::EINVAL) => LinkSupport::LinksOfProcesses,
        _ => LinkSupport::Links,
    })
}

impl Probe {
    /// The start of a file.
    const START: Self = Self {
        offset: FileOffset::ZERO,
        cookie: 0,
        counter: None,
    };
}

/// Attaches a program to probes of the file that `path` leads to, in the memory of one process
/// alone if `pid` is one: as long as the link is open.
///
/// # Errors
/// What the kernel says.
pub(super) fn attach(
    program: BorrowedFd<'_>,
    path: &CStr,
    probes: &[Probe],
    pid: Option<u32>,
) -> io::Result<OwnedFd> {
    create(program, path, probes, pid.unwrap_or(0))
}

fn create(program: BorrowedFd<'_>, path: &CStr, probes: &[Probe], pid: u32) -> io::Result<OwnedFd> {
    let of = |what: fn(&Probe) -> u64| probes.iter().map(what).collect::<Vec<u64>>();
    let offsets = of(|probe| probe.offset.get());
    let cookies = of(|probe| probe.cookie);
    let counters = of(|probe| probe.counter.map_or(0, FileOffset::get));
    let has_counters = counters.iter().any(|counter| *counter != 0);
    let create = MultiLinkCreate {
        program: program.as_raw_fd().cast_unsigned(),
        attach_type: UPROBE_MULTI,
        path: path.as_ptr() as u64,
        offsets: offsets.as_ptr() as u64,
        counters: if has_counters {
            counters.as_ptr() as u64
        } else {
            0
        },
        cookies: cookies.as_ptr() as u64,
        count: u32::try_from(probes.len()).map_err(io::Error::other)?,
        pid,
        ..MultiLinkCreate::default()
    };
    bpf(BPF_LINK_CREATE, &create)
}
