//! How the daemon is, for `GET /api/v1/status`.

use std::collections::BTreeMap;
use std::fmt::{self, Write as _};

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};
use utoipa::ToSchema;

use super::spending::Spending;
use crate::collect::MeasuringCounts;
use crate::export::text::name as shown_name;

/// How the daemon is.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Status {
    /// The daemon's version.
    pub version: String,
    /// The kernel's release.
    pub kernel_release: String,
    /// How long the daemon runs, in seconds.
    pub uptime_s: u64,
    /// The settings in force, by table and name as in the configuration file.
    #[schema(value_type = Object)]
    pub settings: Map<String, Value>,
    /// The programs that are attached.
    pub attached: Vec<AttachedProgram>,
    /// What works less well than it should, and why.
    pub degraded: Vec<Degraded>,
    /// What the daemon itself costs.
    pub own_cost: OwnCost,
    /// What profiling costs beside its budget.
    #[serde(default)]
    pub spending: Spending,
    /// Functions that are measured exactly.
    #[serde(default)]
    pub instrumentation: MeasuringCounts,
    /// How much room the profile has, and what gave way for want of it.
    pub profile: ProfileMemory,
    /// How far user stacks can be followed.
    pub unwinding: Unwinding,
    /// How reading debug information went.
    pub lines: LineReading,
    /// The saved profile that all of this is about; null where it is about a running daemon.
    pub replay: Option<ReplayOf>,
}

/// How reading debug information went, since the daemon started. It is read by a process of its
/// own, one at a time.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LineReading {
    /// Processes that were started for it.
    pub workers: u64,
    /// Those that ended before they had answered, by reason.
    pub worker_failures: BTreeMap<String, u64>,
    /// Most memory that one has had, the file that it read included, in bytes.
    pub worker_peak_bytes: u64,
    /// Places of code whose line was looked up and is not known, by reason.
    pub places_unknown: BTreeMap<String, u64>,
    /// Memory for lines already found, in bytes, estimated.
    pub cache_bytes: u64,
}

/// How far user stacks can be followed, since the daemon started.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Unwinding {
    /// Files whose unwind tables the kernel side has; null where this kernel cannot use any.
    #[schema(required)]
    pub tables: Option<u32>,
    /// Kernel memory taken for them, in bytes.
    pub table_bytes: u64,
    /// Walks that did not reach the outermost frame, by reason: see `docs/counters.md`.
    pub failures: BTreeMap<String, u64>,
    /// Walks by executable, most walked first.
    pub coverage: Vec<Coverage>,
    /// Files whose unwind information could not be used, by reason: see `docs/counters.md`.
    pub without_information: BTreeMap<String, u64>,
    /// The first 256 of them.
    pub files_without_information: Vec<FileWithoutInformation>,
}

/// A file whose unwind information could not be used.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FileWithoutInformation {
    /// Its path.
    pub path: String,
    /// Why: see `docs/counters.md`.
    pub reason: String,
    /// By what its code is followed: `code`, rules read off it, and frame pointers where they end;
    /// or `frame_pointers` alone.
    pub followed_by: String,
}

/// Walks of user stacks of one executable.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Coverage {
    /// Its path; `other` for those beyond the number that is counted one by one.
    pub executable: String,
    /// Walks.
    pub walked: u64,
    /// Walks that ended at the thread's outermost frame.
    pub complete: u64,
    /// Walks that ended at the bound on frames.
    pub truncated: u64,
    /// Walks that could not go on.
    pub failed: u64,
    /// The share that is complete.
    pub complete_percent: f64,
}

/// The room of the profile.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProfileMemory {
    /// Memory that the stacks take, in bytes.
    pub stack_bytes: u64,
    /// Memory that they may take, in bytes.
    pub stack_max_bytes: u64,
    /// Memory that the recent past takes, in bytes, with what named sessions need of it.
    pub recent_past_bytes: u64,
    /// Memory that it may take, in bytes.
    pub recent_past_max_bytes: u64,
    /// What the profile counts, by name: see `docs/counters.md`.
    pub losses: BTreeMap<String, u64>,
}

/// A program that is attached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AttachedProgram {
    /// The program's name.
    pub program: String,
    /// What it is attached to.
    pub hook: String,
}

/// Something that works less well than it should.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Degraded {
    /// What it is.
    pub what: String,
    /// Why, and what would mend it.
    pub why: String,
}

/// What the daemon itself costs.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct OwnCost {
    /// Processor time of the process, in seconds.
    pub cpu_seconds_total: f64,
    /// Resident memory of the process, in bytes.
    pub resident_bytes: u64,
    /// Where that memory is, in bytes, estimated: what the daemon's parts hold, `other` that is in
    /// use, `free` that the heap has not given back yet, `outside_heap` as stacks of threads,
    /// `mapped` as the program and memory shared with the kernel.
    pub memory_bytes: BTreeMap<String, u64>,
    /// Kernel memory of the maps, in bytes; null where the kernel does not tell.
    #[schema(required)]
    pub kernel_map_bytes: Option<u64>,
    /// The kernel programs, one by one.
    pub programs: Vec<ProgramCost>,
}

