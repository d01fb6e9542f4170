//! Reads the memory of other processes without ever waiting for it longer than a given time, and
//! without paging anything in.
//!
//! Whose memory is read can make the reader wait: a page may be one that a program has to bring,
//! and does not (userfaultfd, FUSE), or its lists of pages may be locked. So it is read in a child
//! of this process, under a deadline; who is late is killed, which such a wait allows
//! (`process_vm_readv`, unlike `/proc/PID/mem`). And only what `/proc/PID/pagemap` says is in
//! memory is read, so the wait is a race that hardly ever happens.

mod child;
mod shared;

use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd};
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::io::{FdFlags, fcntl_setfd};
use rustix::process::{Signal, set_parent_process_death_signal};

use super::memory_file::memory_file;
use super::poll::readable_before;
use shared::{RangeState, SharedPages};

pub use child::run;
pub use shared::{MAX_RANGES, PAGE_BYTES, RANGE_PAGES};

/// The name of the subcommand that is the child.
pub const SUBCOMMAND: &str = "read-memory";
/// The child ends when it has had nothing to do for so long.
const IDLE: Duration = Duration::from_secs(10);
/// A child begins within this time.
const START_WITHIN: Duration = Duration::from_secs(1);
/// Children that were killed and have not ended yet. With more of them none is started.
const MAX_DYING: usize = 4;

/// A page of memory.
pub type Page = [u8; PAGE_BYTES];

/// Memory that is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PageRange {
    /// A thread of the process.
    pub tid: u32,
    /// Number of the first page: address / [`PAGE_BYTES`].
    pub first: u64,
    /// How many pages, at most [`RANGE_PAGES`].
    pub count: u32,
}

/// What became of the ranges that were asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadEnd {
    /// All were looked at.
    Whole,
    /// The reader was killed because its time was over, while it read the range of this index.
    /// Those before were looked at.
    Late(usize),
    /// It ended by itself while it read the range of this index.
    Died(usize),
}

/// What was found in a range.
#[derive(Clone, Copy, Debug)]
pub enum FoundPages<'a> {
    /// The pages, in order; `None` for one that is not in memory, or could not be read.
    Pages(&'a [Option<Page>]),
    /// The process cannot be read: it is gone, or this process may not.
    Refused,
}

/// How children went.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ReaderCounts {
    /// Children started.
    pub started: u64,
    /// Those that were killed because they were late.
    pub late: u64,
    /// Those that ended by themselves.
    pub died: u64,
}

/// See the module. To be used by one thread: its child ends with it.
#[derive(Debug)]
pub struct MemoryReader {
    command: Box<[String]>,
    program: PathBuf,
    running: Option<Running>,
    dying: Vec<Child>,
    used: Instant,
    counts: ReaderCounts,
}

#[derive(Debug)]
struct Running {
    child: Child,
    shared: SharedPages,
    ask: io::PipeWriter,
    answer: io::PipeReader,
}

impl MemoryReader {
    /// One that starts `program` with `command` as its arguments, as [`run`] expects it, when it is
    /// needed.
    #[must_use]
    pub fn new(program: PathBuf, command: &[&str]) -> Self {
        Self {
            command: command.iter().map(|word| (*word).to_owned()).collect(),
            program,
            running: None,
            dying: Vec::new(),
            used: Instant::now(),
            counts: ReaderCounts::default(),
        }
    }

    /// How children went so far.
    #[must_use]
    pub const fn counts(&self) -> ReaderCounts {
        self.counts
    }

