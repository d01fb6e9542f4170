//! From a question's scope and window to the accounts it is about, their denominators and their coverage.

use std::collections::{BTreeSet, HashMap};

use super::{
    answer::{WindowSpan, rfc3339},
    fold::Folding,
    query::{Moment, ProcessSelector, ReportError, Scope, Window},
    values::Denominators,
};
use crate::{
    processes::ids::ProcessKey,
    profile::{
        account::AccountView,
        frames::FrameId,
        input::{ProcessInfo, ThreadState},
        over::{Span, ThreadsOver},
        snapshot::{Coverage, NotKept, ProcessView, Snapshot},
        threads::Thread,
        tree::Place,
        values::{Totals, Values},
    },
};

/// One account in scope.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    /// The process; `None` for what dropped ones were.
    pub(super) process: Option<(ProcessKey, &'a ProcessView)>,
    pub(super) account: &'a AccountView,
    /// It has no user mode: its kernel frames are always shown.
    pub(super) kernel_thread: bool,
}

/// What a question is about.
pub(super) struct View<'a> {
    pub(super) snapshot: &'a Snapshot,
    pub(super) members: Vec<Member<'a>>,
    pub(super) coverage: Coverage,
    pub(super) denominators: Denominators,
}

impl<'a> View<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        scope: &Scope,
        window: Window,
    ) -> Result<Self, ReportError> {
        let members = members(snapshot, scope)?;
        let coverage = coverage(snapshot, window)?;
        let total = |members: &[Member<'_>]| {
            let mut total = Totals::default();
            for member in members {
                total.add(&member.account.threads_over(coverage.span).total());
            }
            total
        };
        let denominators = match scope {
            Scope::Session => Denominators {
                session: total(&members),
                process: None,
            },
            Scope::Process(_) => Denominators {
                session: total(&all_members(snapshot)),
                process: Some(total(&members)),
            },
        };
        Ok(Self {
            snapshot,
            members,
            coverage,
            denominators,
        })
    }

    /// The totals of what is in scope.
    pub(super) fn totals(&self) -> Totals {
        self.denominators
            .process
            .unwrap_or(self.denominators.session)
    }

    pub(super) fn is_session(&self) -> bool {
        self.denominators.process.is_none()
    }

    /// Whether a process was there in the time covered: it has any of it, or lives and had begun by its end.
    pub(super) fn has_process(&self, info: &ProcessInfo, totals: &Totals) -> bool {
        self.coverage.span == Span::Session
            || totals.elapsed_ns() > 0
            || totals.samples > 0
            || (info.exited_at_unix_ns.is_none()
                && info.started_at_unix_ns < self.coverage.to_unix_ns)
    }

    /// Whether a thread was there in the time covered.
    pub(super) fn has_thread(&self, thread: &Thread, totals: &Totals) -> bool {
        self.coverage.span == Span::Session
            || *totals != Totals::default()
            || (thread.state != ThreadState::Exited && thread.first_ns < self.coverage.to_ns)
    }

    /// How many threads of an account were there in the time covered. Those without a row of their own count where that is known.
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
        }
    }
}

fn coverage(snapshot: &Snapshot, window: Window) -> Result<Coverage, ReportError> {
    let now_ns = snapshot.now_ns();
    match window {
        Window::Session => Ok(snapshot.whole()),
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

fn too_old(snapshot: &Snapshot, not_kept: NotKept) -> ReportError {
    let ago_ns = snapshot.now_ns() - not_kept.since_ns;
    ReportError::WindowTooOld {
        since_unix_ns: snapshot.as_of_unix_ns().saturating_sub(ago_ns),
    }
}

/// A moment by the monotonic clock, as far as that reaches. The clock of the day may have been set meanwhile: what counts is how
/// long ago the moment is by what it says now.
fn moment(snapshot: &Snapshot, moment: Moment) -> u64 {
    let (now_ns, now_unix_ns) = (snapshot.now_ns(), snapshot.as_of_unix_ns());
    match moment {
        Moment::Ago { ns } => now_ns.saturating_sub(ns),
        Moment::At { unix_ns } if unix_ns > now_unix_ns => {
            now_ns.saturating_add(unix_ns - now_unix_ns)
        }
        Moment::At { unix_ns } => now_ns.saturating_sub(now_unix_ns - unix_ns),
    }
}

/// The process a selector names.
pub(super) fn find<'a>(
    snapshot: &'a Snapshot,
    selector: &ProcessSelector,
) -> Result<(ProcessKey, &'a ProcessView), ReportError> {
    let pid = selector.pid;
    let of_pid = ProcessKey { pid, start_ns: 0 }..=ProcessKey {
        pid,
        start_ns: u64::MAX,
    };
    let found = snapshot.processes().range(of_pid).rev().find(|(key, _)| {
        selector
            .start_ticks
            .is_none_or(|ticks| key.start_ticks() == ticks)
    });
    let selector = *selector;
    match found {
        Some((key, process)) => Ok((*key, process)),
        None if snapshot.was_dropped(pid, selector.start_ticks) => {
            Err(ReportError::DroppedProcess { selector })
        }
        None => Err(ReportError::UnknownProcess { selector }),
    }
}

fn members<'a>(snapshot: &'a Snapshot, scope: &Scope) -> Result<Vec<Member<'a>>, ReportError> {
    match scope {
        Scope::Session => Ok(all_members(snapshot)),
        Scope::Process(selector) => find(snapshot, selector).map(|found| vec![member(found)]),
    }
}

