//! The named sessions, and the totals of one and of its spans.

use profiler_common::{
    Class,
    kinds::{KINDS, Kind},
};
use serde::Serialize;
use utoipa::ToSchema;

use super::{
    completeness::Completeness,
    error::ReportError,
    places::Places,
    query::{Scope, Window},
    scope::View,
    strata::{self, Shared},
    times::{WindowSpan, rfc3339},
    values::TotalValues,
};
use crate::{
    profile::{
        name::Name,
        over::Gain,
        sessions::{DEFAULT, Session, SpanStart},
        snapshot::Snapshot,
        values::{Totals, add_classes},
    },
    report::names::Names,
    units::MonoNs,
};

/// All sessions.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SessionList {
    /// Time of the drain pass it was made from, RFC 3339.
    pub as_of: String,
    /// The whole life of the daemon first, then the named ones in the order in which they were
    /// started.
    pub sessions: Vec<SessionHead>,
}

/// What is known of a session without looking at what passed in it.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SessionHead {
    /// Its name.
    pub name: String,
    /// `running` or `stopped`.
    pub state: &'static str,
    /// RFC 3339.
    pub started_at: String,
    /// RFC 3339.
    #[schema(required)]
    pub stopped_at: Option<String>,
    /// How long it lasted so far.
    pub duration_ns: u64,
    /// Names of its spans, oldest first.
    pub spans: Vec<String>,
}

/// One session.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SessionTotals {
    /// Time of the drain pass it was made from, RFC 3339.
    pub as_of: String,
    /// The time it covers.
    pub window: WindowSpan,
    /// What it lacks.
    pub completeness: Completeness,
    /// Its name.
    pub name: String,
    /// `running` or `stopped`.
    pub state: &'static str,
    /// RFC 3339.
    pub started_at: String,
    /// RFC 3339.
    #[schema(required)]
    pub stopped_at: Option<String>,
    /// How long it lasted so far.
    pub duration_ns: u64,
    /// Its totals.
    #[serde(flatten)]
    pub totals: TotalValues,
    /// Its spans, oldest first. What is measured of them sums to its totals, to the nanosecond;
    /// what ticks say is said of each by its own.
    pub spans: Vec<SpanTotals>,
}

/// One span of a session.
#[derive(Clone, Debug, Serialize, ToSchema)]
pub struct SpanTotals {
    /// Its name.
    pub name: String,
    /// RFC 3339.
    pub from_at: String,
    /// RFC 3339; none while it lasts.
    #[schema(required)]
    pub to_at: Option<String>,
    /// How long it lasted so far.
    pub duration_ns: u64,
    /// Its totals.
    #[serde(flatten)]
    pub totals: TotalValues,
}

/// All sessions, the default one first.
#[must_use]
pub fn sessions(snapshot: &Snapshot) -> SessionList {
    let named = snapshot.sessions().list().iter();
    SessionList {
        as_of: rfc3339(snapshot.as_of_unix_ns()),
        sessions: std::iter::once(whole(snapshot))
            .chain(named.map(|session| head(snapshot, session)))
            .collect(),
    }
}

fn whole(snapshot: &Snapshot) -> SessionHead {
    SessionHead {
        name: DEFAULT.to_owned(),
        state: "running",
        started_at: rfc3339(snapshot.started_unix_ns()),
        stopped_at: None,
        duration_ns: snapshot.now_ns() - snapshot.whole().from_ns,
        spans: Vec::new(),
    }
}

fn head(snapshot: &Snapshot, session: &Session) -> SessionHead {
    let end_ns = session.stopped.map_or(snapshot.now_ns(), |at| at.ns);
    SessionHead {
        name: session.name.to_string(),
        state: if session.stopped.is_some() {
            "stopped"
        } else {
            "running"
        },
        started_at: rfc3339(session.from().unix_ns),
        stopped_at: session.stopped.map(|at| rfc3339(at.unix_ns)),
        duration_ns: end_ns - session.from().ns,
        spans: session
            .spans
            .iter()
            .map(|span| span.name.to_string())
            .collect(),
    }
}

