//! The system calls of the workloads, each made by an instruction inside the function that asks for
//! it.
//!
//! The C library's wrappers keep no frame pointer: behind them the calling function would be
//! missing from a frame pointer walk, and with it the known answer. So the instruction is inlined.
//! All of this package's `unsafe` is here and in the programs that need a raw handler or code page.

mod memory;
mod signals;
mod transfer;

use std::io;

pub(crate) use memory::*;
pub(crate) use signals::*;
pub(crate) use transfer::*;

/// What the host has taken from this virtual machine's processors since boot, nanoseconds; 0 where
/// that is not told.
pub(crate) fn stolen_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let ticks = text.split_ascii_whitespace().nth(8);
    ticks
        .and_then(|ticks| ticks.parse::<u64>().ok())
        .unwrap_or(0)
        * 10_000_000
}

/// Makes system call `number` and returns the kernel's raw answer (a negative error number on
/// failure).
///
/// # Safety
/// The arguments must be what this system call expects: valid pointers and lengths where it reads
/// or writes memory.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) unsafe fn raw(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let answer: isize;
    // SAFETY: the instruction clobbers rcx, r11 and rax only; memory effects are the caller's
    // promise.
    unsafe {
        std::arch::asm!(
            "syscall",
            inlateout("rax") number as isize => answer,
            in("rdi") arguments[0], in("rsi") arguments[1], in("rdx") arguments[2],
            in("r10") arguments[3], in("r8") arguments[4], in("r9") arguments[5],
            lateout("rcx") _, lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// As above, through the C library: a processor whose system call instruction is not spelled here.
///
/// # Safety
/// As above.
#[cfg(not(target_arch = "x86_64"))]
#[inline(always)]
pub(crate) unsafe fn raw(number: libc::c_long, arguments: [usize; 6]) -> isize {
    let [a, b, c, d, e, f] = arguments;
    // SAFETY: the caller's promise.
    let answer = unsafe { libc::syscall(number, a, b, c, d, e, f) };
    if answer == -1 {
        -(io::Error::last_os_error()
            .raw_os_error()
            .unwrap_or(libc::EIO) as isize)
    } else {
        answer as isize
    }
}

/// The kernel's answer as a result.
pub(crate) fn checked(answer: isize) -> io::Result<usize> {
    if answer < 0 {
        Err(io::Error::from_raw_os_error(-answer as i32))
    } else {
        Ok(answer as usize)
    }
}

/// Monotonic clock, nanoseconds; read without a system call.
pub(crate) fn monotonic_ns() -> u64 {
    clock_ns(libc::CLOCK_MONOTONIC)
}

/// Time of this thread on a processor, nanoseconds. A system call.
pub(crate) fn thread_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// What all threads of this process have run, those that have ended too.
pub(crate) fn process_cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID)
}

/// Wall clock, nanoseconds since 1970.
pub(crate) fn unix_ns() -> u64 {
    clock_ns(libc::CLOCK_REALTIME)
}

