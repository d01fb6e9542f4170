//! A made-up machine: threads that live, run, wait and exit according to a random plan, and the
//! drain passes they cause. It knows the true totals.

use std::collections::BTreeMap;

use profiler_common::{
    CLASS_COUNT, Class, ClassNs, StackEnd,
    kinds::{Kind, KindNs, MARK_BLOCKED, MARK_CALL, MARK_RUNNABLE, Primary, Tick, WaitNs},
};
use profiler_daemon::{
    processes::{
        ids::{ProcessKey, ThreadKey},
        module::{Module, ModuleIdentity, ModuleKind, ModuleTable},
    },
    profile::{
        Profile,
        frames::{Frame, FrameId},
        input::{
            CommName, DrainPass, LossCause, OpenStack, ProcessInfo, StackDelta, SyscallUpdate,
            ThreadState, ThreadUpdate,
        },
    },
    report::names::Names,
    symbols::names::{FunctionKind, FunctionName},
    units::ModuleAddress,
    units::{BootNs, ModuleOffset, MonoNs, UnixNs},
};
use proptest::prelude::*;

pub(crate) const SECOND_NS: u64 = 1_000_000_000;
pub(crate) const START_NS: MonoNs = MonoNs::new(1_000 * SECOND_NS);
pub(crate) const START_UNIX_NS: UnixNs = UnixNs::new(1_700_000_000 * SECOND_NS);
const SYSCALL: usize = Class::Syscall as usize;
const BLOCKED: usize = Class::Blocked as usize;
const RUNNABLE: usize = Class::Runnable as usize;
const KERNEL: usize = Class::Kernel as usize;

/// Where the time of one part of a thread's pass goes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Fate {
    /// The waits that had no place yet are exactly the stack's.
    TakeAll,
    /// This wait alone is exactly the stack's.
    TakePart,
    /// The waits that had no place yet were calls' and were not walked; the stack has marks of
    /// them.
    Mark,
    /// The same of waits outside calls; the stack has their weight.
    Weigh,
    /// A wait has no place yet.
    Wait,
    /// It is an interval that is still open.
    Open,
}

#[derive(Clone, Debug)]
pub(crate) struct Part {
    class: usize,
    share: u64,
    stack: usize,
    fate: Fate,
    samples: u64,
    lost: bool,
}

/// What one thread does during one pass.
#[derive(Clone, Debug)]
pub(crate) struct Act {
    process: usize,
    thread: usize,
    parts: Vec<Part>,
    exit: bool,
    /// The drain of the threads comes too early to see it; not twice in a row.
    late: bool,
    /// The pass takes its last wait for blocked, the next one knows that it was runnable.
    misjudged: bool,
    /// It executes a program and takes the process's number over.
    exec: bool,
}

#[derive(Clone, Debug)]
pub(crate) struct PassPlan {
    duration_ns: u64,
    acts: Vec<Act>,
    process_exit: Option<usize>,
}

impl PassPlan {
    /// A number for what else may happen in the pass.
    pub(crate) fn dice(&self) -> u64 {
        self.duration_ns
    }
}

pub(crate) fn plans() -> impl Strategy<Value = Vec<PassPlan>> {
    let fate = prop_oneof![
        Just(Fate::TakeAll),
        Just(Fate::TakePart),
        Just(Fate::Mark),
        Just(Fate::Weigh),
        Just(Fate::Wait),
        Just(Fate::Open)
    ];
    let part = (
        0..CLASS_COUNT,
        1..100u64,
        0..12usize,
        fate,
        0..4u64,
        prop::bool::weighted(0.1),
    );
    let part = part.prop_map(|(class, share, stack, fate, samples, lost)| Part {
        class,
        share,
        stack,
        fate,
        samples,
        lost,
    });
    let rare = || prop::bool::weighted(0.15);
    let act = (
        0..4usize,
        0..4usize,
        prop::collection::vec(part, 0..4),
        rare(),
        rare(),
        rare(),
        rare(),
    );
    let act = act.prop_map(
        |(process, thread, parts, exit, late, misjudged, exec)| Act {
            process,
            thread,
            parts,
            exit,
            late,
            misjudged,
            exec,
        },
    );
    let duration = prop_oneof![1..2 * SECOND_NS, 5 * SECOND_NS..20 * SECOND_NS];
    let exit = prop::option::weighted(0.2, 0..4usize);
    let pass = (duration, prop::collection::vec(act, 0..8), exit);
    let pass = pass.prop_map(|(duration_ns, acts, process_exit)| PassPlan {
        duration_ns,
        acts,
        process_exit,
    });
    prop::collection::vec(pass, 1..16)
}

