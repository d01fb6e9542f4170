//! What each answer puts into its columns for people.

use super::{
    human::{name, nanoseconds, percent},
    text::{Envelope, Side, Table, TextReport},
};
use crate::report::{
    CallTree, FunctionRow, InstructionRow, LineRow, List, ModuleRow, OsEvents, ProcessReport,
    ProcessRow, SessionReport, ThreadRow, TreeNode,
    values::{ClassValues, RowValues, TotalValues},
};

/// Columns of the three groups of values, in the order people look for them.
const VALUES: [(&str, Side); 9] = [
    ("EXCL%", Side::Right),
    ("INCL%", Side::Right),
    ("EXCLUSIVE", Side::Right),
    ("INCLUSIVE", Side::Right),
    ("APP EXCL", Side::Right),
    ("APP INCL", Side::Right),
    ("SAMPLES", Side::Right),
    ("INCL", Side::Right),
    ("KIND", Side::Left),
];

const CLASSES: [(&str, Side); 5] = [
    ("USER", Side::Right),
    ("SYSCALL", Side::Right),
    ("BLOCKED", Side::Right),
    ("RUNNABLE", Side::Right),
    ("KERNEL", Side::Right),
];

fn values(values: &RowValues, kind: &str) -> Vec<String> {
    vec![
        percent(values.elapsed.exclusive_percent),
        percent(values.elapsed.inclusive_percent),
        nanoseconds(values.elapsed.exclusive_ns),
        nanoseconds(values.elapsed.inclusive_ns),
        nanoseconds(values.application.exclusive_ns),
        nanoseconds(values.application.inclusive_ns),
        values.samples.exclusive.to_string(),
        values.samples.inclusive.to_string(),
        kind.to_owned(),
    ]
}

/// Time by class, in the order of the columns.
pub(super) fn classes(classes: &ClassValues) -> [String; 5] {
    [
        nanoseconds(classes.user_ns),
        nanoseconds(classes.syscall_ns),
        nanoseconds(classes.blocked_ns),
        nanoseconds(classes.runnable_ns),
        nanoseconds(classes.kernel_ns),
    ]
}

fn class_facts(of: &ClassValues) -> impl Iterator<Item = (&'static str, String)> {
    let names = ["  user", "  syscall", "  blocked", "  runnable", "  kernel"];
    names.into_iter().zip(classes(of))
}

/// Times, and what is to be known to read them.
fn total_facts(of: &TotalValues) -> Vec<(&'static str, String)> {
    let application = match (of.application_low_ns, of.application_high_ns) {
        (Some(low_ns), Some(high_ns)) => format!(
            "{} ({} to {})",
            nanoseconds(of.application_ns),
            nanoseconds(low_ns),
            nanoseconds(high_ns)
        ),
        _ => nanoseconds(of.application_ns),
    };
    let mut facts = vec![
        ("application", application),
        ("elapsed", nanoseconds(of.elapsed_ns)),
    ];
    facts.extend(class_facts(&of.classes));
    facts.extend(fault_fact(of));
    if of.estimated_ns > 0 {
        let sentence = format!(
            "{}: system calls were not traced, ticks say what of it was in them",
            nanoseconds(of.estimated_ns)
        );
        facts.push(("estimated", sentence));
    }
    facts
}

/// How much of the time is kernel mode outside system calls, with the page faults that there were.
pub(super) fn fault_fact(of: &TotalValues) -> Option<(&'static str, String)> {
    if of.fault_ns == 0 && of.minor_faults == 0 && of.major_faults == 0 {
        return None;
    }
    let share = percent(100.0 * of.fault_ns as f64 / (of.elapsed_ns as f64).max(1.0));
    let sentence = format!(
        "{} ({share} of elapsed) in kernel mode outside system calls; {} minor, {} major page faults",
        nanoseconds(of.fault_ns),
        of.minor_faults,
        of.major_faults
    );
    Some(("faults", sentence))
}

fn optional(value: Option<&str>) -> String {
    value.map_or_else(|| "-".to_owned(), name)
}

/// A row of a table that people read.
trait TextRow {
    fn columns() -> Vec<(&'static str, Side)>;
    fn cells(&self) -> Vec<String>;
}

impl<Row: TextRow> TextReport for List<Row> {
    fn envelope(&self) -> Envelope<'_> {
        Envelope {
            as_of: &self.as_of,
            window: &self.window,
            completeness: &self.completeness,
        }
    }

    fn table(&self) -> Option<Table> {
        let shown = self.rows.len();
        Some(Table {
            columns: Row::columns(),
            rows: self.rows.iter().map(TextRow::cells).collect(),
            remark: self
                .truncated
                .then(|| format!("{shown} of {} rows; limit=0 shows all", self.total_rows)),
        })
    }
}

impl TextRow for FunctionRow {
    fn columns() -> Vec<(&'static str, Side)> {
        let names = [("MODULE", Side::Left), ("FUNCTION", Side::Left)];
        VALUES.into_iter().chain(names).collect()
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = values(&self.values, self.kind);
        cells.extend([name(&self.module), inlined(&self.function, self.inlined)]);
        cells
    }
}

