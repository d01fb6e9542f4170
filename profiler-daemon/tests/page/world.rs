//! A made-up machine: how its time passes. Which programs it has is in `programs`.

use profiler_common::unwind::UnwindFailure;
use profiler_common::{ClassNs, StackEnd};
use profiler_daemon::processes::ids::{ProcessKey, ThreadKey};
use profiler_daemon::profile::Profile;
use profiler_daemon::profile::calls::CallTime;
use profiler_daemon::profile::frames::FrameId;
use profiler_daemon::profile::input::{
    CommName, DrainPass, OpenCall, ProcessInfo, StackDelta, SyscallUpdate, ThreadState,
    ThreadUpdate,
};
use profiler_daemon::profile::limits::Limits;
use profiler_daemon::profile::sessions::{SessionChange, SessionChanged, SessionRefusal};
use profiler_daemon::profile::snapshot::Snapshot;

use crate::names::{Functions, KERNEL};
use crate::primary::{kinds, primary};
use profiler_daemon::units::{BootNs, MonoNs, UnixNs};

/// The busiest process, the one with the large tree, the one with hostile names, the one that was
/// dropped.
pub(crate) const BUSY: u32 = 1864;
pub(crate) const LARGE: u32 = 2100;
pub(crate) const HOSTILE: u32 = 666;
pub(crate) const DROPPED: u32 = 50;

const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const SAMPLE_NS: u64 = SECOND / 99;

/// One stack of one thread and the milliseconds a second it has, by class.
pub(crate) struct Part {
    user: Vec<FrameId>,
    kernel: Vec<FrameId>,
    pub(crate) ms: [u64; 5],
}

struct Thread {
    key: ThreadKey,
    comm: &'static str,
    parts: Vec<Part>,
    /// Where it is the rest of the time.
    idle: Part,
    /// Milliseconds a second that no stack gets.
    without_ms: u64,
    classes: ClassNs,
    /// System call, calls a second, milliseconds a second, of them blocked.
    calls: Vec<(u32, u64, u64, u64)>,
    called: Vec<SyscallUpdate>,
    sample_rest_ns: u64,
    begin_ns: u64,
}

pub(crate) struct Program {
    pub(crate) info: ProcessInfo,
    threads: Vec<Thread>,
    /// The pass in which it ends.
    pub(crate) ended_at: Option<u64>,
}

/// See the module.
pub(crate) struct World {
    profile: Profile,
    functions: Functions,
    programs: Vec<Program>,
    now_ns: u64,
    begin_unix_ns: u64,
    passes: u64,
    random: u64,
}

impl World {
    pub(crate) fn new() -> Self {
        let limits = Limits {
            exited_processes: 1,
            ..Limits::default()
        };
        let unix = std::time::SystemTime::now()
            .duration_since(std::time::UNIX_EPOCH)
            .unwrap();
        let begin_unix_ns = u64::try_from(unix.as_nanos()).unwrap() - 24 * SECOND;
        let now_ns = 100_000 * SECOND;
        let mut world = Self {
            profile: Profile::new(limits, MonoNs::new(now_ns), UnixNs::new(begin_unix_ns)),
            functions: Functions::default(),
            programs: Vec::new(),
            now_ns,
            begin_unix_ns,
            passes: 0,
            random: 1,
        };
        world.populate();
        world
    }

    pub(crate) fn snapshot(&self) -> Snapshot {
        self.profile.snapshot()
    }

    pub(crate) fn change_session(
        &mut self,
        change: SessionChange,
    ) -> Result<SessionChanged, SessionRefusal> {
        self.profile.change_session(change)
    }

    pub(crate) fn functions(&self) -> Functions {
        self.functions.clone()
    }

