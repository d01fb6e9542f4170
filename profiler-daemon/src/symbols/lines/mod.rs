//! From module and offset to the line of source that a place of code comes from, and the functions
//! inlined there.
//!
//! Debug information is read in a process of its own (`worker`, started by `launch`): it takes as
//! much memory and time as its writer likes. `finder` is the thread that decides what is read and
//! remembers what was found.

mod cache;
mod dwarf;
pub mod finder;
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing;
mod launch;
mod protocol;
pub mod worker;

use std::{collections::HashMap, sync::Arc};

use crate::processes::{mappings::Place, module::ModuleKind};

/// A line of source.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SourceLine {
    /// Path as the compiler wrote it.
    pub file: Arc<str>,
    /// Counted from 1; `None` where the compiler named the file only.
    pub line: Option<u32>,
}

/// One function at a place of code.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// Demangled. `None`: the debug information does not say.
    pub function: Option<Arc<str>>,
    /// Where in it: the line itself in the innermost step, the line of the inlined call in the
    /// others.
    pub source: Option<SourceLine>,
}

/// What debug information says of a place of code: the function that has a symbol, and then those
/// inlined into it, each called by the one before. Not empty.
pub type Steps = Arc<[Step]>;

/// Why a place has no line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum NoLine {
    /// The kernel, code made at run time, and what is not known: there is no file to read.
    NoProgram,
    /// The file was gone before it could be opened, or changed since.
    NoFile,
    /// The file or its debug information makes no sense, or is compressed in an unknown way.
    Unreadable,
    /// Neither the file nor a separate one has debug information.
    NoDebugInformation,
    /// The debug information says nothing of this place.
    NoLineThere,
    /// The worker needed more memory than it may have.
    WorkerMemory,
    /// The worker needed more time than it may have.
    WorkerTime,
    /// The worker broke, or could not be started.
    WorkerDied,
    /// It is still being read: asked again, it may be there.
    Pending,
    /// More places than are looked up for one answer.
    TooMany,
    /// The profile was saved, and debug information is not saved with it.
    NotSaved,
}

impl NoLine {
    /// Every reason.
    pub const ALL: [Self; 11] = [
        Self::NoProgram,
        Self::NoFile,
        Self::Unreadable,
        Self::NoDebugInformation,
        Self::NoLineThere,
        Self::WorkerMemory,
        Self::WorkerTime,
        Self::WorkerDied,
        Self::Pending,
        Self::TooMany,
        Self::NotSaved,
    ];

    /// The name used in metrics and reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::NoProgram => "no_program",
            Self::NoFile => "no_file",
            Self::Unreadable => "unreadable",
            Self::NoDebugInformation => "no_debug_information",
            Self::NoLineThere => "no_line_there",
            Self::WorkerMemory => "worker_memory",
            Self::WorkerTime => "worker_time",
            Self::WorkerDied => "worker_died",
            Self::Pending => "pending",
            Self::TooMany => "too_many",
            Self::NotSaved => "not_saved",
        }
    }

    /// What it means, as a sentence.
    #[must_use]
    pub const fn help(self) -> &'static str {
        match self {
            Self::NoProgram => {
                "Code of the kernel, code made at run time, and what is not known: there is no program file to read."
            }
            Self::NoFile => "The file was gone before it could be opened, or changed since.",
            Self::Unreadable => {
                "The file or its debug information makes no sense there, is of another machine, or is compressed in an unknown way (zlib is known)."
            }
            Self::NoDebugInformation => {
                "Neither the file nor a separate debug file of it has any. It is looked for again after a minute."
            }
            Self::NoLineThere => "The debug information says nothing of this place.",
            Self::WorkerMemory => {
                "The process that read it needed more memory than `limits.line_worker_bytes`. It is tried again after a minute."
            }
            Self::WorkerTime => {
                "The process that read it took more than 20 s of processor time, or 30 s in all. It is tried again after a minute."
            }
            Self::WorkerDied => {
                "The process that read it died, or could not be started. It is tried again after a minute."
            }
            Self::Pending => "It is still being read: ask again.",
            Self::TooMany => {
                "More than 32768 places that were not known yet were asked for at once; these had least. Ask again, or for one module."
            }
            Self::NotSaved => {
                "The profile was saved, and is served by `--replay`: debug information is not saved with it."
            }
        }
    }
}

/// The answer for one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Virtual address in the module, as disassemblers show it; the address itself for what is no
    /// file. `None` where the file cannot be read.
    pub address: Option<u64>,
    /// The functions and lines there, or why they are not known.
    pub steps: Result<Steps, NoLine>,
}

impl Code {
    /// What is known of a place where there is no file to read: addresses of the kernel and of code
    /// made at run time are what they are. `None` for places in files.
    #[must_use]
    pub fn without_file(kind: ModuleKind, offset: u64) -> Option<Self> {
        let address = match kind {
            ModuleKind::User | ModuleKind::Vdso => return None,
            ModuleKind::Kernel | ModuleKind::KernelModule | ModuleKind::Jit => Some(offset),
            ModuleKind::Unknown => None,
        };
        Some(Self {
            address,
            steps: Err(NoLine::NoProgram),
        })
    }

    /// The line that the code comes from: that of the innermost function.
    ///
    /// # Errors
    /// Why there is none.
    pub fn source(&self) -> Result<&SourceLine, NoLine> {
        let steps = self.steps.as_ref().map_err(|why| *why)?;
        let innermost = steps.last().and_then(|step| step.source.as_ref());
        innermost.ok_or(NoLine::NoLineThere)
    }
}

/// The lines of the places a report shows.
#[derive(Clone, Debug, Default)]
pub struct LineTable {
    places: HashMap<Place, Code>,
}

impl LineTable {
    /// What is at a place; `None` for a place that was never asked for.
    #[must_use]
    pub fn code(&self, place: Place) -> Option<&Code> {
        self.places.get(&place)
    }
}

impl FromIterator<(Place, Code)> for LineTable {
    fn from_iter<I: IntoIterator<Item = (Place, Code)>>(places: I) -> Self {
        Self {
            places: places.into_iter().collect(),
        }
    }
}