fn member<'a>((key, process): (ProcessKey, &'a ProcessView)) -> Member<'a> {
    Member {
        process: Some((key, process)),
        account: &process.account,
        kernel_thread: process.info.kernel_thread,
    }
}

fn all_members(snapshot: &Snapshot) -> Vec<Member<'_>> {
    let retired = |account, kernel_thread| Member {
        process: None,
        account,
        kernel_thread,
    };
    snapshot
        .processes()
        .iter()
        .map(|(key, process)| member((*key, process)))
        .chain([
            retired(&snapshot.retired().user, false),
            retired(&snapshot.retired().kernel, true),
        ])
        .collect()
}

/// The frames that must have names before a report with names can be made.
///
/// # Errors
/// When the scope names no process.
pub fn frames_needed(snapshot: &Snapshot, scope: &Scope) -> Result<Vec<FrameId>, ReportError> {
    let mut frames = BTreeSet::new();
    for member in members(snapshot, scope)? {
        for node in member.account.nodes().iter().skip(1) {
            if let Place::User(frame) | Place::Kernel(frame) = node.place {
                frames.insert(frame);
            }
        }
    }
    Ok(frames.into_iter().collect())
}

/// The frames that must have lines before a report with lines can be made, those first that were on stacks longest. With
/// `wanted`, only frames of these modules.
///
/// # Errors
/// No such process or window, or no module of that name.
pub fn lines_needed(
    snapshot: &Snapshot,
    scope: &Scope,
    window: Window,
    wanted: Option<&str>,
) -> Result<Vec<FrameId>, ReportError> {
    let coverage = coverage(snapshot, window)?;
    let only = wanted
        .map(|module| Folding::only(snapshot, module))
        .transpose()?
        .unwrap_or_default();
    let mut weights: HashMap<FrameId, Values> = HashMap::new();
    for member in members(snapshot, scope)? {
        let nodes = member.account.nodes();
        let mut totals = member.account.weights_over(coverage.span);
        for index in (1..nodes.len()).rev() {
            let total = totals[index];
            totals[nodes[index].parent.index()].add(&total);
            let (Place::User(frame) | Place::Kernel(frame)) = nodes[index].place else {
                continue;
            };
            if total != Values::default() && !only.hides(snapshot.frame(frame).module) {
                weights.entry(frame).or_default().add(&total);
            }
        }
    }
    let mut frames: Vec<(FrameId, Values)> = weights.into_iter().collect();
    frames.sort_unstable_by_key(|(frame, values)| {
        std::cmp::Reverse((
            values.samples,
            values.elapsed_ns(),
            std::cmp::Reverse(*frame),
        ))
    });
    Ok(frames.into_iter().map(|(frame, _)| frame).collect())
}

/// The frames that decide whether stacks are complete: the outermost ones of walks that the kernel did not see end.
///
/// # Errors
/// When the scope names no process.
pub fn outermost_frames(snapshot: &Snapshot, scope: &Scope) -> Result<Vec<FrameId>, ReportError> {
    let mut frames = BTreeSet::new();
    for member in members(snapshot, scope)? {
        frames.extend(super::completeness::undecided(member.account));
    }
    Ok(frames.into_iter().collect())
}
