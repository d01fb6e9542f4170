//! What the interface answered, ready to be shown: numbers as people read them, and names of which
//! nothing can reach the terminal but text. No JSON goes further than this.

use anyhow::{Context as _, anyhow};
use serde_json::Value;

use crate::export::text::{name, nanoseconds};

use super::question::ScreenView;

/// The longest text of one cell, characters.
const MAX_TEXT: usize = 300;
/// Classes of time, in the order in which they are shown, as the interface calls them.
pub(super) const CLASSES: [(&str, &str); 5] = [
    ("user", "classes.user_ns"),
    ("syscall", "classes.syscall_ns"),
    ("kernel", "classes.kernel_ns"),
    ("runnable", "classes.runnable_ns"),
    ("blocked", "classes.blocked_ns"),
];

/// A JSON object by dotted names.
pub(super) struct DottedTexts<'a>(pub(super) &'a Value);

impl<'a> DottedTexts<'a> {
    fn find(&self, path: &str) -> Option<&'a Value> {
        path.split('.')
            .try_fold(self.0, |value, part| value.get(part))
            .filter(|value| !value.is_null())
    }

    fn number(&self, path: &str) -> anyhow::Result<u64> {
        let found = self.find(path).and_then(Value::as_u64);
        found.with_context(|| format!("{path} is missing"))
    }

    /// A number with a fraction; 0 where it is missing.
    fn fraction(&self, path: &str) -> f64 {
        self.find(path).and_then(Value::as_f64).unwrap_or(0.0)
    }

    /// A text that is fit for the terminal; empty where it is missing.
    fn text(&self, path: &str) -> String {
        let text = self.find(path).and_then(Value::as_str).unwrap_or("");
        name(&text.chars().take(MAX_TEXT).collect::<String>())
    }

    fn rows(&self) -> anyhow::Result<impl Iterator<Item = DottedTexts<'a>>> {
        let rows = self.find("rows").and_then(Value::as_array);
        let rows = rows.ok_or_else(|| anyhow!("rows is missing"))?;
        Ok(rows.iter().map(DottedTexts))
    }
}

/// One row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ScreenRow {
    /// What stays the same while its numbers change.
    pub(super) key: String,
    /// A cell for each of the view's columns.
    pub(super) cells: Vec<String>,
}

/// All that one screen shows.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct ScreenAnswer {
    /// What it is of.
    pub(super) view: ScreenView,
    /// The time of it, RFC 3339.
    pub(super) as_of: String,
    /// How long the time is that it covers; empty where it does not say.
    pub(super) covers: String,
    /// Whose time it is: the session, or number and name of a process.
    pub(super) title: String,
    /// What is shown is a saved profile: of which file, and from when.
    pub(super) replay: Option<String>,
    /// Time by class, nanoseconds, in the order of [`CLASSES`].
    pub(super) classes_ns: [u64; CLASSES.len()],
    /// What the answer lacks, in words.
    pub(super) lacks: String,
    /// What the profiler costs, in words.
    pub(super) cost: String,
    /// Rows there are, those that are not shown included.
    pub(super) total_rows: u64,
    /// The first of them.
    pub(super) rows: Vec<ScreenRow>,
}

impl ScreenAnswer {
    /// Reads the answers.
    ///
    /// # Errors
    /// What is missing.
    pub(super) fn read(
        view: ScreenView,
        totals: &DottedTexts<'_>,
        table: &DottedTexts<'_>,
        status: &DottedTexts<'_>,
    ) -> anyhow::Result<Self> {
        let mut classes_ns = [0; CLASSES.len()];
        for (ns, (_, path)) in classes_ns.iter_mut().zip(CLASSES) {
            *ns = totals.number(path)?;
        }
        let title = match view.process() {
            None => format!(
                "{} processes, {} threads",
                totals.number("processes")?,
                totals.number("threads")?
            ),
            Some(_) if totals.find("pid").is_none() => named(totals)?,
            Some(_) => format!("{} {}", totals.number("pid")?, totals.text("comm")),
        };
        let replay = status.find("replay").map(|_| {
            let part = |path| status.text(path);
            format!(
                "replay of {}, saved at {}",
                part("replay.file"),
                part("replay.saved_at")
            )
        });
        let read_row = match view {
            ScreenView::Processes => process_row,
            ScreenView::Functions(_) => function_row,
            ScreenView::Threads(_) => thread_row,
        };
        let rows = table.rows()?.map(|row| read_row(&row));
        Ok(Self {
            as_of: table.text("as_of"),
            covers: covers(table),
            title,
            replay,
            classes_ns,
            lacks: lacks(totals)?,
            cost: cost(status)?,
            total_rows: table.number("total_rows")?,
            rows: rows.collect::<anyhow::Result<_>>()?,
            view,
        })
    }
}

