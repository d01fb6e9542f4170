//! The first screen: how busy the processors are, which processes ran most, and which waited
//! longest, with what each blocks in and the function that it ran most in.
//!
//! A thread that hardly ran and hardly waited for a processor idles: that it is blocked is no sign
//! of anything. Nor is it of a thread of the kernel, which sleeps until there is work.

use std::{
    borrow::Cow,
    cmp::Reverse,
    collections::{BTreeSet, HashMap},
};

use profiler_common::{Class, ClassNs};
use serde::Serialize;

use super::{
    completeness::Completeness,
    error::ReportError,
    identity::{Identity, functions_at},
    idle::is_idle,
    merged_tree::{Label, TreeFunction},
    needed::outermost_frames,
    places::Places,
    query::{Scope, Window},
    scope::View,
    syscall_names::syscall_name,
    times::WindowSpan,
    values::percent,
};
use crate::{
    profile::{
        frames::FrameId,
        over::Span,
        snapshot::Snapshot,
        tree::{Node, NodeId, NodePlace},
        values::Totals,
    },
    report::names::Names,
};

/// Rows of those that ran most.
const MAX_BUSIEST: usize = 10;
/// Rows of those that waited longest.
const MAX_WAITING: usize = 5;
/// Frames of one process that are named to find its function, those with the most time first.
const MAX_CANDIDATES: usize = 200;

/// A question for the first screen.
#[derive(Clone, Copy, Debug, Default)]
pub struct OverviewQuery {
    /// What time is covered.
    pub window: Window,
    /// The profiler's own process: neither it nor its helpers are among those that wait.
    pub own_pid: Option<u32>,
}

/// The answer.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Overview {
    /// Time of the drain pass it was made from, RFC 3339.
    #[schema(format = DateTime)]
    pub as_of: String,
    /// The time it covers.
    pub window: WindowSpan,
    /// What it lacks.
    pub completeness: Completeness,
    /// Whether that is the whole session.
    pub whole_session: bool,
    /// Whether it ends at `as_of`.
    pub until_now: bool,
    /// How many processors were at work on average for those that are profiled.
    pub busy_processors: f64,
    /// That of all there are; null where their number is not known.
    #[schema(required)]
    pub busy_percent: Option<f64>,
    /// Processes seen in the time covered, as in the totals of the session.
    pub processes: u64,
    /// Threads seen in the time covered, likewise.
    pub threads: u64,
    /// The processes that ran longest, at most 10.
    pub busiest: Vec<OverviewRow>,
    /// Those that waited longest, for a processor or blocked, threads that idle, threads of the
    /// kernel that sleep and the profiler left out: at most 5.
    pub waiting: Vec<OverviewRow>,
}

/// One process, or the processes of one image that ended and are no longer kept one by one.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct OverviewRow {
    /// The process; null for processes that are one by image.
    #[schema(required)]
    pub pid: Option<u32>,
    /// Its start, 10 ms ticks since boot.
    #[schema(required)]
    pub start_ticks: Option<u64>,
    /// Of processes that are one by image: what `/api/v1/images/{id}` calls them.
    #[schema(required)]
    pub image_id: Option<String>,
    /// How many processes that are.
    #[schema(required)]
    pub ended: Option<u64>,
    /// Its name.
    pub comm: String,
    /// Time on a processor, of the time covered: 200 for two threads that ran all the time.
    pub processor_percent: f64,
    /// The same, of what all processors can do; null where their number is not known.
    #[schema(required)]
    pub capacity_percent: Option<f64>,
    /// Time that its threads waited for a processor, of the time covered: 200 for two threads that
    /// waited all the time.
    pub runnable_percent: f64,
    /// The control group around it whose quota of processor time was used up while it waited for a
    /// processor; null where none is known to have been.
    #[schema(required)]
    pub throttled_group: Option<String>,
    /// For how long that group was throttled, from when it was first looked at; all its processes
    /// and all processors together.
    #[schema(required)]
    pub throttled_ns: Option<u64>,
    /// Time that its threads were blocked, likewise; of threads that idle and of threads of the
    /// kernel it does not count.
    pub blocked_percent: f64,
    /// Switches of its threads that were not seen.
    pub switches_missed: u64,
    /// With such switches, and long runnable although it hardly ran: it may have been asleep. It is
    /// not among those that wait.
    pub waits_in_doubt: bool,
    /// The system call in which it was blocked longest; null where none is known.
    #[schema(required)]
    pub blocks_in: Option<BlocksIn>,
    /// The function in which it ran longest; null where none is known.
    #[schema(required)]
    pub hottest: Option<Hottest>,
}

