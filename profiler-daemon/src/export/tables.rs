//! What each answer puts into its columns for people.

use super::{
    human::{called_from, last_part, name, nanoseconds, percent, profiler_cost, share, title},
    measured,
    text::{Cell, ColumnKind, Envelope, Table, TextReport},
};
use crate::report::{
    CallTree, FunctionRow, InstructionRow, LineRow, List, ModuleRow, OsEvents, ProcessReport,
    ProcessRow, SessionReport, ThreadRow, TreeNode, WindowSpan,
    os_events::SyscallRow,
    values::{ClassValues, RowValues, TotalValues},
};

/// Levels of a call tree that are indented.
const MAX_INDENT: usize = 12;

/// Columns of the values, in the order people look for them: what is shared, what it was spent on,
/// what was seen.
const VALUES: [(&str, ColumnKind); 7] = [
    ("EXCL%", ColumnKind::Number),
    ("INCL%", ColumnKind::Number),
    ("USER", ColumnKind::Part),
    ("SYSTEM", ColumnKind::Part),
    ("BLOCKED", ColumnKind::Part),
    ("RUNNABLE", ColumnKind::Part),
    ("SAMPLES", ColumnKind::Number),
];

/// The values of a row: of the time in which it was innermost, but for `INCL%`.
fn values(values: &RowValues) -> Vec<Cell> {
    let (elapsed, classes) = (&values.elapsed, &values.exclusive_classes);
    let exclusive = elapsed.exclusive_percent_of_process;
    let inclusive = elapsed.inclusive_percent_of_process;
    vec![
        share(exclusive.unwrap_or(elapsed.exclusive_percent)).into(),
        share(inclusive.unwrap_or(elapsed.inclusive_percent)).into(),
        Cell::Time(classes.user_ns),
        Cell::Time(classes.syscall_ns + classes.kernel_ns),
        Cell::Time(classes.blocked_ns),
        Cell::Time(classes.runnable_ns),
        values.samples.exclusive.to_string().into(),
    ]
}

/// What the shares of such rows are of.
fn shares_of(first: Option<&RowValues>) -> Option<String> {
    let of_process = first?.elapsed.exclusive_percent_of_process.is_some();
    let whole = if of_process {
        "the process"
    } else {
        "all threads"
    };
    Some(format!(
        "shares are of the elapsed time of {whole}; times and samples are exclusive"
    ))
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
    if of.profiler_cost_ns > 0 {
        facts.push(("profiling took", profiler_cost(of)));
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
trait TextRow: Sized {
    fn columns(rows: &[Self]) -> Vec<(&'static str, ColumnKind)>;
    fn cells(&self, window: &WindowSpan) -> Vec<Cell>;

    /// The cells of each row.
    fn rows(rows: &[Self], window: &WindowSpan) -> Vec<Vec<Cell>> {
        rows.iter().map(|row| row.cells(window)).collect()
    }

    /// What is to be known to read the table.
    fn head(rows: &[Self], window: &WindowSpan) -> Option<String>;
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
            head: Row::head(&self.rows, &self.window),
            columns: Row::columns(&self.rows),
            rows: Row::rows(&self.rows, &self.window),
            remark: self
                .truncated
                .then(|| format!("{shown} of {} rows; limit=0 shows all", self.total_rows)),
        })
    }
}

