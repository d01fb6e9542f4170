//! Two hooks on every system call, or on every switch and wake, that do nothing, or read the clock:
//! the floor under whatever measures these.

use std::ffi::CStr;
use std::io;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use anyhow::Context;

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_RAW_TRACEPOINT_OPEN: libc::c_long = 17;
const BPF_PROG_TYPE_RAW_TRACEPOINT: u32 = 17;
/// `call bpf_ktime_get_ns`.
const READ_CLOCK: u64 = 0x0000_0005_0000_0085;
/// `r0 = 0`.
const RETURN_ZERO: u64 = 0x0000_0000_0000_00b7;
/// `exit`.
const EXIT: u64 = 0x0000_0000_0000_0095;
const LICENSE: &CStr = c"Dual MIT/GPL";

/// The start of the kernel's `union bpf_attr` for `BPF_PROG_LOAD`; the rest is zero.
#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    kind: u32,
    instructions: u32,
    code: u64,
    license: u64,
    log: [u64; 2],
    kernel_version: u32,
    flags: u32,
    name: [u8; 16],
}

/// The same for `BPF_RAW_TRACEPOINT_OPEN`.
#[repr(C)]
#[derive(Default)]
struct RawTracepointOpen {
    name: u64,
    program: u32,
    reserved: u32,
}

/// Hooked as long as it lives.
#[derive(Debug)]
pub(crate) struct Hooks(#[expect(dead_code, reason = "closing them detaches")] [OwnedFd; 2]);

/// What is hooked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Hooked {
    /// Entries and exits of system calls.
    Calls,
    /// Switches and wakes.
    Switches,
}

impl Hooks {
    /// Hooks both.
    ///
    /// # Errors
    /// What the kernel says, which may refuse it to users.
    pub(crate) fn attach(hooked: Hooked, reads_clock: bool) -> anyhow::Result<Self> {
        let empty = [RETURN_ZERO, EXIT];
        let clock = [READ_CLOCK, RETURN_ZERO, EXIT];
        let code: &[u64] = if reads_clock { &clock } else { &empty };
        let names = match hooked {
            Hooked::Calls => [c"sys_enter", c"sys_exit"],
            Hooked::Switches => [c"sched_switch", c"sched_waking"],
        };
        let [first, second] = names.map(|name| hook(name, code));
        Ok(Self([first?, second?]))
    }
}

fn hook(tracepoint: &CStr, code: &[u64]) -> anyhow::Result<OwnedFd> {
    let load = ProgramLoad {
        kind: BPF_PROG_TYPE_RAW_TRACEPOINT,
        instructions: u32::try_from(code.len())?,
        code: code.as_ptr() as u64,
        license: LICENSE.as_ptr() as u64,
        ..ProgramLoad::default()
    };
    // SAFETY: what it points to is as the kernel wants it and outlives the call.
    let program = unsafe { bpf(BPF_PROG_LOAD, &load) }.context("loading a BPF program")?;
    let open = RawTracepointOpen {
        name: tracepoint.as_ptr() as u64,
        program: u32::try_from(program.as_raw_fd())?,
        reserved: 0,
    };
    // SAFETY: as above. The hook keeps the program.
    unsafe { bpf(BPF_RAW_TRACEPOINT_OPEN, &open) }
        .with_context(|| format!("attaching it to {}", tracepoint.to_string_lossy()))
}

/// # Safety
/// `attributes` are those of the command.
unsafe fn bpf<T>(command: libc::c_long, attributes: &T) -> io::Result<OwnedFd> {
    // SAFETY: as the caller promises; the size is that of what is pointed to.
    let fd = unsafe { libc::syscall(libc::SYS_bpf, command, attributes, size_of::<T>()) };
    if fd < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: both commands answer a new descriptor.
    Ok(unsafe { OwnedFd::from_raw_fd(fd as RawFd) })
}
