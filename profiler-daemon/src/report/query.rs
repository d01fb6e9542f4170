//! What can be asked.

use std::{fmt, str::FromStr};

use profiler_common::Class;
use serde::Serialize;

use super::product::Values;
use crate::profile::name::Name;
use crate::units::UnixNs;

/// Whose functions count.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum FrameScope {
    /// Time in the kernel belongs to the user function that called it.
    #[default]
    User,
    /// Kernel functions are functions too.
    All,
}

/// The direction of a sort.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Largest first.
    #[default]
    Desc,
    /// Smallest first.
    Asc,
}

/// What time an answer covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Window {
    /// Since the session began.
    #[default]
    Session,
    /// As much of the recent past as is kept in buckets.
    Kept,
    /// What a person wants who says nothing: the last 30 s of a session that is older than 5
    /// minutes, else the session.
    Recent,
    /// The most recent part.
    Last {
        /// Nanoseconds; rounded up to whole buckets.
        duration_ns: u64,
    },
    /// From one moment to another, rounded outward to whole buckets.
    Between {
        /// The first moment.
        from: Moment,
        /// The last one; now where there is none, or where it is still to come.
        to: Option<Moment>,
    },
    /// A named session, or a span of one.
    Named {
        /// The session.
        session: Name,
        /// The span; all of it without.
        span: Option<Name>,
    },
}

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Moment {
    /// By the clock.
    At {
        /// Nanoseconds since 1970.
        unix_ns: UnixNs,
    },
    /// So long before the pass that the answer is made from.
    Ago {
        /// Nanoseconds.
        ns: u64,
    },
}

/// Names one process: by number, and by start time where the number was reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProcessSelector {
    /// The process.
    pub pid: u32,
    /// Its start in 10 ms ticks since boot, field 22 of /proc/PID/stat; without it the newest of
    /// that number is meant.
    pub start_ticks: Option<u64>,
}

/// Text that names no process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a process is written as PID or PID.START_TICKS, for example 1234 or 1234.56789")]
pub struct NotASelector;

/// Reads `1234` and `1234.5678`.
impl FromStr for ProcessSelector {
    type Err = NotASelector;

    fn from_str(text: &str) -> Result<Self, NotASelector> {
        fn number<T: FromStr>(digits: &str) -> Result<T, NotASelector> {
            // from_str alone would take a leading "+".
            if digits.bytes().all(|b| b.is_ascii_digit()) {
                digits.parse().map_err(|_| NotASelector)
            } else {
                Err(NotASelector)
            }
        }
        let (pid, start) = match text.split_once('.') {
            Some((pid, start)) => (pid, Some(start)),
            None => (text, None),
        };
        Ok(Self {
            pid: number(pid)?,
            start_ticks: start.map(number).transpose()?,
        })
    }
}

impl fmt::Display for ProcessSelector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.pid)?;
        match self.start_ticks {
            Some(ticks) => write!(f, ".{ticks}"),
            None => Ok(()),
        }
    }
}

/// Names the processes of one image that ended and are kept as one: the file that they executed
/// last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ImageId {
    /// A file; the number is made of its device, inode and path.
    File(u64),
    /// Kernel threads.
    Kernel,
    /// All images without a place of their own.
    Other,
}

/// Text that names no image.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("an image is named by the id of its row in /api/v1/processes")]
pub struct NotAnImage;

impl FromStr for ImageId {
    type Err = NotAnImage;

    fn from_str(text: &str) -> Result<Self, NotAnImage> {
        match text {
            "kernel" => Ok(Self::Kernel),
            "other" => Ok(Self::Other),
            _ if text.len() == 16 && text.bytes().all(|b| b.is_ascii_hexdigit()) => {
                let number = u64::from_str_radix(text, 16);
                number.map(Self::File).map_err(|_| NotAnImage)
            }
            _ => Err(NotAnImage),
        }
    }
}

impl fmt::Display for ImageId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(number) => write!(f, "{number:016x}"),
            Self::Kernel => f.write_str("kernel"),
            Self::Other => f.write_str("other"),
        }
    }
}

/// Most characters of the name of processes: the kernel keeps 15 bytes, and `[kernel threads]` is
/// one more.
pub const MAX_COMM_CHARS: usize = 16;

/// The name of processes, as rows show it. It lies in place, so that questions that hold one can be
/// copied.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Comm {
    bytes: [u8; 4 * MAX_COMM_CHARS],
    len: u8,
}

/// Text that is the name of no process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be the name of processes, 1 to {MAX_COMM_CHARS} characters")]
pub struct NotAComm;

impl FromStr for Comm {
    type Err = NotAComm;

    fn from_str(text: &str) -> Result<Self, NotAComm> {
        if text.is_empty() || text.chars().count() > MAX_COMM_CHARS {
            return Err(NotAComm);
        }
        let mut bytes = [0; 4 * MAX_COMM_CHARS];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(Self {
            bytes,
            len: text.len() as u8,
        })
    }
}

impl Comm {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)]).expect("it was made of a text")
    }
}

impl fmt::Debug for Comm {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self.as_str(), f)
    }
}

/// Whose rows are asked for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Scope {
    /// All processes, dropped ones included.
    #[default]
    Session,
    /// One process.
    Process(ProcessSelector),
    /// Processes that ended and are one by the file that they executed last.
    Image(ImageId),
    /// All processes of one name.
    Named(Comm),
}

/// A question whose answer has no rows to choose from.
#[derive(Clone, Copy, Debug, Default)]
pub struct ViewQuery {
    /// Whose functions count.
    pub frames: FrameScope,
    /// What time is covered.
    pub window: Window,
}

