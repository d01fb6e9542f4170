//! Stacks of programs built without frame pointers: nearly every walk reaches `main` and beyond,
//! none shows a function that is not there. The programs are compiled here, by the machine's own
//! compiler.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::daemon::{self, Daemon, say};
use crate::reads::{self, is_function, number, text, unix_now_ns};
use crate::workload::Workload;

/// A program: what it is called, how it is compiled, what it does, and functions that call each
/// other, outermost first.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) compiler: &'static str,
    pub(crate) flags: &'static [&'static str],
    pub(crate) source: &'static str,
    pub(crate) chain: &'static [&'static str],
}

/// What every program begins with: work that makes no system call, and a line that says it has
/// begun.
pub(crate) const PRELUDE: &str = "
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
#include <signal.h>
#include <sys/time.h>
#include <sys/wait.h>
#define NOINLINE __attribute__((noinline, noclone))
volatile unsigned long sink;
NOINLINE static void burn(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i * 7; }
static void ready(void) { printf(\"ready\\n\"); fflush(stdout); }
";

const RECURSION: &str = "
NOINLINE static int deep(int n) { if (n == 0) { burn(2000000); return 1; } int r = deep(n - 1); sink += r; return r + 1; }
int main(void) { ready(); for (;;) deep(DEPTH - 1); }
";

const SIGNAL: &str = "
NOINLINE static void in_handler(int n) { if (n) in_handler(n - 1); else burn(300000); sink += n; }
static void on_alarm(int number) { in_handler(3); sink += number; }
NOINLINE static void interrupted(void) { for (;;) burn(1000); }
int main(void) {
  struct sigaction action; memset(&action, 0, sizeof action);
  action.sa_handler = on_alarm; sigaction(SIGALRM, &action, NULL);
  struct itimerval timer = {{0, 3000}, {0, 3000}}; setitimer(ITIMER_REAL, &timer, NULL);
  ready(); interrupted();
}
";

/// Early returns, a table of jumps, a buffer of its own, and calls into the library that sleep,
/// sort and copy.
const BRANCHES: &str = "
static int compare(const void *a, const void *b) { burn(100); return *(const int *)a - *(const int *)b; }
NOINLINE static int inner(int n) {
  char text[200]; int v[300];
  if (n & 1) return n;
  switch (n % 16) {
    case 0: burn(100000); break;
    case 2: for (int i = 0; i < 300; i++) v[i] = (i * 7919) % 997; qsort(v, 300, sizeof *v, compare); sink += v[n & 255]; break;
    case 4: snprintf(text, sizeof text, \"%d %s %f\", n, \"text\", n * 1.5); sink += text[3]; break;
    case 6: usleep(50); break;
    case 8: { char *p = malloc(5000); memset(p, n, 5000); sink += p[n & 1023]; free(p); break; }
    case 10: burn(50000); inner(n + 1); break;
    default: sink += n;
  }
  burn(20000);
  return n + 1;
}
NOINLINE static int outer(int n) { int r = inner(n); sink += r; return r + 1; }
int main(void) { ready(); for (int n = 0;; n = (n + 1) & 0xffff) sink += outer(n); }
";

const PROGRAMS: [Program; 15] = [
    Program {
        name: "split",
        compiler: "gcc",
        flags: &["-O2"],
        source: "
NOINLINE static void split_sixty(void) { burn(600000); sink += 1; }
NOINLINE static void split_forty(void) { burn(400000); sink += 1; }
int main(void) { ready(); for (;;) { split_sixty(); split_forty(); } }
",
        chain: &["main", "split_sixty", "burn"],
    },
    Program {
        name: "recursion-60",
        compiler: "gcc",
        flags: &["-O2", "-fno-optimize-sibling-calls", "-DDEPTH=60"],
        source: RECURSION,
        chain: &["main", "deep", "burn"],
    },
    Program {
        name: "recursion-180",
        compiler: "gcc",
        flags: &["-O2", "-fno-optimize-sibling-calls", "-DDEPTH=180"],
        source: RECURSION,
        chain: &["main", "deep", "burn"],
    },
    Program {
        name: "recursion-400",
        compiler: "gcc",
        flags: &["-O2", "-fno-optimize-sibling-calls", "-DDEPTH=400"],
        source: RECURSION,
        chain: &["main", "deep", "burn"],
    },
    Program {
        name: "signal",
        compiler: "gcc",
        flags: &["-O2"],
        source: SIGNAL,
        chain: &["main", "on_alarm", "in_handler"],
    },
    Program {
        name: "vfork",
        compiler: "gcc",
        flags: &["-O2"],
        source: "
NOINLINE static void spawn(void) { pid_t child = vfork(); if (child == 0) _exit(0); waitpid(child, NULL, 0); burn(1000000); }
int main(void) { ready(); for (;;) spawn(); }
",
        chain: &["main", "spawn", "burn"],
    },
    Program {
        name: "alloca",
        compiler: "gcc",
        flags: &["-O2"],
        source: "
#include <alloca.h>
NOINLINE static int stretchy(int n) { char *p = (char *)alloca(64 + n * 16); memset(p, n, 64); if (n) stretchy(n - 1); else burn(300000); sink += p[3]; return n; }
int main(void) { ready(); for (;;) stretchy(20); }
",
        chain: &["main", "stretchy", "burn"],
    },
    Program {
        name: "realigned",
        compiler: "gcc",
        flags: &["-O2", "-mavx"],
        source: "
NOINLINE static double aligned(double x, int n) { double v[16] __attribute__((aligned(64))); volatile double *w = v; for (int i = 0; i < 16; i++) w[i] = x + i; if (n) aligned(x, n - 1); else burn(300000); double s = 0; for (int i = 0; i < 16; i++) s += w[i]; sink += (unsigned long)s; return s; }
int main(void) { ready(); for (;;) aligned(1.5, 8); }
",
        chain: &["main", "aligned", "burn"],
    },
    Program {
        name: "exceptions",
        compiler: "g++",
        flags: &["-O2"],
        source: "
#include <stdexcept>
struct Guard { ~Guard() { burn(2000); } };
NOINLINE static int thrower(int n) { Guard guard; if (n == 0) throw std::runtime_error(\"x\"); int r = thrower(n - 1); sink += r; return r; }
int main() { ready(); for (;;) { try { thrower(30); } catch (const std::exception &) { sink += 1; } } }
",
        chain: &["main", "thrower"],
    },
    Program {
        name: "callback",
        compiler: "gcc",
        flags: &["-O2"],
        source: "
static int compare(const void *a, const void *b) { burn(100); return *(const int *)a - *(const int *)b; }
NOINLINE static void sorter(void) { static int v[400]; for (int i = 0; i < 400; i++) v[i] = (i * 7919) % 997; qsort(v, 400, sizeof *v, compare); sink += v[3]; }
int main(void) { ready(); for (;;) sorter(); }
",
        chain: &["main", "sorter", "compare", "burn"],
    },
    Program {
        name: "static",
        compiler: "gcc",
        flags: &["-O2", "-static"],
        source: "
NOINLINE static void work(void) { burn(500000); sink += 1; }
int main(void) { ready(); for (;;) { work(); usleep(100); } }
",
        chain: &["main", "work", "burn"],
    },
    Program {
        name: "threads",
        compiler: "gcc",
        flags: &["-O2", "-pthread"],
        source: "
#include <pthread.h>
NOINLINE static void in_thread(void) { burn(500000); usleep(200); }
static void *begin(void *unused) { for (;;) in_thread(); return unused; }
int main(void) { pthread_t thread; pthread_create(&thread, NULL, begin, NULL); ready(); for (;;) in_thread(); }
",
        chain: &["begin", "in_thread", "burn"],
    },
    Program {
        name: "without-tables",
        compiler: "gcc",
        flags: &["-O2", "-fno-asynchronous-unwind-tables"],
        source: BRANCHES,
        chain: &["main", "outer", "inner", "burn"],
    },
    Program {
        name: "musl",
        compiler: "musl-gcc",
        flags: &["-O2", "-static"],
        source: BRANCHES,
        chain: &["main", "outer", "inner", "burn"],
    },
    Program {
        name: "musl-signal",
        compiler: "musl-gcc",
        flags: &["-O2"],
        source: SIGNAL,
        chain: &["main", "on_alarm", "in_handler"],
    },
];

/// A compiled program that runs until it is dropped.
pub(crate) struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

impl Running {
    pub(crate) fn id(&self) -> u32 {
        self.0.id()
    }

    /// Compiles and starts a program; `None`, said once, if there is no such compiler or library.
    pub(crate) fn start(program: &Program, folder: &Path) -> Option<Self> {
        let source = folder.join(if program.compiler == "g++" {
            "a.cc"
        } else {
            "a.c"
        });
        std::fs::write(&source, [PRELUDE, program.source].concat()).expect("a file can be written");
        let exe = folder.join(program.name);
        let compiled = Command::new(program.compiler)
            .args(program.flags)
            .arg("-fomit-frame-pointer")
            .arg(&source)
            .arg("-o")
            .arg(&exe)
            .stderr(Stdio::null())
            .status();
        if !compiled.is_ok_and(|status| status.success()) {
            let (name, compiler) = (program.name, program.compiler);
            say(&format!(
                "skipped: the program {name}, which {compiler} cannot build here"
            ));
            return None;
        }
        Some(Self::run(&exe))
    }

    /// Starts a program that says when it has begun.
    pub(crate) fn run(exe: &Path) -> Self {
        let mut child = Command::new(exe)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()
            .expect("what was compiled can be started");
        let output = child.stdout.take().expect("it is piped");
        let mut line = String::new();
        BufReader::new(output)
            .read_line(&mut line)
            .expect("it says that it has begun");
        assert_eq!(line.trim(), "ready");
        Self(child)
    }

    /// The process.
    pub(crate) fn pid(&self) -> u32 {
        self.0.id()
    }

    /// Its walks so far.
    pub(crate) fn stacks(&self, daemon: &Daemon) -> Walks {
        self.stacks_when(daemon, |_| true)
    }

    /// Its walks once some are complete: once the daemon knows what it has mapped, and has tables
    /// of that.
    pub(crate) fn first_whole_stacks(&self, daemon: &Daemon) -> Walks {
        self.stacks_when(daemon, |walks| walks.complete >= 20)
    }

    fn stacks_when(&self, daemon: &Daemon, enough: impl Fn(Walks) -> bool) -> Walks {
        let path = format!("/processes/{}", self.0.id());
        let process = reads::until(daemon, &path, unix_now_ns(), |process| {
            enough(Walks::of(process))
        });
        Walks::of(&process)
    }
}

#[derive(Clone, Copy)]
pub(crate) struct Walks {
    pub(crate) walked: u64,
    pub(crate) complete: u64,
}

impl Walks {
    fn of(process: &Value) -> Self {
        Self {
            walked: number(process, "/stacks/walked"),
            complete: number(process, "/stacks/complete"),
        }
    }
}

/// Whether the functions call each other somewhere below `node`, others in between.
pub(crate) fn has_chain(node: &Value, chain: &[&str]) -> bool {
    let Some(next) = chain.first() else {
        return true;
    };
    let rest = if is_of(node, next) {
        &chain[1..]
    } else {
        chain
    };
    let children = node["children"].as_array().into_iter().flatten();
    rest.is_empty() || children.into_iter().any(|child| has_chain(child, rest))
}

/// Whether a node is of a function, of C++ or Rust too.
fn is_of(node: &Value, function: &str) -> bool {
    let name = node["function"].as_str().unwrap_or_default();
    is_function(name, function) || name.starts_with(&format!("{function}("))
}

/// The longest run of nodes of one function, each the caller of the next.
pub(crate) fn longest_run(node: &Value, function: &str, run: usize) -> usize {
    let here = if is_of(node, function) { run + 1 } else { 0 };
    let children = node["children"].as_array().into_iter().flatten();
    children
        .map(|child| longest_run(child, function, here))
        .fold(here, usize::max)
}

#[test]
fn programs_without_frame_pointers_have_whole_stacks() {
    // Check that at least 99.5 % of the walks of each program are complete, that its functions call
    // each other as in its source, that recursion is as deep as it is, and that nothing else hangs
    // from the root.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    for program in &PROGRAMS {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let Some(running) = Running::start(program, folder.path()) else {
            continue;
        };
        let before = running.first_whole_stacks(daemon);
        std::thread::sleep(Duration::from_millis(1500));
        let after = running.stacks(daemon);
        let walked = after.walked - before.walked;
        let complete = after.complete - before.complete;
        assert!(walked >= 100, "{}: only {walked} walks", program.name);
        assert!(
            complete * 1000 >= walked * 995,
            "{}: {complete} of {walked} walks are complete: {}",
            program.name,
            daemon.get("/status")["unwinding"]["failures"]
        );
        let tree = daemon.get(&format!("/processes/{}/calltree", running.id()));
        assert!(
            has_chain(&tree["root"], program.chain),
            "{}: no chain {:?} in {tree}",
            program.name,
            program.chain
        );
        if let Some(depth) = program.name.strip_prefix("recursion-") {
            let run = longest_run(&tree["root"], "deep", 0);
            assert_eq!(run.to_string(), depth, "{}", program.name);
        }
    }
}

/// What the daemon counted about tables, without zeros.
pub(crate) fn counts(daemon: &Daemon) -> Vec<String> {
    let metrics = daemon.try_get("/metrics").text().to_string();
    let begins = ["profiler_unwind_", "profiler_stack_walk_failures_total"];
    let lines = metrics
        .lines()
        .filter(|line| begins.iter().any(|begin| line.starts_with(begin)));
    lines
        .filter(|line| !line.ends_with(" 0"))
        .map(str::to_owned)
        .collect()
}

#[test]
fn stacks_of_a_workload_are_whole() {
    // Check that walks of an ordinary program, whose C library keeps no frame pointers, are
    // complete once it has begun. Needs no compiler, so that it runs on other kernels too.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let workload = Workload::start("split --seconds 6");
    let stacks = || {
        let path = format!("/processes/{}", workload.pid());
        let process = reads::until(daemon, &path, unix_now_ns(), |_| true);
        (
            number(&process, "/stacks/walked"),
            number(&process, "/stacks/complete"),
        )
    };
    std::thread::sleep(Duration::from_millis(2500));
    let before = stacks();
    std::thread::sleep(Duration::from_millis(2000));
    let after = stacks();
    let (walked, complete) = (after.0 - before.0, after.1 - before.1);
    let unwinding = &daemon.get("/status")["unwinding"];
    assert!(
        walked >= 100 && complete * 1000 >= walked * 995,
        "{complete} of {walked} walks are complete: {unwinding}, {:?}, {:?}",
        counts(daemon),
        daemon
            .log()
            .lines()
            .find(|line| line.contains("for the walker"))
    );
    assert!(number(unwinding, "/tables") > 0, "{unwinding}");
}

#[test]
fn code_loaded_later_is_followed() {
    // Check that a library that a running program loads is followed, and that a child without an
    // exec is like its parent.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let library = folder.path().join("late.so");
    let source = folder.path().join("late.c");
    std::fs::write(
        &source,
        "volatile unsigned long late_sink; __attribute__((noinline)) void late_burn(unsigned long n) { for (unsigned long i = 0; i < n; i++) late_sink += i; }
void late(void (*back)(void)) { late_burn(300000); back(); late_sink++; }",
    )
    .expect("a file can be written");
    let built = Command::new("gcc")
        .args(["-O2", "-fomit-frame-pointer", "-shared", "-fPIC", "-o"])
        .args([&library, &source])
        .status();
    if !built.is_ok_and(|status| status.success()) {
        say("skipped: a library loaded late, which gcc cannot build here");
        return;
    }
    let text_of_path = format!("-DLIBRARY=\"{}\"", library.display());
    let flags: [&str; 3] = ["-O2", "-ldl", Box::leak(text_of_path.into_boxed_str())];
    let program = Program {
        name: "loader",
        compiler: "gcc",
        flags: Box::leak(Box::new(flags)),
        source: "
#include <dlfcn.h>
NOINLINE static void back(void) { burn(300000); sink += 1; }
NOINLINE static void run(void (*late)(void (*)(void))) { for (;;) { late(back); sink += 1; } }
int main(void) {
  ready(); usleep(300000);
  void *library = dlopen(LIBRARY, RTLD_NOW);
  void (*late)(void (*)(void)) = (void (*)(void (*)(void)))dlsym(library, \"late\");
  if (fork() == 0) { alarm(20); run(late); }
  run(late);
}
",
        chain: &["main", "run", "late", "back", "burn"],
    };
    let Some(running) = Running::start(&program, folder.path()) else {
        return;
    };
    std::thread::sleep(Duration::from_millis(800));
    let list = reads::until(daemon, "/processes?limit=0", unix_now_ns(), |_| true);
    let of_parent = |row: &&Value| row["ppid"] == running.id() && row["state"] == "running";
    let child = reads::rows(&list)
        .iter()
        .find(of_parent)
        .expect("the child is listed");
    let child = number(child, "/pid");
    for pid in [u64::from(running.id()), child] {
        let read = || {
            let process = reads::until(daemon, &format!("/processes/{pid}"), unix_now_ns(), |_| {
                true
            });
            (
                number(&process, "/stacks/walked"),
                number(&process, "/stacks/complete"),
            )
        };
        let before = read();
        std::thread::sleep(Duration::from_millis(1200));
        let after = read();
        let (walked, complete) = (after.0 - before.0, after.1 - before.1);
        assert!(
            walked >= 50 && complete * 1000 >= walked * 995,
            "{pid}: {complete} of {walked}"
        );
        let tree = daemon.get(&format!("/processes/{pid}/calltree"));
        assert!(has_chain(&tree["root"], program.chain), "{pid}: {tree}");
    }
    // SAFETY: a signal to the child of the program above, which may be gone already.
    unsafe { libc::kill(i32::try_from(child).expect("a pid"), libc::SIGKILL) };
}

#[test]
fn code_made_at_run_time_has_the_names_it_was_given() {
    // Check that a perf map names a function that is made at run time, and that one by somebody
    // else does not.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let program = Program {
        name: "maker",
        compiler: "gcc",
        flags: &["-O2"],
        source: "
#include <sys/mman.h>
int main(void) {
  /* push rbp; mov rbp, rsp; mov rcx, rdi; dec rcx; jnz -3; pop rbp; ret */
  static const unsigned char code[] = {0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf9, 0x48, 0xff, 0xc9, 0x75, 0xfb, 0x5d, 0xc3};
  void *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE | PROT_EXEC, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  memcpy(page, code, sizeof code);
  char path[64]; sprintf(path, \"/tmp/perf-%d.map\", getpid());
  FILE *map = fopen(path, \"w\"); fprintf(map, \"garbage\\n%lx %x made_function with spaces\\n\", (unsigned long)page, (unsigned)sizeof code); fclose(map);
  ready();
  for (;;) ((void (*)(unsigned long))page)(1000000);
}
",
        chain: &["main", "made_function with spaces"],
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let Some(running) = Running::start(&program, folder.path()) else {
        return;
    };
    std::thread::sleep(Duration::from_millis(1500));
    let path = format!("/processes/{}/calltree", running.id());
    let tree = reads::until(daemon, &path, unix_now_ns(), |_| true);
    std::fs::remove_file(format!("/tmp/perf-{}.map", running.id())).expect("the map was written");
    assert!(has_chain(&tree["root"], program.chain), "{tree}");
    let table = daemon.get(&format!("/processes/{}/functions?limit=0", running.id()));
    let row = reads::function(&table, "made_function with spaces");
    assert_eq!(text(row, "/kind"), "jit");
}
