//! USDT points and spans that were followed, for people.

use super::{
    human::{last_part, name, nanoseconds},
    text::{Cell, ColumnKind, Table},
};
use crate::report::{SpanValues, UsdtValues};

/// A row for each USDT point.
pub(super) fn usdt_table(points: &[UsdtValues]) -> Table {
    let columns = vec![
        ("HITS", ColumnKind::Number),
        ("PROCESSES", ColumnKind::Number),
        ("ARG", ColumnKind::Number),
        ("MIN", ColumnKind::Number),
        ("MEAN", ColumnKind::Number),
        ("MAX", ColumnKind::Number),
        ("POINT", ColumnKind::Function),
        ("MODULE", ColumnKind::Name),
    ];
    let remarks: Vec<String> = points.iter().filter_map(usdt_remark).collect();
    Table {
        head: Some("hits of USDT points, and the values of the argument that was asked for".into()),
        columns,
        rows: points.iter().map(usdt_cells).collect(),
        remark: (!remarks.is_empty()).then(|| remarks.join("\n# ")),
    }
}

fn usdt_cells(point: &UsdtValues) -> Vec<Cell> {
    let argument = point.argument.as_ref();
    let or_none = |text: Option<String>| Cell::Text(text.unwrap_or_else(|| "-".to_owned()));
    let number = |value: Option<i64>| or_none(value.map(|value| value.to_string()));
    vec![
        point.hits.to_string().into(),
        point.processes.len().to_string().into(),
        or_none(argument.map(|argument| format!("arg{}", argument.number))),
        number(argument.and_then(|argument| argument.min)),
        or_none(argument.and_then(|argument| Some(format!("{:.1}", argument.mean?)))),
        number(argument.and_then(|argument| argument.max)),
        point_name(point).into(),
        name(last_part(&point.module)).into(),
    ]
}

fn point_name(point: &UsdtValues) -> String {
    format!("{}:{}", name(&point.provider), name(&point.name))
}

fn usdt_remark(point: &UsdtValues) -> Option<String> {
    let mut parts = Vec::new();
    parts.extend(point.why.clone());
    if point.attached_after_ns > 0 {
        parts.push(late(point.attached_after_ns));
    }
    if let Some(argument) = point
        .argument
        .as_ref()
        .filter(|argument| argument.unreadable > 0)
    {
        parts.push(format!(
            "{} values could not be read: their memory was not there",
            argument.unreadable
        ));
    }
    (!parts.is_empty()).then(|| format!("{}: {}", point_name(point), parts.join("; ")))
}

/// A row for each span.
pub(super) fn span_table(spans: &[SpanValues]) -> Table {
    let columns = vec![
        ("COUNT", ColumnKind::Number),
        ("MEAN", ColumnKind::Number),
        ("P50", ColumnKind::Number),
        ("P90", ColumnKind::Number),
        ("P99", ColumnKind::Number),
        ("MIN", ColumnKind::Number),
        ("MAX", ColumnKind::Number),
        ("ELAPSED", ColumnKind::Part),
        ("OPEN", ColumnKind::Number),
        ("SPAN", ColumnKind::Function),
        ("KEY", ColumnKind::Name),
    ];
    let remarks: Vec<String> = spans.iter().filter_map(span_remark).collect();
    Table {
        head: Some("spans, from a start to the end with the same key, in whichever threads".into()),
        columns,
        rows: spans.iter().map(span_cells).collect(),
        remark: (!remarks.is_empty()).then(|| remarks.join("\n# ")),
    }
}

fn span_cells(span: &SpanValues) -> Vec<Cell> {
    let time = |ns: Option<u64>| Cell::Text(ns.map_or_else(|| "-".to_owned(), nanoseconds));
    vec![
        span.count.to_string().into(),
        time(span.mean_ns),
        time(span.p50_ns),
        time(span.p90_ns),
        time(span.p99_ns),
        time(span.min_ns),
        time(span.max_ns),
        Cell::Time(span.elapsed_ns),
        span.open.to_string().into(),
        name(&span.name).into(),
        span.key.clone().into(),
    ]
}

/// What is to be known of a span's values.
fn span_remark(span: &SpanValues) -> Option<String> {
    let mut parts = Vec::new();
    parts.extend(span.why.clone());
    if span.mostly_probe {
        parts.push(format!(
            "about {} of each are its probes",
            nanoseconds(span.probe_ns)
        ));
    }
    if span.attached_after_ns > 0 {
        parts.push(late(span.attached_after_ns));
    }
    if span.open > 0 {
        parts.push(format!(
            "{} are under way, the first for {}",
            span.open,
            nanoseconds(span.open_longest_ns)
        ));
    }
    let counts = [
        (span.left_exit, "had not ended when their process exited"),
        (
            span.replaced,
            "were replaced by another start with their key",
        ),
        (
            span.not_kept,
            "starts were not kept: too many were under way",
        ),
        (span.unmatched_ends, "ends had no start"),
        (
            span.unreadable_keys,
            "starts and ends had a key that could not be read",
        ),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        parts.push(format!("{count} {what}"));
    }
    (!parts.is_empty()).then(|| format!("{}: {}", name(&span.name), parts.join("; ")))
}

fn late(ns: u64) -> String {
    format!(
        "it was found {} after the begin: what was before is not counted",
        nanoseconds(ns)
    )
}
