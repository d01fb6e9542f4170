//! The table of processes, and the totals of one.

use std::cmp::Ordering;

use serde::Serialize;

use super::{
    answer::{List, WindowSpan, rfc3339},
    completeness::{Completeness, Stacks},
    confidence::interval,
    query::{ProcessSelector, ReportError, Scope, TableQuery, ViewQuery},
    scope::{Member, View},
    table::{Columns, Key, Row},
    values::{ClassValues, percent},
};
use crate::{
    profile::{over::ThreadsOver, snapshot::Snapshot},
    report::names::Names,
};

/// One process and its exact totals.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct ProcessRow {
    /// The process.
    pub pid: u32,
    /// Its start, 10 ms ticks since boot.
    pub start_ticks: u64,
    /// Its parent.
    pub ppid: u32,
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
    #[schema(format = DateTime)]
    pub started_at: String,
    /// RFC 3339.
    #[schema(required, format = DateTime)]
    pub exited_at: Option<String>,
    /// `running` or `exited`.
    #[schema(pattern = "^(running|exited)$")]
    pub state: &'static str,
    /// Whether it is a thread of the kernel.
    pub kernel_thread: bool,
    /// Threads it had in the time covered: those with a row of their own, and over the whole session all others.
    pub threads: u64,
    /// Timer samples.
    pub samples: u64,
    /// Of the session's samples.
    pub samples_percent: f64,
    /// Where the true `samples_percent` begins, at 95 % confidence.
    pub samples_percent_low: f64,
    /// Where it ends.
    pub samples_percent_high: f64,
    /// All time of all threads.
    pub elapsed_ns: u64,
    /// Of the session's time.
    pub elapsed_percent: f64,
    /// Time without an operating-system event.
    pub application_ns: u64,
    /// Of the session's application time.
    pub application_percent: f64,
    /// `elapsed_ns` by class.
    pub classes: ClassValues,
    /// Walks of its user stacks.
    pub stacks: Stacks,
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
        "application_percent",
        "classes.user_ns",
        "classes.syscall_ns",
        "classes.blocked_ns",
        "classes.runnable_ns",
        "classes.kernel_ns",
        "stacks.walked",
        "stacks.complete",
        "stacks.truncated",
        "stacks.failed",
    ];
}

impl Row for ProcessRow {
    const DEFAULT_SORT: &'static str = "samples";

    fn key(&self, column: &str) -> Option<Key<'_>> {
        fn text(value: &Option<String>) -> Option<Key<'_>> {
            value.as_deref().map(Key::Text)
        }
        let number = |value: u64| Some(Key::Number(value as f64));
        match column {
            "pid" => number(self.pid.into()),
            "start_ticks" => number(self.start_ticks),
            "ppid" => number(self.ppid.into()),
            "comm" => Some(Key::Text(&self.comm)),
            "exe" => text(&self.exe),
            "uid" => self.uid.map(|uid| Key::Number(uid.into())),
            "cgroup" => text(&self.cgroup),
            "unit" => text(&self.unit),
            "container_id" => text(&self.container_id),
            "command_line" => text(&self.command_line),
            "started_at" => Some(Key::Text(&self.started_at)),
            "exited_at" => text(&self.exited_at),
            "state" => Some(Key::Text(self.state)),
            "kernel_thread" => number(self.kernel_thread.into()),
            "threads" => number(self.threads),
            "samples" => number(self.samples),
            "samples_percent" => Some(Key::Number(self.samples_percent)),
            "samples_percent_low" => Some(Key::Number(self.samples_percent_low)),
            "samples_percent_high" => Some(Key::Number(self.samples_percent_high)),
            "elapsed_ns" => number(self.elapsed_ns),
            "elapsed_percent" => Some(Key::Number(self.elapsed_percent)),
            "application_ns" => number(self.application_ns),
            "application_percent" => Some(Key::Number(self.application_percent)),
            "stacks.walked" => number(self.stacks.walked),
            "stacks.complete" => number(self.stacks.complete),
            "stacks.truncated" => number(self.stacks.truncated),
            "stacks.failed" => number(self.stacks.failed),
            _ => self.classes.column(column).map(Key::Number),
        }
    }

    fn name(&self) -> &str {
        &self.comm
    }

    fn tie(&self, other: &Self) -> Ordering {
        let elapsed = other.elapsed_ns.cmp(&self.elapsed_ns);
        elapsed.then_with(|| (self.pid, self.start_ticks).cmp(&(other.pid, other.start_ticks)))
    }
}

