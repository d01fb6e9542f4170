//! A made-up machine with programs of every sort: busy ones, ones that wait, kernel threads, one with names that try to
//! become markup, one with a call tree of more than 20000 nodes, one that ended and one that was dropped.

use profiler_common::{ClassNs, StackEnd};
use profiler_daemon::processes::ids::{ProcessKey, ThreadKey};
use profiler_daemon::profile::Profile;
use profiler_daemon::profile::frames::FrameId;
use profiler_daemon::profile::input::{
    CommName, DrainPass, ProcessInfo, StackDelta, SyscallUpdate, ThreadState, ThreadUpdate,
};
use profiler_daemon::profile::limits::Limits;
use profiler_daemon::profile::snapshot::Snapshot;

use crate::names::{Functions, KERNEL};

/// The busiest process, the one with the large tree, the one with hostile names, the one that was dropped.
pub(crate) const BUSY: u32 = 1864;
pub(crate) const LARGE: u32 = 2100;
pub(crate) const HOSTILE: u32 = 666;
pub(crate) const DROPPED: u32 = 50;
const ENDED: u32 = 51;

/// Stacks of the large tree.
const LARGE_STACKS: usize = 1_100;
const MS: u64 = 1_000_000;
const SECOND: u64 = 1_000 * MS;
const SAMPLE_NS: u64 = SECOND / 99;

/// A name that would run a script where it became markup.
const MARKUP: &str = "<img src=x onerror=alert(1)>";

/// One stack of one thread and the milliseconds a second it has, by class.
struct Part {
    user: Vec<FrameId>,
    kernel: Vec<FrameId>,
    ms: [u64; 5],
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

struct Program {
    info: ProcessInfo,
    threads: Vec<Thread>,
    ended_at: Option<u64>,
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
            profile: Profile::new(limits, now_ns, begin_unix_ns),
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

    pub(crate) fn functions(&self) -> Functions {
        self.functions.clone()
    }

    /// The next of a fixed row of numbers below `below`.
    fn random(&mut self, below: u64) -> u64 {
        self.random = self
            .random
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % below
    }

    /// Frames of "module:function" words, outermost first; without a module the last one named goes on.
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

    fn part(&mut self, user: &[&str], kernel: &[&str], ms: [u64; 5]) -> Part {
        let user = self.frames(user);
        let kernel = kernel
            .iter()
            .map(|function| self.functions.frame(&mut self.profile, KERNEL, function))
            .collect();
        Part { user, kernel, ms }
    }

    fn add(
        &mut self,
        pid: u32,
        comm: &'static str,
        exe: Option<&str>,
        unit: Option<&str>,
    ) -> &mut Program {
        let key = ProcessKey {
            pid,
            start_ns: u64::from(pid) * SECOND,
        };
        let boot = self.begin_unix_ns - self.now_ns;
        let info = ProcessInfo {
            ppid: 1,
            exe: exe.map(Into::into),
            uid: Some(1000),
            unit: unit.map(Into::into),
            kernel_thread: exe.is_none(),
            ..ProcessInfo::unknown(key, CommName::new(comm), boot)
        };
        self.programs.push(Program {
            info,
            threads: Vec::new(),
            ended_at: None,
        });
        self.programs.last_mut().unwrap()
    }