fn covers(table: &DottedTexts<'_>) -> String {
    let moment = |path| humantime::parse_rfc3339(&table.text(path)).ok();
    let (from, to) = (moment("window.from"), moment("window.to"));
    let length = to
        .zip(from)
        .and_then(|(to, from)| to.duration_since(from).ok());
    length.map_or_else(String::new, |length| {
        format!("{:.0} s", length.as_secs_f64())
    })
}

fn lacks(totals: &DottedTexts<'_>) -> anyhow::Result<String> {
    let walked = totals.number("stacks.walked")?;
    let complete = totals.number("stacks.complete")?;
    Ok(format!(
        "{} samples lost, {} of {walked} stacks incomplete, {} without a stack",
        totals.number("completeness.samples_lost")?,
        walked.saturating_sub(complete),
        nanoseconds(totals.number("completeness.elapsed_unattributed_ns")?),
    ))
}

fn cost(status: &DottedTexts<'_>) -> anyhow::Result<String> {
    let cpu_s = status.fraction("own_cost.cpu_seconds_total");
    let up_s = status.number("uptime_s")?.max(1);
    let mebibytes = |bytes: u64| format!("{:.1} MiB", bytes as f64 / f64::from(1 << 20));
    let kernel = status
        .find("own_cost.kernel_map_bytes")
        .and_then(Value::as_u64)
        .map_or_else(String::new, |bytes| {
            format!(", {} in the kernel", mebibytes(bytes))
        });
    Ok(format!(
        "{cpu_s:.1} s of processor time ({:.1} % of one), {} of memory{kernel}",
        100.0 * cpu_s / up_s as f64,
        mebibytes(status.number("own_cost.resident_bytes")?),
    ))
}

fn percent(value: f64) -> String {
    format!("{value:.1}")
}

/// The name of a process, or how many ended ones of an image these are.
fn named(row: &DottedTexts<'_>) -> anyhow::Result<String> {
    Ok(match row.find("ended") {
        Some(_) => format!("{} ({} ended)", row.text("comm"), row.number("ended")?),
        None => row.text("comm"),
    })
}

fn process_row(row: &DottedTexts<'_>) -> anyhow::Result<ScreenRow> {
    let (key, pid) = match row.find("pid") {
        Some(_) => {
            let pid = row.number("pid")?;
            let key = format!("processes/{pid}.{}", row.number("start_ticks")?);
            (key, pid.to_string())
        }
        // Those that ended and are one by image.
        None => (format!("images/{}", row.text("image_id")), String::new()),
    };
    Ok(ScreenRow {
        key,
        cells: vec![
            pid,
            row.number("samples")?.to_string(),
            percent(row.fraction("samples_percent")),
            nanoseconds(row.number("elapsed_ns")?),
            nanoseconds(row.number("application_ns")?),
            nanoseconds(row.number("classes.syscall_ns")?),
            nanoseconds(row.number("classes.runnable_ns")?),
            nanoseconds(row.number("classes.blocked_ns")?),
            row.number("threads")?.to_string(),
            row.text("state"),
            named(row)?,
            row.text("unit"),
        ],
    })
}

fn function_row(row: &DottedTexts<'_>) -> anyhow::Result<ScreenRow> {
    let (function, module) = (row.text("function"), row.text("module"));
    Ok(ScreenRow {
        key: format!("{module}\n{function}"),
        cells: vec![
            row.number("samples.exclusive")?.to_string(),
            percent(row.fraction("samples.exclusive_percent_of_process")),
            nanoseconds(row.number("elapsed.exclusive_ns")?),
            nanoseconds(row.number("elapsed.inclusive_ns")?),
            nanoseconds(row.number("application.exclusive_ns")?),
            function,
            module,
        ],
    })
}

fn thread_row(row: &DottedTexts<'_>) -> anyhow::Result<ScreenRow> {
    let tid = row.number("tid")?;
    let folded = tid == 0;
    // How many they are is not known of a part of the session.
    let comm = match row.find("threads") {
        Some(_) if folded => format!("{} threads that exited", row.number("threads")?),
        None if folded => "threads that exited".to_owned(),
        _ => row.text("comm"),
    };
    Ok(ScreenRow {
        key: format!("{tid} {}", row.text("started_at")),
        cells: vec![
            if folded {
                String::new()
            } else {
                tid.to_string()
            },
            row.number("samples.exclusive")?.to_string(),
            percent(row.fraction("samples.exclusive_percent_of_process")),
            nanoseconds(row.number("elapsed.exclusive_ns")?),
            nanoseconds(row.number("application.exclusive_ns")?),
            nanoseconds(row.number("classes.syscall_ns")?),
            nanoseconds(row.number("classes.runnable_ns")?),
            nanoseconds(row.number("classes.blocked_ns")?),
            row.text("state"),
            comm,
        ],
    })
}
