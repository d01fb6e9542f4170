//! What the metrics are made from: plain numbers, gathered by whoever knows them.
//!
//! All `*_total` numbers only grow while the daemon runs; everything else is as of now.

use super::requests::StreamTotals;

/// The classes of time, in the order of [`GroupInput::classes_ns`].
pub const CLASS_NAMES: [&str; 5] = ["user", "syscall", "blocked", "runnable", "kernel"];

/// What profiling costs.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct SpendingInput {
    /// Of kernel programs and hooks, nanoseconds.
    pub programs_ns_total: u64,
    /// Of that, of walks.
    pub walks_ns_total: u64,
    /// What it cost over the last ten seconds, as a share of the time in which processors were at
    /// work.
    pub late_ratio: Option<f64>,
    /// What it may cost, likewise.
    pub budget_ratio: Option<f64>,
    /// Whether all system calls are traced that the settings name.
    pub all_calls: bool,
    /// Times that this gave way, and came back.
    pub gave_way_total: u64,
    /// See there.
    pub came_back_total: u64,
    /// Samples of system calls.
    pub samples_total: u64,
    /// Switches and exits of calls that were not walked, as walks would have cost too much.
    pub walks_over_budget_total: u64,
    /// The same of timer ticks.
    pub ticks_over_budget_total: u64,
    /// Time without either.
    pub untraced_ns_total: u64,
}

