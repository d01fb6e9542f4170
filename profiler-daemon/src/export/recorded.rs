//! A recording for people: totals, and the functions with most of the value that it is sorted by.

use super::{
    human::{last_part, name, nanoseconds, percent, share},
    measured::{add_cells, add_columns, agreement, measured_tables},
    tables::{fault_fact, function, stacks_text, with_values},
    text::{Cell, Envelope, Table, TextReport},
};
use crate::report::{FunctionRow, Recording, StackValue};

/// Most functions shown.
const MAX_ROWS: usize = 50;

impl TextReport for Recording {
    fn envelope(&self) -> Envelope<'_> {
        Envelope {
            as_of: &self.functions.as_of,
            window: &self.functions.window,
            completeness: &self.functions.completeness,
        }
    }

    fn facts(&self) -> Vec<(&'static str, String)> {
        let session = &self.session;
        let (totals, stacks) = (&session.totals, &session.stacks);
        let classes = &totals.classes;
        let share = |ns: u64| match totals.elapsed_ns {
            0 => nanoseconds(ns),
            all => {
                let share = percent(100.0 * ns as f64 / all as f64);
                format!("{:>12}  {share:>7}", nanoseconds(ns))
            }
        };
        let mut facts = vec![
            ("processes", self.process_names()),
            ("samples", totals.samples.to_string()),
            (
                "stacks",
                stacks_text(
                    stacks.walked,
                    stacks.complete,
                    stacks.truncated,
                    stacks.failed,
                ),
            ),
            ("elapsed", share(totals.elapsed_ns)),
            ("  user", share(classes.user_ns)),
            ("  syscall", share(classes.syscall_ns)),
            ("  blocked", share(classes.blocked_ns)),
            ("  runnable", share(classes.runnable_ns)),
            ("  kernel", share(classes.kernel_ns)),
        ];
        facts.extend(fault_fact(totals));
        facts
    }

    fn table(&self) -> Option<Table> {
        let title = match self.value {
            StackValue::Samples => "SAMPLES%",
            StackValue::Application => "APP%",
            // Functions have no column of the others.
            _ => "ELAPSED%",
        };
        let mut columns = with_values(&["FUNCTION", "MODULE"]);
        columns[0].0 = title;
        let all = &self.functions.rows;
        let shown = all.len().min(MAX_ROWS);
        let rows = &all[..shown];
        const NAMES: usize = 2;
        let at = columns.len() - NAMES;
        add_columns(rows, &mut columns, at);
        let mut cells: Vec<Vec<Cell>> = rows.iter().map(|row| self.cells(row)).collect();
        add_cells(rows, &mut cells, at);
        Some(Table {
            head: None,
            columns,
            rows: cells,
            remark: (shown < all.len())
                .then(|| format!("{shown} of {} functions; csv and json have all", all.len())),
        })
    }

    fn more_tables(&self) -> Vec<Table> {
        let measured = self.measured.as_ref();
        let mut tables = measured.map(measured_tables).unwrap_or_default();
        // The first is of functions, where there are any.
        if let Some(agreement) = agreement(&self.functions.rows)
            && let Some(table) = tables.first_mut()
        {
            let remarks: Vec<String> = table.remark.take().into_iter().chain([agreement]).collect();
            table.remark = Some(remarks.join("\n# "));
        }
        tables
    }
}

impl Recording {
    /// How many processes, and what the busiest ones are called.
    fn process_names(&self) -> String {
        const SHOWN: usize = 5;
        let mut names: Vec<String> = Vec::new();
        for row in &self.processes.rows {
            let comm = name(&row.comm);
            if !names.contains(&comm) {
                names.push(comm);
            }
        }
        let more = if names.len() > SHOWN { ", …" } else { "" };
        names.truncate(SHOWN);
        let count =
            self.processes.rows.len() as u64 + self.session.retired.processes.unwrap_or_default();
        match names.as_slice() {
            [] => count.to_string(),
            names => format!("{count}: {}{more}", names.join(", ")),
        }
    }

    fn cells(&self, row: &FunctionRow) -> Vec<Cell> {
        let (samples, elapsed, application) = (
            &row.values.samples,
            &row.values.elapsed,
            &row.values.application,
        );
        let (exclusive, inclusive) = match self.value {
            StackValue::Samples => (samples.exclusive_percent, samples.inclusive_percent),
            StackValue::Application => {
                (application.exclusive_percent, application.inclusive_percent)
            }
            _ => (elapsed.exclusive_percent, elapsed.inclusive_percent),
        };
        let classes = &row.values.exclusive_classes;
        vec![
            share(exclusive).into(),
            share(inclusive).into(),
            Cell::Time(classes.user_ns),
            Cell::Time(classes.syscall_ns + classes.kernel_ns),
            Cell::Time(classes.blocked_ns),
            Cell::Time(classes.runnable_ns),
            samples.exclusive.to_string().into(),
            function(row).into(),
            name(last_part(&row.module)).into(),
        ]
    }
}