/// A system call.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct BlocksIn {
    /// Its name.
    #[schema(value_type = String)]
    pub call: Cow<'static, str>,
    /// Of the time that the process's threads were blocked, those that idle included.
    pub percent: f64,
}

/// A function, and what the kernel did for it.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct Hottest {
    /// Its name.
    pub function: String,
    /// Path, or a name in brackets.
    pub module: String,
    /// Of the time that the process's threads ran. Time is divided among functions for the whole
    /// session: of a process that hardly ran, more than it has may have been found; then it is of
    /// that.
    pub percent: f64,
}

/// The frames that must have names before [`overview`] can be made: those that decide whether
/// stacks are complete, and of each process that is shown those in which it ran longest.
///
/// # Errors
/// No such window.
pub fn overview_frames(
    snapshot: &Snapshot,
    query: &OverviewQuery,
) -> Result<Vec<FrameId>, ReportError> {
    let screen = OverviewSubject::new(snapshot, query)?;
    let mut frames: BTreeSet<FrameId> = outermost_frames(snapshot, &Scope::Session)?
        .into_iter()
        .collect();
    for member in screen.busiest.iter().chain(&screen.waiting) {
        frames.extend(screen.candidates(*member).0.into_iter().map(|of| of.frame));
    }
    Ok(frames.into_iter().collect())
}

/// Who ran most and who waited longest.
///
/// # Errors
/// No such window.
pub fn overview(
    snapshot: &Snapshot,
    query: &OverviewQuery,
    names: &dyn Names,
) -> Result<Overview, ReportError> {
    let screen = OverviewSubject::new(snapshot, query)?;
    let (view, places) = (&screen.view, &screen.places);
    let whole_session = view.coverage.span == Span::Session;
    let members = view.members.iter().enumerate();
    let processes = members
        .map(|(index, member)| match member.process {
            Some((_, of)) => u64::from(view.has_process(&of.info, &view.totals[index])),
            None if whole_session => member.ended,
            None => 0,
        })
        .sum();
    let busy_processors = percent(running(&view.total.values.classes), view.span_ns()) / 100.0;
    let rows = |members: &[usize]| {
        let rows = members.iter().map(|member| screen.row(*member, names));
        rows.collect()
    };
    Ok(Overview {
        as_of: view.as_of(),
        window: view.window(),
        completeness: Completeness::of_one_total(view, places, names),
        whole_session,
        until_now: view.coverage.span.goes_on(),
        busy_processors,
        busy_percent: screen.of_capacity(100.0 * busy_processors),
        processes,
        threads: screen.threads,
        busiest: rows(&screen.busiest),
        waiting: rows(&screen.waiting),
    })
}

/// Who is shown.
struct OverviewSubject<'a> {
    view: View<'a>,
    places: Places,
    processors: Option<u32>,
    threads: u64,
    /// Of each member of the view: how long its threads were blocked that do not idle.
    blocked_ns: Vec<u64>,
    /// Members of the view, the first one first.
    busiest: Vec<usize>,
    waiting: Vec<usize>,
}

/// A frame in which a process ran.
struct FrameCandidate {
    frame: FrameId,
    kernel: bool,
    ns: u64,
}