/// Everything that one scrape tells.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct MetricsInput {
    /// The daemon's version.
    pub version: String,
    /// The kernel's release.
    pub kernel_release: String,
    /// Whether every program is attached and one drain has ended.
    pub ready: bool,
    /// How many features work less well than they should.
    pub degraded_features: usize,
    /// How long each thread has been at its present piece of work, by its name.
    pub heartbeat_ages_ns: Vec<(&'static str, u64)>,
    /// Samples per second and processor that were asked for.
    pub frequency_hz: u32,
    /// Samples that were taken of profiled threads.
    pub samples_total: u64,
    /// Samples that were discarded, by reason.
    pub discarded_total: Vec<(String, u64)>,
    /// What was lost, by cause.
    pub losses_total: Vec<(String, u64)>,
    /// User stacks that were walked.
    pub stacks: StackInput,
    /// Groups of processes, one of them named `other`. Groups of one name are added up.
    pub groups: Vec<GroupInput>,
    /// How many groups may have series of their own.
    pub groups_limit: usize,
    /// Samples that went to `other` because no series was free.
    pub groups_overflow_samples_total: u64,
    /// Processes that run and are followed.
    pub processes: usize,
    /// Processes that exited and are still reported.
    pub processes_exited: usize,
    /// Threads that run and are followed.
    pub threads: usize,
    /// Tables that all processes share: name, what is in use, and what there is room for.
    pub tables: Vec<(&'static str, u64, u64)>,
    /// Memory that the stacks of the profile take, in bytes.
    pub profile_stack_bytes: u64,
    /// The most they may take, in bytes.
    pub profile_stack_max_bytes: u64,
    /// Memory that the recent past takes, in bytes.
    pub recent_past_bytes: u64,
    /// The most it may take, in bytes.
    pub recent_past_max_bytes: u64,
    /// Reads of the kernel's maps.
    pub drain: DrainInput,
    /// The kernel's maps.
    pub maps: Vec<MapInput>,
    /// The kernel programs.
    pub programs: Vec<ProgramInput>,
    /// Unwind tables.
    pub unwind: UnwindInput,
    /// Stacks of waits that were found from outside.
    pub outside: OutsideInput,
    /// Names of functions.
    pub symbol_cache: SymbolCacheInput,
    /// Lines of source.
    pub lines: LineInput,
    /// The daemon's own process.
    pub own: OwnInput,
    /// What profiling costs.
    pub spending: SpendingInput,
    /// Functions that are measured.
    pub measuring: MeasuringInput,
    /// Requests answered, by handler and status code.
    pub http_requests_total: Vec<(&'static str, u16, u64)>,
    /// Streams of events.
    pub http_streams: StreamTotals,
    /// Where resident memory is, by part, bytes.
    pub memory_bytes: Vec<(&'static str, u64)>,
    /// Connections that gave way to new ones.
    pub http_connections_given_up_total: u64,
}

/// Functions that are measured exactly.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeasuringInput {
    /// Instrumentations that run.
    pub running: usize,
    /// Points that are attached.
    pub points: usize,
    /// Functions, USDT points and spans that were given up because they cost too much.
    pub given_up_total: u64,
    /// Entries and exits that were hit.
    pub hits_total: u64,
    /// Those of them that were not measured, by reason.
    pub missed_total: Vec<(&'static str, u64)>,
}

/// How the walks of user stacks ended, counted in walks.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StackInput {
    /// At the thread's outermost frame.
    pub complete_total: u64,
    /// At the depth limit.
    pub truncated_total: u64,
    /// Where the next frame could not be found.
    pub failed_total: u64,
}

/// Unwind tables and what the walker has of them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct UnwindInput {
    /// Walks that did not reach the outermost frame, by reason.
    pub failures_total: Vec<(&'static str, u64)>,
    /// Tables made from files.
    pub built_total: u64,
    /// Tables found on disk.
    pub from_disk_total: u64,
    /// Files without a table, by reason.
    pub none_total: Vec<(&'static str, u64)>,
    /// What went wrong or was left out elsewhere, by what.
    pub troubles_total: Vec<(&'static str, u64)>,
    /// Time spent making and finding tables.
    pub busy_ns_total: u64,
    /// Tables that the walker has.
    pub tables: u64,
    /// Kernel memory of their rows in use.
    pub row_bytes: u64,
    /// Kernel memory taken for rows.
    pub memory_bytes: u64,
    /// Kernel memory that rows may take.
    pub max_memory_bytes: u64,
}

/// Stacks of waits that were found from outside.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct OutsideInput {
    /// Looks at threads in such waits, by what became of them.
    pub looks_total: Vec<(&'static str, u64)>,
    /// Processes that read memory, by what became of them.
    pub readers_total: Vec<(&'static str, u64)>,
    /// Time spent.
    pub busy_ns_total: u64,
}

/// A group of processes.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct GroupInput {
    /// Its name, which programs may have chosen.
    pub name: String,
    /// Its samples.
    pub samples_total: u64,
    /// Its time by class, in the order of [`CLASS_NAMES`].
    pub classes_ns: [u64; 5],
}

/// Reads of the kernel's maps.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct DrainInput {
    /// Reads that ended.
    pub passes_total: u64,
    /// Reads that failed.
    pub failures_total: u64,
    /// Time spent reading.
    pub busy_ns_total: u64,
}

/// A map in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MapInput {
    /// Its name.
    pub name: String,
    /// Entries in use at the last read.
    pub entries: u64,
    /// Entries it has room for.
    pub max_entries: u64,
    /// Kernel memory it takes, where the kernel tells.
    pub memory_bytes: Option<u64>,
}

/// A program in the kernel.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProgramInput {
    /// Its name.
    pub name: String,
    /// Time it ran; 0 while the kernel does not measure it.
    pub run_ns_total: u64,
    /// How often it ran; 0 while the kernel does not count it.
    pub runs_total: u64,
}

/// Names of functions.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SymbolCacheInput {
    /// Names that were asked for.
    pub requests_total: u64,
    /// Names that were there.
    pub hits_total: u64,
    /// Places that have no function's name, by reason.
    pub unknown_total: Vec<(&'static str, u64)>,
    /// Names that were dropped for room.
    pub evictions_total: u64,
    /// Times that a file that names code made at run time was not kept whole.
    pub perf_maps_cut_total: u64,
    /// Memory in use.
    pub bytes: u64,
    /// Memory that may be used.
    pub max_bytes: u64,
}

/// Lines of source, and the processes that read them.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct LineInput {
    /// Places that were asked for.
    pub requests_total: u64,
    /// Places that were known already.
    pub hits_total: u64,
    /// Places that were looked up and have no line, by reason.
    pub unknown_total: Vec<(&'static str, u64)>,
    /// Processes that were started.
    pub workers_total: u64,
    /// Those that ended before they had answered, by reason.
    pub failures_total: Vec<(&'static str, u64)>,
    /// Processor time of all of them.
    pub worker_processor_ns_total: u64,
    /// Most memory that one has had.
    pub worker_peak_bytes: u64,
    /// Memory that lines take.
    pub cache_bytes: u64,
}

/// The daemon's own process, as /proc tells.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct OwnInput {
    /// Processor time, user and system together, in seconds.
    pub cpu_seconds_total: f64,
    /// Resident memory in bytes.
    pub resident_bytes: u64,
    /// Virtual memory in bytes.
    pub virtual_bytes: u64,
    /// Open file descriptors.
    pub open_files: u64,
    /// The limit on open file descriptors.
    pub max_open_files: u64,
    /// Start time in seconds since 1970.
    pub start_time_seconds: f64,
}
