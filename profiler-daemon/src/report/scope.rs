//! From a question's scope and window to the aggregates it is about, their denominators and their
//! coverage.

use profiler_common::{Class, kinds::KindNs};

use super::{
    error::ReportError,
    member::{Member, all_members, members},
    product::Values,
    query::{Moment, Scope, Window},
    strata::{self, Shared, TotalFigures, strata},
    times::{WindowSpan, rfc3339},
    values::Denominators,
};
use crate::profile::{
    input::{ProcessInfo, ThreadState},
    over::{Span, ThreadsOver},
    snapshot::{NotKept, Snapshot, SpanCovered},
    threads::Thread,
    values::Totals,
};
use crate::units::MonoNs;

/// A session that is older than this has a recent part.
const RECENT_AFTER_NS: u64 = 300_000_000_000;
/// How long that is.
const RECENT_NS: u64 = 30_000_000_000;

/// What a question is about.
pub(super) struct View<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) members: Vec<Member<'a>>,
    /// The exact totals of each member.
    pub(super) totals: Vec<Totals>,
    /// The same as rows show them.
    pub(super) figures: Vec<TotalFigures>,
    /// Of all members together.
    pub(super) total: TotalFigures,
    /// Who shares them.
    pub(super) strata: Vec<Shared>,
    pub(super) coverage: SpanCovered,
    pub(super) denominators: Denominators,
}

impl<'a> View<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        scope: &Scope,
        window: Window,
    ) -> Result<Self, ReportError> {
        let coverage = coverage(snapshot, window)?;
        let span_ns = coverage.to_ns.saturating_since(coverage.from_ns);
        let over = |members: &[Member<'_>]| {
            let of = |member: &Member<'_>| member.aggregate.threads_over(coverage.span).total();
            let totals: Vec<Totals> = members.iter().map(of).collect();
            let kinds: Vec<KindNs> = totals.iter().map(|totals| totals.kinds).collect();
            let strata = strata(members, &kinds, snapshot.mark_periods());
            let figures = strata::totals(&strata, &totals, span_ns);
            (totals, strata, figures)
        };
        let members = members(snapshot, scope)?;
        let (totals, strata, (figures, total)) = over(&members);
        let mut sum = Totals::default();
        totals.iter().for_each(|totals| sum.add(totals));
        let samples_each = sum.samples_each();
        let user_ns = sum.classes[Class::User as usize];
        let denominators = match scope {
            Scope::Session => Denominators {
                session: total.values,
                process: None,
                session_user_ns: user_ns,
                process_user_ns: None,
                samples_each,
            },
            Scope::Process(_) | Scope::Image(_) | Scope::Named(_) => {
                // What is in scope counts as it is shown here, divided alone: no share of it is
                // more than all.
                let all = all_members(snapshot);
                let (all_totals, _, (rows, _)) = over(&all);
                let of_all = all_totals.iter();
                let session_user_ns = of_all.map(|of| of.classes[Class::User as usize]).sum();
                let here = |of: &Member<'_>| {
                    let mut aggregates = members.iter().map(|member| member.aggregate);
                    aggregates.any(|aggregate| std::ptr::eq(aggregate, of.aggregate))
                };
                let mut session = total.values;
                let others = all.iter().zip(&rows).filter(|(member, _)| !here(member));
                others.for_each(|(_, row)| session.add(&row.values));
                Denominators {
                    session,
                    process: Some(total.values),
                    session_user_ns,
                    process_user_ns: Some(user_ns),
                    samples_each,
                }
            }
        };
        Ok(Self {
            snapshot,
            members,
            totals,
            figures,
            total,
            strata,
            coverage,
            denominators,
        })
    }

    /// What a part of its members had in another time. Nothing in it is a share of anything.
    pub(super) fn part(&self, members: Vec<Member<'a>>, coverage: SpanCovered) -> Self {
        let snapshot = self.snapshot;
        let span_ns = coverage.to_ns.saturating_since(coverage.from_ns);
        let of = |member: &Member<'_>| member.aggregate.threads_over(coverage.span).total();
        let totals: Vec<Totals> = members.iter().map(of).collect();
        let kinds: Vec<KindNs> = totals.iter().map(|totals| totals.kinds).collect();
        let strata = strata(&members, &kinds, snapshot.mark_periods());
        let (figures, total) = strata::totals(&strata, &totals, span_ns);
        Self {
            snapshot,
            members,
            totals,
            figures,
            total,
            strata,
            coverage,
            denominators: Denominators::default(),
        }
    }

    /// Of a member, the control group around it whose quota was used up in the time covered while
    /// it was runnable, and for how long.
    pub(super) fn throttled(&self, member: usize) -> Option<(String, u64)> {
        let (_, process) = self.members[member].process?;
        let group = process.quota_group.as_ref()?;
        let runnable_ns = self.figures[member].values.classes[Class::Runnable as usize];
        let mut throttled = self.coverage.throttled.iter();
        let (_, ns) = throttled.find(|(path, _)| **path == **group)?;
        (runnable_ns > 0).then(|| (group.to_string(), *ns))
    }

    /// The totals of what is in scope.
    pub(super) fn totals(&self) -> Totals {
        let mut sum = Totals::default();
        self.totals.iter().for_each(|totals| sum.add(totals));
        sum
    }

    /// The totals of the threads of a member as rows show them.
    pub(super) fn thread_values(&self, member: usize, threads: &[Totals]) -> Vec<Values> {
        strata::thread_values(
            threads,
            (&self.totals[member], &self.figures[member].values),
            self.snapshot.mark_periods(),
        )
    }

    /// How long the time covered is, nanoseconds.
    pub(super) fn span_ns(&self) -> u64 {
        self.coverage.to_ns.saturating_since(self.coverage.from_ns)
    }

    pub(super) fn is_session(&self) -> bool {
        self.denominators.process.is_none()
    }

    /// Whether a process was there in the time covered: it has any of it, or lives and had begun by
    /// its end.
    pub(super) fn has_process(&self, info: &ProcessInfo, totals: &Totals) -> bool {
        self.coverage.span == Span::Session
            || totals.elapsed_ns() > 0
            || totals.samples() > 0
            || (info.exited_at_unix_ns.is_none()
                && info.started_at_unix_ns < self.coverage.to_unix_ns)
    }

    /// Whether a thread was there in the time covered.
    pub(super) fn has_thread(&self, thread: &Thread, totals: &Totals) -> bool {
        self.coverage.span == Span::Session
            || *totals != Totals::default()
            || (thread.state != ThreadState::Exited && thread.first_ns < self.coverage.to_ns)
    }

    /// How many threads of an aggregate were there in the time covered. Those without a row of
    /// their own count where that is known.
    pub(super) fn thread_count(&self, over: &ThreadsOver<'_>) -> u64 {
        let rows = over.rows.iter();
        let there = rows.filter(|(_, thread, totals)| self.has_thread(thread, totals));
        there.count() as u64 + over.folded_count.unwrap_or_default()
    }

    pub(super) fn as_of(&self) -> String {
        rfc3339(self.snapshot.as_of_unix_ns())
    }

    pub(super) fn window(&self) -> WindowSpan {
        WindowSpan {
            from: rfc3339(self.coverage.from_unix_ns),
            to: rfc3339(self.coverage.to_unix_ns),
            duration_ns: self.coverage.to_ns.saturating_since(self.coverage.from_ns),
            processors: self.snapshot.processors(),
        }
    }
}

