//! The timer of one processor that runs a kernel program at each tick. How far apart ticks are can
//! be changed while it runs; by how much, and when, is decided by whoever owns it.

use std::{
    fs::File,
    io,
    os::fd::{AsRawFd as _, BorrowedFd},
};

use perf_event_open_sys::bindings::{
    ENABLE, PERF_COUNT_SW_CPU_CLOCK, PERIOD, SET_BPF, perf_event_attr,
};

use super::perf_attr::open_software;

/// An open timer; closing it detaches the program. It dies with its processor: one that went
/// offline and came back needs a new one, and the old one does not tell.
#[derive(Debug)]
pub struct TickEvent {
    event: File,
}

impl TickEvent {
    /// Has `program` run on this processor every `period_ns` from now on, for the first time after
    /// the whole period.
    ///
    /// # Errors
    ///
    /// Not allowed (`CAP_PERFMON` or `CAP_SYS_ADMIN` missing), the processor is not online
    /// (`ENODEV`), out of memory or files, or `program` is none for such an event.
    pub fn open(cpu: u32, period_ns: u64, program: BorrowedFd<'_>) -> io::Result<Self> {
        let mut attr = perf_event_attr {
            config: PERF_COUNT_SW_CPU_CLOCK.into(),
            ..perf_event_attr::default()
        };
        // A period, not a frequency: only then can it be changed in nanoseconds.
        attr.sample_period = period_ns;
        attr.set_disabled(1);
        let event = open_software(attr, cpu)?;
        // SAFETY: this request takes a number, the descriptor of a program.
        done(unsafe { libc::ioctl(event.as_raw_fd(), SET_BPF.into(), program.as_raw_fd()) })?;
        // SAFETY: this request takes a number of flags.
        done(unsafe { libc::ioctl(event.as_raw_fd(), ENABLE.into(), 0) })?;
        Ok(Self { event })
    }

    /// Changes the period. The one that is under way is given up: the next tick is a whole new
    /// period from now. (The kernel restarts its timer; tried on 6.18, and so in its source since
    /// 5.10.) Takes 2 to 40 us, an interrupt on that processor included. Does nothing, and tells
    /// nothing, where the processor went offline.
    ///
    /// # Errors
    ///
    /// The kernel refuses: a period of 0, or one above 2^63.
    pub fn set_period(&self, period_ns: u64) -> io::Result<()> {
        // SAFETY: this request reads one u64, which outlives the call. (The function that
        // perf_event_open_sys has for it hands over the number itself.)
        done(unsafe { libc::ioctl(self.event.as_raw_fd(), PERIOD.into(), &raw const period_ns) })
    }
}

fn done(answer: libc::c_int) -> io::Result<()> {
    if answer < 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(())
}
