//! From a question's scope and window to the accounts it is about, their denominators and their coverage.

use std::{
    collections::{BTreeSet, HashMap},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use profiler_common::{Class, kinds::KindNs};

use super::{
    answer::{WindowSpan, rfc3339},
    fold::Folding,
    places::Places,
    product::Values,
    query::{ImageId, Moment, ProcessSelector, ReportError, Scope, Window},
    strata::{self, Shared, TotalFigures, strata},
    values::{Denominators, TotalValues},
};
use crate::{
    processes::ids::ProcessKey,
    profile::{
        account::AccountView,
        frames::FrameId,
        input::{CommName, Image, ProcessInfo, ThreadState},
        over::{Span, ThreadsOver},
        snapshot::{Coverage, ImageView, NotKept, ProcessView, Snapshot},
        threads::Thread,
        tree::Place,
        values::Totals,
    },
};

/// A session that is older than this has a recent part.
const RECENT_AFTER_NS: u64 = 300_000_000_000;
/// How long that is.
const RECENT_NS: u64 = 30_000_000_000;

/// One account in scope.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    /// The process; `None` for what dropped ones were.
    pub(super) process: Option<(ProcessKey, &'a ProcessView)>,
    pub(super) account: &'a AccountView,
    /// It has no user mode: its kernel frames are always shown.
    pub(super) kernel_thread: bool,
    /// The file executed last.
    pub(super) image: Option<&'a Arc<Image>>,
    /// Of processes that ended and are one together: how many.
    pub(super) ended: u64,
}

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
    pub(super) coverage: Coverage,
    pub(super) denominators: Denominators,
}

