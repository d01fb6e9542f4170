//! Stacks of Go programs: goroutines that call, wait for channels, allocate and are preempted, in
//! programs as they are built by default and stripped of all that can be stripped. Built here, by
//! the machine's own Go.

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Duration;

use crate::daemon::{self, Daemon, say};
use crate::unwinding::{Running, counts, has_chain};

/// How a program is built.
struct Build {
    flags: &'static [&'static str],
    /// Its functions have names afterwards.
    has_names: bool,
    /// It calls C, and so is linked by C's linker.
    calls_c: bool,
}

const fn build_with(flags: &'static [&'static str], has_names: bool, calls_c: bool) -> Build {
    Build {
        flags,
        has_names,
        calls_c,
    }
}

const BUILDS: [Build; 6] = [
    build_with(&[], true, false),
    build_with(&["-ldflags=-w"], true, false),
    build_with(&["-ldflags=-s -w"], false, false),
    build_with(&["-buildmode=pie"], true, false),
    build_with(&[], true, true),
    build_with(&["-buildmode=pie", "-ldflags=-s -w"], false, true),
];

/// What comes before `import "fmt"` in a program that calls C.
const IN_C: &str = r#"
/*
static volatile unsigned long sink;
__attribute__((noinline, noclone)) static void spin_in_c(int n) { for (int i = 0; i < n; i++) sink += i; }
*/
import "C"
"#;

/// Workers on all processors: a chain of calls that ends in a loop, and a tree that leaves garbage
/// behind.
const SOURCE: &str = r#"
package main

import "fmt"

type node struct{ left, right *node }

//go:noinline
func spin(n int) uint64 { s := uint64(n); for i := uint64(0); i < 20000; i++ { s += i * 7 }; return s }

//go:noinline
func inner(n int) uint64 { return spin(n) + 1 }

//go:noinline
func middle(n int) uint64 { return inner(n) + inner(n + 1) }

//go:noinline
func outer(n int) uint64 { return middle(n) + 1 }

//go:noinline
func tree(depth int) *node {
	if depth == 0 { return &node{} }
	return &node{tree(depth - 1), tree(depth - 1)}
}

func worker(in <-chan int, out chan<- uint64) {
	for n := range in {
		if n % 16 == 0 && tree(12) == nil { return }
		out <- outer(n)
	}
}

func main() {
	in, out := make(chan int), make(chan uint64)
	for i := 0; i < 4; i++ { go worker(in, out) }
	go func() { for n := 0; ; n++ { in <- n } }()
	fmt.Println("ready")
	for { <-out }
}
"#;

/// Builds the program; false, said once, if there is no Go.
fn built(folder: &Path, build: &Build, exe: &Path) -> bool {
    let source = folder.join("chain.go");
    let mut text = SOURCE.to_owned();
    if build.calls_c {
        text = text
            .replace("import \"fmt\"", &format!("{IN_C}import \"fmt\""))
            .replace("s := uint64(n);", "s := uint64(n); C.spin_in_c(20000);");
    }
    std::fs::write(&source, text).expect("a file can be written");
    let mut go = Command::new("go");
    if std::env::var_os("HOME").is_none() && std::env::var_os("GOCACHE").is_none() {
        go.env("GOCACHE", folder.join("cache"));
    }
    let done = go
        .arg("build")
        .args(build.flags)
        .arg("-o")
        .args([exe, &source])
        .env("GOFLAGS", "")
        .env("GOTOOLCHAIN", "local")
        .current_dir(folder)
        .stderr(Stdio::null())
        .status();
    let is_built = done.is_ok_and(|status| status.success());
    if !is_built {
        say(&format!(
            "skipped: stacks of a Go program, which go {:?} cannot build here, C called: {}",
            build.flags, build.calls_c
        ));
    }
    is_built
}

/// How many walks there were in a second and a half, and how many of them are complete.
fn walks_from_now(daemon: &Daemon, program: &Running) -> (u64, u64) {
    let before = program.stacks(daemon);
    std::thread::sleep(Duration::from_millis(1500));
    let after = program.stacks(daemon);
    (
        after.walked - before.walked,
        after.complete - before.complete,
    )
}

#[test]
fn go_programs_have_whole_stacks() {
    // Check that at least 99 % of the walks of a Go program are complete however it was built, that
    // its functions call each other as in its source, that goroutines begin where they begin, and
    // that nothing was missing for it.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    for (number, build) in BUILDS.iter().enumerate() {
        let exe = folder.path().join(format!("chain-{number}"));
        if !built(folder.path(), build, &exe) {
            continue;
        }
        let what = format!("{:?}, calls C: {}", build.flags, build.calls_c);
        let running = Running::run(&exe);
        running.first_whole_stacks(daemon);
        let (walked, complete) = walks_from_now(daemon, &running);
        let unwinding = &daemon.get("/status")["unwinding"];
        assert!(
            walked >= 100 && complete * 100 >= walked * 99,
            "{what}: {complete} of {walked} walks are complete: {}, {:?}",
            unwinding["failures"],
            counts(daemon)
        );
        let without = unwinding["files_without_information"].as_array();
        let path = exe.to_str().expect("a path of letters");
        assert!(
            without.is_some_and(|files| files.iter().all(|file| file["path"] != path)),
            "{what}: {unwinding}"
        );
        if build.has_names {
            let tree = daemon.get(&format!("/processes/{}/calltree", running.pid()));
            for chain in [
                &[
                    "main.worker",
                    "main.outer",
                    "main.middle",
                    "main.inner",
                    "main.spin",
                ][..],
                // The scheduler, on a stack of its own, begins anew.
                &["runtime.mcall", "runtime.park_m", "runtime.schedule"],
                // C, and what the runtime does for itself, run on another stack than the
                // goroutine's.
                if build.calls_c {
                    &[
                        "main.inner",
                        "main.spin",
                        "runtime.cgocall",
                        "runtime.asmcgocall.abi0",
                        "spin_in_c",
                    ]
                } else {
                    &[
                        "runtime.goexit.abi0",
                        "runtime.gcBgMarkWorker",
                        "runtime.systemstack.abi0",
                        "runtime.gcDrain",
                    ]
                },
            ] {
                assert!(
                    has_chain(&tree["root"], chain),
                    "{what}: {chain:?} in {tree}"
                );
            }
            let top: Vec<&str> = tree["root"]["children"]
                .as_array()
                .into_iter()
                .flatten()
                .filter_map(|child| child["function"].as_str())
                .collect();
            assert!(top.contains(&"runtime.goexit.abi0"), "{what}: {top:?}");
            assert!(!top.contains(&"main.worker"), "{what}: {top:?}");
        }
    }
}
