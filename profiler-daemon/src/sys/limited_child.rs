//! Runs this program or another one as a child that reads what may be hostile: with bounds on
//! memory, processor, output and time, no new privileges, and only the descriptors that it is
//! given. Input and output are memory files, so that neither side can make the other wait.

use std::{
    fs::File,
    io::{self, Seek as _},
    os::{
        fd::{AsFd as _, AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd, RawFd},
        unix::process::CommandExt as _,
    },
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use rustix::{
    io::{FdFlags, fcntl_setfd},
    process::{
        Pid, PidfdFlags, Resource, Rlimit, Signal, kill_process, pidfd_open,
        set_parent_process_death_signal, setpriority_process, setrlimit,
    },
    thread::set_no_new_privs,
};

use super::{memory_file::memory_file, poll::readable_before};

/// What a child may take.
#[derive(Clone, Copy, Debug)]
pub struct ChildLimits {
    /// Memory of its own (`RLIMIT_DATA`), bytes. What it maps of files does not count.
    pub memory_bytes: u64,
    /// Processor time, whole seconds.
    pub processor_s: u64,
    /// Time that may pass from its start to its end.
    pub time: Duration,
    /// What it may write, bytes.
    pub output_bytes: u64,
}

/// How a child ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ChildEnd {
    /// With this code.
    Exited(i32),
    /// By this signal, which was not sent from here.
    Killed(i32),
    /// It was killed because its time was over.
    Late,
}

/// What became of a child.
#[derive(Debug)]
pub struct ChildOutcome {
    /// How it ended.
    pub ended: ChildEnd,
    /// What it wrote until then, from the beginning; not more than its limit.
    pub output: File,
    /// The most memory that it had resident, mapped files included, bytes.
    pub peak_bytes: u64,
    /// Processor time that it took, nanoseconds.
    pub processor_ns: u64,
}

/// Runs `program` with `arguments` until it ends or its time is over. `input` is its standard
/// input. It inherits `files` under the numbers that they have here.
///
/// # Errors
/// The child cannot be started.
pub fn run(
    program: &PathBuf,
    arguments: &[String],
    files: &[&File],
    input: &[u8],
    limits: ChildLimits,
) -> io::Result<ChildOutcome> {
    let start = Instant::now();
    let mut given = memory_file(input)?;
    given.rewind()?;
    let output = memory_file(b"")?;
    let inherited: Vec<RawFd> = files.iter().map(|file| file.as_raw_fd()).collect();
    let mut command = Command::new(program);
    command
        .args(arguments)
        .env_clear()
        .current_dir("/")
        .stdin(Stdio::from(given))
        .stdout(Stdio::from(output.try_clone()?))
        .stderr(Stdio::null());
    // SAFETY: what runs between fork and exec only makes system calls on plain numbers and on
    // memory made before.
    unsafe {
        command.pre_exec(move || prepare(&inherited, limits));
    }
    let child = command.spawn()?;
    let in_time = wait_until(&child, start + limits.time);
    if !matches!(in_time, Ok(true)) {
        // Nobody has waited for the child, so the number is still its own.
        let killed = kill_process(Pid::from_child(&child), Signal::KILL);
        if let Err(error) = killed {
            tracing::debug!("a child cannot be killed: {error}");
        }
    }
    let (status, usage) = reap(&child)?;
    let ended = if libc::WIFEXITED(status) {
        ChildEnd::Exited(libc::WEXITSTATUS(status))
    } else if in_time? {
        ChildEnd::Killed(libc::WTERMSIG(status))
    } else {
        ChildEnd::Late
    };
    let time_ns = |time: libc::timeval| {
        let (seconds, micros) = (time.tv_sec.cast_unsigned(), time.tv_usec.cast_unsigned());
        seconds * 1_000_000_000 + micros * 1_000
    };
    Ok(ChildOutcome {
        ended,
        output,
        peak_bytes: usage.ru_maxrss.cast_unsigned() << 10,
        processor_ns: time_ns(usage.ru_utime) + time_ns(usage.ru_stime),
    })
}

/// The child's side, before it executes its program. Allocates nothing and takes no lock.
fn prepare(inherited: &[RawFd], limits: ChildLimits) -> io::Result<()> {
    for fd in inherited {
        // SAFETY: the child's own copy of a descriptor that the parent holds open through the
        // start.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(*fd) }, FdFlags::empty())?;
    }
    let bounds = [
        (Resource::Data, limits.memory_bytes),
        (Resource::Cpu, limits.processor_s),
        (Resource::Fsize, limits.output_bytes),
        (Resource::Core, 0),
    ];
    for (resource, most) in bounds {
        let limit = Rlimit {
            current: Some(most),
            maximum: Some(most),
        };
        setrlimit(resource, limit)?;
    }
    // The child ends with the thread that waits for it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    set_no_new_privs(true)?;
    Ok(setpriority_process(None, 10)?)
}

