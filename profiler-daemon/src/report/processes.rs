//! The table of processes, and the totals of one.

use std::{cmp::Ordering, sync::Arc};

use serde::Serialize;

use super::{
    answer::List,
    completeness::Completeness,
    confidence::interval,
    error::ReportError,
    places::Places,
    query::{Scope, TableQuery, ViewQuery},
    scope::View,
    table::{Columns, Row, SortKey},
    times::{WindowSpan, rfc3339},
    values::{TotalValues, percent},
    walks::Stacks,
};
use crate::{profile::snapshot::Snapshot, report::names::Names};

/// One process and its totals, or the processes of one image that ended and are no longer kept one
/// by one.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ProcessRow {
    /// The process; null for processes that are one by image.
    #[schema(required)]
    pub pid: Option<u32>,
    /// Its start, 10 ms ticks since boot.
    #[schema(required)]
    pub start_ticks: Option<u64>,
    /// Its parent.
    #[schema(required)]
    pub ppid: Option<u32>,
    /// Path of the file that it executed last, as far as that is known.
    #[schema(required)]
    pub image: Option<String>,
    /// Of processes that are one by image: what `/api/v1/images/{id}` calls them.
    #[schema(required)]
    pub image_id: Option<String>,
    /// How many processes that are.
    #[schema(required)]
    pub ended: Option<u64>,
    /// Its name.
    pub comm: String,
    /// Path of its program.
    #[schema(required)]
    pub exe: Option<String>,
    /// Its user.
    #[schema(required)]
    pub uid: Option<u32>,
    /// Its control group.
    #[schema(required)]
    pub cgroup: Option<String>,
    /// The systemd unit it runs in.
    #[schema(required)]
    pub unit: Option<String>,
    /// The container it runs in.
    #[schema(required)]
    pub container_id: Option<String>,
    /// Its command line, at most 4096 bytes of it, where the configuration allows it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub command_line: Option<String>,
    /// RFC 3339.
    #[schema(required, format = DateTime)]
    pub started_at: Option<String>,
    /// RFC 3339.
    #[schema(required, format = DateTime)]
    pub exited_at: Option<String>,
    /// `running` or `exited`.
    #[schema(pattern = "^(running|exited)$")]
    pub state: &'static str,
    /// Whether it is a thread of the kernel.
    pub kernel_thread: bool,
    /// Threads it had in the time covered: those with a row of their own, and over the whole
    /// session all others.
    pub threads: u64,
    /// Of the session's samples.
    pub samples_percent: f64,
    /// Where the true `samples_percent` begins, at 95 % confidence.
    pub samples_percent_low: f64,
    /// Where it ends.
    pub samples_percent_high: f64,
    /// Of the session's time.
    pub elapsed_percent: f64,
    /// Of the session's application time.
    pub application_percent: f64,
    /// Its totals.
    #[serde(flatten)]
    pub totals: TotalValues,
    /// Walks of its user stacks.
    pub stacks: Stacks,
    /// The control group around it whose quota of processor time was used up while it was runnable;
    /// null where none is known to have been in the time covered.
    #[schema(required)]
    pub throttled_group: Option<String>,
    /// For how long that group was throttled in the time covered, from when it was first looked at;
    /// all its processes and all processors together.
    #[schema(required)]
    pub throttled_ns: Option<u64>,
}

/// The answer to a question for one process.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ProcessReport {
    /// Time of the drain pass it was made from, RFC 3339.
    #[schema(format = DateTime)]
    pub as_of: String,
    /// The time it covers.
    pub window: WindowSpan,
    /// What it lacks.
    pub completeness: Completeness,
    /// The totals.
    #[serde(flatten)]
    pub process: ProcessRow,
}

impl Columns for ProcessRow {
    const COLUMNS: &'static [&'static str] = &[
        "pid",
        "start_ticks",
        "ppid",
        "image",
        "image_id",
        "ended",
        "comm",
        "exe",
        "uid",
        "cgroup",
        "unit",
        "container_id",
        "command_line",
        "started_at",
        "exited_at",
        "state",
        "kernel_thread",
        "threads",
        "samples",
        "samples_percent",
        "samples_percent_low",
        "samples_percent_high",
        "elapsed_ns",
        "elapsed_percent",
        "application_ns",
        "application_low_ns",
        "application_high_ns",
        "application_percent",
        "fault_ns",
        "minor_faults",
        "major_faults",
        "switches_missed",
        "estimated_ns",
        "profiler_cost_ns",
        "classes.user_ns",
        "classes.syscall_ns",
        "classes.blocked_ns",
        "classes.runnable_ns",
        "classes.kernel_ns",
        "not_sampled.user_ns",
        "not_sampled.syscall_ns",
        "not_sampled.blocked_ns",
        "not_sampled.runnable_ns",
        "not_sampled.kernel_ns",
        "stacks.walked",
        "stacks.complete",
        "stacks.truncated",
        "stacks.failed",
        "throttled_group",
        "throttled_ns",
    ];
}

impl Row for ProcessRow {
    const DEFAULT_SORT: &'static str = "samples";