impl<'a> OverviewSubject<'a> {
    fn new(snapshot: &'a Snapshot, query: &OverviewQuery) -> Result<Self, ReportError> {
        let view = View::new(snapshot, &Scope::Session, query.window)?;
        let places = Places::new(&view);
        let (mut threads, mut blocked_ns) = (0, Vec::new());
        for member in &view.members {
            let over = member.aggregate.threads_over(view.coverage.span);
            threads += view.thread_count(&over);
            let rows = over.rows.iter().map(|(.., totals)| totals);
            let awake = rows.chain([&over.folded]).filter(|totals| {
                !member.kernel_thread && !is_idle(&totals.classes, view.span_ns())
            });
            blocked_ns.push(awake.map(blocked).fold(0, u64::saturating_add));
        }
        let ran = |index: usize| running(&view.figures[index].values.classes);
        let waited = |index: usize| {
            let is_own = is_own(&view, index, query.own_pid);
            let runnable_ns = view.figures[index].values.classes[Class::Runnable as usize];
            if is_own || waits_in_doubt(&view, index) {
                0
            } else {
                runnable_ns.saturating_add(blocked_ns[index])
            }
        };
        let busiest = largest(view.members.len(), MAX_BUSIEST, ran);
        let waiting = largest(view.members.len(), MAX_WAITING, waited);
        Ok(Self {
            view,
            places,
            processors: snapshot.processors(),
            threads,
            blocked_ns,
            busiest,
            waiting,
        })
    }

    /// Of a share of one processor, that of all.
    fn of_capacity(&self, percent: f64) -> Option<f64> {
        let processors = self.processors.filter(|processors| *processors > 0)?;
        Some(percent / f64::from(processors))
    }

    fn row(&self, index: usize, names: &dyn Names) -> OverviewRow {
        let member = &self.view.members[index];
        let classes = &self.view.figures[index].values.classes;
        let of_window = |ns: u64| percent(ns, self.view.span_ns());
        let processor_percent = of_window(running(classes));
        let (throttled_group, throttled_ns) = self.view.throttled(index).unzip();
        OverviewRow {
            pid: member.process.map(|(key, _)| key.pid),
            start_ticks: member.process.map(|(key, _)| key.start_ticks()),
            image_id: member.image_id().map(|id| id.to_string()),
            ended: member.process.is_none().then_some(member.ended),
            comm: member.name(),
            processor_percent,
            capacity_percent: self.of_capacity(processor_percent),
            runnable_percent: of_window(classes[Class::Runnable as usize]),
            throttled_group,
            throttled_ns,
            blocked_percent: of_window(self.blocked_ns[index]),
            switches_missed: self.view.totals[index].switches_missed,
            waits_in_doubt: waits_in_doubt(&self.view, index),
            blocks_in: self.blocks_in(index),
            hottest: self.hottest(index, names),
        }
    }

    fn blocks_in(&self, index: usize) -> Option<BlocksIn> {
        let aggregate = self.view.members[index].aggregate;
        let calls = aggregate.calls_over(self.view.coverage.span);
        let (number, longest) = calls
            .iter()
            .max_by_key(|(number, totals)| (totals.time.blocked_ns, Reverse(**number)))?;
        let blocked_ns = self.view.figures[index].values.classes[Class::Blocked as usize];
        (longest.time.blocked_ns > 0).then(|| BlocksIn {
            call: syscall_name(*number),
            percent: percent(longest.time.blocked_ns, blocked_ns).min(100.0),
        })
    }

    /// The frames in which a process ran longest, those of one function not yet put together, and
    /// how long it ran in all that it has.
    fn candidates(&self, index: usize) -> (Vec<FrameCandidate>, u64) {
        let member = &self.view.members[index];
        let nodes = member.aggregate.nodes();
        let mut by_frame: HashMap<(FrameId, bool), u64> = HashMap::new();
        let mut all_ns = 0_u64;
        for (_, node, _, values) in self.places.of_member(index, member) {
            let ns = running(&values.classes);
            all_ns = all_ns.saturating_add(ns);
            if ns > 0
                && let Some(frame) = executing(nodes, node)
            {
                *by_frame.entry(frame).or_default() += ns;
            }
        }
        let mut found: Vec<FrameCandidate> = by_frame
            .into_iter()
            .map(|((frame, kernel), ns)| FrameCandidate { frame, kernel, ns })
            .collect();
        found.sort_unstable_by_key(|of| (Reverse(of.ns), of.frame, of.kernel));
        found.truncate(MAX_CANDIDATES);
        (found, all_ns)
    }

