//! Moments as answers say them, and the time that an answer covers.

use std::time::{Duration, SystemTime};

use serde::Serialize;

use crate::units::UnixNs;

/// A time as RFC 3339, UTC, to the nanosecond.
#[must_use]
pub fn rfc3339(unix_ns: UnixNs) -> String {
    humantime::format_rfc3339_nanos(SystemTime::UNIX_EPOCH + Duration::from_nanos(unix_ns.ns()))
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

#[cfg(test)]
mod tests {
    use super::*;

    // Check that times are written in UTC with all nine digits, at both ends of what 64 bits can
    // hold.
    #[test]
    fn times() {
        assert_eq!(rfc3339(UnixNs::ZERO), "1970-01-01T00:00:00.000000000Z");
        assert_eq!(
            rfc3339(UnixNs::new(951_827_696_000_000_007)),
            "2000-02-29T12:34:56.000000007Z"
        );
        assert_eq!(rfc3339(UnixNs::MAX), "2554-07-21T23:34:33.709551615Z");
    }
}
