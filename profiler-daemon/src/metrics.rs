//! The daemon's own health and the totals of groups of processes, as Prometheus reads them.
//!
//! Every metric is declared once, in `table`; the exposition and docs/metrics.md are made from
//! that. Series are built anew for each scrape from what the parts of the daemon say of themselves
//! ([`MetricsInput`]): nothing is held between scrapes but the count of requests. Label values that
//! programs chose are cut and cleaned here, whatever their source.

mod exposition;
mod input;
mod requests;
mod table;

pub use exposition::{MAX_LABEL_BYTES, MetricsError, documentation, exposition};
pub use input::MetricsInput;
pub use requests::{AnswerCounts, RequestCounts, StreamCounts, StreamEnd, StreamTotals};

/// The content type of the exposition.
pub const CONTENT_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

#[cfg(test)]
mod tests;
