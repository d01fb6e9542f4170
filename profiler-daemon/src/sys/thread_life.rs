//! Whether a thread is there, asked by its numbers.

use std::fs;
use std::io;
use std::sync::OnceLock;

use super::proc_fs;
use crate::units::BootNs;

/// What there is of a thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadLife {
    /// There is no thread of that number in that process.
    None,
    /// It has ended, and only its number is left.
    Ended,
    /// There is one, which was started then, in ticks of 10 ms since boot.
    Since(u64),
    /// That cannot be told: this process sees numbers or times of its own, or may not look.
    Unknown,
}

impl ThreadLife {
    /// A start since boot in the ticks of [`ThreadLife::Since`].
    #[must_use]
    pub const fn ticks(start_boot_ns: BootNs) -> u64 {
        start_boot_ns.ns() / 10_000_000
    }
}

/// Looks for thread `tid` of process `pid`, by the kernel's own numbers. Takes some 20
/// microseconds.
#[must_use]
pub fn thread_life(pid: u32, tid: u32) -> ThreadLife {
    static FIRST: OnceLock<bool> = OnceLock::new();
    if !*FIRST.get_or_init(in_first_namespaces) {
        return ThreadLife::Unknown;
    }
    // Asked first: files of /proc can be hidden.
    // SAFETY: plain numbers; signal 0 is none.
    let found = unsafe { libc::syscall(libc::SYS_tgkill, pid, tid, 0) };
    if found != 0 && io::Error::last_os_error().raw_os_error() == Some(libc::ESRCH) {
        return ThreadLife::None;
    }
    match proc_fs::thread_stat(pid, tid) {
        Some(stat) if matches!(stat.state, b'Z' | b'X' | b'x') => ThreadLife::Ended,
        Some(stat) => ThreadLife::Since(stat.start_ticks),
        None => ThreadLife::Unknown,
    }
}

/// Whether this process sees numbers of processes and times since boot as the kernel does.
fn in_first_namespaces() -> bool {
    let is_first = |name: &str, inode: &str| match fs::read_link(format!("/proc/self/ns/{name}")) {
        Ok(link) => link.as_os_str() == format!("{name}:[{inode}]").as_str(),
        // A kernel without such namespaces.
        Err(error) => name == "time" && error.kind() == io::ErrorKind::NotFound,
    };
    // Their inodes are the same on every Linux.
    is_first("pid", "4026531836") && is_first("time", "4026531834")
}

#[cfg(test)]
mod tests {
    use std::process::{Command, Stdio};
    use std::sync::mpsc;

    use super::*;

    #[test]
    fn living_ended_and_missing_threads() {
        // Check that a thread that lives is found with its start, that one that has ended is not,
        // nor one under the number of another process, and that a process that nobody has waited
        // for yet has ended.
        if !in_first_namespaces() {
            assert_eq!(
                thread_life(std::process::id(), std::process::id()),
                ThreadLife::Unknown
            );
            return;
        }
        let own = std::process::id();
        let (tell, told) = mpsc::channel();
        let (end, ended) = mpsc::channel::<()>();
        let thread = std::thread::spawn(move || {
            // SAFETY: takes nothing.
            let tid = unsafe { libc::gettid() }.cast_unsigned();
            tell.send(tid).expect("the test waits");
            ended.recv().expect("the test says when");
        });
        let tid = told.recv().expect("the thread tells its number");
        let stat = proc_fs::thread_stat(own, tid).expect("it lives");
        assert_eq!(thread_life(own, tid), ThreadLife::Since(stat.start_ticks));
        assert_eq!(thread_life(1, tid), ThreadLife::None);
        end.send(()).expect("the thread waits");
        thread.join().expect("it ends");
        // Whoever joins it is told just before the kernel is done with it.
        let mut ended = std::iter::repeat_with(|| {
            std::thread::sleep(std::time::Duration::from_millis(1));
            thread_life(own, tid)
        });
        assert!(
            ended
                .by_ref()
                .take(5000)
                .any(|life| life == ThreadLife::None)
        );

        let mut child = Command::new("true")
            .stdin(Stdio::null())
            .spawn()
            .expect("a process");
        let pid = child.id();
        let ended = std::iter::repeat_with(|| {
            std::thread::sleep(std::time::Duration::from_millis(10));
            thread_life(pid, pid)
        });
        assert!(ended.take(500).any(|life| life == ThreadLife::Ended));
        child.wait().expect("it is this process's child");
        assert_eq!(thread_life(pid, pid), ThreadLife::None);
    }
}
