//! The programs of the made-up machine, of every sort: busy ones, ones that wait, kernel threads,
//! one with names that try to become markup, one with a call tree of more than 20000 nodes, one
//! that ended and one that was dropped.

use crate::world::{BUSY, DROPPED, HOSTILE, LARGE, World};

const ENDED: u32 = 51;
/// Stacks of the large tree.
const LARGE_STACKS: usize = 1_100;

/// A name that would run a script where it became markup.
const MARKUP: &str = "<img src=x onerror=alert(1)>";

impl World {
    /// Adds them all.
    pub(crate) fn populate(&mut self) {
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
            // Nobody needs the last one: it only sleeps.
            let parts = if comm == "cron" {
                Vec::new()
            } else {
                vec![work]
            };
            self.thread(pid, comm, parts, idle, vec![(232, 4, 990, 990)]);
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
}
