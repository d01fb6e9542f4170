//! What an event of the kernel's performance counters is opened with, and opening it on one
//! processor for all processes.

use std::{fs::File, io, os::fd::FromRawFd as _};

const PERF_TYPE_SOFTWARE: u32 = 1;
const PERF_FLAG_FD_CLOEXEC: libc::c_ulong = 1 << 3;
/// Bytes of `perf_event_attr` up to and with `aux_watermark` and its padding, which every kernel
/// since 4.1 takes.
const ATTR_BYTES: u32 = 112;

/// `perf_event_attr` as the kernel reads it.
#[repr(C)]
#[derive(Default)]
pub(super) struct Attr {
    pub(super) kind: u32,
    pub(super) size: u32,
    pub(super) config: u64,
    pub(super) period: u64,
    pub(super) sample_type: u64,
    pub(super) read_format: u64,
    pub(super) flags: u64,
    pub(super) wakeup_watermark: u32,
    pub(super) bp_type: u32,
    pub(super) config1: u64,
    pub(super) config2: u64,
    pub(super) branch_sample_type: u64,
    pub(super) sample_regs_user: u64,
    pub(super) sample_stack_user: u32,
    pub(super) clockid: i32,
    pub(super) sample_regs_intr: u64,
    pub(super) aux_watermark: u32,
    pub(super) reserved: u32,
}

const _: () = assert!(size_of::<Attr>() == ATTR_BYTES as usize);

impl Attr {
    /// Opens the software event that this describes, on one processor, for all processes.
    ///
    /// # Errors
    ///
    /// Not allowed (`CAP_PERFMON` or `CAP_SYS_ADMIN` missing), the processor is not online
    /// (`ENODEV`) or none, or out of memory or files.
    pub(super) fn open_software(mut self, cpu: u32) -> io::Result<File> {
        self.kind = PERF_TYPE_SOFTWARE;
        self.size = ATTR_BYTES;
        // SAFETY: `self` is a valid perf_event_attr of the size it names and outlives the call.
        let fd = unsafe {
            libc::syscall(
                libc::SYS_perf_event_open,
                &raw const self,
                -1_i32,
                libc::c_int::try_from(cpu).unwrap_or(libc::c_int::MAX),
                -1_i32,
                PERF_FLAG_FD_CLOEXEC,
            )
        };
        let fd = libc::c_int::try_from(fd).map_err(io::Error::other)?;
        if fd < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: `fd` was just created and belongs to nobody else.
        Ok(unsafe { File::from_raw_fd(fd) })
    }
}