    /// Reads the ranges, at most [`MAX_RANGES`] of them, within `time`; `each` gets what was found
    /// by the range's index.
    ///
    /// # Errors
    /// No child can be had.
    pub fn read(
        &mut self,
        ranges: &[PageRange],
        time: Duration,
        each: &mut dyn FnMut(usize, FoundPages<'_>),
    ) -> io::Result<ReadEnd> {
        let ranges = &ranges[..ranges.len().min(MAX_RANGES)];
        self.reap();
        self.used = Instant::now();
        let mut running = match self.running.take() {
            Some(running) => running,
            None => self.start()?,
        };
        running.shared.ask(ranges);
        if running.ask.write_all(&[0]).is_err() {
            // It ended while it had nothing to do, which is nobody's fault whose memory is asked
            // for.
            self.counts.died += 1;
            self.end(running.child);
            running = self.start()?;
            running.shared.ask(ranges);
            running.ask.write_all(&[0])?;
        }
        let answered = wait(&running, Instant::now() + time);
        let done = running.shared.done().min(ranges.len());
        for (index, range) in ranges[..done].iter().enumerate() {
            let count = (range.count as usize).min(RANGE_PAGES);
            match running.shared.answer(index) {
                RangeState::Refused => each(index, FoundPages::Refused),
                RangeState::Read(present) => {
                    let mut pages = [None; RANGE_PAGES];
                    for (page, place) in pages[..count].iter_mut().enumerate() {
                        if present & (1 << page) != 0 {
                            *place = Some(running.shared.page(index, page));
                        }
                    }
                    each(index, FoundPages::Pages(&pages[..count]));
                }
            }
        }
        match answered {
            Ok(true) if running.answer.read_exact(&mut [0]).is_ok() => {
                self.running = Some(running);
                Ok(ReadEnd::Whole)
            }
            Ok(true) | Err(_) => {
                self.counts.died += 1;
                self.end(running.child);
                Ok(ReadEnd::Died(done))
            }
            Ok(false) => {
                self.counts.late += 1;
                self.end(running.child);
                Ok(ReadEnd::Late(done))
            }
        }
    }

    /// Ends a child that had nothing to do for some time, and takes note of those that have ended.
    pub fn rest(&mut self) {
        if self.used.elapsed() >= IDLE
            && let Some(running) = self.running.take()
        {
            self.end(running.child);
        }
        self.reap();
    }

    /// Starts a child.
    fn start(&mut self) -> io::Result<Running> {
        if self.dying.len() >= MAX_DYING {
            return Err(io::Error::other(
                "too many readers that were killed have not ended yet",
            ));
        }
        let file = memory_file(b"")?;
        let shared = SharedPages::create(&file)?;
        let (asked, ask) = io::pipe()?;
        let (answer, answering) = io::pipe()?;
        let files = [file.as_raw_fd(), asked.as_raw_fd(), answering.as_raw_fd()];
        let mut command = Command::new(&self.program);
        command
            .args(self.command.iter())
            .args(files.map(|fd| fd.to_string()))
            .env_clear()
            .current_dir("/")
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null());
        // SAFETY: what runs between fork and exec only makes system calls on plain numbers.
        unsafe {
            command.pre_exec(move || prepare(files));
        }
        let mut running = Running {
            child: command.spawn()?,
            shared,
            ask,
            answer,
        };
        self.counts.started += 1;
        // What only the child is to have open: else its end would not show.
        drop((asked, answering));
        // A question for nothing: from here on, who is late is late because of what it reads.
        running.shared.ask(&[]);
        let ready = running
            .ask
            .write_all(&[0])
            .and_then(|()| wait(&running, Instant::now() + START_WITHIN));
        let why = match ready {
            Ok(true) if running.answer.read_exact(&mut [0]).is_ok() => return Ok(running),
            Ok(false) => io::Error::new(
                io::ErrorKind::TimedOut,
                "the reader of memory does not begin in time",
            ),
            Ok(true) | Err(_) => io::Error::other("the reader of memory ends as it begins"),
        };
        self.counts.died += 1;
        self.end(running.child);
        Err(why)
    }

    /// Kills a child. Its end is not waited for: a wait that cannot be killed would be this
    /// process's then.
    fn end(&mut self, mut child: Child) {
        if let Err(error) = child.kill() {
            tracing::debug!("a reader of memory cannot be killed: {error}");
        }
        self.dying.push(child);
        self.reap();
    }

    fn reap(&mut self) {
        self.dying
            .retain_mut(|child| !matches!(child.try_wait(), Ok(Some(_)) | Err(_)));
    }
}

impl Drop for MemoryReader {
    fn drop(&mut self) {
        if let Some(running) = self.running.take() {
            self.end(running.child);
        }
    }
}

/// The child's side, before it executes its program.
fn prepare(files: [i32; 3]) -> io::Result<()> {
    // The child ends with the thread that asks it.
    set_parent_process_death_signal(Some(Signal::KILL))?;
    for fd in files {
        // SAFETY: the child's own copy of a descriptor that the parent holds open through the
        // start.
        fcntl_setfd(unsafe { BorrowedFd::borrow_raw(fd) }, FdFlags::empty())?;
    }
    Ok(())
}

/// Whether the child answered, or ended, before that time.
fn wait(running: &Running, deadline: Instant) -> io::Result<bool> {
    readable_before(running.answer.as_fd(), deadline)
}

#[cfg(test)]
pub(crate) mod tests;
