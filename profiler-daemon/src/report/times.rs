//! Moments as answers say them, and the time that an answer covers.

use std::time::{Duration, SystemTime};

use serde::Serialize;

/// A time as RFC 3339, UTC, to the nanosecond.
#[must_use]
pub fn rfc3339(unix_ns: u64) -> String {
    humantime::format_rfc3339_nanos(SystemTime::UNIX_EPOCH + Duration::from_nanos(unix_ns))
        .to_string()
}

/// The time an answer covers: from one drain pass to another.
#[derive(Clone, Debug, Serialize, PartialEq, Eq, utoipa::ToSchema)]
pub struct WindowSpan {
    /// RFC 3339.
    #[schema(format = DateTime)]
    pub from: String,
    /// RFC 3339.
    #[schema(format = DateTime)]
    pub to: String,
    /// The time in between, nanoseconds.
    pub duration_ns: u64,
    /// Processors that were profiled at its end; null where that is not known.
    #[schema(required)]
    pub processors: Option<u32>,
}