    /// The next of a fixed row of numbers below `below`.
    pub(crate) fn random(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// Frames of "module:function" words, outermost first; without a module the last one named goes
    /// on.
    fn frames(&mut self, words: &[&str]) -> Vec<FrameId> {
        let mut module = "";
        let mut frames = Vec::new();
        for word in words {
            let function = match word.split_once("!") {
                Some((named, function)) => {
                    module = named;
                    function
                }
                None => word,
            };
            frames.push(self.functions.frame(&mut self.profile, module, function));
        }
        frames
    }

    pub(crate) fn part(&mut self, user: &[&str], kernel: &[&str], ms: [u64; 5]) -> Part {
        let user = self.frames(user);
        let kernel = kernel
            .iter()
            .map(|function| self.functions.frame(&mut self.profile, KERNEL, function))
            .collect();
        Part { user, kernel, ms }
    }

    pub(crate) fn add(
        &mut self,
        pid: u32,
        comm: &'static str,
        exe: Option<&str>,
        unit: Option<&str>,
    ) -> &mut Program {
        let key = ProcessKey {
            pid,
            start_ns: BootNs::new(u64::from(pid) * SECOND),
        };
        let boot = self.begin_unix_ns - self.now_ns;
        let info = ProcessInfo {
            ppid: 1,
            exe: exe.map(Into::into),
            uid: Some(1000),
            unit: unit.map(Into::into),
            kernel_thread: exe.is_none(),
            ..ProcessInfo::unknown(key, CommName::new(comm), UnixNs::new(boot))
        };
        self.programs.push(Program {
            info,
            threads: Vec::new(),
            ended_at: None,
        });
        self.programs.last_mut().unwrap()
    }

    pub(crate) fn thread(
        &mut self,
        tid: u32,
        comm: &'static str,
        parts: Vec<Part>,
        idle: Part,
        calls: Vec<(u32, u64, u64, u64)>,
    ) {
        let begin_ns = self.now_ns;
        let program = self.programs.last_mut().unwrap();
        program.threads.push(Thread {
            key: ThreadKey {
                tid,
                start_ns: BootNs::new(u64::from(tid) * SECOND),
            },
            comm,
            parts,
            idle,
            without_ms: 2,
            classes: ClassNs::default(),
            calls,
            called: Vec::new(),
            sample_rest_ns: 0,
            begin_ns,
        });
    }

    /// Lets so much time pass.
    pub(crate) fn pass(&mut self, length_ns: u64) {
        self.passes += 1;
        self.now_ns += length_ns;
        let mut pass = DrainPass {
            now_ns: MonoNs::new(self.now_ns),
            now_unix_ns: UnixNs::new(self.begin_unix_ns + (self.now_ns - 100_000 * SECOND)),
            boot_unix_ns: UnixNs::new(self.begin_unix_ns - 100_000 * SECOND),
            processors: 8,
            modules: self.functions.modules.clone(),
            losses: vec![("walks_map_full".into(), 3), ("wakes_early".into(), 41)],
            discarded: vec![("idle".into(), self.passes * 500)],
            ..DrainPass::default()
        };
        let mut programs = std::mem::take(&mut self.programs);
        for program in &mut programs {
            self.move_on(program, length_ns, &mut pass);
        }
        self.programs = programs;
        self.profile.apply(pass);
    }

    fn move_on(&mut self, program: &mut Program, length_ns: u64, pass: &mut DrainPass) {
        let over = program.ended_at.is_some_and(|end| end < self.passes);
        if over {
            return;
        }
        let ends = program.ended_at == Some(self.passes);
        if ends {
            program.info.exited_at_unix_ns = Some(pass.now_unix_ns);
        }
        if ends || self.passes == 1 {
            pass.processes.push(program.info.clone());
        }
        let busy = 55 + self.random(46);
        let large = program.info.key.pid == LARGE;
        for thread in &mut program.threads {
            let mut left = length_ns;
            // The large tree has its stacks once and then a few of them, as thousands a second
            // would only cost time.
            let parts = if large && self.passes > 1 {
                40
            } else {
                usize::MAX
            };
            let unit = if large {
                length_ns / 1_000_000
            } else {
                length_ns / 1_000
            };
            let mut add = |part: &Part, classes: ClassNs, rest: &mut u64| {
                let running = classes[0] + classes[1] + classes[4] + *rest;
                *rest = running % SAMPLE_NS;
                pass.stacks.push(StackDelta {
                    process: program.info.key,
                    thread: thread.key,
                    user: part.user.clone(),
                    kernel: part.kernel.clone(),
                    end: if part.user.len() % 7 == 5 {
                        StackEnd::Incomplete(UnwindFailure::NoTable)
                    } else {
                        StackEnd::Complete
                    },
                    lost: None,
                    // Each of the many short stacks of the large tree was hit once.
                    primary: primary(
                        if large && classes[0] > 0 {
                            1
                        } else {
                            running / SAMPLE_NS
                        },
                        &classes,
                    ),
                });
            };
            for part in thread.parts.iter().take(parts) {
                let classes = part.ms.map(|ms| ms * unit * busy / 100);
                let sum: u64 = classes.iter().sum();
                if sum > left {
                    break;
                }
                left -= sum;
                add(part, classes, &mut thread.sample_rest_ns);
                for (total, ns) in thread.classes.iter_mut().zip(classes) {
                    *total += ns;
                }
            }
            let without = (thread.without_ms * length_ns / 1_000).min(left);
            let idle = [0, 0, left - without, 0, 0];
            add(&thread.idle, idle, &mut thread.sample_rest_ns);
            thread.classes[2] += left;
            let state = if ends {
                ThreadState::Exited
            } else {
                ThreadState::Blocked
            };
            pass.threads.push(ThreadUpdate {
                thread: thread.key,
                process: program.info.key,
                comm: CommName::new(thread.comm),
                state,
                first_event_ns: MonoNs::new(thread.begin_ns),
                last_event_ns: MonoNs::new(thread.begin_ns + thread.classes.iter().sum::<u64>()),
                unobserved_ns: 0,
                classes: thread.classes,
                kinds: kinds(&thread.classes),
                minor_faults: 0,
                major_faults: 0,
                switches_missed: 0,
                profiler_cost_ns: 0,
                call: Some(OpenCall {
                    number: 232,
                    since_ns: MonoNs::new(self.now_ns - 80 * MS),
                    entry_seen: true,
                    time: CallTime {
                        total_ns: 80 * MS,
                        running_ns: 0,
                        blocked_ns: 80 * MS,
                    },
                }),
                slot: thread.key.tid,
            });
            call(program.info.key, thread, length_ns, pass);
        }
    }
}

/// Adds the system calls of a stretch of time.
fn call(process: ProcessKey, thread: &mut Thread, length_ns: u64, pass: &mut DrainPass) {
    for (index, (number, calls, ms, blocked)) in thread.calls.iter().enumerate() {
        if thread.called.len() <= index {
            thread.called.push(SyscallUpdate {
                process,
                thread: thread.key,
                number: *number,
                count: 0,
                total_ns: 0,
                running_ns: 0,
                blocked_ns: 0,
                max_ns: 0,
            });
        }
        let called = &mut thread.called[index];
        called.count += (calls * length_ns / SECOND).max(1);
        called.total_ns += ms * length_ns / 1_000;
        called.blocked_ns += blocked * length_ns / 1_000;
        called.running_ns += (ms - blocked) * length_ns / 1_000;
        called.max_ns = called.total_ns / called.count * 9;
        pass.syscalls.push(called.clone());
    }
}