/// A row per process, exited ones included until they are dropped. In a window: those that ran or waited in it.
///
/// # Errors
/// No such column or window.
pub fn processes(
    snapshot: &Snapshot,
    query: &TableQuery,
    names: &dyn Names,
) -> Result<List<ProcessRow>, ReportError> {
    let view = View::new(snapshot, &Scope::Session, query.window)?;
    let rows = view.members.iter().filter_map(|member| {
        let over = member.account.threads_over(view.coverage.span);
        let (_, process) = member.process?;
        let there = view.has_process(&process.info, &over.total());
        there.then(|| row(&view, member, &over, names)).flatten()
    });
    let completeness = Completeness::of_totals(&view, names);
    List::of(&view, completeness, rows.collect(), query)
}

/// The totals of one process.
///
/// # Errors
/// No such process or window.
pub fn process(
    snapshot: &Snapshot,
    selector: &ProcessSelector,
    query: &ViewQuery,
    names: &dyn Names,
) -> Result<ProcessReport, ReportError> {
    let view = View::new(snapshot, &Scope::Process(*selector), query.window)?;
    let found = view.members.first().and_then(|member| {
        let over = member.account.threads_over(view.coverage.span);
        row(&view, member, &over, names)
    });
    let process = found.ok_or(ReportError::UnknownProcess {
        selector: *selector,
    })?;
    Ok(ProcessReport {
        as_of: view.as_of(),
        window: view.window(),
        completeness: Completeness::of_one_total(&view, names),
        process,
    })
}

fn row(
    view: &View<'_>,
    member: &Member<'_>,
    over: &ThreadsOver<'_>,
    names: &dyn Names,
) -> Option<ProcessRow> {
    let (key, process) = member.process?;
    let info = &process.info;
    let totals = over.total();
    let mut stacks = Stacks::default();
    stacks.count(
        member.account,
        &member.account.weights_over(view.coverage.span),
        names,
    );
    let session = &view.denominators.session;
    let (samples_percent_low, samples_percent_high) = interval(totals.samples, session.samples);
    let text = |value: &Option<std::sync::Arc<str>>| value.as_deref().map(str::to_owned);
    Some(ProcessRow {
        pid: key.pid,
        start_ticks: key.start_ticks(),
        ppid: info.ppid,
        comm: info.comm.to_string(),
        exe: text(&info.exe),
        uid: info.uid,
        cgroup: text(&info.cgroup),
        unit: text(&info.unit),
        container_id: text(&info.container_id),
        command_line: text(&info.cmdline),
        started_at: rfc3339(info.started_at_unix_ns),
        exited_at: info.exited_at_unix_ns.map(rfc3339),
        state: if info.exited_at_unix_ns.is_some() {
            "exited"
        } else {
            "running"
        },
        kernel_thread: info.kernel_thread,
        threads: view.thread_count(over),
        samples: totals.samples,
        samples_percent: percent(totals.samples, session.samples),
        samples_percent_low,
        samples_percent_high,
        elapsed_ns: totals.elapsed_ns(),
        elapsed_percent: percent(totals.elapsed_ns(), session.elapsed_ns()),
        application_ns: totals.application_ns(),
        application_percent: percent(totals.application_ns(), session.application_ns()),
        classes: ClassValues::from(&totals.classes),
        stacks,
    })
}
