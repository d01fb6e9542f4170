//! Takes away from this process what reading hostile files does not need: privileges, and opening anything more. For processes
//! that were started to read and answer; a daemon could do nothing after it.

use std::{fs, io};

/// `struct __user_cap_header_struct`.
#[repr(C)]
struct CapHeader {
    version: u32,
    pid: i32,
}

/// `struct __user_cap_data_struct`.
#[repr(C)]
#[derive(Clone, Copy, Default)]
struct CapData {
    effective: u32,
    permitted: u32,
    inheritable: u32,
}

/// `_LINUX_CAPABILITY_VERSION_3`.
const CAP_VERSION: u32 = 0x2008_0522;

/// From here on this process has no capability and can open no file, pipe or socket; where memory runs out, it is the first to go.
///
/// # Errors
/// What the kernel refuses: then it is not to be trusted with hostile files.
pub fn confine() -> io::Result<()> {
    // Whoever may not write this is no worse off than other processes.
    fs::write("/proc/self/oom_score_adj", "1000").unwrap_or(());
    let header = CapHeader {
        version: CAP_VERSION,
        pid: 0,
    };
    let none = [CapData::default(); 2];
    // SAFETY: a header and two sets, as the third version of the call takes them; ambient capabilities go with the others.
    check(unsafe { libc::syscall(libc::SYS_capset, &raw const header, none.as_ptr()) })?;
    let nothing = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid limit. Descriptors that are open stay so.
    check(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const nothing) }.into())
}

fn check(result: i64) -> io::Result<()> {
    if result == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}
