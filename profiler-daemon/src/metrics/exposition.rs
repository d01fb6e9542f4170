//! Turns the table and the numbers into the text that Prometheus reads, and the table into its page
//! of documentation.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use prometheus::proto::{Counter, Gauge, LabelPair, Metric, MetricFamily, MetricType};
use prometheus::{Encoder as _, TextEncoder};
use thiserror::Error;

use super::input::MetricsInput;
use super::table::{FAMILIES, Family, MetricKind};

/// The longest value of a label, in bytes. What is longer is cut.
pub const MAX_LABEL_BYTES: usize = 128;

/// Why there is no exposition.
#[derive(Debug, Error)]
#[error("the metrics cannot be written: {0}")]
pub struct MetricsError(#[from] prometheus::Error);

/// The series of one family. Two of the same labels are added up, so that the exposition never
/// holds a series twice.
#[derive(Debug, Default)]
pub(super) struct Series(BTreeMap<Vec<String>, f64>);

impl Series {
    /// Adds a series, its labels in the order of their declaration.
    pub(super) fn add(&mut self, labels: &[&str], value: f64) {
        let labels = labels.iter().map(|label| clean(label)).collect();
        *self.0.entry(labels).or_default() += value;
    }
}

/// A label's value without control characters, cut at [`MAX_LABEL_BYTES`]. Quotes and backslashes
/// are escaped later.
fn clean(value: &str) -> String {
    let mut cleaned = String::with_capacity(value.len().min(MAX_LABEL_BYTES));
    for character in value.chars() {
        let character = if character.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            character
        };
        if cleaned.len() + character.len_utf8() > MAX_LABEL_BYTES {
            break;
        }
        cleaned.push(character);
    }
    cleaned
}

/// The text that answers a scrape.
///
/// # Errors
///
/// When the encoder refuses a family, which the declarations rule out.
pub fn exposition(input: &MetricsInput<'_>) -> Result<String, MetricsError> {
    let families: Vec<_> = FAMILIES
        .iter()
        .filter_map(|family| build(family, input))
        .collect();
    let mut text = Vec::new();
    TextEncoder::new().encode(&families, &mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// One family with its series; none when it has none, because an empty family may not be exposed.
fn build(family: &Family, input: &MetricsInput<'_>) -> Option<MetricFamily> {
    let mut series = Series::default();
    (family.read)(input, &mut series);
    if series.0.is_empty() {
        return None;
    }
    let metrics = series.0.into_iter().map(|(values, number)| {
        let labels = family.labels.iter().zip(values).map(|(name, value)| {
            let mut pair = LabelPair::default();
            pair.set_name((*name).to_owned());
            pair.set_value(value);
            pair
        });
        let mut metric = Metric::from_label(labels.collect());
        match family.kind {
            MetricKind::Counter => {
                let mut counter = Counter::default();
                counter.set_value(number);
                metric.set_counter(counter);
            }
            MetricKind::Gauge => {
                let mut gauge = Gauge::default();
                gauge.set_value(number);
                metric.set_gauge(gauge);
            }
        }
        metric
    });
    let mut built = MetricFamily::default();
    built.set_name(family.name.to_owned());
    built.set_help(family.help.to_owned());
    built.set_field_type(match family.kind {
        MetricKind::Counter => MetricType::COUNTER,
        MetricKind::Gauge => MetricType::GAUGE,
    });
    built.set_metric(metrics.collect());
    Some(built)
}

/// The page that lists every metric.
#[must_use]
pub fn documentation() -> String {
    let mut page = String::from(
        "# Metrics\n\n\
         Generated from the code. `GET /metrics` answers in the Prometheus text format. Counters only grow while the\n\
         daemon runs: while its collector does not answer, a scrape is 503 and not a part of them. A `group` is a systemd unit, else a container, else a program's name; only so many have series of\n\
         their own (setting `metrics.max_groups`), the rest share `group=\"other\"`. There is no label for a process:\n\
         ask `/api/v1/processes`.\n\n\
         | metric | type | unit | labels | meaning |\n|---|---|---|---|---|\n",
    );
    for family in FAMILIES {
        let labels: Vec<_> = family
            .labels
            .iter()
            .map(|label| format!("`{label}`"))
            .collect();
        let kind = match family.kind {
            MetricKind::Counter => "counter",
            MetricKind::Gauge => "gauge",
        };
        writeln!(
            page,
            "| `{}` | {kind} | {} | {} | {} |",
            family.name,
            family.unit,
            labels.join(", "),
            family.help
        )
        .expect("a string takes all text");
    }
    page
}
