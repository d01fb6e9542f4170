//! Threads that were asleep before the daemon came, and have had no event since: their stacks are
//! found from outside.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use profiler_daemon::kernel::{
    Asked, Kernel, KernelSettings, NamedTargets, OutsideLook, TracedSystemCalls,
};

use serde_json::Value;

use crate::daemon::{self, Daemon, Settings, say};
use crate::observed::whole_pass;
use crate::reads::{self, number, text, unix_now_ns, unix_ns};
use crate::unwinding::{PRELUDE, Running};
use crate::workload::Workload;

/// Within which stacks are found on a machine that has something else to do too.
/// (docs/benchmarks.md says how long it takes alone.)
const WITHIN: Duration = Duration::from_secs(20);

/// The kinds of waits of the workload `asleep`.
const RESTS: [&str; 4] = [
    "rest_in_nanosleep",
    "rest_in_futex",
    "rest_in_read",
    "rest_in_epoll",
];

/// The stacks of a process, in one answer.
struct Stacks {
    /// Functions, outermost first, without module paths, and elapsed time.
    stacks: Vec<(Vec<String>, u64)>,
    /// All its time.
    elapsed_ns: u64,
}

impl Stacks {
    fn of(daemon: &Daemon, process: &str) -> Self {
        let tree = daemon.get(&format!("/processes/{process}/calltree"));
        assert_eq!(number(&tree, "/cut_nodes"), 0, "all of it");
        let mut stacks = Vec::new();
        add(&tree["root"], &mut Vec::new(), &mut stacks);
        let placed_ns: u64 = stacks.iter().map(|(_, ns)| ns).sum();
        Self {
            stacks,
            elapsed_ns: placed_ns + number(&tree, "/completeness/elapsed_unattributed_ns"),
        }
    }

    /// The time of those that are as wanted.
    fn time_ns(&self, is_it: impl Fn(&[String]) -> bool) -> u64 {
        let found = self.stacks.iter().filter(|(stack, _)| is_it(stack));
        found.map(|(_, ns)| ns).sum()
    }

    /// Which share of the time is in whole stacks that are as wanted.
    fn share(&self, is_it: impl Fn(&[String]) -> bool) -> f64 {
        let is_whole = |stack: &[String]| !stack.iter().any(|name| name.starts_with('['));
        self.time_ns(|stack| is_whole(stack) && is_it(stack)) as f64 / self.elapsed_ns as f64
    }
}

/// Adds a node's stack, and those below.
fn add(node: &Value, path: &mut Vec<String>, stacks: &mut Vec<(Vec<String>, u64)>) {
    stacks.push((path.clone(), number(node, "/elapsed/exclusive_ns")));
    for child in node["children"].as_array().into_iter().flatten() {
        let name = text(child, "/function");
        let plain = match name.rsplit_once("::h") {
            Some((plain, hash)) if hash.len() == 16 => plain,
            _ => name,
        };
        path.push(plain.rsplit("::").next().unwrap_or(plain).to_owned());
        add(child, path, stacks);
        path.pop();
    }
}

/// How often a function is on a stack.
fn times(stack: &[String], function: &str) -> usize {
    stack.iter().filter(|name| *name == function).count()
}