/// The totals of a session and of its spans. Without a name, of the default one.
///
/// # Errors
/// There is no such session, or it was given up.
pub fn session_totals(
    snapshot: &Snapshot,
    name: Option<Name>,
    names: &dyn Names,
) -> Result<SessionTotals, ReportError> {
    let (window, head, session) = match name {
        None => (Window::Session, whole(snapshot), None),
        Some(session) => {
            let window = Window::Named {
                session,
                span: None,
            };
            let session = snapshot.sessions().find(session)?;
            (window, head(snapshot, session), Some(session))
        }
    };
    let view = View::new(snapshot, &Scope::Session, window)?;
    let places = Places::new(&view);
    Ok(SessionTotals {
        as_of: view.as_of(),
        window: view.window(),
        completeness: Completeness::of_one_total(&view, &places, names),
        name: head.name,
        state: head.state,
        started_at: head.started_at,
        stopped_at: head.stopped_at,
        duration_ns: head.duration_ns,
        totals: places.all_values(&view),
        spans: match session {
            Some(session) => spans(&view, session),
            None => Vec::new(),
        },
    })
}

fn spans(view: &View<'_>, session: &Session) -> Vec<SpanTotals> {
    let now_ns = view.snapshot.now_ns();
    let of = |((index, span), exact): ((usize, &SpanStart), Totals)| {
        let to = session.span_end(index);
        let duration_ns = to.map_or(now_ns, |to| to.ns) - span.from.ns;
        // All that ran in it is one: its ticks tell what they found of all processes together.
        let together = Shared {
            members: vec![(0, [true; KINDS])],
            kinds: exact.kinds,
        };
        let (_, figures) = strata::totals(&[together], &[exact], duration_ns);
        SpanTotals {
            name: span.name.to_string(),
            from_at: rfc3339(span.from.unix_ns),
            to_at: to.map(|to| rfc3339(to.unix_ns)),
            duration_ns,
            totals: TotalValues::new(&figures, &exact, None),
        }
    };
    let spans = session.spans.iter().enumerate();
    spans.zip(exact_totals(view, session)).map(of).collect()
}

/// The totals of each span, of kinds those of running outside system calls; all spans in one pass.
fn exact_totals(view: &View<'_>, session: &Session) -> Vec<Totals> {
    let mut borders_ns: Vec<MonoNs> = session.spans.iter().map(|span| span.from.ns).collect();
    borders_ns.push(session.stopped.map_or(MonoNs::MAX, |at| at.ns));
    let mut totals = vec![Totals::default(); session.spans.len()];
    for member in &view.members {
        member
            .aggregate
            .gains_by_span(&borders_ns, |_, span, gain| match gain {
                Gain::Time(classes) => add_classes(&mut totals[span].classes, &classes),
                Gain::Ticks(tick, count) => totals[span].ticks[tick] += count,
                Gain::TickExcess(excess) => {
                    let to = &mut totals[span].tick_excess;
                    *to = to.saturating_add(excess);
                }
                Gain::Untraced(ns) => totals[span].kinds[Kind::Untraced as usize] += ns,
                Gain::MinorFaults(count) => totals[span].minor_faults += count,
                Gain::MajorFaults(count) => totals[span].major_faults += count,
                Gain::SwitchesMissed(count) => totals[span].switches_missed += count,
                Gain::ProfilerCost(ns) => totals[span].profiler_cost_ns += ns,
            });
    }
    for of in &mut totals {
        let user_ns = of.classes[Class::User as usize];
        let untraced_ns = of.kinds[Kind::Untraced as usize];
        of.kinds[Kind::User as usize] = user_ns.saturating_sub(untraced_ns);
    }
    totals
}
