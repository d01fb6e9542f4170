//! The side-band of the whole machine: forks, execs, executable mappings and exits of every
//! process, in order of time. Owns one ring a processor; what the events mean for a process is
//! `processes`.

use std::{
    io,
    ops::RangeInclusive,
    os::fd::{AsFd as _, AsRawFd as _},
    time::Duration,
};

use super::{
    clock,
    perf_record::{self, Event},
    perf_ring::Ring,
    poll::poll,
    proc_fs,
    time_order::TimeOrder,
    waker::Waker,
};
use tracing::warn;

/// Room for records of one processor, a power of two: from some 500 mappings, or 1000 forks, to
/// what one that makes threads without a pause fills in a quarter of a second.
const RING_BYTES: RangeInclusive<usize> = (64 << 10)..=(256 << 10);
/// Room for those of all processors, unless the least for each is more.
const RINGS_BYTES: usize = 4 << 20;
/// Most records deferred to be put in order.
const MAX_WAITING: usize = 100_000;
/// How soon to look again for records that were deferred: at once, since those that could overtake
/// them are written.
const DEFERRED: Duration = Duration::ZERO;

/// What the side-band has cost and lost so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SideBandCounts {
    /// Records understood.
    pub records: u64,
    /// Records the kernel had no room for.
    pub lost: u64,
    /// Records that were not understood.
    pub malformed: u64,
    /// Records handed on out of order because too many waited.
    pub out_of_order: u64,
    /// Times that a processor that is online could not be given a ring.
    pub refused: u64,
}

/// Bytes of the ring of each of so many processors.
#[must_use]
pub fn ring_bytes(processors: usize) -> usize {
    let share = RINGS_BYTES / processors.max(1).next_power_of_two();
    share.clamp(*RING_BYTES.start(), *RING_BYTES.end())
}

/// All rings together.
#[derive(Debug)]
pub struct SideBand {
    rings: Vec<Ring>,
    ring_bytes: usize,
    polled: Vec<libc::pollfd>,
    order: TimeOrder<Event>,
    counts: SideBandCounts,
    scratch: Vec<u8>,
}

impl SideBand {
    /// Opens a ring of about `ring_bytes` on every processor that is online now; [`Self::follow`]
    /// does for those that come.
    ///
    /// # Errors
    ///
    /// Not allowed (`CAP_PERFMON`, on some distributions `CAP_SYS_ADMIN`), or not one processor
    /// could be opened.
    pub fn open(ring_bytes: usize) -> io::Result<Self> {
        let mut rings = Vec::new();
        for cpu in proc_fs::online_cpus()? {
            match Ring::open(cpu, ring_bytes) {
                Ok(ring) => rings.push(ring),
                Err(error) if went_offline(&error) => {}
                Err(error) => return Err(error),
            }
        }
        if rings.is_empty() {
            return Err(io::Error::other("no processor is online"));
        }
        let mut side_band = Self {
            polled: Vec::new(),
            rings,
            ring_bytes,
            order: TimeOrder::new(MAX_WAITING),
            counts: SideBandCounts::default(),
            scratch: Vec::new(),
        };
        side_band.poll_all();
        Ok(side_band)
    }

    /// Closes the rings of processors that are offline or whose events have `died` (with the
    /// processor, which came back), and opens one on each that is online and has none. True if it
    /// opened any: what happened there before was not heard. To be called after [`Self::read`],
    /// since what is in a ring that is closed is lost.
    pub fn follow(&mut self, online: &[u32], died: &[u32]) -> bool {
        self.rings
            .retain(|ring| online.contains(&ring.cpu()) && !died.contains(&ring.cpu()));
        let kept = self.rings.len();
        for &cpu in online {
            if self.rings.iter().any(|ring| ring.cpu() == cpu) {
                continue;
            }
            match Ring::open(cpu, self.ring_bytes) {
                Ok(ring) => self.rings.push(ring),
                Err(error) if went_offline(&error) => {}
                Err(error) => {
                    self.counts.refused += 1;
                    warn!("process events of processor {cpu} cannot be heard: {error}");
                }
            }
        }
        self.poll_all();
        self.rings.len() > kept
    }

