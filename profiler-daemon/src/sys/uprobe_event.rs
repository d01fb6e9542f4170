//! Opens the event of one user probe, for kernels that have no links of many.

use std::{
    ffi::CStr,
    fs, io,
    os::fd::{FromRawFd as _, OwnedFd},
};

use crate::units::FileOffset;
use perf_event_open_sys::{
    bindings::{PERF_ATTR_SIZE_VER5, PERF_FLAG_FD_CLOEXEC, perf_event_attr},
    perf_event_open,
};
use thiserror::Error;

/// Where the kernel tells the number that it gave to this type of event.
const TYPE: &str = "/sys/bus/event_source/devices/uprobe/type";
/// Where the offset of the counter begins in `config`, as the kernel has it since it has counters
/// (`PERF_UPROBE_REF_CTR_OFFSET_SHIFT`).
const COUNTER_SHIFT: u32 = 32;

/// A probe at `offset` of the file that `path` leads to. `counter`: where in the file there is a
/// counter that is raised while the probe is there. `pid`: in the memory of this process alone.
///
/// The event counts nothing: it is there for the program that is attached to it, which the kernel
/// runs at each hit whether the event is enabled or not.
///
/// # Errors
///
/// Not allowed, no such process (`ESRCH`), an instruction that cannot be probed, out of memory or
/// files, or a counter that the kernel cannot be told of.
pub fn open(
    path: &CStr,
    offset: FileOffset,
    counter: Option<FileOffset>,
    pid: Option<u32>,
) -> io::Result<OwnedFd> {
    let counter = u32::try_from(counter.map_or(0, FileOffset::get))
        .map_err(|_| io::Error::other("its counter lies beyond the first 4 GiB of the file"))?;
    let mut attr = perf_event_attr {
        type_: event_type()?,
        // The size that every kernel since 4.1 knows; nothing behind it is used.
        size: PERF_ATTR_SIZE_VER5,
        config: u64::from(counter) << COUNTER_SHIFT,
        ..perf_event_attr::default()
    };
    attr.__bindgen_anon_3.uprobe_path = path.as_ptr() as u64;
    attr.__bindgen_anon_4.probe_offset = offset.get();
    // Nothing is to be done for it when threads are switched.
    attr.set_disabled(1);
    // The event is of one processor, or of one thread; the probe is in all memory, or in that of
    // the thread's process.
    let (pid, cpu) = match pid {
        Some(pid) => (libc::pid_t::try_from(pid).map_err(io::Error::other)?, -1),
        None => (-1, 0),
    };
    // SAFETY: `attr` is valid, not smaller than it says, and outlives the call, as does the path.
    let fd = unsafe { perf_event_open(&raw mut attr, pid, cpu, -1, PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just created and belongs to nobody else.
    Ok(unsafe { OwnedFd::from_raw_fd(fd) })
}

/// The kernel does not say what the type of such events is.
#[derive(Debug, Error)]
#[error("{TYPE}: {0}")]
struct NoType(#[source] io::Error);

fn event_type() -> io::Result<u32> {
    let text =
        fs::read_to_string(TYPE).map_err(|error| io::Error::new(error.kind(), NoType(error)))?;
    text.trim()
        .parse()
        .map_err(|_| io::Error::other(format!("{TYPE} is no number: {text:?}")))
}