    fn thread(
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
                start_ns: u64::from(tid) * SECOND,
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

    fn populate(&mut self) {
        self.web_server();
        self.database();
        self.compilers();
        self.hostile();
        self.large();
        for (pid, comm) in [
            (2, "kthreadd"),
            (15, "ksoftirqd/0"),
            (40, "kworker/0:1"),
            (41, "kworker/1:2"),
        ] {
            self.add(pid, comm, None, None);
            let work = self.part(
                &[],
                &[
                    "ret_from_fork_asm",
                    "kthread",
                    "worker_thread",
                    "process_one_work",
                ],
                [0, 0, 0, 1, 3],
            );
            let idle = self.part(
                &[],
                &["ret_from_fork_asm", "kthread", "worker_thread", "schedule"],
                [0; 5],
            );
            self.thread(pid, comm, vec![work], idle, Vec::new());
        }
        for (pid, comm) in [
            (1, "systemd"),
            (310, "systemd-journal"),
            (455, "sshd"),
            (470, "cron"),
            (500, "bash"),
        ] {
            let unit = format!("{comm}.service");
            let exe = format!("/usr/lib/{comm}");
            self.add(pid, comm, Some(&exe), Some(&unit));
            let work = self.part(
                &[&format!("{exe}!_start"), "main", "loop"],
                &[],
                [1, 1, 0, 0, 0],
            );
            let idle = self.part(
                &[
                    &format!("{exe}!_start"),
                    "main",
                    "/lib/libc.so.6!epoll_wait",
                ],
                &["do_syscall_64", "ep_poll"],
                [0; 5],
            );
            self.thread(pid, comm, vec![work], idle, vec![(232, 4, 990, 990)]);
        }
        for pid in [DROPPED, ENDED] {
            let ended_at = if pid == DROPPED { 3 } else { 9 };
            self.add(pid, "short-lived", Some("/bin/short"), None)
                .ended_at = Some(ended_at);
            let work = self.part(&["/bin/short!_start", "main"], &[], [300, 20, 0, 0, 0]);
            let idle = self.part(&["/bin/short!_start", "main"], &["do_syscall_64"], [0; 5]);
            self.thread(pid, "short-lived", vec![work], idle, Vec::new());
        }
    }

    fn web_server(&mut self) {
        const EXE: &str = "/usr/bin/webserver!";
        self.add(
            BUSY,
            "webserver",
            Some("/usr/bin/webserver"),
            Some("web.service"),
        )
        .info
        .cgroup = Some("/system.slice/web.service".into());
        let start = format!("{EXE}_start");
        let base = [
            start.as_str(),
            "/lib/libc.so.6!__libc_start_main",
            "/usr/bin/webserver!main",
            "server::run",
            "server::serve_connection",
        ];
        for tid in BUSY..BUSY + 4 {
            let with = |more: &[&'static str]| -> Vec<&str> {
                base.iter().copied().chain(more.iter().copied()).collect()
            };
            let parse = with(&["http::parse_request", "http::parse_headers"]);
            let route = with(&[
                "router::dispatch",
                "handlers::search",
                "index::lookup",
                "index::decode_postings",
            ]);
            let render = with(&[
                "router::dispatch",
                "handlers::search",
                "template::render",
                "/lib/libc.so.6!memcpy",
            ]);
            let json = with(&[
                "router::dispatch",
                "handlers::api",
                "json::to_string",
                "json::escape",
            ]);
            let compress = with(&[
                "router::dispatch",
                "handlers::api",
                "/lib/libz.so.1!deflate",
                "longest_match",
            ]);
            let jit = with(&[
                "router::dispatch",
                "handlers::script",
                "script::enter",
                "[jit]!<anonymous script>",
            ]);
            let stripped = with(&["tls::read", "/lib/libssl.so.3!libssl.so.3+0x4f2e0"]);
            let write = with(&["router::dispatch", "http::send", "/lib/libc.so.6!write"]);
            let lock = with(&[
                "router::dispatch",
                "handlers::search",
                "cache::get",
                "/lib/libc.so.6!pthread_mutex_lock",
            ]);
            let parts = vec![
                self.part(&parse, &[], [70, 0, 0, 6, 0]),
                self.part(&route, &[], [230, 0, 0, 25, 0]),
                self.part(&render, &[], [90, 0, 0, 8, 0]),
                self.part(&json, &[], [60, 0, 0, 4, 0]),
                self.part(&compress, &[], [110, 0, 0, 9, 0]),
                self.part(&jit, &[], [25, 0, 0, 0, 0]),
                self.part(&stripped, &[], [15, 0, 0, 0, 0]),
                self.part(
                    &write,
                    &["do_syscall_64", "ksys_write", "tcp_sendmsg"],
                    [2, 60, 12, 3, 0],
                ),
                self.part(&lock, &["do_syscall_64", "futex_wait"], [1, 6, 95, 10, 0]),
            ];
            let idle = with(&["/lib/libc.so.6!epoll_wait"]);
            let idle = self.part(&idle, &["do_syscall_64", "ep_poll"], [0; 5]);
            let calls = vec![
                (1, 900, 72, 12),
                (202, 120, 101, 95),
                (232, 300, 120, 118),
                (0, 850, 9, 1),
            ];
            self.thread(
                tid,
                if tid == BUSY {
                    "webserver"
                } else {
                    "web-worker"
                },
                parts,
                idle,
                calls,
            );
        }
    }

    fn database(&mut self) {
        const EXE: &str = "/usr/lib/postgresql/bin/postgres";
        let start = format!("{EXE}!_start");
        for pid in 4711..4716 {
            self.add(pid, "postgres", Some(EXE), Some("postgresql.service"));
            let base = [
                start.as_str(),
                "PostmasterMain",
                "BackendMain",
                "PostgresMain",
                "exec_simple_query",
                "ExecutorRun",
            ];
            let with = |more: &[&'static str]| -> Vec<&str> {
                base.iter().copied().chain(more.iter().copied()).collect()
            };
            let weight = u64::from(4716 - pid);
            let scan = self.part(
                &with(&["ExecSeqScan", "heap_getnext"]),
                &[],
                [18 * weight, 0, 0, 2 * weight, 0],
            );
            let sort = self.part(
                &with(&["ExecSort", "tuplesort_performsort", "qsort_tuple"]),
                &[],
                [9 * weight, 0, 0, weight, 0],
            );
            let read = self.part(
                &with(&["ReadBuffer", "/lib/libc.so.6!pread64"]),
                &["do_syscall_64", "vfs_read", "io_schedule"],
                [1, 14 * weight, 90 * weight, 0, 0],
            );
            let fsync = self.part(
                &with(&["CommitTransaction", "XLogFlush", "/lib/libc.so.6!fdatasync"]),
                &["do_syscall_64", "ext4_sync_file"],
                [0, 2, 20 * weight, 0, 0],
            );
            let idle = self.part(
                &[
                    start.as_str(),
                    "PostmasterMain",
                    "BackendMain",
                    "PostgresMain",
                    "ReadCommand",
                    "/lib/libc.so.6!recv",
                ],
                &["do_syscall_64", "tcp_recvmsg"],
                [0; 5],
            );
            let calls = vec![
                (17, 200 * weight, 104 * weight, 90 * weight),
                (75, weight, 20 * weight + 2, 20 * weight),
                (45, 30, 150, 149),
            ];
            self.thread(pid, "postgres", vec![scan, sort, read, fsync], idle, calls);
        }
    }

    fn compilers(&mut self) {
        for pid in 3000..3006 {
            self.add(pid, "cc1plus", Some("/usr/libexec/cc1plus"), None)
                .info
                .container_id = Some("4f1c9a7be2d0aa55".into());
            let parse = self.part(
                &[
                    "/usr/libexec/cc1plus!_start",
                    "main",
                    "do_compile",
                    "c_parse_file",
                    "cp_parser_declaration",
                ],
                &[],
                [260, 4, 0, 210, 0],
            );
            let optimise = self.part(
                &[
                    "/usr/libexec/cc1plus!_start",
                    "main",
                    "do_compile",
                    "symtab_node::compile",
                    "execute_pass_list",
                    "pass_fold",
                ],
                &[],
                [180, 2, 0, 160, 0],
            );
            let fault = self.part(
                &[
                    "/usr/libexec/cc1plus!_start",
                    "main",
                    "do_compile",
                    "ggc_alloc",
                    "/lib/libc.so.6!mmap",
                ],
                &["do_syscall_64", "vm_mmap_pgoff"],
                [0, 40, 2, 9, 0],
            );
            let idle = self.part(
                &["/usr/libexec/cc1plus!_start", "main", "finalize"],
                &["do_syscall_64", "pipe_write"],
                [0; 5],
            );
            self.thread(
                pid,
                "cc1plus",
                vec![parse, optimise, fault],
                idle,
                vec![(9, 400, 42, 2), (1, 20, 8, 6)],
            );
        }
    }

    fn hostile(&mut self) {
        let exe = "/opt/<script>alert(1)</script>";
        self.add(HOSTILE, MARKUP, Some(exe), Some("\u{202e}txt.<b>unit</b>"));
        let image = format!("{exe}!{MARKUP}");
        let long = "a::".repeat(300);
        let part = self.part(
            &[
                &image,
                "javascript:alert(1)",
                "\u{202e}drowkcab\u{7}",
                "\"><svg onload=alert(1)>",
                &long,
            ],
            &[],
            [40, 1, 0, 0, 0],
        );
        let idle = self.part(
            &[&image, "__proto__", "constructor"],
            &["do_syscall_64"],
            [0; 5],
        );
        self.thread(
            HOSTILE,
            "'\"><script>",
            vec![part],
            idle,
            vec![(0, 3, 900, 890)],
        );
    }

    /// A tree that is as wide as it is deep.
    fn large(&mut self) {
        self.add(LARGE, "large-tree", Some("/opt/large"), None);
        let mut parts = Vec::new();
        for _ in 0..LARGE_STACKS {
            let depth = 12 + self.random(48) as usize;
            let mut words = vec!["/opt/large!_start".to_owned(), "main".to_owned()];
            for level in 0..depth {
                // Callers are shared by many stacks, callees by few.
                let choices = if level < 6 { 3 } else { 5 };
                let choice = self.random(choices);
                words.push(format!("layer_{level}::step_{choice}"));
            }
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            let blocked = self.random(3) / 2;
            let mut part = self.part(&words, &[], [1, 0, blocked, 0, 0]);
            // Thousandths of a millisecond: see `World::pass`.
            part.ms = [self.random(150) + 1, 0, blocked * 40, 0, 0];
            parts.push(part);
        }
        let idle = self.part(
            &["/opt/large!_start", "main", "wait"],
            &["do_syscall_64"],
            [0; 5],
        );
        self.thread(LARGE, "large-tree", parts, idle, Vec::new());
    }

    /// Lets so much time pass.
    pub(crate) fn pass(&mut self, length_ns: u64) {
        self.passes += 1;
        self.now_ns += length_ns;
        let mut pass = DrainPass {
            now_ns: self.now_ns,
            now_unix_ns: self.begin_unix_ns + (self.now_ns - 100_000 * SECOND),
            boot_unix_ns: self.begin_unix_ns - 100_000 * SECOND,
            modules: self.functions.modules.clone(),
            losses: vec![("walks_map_full", 3), ("wakes_early", 41)],
            discarded: vec![("idle", self.passes * 500)],
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
            // The large tree has its stacks once and then a few of them, as thousands a second would only cost time.
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
                        StackEnd::Failed
                    } else {
                        StackEnd::Complete
                    },
                    lost: None,
                    samples: running / SAMPLE_NS,
                    walks: 1 + running / SAMPLE_NS,
                    classes,
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
                first_event_ns: thread.begin_ns,
                last_event_ns: thread.begin_ns + thread.classes.iter().sum::<u64>(),
                unobserved_ns: 0,
                classes: thread.classes,
                in_syscall: Some(232),
                in_syscall_since_ns: self.now_ns - 80 * MS,
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