struct Life {
    key: ThreadKey,
    first_ns: MonoNs,
    classes: ClassNs,
    kinds: KindNs,
    /// Waits without a place.
    waiting: WaitNs,
    calls: u64,
    misjudged_ns: u64,
    was_late: bool,
}

impl Life {
    /// Spends so long on a part, and answers what its stack receives.
    fn received(&mut self, part: &Part, ns: u64) -> Primary {
        let mut primary = Primary::default();
        let untraced = self.key.tid % 4 == 3;
        let (kind, tick) = match (part.class, untraced) {
            (BLOCKED | RUNNABLE, _) => {
                self.wait(part, ns, &mut primary);
                primary.walks = 1;
                return primary;
            }
            (KERNEL, _) => (Kind::Kernel, Tick::Kernel),
            (SYSCALL, _) => (Kind::Call, Tick::Call),
            (_, false) => (Kind::User, [Tick::User, Tick::Fault][part.stack % 2]),
            (_, true) => (
                Kind::Untraced,
                [Tick::UntracedUser, Tick::UntracedFault, Tick::UntracedCall][part.stack % 3],
            ),
        };
        self.kinds[kind as usize] += ns;
        primary.ticks[tick as usize] = part.samples;
        primary.marks[MARK_CALL] = u64::from(part.class == SYSCALL) * part.samples;
        primary.walks = part.samples;
        primary
    }

    fn wait(&mut self, part: &Part, ns: u64, primary: &mut Primary) {
        let class = usize::from(part.class == RUNNABLE);
        self.waiting[class] += ns;
        let all = self.waiting;
        let kinds = match part.fate {
            Fate::Wait | Fate::Open => return,
            Fate::TakePart => {
                self.waiting[class] -= ns;
                primary.exact[class] = ns;
                return;
            }
            Fate::TakeAll => {
                self.waiting = WaitNs::default();
                primary.exact = all;
                return;
            }
            Fate::Mark => {
                primary.marks[MARK_BLOCKED] = all[0].div_ceil(SECOND_NS);
                primary.marks[MARK_RUNNABLE] = all[1].div_ceil(SECOND_NS);
                [Kind::CallBlocked, Kind::CallRunnable]
            }
            Fate::Weigh => {
                primary.weighted = all.map(|ns| 4 * ns);
                primary.squares_ms2 = all.map(|ns| (4 * ns / 1_000_000).pow(2));
                [Kind::OutsideBlocked, Kind::OutsideRunnable]
            }
        };
        self.waiting = WaitNs::default();
        for (kind, ns) in kinds.into_iter().zip(all) {
            self.kinds[kind as usize] += ns;
        }
    }
}

/// See the file.
pub(crate) struct Machine {
    now_ns: MonoNs,
    next_start_ns: u64,
    processes: BTreeMap<usize, ProcessKey>,
    threads: BTreeMap<(usize, usize), Life>,
    stacks: Vec<(Vec<FrameId>, Vec<FrameId>)>,
    modules: ModuleTable,
    /// The last values every thread was reported with.
    pub(crate) reported: BTreeMap<(ProcessKey, ThreadKey), ClassNs>,
    /// The last kinds of time that every thread was reported with.
    pub(crate) kinds: BTreeMap<(ProcessKey, ThreadKey), KindNs>,
    /// Samples by process.
    pub(crate) samples: BTreeMap<ProcessKey, u64>,
    /// What stacks received, by process.
    pub(crate) primary: BTreeMap<ProcessKey, Primary>,
}

impl Machine {
    pub(crate) fn new(profile: &mut Profile) -> Self {
        let mut modules = ModuleTable::new();
        let mut module = |name: &str, kind| {
            modules.intern(ModuleIdentity::Named(name.into()), || {
                Module::named(name, kind)
            })
        };
        let (app, lib) = (
            module("/bin/app", ModuleKind::User),
            module("/lib/lib.so", ModuleKind::User),
        );
        let kernel = profiler_daemon::processes::module::ModuleId::KERNEL;
        let mut frame = |module, offset| {
            let offset = ModuleOffset::new(offset);
            profile.frames().intern(Frame { module, offset })
        };
        let user: Vec<FrameId> = (0..6)
            .map(|n| frame(if n < 3 { app } else { lib }, 0x10 * n))
            .collect();
        let kernel: Vec<FrameId> = (0..3).map(|n| frame(kernel, 0x1000 + n)).collect();
        let (u, k) = (|n: usize| user[n], |n: usize| kernel[n]);
        let stacks = vec![
            (vec![u(0)], vec![]),
            (vec![u(0), u(1)], vec![]),
            (vec![u(0), u(1), u(0), u(1)], vec![]),
            (vec![u(0), u(1), u(4)], vec![k(0)]),
            (vec![u(0), u(3), u(1)], vec![k(0), k(1)]),
            (vec![u(5), u(5), u(5)], vec![]),
            (vec![u(2)], vec![k(2), k(2)]),
            (vec![], vec![k(0), k(1), k(2)]),
            (vec![], vec![k(1)]),
            (vec![], vec![]),
            (vec![u(3), FrameId::UNKNOWN, u(4)], vec![]),
            (vec![u(2), u(3), u(4), u(5)], vec![k(0)]),
        ];
        Self {
            now_ns: START_NS,
            next_start_ns: 50_000_000_000,
            processes: BTreeMap::new(),
            threads: BTreeMap::new(),
            stacks,
            modules,
            reported: BTreeMap::new(),
            kinds: BTreeMap::new(),
            samples: BTreeMap::new(),
            primary: BTreeMap::new(),
        }
    }