/// File and line as tools write them.
fn place(file: Option<&str>, line: Option<u32>) -> String {
    match (file, line) {
        (Some(file), Some(line)) => format!("{}:{line}", name(file)),
        _ => optional(file),
    }
}

/// The function's name, and whether it was inlined.
fn inlined(function: &str, inlined: bool) -> String {
    let mark = if inlined { " (inlined)" } else { "" };
    format!("{}{mark}", name(function))
}

impl TextRow for LineRow {
    fn columns() -> Vec<(&'static str, Side)> {
        let names = ["MODULE", "FUNCTION", "LINE"].map(|title| (title, Side::Left));
        VALUES.into_iter().chain(names).collect()
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = values(&self.values, self.kind);
        cells.extend([
            name(&self.module),
            inlined(&self.function, self.inlined),
            self.line_unknown.map_or_else(
                || place(self.file.as_deref(), self.line),
                |why| format!("- ({why})"),
            ),
        ]);
        cells
    }
}

impl TextRow for InstructionRow {
    fn columns() -> Vec<(&'static str, Side)> {
        let names = ["MODULE", "ADDRESS", "FUNCTION", "LINE"].map(|title| (title, Side::Left));
        VALUES.into_iter().chain(names).collect()
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = values(&self.values, self.kind);
        let offset = self.offset.map(|offset| format!("+{offset:#x}"));
        cells.extend([
            name(&self.module),
            optional(self.address.as_deref()),
            format!("{}{}", name(&self.function), offset.unwrap_or_default()),
            place(self.file.as_deref(), self.line),
        ]);
        cells
    }
}

impl TextRow for ModuleRow {
    fn columns() -> Vec<(&'static str, Side)> {
        VALUES.into_iter().chain([("MODULE", Side::Left)]).collect()
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = values(&self.values, self.kind);
        cells.push(name(&self.module));
        cells
    }
}

impl TextRow for ThreadRow {
    fn columns() -> Vec<(&'static str, Side)> {
        let before = [
            ("ELAPSED%", Side::Right),
            ("ELAPSED", Side::Right),
            ("SAMPLES", Side::Right),
        ];
        let after = [
            ("STATE", Side::Left),
            ("PID", Side::Right),
            ("TID", Side::Right),
            ("COMM", Side::Left),
        ];
        before.into_iter().chain(CLASSES).chain(after).collect()
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            percent(self.values.elapsed.inclusive_percent),
            nanoseconds(self.values.elapsed.inclusive_ns),
            self.values.samples.inclusive.to_string(),
        ];
        cells.extend(classes(&self.classes));
        cells.extend([
            self.state.to_owned(),
            self.pid.to_string(),
            self.tid.to_string(),
            name(&self.comm),
        ]);
        cells
    }
}

impl TextRow for ProcessRow {
    fn columns() -> Vec<(&'static str, Side)> {
        let before = [
            ("SAMPLES%", Side::Right),
            ("SAMPLES", Side::Right),
            ("ELAPSED", Side::Right),
        ];
        let after = [
            ("THREADS", Side::Right),
            ("STATE", Side::Left),
            ("PID", Side::Right),
            ("COMM", Side::Left),
            ("UNIT", Side::Left),
            ("EXE", Side::Left),
        ];
        before.into_iter().chain(CLASSES).chain(after).collect()
    }

    fn cells(&self) -> Vec<String> {
        let mut cells = vec![
            percent(self.samples_percent),
            self.totals.samples.to_string(),
            nanoseconds(self.totals.elapsed_ns),
        ];
        cells.extend(classes(&self.totals.classes));
        cells.extend([
            self.threads.to_string(),
            self.state.to_owned(),
            self.pid
                .map_or_else(|| "-".to_owned(), |pid| pid.to_string()),
            name(&titled(self)),
            optional(self.unit.as_deref()),
            optional(self.exe.as_deref()),
        ]);
        cells
    }
}

impl TextReport for ProcessReport {
    fn envelope(&self) -> Envelope<'_> {
        Envelope {
            as_of: &self.as_of,
            window: &self.window,
            completeness: &self.completeness,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let process = &self.process;
        let stacks = &process.stacks;
        let mut facts = vec![
            (
                "process",
                match (process.pid, process.start_ticks) {
                    (Some(pid), Some(ticks)) => format!("{pid}.{ticks}"),
                    _ => titled(process),
                },
            ),
            ("comm", name(&process.comm)),
            ("exe", optional(process.exe.as_deref())),
            ("unit", optional(process.unit.as_deref())),
            ("container", optional(process.container_id.as_deref())),
            ("cgroup", optional(process.cgroup.as_deref())),
            (
                "parent",
                process
                    .ppid
                    .map_or_else(|| "-".to_owned(), |ppid| ppid.to_string()),
            ),
            (
                "user id",
                process
                    .uid
                    .map_or_else(|| "-".to_owned(), |uid| uid.to_string()),
            ),
            ("state", process.state.to_owned()),
            ("started", optional(process.started_at.as_deref())),
            ("exited", optional(process.exited_at.as_deref())),
            ("threads", process.threads.to_string()),
            ("samples", process.totals.samples.to_string()),
            (
                "stacks",
                stacks_text(
                    stacks.walked,
                    stacks.complete,
                    stacks.truncated,
                    stacks.failed,
                ),
            ),
        ];
        facts.extend(total_facts(&process.totals));
        if let Some(command_line) = &process.command_line {
            facts.insert(3, ("command line", name(command_line)));
        }
        facts
    }
}

