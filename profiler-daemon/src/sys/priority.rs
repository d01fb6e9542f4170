//! The own thread's place among those that want a processor.

use std::io;

/// How far ahead of others a thread is that has little to do and must do it soon.
const AHEAD: libc::c_int = -10;

/// Puts the calling thread ahead of ordinary ones.
///
/// # Errors
///
/// Not allowed: it takes `CAP_SYS_NICE`, or a limit (`RLIMIT_NICE`) that lets it.
pub fn put_own_thread_ahead() -> io::Result<()> {
    // SAFETY: plain numbers; 0 is the calling thread.
    match unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, AHEAD) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}
