//! The own thread's place among those that want a processor.

use std::io;

use rustix::process::setpriority_process;

/// How far ahead of others a thread is that has little to do and must do it soon.
const AHEAD: i32 = -10;

/// Puts the calling thread ahead of ordinary ones.
///
/// # Errors
///
/// Not allowed: it takes `CAP_SYS_NICE`, or a limit (`RLIMIT_NICE`) that lets it.
pub fn put_own_thread_ahead() -> io::Result<()> {
    // `None`: the calling thread.
    Ok(setpriority_process(None, AHEAD)?)
}