fn coverage(snapshot: &Snapshot, window: Window) -> Result<SpanCovered, ReportError> {
    let now_ns = snapshot.now_ns();
    match window {
        Window::Session => Ok(snapshot.whole()),
        Window::Recent => Ok(recent(snapshot)),
        Window::Kept => snapshot
            .between(snapshot.kept_since_ns(), None)
            .map_err(|not_kept| too_old(snapshot, not_kept)),
        Window::Last { duration_ns } => snapshot
            .between(now_ns.saturating_sub(duration_ns), None)
            .map_err(|not_kept| ReportError::WindowTooLong {
                longest_ns: now_ns - not_kept.since_ns,
            }),
        Window::Named { session, span } => {
            let (from, to) = snapshot.sessions().find(session)?.part(span)?;
            snapshot
                .between(from.ns, to.map(|to| to.ns))
                .map_err(|not_kept| too_old(snapshot, not_kept))
        }
        Window::Between { from, to } => {
            let from_ns = moment(snapshot, from);
            let to_ns = to.map_or(now_ns, |to| moment(snapshot, to));
            let began_ns = snapshot.whole().from_ns;
            if from_ns >= to_ns || from_ns > now_ns || to_ns <= began_ns {
                return Err(ReportError::WindowEmpty {
                    began_unix_ns: snapshot.started_unix_ns(),
                    now_unix_ns: snapshot.as_of_unix_ns(),
                });
            }
            snapshot
                .between(from_ns, (to_ns < now_ns).then_some(to_ns))
                .map_err(|not_kept| too_old(snapshot, not_kept))
        }
    }
}

/// The last part of a session that is old enough to have one, else the session.
fn recent(snapshot: &Snapshot) -> SpanCovered {
    let (now_ns, whole) = (snapshot.now_ns(), snapshot.whole());
    if now_ns.saturating_since(whole.from_ns) <= RECENT_AFTER_NS {
        return whole;
    }
    let last = snapshot.between(now_ns.saturating_sub(RECENT_NS), None);
    last.unwrap_or(whole)
}

fn too_old(snapshot: &Snapshot, not_kept: NotKept) -> ReportError {
    let ago_ns = snapshot.now_ns() - not_kept.since_ns;
    ReportError::WindowTooOld {
        since_unix_ns: snapshot.as_of_unix_ns().saturating_sub(ago_ns),
    }
}

/// A moment by the monotonic clock, as far as that reaches. The clock of the day may have been set
/// meanwhile: what counts is how long ago the moment is by what it says now.
fn moment(snapshot: &Snapshot, moment: Moment) -> MonoNs {
    let (now_ns, now_unix_ns) = (snapshot.now_ns(), snapshot.as_of_unix_ns());
    match moment {
        Moment::Ago { ns } => now_ns.saturating_sub(ns),
        Moment::At { unix_ns } if unix_ns > now_unix_ns => {
            now_ns.saturating_add(unix_ns - now_unix_ns)
        }
        Moment::At { unix_ns } => now_ns.saturating_sub(now_unix_ns - unix_ns),
    }
}
