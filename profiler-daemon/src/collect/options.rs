//! What the collector is made of.

use std::path::PathBuf;
use std::time::Duration;

use tokio::sync::watch;

use crate::config::targets::Targets;
use crate::kernel::Kernel;
use crate::processes::live::Processes;
use crate::profile::Profile;
use crate::sys::heartbeat::Heartbeat;
use crate::sys::perf_event::SideBand;
use crate::unwind::worker::TableWorker;

use super::budget::Budget;

/// No pass, and no other piece of work, takes longer unless something is wrong, however busy the
/// machine is.
const LONGEST_PIECE: Duration = Duration::from_secs(20);

/// What the collector starts from.
pub struct CollectorOptions {
    /// The programs, attached.
    pub kernel: Kernel,
    /// The side-band, open. Without it, mappings are read from `/proc` alone.
    pub side_band: Option<SideBand>,
    /// Processes, not seeded yet.
    pub processes: Processes,
    /// The empty profile.
    pub profile: Profile,
    /// What to profile; the collector alone changes it, and others read it.
    pub targets: watch::Sender<Targets>,
    /// The thread that makes unwind tables; `None` where the kernel cannot use them.
    pub tables: Option<TableWorker>,
    /// This program: the process that reads memory of others is started from it.
    pub program: PathBuf,
    /// What profiling may cost; `None`: anything.
    pub budget: Option<Budget>,
    /// Whether system calls need not all be traced where that is dearer than the budget.
    pub may_sample_calls: bool,
    /// Says that its thread moves: what [`heartbeat`] makes.
    pub heartbeat: Heartbeat,
}

/// The heartbeat of a collector's thread.
#[must_use]
pub fn heartbeat() -> Heartbeat {
    Heartbeat::new("collector", LONGEST_PIECE)
}
