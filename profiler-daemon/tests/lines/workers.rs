//! Workers that take too much, die, or take their time.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use profiler_daemon::symbols::lines::NoLine;
use profiler_daemon::symbols::lines::finder::LineFinder;
use profiler_daemon::sys::limited_child::ChildLimits;

use crate::programs::{self, LIMITS, PATIENCE, ask, finder, finder_with, shown};

/// A program with debug information that takes tens of megabytes to read: the daemon itself.
fn large() -> &'static Path {
    Path::new(env!("CARGO_BIN_EXE_profiler-daemon"))
}

fn outer() -> Option<(
    tempfile::TempDir,
    Vec<profiler_daemon::symbols::request::Request>,
)> {
    let folder = tempfile::tempdir().unwrap();
    let program = programs::c_program(folder.path(), &[])?;
    let requests = programs::requests(&program, "outer");
    Some((folder, requests))
}

/// A worker that is a shell script.
fn script(folder: &Path, text: &str) -> PathBuf {
    let path = folder.join("worker");
    fs::write(&path, format!("#!/bin/sh\n{text}\n")).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path
}

// Check that a worker that needs more memory than it may have is told as such and counted, and that
// the same file with enough memory has lines.
#[test]
fn too_much_memory() {
    let (address, _) = programs::function(large(), "profiler_daemon::main");
    let request = programs::request(large(), programs::offset(large(), address));
    let small = finder(ChildLimits {
        memory_bytes: 2 << 20,
        ..LIMITS
    });
    let code = programs::ask_one(&small, &request);
    assert_eq!(shown(&code), Err(NoLine::WorkerMemory));
    let counts = small.counts();
    let memory = NoLine::WorkerMemory as usize;
    assert_eq!((counts.failures[memory], counts.unknown[memory]), (1, 1));
    programs::ask_one(&small, &request);
    assert_eq!(small.counts().workers, 1, "it is not tried again at once");
    let enough = finder(LIMITS);
    assert!(programs::ask_one(&enough, &request).source().is_ok());
}

// Check that a worker that takes too long is ended and told as such, and that asking does not take
// much longer.
#[test]
fn too_much_time() {
    let Some((folder, requests)) = outer() else {
        return;
    };
    let slow = script(folder.path(), "exec /bin/sleep 600");
    let limits = ChildLimits {
        time: Duration::from_millis(300),
        ..LIMITS
    };
    let start = Instant::now();
    let finder = finder_with(slow, limits);
    for code in ask(&finder, &requests) {
        assert_eq!(shown(&code), Err(NoLine::WorkerTime));
    }
    assert!(start.elapsed() < Duration::from_secs(100));
    let busy = script(folder.path(), "while :; do :; done");
    let limits = ChildLimits {
        processor_s: 1,
        ..LIMITS
    };
    for code in ask(&finder_with(busy, limits), &requests) {
        assert_eq!(shown(&code), Err(NoLine::WorkerTime));
    }
}

// Check that a worker that cannot be started, that dies, and that talks nonsense are told as dead.
#[test]
fn dead() {
    let Some((folder, requests)) = outer() else {
        return;
    };
    for worker in [
        "/nonexistent/worker".into(),
        script(folder.path(), "kill -SEGV $$"),
    ] {
        let finder = finder_with(worker, LIMITS);
        for code in ask(&finder, &requests) {
            assert_eq!(shown(&code), Err(NoLine::WorkerDied));
            assert!(code.address.is_some());
        }
        assert_eq!(finder.counts().failures[NoLine::WorkerDied as usize], 1);
    }
    let nonsense = script(folder.path(), "echo nonsense");
    let code = programs::ask_one(&finder_with(nonsense, LIMITS), &requests[0]);
    assert_eq!(shown(&code), Err(NoLine::WorkerDied));
}

// Check that what a worker found before it died is kept, that the place it died over is blamed, and
// that another worker goes on behind it.
#[test]
fn found_until_then() {
    let Some((folder, requests)) = outer() else {
        return;
    };
    let step = r#"{"s":[{"n":"f","f":"a.c","l":3}]}"#;
    let dying = script(folder.path(), &format!("echo '{step}'; kill -SEGV $$"));
    let finder = finder_with(dying, LIMITS);
    let requests = &requests[..5];
    let found: Vec<_> = ask(&finder, requests).iter().map(shown).collect();
    let (known, dead) = (Ok("f:3".to_owned()), Err(NoLine::WorkerDied));
    assert_eq!(
        found,
        [known.clone(), dead.clone(), known.clone(), dead, known]
    );
    let counts = finder.counts();
    assert_eq!(
        (counts.workers, counts.failures[NoLine::WorkerDied as usize]),
        (3, 2)
    );
}

// Check that whoever does not wait gets an answer that says so at once, and the lines once they are
// there.
#[test]
fn later() {
    let Some((folder, requests)) = outer() else {
        return;
    };
    let gate = folder.path().join("gate");
    let step = r#"{"s":[{"n":"f","f":"a.c","l":3}]}"#;
    let waiting = format!(
        "while ! [ -e {} ]; do /bin/sleep 0.05; done; echo '{step}'",
        gate.display()
    );
    let finder = finder_with(script(folder.path(), &waiting), LIMITS);
    let one = vec![requests[0].clone()];
    let patience = Duration::from_millis(10);
    let shown_now = |finder: &LineFinder| {
        let table = finder.table(one.clone(), patience);
        shown(table.code(one[0].place).unwrap())
    };
    assert_eq!(shown_now(&finder), Err(NoLine::Pending));
    fs::write(&gate, "").unwrap();
    let deadline = Instant::now() + PATIENCE;
    while shown_now(&finder) != Ok("f:3".to_owned()) {
        assert!(Instant::now() < deadline, "the lines never come");
    }
}
