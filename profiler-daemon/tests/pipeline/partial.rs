//! Partial passes: a profile that is told only of who did something gives the answers of one that
//! is told of everybody each time.

use profiler_common::{
    CLASS_COUNT, Class, ClassNs,
    kinds::{Kind, KindNs},
};
use profiler_daemon::{
    processes::ids::{ProcessKey, ThreadKey},
    profile::{
        Profile,
        calls::CallTime,
        input::{CommName, DrainPass, OpenCall, SyscallUpdate, ThreadState, ThreadUpdate},
        limits::Limits,
        snapshot::Snapshot,
    },
    report::{self, FrameScope, Scope, TableQuery, ViewQuery, Window},
    units::{BootNs, MonoNs},
};
use proptest::prelude::*;
use serde_json::Value;

use crate::{
    ledger::{check_all, config},
    machine::{ByOffset, SECOND_NS, START_NS, START_UNIX_NS},
    rules::{json, number},
};

const CALL: u32 = 202;

/// What a thread does during one pass.
#[derive(Clone, Copy, Debug)]
enum Does {
    /// It sleeps on, in the call or outside.
    Sleep,
    /// The same, but cannot be read.
    SleepUnread,
    /// It sleeps for this part of the time, leaves its call, runs, and sleeps again, in a call or
    /// outside.
    Wake {
        percent: u64,
        in_call: bool,
    },
    /// The same, but cannot be read.
    WakeUnread {
        percent: u64,
    },
    /// It sleeps for this part of the time, and is no target from then on.
    Suspend {
        percent: u64,
    },
    /// After this part of the time it is a target again, and found asleep, in a call or outside.
    Resume {
        percent: u64,
        in_call: bool,
    },
    Exit,
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        12 => Just(Does::Sleep),
        1 => Just(Does::SleepUnread),
        2 => (0..100u64, any::<bool>())
            .prop_map(|(percent, in_call)| Does::Wake { percent, in_call }),
        1 => (0..100u64).prop_map(|percent| Does::WakeUnread { percent }),
        1 => (0..100u64).prop_map(|percent| Does::Suspend { percent }),
        2 => (0..100u64, any::<bool>())
            .prop_map(|(percent, in_call)| Does::Resume { percent, in_call }),
        1 => Just(Does::Exit),
    ]
}

const PROCESSES: usize = 3;
const THREADS: usize = 2;

#[derive(Clone, Debug)]
struct Plan {
    is_partial: bool,
    does: [[Does; THREADS]; PROCESSES],
}

fn plans() -> impl Strategy<Value = Vec<Plan>> {
    let all = prop::array::uniform3(prop::array::uniform2(does()));
    let plan =
        (prop::bool::weighted(0.8), all).prop_map(|(is_partial, does)| Plan { is_partial, does });
    prop::collection::vec(plan, 1..24)
}

#[derive(Clone, Copy)]
struct Life {
    classes: ClassNs,
    /// The call it is in, and what has passed of it.
    call: Option<OpenCall>,
    /// Calls that have returned.
    returned: u64,
    returned_time: CallTime,
    lives: bool,
    is_target: bool,
    last_ns: MonoNs,
    unobserved_ns: u64,
    /// Passes since it did anything, was no target, or could not be read.
    quiet: u32,
}

impl Life {
    fn sleep(&mut self, ns: u64) {
        self.classes[Class::Blocked as usize] += ns;
        self.last_ns += ns;
        if let Some(call) = &mut self.call {
            call.time.total_ns += ns;
            call.time.blocked_ns += ns;
        }
    }

    fn return_from_call(&mut self) {
        // Only who was seen to enter is counted.
        if let Some(call) = self.call.take().filter(|call| call.entry_seen) {
            self.returned += 1;
            let to = &mut self.returned_time;
            to.total_ns += call.time.total_ns;
            to.blocked_ns += call.time.blocked_ns;
        }
    }

    fn enter(&mut self, in_call: bool, entry_seen: bool) {
        self.call = in_call.then_some(OpenCall {
            number: CALL,
            since_ns: self.last_ns,
            entry_seen,
            time: CallTime::default(),
        });
    }