    /// Runs one pass's worth of time.
    pub(crate) fn pass(&mut self, plan: &PassPlan) -> DrainPass {
        let mut pass = DrainPass {
            now_ns: self.now_ns + plan.duration_ns,
            now_unix_ns: START_UNIX_NS + (self.now_ns + plan.duration_ns - START_NS),
            boot_unix_ns: START_UNIX_NS - START_NS.ns(),
            losses: vec![("map_full".into(), self.now_ns.ns() / SECOND_NS)],
            discarded: vec![("idle".into(), self.now_ns.ns() / SECOND_NS)],
            samples_lost: self.now_ns.ns() / SECOND_NS,
            modules: self.modules.clone(),
            ..DrainPass::default()
        };
        for act in &plan.acts {
            self.spawn(act.process, act.thread, &mut pass);
        }
        for key in self.threads.keys().copied().collect::<Vec<_>>() {
            // Only the first act of a thread counts; a thread without one sleeps.
            let act = plan
                .acts
                .iter()
                .find(|act| (act.process, act.thread) == key);
            self.act(key, act, plan, &mut pass);
        }
        self.now_ns += plan.duration_ns;
        pass
    }

    fn spawn(&mut self, process: usize, thread: usize, pass: &mut DrainPass) {
        self.next_start_ns += 20_000_000;
        let start_ns = self.next_start_ns;
        let key = *self.processes.entry(process).or_insert_with(|| {
            let key = ProcessKey {
                pid: 100 + process as u32,
                start_ns: BootNs::new(start_ns),
            };
            // Process 3 is never described by anyone.
            if process != 3 {
                pass.processes.push(describe(key, process));
            }
            key
        });
        let tid = key.pid * 10 + thread as u32;
        self.threads.entry((process, thread)).or_insert(Life {
            key: ThreadKey {
                tid,
                start_ns: BootNs::new(start_ns),
            },
            first_ns: self.now_ns,
            classes: [0; CLASS_COUNT],
            kinds: KindNs::default(),
            waiting: WaitNs::default(),
            calls: 0,
            misjudged_ns: 0,
            was_late: false,
        });
    }