    /// Has [`Self::wait`] wait for all rings.
    fn poll_all(&mut self) {
        let polled = self.rings.iter().map(|ring| libc::pollfd {
            fd: ring.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        self.polled = polled.collect();
    }

    /// Memory of all rings, bytes.
    #[must_use]
    pub fn mapped_bytes(&self) -> usize {
        self.rings.iter().map(Ring::mapped_bytes).sum()
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> SideBandCounts {
        self.counts
    }

    /// Whether more than a quarter of a ring is in use: it is to be read.
    #[must_use]
    pub fn is_filling(&self) -> bool {
        self.rings.iter().any(Ring::is_filling)
    }

    /// Waits until a record is there, `waker` wakes it or `timeout` is over. Whoever loops over
    /// this should sleep some milliseconds after each batch: the kernel wakes for every record.
    ///
    /// # Errors
    ///
    /// The kernel refused to wait (out of memory); a signal is no error.
    pub fn wait(&mut self, timeout: Duration, waker: &Waker) -> io::Result<()> {
        let timeout = if self.order.is_empty() {
            timeout
        } else {
            timeout.min(DEFERRED)
        };
        self.polled.truncate(self.rings.len());
        self.polled.push(libc::pollfd {
            fd: waker.as_fd().as_raw_fd(),
            events: libc::POLLIN,
            revents: 0,
        });
        poll(&mut self.polled, timeout)?;
        if self
            .polled
            .last()
            .is_some_and(|of_waker| of_waker.revents != 0)
        {
            waker.reset();
        }
        Ok(())
    }

    /// Reads all rings and hands over, oldest first, what is older than the beginning of this
    /// reading: anything newer could still be overtaken by a record of another processor.
    pub fn read(&mut self, each: impl FnMut(Event)) {
        let before_ns = clock::monotonic_ns();
        let Self {
            rings,
            order,
            counts,
            scratch,
            ..
        } = self;
        for ring in rings {
            let thrown_away = ring.drain(scratch, |header, bytes| {
                match perf_record::decode(header, bytes) {
                    Ok(Some(event)) => {
                        if let Event::Lost { records, .. } = event {
                            counts.lost = counts.lost.saturating_add(records);
                        }
                        counts.records += 1;
                        order.push(event.time_ns(), event);
                    }
                    Ok(None) => {}
                    Err(_) => counts.malformed += 1,
                }
            });
            counts.malformed += u64::from(thrown_away > 0);
        }
        order.release(before_ns, each);
        counts.out_of_order = order.forced();
    }
}

/// The processor is not there any more: what is online says so soon.
fn went_offline(error: &io::Error) -> bool {
    error.raw_os_error() == Some(libc::ENODEV)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{process::Command, time::Instant};

    // Check that rings are as large as is useful where processors are few, and not too small where
    // they are many.
    #[test]
    fn room_of_processors() {
        let sizes = [0, 2, 16, 17, 64, 512].map(|processors| ring_bytes(processors) >> 10);
        assert_eq!(sizes, [256, 256, 256, 128, 64, 64]);
    }

    // Check that the whole life of a real child is heard, in order of time: fork, exec, its program
    // and library, exit.
    #[test]
    fn hears_a_child() {
        let mut side_band = match SideBand::open(ring_bytes(1)) {
            Ok(side_band) => side_band,
            Err(error) => {
                assert_eq!(error.raw_os_error(), Some(libc::EACCES), "{error}");
                return;
            }
        };
        let start_ns = clock::monotonic_ns();
        let mut child = Command::new("/bin/sleep").arg("0").spawn().unwrap();
        let pid = child.id();
        child.wait().unwrap();
        let end_ns = clock::monotonic_ns();
        let mut heard = Vec::new();
        let deadline = Instant::now() + Duration::from_secs(20);
        while Instant::now() < deadline
            && !heard
                .iter()
                .any(|event| matches!(event, Event::Exit { .. }))
        {
            let waker = Waker::new().unwrap();
            side_band.wait(Duration::from_millis(100), &waker).unwrap();
            side_band.read(|event| {
                let of_child = match &event {
                    Event::Fork { pid, .. } | Event::Comm { pid, .. } | Event::Exit { pid, .. } => {
                        *pid
                    }
                    Event::Mmap(mmap) => mmap.pid,
                    Event::Lost { .. } => 0,
                };
                if of_child == pid {
                    heard.push(event);
                }
            });
        }
        assert!(
            matches!(heard.first(), Some(Event::Fork { ppid, .. }) if *ppid == std::process::id()),
            "{heard:?}"
        );
        let exec = heard.iter().position(
            |event| matches!(event, Event::Comm { exec: true, comm, .. } if &**comm == b"sleep"),
        );
        let program = heard.iter().position(|event| matches!(event, Event::Mmap(mmap) if mmap.path.ends_with(b"/sleep") && mmap.inode != 0));
        assert!(exec.is_some() && exec < program, "{heard:?}");
        assert!(heard.is_sorted_by_key(Event::time_ns), "{heard:?}");
        assert!(
            heard
                .iter()
                .all(|event| (start_ns..=end_ns).contains(&event.time_ns())),
            "{heard:?}"
        );
        assert_eq!(side_band.counts().malformed, 0);
    }

    // Check that many times the ring's size passes through it without a malformed record, and that
    // what did not fit is counted as lost.
    #[test]
    fn wraps_around() {
        let Ok(mut side_band) = SideBand::open(4096) else {
            return;
        };
        let mut forks = 0;
        let mut lost = 0;
        let own = std::process::id();
        for round in 0..300 {
            std::thread::spawn(|| ()).join().unwrap();
            if round % 3 == 0 {
                side_band.read(|event| match event {
                    Event::Fork { pid, ppid, .. } if pid == own && ppid == own => forks += 1,
                    Event::Lost { records, .. } => lost += records,
                    _ => {}
                });
            }
        }
        assert!(forks + lost >= 290, "{forks} {lost}");
        assert_eq!(side_band.counts().malformed, 0);
        assert_eq!(side_band.counts().lost, lost);
    }
}