    fn hottest(&self, index: usize, names: &dyn Names) -> Option<Hottest> {
        let mut functions: HashMap<Identity<'_>, (TreeFunction<'_>, u64)> = HashMap::new();
        let (candidates, found_ns) = self.candidates(index);
        for FrameCandidate { frame, kernel, ns } in candidates {
            for function in functions_at(&self.view, Label::Functions(names), frame, kernel) {
                let identity = Identity::of(&function);
                functions.entry(identity).or_insert((function, 0)).1 += ns;
            }
        }
        // Of two with the same time, the first by name.
        let (function, ns) = functions.into_values().max_by(|(a, a_ns), (b, b_ns)| {
            let by_name = || (&b.name, b.module).cmp(&(&a.name, a.module));
            a_ns.cmp(b_ns).then_with(by_name)
        })?;
        Some(Hottest {
            function: function.name.clone().into_owned(),
            module: self.view.snapshot.module(function.module).name.to_string(),
            percent: percent(
                ns,
                found_ns.max(running(&self.view.figures[index].values.classes)),
            ),
        })
    }
}

/// Is it the profiler, or a process that it runs for itself?
fn is_own(view: &View<'_>, index: usize, own_pid: Option<u32>) -> bool {
    let Some(((key, process), own)) = view.members[index].process.zip(own_pid) else {
        return false;
    };
    key.pid == own
        || process.info.ppid == own && {
            let mut members = view.members.iter().filter_map(|member| member.process);
            let own = members.find(|(key, _)| key.pid == own);
            own.is_some_and(|(_, own)| own.info.exe.is_some() && own.info.exe == process.info.exe)
        }
}

/// Whether the time that a member's threads were runnable cannot be believed: some of their
/// switches were not seen, that time is a twentieth of all of theirs at least, and they ran for
/// less than a hundredth of it.
fn waits_in_doubt(view: &View<'_>, index: usize) -> bool {
    let values = &view.figures[index].values;
    let runnable_ns = values.classes[Class::Runnable as usize];
    view.totals[index].switches_missed > 0
        && runnable_ns >= values.elapsed_ns() / 20
        && running(&values.classes) < runnable_ns / 100
}

/// The numbers below `count` with the most of something, and some of it, at most `max`.
fn largest(count: usize, max: usize, of: impl Fn(usize) -> u64) -> Vec<usize> {
    let mut found: Vec<(Reverse<u64>, usize)> = (0..count)
        .map(|index| (Reverse(of(index)), index))
        .filter(|(Reverse(ns), _)| *ns > 0)
        .collect();
    found.sort_unstable();
    found.truncate(max);
    found.into_iter().map(|(_, index)| index).collect()
}

fn running(classes: &ClassNs) -> u64 {
    [Class::User, Class::Syscall, Class::Kernel]
        .iter()
        .fold(0, |sum, class| {
            u64::saturating_add(sum, classes[*class as usize])
        })
}

fn blocked(totals: &Totals) -> u64 {
    totals.classes[Class::Blocked as usize]
}

/// The frame whose function executes at a node, and whether it is the kernel's: the innermost of
/// user code, and where there is none the innermost of the kernel. None where the inner part of the
/// stack is not known.
fn executing<'a>(nodes: &'a [Node], mut node: &'a Node) -> Option<(FrameId, bool)> {
    let mut of_kernel = None;
    loop {
        match node.place {
            NodePlace::User(frame) => return Some((frame, false)),
            NodePlace::Kernel(frame) => {
                of_kernel.get_or_insert((frame, true));
            }
            NodePlace::Folded { kernel: true } => {}
            NodePlace::Lost(_) | NodePlace::Cut | NodePlace::Folded { kernel: false } => {
                return None;
            }
        }
        if node.parent == NodeId::ROOT {
            return of_kernel;
        }
        node = &nodes[node.parent.index()];
    }
}
