//! Own children, stopped at any moment: registers, memory, mappings.

use std::{
    fs::{self, File},
    io,
    os::unix::fs::FileExt as _,
};

/// A stopped thread. Goes on when dropped.
pub(crate) struct Stopped {
    pid: i32,
    memory: File,
    /// The registers at the stop.
    pub(crate) registers: libc::user_regs_struct,
}

/// A mapping of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Mapping {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) offset: u64,
    pub(crate) path: String,
}

fn ptrace(request: libc::c_uint, pid: i32, data: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: `data` is null or a place that the request fills; no request used here keeps it.
    let result = unsafe { libc::ptrace(request, pid, std::ptr::null_mut::<libc::c_void>(), data) };
    if result < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}

/// Begins to trace a child.
pub(crate) fn seize(pid: i32) -> io::Result<()> {
    ptrace(libc::PTRACE_SEIZE, pid, std::ptr::null_mut())
}

impl Stopped {
    /// Stops a traced child now; `None` once it has ended. Signals that it meets on the way are
    /// handed on.
    pub(crate) fn stop(pid: i32) -> Option<Self> {
        ptrace(libc::PTRACE_INTERRUPT, pid, std::ptr::null_mut()).ok()?;
        loop {
            let mut status = 0;
            // SAFETY: fills `status`.
            let waited = unsafe { libc::waitpid(pid, &raw mut status, libc::__WALL) };
            if waited != pid || !libc::WIFSTOPPED(status) {
                return None;
            }
            if status >> 16 == libc::PTRACE_EVENT_STOP {
                break;
            }
            let signal = libc::WSTOPSIG(status) as usize as *mut libc::c_void;
            ptrace(libc::PTRACE_CONT, pid, signal).ok()?;
        }
        // SAFETY: plain numbers.
        let mut registers: libc::user_regs_struct = unsafe { std::mem::zeroed() };
        ptrace(libc::PTRACE_GETREGS, pid, (&raw mut registers).cast()).ok()?;
        Some(Self {
            pid,
            memory: File::open(format!("/proc/{pid}/mem")).ok()?,
            registers,
        })
    }

    /// The word at an address.
    pub(crate) fn word(&self, address: u64) -> Option<u64> {
        let mut bytes = [0; 8];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(u64::from_le_bytes(bytes))
    }

    /// Bytes from an address on, as many as asked for.
    pub(crate) fn bytes(&self, address: u64, count: usize) -> Option<Vec<u8>> {
        let mut bytes = vec![0; count];
        self.memory.read_exact_at(&mut bytes, address).ok()?;
        Some(bytes)
    }

    /// What code is mapped.
    pub(crate) fn code(&self) -> Vec<Mapping> {
        let maps = fs::read_to_string(format!("/proc/{}/maps", self.pid)).unwrap_or_default();
        maps.lines().filter_map(mapping).collect()
    }
}

fn mapping(line: &str) -> Option<Mapping> {
    let mut words = line.split_whitespace();
    let (start, end) = words.next()?.split_once('-')?;
    if !words.next()?.contains('x') {
        return None;
    }
    let offset = words.next()?;
    Some(Mapping {
        start: u64::from_str_radix(start, 16).ok()?,
        end: u64::from_str_radix(end, 16).ok()?,
        offset: u64::from_str_radix(offset, 16).ok()?,
        path: words.nth(2).unwrap_or_default().to_owned(),
    })
}

impl Drop for Stopped {
    fn drop(&mut self) {
        // It fails if the child was killed meanwhile, and then there is nothing to let go on.
        drop(ptrace(libc::PTRACE_CONT, self.pid, std::ptr::null_mut()));
    }
}