/// A question for a table.
#[derive(Clone, Debug, Default)]
pub struct TableQuery {
    /// The column to sort by, dotted as in the JSON; the table's own default without.
    pub sort: Option<String>,
    /// Without a column, rows of what ran are sorted by their time on processors, as texts show it.
    pub busiest_first: bool,
    /// The direction of the sort.
    pub order: Order,
    /// Most rows answered; 0 = all.
    pub limit: usize,
    /// Only rows whose name contains this, in any case.
    pub q: Option<String>,
    /// Whose functions count.
    pub frames: FrameScope,
    /// What time is covered.
    pub window: Window,
    /// Whose frames are folded into their callers. Tables of modules, threads and processes show
    /// all.
    pub fold: Fold,
}

/// A question for a timeline.
#[derive(Clone, Debug, Default)]
pub struct TimelineQuery {
    /// Which rows, in which order, over which time. Whose functions count does not matter.
    pub table: TableQuery,
    /// Most spans; more buckets than that are put together.
    pub max_spans: usize,
}

/// A question for a call tree.
#[derive(Clone, Debug, Default)]
pub struct TreeQuery {
    /// Deepest level shown below the root.
    pub depth: Option<usize>,
    /// Nodes below this share of the root are cut: of the value, else in samples and in time. 0 to
    /// 100.
    pub min_percent: f64,
    /// Of too many nodes those with the least of this are cut, and callees with most of it come
    /// first; all time without.
    pub value: Option<StackValue>,
    /// Whose functions count.
    pub frames: FrameScope,
    /// What time is covered.
    pub window: Window,
    /// Whose frames are folded into their callers. Tables of modules, threads and processes show
    /// all.
    pub fold: Fold,
    /// Whether the waits of threads that idle are apart from all others, below one node.
    pub idle_apart: bool,
}

/// A question for the functions that call another, or that it calls.
#[derive(Clone, Debug, Default)]
pub struct NeighbourQuery {
    /// Name of the function, as the tables show it.
    pub function: String,
    /// Its module, where only the function of that one is meant: a path, or the last part of one;
    /// `*` stands for any text.
    pub module: Option<String>,
    /// Which rows, in which order.
    pub table: TableQuery,
}

/// A question for lines or instructions.
#[derive(Clone, Debug, Default)]
pub struct CodeQuery {
    /// Only those of the function of this name, as the tables show it.
    pub function: Option<String>,
    /// Only those of this module: a path, or the last part of one; `*` stands for any text.
    pub module: Option<String>,
    /// Whether inlined functions have lines of their own.
    pub inlines: bool,
    /// Which rows, in which order.
    pub table: TableQuery,
}

profiler_common::named_enum! {
    /// One value of stacks, by which they are exported, cut, compared and put in order.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum StackValue {
        /// Timer samples.
        #[default]
        Samples => "samples",
        /// All time, nanoseconds.
        Elapsed => "elapsed",
        /// Time without an operating-system event, nanoseconds.
        Application => "application",
        /// Time on a processor, nanoseconds.
        Running => "running",
        /// Time off the processor, blocked or waiting for one, nanoseconds.
        OffProcessor => "off_processor",
        /// Time off the processor until woken, nanoseconds.
        Blocked => "blocked",
        /// Time waiting for a processor, nanoseconds.
        Runnable => "runnable",
        /// Time running in system calls, nanoseconds.
        Syscall => "syscall",
    }
}

impl StackValue {
    /// Whether it is counted in nanoseconds; samples are not.
    #[must_use]
    pub const fn is_time(self) -> bool {
        !matches!(self, Self::Samples)
    }

    /// How much of it there is.
    #[must_use]
    pub fn of(self, values: &Values) -> u64 {
        match self {
            Self::Samples => values.samples,
            Self::Elapsed => values.elapsed_ns(),
            Self::Application => values.application_ns(),
            Self::Running => values.elapsed_ns() - values.off_processor_ns(),
            Self::OffProcessor => values.off_processor_ns(),
            Self::Blocked => values.classes[Class::Blocked as usize],
            Self::Runnable => values.classes[Class::Runnable as usize],
            Self::Syscall => values.classes[Class::Syscall as usize],
        }
    }
}

/// A question for stacks to be exported.
#[derive(Clone, Debug, Default)]
pub struct StackQuery {
    /// Which nodes.
    pub tree: TreeQuery,
    /// Whether places within functions are told apart.
    pub places: bool,
    /// Whether stacks are told apart by whose they are.
    pub sections: SectionMode,
}

/// Modules by name, as a question gives them: a path, the last part of one, or a name in brackets;
/// `*` stands for any text.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Fold {
    /// Only frames of these are shown; empty: of all.
    pub modules: Vec<String>,
    /// Frames of these are not shown.
    pub hide: Vec<String>,
}

/// Whether stacks are told apart by whose they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SectionMode {
    /// Not at all.
    #[default]
    None,
    /// By group: systemd unit, else container, else program, else name. As in the metrics.
    Group,
    /// By process.
    Process,
    /// By name of the process: those of one name are one.
    Name,
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that both ways to write a process are read, and nothing else is.
    #[test]
    fn selectors() {
        let bare = ProcessSelector {
            pid: 12,
            start_ticks: None,
        };
        let full = ProcessSelector {
            pid: 12,
            start_ticks: Some(7),
        };
        assert_eq!("12".parse(), Ok(bare));
        assert_eq!("12.7".parse(), Ok(full));
        assert_eq!(full.to_string(), "12.7");
        for wrong in [
            "",
            "a",
            "1.",
            ".1",
            "1.2.3",
            "+1",
            "-1",
            " 1",
            "4294967296",
            "1.-2",
        ] {
            assert_eq!(
                wrong.parse::<ProcessSelector>(),
                Err(NotASelector),
                "{wrong}"
            );
        }
    }
}
