//! Named sessions: parts of the daemon's one session that somebody wants to ask for by name, cut
//! into named spans by marks.
//!
//! A session holds borders only; what passed between them is in the [window
//! history](super::window_history), which keeps what a session needs for as long as there is room.
//! Changes are made right after a drain pass, so that the borders are exact.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};
use thiserror::Error;

pub use super::now::At;
use super::{Profile, name::Name, timeline::Needs};
use crate::units::MonoNs;

/// Most spans that an error lists.
const MAX_LISTED: usize = 20;
/// Sessions given up whose names are remembered.
const MAX_REMEMBERED: usize = 64;

/// A change to the named sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SessionChange {
    /// Starts one; without a name, one is made.
    Start {
        /// The name.
        name: Option<Name>,
    },
    /// Begins a new span, of one session or of all that run.
    Mark {
        /// The span's name; where a session has one of that name already, it gets a number.
        name: Name,
        /// The session.
        session: Option<Name>,
    },
    /// Stops one that runs, removes one that is stopped.
    End {
        /// The session.
        name: Name,
    },
}

/// What a change did.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SessionChanged {
    /// This one was started.
    Started(Name),
    /// These spans were begun: session and span.
    Marked(Vec<(Name, Name)>),
    /// It was stopped.
    Stopped(Name),
    /// It was removed.
    Removed,
}

/// Why a change was not made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum SessionRefusal {
    /// There is one of that name.
    #[error("there is a session {name} already; DELETE stops it, and a second DELETE removes it")]
    Exists {
        /// The name.
        name: Name,
    },
    /// The name stands for something else.
    #[error("{name} is the name of the whole life of the daemon: choose another one")]
    Reserved {
        /// The name.
        name: Name,
    },
    /// No more can run.
    #[error("{most} sessions run already, which is all there may be (setting limits.sessions)")]
    TooMany {
        /// The bound.
        most: usize,
    },
    /// No more marks can be kept.
    #[error(
        "the sessions have {most} spans already, which is all there may be (setting limits.session_spans)"
    )]
    TooManySpans {
        /// The bound.
        most: usize,
    },
    /// There is none of that name.
    #[error("there is no session {name}; /api/v1/sessions lists them")]
    Unknown {
        /// The name.
        name: Name,
    },
    /// It has no span of that name.
    #[error("session {session} has no such span; it has {}", list(spans))]
    UnknownSpan {
        /// The session.
        session: Name,
        /// Some that it has.
        spans: Vec<Name>,
    },
    /// It was given up.
    #[error("session {name} is no longer kept: {why}")]
    GivenUp {
        /// The name.
        name: Name,
        /// Why.
        why: GivenUp,
    },
    /// It is stopped.
    #[error("session {name} is stopped: only one that runs can be marked")]
    Stopped {
        /// The name.
        name: Name,
    },
    /// None runs that could be marked.
    #[error("no session runs: start one with POST /api/v1/sessions")]
    NoneRuns,
    /// The default session is neither started nor marked nor stopped.
    #[error(
        "the session {DEFAULT} is the whole life of the daemon: it has no spans and cannot be stopped"
    )]
    Default,
}

fn list(names: &[Name]) -> String {
    let names: Vec<&str> = names.iter().map(Name::as_str).collect();
    names.join(", ")
}

/// Why a session was given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error, Serialize, Deserialize)]
pub enum GivenUp {
    /// A newer one took its place.
    #[error(
        "there were more than the setting limits.sessions allows, and it was the one stopped first"
    )]
    Number,
    /// What it needs of the recent past had no room.
    #[error("what passed in it had no room beside newer time (setting limits.recent_past_bytes)")]
    Room,
}

/// The name of the session that is the whole life of the daemon.
pub const DEFAULT: &str = "default";
/// Names of that session; [`DEFAULT`] is the one that is shown.
pub const RESERVED: [&str; 2] = [DEFAULT, "session"];
/// The name of a session's span before its first mark.
pub const FIRST_SPAN: &str = "start";

/// Whether a name is one of the whole life of the daemon.
#[must_use]
pub fn is_reserved(name: Name) -> bool {
    RESERVED.contains(&name.as_str())
}

/// Where a span of a session begins; it ends where the next one begins, or the session ends.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct SpanStart {
    /// Its name, its own within the session.
    pub name: Name,
    /// When it begins.
    pub from: At,
}

