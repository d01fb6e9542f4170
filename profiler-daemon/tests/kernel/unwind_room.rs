//! Unwind tables that have to share little room: what finds none is counted and costs no other
//! program its stacks, and what was not used for longest gives way. The programs are made here, by
//! the machine's own compiler.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::{self, Daemon, Settings, say};
use crate::reads::number;
use crate::unwinding::{PRELUDE, Running, counts};

/// The room, the least that can be set; rows of 8 bytes.
const ROOM: &str = "unwind_table_bytes = \"4MiB\"";
const ROOM_BYTES: u64 = 4 << 20;
/// Functions, of which each has from 4 to 6 rows, that take more than half of the room and less
/// than all of it.
const MORE_THAN_HALF: usize = 72_000;
/// Functions that take more than all of it.
const MORE_THAN_ALL: usize = 140_000;
/// In which a table must have found its room: it takes two times the ten seconds for which those
/// that were used stay.
const WITHIN: Duration = Duration::from_secs(90);

/// A program that works three calls deep, among many functions that are never called.
const SOURCE: &str = "
NOINLINE static void inner(void) { burn(300000); sink += 1; }
NOINLINE static void outer(void) { inner(); sink += 1; }
int main(void) { ready(); for (;;) { outer(); usleep(100); } }
";

/// Functions with unwind information, without names: about a thousand in 64 KiB, with as many rows
/// as dense code has.
fn fillers(functions: usize) -> String {
    let mut text = String::from(".text\n");
    for _ in 0..functions {
        text.push_str(
            ".p2align 6\n.cfi_startproc\npush %rax\n.cfi_adjust_cfa_offset 8\npush %rax\n.cfi_adjust_cfa_offset 8\n\
             pop %rax\n.cfi_adjust_cfa_offset -8\npop %rax\n.cfi_adjust_cfa_offset -8\nret\n.cfi_endproc\n",
        );
    }
    text.push_str(".section .note.GNU-stack,\"\",@progbits\n");
    text
}

/// Makes a program with that name and so many functions; `None`, said once, if there is no
/// compiler.
fn build(folder: &Path, name: &str, functions: usize) -> Option<PathBuf> {
    let file = |ending: &str| folder.join(format!("{name}{ending}"));
    // The name makes each a file of its own, with a build ID and a table of its own.
    let mut source = [PRELUDE, SOURCE].concat();
    writeln!(source, "const char *name = \"{name}\";").expect("a string takes all text");
    std::fs::write(file(".c"), source).expect("a file can be written");
    std::fs::write(file(".s"), fillers(functions)).expect("a file can be written");
    let built = Command::new("gcc")
        .args(["-O2", "-fomit-frame-pointer", "-o"])
        .args([file(""), file(".c"), file(".s")])
        .stderr(Stdio::null())
        .status();
    if !built.is_ok_and(|status| status.success()) {
        say("skipped: tables that share little room; gcc cannot build their programs here");
        return None;
    }
    Some(file(""))
}

/// How often that happened, as the metrics say.
fn troubles(daemon: &Daemon, what: &str) -> u64 {
    let name = format!("profiler_unwind_troubles_total{{what=\"{what}\"}} ");
    counts(daemon)
        .iter()
        .find_map(|line| line.strip_prefix(&name))
        .map_or(0, |count| count.parse().expect("a count"))
}

/// Whether the walks of the next second are complete, but for one in a hundred.
fn is_followed(daemon: &Daemon, program: &Running) -> bool {
    let before = program.stacks(daemon);
    std::thread::sleep(Duration::from_secs(1));
    let after = program.stacks(daemon);
    let (walked, complete) = (
        after.walked - before.walked,
        after.complete - before.complete,
    );
    walked >= 50 && complete * 100 >= walked * 99
}

/// Waits until it is so; what the daemon counted is the message where it does not come to it.
fn wait_for(daemon: &Daemon, what: &str, is_so: impl Fn() -> bool) {
    let deadline = Instant::now() + WITHIN;
    while !is_so() {
        assert!(
            Instant::now() < deadline,
            "{what}: not within {WITHIN:?}: {:?}, {}",
            counts(daemon),
            daemon.get("/status")["unwinding"]
        );
        std::thread::sleep(Duration::from_millis(200));
    }
}

#[test]
fn a_table_that_finds_no_room_is_counted() {
    // Check that a table larger than all the room is counted as such and leaves the room within its
    // bound, and that stacks of another program are complete all the same.
    let settings = Settings {
        within_budget: false,
        top: "frequency_hz = 499",
        limits: ROOM,
        targets: "comms = [\"too-large\", \"small\"]",
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let Some(large) = build(folder.path(), "too-large", MORE_THAN_ALL) else {
        return;
    };
    let Some(small) = build(folder.path(), "small", 10) else {
        return;
    };
    let (large, small) = (Running::run(&large), Running::run(&small));
    wait_for(&daemon, "no table is counted as without room", || {
        troubles(&daemon, "tables_full") > 0
    });
    wait_for(&daemon, "stacks of the small program", || {
        is_followed(&daemon, &small)
    });
    assert!(!is_followed(&daemon, &large), "{:?}", counts(&daemon));
    let walked = large.stacks(&daemon).walked;
    let unwinding = &daemon.get("/status")["unwinding"];
    assert!(
        number(unwinding, "/table_bytes") <= ROOM_BYTES,
        "{unwinding}"
    );
    // That, and nothing else, is why its walks end.
    let without_table = number(&unwinding["failures"], "/no_table");
    assert!(
        without_table * 2 > walked && walked > 0,
        "of {walked} walks: {unwinding}"
    );
}

#[test]
fn a_table_that_was_not_used_for_longest_gives_way() {
    // Check that of two programs that do not fit together each is followed when it runs, one after
    // the other and then the first again, and that what gave way for it is counted.
    let settings = Settings {
        within_budget: false,
        top: "frequency_hz = 499",
        limits: ROOM,
        targets: "comms = [\"first\", \"second\"]",
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let mut programs = Vec::new();
    for name in ["first", "second"] {
        let Some(program) = build(folder.path(), name, MORE_THAN_HALF) else {
            return;
        };
        programs.push(program);
    }
    let mut evicted = Vec::new();
    for program in [&programs[0], &programs[1], &programs[0]] {
        let running = Running::run(program);
        wait_for(&daemon, &format!("stacks of {}", program.display()), || {
            is_followed(&daemon, &running)
        });
        evicted.push(troubles(&daemon, "evicted"));
    }
    // The second needed the room of the first, and the first that of the second.
    assert!(
        evicted[0] < evicted[1] && evicted[1] < evicted[2],
        "evictions after each program: {evicted:?}"
    );
    let unwinding = &daemon.get("/status")["unwinding"];
    assert!(
        number(unwinding, "/table_bytes") <= ROOM_BYTES,
        "{unwinding}"
    );
}