impl<'a> View<'a> {
    pub(super) fn new(
        snapshot: &'a Snapshot,
        scope: &Scope,
        window: Window,
    ) -> Result<Self, ReportError> {
        let coverage = coverage(snapshot, window)?;
        let span_ns = coverage.to_ns.saturating_sub(coverage.from_ns);
        let over = |members: &[Member<'_>]| {
            let of = |member: &Member<'_>| member.account.threads_over(coverage.span).total();
            let totals: Vec<Totals> = members.iter().map(of).collect();
            let kinds: Vec<KindNs> = totals.iter().map(|totals| totals.kinds).collect();
            let strata = strata(members, &kinds, snapshot.mark_periods());
            let figures = strata::totals(&strata, &totals, span_ns);
            (totals, strata, figures)
        };
        let members = members(snapshot, scope)?;
        let (totals, strata, (figures, total)) = over(&members);
        let denominators = match scope {
            Scope::Session => Denominators {
                session: total.values,
                process: None,
            },
            Scope::Process(_) | Scope::Image(_) | Scope::Named(_) => {
                // What is in scope counts as it is shown here, divided alone: no share of it is more than all.
                let all = all_members(snapshot);
                let (_, _, (rows, _)) = over(&all);
                let here = |of: &Member<'_>| {
                    let mut accounts = members.iter().map(|member| member.account);
                    accounts.any(|account| std::ptr::eq(account, of.account))
                };
                let mut session = total.values;
                let others = all.iter().zip(&rows).filter(|(member, _)| !here(member));
                others.for_each(|(_, row)| session.add(&row.values));
                Denominators {
                    session,
                    process: Some(total.values),
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

    /// Of a member, the control group around it whose quota was used up in the time covered while it was runnable, and for how long.
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

    /// The totals of a member as rows show them.
    pub(super) fn total_values(&self, places: &Places, index: usize) -> TotalValues {
        let not_sampled = places.not_sampled(index, &self.members[index]);
        TotalValues::new(
            &self.figures[index],
            &self.totals[index],
            Some(&not_sampled.classes),
        )
    }

    /// The totals of all members as rows show them.
    pub(super) fn all_values(&self, places: &Places) -> TotalValues {
        let mut not_sampled = Values::default();
        for (index, member) in self.members.iter().enumerate() {
            not_sampled.add(&places.not_sampled(index, member));
        }
        TotalValues::new(&self.total, &self.totals(), Some(&not_sampled.classes))
    }

    /// How long the time covered is, nanoseconds.
    pub(super) fn span_ns(&self) -> u64 {
        self.coverage.to_ns.saturating_sub(self.coverage.from_ns)
    }

    pub(super) fn is_session(&self) -> bool {
        self.denominators.process.is_none()
    }

    /// Whether a process was there in the time covered: it has any of it, or lives and had begun by its end.
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
            duration_ns: self.coverage.to_ns.saturating_sub(self.coverage.from_ns),
            processors: self.snapshot.processors(),
        }
    }
}

fn coverage(snapshot: &Snapshot, window: Window) -> Result<Coverage, ReportError> {
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
fn recent(snapshot: &Snapshot) -> Coverage {
    let (now_ns, whole) = (snapshot.now_ns(), snapshot.whole());
    if now_ns.saturating_sub(whole.from_ns) <= RECENT_AFTER_NS {
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
        Scope::Image(image) => {
            let ended = snapshot.images().iter().map(ended);
            let found: Vec<_> = ended.filter(|of| of.image_id() == Some(*image)).collect();
            if found.is_empty() {
                Err(ReportError::UnknownImage { image: *image })
            } else {
                Ok(found)
            }
        }
        Scope::Named(comm) => {
            let mut found = all_members(snapshot);
            found.retain(|member| member.comm() == comm.as_str());
            if found.is_empty() {
                Err(ReportError::UnknownName { comm: *comm })
            } else {
                Ok(found)
            }
        }
    }
}

impl Member<'_> {
    /// What processes that ended and are one are named by.
    pub(super) fn image_id(&self) -> Option<ImageId> {
        match (self.process, self.image) {
            (Some(_), _) => None,
            (None, Some(image)) => Some(ImageId::of(image)),
            (None, None) if self.kernel_thread => Some(ImageId::Kernel),
            (None, None) => Some(ImageId::Other),
        }
    }

    /// The same with how many there were.
    pub(super) fn title(&self) -> String {
        match self.process {
            Some(_) => self.name(),
            None => format!("{} ({} ended)", self.name(), self.ended),
        }
    }

    /// The name of its processes: of those that are one by the file that they executed, what the kernel names them by it.
    pub(super) fn comm(&self) -> String {
        match (self.process, self.image) {
            (None, Some(_)) => CommName::new(&self.name()).to_string(),
            _ => self.name(),
        }
    }

    /// How its row is called: the name of a process, of the file that ended ones executed.
    pub(super) fn name(&self) -> String {
        match (self.process, self.image) {
            (Some((_, process)), _) => process.info.comm.to_string(),
            (None, Some(image)) => {
                let path = image.path.trim_end_matches('/');
                path.rsplit('/').next().unwrap_or(path).to_owned()
            }
            (None, None) if self.kernel_thread => "[kernel threads]".to_owned(),
            (None, None) => "[other images]".to_owned(),
        }
    }
}

impl ImageId {
    /// The one of a file.
    fn of(image: &Image) -> Self {
        let mut hasher = DefaultHasher::new();
        image.hash(&mut hasher);
        Self::File(hasher.finish())
    }
}

fn member<'a>((key, process): (ProcessKey, &'a ProcessView)) -> Member<'a> {
    Member {
        process: Some((key, process)),
        account: &process.account,
        kernel_thread: process.info.kernel_thread,
        image: process.info.image.as_ref(),
        ended: 0,
    }
}

fn ended(image: &ImageView) -> Member<'_> {
    Member {
        process: None,
        account: &image.account,
        kernel_thread: image.kernel_thread,
        image: image.image.as_ref(),
        ended: image.ended,
    }
}

fn all_members(snapshot: &Snapshot) -> Vec<Member<'_>> {
    snapshot
        .processes()
        .iter()
        .map(|(key, process)| member((*key, process)))
        .chain(snapshot.images().iter().map(ended))
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
    let only = wanted
        .map(|module| Folding::only(snapshot, module))
        .transpose()?
        .unwrap_or_default();
    let mut weights: HashMap<FrameId, Values> = HashMap::new();
    let view = View::new(snapshot, scope, window)?;
    let places = Places::new(&view);
    for (index, member) in view.members.iter().enumerate() {
        let totals = places.inclusive(index, member);
        for (node, total) in member.account.nodes().iter().zip(totals).skip(1) {
            let (Place::User(frame) | Place::Kernel(frame)) = node.place else {
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