/// The name of a process, or how many ended ones of an image these are.
fn titled(row: &ProcessRow) -> String {
    match row.ended {
        Some(ended) => format!("{} ({ended} ended)", row.comm),
        None => row.comm.clone(),
    }
}

pub(super) fn stacks_text(walked: u64, complete: u64, truncated: u64, failed: u64) -> String {
    format!("{walked} walked: {complete} complete, {truncated} truncated, {failed} failed")
}

impl TextReport for SessionReport {
    fn envelope(&self) -> Envelope<'_> {
        Envelope {
            as_of: &self.as_of,
            window: &self.window,
            completeness: &self.completeness,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let discarded: Vec<String> = self
            .discarded
            .iter()
            .map(|(reason, n)| format!("{reason} {n}"))
            .collect();
        let stacks = &self.stacks;
        let mut facts = vec![
            ("started", self.started_at.clone()),
            ("processes", self.processes.to_string()),
            (
                "  dropped",
                self.retired
                    .processes
                    .map_or_else(|| "-".to_owned(), |count| count.to_string()),
            ),
            ("threads", self.threads.to_string()),
            ("samples", self.totals.samples.to_string()),
            (
                "discarded",
                if discarded.is_empty() {
                    "-".to_owned()
                } else {
                    discarded.join(", ")
                },
            ),
            (
                "stacks",
                stacks_text(
                    stacks.walked,
                    stacks.complete,
                    stacks.truncated,
                    stacks.failed,
                ),
            ),
        ];
        facts.extend(total_facts(&self.totals));
        facts
    }
}

impl TextReport for OsEvents {
    fn envelope(&self) -> Envelope<'_> {
        Envelope {
            as_of: &self.as_of,
            window: &self.window,
            completeness: &self.completeness,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let elapsed = [("elapsed", nanoseconds(self.elapsed_ns))];
        elapsed
            .into_iter()
            .chain(class_facts(&self.classes))
            .collect()
    }

    fn table(&self) -> Option<Table> {
        let titles = [
            "TOTAL",
            "COUNT",
            "AVERAGE",
            "MAX",
            "RUNNING",
            "BLOCKED",
            "RUNNABLE",
            "INSIDE",
            "INSIDE FOR",
        ];
        let columns = titles
            .map(|title| (title, Side::Right))
            .into_iter()
            .chain([("SYSTEM CALL", Side::Left)]);
        let row = |call: &crate::report::os_events::SyscallRow| {
            let bound = if call.max_is_bound { "<=" } else { "" };
            vec![
                nanoseconds(call.total_ns),
                call.count.to_string(),
                nanoseconds(call.average_ns),
                format!("{bound}{}", nanoseconds(call.max_ns)),
                nanoseconds(call.running_ns),
                nanoseconds(call.blocked_ns),
                nanoseconds(call.runnable_ns),
                call.in_progress.to_string(),
                nanoseconds(call.in_progress_ns),
                call.name.to_string(),
            ]
        };
        Some(Table {
            columns: columns.collect(),
            rows: self.syscalls.iter().map(row).collect(),
            remark: None,
        })
    }
}

impl TextReport for CallTree {
    fn envelope(&self) -> Envelope<'_> {
        Envelope {
            as_of: &self.as_of,
            window: &self.window,
            completeness: &self.completeness,
        }
    }

    fn table(&self) -> Option<Table> {
        let mut rows = Vec::new();
        // A stack of its own: call trees are deeper than the thread's stack should have to be.
        let mut next: Vec<(usize, &TreeNode)> = vec![(0, &self.root)];
        while let Some((depth, node)) = next.pop() {
            let mut cells = values(&node.values, node.kind);
            let count = node
                .cut_nodes
                .map(|cut| format!(" {cut} nodes"))
                .unwrap_or_default();
            cells.push(format!(
                "{:indent$}{}{count}",
                "",
                name(&node.function),
                indent = 2 * depth
            ));
            rows.push(cells);
            next.extend(node.children.iter().rev().map(|child| (depth + 1, child)));
        }
        Some(Table {
            columns: VALUES
                .into_iter()
                .chain([("FUNCTION", Side::Left)])
                .collect(),
            rows,
            remark: self
                .truncated
                .then(|| format!("{} nodes are cut", self.cut_nodes)),
        })
    }
}