/// What one kernel program costs: an estimate, measured in 200 ms of each 10 s and scaled up. Both
/// numbers stay 0 where the kernel lets the daemon measure nothing: without CAP_SYS_ADMIN, while
/// `kernel.bpf_stats_enabled` is 0.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProgramCost {
    /// The program's name.
    pub program: String,
    /// Time it ran, in nanoseconds.
    pub bpf_run_ns: u64,
    /// How often it ran.
    pub runs: u64,
}

/// A saved profile that is served in place of a running one.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ReplayOf {
    /// The name of its file, without its folder.
    pub file: String,
    /// Time of the profile in it, RFC 3339.
    pub saved_at: String,
}

impl fmt::Display for ReplayOf {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file, saved_at } = self;
        write!(out, "replay of {}, saved at {saved_at}", shown_name(file))
    }
}

impl Status {
    /// The same for people.
    pub(crate) fn to_text(&self) -> String {
        let mut lines = vec![
            ("version".to_owned(), self.version.clone()),
            ("kernel release".to_owned(), self.kernel_release.clone()),
            ("uptime".to_owned(), format!("{} s", self.uptime_s)),
            (
                "own processor time".to_owned(),
                format!("{:.2} s", self.own_cost.cpu_seconds_total),
            ),
            (
                "own resident memory".to_owned(),
                format!("{} KiB", self.own_cost.resident_bytes >> 10),
            ),
        ];
        if self.replay.is_none() {
            lines.extend(self.spending.lines());
        }
        if self.instrumentation.running > 0 {
            lines.push((
                "instrumentations".to_owned(),
                format!(
                    "{} run, {} points are attached",
                    self.instrumentation.running, self.instrumentation.points
                ),
            ));
        }
        for (part, bytes) in &self.own_cost.memory_bytes {
            lines.push((format!("  of that {part}"), format!("{} KiB", bytes >> 10)));
        }
        if let Some(replay) = &self.replay {
            lines.insert(0, ("replay of".to_owned(), replay.file.clone()));
            lines.insert(1, ("saved at".to_owned(), replay.saved_at.clone()));
        }
        if let Some(bytes) = self.own_cost.kernel_map_bytes {
            lines.push((
                "own kernel memory".to_owned(),
                format!("{} KiB", bytes >> 10),
            ));
        }
        lines.push((
            "profile of stacks".to_owned(),
            format!(
                "{} of {} KiB",
                self.profile.stack_bytes >> 10,
                self.profile.stack_max_bytes >> 10
            ),
        ));
        lines.push((
            "recent past".to_owned(),
            format!(
                "{} of {} KiB",
                self.profile.recent_past_bytes >> 10,
                self.profile.recent_past_max_bytes >> 10
            ),
        ));
        for (name, count) in &self.profile.losses {
            lines.push((format!("profile {name}"), count.to_string()));
        }
        if let Some(tables) = self.unwinding.tables {
            let kib = self.unwinding.table_bytes >> 10;
            lines.push(("unwind tables".to_owned(), format!("{tables}, {kib} KiB")));
        }
        for (reason, count) in &self.unwinding.failures {
            lines.push((format!("walks incomplete {reason}"), count.to_string()));
        }
        for file in &self.unwinding.files_without_information {
            lines.push((
                format!("no unwind information {}", file.path),
                format!("{}, followed by {}", file.reason, file.followed_by),
            ));
        }
        for coverage in &self.unwinding.coverage {
            lines.push((
                format!("walks of {}", coverage.executable),
                format!(
                    "{} of {} complete, {:.2} %",
                    coverage.complete, coverage.walked, coverage.complete_percent
                ),
            ));
        }
        for cost in &self.own_cost.programs {
            lines.push((
                format!("program {}", cost.program),
                format!("{} runs, {} ns", cost.runs, cost.bpf_run_ns),
            ));
        }
        for attached in &self.attached {
            lines.push((
                format!("attached {}", attached.program),
                attached.hook.clone(),
            ));
        }
        for degraded in &self.degraded {
            lines.push((format!("degraded {}", degraded.what), degraded.why.clone()));
        }
        flatten("", &self.settings, &mut lines);
        // Those of a saved profile can be anything.
        for (name, value) in &mut lines {
            *name = shown_name(name);
            *value = shown_name(value);
        }
        let width = lines
            .iter()
            .map(|(name, _)| name.chars().count())
            .max()
            .unwrap_or(0);
        let mut text = String::new();
        for (name, value) in lines {
            writeln!(text, "{name:width$}  {value}").expect("a string takes all text");
        }
        text
    }
}

/// Settings as lines of a dotted name and a value.
fn flatten(prefix: &str, settings: &Map<String, Value>, lines: &mut Vec<(String, String)>) {
    for (name, value) in settings {
        match value {
            Value::Object(table) => flatten(&format!("{prefix}{name}."), table, lines),
            value => lines.push((format!("setting {prefix}{name}"), value.to_string())),
        }
    }
}