    fn run(&mut self, ns: u64) {
        self.classes[Class::User as usize] += ns;
        self.last_ns += ns;
    }

    fn resume(&mut self, at_ns: MonoNs, in_call: bool) {
        self.unobserved_ns += at_ns - self.last_ns;
        self.last_ns = at_ns;
        self.is_target = true;
        self.enter(in_call, false);
    }

    /// What it does until `to_ns`; a thread that is no target does what it will.
    fn pass(&mut self, does: Does, to_ns: MonoNs) {
        let from_ns = to_ns - SECOND_NS;
        self.quiet += 1;
        if !self.is_target {
            self.quiet = 0;
            if let Does::Resume { percent, in_call } = does {
                self.resume(from_ns + SECOND_NS / 100 * percent, in_call);
                self.sleep(to_ns - self.last_ns);
            }
            return;
        }
        match does {
            Does::Sleep | Does::SleepUnread | Does::Resume { .. } => self.sleep(SECOND_NS),
            Does::Wake { percent, .. } | Does::WakeUnread { percent } => {
                self.quiet = 0;
                self.sleep(SECOND_NS / 100 * percent);
                self.return_from_call();
                self.run(SECOND_NS / 200);
                self.enter(matches!(does, Does::Wake { in_call: true, .. }), true);
                self.sleep(to_ns - self.last_ns);
            }
            Does::Suspend { percent } => {
                self.quiet = 0;
                self.sleep(SECOND_NS / 100 * percent);
                self.is_target = false;
            }
            Does::Exit => {
                self.quiet = 0;
                self.sleep(SECOND_NS);
                self.return_from_call();
                self.lives = false;
            }
        }
    }
}

fn process_key(process: usize) -> ProcessKey {
    ProcessKey {
        pid: 100 + process as u32,
        start_ns: BootNs::new(1),
    }
}

fn thread_key(process: usize, thread: usize) -> ThreadKey {
    ThreadKey {
        tid: (100 + process * 10 + thread) as u32,
        start_ns: BootNs::new(1),
    }
}

/// The threads, and the passes over them: one over all, and one that leaves out who sleeps on.
struct Machine {
    now_ns: MonoNs,
    lives: [[Life; THREADS]; PROCESSES],
}

impl Machine {
    fn new() -> Self {
        let life = Life {
            classes: [0; CLASS_COUNT],
            call: None,
            returned: 0,
            returned_time: CallTime::default(),
            lives: true,
            is_target: true,
            last_ns: START_NS,
            unobserved_ns: 0,
            quiet: 0,
        };
        Self {
            now_ns: START_NS,
            lives: [[life; THREADS]; PROCESSES],
        }
    }

    fn pass(&mut self, plan: &Plan, is_partial: bool) -> [DrainPass; 2] {
        self.now_ns += SECOND_NS;
        let whole = DrainPass {
            now_ns: self.now_ns,
            now_unix_ns: START_UNIX_NS + (self.now_ns - START_NS),
            boot_unix_ns: START_UNIX_NS - START_NS.ns(),
            ..DrainPass::default()
        };
        let mut passes = [whole.clone(), whole];
        passes[1].is_partial = is_partial;
        for (process, lives) in self.lives.iter_mut().enumerate() {
            let (mut updates, mut unread) = (Vec::new(), Vec::new());
            // As the kernel's side does it: who was told twice is left out.
            let mut sleeps = true;
            for (thread, life) in lives.iter_mut().enumerate().filter(|(_, life)| life.lives) {
                let does = plan.does[process][thread];
                life.pass(does, self.now_ns);
                let is_unread = matches!(does, Does::SleepUnread | Does::WakeUnread { .. });
                sleeps &= life.quiet > 1 && !is_unread;
                if is_unread {
                    life.quiet = 0;
                    unread.push((process_key(process), thread_key(process, thread)));
                    continue;
                }
                updates.push(update((process, thread), life));
            }
            for (pass, is_partial) in passes.iter_mut().zip([false, is_partial]) {
                pass.unread.extend(&unread);
                if is_partial && sleeps {
                    continue;
                }
                for (thread, call) in &updates {
                    pass.threads.push(thread.clone());
                    pass.syscalls.push(call.clone());
                }
            }
        }
        passes
    }
}