fn clock_ns(clock: libc::clockid_t) -> u64 {
    let mut time = timespec(0);
    // SAFETY: `time` is a valid place for the answer.
    unsafe { libc::clock_gettime(clock, &raw mut time) };
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

#[inline(always)]
const fn timespec(ns: u64) -> libc::timespec {
    libc::timespec {
        tv_sec: (ns / 1_000_000_000) as i64,
        tv_nsec: (ns % 1_000_000_000) as i64,
    }
}

/// Sleeps once, at least `ns` nanoseconds unless a signal ends it.
#[inline(always)]
pub(crate) fn nanosleep(ns: u64) {
    let time = timespec(ns);
    // SAFETY: `time` outlives the call; no remainder is asked for.
    unsafe {
        raw(
            libc::SYS_nanosleep,
            [&raw const time as usize, 0, 0, 0, 0, 0],
        )
    };
}

/// One `getppid`.
#[inline(always)]
pub(crate) fn getppid() -> isize {
    // SAFETY: no arguments.
    unsafe { raw(libc::SYS_getppid, [0; 6]) }
}

/// One `getpid`.
#[inline(always)]
pub(crate) fn getpid() -> isize {
    // SAFETY: no arguments.
    unsafe { raw(libc::SYS_getpid, [0; 6]) }
}

/// This thread's id.
pub(crate) fn gettid() -> u32 {
    // SAFETY: no arguments.
    unsafe { raw(libc::SYS_gettid, [0; 6]) as u32 }
}

/// Reads once from a file descriptor.
#[inline(always)]
pub(crate) fn read(fd: i32, buffer: &mut [u8]) -> isize {
    // SAFETY: the buffer is valid for its length.
    unsafe {
        raw(
            libc::SYS_read,
            [
                fd as usize,
                buffer.as_mut_ptr() as usize,
                buffer.len(),
                0,
                0,
                0,
            ],
        )
    }
}

/// Writes once to a file descriptor.
#[inline(always)]
pub(crate) fn write(fd: i32, buffer: &[u8]) -> isize {
    // SAFETY: the buffer is valid for its length.
    unsafe {
        raw(
            libc::SYS_write,
            [fd as usize, buffer.as_ptr() as usize, buffer.len(), 0, 0, 0],
        )
    }
}

/// Writes everything, or stops at the first error: there is nobody left to tell.
pub(crate) fn write_all(fd: i32, mut bytes: &[u8]) {
    while !bytes.is_empty() {
        let written = write(fd, bytes);
        if written <= 0 {
            return;
        }
        bytes = &bytes[written as usize..];
    }
}

/// Sleeps while `*word == expected`, until woken.
#[inline(always)]
pub(crate) fn futex_wait(word: &std::sync::atomic::AtomicU32, expected: u32) {
    let address = word.as_ptr() as usize;
    // SAFETY: the word outlives the call; no timeout.
    unsafe {
        raw(
            libc::SYS_futex,
            [
                address,
                libc::FUTEX_WAIT as usize,
                expected as usize,
                0,
                0,
                0,
            ],
        )
    };
}

/// Wakes up to `count` sleepers on `word`.
#[inline(always)]
pub(crate) fn futex_wake(word: &std::sync::atomic::AtomicU32, count: u32) {
    let address = word.as_ptr() as usize;
    // SAFETY: the word is only used as an address.
    unsafe {
        raw(
            libc::SYS_futex,
            [address, libc::FUTEX_WAKE as usize, count as usize, 0, 0, 0],
        )
    };
}

/// Sleeps in `poll` on one descriptor until it is readable, or `timeout_ms` has passed (negative:
/// no limit).
#[inline(always)]
pub(crate) fn poll(fd: i32, timeout_ms: i32) {
    let mut entry = libc::pollfd {
        fd,
        events: libc::POLLIN,
        revents: 0,
    };
    // SAFETY: one valid entry.
    unsafe {
        raw(
            libc::SYS_poll,
            [&raw mut entry as usize, 1, timeout_ms as usize, 0, 0, 0],
        )
    };
}

/// An epoll instance that waits for input on `fd`.
pub(crate) fn epoll(fd: i32) -> io::Result<i32> {
    // SAFETY: takes flags.
    let epoll = checked(unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) } as isize)? as i32;
    let mut event = libc::epoll_event {
        events: libc::EPOLLIN as u32,
        u64: 0,
    };
    // SAFETY: valid descriptors, a valid event.
    checked(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &raw mut event) } as isize)?;
    Ok(epoll)
}

/// Waits for an event, for ever.
pub(crate) fn epoll_wait(epoll: i32) {
    let mut event = libc::epoll_event { events: 0, u64: 0 };
    // SAFETY: room for one event.
    unsafe { libc::epoll_wait(epoll, &raw mut event, 1, -1) };
}

/// A pipe: (reading end, writing end), inherited by children.
pub(crate) fn pipe() -> io::Result<(i32, i32)> {
    let mut ends = [0i32; 2];
    // SAFETY: room for two descriptors.
    checked(unsafe { raw(libc::SYS_pipe2, [ends.as_mut_ptr() as usize, 0, 0, 0, 0, 0]) })?;
    Ok((ends[0], ends[1]))
}

/// Closes a descriptor that nothing else owns.
pub(crate) fn close(fd: i32) {
    // SAFETY: only raw descriptors made in this file are passed in.
    unsafe { raw(libc::SYS_close, [fd as usize, 0, 0, 0, 0, 0]) };
}

/// An event counter descriptor.
pub(crate) fn eventfd() -> io::Result<i32> {
    // SAFETY: plain numbers.
    checked(unsafe { raw(libc::SYS_eventfd2, [0; 6]) }).map(|fd| fd as i32)
}

