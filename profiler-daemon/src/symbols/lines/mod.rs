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
use crate::units::{ModuleAddress, ModuleOffset};

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

profiler_common::named_enum! {
    /// Why a place has no line.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
    pub enum NoLine {
        /// Code of the kernel, code made at run time, and what is not known: there is no program
        /// file to read.
        NoProgram => "no_program",
        /// The file was gone before it could be opened, or changed since.
        NoFile => "no_file",
        /// The file or its debug information makes no sense there, is of another machine, or is
        /// compressed in an unknown way (zlib is known).
        Unreadable => "unreadable",
        /// Neither the file nor a separate debug file of it has any. It is looked for again after a
        /// minute.
        NoDebugInformation => "no_debug_information",
        /// The debug information says nothing of this place.
        NoLineThere => "no_line_there",
        /// The process that read it needed more memory than `limits.line_worker_bytes`. It is tried
        /// again after a minute.
        WorkerMemory => "worker_memory",
        /// The process that read it took more than 20 s of processor time, or 30 s in all. It is
        /// tried again after a minute.
        WorkerTime => "worker_time",
        /// The process that read it died, or could not be started. It is tried again after a
        /// minute.
        WorkerDied => "worker_died",
        /// It is still being read: ask again.
        Pending => "pending",
        /// More than 32768 places that were not known yet were asked for at once; these had least.
        /// Ask again, or for one module.
        TooMany => "too_many",
        /// The profile was saved, and is served by `--replay`: debug information is not saved with
        /// it.
        NotSaved => "not_saved",
    }
}

/// The answer for one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Code {
    /// Virtual address in the module, as disassemblers show it; the address itself for what is no
    /// file. `None` where the file cannot be read.
    pub address: Option<ModuleAddress>,
    /// The functions and lines there, or why they are not known.
    pub steps: Result<Steps, NoLine>,
}

impl Code {
    /// What is known of a place where there is no file to read: addresses of the kernel and of code
    /// made at run time are what they are. `None` for places in files.
    #[must_use]
    pub fn without_file(kind: ModuleKind, offset: ModuleOffset) -> Option<Self> {
        let address = match kind {
            ModuleKind::User | ModuleKind::Vdso => return None,
            ModuleKind::Kernel | ModuleKind::KernelModule | ModuleKind::Jit => {
                Some(ModuleAddress::of_address(offset.in_memory()))
            }
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
