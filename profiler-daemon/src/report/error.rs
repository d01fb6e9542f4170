//! Why a question may have no answer.

use super::query::{Comm, ImageId, ProcessSelector};
use super::times::rfc3339;
use crate::profile::sessions::SessionRefusal;
use crate::units::UnixNs;

/// Why a question has no answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ReportError {
    /// Nothing of that number was ever seen.
    #[error("no process {selector} has been seen in this session")]
    UnknownProcess {
        /// What was asked for.
        selector: ProcessSelector,
    },
    /// It was seen once; its own aggregate is gone.
    #[error(
        "process {selector} has exited and its profile has been dropped to make room; its time is still in the session's totals"
    )]
    DroppedProcess {
        /// What was asked for.
        selector: ProcessSelector,
    },
    /// No processes of that image have ended and left the list.
    #[error("no image {image} is known; images of ended processes are rows of /api/v1/processes")]
    UnknownImage {
        /// What was asked for.
        image: ImageId,
    },
    /// No process of that name was seen, or none is kept one by one.
    #[error("no process is named {comm:?}; names are listed by /api/v1/processes")]
    UnknownName {
        /// What was asked for.
        comm: Comm,
    },
    /// There is no such column.
    #[error("there is no column \"{given}\" to sort by; there are: {}", allowed.join(", "))]
    UnknownSort {
        /// What was asked for.
        given: String,
        /// The table's columns.
        allowed: &'static [&'static str],
    },
    /// No module has that name.
    #[error("no module is named {given:?}; module names are listed by /api/v1/modules")]
    UnknownModule {
        /// The parameter that named it.
        parameter: &'static str,
        /// What was asked for.
        given: String,
    },
    /// No function of that name is in the answer.
    #[error(
        "no function {given:?} has samples or time here{}",
        did_you_mean(similar)
    )]
    UnknownFunction {
        /// What was asked for.
        given: String,
        /// Some names of functions that hold it as a part.
        similar: Vec<String>,
    },
    /// So far back is no longer kept in buckets.
    #[error("the window is too long: {} s are kept at most; ask for window=session to see everything", longest_ns / 1_000_000_000)]
    WindowTooLong {
        /// The longest window that has an answer now, nanoseconds.
        longest_ns: u64,
    },
    /// Part of it is no longer kept in buckets.
    #[error("the window begins before what is kept in buckets: from={} is the earliest now; ask for window=session to see everything", rfc3339(*since_unix_ns))]
    WindowTooOld {
        /// Since when everything is kept, nanoseconds since 1970.
        since_unix_ns: UnixNs,
    },
    /// A timeline of the whole session, the beginning of which is no longer kept in buckets.
    #[error("the session began before what is kept in buckets: leave window out to see all that is kept, which is since {}", rfc3339(*since_unix_ns))]
    SessionTooOld {
        /// Since when everything is kept, nanoseconds since 1970.
        since_unix_ns: UnixNs,
    },
    /// There is no such session or span, or it is no longer kept.
    #[error(transparent)]
    Session(#[from] SessionRefusal),
    /// It ends before it begins, or lies where nothing was observed.
    #[error(
        "there is no time between from and to: from must lie before to, and both between {} and {}",
        rfc3339(*began_unix_ns),
        rfc3339(*now_unix_ns)
    )]
    WindowEmpty {
        /// When the session began, nanoseconds since 1970.
        began_unix_ns: UnixNs,
        /// The time of the pass, nanoseconds since 1970.
        now_unix_ns: UnixNs,
    },
}

fn did_you_mean(similar: &[String]) -> String {
    if similar.is_empty() {
        "; names of functions are listed by functions?q=".to_owned()
    } else {
        format!("; there are {}", similar.join(", "))
    }
}