fn update((process, thread): (usize, usize), life: &Life) -> (ThreadUpdate, SyscallUpdate) {
    let mut kinds = KindNs::default();
    kinds[Kind::User as usize] = life.classes[Class::User as usize];
    let thread_update = ThreadUpdate {
        thread: thread_key(process, thread),
        process: process_key(process),
        comm: CommName::new("thread"),
        state: if life.lives {
            ThreadState::Blocked
        } else {
            ThreadState::Exited
        },
        first_event_ns: START_NS,
        last_event_ns: life.last_ns,
        unobserved_ns: life.unobserved_ns,
        classes: life.classes,
        kinds,
        minor_faults: 0,
        major_faults: 0,
        switches_missed: 0,
        profiler_cost_ns: 0,
        call: life.call,
        slot: (1 + process * THREADS + thread) as u32,
    };
    let call_update = SyscallUpdate {
        process: process_key(process),
        thread: thread_key(process, thread),
        number: CALL,
        count: life.returned,
        total_ns: life.returned_time.total_ns,
        running_ns: life.returned_time.running_ns,
        blocked_ns: life.returned_time.blocked_ns,
        max_ns: life.returned_time.total_ns,
    };
    (thread_update, call_update)
}

/// All that is to be the same.
fn answers(snapshot: &Snapshot, names: &ByOffset) -> Vec<Value> {
    let mut answers = Vec::new();
    let last = |seconds| Window::Last {
        duration_ns: seconds * SECOND_NS,
    };
    let windows = [
        Window::Session,
        last(1),
        last(2),
        last(3),
        last(7),
        last(15),
    ];
    for window in windows {
        let view = ViewQuery {
            frames: FrameScope::default(),
            window,
        };
        let Ok(session) = report::session(snapshot, &view, names) else {
            continue;
        };
        check_all(snapshot, window, names);
        let table = TableQuery {
            window,
            ..TableQuery::default()
        };
        let processes = report::processes(snapshot, &table, names).unwrap();
        let threads = report::threads(snapshot, &Scope::Session, &table, names).unwrap();
        let events = json(&report::os_events(snapshot, &Scope::Session, &view, names).unwrap());
        check_calls(&events);
        answers.extend([json(&session), json(&processes), json(&threads), events]);
    }
    answers
}

/// No more of a class is in calls than at all.
fn check_calls(events: &Value) {
    let calls = events["syscalls"].as_array().expect("a list of calls");
    for (of_calls, of_all) in [
        ("running_ns", "syscall_ns"),
        ("blocked_ns", "blocked_ns"),
        ("runnable_ns", "runnable_ns"),
    ] {
        let sum: u64 = calls.iter().map(|row| number(row, of_calls)).sum();
        let all = number(&events["classes"], of_all);
        assert!(sum <= all, "{of_calls} of calls is {sum} ns, of {all}");
    }
}

proptest! {
    #![proptest_config(config(256))]

    // Check that after partial passes, in which who sleeps on is left out, the next one over
    // everybody gives the same answers as if all had been told in each, over the session and over
    // windows that begin in between; also where threads cannot be read for a while.
    #[test]
    fn who_sleeps_on_need_not_be_told(plans in plans()) {
        let new = || Profile::new(Limits::default(), START_NS, START_UNIX_NS);
        let mut profiles = [new(), new()];
        let names = profiles.each_mut().map(ByOffset::new);
        let mut machine = Machine::new();
        for (index, plan) in plans.iter().enumerate() {
            let is_partial = plan.is_partial && index + 1 < plans.len();
            for (profile, pass) in profiles.iter_mut().zip(machine.pass(plan, is_partial)) {
                profile.apply(pass);
            }
            if !is_partial {
                let [told, left_out] = [0, 1].map(|of| answers(&profiles[of].snapshot(), &names[of]));
                for (told, left_out) in told.iter().zip(&left_out) {
                    prop_assert_eq!(told, left_out);
                }
            }
        }
    }
}
