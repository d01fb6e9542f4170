//! The programs whose stacks are walked: interpreters, a compiler, and two made for it, without
//! frame pointers.

use std::{
    path::Path,
    process::{Child, Command, Stdio},
};

/// Recursion of three depths, a timer's signal handler that itself calls, alloca, exceptions on
/// their way, a realigned stack, a callback from libc.
const CPP: &str = r#"
#include <alloca.h>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <stdexcept>
#include <sys/time.h>
volatile uint64_t sink;
__attribute__((noinline)) void burn(int n) { for (int i = 0; i < n; i++) sink += i * 7; }
__attribute__((noinline)) int deep(int n) { if (n == 0) { burn(20000); return 1; } int r = deep(n - 1); sink += r; return r + 1; }
__attribute__((noinline)) int stretchy(int n) { char *p = (char *)alloca(64 + n * 16); memset(p, n, 64); burn(300); int r = n ? stretchy(n - 1) : 0; sink += p[3]; return r + 1; }
struct Guard { ~Guard() { burn(100); } };
__attribute__((noinline)) int thrower(int n) { Guard g; if (n == 0) throw std::runtime_error("x"); int r = thrower(n - 1); sink += r; return r; }
__attribute__((noinline)) double aligned(double x) { alignas(64) double v[16]; for (int i = 0; i < 16; i++) v[i] = x + i; burn(50); double s = 0; for (int i = 0; i < 16; i++) s += v[i]; sink += (uint64_t)s; return s; }
int compare(const void *a, const void *b) { sink += 1; return *(const int *)a - *(const int *)b; }
__attribute__((noinline)) void sorter() { static int v[400]; for (int i = 0; i < 400; i++) v[i] = rand(); qsort(v, 400, sizeof *v, compare); }
__attribute__((noinline)) void in_handler(int n) { if (n) in_handler(n - 1); burn(3000); }
void handler(int) { in_handler(3); }
int main() {
  signal(SIGPROF, handler);
  // Of processor time, so that the rest goes on however often the program is stopped.
  struct itimerval t = {{0, 2000}, {0, 2000}};
  setitimer(ITIMER_PROF, &t, nullptr);
  for (;;) {
    deep(60); deep(180); deep(400); stretchy(20);
    try { thrower(12); } catch (const std::exception &) { sink += 1; }
    aligned(1.5); sorter();
  }
}
"#;

/// A running program. Killed when dropped.
pub(crate) struct Program {
    pub(crate) name: &'static str,
    pub(crate) child: Child,
    /// Whether it must be unwindable to the end (made for this), rather than being whatever is
    /// installed.
    pub(crate) own: bool,
}

impl Drop for Program {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// All programs that this machine has, running. Sources and input lie in `folder`.
pub(crate) fn start_all(folder: &Path) -> Vec<Program> {
    let mut programs = Vec::new();
    let mut start = |name, own, command: &mut Command| {
        let child = command
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn();
        if let Ok(child) = child {
            programs.push(Program { name, child, own });
        }
    };
    start(
        "rust",
        true,
        Command::new(std::env::current_exe().unwrap())
            .args([
                "--exact",
                "programs::endless",
                "--ignored",
                "--test-threads=1",
            ])
            .env("UNWIND_ENDLESS", "1"),
    );
    let source = folder.join("workload.cc");
    std::fs::write(&source, CPP).unwrap();
    for (name, flags) in [("c++", "-O2"), ("c++ -O0", "-O0")] {
        let program = folder.join(name.replace(' ', ""));
        let compiled = Command::new("g++")
            .args([flags, "-fomit-frame-pointer", "-o"])
            .arg(&program)
            .arg(&source)
            .status();
        if compiled.is_ok_and(|status| status.success()) {
            start(name, true, &mut Command::new(program));
        }
    }
    start(
        "python3",
        false,
        Command::new("python3").args([
            "-c",
            "import re,json
def f(n): return 1 if n<2 else f(n-1)+f(n-2)
while True: f(18); json.dumps(list(range(999))); re.sub('a+b', '', 'aab'*999); sorted(map(str, range(999)))",
        ]),
    );
    start(
        "perl",
        false,
        Command::new("perl").args([
            "-e",
            "sub f { my $n = shift; $n < 2 ? 1 : f($n-1) + f($n-2) } while (1) { f(15); my @a = sort { $a <=> $b } map { rand } 1..999; my $all = join(',', @a); $all =~ s/1+/x/g }",
        ]),
    );
    start(
        "bash",
        false,
        Command::new("bash").args([
            "-c",
            "f() { local n=$1; if ((n > 0)); then f $((n-1)); fi; }; while :; do f 40; x=${x:0:100}abc; [[ $x =~ a+b ]]; done",
        ]),
    );
    let big: String = (0..4000)
        .map(|n| format!("int f{n}(int a, int *b) {{ int s = a; for (int i = 0; i < a; i++) {{ s += b[i] * {n}; if (s % 7 == i) s ^= b[s & 3]; }} return s; }}\n"))
        .collect();
    let source = folder.join("big.c");
    std::fs::write(&source, big).unwrap();
    // The compiler proper: the driver only waits for it.
    let compiler = Command::new("gcc").arg("-print-prog-name=cc1").output();
    if let Ok(output) = compiler
        && output.status.success()
    {
        let path = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        start(
            "cc1",
            false,
            Command::new(path)
                .args(["-quiet", "-O2", "-o", "/dev/null"])
                .arg(&source),
        );
    }
    programs
}

/// Not a test: the Rust program that is walked, when asked to be one.
#[test]
#[ignore = "runs until it is killed"]
fn endless() {
    if std::env::var_os("UNWIND_ENDLESS").is_none() {
        return;
    }
    let mut total = 0_u64;
    loop {
        for depth in [60, 180, 400] {
            total = total.wrapping_add(recurse(depth, total));
        }
        let mut words: Vec<String> = (0..200).map(|n| format!("{}", n * 7919 % 997)).collect();
        words.sort_by(|a, b| b.len().cmp(&a.len()).then_with(|| a.cmp(b)));
        total = total.wrapping_add(words.concat().len() as u64);
        if std::panic::catch_unwind(|| std::panic::resume_unwind(Box::new(1))).is_err() {
            total += 1;
        }
        std::hint::black_box(total);
    }
}

#[inline(never)]
fn recurse(depth: u32, seed: u64) -> u64 {
    if depth == 0 {
        return (0..5000).fold(seed, |sum, n| {
            std::hint::black_box(sum.wrapping_mul(31) ^ n)
        });
    }
    // By a pointer that the compiler knows nothing of: it would make a loop of it.
    let inner = std::hint::black_box(recurse as fn(u32, u64) -> u64)(depth - 1, seed);
    std::hint::black_box(inner.wrapping_add(1))
}