/// Asks until at least 99.9 % of the process's time is in such stacks: those of all of 500 threads.
fn wait_for_stacks(daemon: &Daemon, process: &str, is_it: impl Fn(&[String]) -> bool) -> Stacks {
    let began = Instant::now();
    loop {
        let stacks = Stacks::of(daemon, process);
        let share = stacks.share(&is_it);
        if share >= 0.999 {
            say(&format!(
                "{:.2} % of {process} has its stack {:.1} s after the daemon was ready",
                100.0 * share,
                began.elapsed().as_secs_f64()
            ));
            return stacks;
        }
        assert!(
            began.elapsed() < WITHIN,
            "{share:.4} of {process} has its stack: {:?}\n{}",
            stacks.stacks,
            daemon.try_get("/metrics").text()
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

/// A whole stack of the programs below: asleep, so many calls deep, or the one of `main`.
fn is_asleep(stack: &[String], main: &str) -> bool {
    let depth = times(stack, "go_deeper");
    let rests: usize = RESTS.iter().map(|rest| times(stack, rest)).sum();
    (rests == 1 && (3..=30).contains(&depth)) || (times(stack, main) > 0 && depth == 0)
}

#[test]
fn five_hundred_sleepers_have_their_stacks() {
    // Check that threads which slept before the daemon came, in each kind of wait and 3 to 30
    // functions deep, have their whole stack with the right functions for at least 99 % of their
    // time, each depth as much as it should, and that this costs little.
    if !daemon::privileged() {
        return;
    }
    let workload = Workload::start("asleep --threads 500");
    let facts = workload.ready();
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    let process = workload.selector();
    let stacks = wait_for_stacks(&daemon, &process, |stack| is_asleep(stack, "main"));
    let each_ns = stacks.elapsed_ns / (number(&facts, "/sleepers") + 1);
    for (kind, rest) in RESTS.iter().enumerate() {
        for depth in 0..28 {
            let wanted = (0..500)
                .filter(|number| number % 4 == kind && number / 4 % 28 == depth)
                .count() as u64;
            let found_ns = stacks
                .time_ns(|stack| times(stack, rest) == 1 && times(stack, "go_deeper") == depth + 3);
            reads::assert_near(rest, found_ns, wanted * each_ns, 0.02, 0);
        }
    }
    assert!(
        crate::ledger::check_process(&daemon, &process),
        "it is alive"
    );
    let kept = daemon.metric("profiler_outside_looks_total{what=\"kept\"}");
    let busy_s = daemon.metric("profiler_outside_busy_seconds_total");
    say(&format!("{kept} stacks from outside took {busy_s:.3} s"));
    assert!(kept >= 500.0);
}

/// Threads in waits of the C library, built without frame pointers.
const SLEEPERS: &str = "
#include <pthread.h>
#include <sys/epoll.h>
#include <poll.h>
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int ends[2];
NOINLINE static void rest_in_nanosleep(void) { sleep(3600); sink += 1; }
NOINLINE static void rest_in_futex(void) { pthread_mutex_lock(&mutex); pthread_cond_wait(&never, &mutex); sink += 1; }
NOINLINE static void rest_in_read(void) { char c; sink += read(ends[0], &c, 1); }
NOINLINE static void rest_in_epoll(void) { struct epoll_event e; sink += epoll_wait(epoll_create(1), &e, 1, -1); }
NOINLINE static int go_deeper(int depth, int kind) {
  volatile char local[1] = {0};
  if (depth > 1) sink += go_deeper(depth - 1, kind);
  else switch (kind) { case 0: rest_in_nanosleep(); break; case 1: rest_in_futex(); break; case 2: rest_in_read(); break; default: rest_in_epoll(); }
  return depth + local[0];
}
static void *begin(void *number) { long n = (long)number; sink += go_deeper(3 + n / 4 % 28, n % 4); return 0; }
NOINLINE static void rest_of_main(void) { for (;;) pause(); }
int main(void) {
  if (pipe(ends)) return 1;
  for (long n = 0; n < 112; n++) { pthread_t t; pthread_create(&t, 0, begin, (void *)n); }
  usleep(100000); ready(); rest_of_main();
}
";

#[test]
fn sleepers_of_the_c_library_have_their_stacks() {
    // Check the same of a program built without frame pointers, whose threads wait in functions of
    // the C library.
    if !daemon::privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a temporary directory");
    let Some(exe) = compile(folder.path()) else {
        return;
    };
    let program = Running::run(&exe);
    std::thread::sleep(Duration::from_millis(200));
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    wait_for_stacks(&daemon, &program.pid().to_string(), |stack| {
        is_asleep(stack, "rest_of_main")
    });
}

fn compile(folder: &Path) -> Option<std::path::PathBuf> {
    let (source, exe) = (folder.join("a.c"), folder.join("sleepers"));
    std::fs::write(&source, [PRELUDE, SLEEPERS].concat()).expect("a file can be written");
    let compiled = Command::new("gcc")
        .args(["-O2", "-fomit-frame-pointer", "-pthread", "-o"])
        .args([&exe, &source])
        .stderr(Stdio::null())
        .status();
    if !compiled.is_ok_and(|status| status.success()) {
        say("skipped: sleepers of the C library; gcc cannot build them here");
        return None;
    }
    Some(exe)
}

#[test]
fn a_stack_that_never_comes_holds_nobody_up() {
    // Check that a program whose sleeping thread has its stack on pages that a program of its own
    // is to bring, and does not, costs others nothing: the daemon goes on, that thread's innermost
    // function is known, and other threads have their whole stacks.
    if !daemon::privileged() {
        return;
    }
    let withheld = Workload::start("withheld");
    let facts = withheld.ready();
    if facts["withheld"] == false {
        say("skipped: stacks that never come; there is no userfaultfd here");
        return;
    }
    let others = Workload::start("asleep --threads 40");
    others.ready();
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    wait_for_stacks(&daemon, &others.selector(), |stack| {
        is_asleep(stack, "main")
    });
    let began_ns = unix_now_ns();
    let path = format!("/processes/{}/functions?limit=0", withheld.selector());
    let functions = reads::until(&daemon, &path, began_ns + 2_000_000_000, |list| {
        !reads::function_rows(list, "rest_withheld").is_empty()
    });
    assert!(unix_ns(text(&functions, "/as_of")) - began_ns < 10_000_000_000);
    let rows = reads::rows(&functions);
    assert!(
        rows.iter()
            .any(|row| text(row, "/function").starts_with("[incomplete: read_")),
        "{rows:?}"
    );
}

#[test]
fn who_ran_between_two_looks_is_noticed() {
    // Check that of threads which wake every 20 to 100 us, no look is taken for good while the
    // thread ran: a counter that each increments when it runs is the same right behind the first
    // look and right before the second.
    if !daemon::privileged() {
        return;
    }
    let workload = Workload::start("wakers --threads 8");
    let facts = workload.ready();
    let settings = KernelSettings {
        frequency_hz: 99,
        min_interval_ns: 1_000_000,
        system_calls: TracedSystemCalls::All,
        max_threads: 1024,
        stacks_per_drain: 1024,
        ring_bytes: 1 << 20,
        user_frames: 127,
        mappings: 8192,
        unwind_chunks: 1,
    };
    let mut kernel = Kernel::start(settings).expect("there are the privileges");
    kernel
        .targets
        .name(&NamedTargets {
            pids: vec![workload.pid()],
            ..NamedTargets::default()
        })
        .expect("the process is there");
    let evaluated = kernel.targets.evaluate_anew(&mut kernel.programs);
    evaluated.expect("tasks can be scanned");
    let pass = whole_pass(&mut kernel);
    let slots: Vec<u32> = pass.threads.iter().map(|thread| thread.slot).collect();
    assert!(slots.len() >= 9, "{} threads", slots.len());
    let counters = number(&facts, "/counters");
    let read = || -> Vec<u64> {
        let mut words = vec![0_u64; 8];
        let piece = |base: *mut libc::c_void| libc::iovec {
            iov_base: base,
            iov_len: 64,
        };
        let (local, remote) = (
            piece(words.as_mut_ptr().cast()),
            piece(std::ptr::without_provenance_mut(counters as usize)),
        );
        // SAFETY: room for eight words; the other address is checked by the kernel.
        let bytes = unsafe {
            libc::process_vm_readv(workload.pid().cast_signed(), &local, 1, &remote, 1, 0)
        };
        assert_eq!(bytes, 64);
        words
    };
    let tids: Vec<u64> = facts["tids"]
        .as_array()
        .expect("the workload lists its threads")
        .iter()
        .map(|tid| tid.as_u64().expect("a number"))
        .collect();
    let (looks, programs) = (&mut kernel.looks, &mut kernel.programs);
    let state = |look: &OutsideLook| (look.head.slot, look.head.since_ns, look.head.switches);
    let (mut kept, mut torn, mut ran) = (0, 0, 0);
    let (mut by_process, mut kept_by_process) = (false, 0);
    let began = Instant::now();
    while began.elapsed() < Duration::from_secs(5) {
        // In turn over all tasks, and over those of the process alone.
        by_process = !by_process;
        let asked = Asked {
            slots: &slots,
            pids: &[workload.pid()],
            of_threads: if by_process { usize::MAX } else { 0 },
        };
        let first = looks.look(asked, programs);
        let first = first.expect("tasks can be looked at");
        let before = read();
        std::hint::spin_loop();
        let after = read();
        let second = looks.look_again(asked, programs);
        let second = second.expect("tasks can be looked at");
        for look in &first {
            let Some(index) = tids.iter().position(|tid| *tid == u64::from(look.head.tid)) else {
                continue;
            };
            let same = second.iter().any(|again| state(again) == state(look));
            let did_run = before[index] != after[index];
            ran += u64::from(did_run);
            if same {
                kept += 1;
                kept_by_process += u64::from(by_process);
                assert!(!did_run, "thread {} ran: {look:?}", look.head.tid);
            } else {
                torn += 1;
            }
        }
    }
    say(&format!(
        "{kept} looks kept, {torn} thrown away, {ran} of them seen to be torn"
    ));
    assert!(kept > 0 && torn > 0 && ran > 0, "{kept} {torn} {ran}");
    assert!(
        kept_by_process > 0 && kept > kept_by_process,
        "{kept_by_process} of {kept} kept by process"
    );
}
