//! Named sessions: parts of the daemon's one session that somebody wants to ask for by name, cut into named spans by marks.
//!
//! A session holds borders only; what passed between them is in the rings, which keep what a session needs for as long as
//! there is room.

use std::sync::Arc;

use super::timeline::Needs;

/// See the module.
#[derive(Clone, Debug, Default)]
pub struct Sessions {
    all: Arc<Vec<Session>>,
}

/// A named session.
#[derive(Clone, Debug)]
pub struct Session {
    /// When it was started, monotonic nanoseconds.
    pub from_ns: u64,
    /// When it was stopped.
    pub to_ns: Option<u64>,
    /// Its marks, oldest first.
    pub marks: Vec<u64>,
}

impl Needs for Sessions {
    fn needs(&self, from_ns: u64, to_ns: u64) -> bool {
        self.all.iter().any(|session| {
            session.from_ns <= from_ns && session.to_ns.is_none_or(|end_ns| to_ns <= end_ns)
        })
    }

    fn is_border(&self, at_ns: u64) -> bool {
        self.all.iter().any(|session| {
            session.from_ns == at_ns
                || session.to_ns == Some(at_ns)
                || session.marks.contains(&at_ns)
        })
    }
}
