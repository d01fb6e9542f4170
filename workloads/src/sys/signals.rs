//! Signals, timers, and the calls that end a process, let another run or keep it from running.

use std::io;

use super::{checked, raw, timespec};

/// Sets a handler; calls that can are begun again after it.
pub(crate) fn on_signal(signal: libc::c_int, handler: extern "C" fn(libc::c_int)) {
    // SAFETY: the handlers of the programs touch atomics and read a clock, both allowed in a
    // handler.
    unsafe { libc::signal(signal, handler as libc::sighandler_t) };
}

/// SIGALRM every so many microseconds; 0: no more.
pub(crate) fn interval_timer(every_us: i64) {
    let every = libc::timeval {
        tv_sec: 0,
        tv_usec: every_us,
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: a valid timer value; the old one is not asked for.
    unsafe {
        raw(
            libc::SYS_setitimer,
            [
                libc::ITIMER_REAL as usize,
                &raw const timer as usize,
                0,
                0,
                0,
                0,
            ],
        )
    };
}

/// A descriptor that can be read once its time has come.
pub(crate) fn timer_fd() -> io::Result<i32> {
    // SAFETY: plain numbers.
    checked(unsafe {
        raw(
            libc::SYS_timerfd_create,
            [libc::CLOCK_MONOTONIC as usize, 0, 0, 0, 0, 0],
        )
    })
    .map(|fd| fd as i32)
}

/// Its time comes once, in so many nanoseconds.
pub(crate) fn arm_timer_fd(fd: i32, in_ns: u64) {
    let once = libc::itimerspec {
        it_interval: timespec(0),
        it_value: timespec(in_ns),
    };
    // SAFETY: a valid time; the old one is not asked for.
    unsafe {
        raw(
            libc::SYS_timerfd_settime,
            [fd as usize, 0, &raw const once as usize, 0, 0, 0],
        )
    };
}

/// Sleeps until a time of the monotonic clock.
#[inline(always)]
pub(crate) fn sleep_until(at_ns: u64) {
    let time = timespec(at_ns);
    // SAFETY: `time` outlives the call; no remainder is asked for.
    unsafe {
        raw(
            libc::SYS_clock_nanosleep,
            [
                libc::CLOCK_MONOTONIC as usize,
                libc::TIMER_ABSTIME as usize,
                &raw const time as usize,
                0,
                0,
                0,
            ],
        )
    };
}

/// Sends a signal.
pub(crate) fn kill(pid: i32, signal: libc::c_int) {
    // SAFETY: plain numbers; the pid is a child that was not reaped.
    unsafe { raw(libc::SYS_kill, [pid as usize, signal as usize, 0, 0, 0, 0]) };
}

/// Sets how much of a processor others may take from this thread and what it starts, which becomes
/// a session of its own: where the kernel shares processors among sessions first, niceness within
/// one says nothing about others.
pub(crate) fn renice(nice: i32) -> io::Result<()> {
    // SAFETY: no arguments. It fails for the leader of a group, as which no profiler's test starts
    // a program.
    unsafe { raw(libc::SYS_setsid, [0; 6]) };
    if std::path::Path::new("/proc/self/autogroup").exists() {
        std::fs::write("/proc/self/autogroup", nice.to_string())?;
    }
    // SAFETY: plain numbers; 0 is the calling thread.
    checked(unsafe {
        raw(
            libc::SYS_setpriority,
            [libc::PRIO_PROCESS as usize, 0, nice as usize, 0, 0, 0],
        )
    })
    .map(drop)
}

/// Lets another thread run.
#[inline(always)]
pub(crate) fn sched_yield() {
    // SAFETY: no arguments.
    unsafe { raw(libc::SYS_sched_yield, [0; 6]) };
}

/// Ends the whole process by a call of this function's own.
#[inline(always)]
pub(crate) fn exit_group(status: i32) -> ! {
    // SAFETY: does not return, touches no memory.
    unsafe { raw(libc::SYS_exit_group, [status as usize, 0, 0, 0, 0, 0]) };
    super::exit_now(status)
}