/// Pins the calling thread to one processor.
pub(crate) fn pin(cpu: usize) -> io::Result<()> {
    let mut set = [0u64; 16];
    set[(cpu / 64) % set.len()] = 1 << (cpu % 64);
    // SAFETY: the set is valid for its length; pid 0 is the calling thread.
    checked(unsafe {
        raw(
            libc::SYS_sched_setaffinity,
            [0, size_of_val(&set), set.as_ptr() as usize, 0, 0, 0],
        )
    })?;
    Ok(())
}

/// How many processors there are.
pub(crate) fn processors() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

/// Names the calling thread: any bytes but zero, cut to 15 by the kernel.
pub(crate) fn set_comm(name: &[u8]) {
    let mut bytes = [0u8; 16];
    let length = name.len().min(15);
    bytes[..length].copy_from_slice(&name[..length]);
    // SAFETY: a terminated name of at most 16 bytes.
    unsafe {
        raw(
            libc::SYS_prctl,
            [
                libc::PR_SET_NAME as usize,
                bytes.as_ptr() as usize,
                0,
                0,
                0,
                0,
            ],
        )
    };
}

/// What the kernel charged so far.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Usage {
    /// Processor time in user mode.
    pub(crate) user_ns: u64,
    /// Processor time in the kernel.
    pub(crate) system_ns: u64,
    /// Context switches by sleeping.
    pub(crate) voluntary_switches: u64,
    /// Context switches by preemption.
    pub(crate) involuntary_switches: u64,
}

/// Usage of the process (`RUSAGE_SELF`), the calling thread (`RUSAGE_THREAD`) or reaped children
/// (`RUSAGE_CHILDREN`).
pub(crate) fn usage(whose: libc::c_int) -> Usage {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place for the answer.
    unsafe { libc::getrusage(whose, &raw mut usage) };
    from_rusage(&usage)
}

fn from_rusage(usage: &libc::rusage) -> Usage {
    let ns = |time: libc::timeval| time.tv_sec as u64 * 1_000_000_000 + time.tv_usec as u64 * 1000;
    Usage {
        user_ns: ns(usage.ru_utime),
        system_ns: ns(usage.ru_stime),
        voluntary_switches: usage.ru_nvcsw as u64,
        involuntary_switches: usage.ru_nivcsw as u64,
    }
}

/// Forks without executing; `child` runs in the child, which then ends with status 0 without any
/// clean-up.
pub(crate) fn fork(child: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: the programs that fork have one thread, so the child's copy of the process is whole.
    let pid = unsafe { libc::fork() };
    match pid {
        -1 => Err(io::Error::last_os_error()),
        0 => {
            child();
            exit_now(0)
        }
        pid => Ok(pid),
    }
}

/// Forks as `fork` does, but the child gets exactly this pid. Needs CAP_SYS_ADMIN or
/// CAP_CHECKPOINT_RESTORE.
pub(crate) fn fork_as(wanted_pid: i32, child: impl FnOnce()) -> io::Result<i32> {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut arguments: libc::clone_args = unsafe { std::mem::zeroed() };
    arguments.exit_signal = libc::SIGCHLD as u64;
    arguments.set_tid = &raw const wanted_pid as u64;
    arguments.set_tid_size = 1;
    // SAFETY: without a new stack and without shared memory this is a plain fork of a process with
    // one thread.
    let pid = checked(unsafe {
        raw(
            libc::SYS_clone3,
            [
                &raw mut arguments as usize,
                size_of::<libc::clone_args>(),
                0,
                0,
                0,
                0,
            ],
        )
    })?;
    if pid == 0 {
        child();
        exit_now(0)
    }
    Ok(pid as i32)
}

/// Ends the whole process at once.
pub(crate) fn exit_now(status: i32) -> ! {
    // SAFETY: does not return, touches no memory.
    unsafe { libc::_exit(status) }
}

/// Waits for one child (`-1`: any) and returns (pid, what it used).
#[inline(always)]
pub(crate) fn wait_child(pid: i32) -> io::Result<(i32, Usage)> {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: the structure is a valid place for the answer; no status is asked for.
    let answer = unsafe {
        raw(
            libc::SYS_wait4,
            [pid as usize, 0, 0, &raw mut usage as usize, 0, 0],
        )
    };
    checked(answer).map(|pid| (pid as i32, from_rusage(&usage)))
}