    fn key(&self, column: &str) -> Option<SortKey<'_>> {
        fn text(value: &Option<String>) -> Option<SortKey<'_>> {
            value.as_deref().map(SortKey::Text)
        }
        let number = |value: u64| Some(SortKey::Number(value as f64));
        match column {
            "pid" => number(self.pid?.into()),
            "start_ticks" => number(self.start_ticks?),
            "ppid" => number(self.ppid?.into()),
            "image" => text(&self.image),
            "image_id" => text(&self.image_id),
            "ended" => number(self.ended?),
            "comm" => Some(SortKey::Text(&self.comm)),
            "exe" => text(&self.exe),
            "uid" => self.uid.map(|uid| SortKey::Number(uid.into())),
            "cgroup" => text(&self.cgroup),
            "unit" => text(&self.unit),
            "container_id" => text(&self.container_id),
            "command_line" => text(&self.command_line),
            "started_at" => text(&self.started_at),
            "exited_at" => text(&self.exited_at),
            "state" => Some(SortKey::Text(self.state)),
            "kernel_thread" => number(self.kernel_thread.into()),
            "threads" => number(self.threads),
            "samples_percent" => Some(SortKey::Number(self.samples_percent)),
            "samples_percent_low" => Some(SortKey::Number(self.samples_percent_low)),
            "samples_percent_high" => Some(SortKey::Number(self.samples_percent_high)),
            "elapsed_percent" => Some(SortKey::Number(self.elapsed_percent)),
            "application_percent" => Some(SortKey::Number(self.application_percent)),
            "stacks.walked" => number(self.stacks.walked),
            "stacks.complete" => number(self.stacks.complete),
            "stacks.truncated" => number(self.stacks.truncated),
            "stacks.failed" => number(self.stacks.failed),
            "throttled_group" => text(&self.throttled_group),
            "throttled_ns" => number(self.throttled_ns?),
            _ => self.totals.column(column).map(SortKey::Number),
        }
    }

    fn running_ns(&self) -> Option<u64> {
        Some(self.totals.classes.running_ns())
    }

    fn name(&self) -> &str {
        &self.comm
    }

    fn tie(&self, other: &Self) -> Ordering {
        let elapsed = other.totals.elapsed_ns.cmp(&self.totals.elapsed_ns);
        elapsed
            .then_with(|| (self.pid, self.start_ticks).cmp(&(other.pid, other.start_ticks)))
            .then_with(|| self.image_id.cmp(&other.image_id))
    }
}

/// A row per process, exited ones included until they are dropped. In a window: those that ran or
/// waited in it.
///
/// # Errors
/// No such column or window.
pub fn processes(
    snapshot: &Snapshot,
    query: &TableQuery,
    names: &dyn Names,
) -> Result<List<ProcessRow>, ReportError> {
    let view = View::new(snapshot, &Scope::Session, query.window)?;
    let places = Places::new(&view);
    let there = (0..view.members.len()).filter(|index| view.has_member(*index));
    let rows = there.map(|index| row(&view, &places, index, names));
    let completeness = Completeness::of_totals(&view, &places, names);
    List::of(&view, completeness, rows.collect(), query)
}

/// The totals of one process, or of the ended ones of an image: what `scope` names.
///
/// # Errors
/// No such process, image or window.
pub fn process(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &ViewQuery,
    names: &dyn Names,
) -> Result<ProcessReport, ReportError> {
    let view = View::new(snapshot, scope, query.window)?;
    let places = Places::new(&view);
    let process = row(&view, &places, 0, names);
    Ok(ProcessReport {
        as_of: view.as_of(),
        window: view.window(),
        completeness: Completeness::of_one_total(&view, &places, names),
        process,
    })
}

fn row(view: &View<'_>, places: &Places, index: usize, names: &dyn Names) -> ProcessRow {
    let member = &view.members[index];
    let over = member.aggregate.threads_over(view.coverage.span);
    let totals = places.total_values(view, index);
    let session = &view.denominators.session;
    let each = view.totals[index].samples_each();
    let (samples_percent_low, samples_percent_high) =
        interval(totals.samples, session.samples, each);
    let (key, info) = match member.process {
        Some((key, process)) => (Some(key), Some(&process.info)),
        None => (None, None),
    };
    let text = |value: Option<&Arc<str>>| value.map(|value| value.to_string());
    let exited_at = info.and_then(|info| info.exited_at_unix_ns);
    let path = member.image.map(|image| image.path.to_string());
    let exe = text(info.and_then(|info| info.exe.as_ref()));
    let (throttled_group, throttled_ns) = view.throttled(index).unzip();
    ProcessRow {
        pid: key.map(|key| key.pid),
        start_ticks: key.map(|key| key.start_ticks()),
        ppid: info.map(|info| info.ppid),
        image_id: member.image_id().map(|id| id.to_string()),
        ended: info.is_none().then_some(member.ended),
        comm: member.name(),
        exe: exe.or_else(|| path.clone().filter(|_| info.is_none())),
        image: path,
        uid: info.and_then(|info| info.uid),
        cgroup: text(info.and_then(|info| info.cgroup.as_ref())),
        unit: text(info.and_then(|info| info.unit.as_ref())),
        container_id: text(info.and_then(|info| info.container_id.as_ref())),
        command_line: text(info.and_then(|info| info.cmdline.as_ref())),
        started_at: info.map(|info| rfc3339(info.started_at_unix_ns)),
        exited_at: exited_at.map(rfc3339),
        state: match info {
            Some(_) if exited_at.is_none() => "running",
            _ => "exited",
        },
        kernel_thread: member.kernel_thread,
        threads: view.thread_count(&over),
        samples_percent: percent(totals.samples, session.samples),
        samples_percent_low,
        samples_percent_high,
        elapsed_percent: percent(totals.elapsed_ns, session.elapsed_ns()),
        application_percent: percent(totals.application_ns, session.application_ns()),
        totals,
        stacks: places.stacks(index, member, names),
        throttled_group,
        throttled_ns,
    }
}