/// A named session.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Session {
    /// Its name.
    pub name: Name,
    /// Its spans, oldest first; at least one.
    pub spans: Vec<SpanStart>,
    /// When it was stopped.
    pub stopped: Option<At>,
}

impl Session {
    /// When it was started.
    #[must_use]
    pub fn from(&self) -> At {
        self.spans[0].from
    }

    /// When the span of this index ends; `None`: it lasts.
    #[must_use]
    pub fn span_end(&self, index: usize) -> Option<At> {
        let next = self.spans.get(index + 1).map(|next| next.from);
        next.or(self.stopped)
    }

    /// From when to when a span lasts, or all of it; `None` as end: until now.
    ///
    /// # Errors
    /// It has no such span.
    pub fn part(&self, span: Option<Name>) -> Result<(At, Option<At>), SessionRefusal> {
        let Some(name) = span else {
            return Ok((self.from(), self.stopped));
        };
        let index = self.spans.iter().position(|span| span.name == name);
        let index = index.ok_or_else(|| SessionRefusal::UnknownSpan {
            session: self.name,
            spans: self
                .spans
                .iter()
                .map(|span| span.name)
                .take(MAX_LISTED)
                .collect(),
        })?;
        Ok((self.spans[index].from, self.span_end(index)))
    }

    /// A name that none of its spans has: the given one, or that with a number.
    fn free_name(&self, wanted: Name) -> Name {
        let taken: BTreeSet<Name> = self.spans.iter().map(|span| span.name).collect();
        let numbered = (2..).map(|number| wanted.numbered(number));
        let mut names = std::iter::once(wanted).chain(numbered);
        let free = names.find(|name| !taken.contains(name));
        free.expect("there are more numbers than spans")
    }
}

/// See the module. Cheap to clone.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Sessions {
    kept: Arc<Vec<Session>>,
    given_up: Arc<VecDeque<(Name, GivenUp)>>,
    made: u64,
    given_up_count: u64,
}

impl Sessions {
    /// Those that are kept, in the order in which they were started.
    #[must_use]
    pub fn list(&self) -> &[Session] {
        &self.kept
    }

    /// The same, to change what a file would hold.
    #[cfg(test)]
    pub(super) fn kept_mut(&mut self) -> &mut Vec<Session> {
        Arc::make_mut(&mut self.kept)
    }

