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
    report::{self, Frames, Scope, TableQuery, ViewQuery, Window},
};
use proptest::prelude::*;
use serde_json::Value;

use crate::{
    ledger::{check_all, config},
    machine::{ByOffset, SECOND_NS, START_NS, START_UNIX_NS},
    rules::json,
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
    Exit,
}

fn does() -> impl Strategy<Value = Does> {
    prop_oneof![
        12 => Just(Does::Sleep),
        1 => Just(Does::SleepUnread),
        2 => (0..100u64, any::<bool>())
            .prop_map(|(percent, in_call)| Does::Wake { percent, in_call }),
        1 => (0..100u64).prop_map(|percent| Does::WakeUnread { percent }),
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
    /// Passes since it did anything, or could not be read.
    quiet: u32,
}

impl Life {
    fn sleep(&mut self, ns: u64) {
        self.classes[Class::Blocked as usize] += ns;
        if let Some(call) = &mut self.call {
            call.time.total_ns += ns;
            call.time.blocked_ns += ns;
        }
    }

    fn wake(&mut self, at_ns: u64, in_call: bool) {
        if let Some(call) = self.call.take() {
            self.returned += 1;
            let to = &mut self.returned_time;
            to.total_ns += call.time.total_ns;
            to.blocked_ns += call.time.blocked_ns;
        }
        self.call = in_call.then_some(OpenCall {
            number: CALL,
            since_ns: at_ns,
            entry_seen: true,
            time: CallTime::default(),
        });
    }
}

fn process_key(process: usize) -> ProcessKey {
    ProcessKey {
        pid: 100 + process as u32,
        start_ns: 1,
    }
}

fn thread_key(process: usize, thread: usize) -> ThreadKey {
    ThreadKey {
        tid: (100 + process * 10 + thread) as u32,
        start_ns: 1,
    }
}

/// The threads, and the passes over them: one over all, and one that leaves out who sleeps on.
struct Machine {
    now_ns: u64,
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
            quiet: 0,
        };
        Self {
            now_ns: START_NS,
            lives: [[life; THREADS]; PROCESSES],
        }
    }

    fn pass(&mut self, plan: &Plan, is_partial: bool) -> [DrainPass; 2] {
        let before_ns = self.now_ns;
        self.now_ns += SECOND_NS;
        let whole = DrainPass {
            now_ns: self.now_ns,
            now_unix_ns: START_UNIX_NS + (self.now_ns - START_NS),
            boot_unix_ns: START_UNIX_NS - START_NS,
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
                life.quiet += 1;
                match does {
                    Does::Sleep | Does::SleepUnread => life.sleep(SECOND_NS),
                    Does::Wake { percent, .. } | Does::WakeUnread { percent } => {
                        life.quiet = 0;
                        let (slept_ns, ran_ns) = (SECOND_NS / 100 * percent, SECOND_NS / 200);
                        life.sleep(slept_ns);
                        let in_call = matches!(does, Does::Wake { in_call: true, .. });
                        life.wake(before_ns + slept_ns + ran_ns, in_call);
                        life.classes[Class::User as usize] += ran_ns;
                        life.sleep(SECOND_NS - slept_ns - ran_ns);
                    }
                    Does::Exit => {
                        life.quiet = 0;
                        life.sleep(SECOND_NS);
                        life.wake(self.now_ns, false);
                        life.lives = false;
                    }
                }
                let is_unread = matches!(does, Does::SleepUnread | Does::WakeUnread { .. });
                sleeps &= life.quiet > 1 && !is_unread;
                if is_unread {
                    life.quiet = 0;
                    unread.push((process_key(process), thread_key(process, thread)));
                    continue;
                }
                updates.push(update(self.now_ns, (process, thread), life));
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

fn update(
    now_ns: u64,
    (process, thread): (usize, usize),
    life: &Life,
) -> (ThreadUpdate, SyscallUpdate) {
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
        last_event_ns: now_ns,
        unobserved_ns: 0,
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
            frames: Frames::default(),
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
        let events = report::os_events(snapshot, &Scope::Session, &view, names).unwrap();
        answers.extend([
            json(&session),
            json(&processes),
            json(&threads),
            json(&events),
        ]);
    }
    answers
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