/// The child's side: takes over a file that it was given, by its number. To be called once for
/// each.
///
/// # Errors
/// Nothing is open under that number, or it is one of the three standard ones.
pub fn inherited_file(fd: RawFd) -> io::Result<File> {
    if fd <= libc::STDERR_FILENO {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    // SAFETY: plain numbers.
    if unsafe { libc::fcntl(fd, libc::F_GETFD) } < 0 {
        return Err(io::Error::last_os_error());
    }
    // SAFETY: open, and nobody else in this process knows of it: it was open when the program
    // began.
    Ok(File::from(unsafe { OwnedFd::from_raw_fd(fd) }))
}

/// Whether the child ended before that time.
fn wait_until(child: &Child, deadline: Instant) -> io::Result<bool> {
    let process = pidfd_open(Pid::from_child(child), PidfdFlags::empty())?;
    readable_before(process.as_fd(), deadline)
}

/// Waits for the end, and takes what the child used: rustix has no `wait4`.
fn reap(child: &Child) -> io::Result<(i32, libc::rusage)> {
    // SAFETY: all-zero bytes are a valid rusage.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    let mut status = 0;
    loop {
        let pid = child.id().cast_signed();
        // SAFETY: both places are valid; the child was not waited for yet.
        let ended = unsafe { libc::wait4(pid, &raw mut status, 0, &raw mut usage) };
        if ended == pid {
            return Ok((status, usage));
        }
        let error = io::Error::last_os_error();
        if error.kind() != io::ErrorKind::Interrupted {
            return Err(error);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{io::Read as _, os::unix::fs::FileExt as _};

    const LIMITS: ChildLimits = ChildLimits {
        memory_bytes: 256 << 20,
        processor_s: 10,
        time: Duration::from_secs(60),
        output_bytes: 1 << 20,
    };

    fn shell(script: &str, files: &[&File], limits: ChildLimits) -> (ChildEnd, String) {
        let arguments = ["-c".to_owned(), script.to_owned()];
        let outcome = run(&"/bin/sh".into(), &arguments, files, b"given", limits).unwrap();
        let mut output = vec![0; 4096];
        let length = outcome.output.read_at(&mut output, 0).unwrap();
        let text = String::from_utf8_lossy(&output[..length]).into_owned();
        (outcome.ended, text)
    }

    // Check that a child gets its input and the files it is given, nothing else of this process,
    // and that its answer and code come back.
    #[test]
    fn speaks() {
        let mut file = memory_file(b"a file").unwrap();
        file.rewind().unwrap();
        let other = memory_file(b"").unwrap();
        let fd = file.as_raw_fd();
        let not_given = other.as_raw_fd();
        // The shell itself looks for what it was not given: a program of its own would have opened
        // descriptors of its own. It reads the file by its path, because the number may have two
        // digits, which a shell does not redirect.
        let script = format!(
            "cat; echo; cat /proc/self/fd/{fd}; echo; [ -h /proc/self/fd/{not_given} ] && echo inherited; env | grep -c CARGO; nice; grep NoNewPrivs /proc/self/status; exit 7"
        );
        let (ended, text) = shell(&script, &[&file], LIMITS);
        assert_eq!(ended, ChildEnd::Exited(7));
        assert_eq!(text, "given\na file\n0\n10\nNoNewPrivs:\t1\n");
        let mut own = String::new();
        File::open("/proc/self/status")
            .unwrap()
            .read_to_string(&mut own)
            .unwrap();
        assert!(own.contains("NoNewPrivs:\t0"), "only the child's");
    }

    // Check that each bound ends a child that goes beyond it, each in its way, and that what it
    // wrote before is kept.
    #[test]
    fn bounds() {
        let time = Duration::from_secs(2);
        let (ended, text) = shell("echo begun; sleep 600", &[], ChildLimits { time, ..LIMITS });
        assert_eq!((ended, text.as_str()), (ChildEnd::Late, "begun\n"));
        let processor_s = 1;
        let short = ChildLimits {
            processor_s,
            ..LIMITS
        };
        let (ended, _) = shell("while :; do :; done", &[], short);
        assert_eq!(ended, ChildEnd::Killed(libc::SIGKILL));
        let output_bytes = 4;
        let narrow = ChildLimits {
            output_bytes,
            ..LIMITS
        };
        let (_, text) = shell("cat; exec cat /proc/self/status", &[], narrow);
        assert_eq!(text, "give");
        let (ended, _) = shell("kill -SEGV $$", &[], LIMITS);
        assert_eq!(ended, ChildEnd::Killed(libc::SIGSEGV));
        let missing = run(&"/nonexistent".into(), &[], &[], b"", LIMITS);
        assert_eq!(missing.unwrap_err().kind(), io::ErrorKind::NotFound);
    }
}