/// The columns of values, and these names.
pub(super) fn with_values(names: &[&'static str]) -> Vec<(&'static str, ColumnKind)> {
    let names = names.iter().map(|title| match *title {
        "FUNCTION" => (*title, ColumnKind::Function),
        _ => (*title, ColumnKind::Name),
    });
    VALUES.into_iter().chain(names).collect()
}

/// A module by the last part of its path.
fn module(path: &str) -> Cell {
    name(last_part(path)).into()
}

impl TextRow for FunctionRow {
    fn columns(rows: &[Self]) -> Vec<(&'static str, ColumnKind)> {
        let mut columns = with_values(&["FUNCTION", "MODULE"]);
        measured::add_columns(rows, &mut columns, VALUES.len());
        columns
    }

    fn cells(&self, _window: &WindowSpan) -> Vec<Cell> {
        let mut cells = values(&self.values);
        cells.push(function(self).into());
        cells.push(module(&self.module));
        cells
    }

    fn rows(rows: &[Self], window: &WindowSpan) -> Vec<Vec<Cell>> {
        let mut cells: Vec<Vec<Cell>> = rows.iter().map(|row| row.cells(window)).collect();
        measured::add_cells(rows, &mut cells, VALUES.len());
        cells
    }

    fn head(rows: &[Self], _window: &WindowSpan) -> Option<String> {
        let shares = shares_of(rows.first().map(|row| &row.values))?;
        Some(measured::add_head(rows, shares))
    }
}

/// The function's name, with that of the program from which it was called where it is a library's.
pub(super) fn function(row: &FunctionRow) -> String {
    let function = inlined(&row.function, row.inlined);
    match &row.called_from {
        Some(caller) => called_from(&function, &name(&caller.function)),
        None => function,
    }
}

/// File and line as compilers write them, without the folder.
fn place(file: Option<&str>, line: Option<u32>) -> String {
    let file = file.map(last_part);
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
    fn columns(_rows: &[Self]) -> Vec<(&'static str, ColumnKind)> {
        with_values(&["LINE", "FUNCTION"])
    }

    fn cells(&self, _window: &WindowSpan) -> Vec<Cell> {
        let mut cells = values(&self.values);
        let line = self.line_unknown.map_or_else(
            || place(self.file.as_deref(), self.line),
            |why| format!("({why})"),
        );
        cells.push(line.into());
        cells.push(inlined(&self.function, self.inlined).into());
        cells
    }

    fn head(rows: &[Self], _window: &WindowSpan) -> Option<String> {
        shares_of(rows.first().map(|row| &row.values))
    }
}

impl TextRow for InstructionRow {
    fn columns(_rows: &[Self]) -> Vec<(&'static str, ColumnKind)> {
        with_values(&["ADDRESS", "FUNCTION", "LINE"])
    }

    fn cells(&self, _window: &WindowSpan) -> Vec<Cell> {
        let mut cells = values(&self.values);
        let offset = self.offset.map(|offset| format!("+{offset:#x}"));
        cells.push(optional(self.address.as_deref()).into());
        cells.push(format!("{}{}", name(&self.function), offset.unwrap_or_default()).into());
        cells.push(place(self.file.as_deref(), self.line).into());
        cells
    }

    fn head(rows: &[Self], _window: &WindowSpan) -> Option<String> {
        shares_of(rows.first().map(|row| &row.values))
    }
}

impl TextRow for ModuleRow {
    fn columns(_rows: &[Self]) -> Vec<(&'static str, ColumnKind)> {
        with_values(&["MODULE"])
    }

    fn cells(&self, _window: &WindowSpan) -> Vec<Cell> {
        let mut cells = values(&self.values);
        cells.push(name(&self.module).into());
        cells
    }

    fn head(rows: &[Self], _window: &WindowSpan) -> Option<String> {
        shares_of(rows.first().map(|row| &row.values))
    }
}

/// What threads and processes did with their time.
const ACTIVITY: [(&str, ColumnKind); 5] = [
    ("CPU%", ColumnKind::Number),
    ("USER", ColumnKind::Part),
    ("SYSTEM", ColumnKind::Part),
    ("BLOCKED", ColumnKind::Part),
    ("RUNNABLE", ColumnKind::Part),
];

/// The same, of one: its share is of what all processors could do in the window, or of what one
/// could where nobody knows how many.
fn activity(classes: &ClassValues, window: &WindowSpan) -> Vec<Cell> {
    let system_ns = classes.syscall_ns + classes.kernel_ns;
    let processors = f64::from(window.processors.unwrap_or(1));
    let capacity_ns = (window.duration_ns as f64 * processors).max(1.0);
    vec![
        share(100.0 * (classes.user_ns + system_ns) as f64 / capacity_ns).into(),
        Cell::Time(classes.user_ns),
        Cell::Time(system_ns),
        Cell::Time(classes.blocked_ns),
        Cell::Time(classes.runnable_ns),
    ]
}

/// What those shares are of.
fn capacity(window: &WindowSpan) -> Option<String> {
    let of = match window.processors {
        None | Some(1) => "one processor".to_owned(),
        Some(processors) => format!("all {processors} processors"),
    };
    Some(format!(
        "CPU% is of {of} over {}",
        nanoseconds(window.duration_ns)
    ))
}

impl TextRow for ThreadRow {
    fn columns(_rows: &[Self]) -> Vec<(&'static str, ColumnKind)> {
        let who = [
            ("STATE", ColumnKind::Name),
            ("PID", ColumnKind::Number),
            ("TID", ColumnKind::Number),
            ("COMM", ColumnKind::Name),
        ];
        ACTIVITY.into_iter().chain(who).collect()
    }

    fn cells(&self, window: &WindowSpan) -> Vec<Cell> {
        let mut cells = activity(&self.values.classes, window);
        let who = [
            self.state.to_owned(),
            self.pid.to_string(),
            self.tid.to_string(),
            name(&self.comm),
        ];
        cells.extend(who.map(Cell::Text));
        cells
    }

    fn head(_rows: &[Self], window: &WindowSpan) -> Option<String> {
        capacity(window)
    }
}

impl TextRow for ProcessRow {
    fn columns(_rows: &[Self]) -> Vec<(&'static str, ColumnKind)> {
        let who = [
            ("THREADS", ColumnKind::Number),
            ("STATE", ColumnKind::Name),
            ("PID", ColumnKind::Number),
            ("COMM", ColumnKind::Name),
        ];
        ACTIVITY.into_iter().chain(who).collect()
    }

    fn cells(&self, window: &WindowSpan) -> Vec<Cell> {
        let mut cells = activity(&self.totals.classes, window);
        let pid = self.pid.map(|pid| pid.to_string());
        let who = [
            self.threads.to_string(),
            self.state.to_owned(),
            pid.unwrap_or_else(|| "-".to_owned()),
            title(&self.comm, self.ended),
        ];
        cells.extend(who.map(Cell::Text));
        cells
    }

    fn head(_rows: &[Self], window: &WindowSpan) -> Option<String> {
        capacity(window)
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
                    _ => title(&process.comm, process.ended),
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
        if let (Some(group), Some(ns)) = (&process.throttled_group, process.throttled_ns) {
            let seconds = ns as f64 / 1e9;
            let used_up = format!("quota of {} used up for {seconds:.3} s", name(group));
            facts.push(("throttled", used_up));
        }
        facts.extend(total_facts(&process.totals));
        if let Some(command_line) = &process.command_line {
            facts.insert(3, ("command line", name(command_line)));
        }
        facts
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
        let columns = vec![
            ("TOTAL", ColumnKind::Part),
            ("RUNNING", ColumnKind::Part),
            ("BLOCKED", ColumnKind::Part),
            ("RUNNABLE", ColumnKind::Part),
            ("COUNT", ColumnKind::Number),
            ("MEAN", ColumnKind::Number),
            ("MAX", ColumnKind::Number),
            ("", ColumnKind::Name),
            ("NOW", ColumnKind::Number),
            ("SYSTEM CALL", ColumnKind::Name),
        ];
        // Calls that sleep for hours stand beside those of a microsecond: no one unit shows both.
        let each = |ns: Option<u64>| Cell::Text(ns.map_or_else(|| "-".to_owned(), nanoseconds));
        let row = |call: &SyscallRow| {
            let bound = if call.max_is_bound { "or less" } else { "" };
            vec![
                Cell::Time(call.total_ns),
                Cell::Time(call.running_ns),
                Cell::Time(call.blocked_ns),
                Cell::Time(call.runnable_ns),
                call.count.to_string().into(),
                each(call.average_ns),
                each(call.max_ns),
                bound.to_owned().into(),
                call.in_progress.to_string().into(),
                call.name.to_string().into(),
            ]
        };
        Some(Table {
            head: Some(if self.observed_percent >= 100.0 {
                "COUNT, MEAN and MAX are of calls that returned; NOW: threads inside".to_owned()
            } else {
                format!(
                    "COUNT, MEAN, MAX and RUNNING are of the {} of the running time in which calls were traced; NOW: threads inside",
                    percent(self.observed_percent)
                )
            }),
            columns,
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
            let mut cells = values(&node.values);
            let count = node
                .cut_nodes
                .map(|cut| format!(" {cut} nodes"))
                .unwrap_or_default();
            // What is deeper stands as far to the right as can still be read, and says how deep it
            // is.
            let (indent, level) = match depth {
                0..=MAX_INDENT => (depth, String::new()),
                _ => (MAX_INDENT, format!("({depth}) ")),
            };
            let function = name(&node.function);
            cells.push(format!("{:indent$}{level}{function}{count}", "").into());
            rows.push(cells);
            next.extend(node.children.iter().rev().map(|child| (depth + 1, child)));
        }
        Some(Table {
            head: shares_of(Some(&self.root.values)),
            columns: with_values(&["FUNCTION"]),
            rows,
            remark: self
                .truncated
                .then(|| format!("{} nodes are cut", self.cut_nodes)),
        })
    }
}