    fn act(
        &mut self,
        at: (usize, usize),
        act: Option<&Act>,
        plan: &PassPlan,
        pass: &mut DrainPass,
    ) {
        let process = self.processes[&at.0];
        let sleep = [Part {
            class: BLOCKED,
            share: 1,
            stack: 3,
            fate: Fate::Open,
            samples: 0,
            lost: false,
        }];
        let parts = match act {
            Some(act) if !act.parts.is_empty() => &act.parts[..],
            _ => &sleep[..],
        };
        let life = self.threads.get_mut(&at).unwrap();
        // Whoever sees the new number sees the thread.
        if act.is_some_and(|act| act.exec && !act.late) {
            let before = life.key;
            let reported = self.reported.remove(&(process, before));
            life.key.tid = process.pid;
            self.reported
                .extend(reported.map(|classes| ((process, life.key), classes)));
            let kinds = self.kinds.remove(&(process, before));
            self.kinds
                .extend(kinds.map(|kinds| ((process, life.key), kinds)));
        }
        life.classes[BLOCKED] -= life.misjudged_ns;
        life.classes[RUNNABLE] += life.misjudged_ns;
        life.waiting[0] -= life.misjudged_ns;
        life.waiting[1] += life.misjudged_ns;
        life.misjudged_ns = 0;
        let shares: u64 = parts.iter().map(|part| part.share).sum();
        let mut left_ns = plan.duration_ns;
        let mut open = None;
        for (index, part) in parts.iter().enumerate() {
            let last = index + 1 == parts.len();
            let ns = if last {
                left_ns
            } else {
                (plan.duration_ns / shares * part.share).min(left_ns)
            };
            left_ns -= ns;
            life.classes[part.class] += ns;
            let (user, mut kernel) = self.stacks[part.stack].clone();
            if matches!(part.fate, Fate::Open) {
                open = last.then(|| (user.clone(), kernel.clone()));
            }
            let primary = life.received(part, ns);
            // What is found in user mode has no kernel frames.
            if [Tick::User, Tick::UntracedUser].map(|tick| primary.ticks[tick as usize]) != [0; 2] {
                kernel.clear();
            }
            *self.samples.entry(process).or_default() += primary.samples();
            self.primary.entry(process).or_default().add(&primary);
            pass.stacks.push(StackDelta {
                process,
                thread: life.key,
                end: end_of(part.stack),
                user,
                kernel,
                lost: part.lost.then_some(LossCause::MapFull),
                primary,
            });
        }
        if let Some((user, kernel)) = open {
            let thread = life.key;
            let mut classes = ClassNs::default();
            [classes[BLOCKED], classes[RUNNABLE]] = life.waiting;
            pass.open.push(OpenStack {
                process,
                thread,
                user,
                kernel,
                end: StackEnd::Complete,
                lost: None,
                classes,
            });
        }
        let exit = act.is_some_and(|act| act.exit) || plan.process_exit == Some(at.0);
        if act.is_some_and(|act| act.misjudged) && !exit {
            // Part of what waits as runnable is shown as blocked in this pass only.
            let ns = life.waiting[1] / 2;
            life.misjudged_ns = ns;
            life.classes[RUNNABLE] -= ns;
            life.classes[BLOCKED] += ns;
            life.waiting[1] -= ns;
            life.waiting[0] += ns;
        }
        life.calls += 1;
        let update = ThreadUpdate {
            thread: life.key,
            process,
            comm: CommName::new("thread"),
            state: if exit {
                ThreadState::Exited
            } else {
                ThreadState::Blocked
            },
            first_event_ns: life.first_ns,
            last_event_ns: pass.now_ns,
            unobserved_ns: pass.now_ns - life.first_ns - life.classes.iter().sum::<u64>(),
            classes: life.classes,
            kinds: life.kinds,
            minor_faults: 7 * life.calls,
            major_faults: life.calls / 2,
            switches_missed: life.calls / 3,
            profiler_cost_ns: 11 * life.calls,
            call: (!exit).then_some(crate::small::asleep_in(202, pass.now_ns - 5, 5)),
            slot: 0,
        };
        let calls = life.calls;
        pass.syscalls.push(SyscallUpdate {
            process,
            thread: life.key,
            number: 202,
            count: calls,
            total_ns: 10 * calls,
            running_ns: 3 * calls,
            blocked_ns: 6 * calls,
            max_ns: 10,
        });
        let late = act.is_some_and(|act| act.late) && !exit && !life.was_late;
        life.was_late = late;
        if late {
            pass.unread.push((process, life.key));
        } else {
            self.reported.insert((process, life.key), life.classes);
            self.kinds.insert((process, life.key), life.kinds);
            pass.threads.push(update);
        }
        if exit {
            self.threads.remove(&at);
            if !self.threads.keys().any(|(of, _)| *of == at.0) {
                let key = self.processes.remove(&at.0).unwrap();
                let mut info = describe(key, at.0);
                info.exited_at_unix_ns = Some(pass.now_unix_ns);
                if at.0 != 3 {
                    pass.processes.push(info);
                }
            }
        }
    }
}

/// Each stack is always walked the same way.
fn end_of(stack: usize) -> StackEnd {
    match stack {
        7 | 8 => StackEnd::None,
        5 => StackEnd::TRUNCATED,
        10 | 11 => StackEnd::Incomplete(profiler_common::unwind::UnwindFailure::ReadFrame),
        _ => StackEnd::Complete,
    }
}

fn describe(key: ProcessKey, process: usize) -> ProcessInfo {
    let mut info =
        ProcessInfo::unknown(key, CommName::new("process"), START_UNIX_NS - START_NS.ns());
    info.kernel_thread = process == 2;
    info.exe = (process != 2).then(|| "/bin/app".into());
    info
}

/// Names by offset: two offsets share each function of a module.
pub(crate) struct ByOffset(Vec<FunctionName>);

impl ByOffset {
    pub(crate) fn new(profile: &mut Profile) -> Self {
        let frames = profile.frames();
        let name = |id| {
            let frame = frames.get(FrameId(id));
            let known = frame != Frame::default();
            FunctionName {
                name: format!("f{}", frame.offset.get() / 0x20).into(),
                address: known.then_some(ModuleAddress::new(frame.offset.get())),
                kind: if known {
                    FunctionKind::User
                } else {
                    FunctionKind::Unknown
                },
                known,
            }
        };
        Self((0..frames.len() as u32).map(name).collect())
    }
}

impl Names for ByOffset {
    fn function(&self, frame: FrameId) -> &FunctionName {
        &self.0[frame.0 as usize]
    }
}