    /// How many were given up.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up_count
    }

    /// The session of a name.
    ///
    /// # Errors
    /// There is none, or it was given up.
    pub fn find(&self, name: Name) -> Result<&Session, SessionRefusal> {
        let found = self.kept.iter().find(|session| session.name == name);
        found.ok_or_else(|| {
            let mut given_up = self.given_up.iter();
            match given_up.find(|(known, _)| *known == name) {
                Some((_, why)) => SessionRefusal::GivenUp { name, why: *why },
                None => SessionRefusal::Unknown { name },
            }
        })
    }

    /// Whether a change can be made, with these bounds on sessions and on the spans of all of them.
    pub(super) fn check(
        &self,
        change: &SessionChange,
        most: usize,
        most_spans: usize,
    ) -> Result<(), SessionRefusal> {
        let running = || self.kept.iter().filter(|session| session.stopped.is_none());
        let spans: usize = self.kept.iter().map(|session| session.spans.len()).sum();
        let has_room = |more: usize| {
            let fits = spans + more <= most_spans;
            fits.then_some(())
                .ok_or(SessionRefusal::TooManySpans { most: most_spans })
        };
        match *change {
            SessionChange::Start { name: Some(name) } if is_reserved(name) => {
                Err(SessionRefusal::Reserved { name })
            }
            SessionChange::Start { name } => {
                if let Some(name) = name
                    && self.find(name).is_ok()
                {
                    return Err(SessionRefusal::Exists { name });
                }
                if running().count() >= most {
                    return Err(SessionRefusal::TooMany { most });
                }
                has_room(1)
            }
            SessionChange::Mark {
                session: Some(name),
                ..
            } if is_reserved(name) => Err(SessionRefusal::Default),
            SessionChange::Mark {
                session: Some(name),
                ..
            } => {
                if self.find(name)?.stopped.is_some() {
                    return Err(SessionRefusal::Stopped { name });
                }
                has_room(1)
            }
            SessionChange::Mark { session: None, .. } => match running().count() {
                0 => Err(SessionRefusal::NoneRuns),
                count => has_room(count),
            },
            SessionChange::End { name } if is_reserved(name) => Err(SessionRefusal::Default),
            SessionChange::End { name } => self.find(name).map(|_| ()),
        }
    }

    fn apply(&mut self, change: SessionChange, now: At, most: usize) -> SessionChanged {
        match change {
            SessionChange::Start { name } => {
                if self.kept.len() >= most {
                    self.give_up_stopped(GivenUp::Number);
                }
                let name = name.unwrap_or_else(|| self.make_name());
                Arc::make_mut(&mut self.given_up).retain(|(known, _)| *known != name);
                Arc::make_mut(&mut self.kept).push(Session {
                    name,
                    spans: vec![SpanStart {
                        name: Name::of(FIRST_SPAN),
                        from: now,
                    }],
                    stopped: None,
                });
                SessionChanged::Started(name)
            }
            SessionChange::Mark { name, session } => {
                let all = Arc::make_mut(&mut self.kept).iter_mut();
                let marked = all
                    .filter(|of| of.stopped.is_none() && session.is_none_or(|name| of.name == name))
                    .map(|of| {
                        let span = SpanStart {
                            name: of.free_name(name),
                            from: now,
                        };
                        of.spans.push(span);
                        (of.name, span.name)
                    });
                SessionChanged::Marked(marked.collect())
            }
            SessionChange::End { name } => {
                let kept = Arc::make_mut(&mut self.kept);
                let running = kept
                    .iter_mut()
                    .find(|session| session.name == name && session.stopped.is_none());
                match running {
                    Some(session) => {
                        session.stopped = Some(now);
                        SessionChanged::Stopped(name)
                    }
                    None => {
                        kept.retain(|session| session.name != name);
                        SessionChanged::Removed
                    }
                }
            }
        }
    }

    fn make_name(&mut self) -> Name {
        loop {
            self.made += 1;
            let name = Name::of("session").numbered(self.made);
            if self.find(name).is_err() {
                return name;
            }
        }
    }

    /// Gives up the session that was stopped first.
    fn give_up_stopped(&mut self, why: GivenUp) -> bool {
        let stopped = self.kept.iter().enumerate();
        let stopped = stopped.filter_map(|(index, session)| Some((session.stopped?.ns, index)));
        let first = stopped.min();
        first.is_some_and(|(_, index)| self.give_up(index, why))
    }

    /// Gives up the session that was stopped first; where none is, the one that was started first.
    pub(super) fn give_up_for_room(&mut self) -> bool {
        self.give_up_stopped(GivenUp::Room)
            || (!self.kept.is_empty() && self.give_up(0, GivenUp::Room))
    }

    fn give_up(&mut self, index: usize, why: GivenUp) -> bool {
        let session = Arc::make_mut(&mut self.kept).remove(index);
        let given_up = Arc::make_mut(&mut self.given_up);
        given_up.push_back((session.name, why));
        if given_up.len() > MAX_REMEMBERED {
            given_up.pop_front();
        }
        self.given_up_count += 1;
        true
    }
}

impl Needs for Sessions {
    fn needs(&self, from_ns: MonoNs, to_ns: MonoNs) -> bool {
        self.kept.iter().any(|session| {
            let stopped = session.stopped;
            session.from().ns <= from_ns && stopped.is_none_or(|stopped| to_ns <= stopped.ns)
        })
    }

    fn is_border(&self, at_ns: MonoNs) -> bool {
        self.kept.iter().any(|session| {
            let spans = &session.spans;
            session.stopped.is_some_and(|stopped| stopped.ns == at_ns)
                || spans
                    .binary_search_by_key(&at_ns, |span| span.from.ns)
                    .is_ok()
        })
    }
}

impl Profile {
    /// Whether a change of the named sessions can be made now.
    ///
    /// # Errors
    /// Why not.
    pub fn check_session(&self, change: &SessionChange) -> Result<(), SessionRefusal> {
        let limits = &self.limits;
        self.sessions
            .check(change, limits.sessions, limits.session_spans)
    }

    /// Makes a change of the named sessions, as of the last pass.
    ///
    /// # Errors
    /// Why it cannot be made.
    pub fn change_session(
        &mut self,
        change: SessionChange,
    ) -> Result<SessionChanged, SessionRefusal> {
        self.check_session(&change)?;
        self.begin_bucket();
        // That may have given sessions up.
        self.check_session(&change)?;
        let now = At {
            ns: self.now_ns,
            unix_ns: self.now_unix_ns,
        };
        Ok(self.sessions.apply(change, now, self.limits.sessions))
    }
}
