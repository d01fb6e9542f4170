//! Opens an event of the kernel's performance counters on one processor for all processes.

use std::{fs::File, io, os::fd::FromRawFd as _};

use perf_event_open_sys::{
    bindings::{PERF_ATTR_SIZE_VER5, PERF_FLAG_FD_CLOEXEC, PERF_TYPE_SOFTWARE, perf_event_attr},
    perf_event_open,
};

/// Opens the software event that `attr` describes.
///
/// # Errors
///
/// Not allowed (`CAP_PERFMON` or `CAP_SYS_ADMIN` missing), the processor is not online (`ENODEV`)
/// or none, or out of memory or files.
pub(super) fn open_software(mut attr: perf_event_attr, cpu: u32) -> io::Result<File> {
    attr.type_ = PERF_TYPE_SOFTWARE;
    // The size that every kernel since 4.1 knows; nothing behind it is used.
    attr.size = PERF_ATTR_SIZE_VER5;
    let cpu = i32::try_from(cpu).unwrap_or(i32::MAX);
    // SAFETY: `attr` is valid, not smaller than it says, and outlives the call.
    let fd = unsafe { perf_event_open(&raw mut attr, -1, cpu, -1, PERF_FLAG_FD_CLOEXEC.into()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: `fd` was just created and belongs to nobody else.
    Ok(unsafe { File::from_raw_fd(fd) })
}
