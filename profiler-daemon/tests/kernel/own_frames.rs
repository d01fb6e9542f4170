//! What the profiler's programs do within a thread is no work of that thread.

use std::time::Duration;

use crate::daemon;
use crate::reads::{self, number, unix_now_ns};
use crate::unwinding::{Program, Running};

#[test]
fn a_blocked_program_shows_who_waits() {
    // Check that the time of a thread that waits in a library function without frame pointers is
    // below `main`, and that nothing of it is in the programs that walk its stack.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let program = Program {
        name: "waiter",
        compiler: "gcc",
        flags: &["-O2"],
        source: "
NOINLINE static void wait_here(int n) { if (n) wait_here(n - 1); else sleep(1); sink += n; }
int main(void) { ready(); usleep(300000); for (;;) wait_here(5); }
",
        chain: &["main", "wait_here"],
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let Some(running) = Running::start(&program, folder.path()) else {
        return;
    };
    std::thread::sleep(Duration::from_millis(2500));
    let path = format!("/processes/{}/functions?limit=0", running.id());
    let table = reads::until(daemon, &path, unix_now_ns(), |_| true);
    let waiting = number(
        reads::function(&table, "wait_here"),
        "/elapsed/inclusive_ns",
    );
    let main = number(reads::function(&table, "main"), "/elapsed/inclusive_ns");
    assert!(
        waiting > 1_900_000_000 && main >= waiting,
        "{waiting} of {main}"
    );
    let table = daemon.get(&format!("{path}&frames=all"));
    let sleeps = number(
        reads::function(&table, "do_nanosleep"),
        "/elapsed/exclusive_ns",
    );
    assert!(
        sleeps > 1_900_000_000,
        "it leaves its processor from in there: {sleeps}"
    );
    // A tick may find it there.
    let switches = reads::rows(&table)
        .iter()
        .filter(|row| ["__schedule", "schedule"].contains(&reads::text(row, "/function")))
        .map(|row| number(row, "/elapsed/exclusive_ns"));
    let switches_ns = switches.sum::<u64>();
    assert!(switches_ns < sleeps / 10, "{switches_ns} of {sleeps}");
    let own: Vec<&str> = reads::rows(&table)
        .iter()
        .map(|row| reads::text(row, "/function"))
        .filter(|name| name.contains("bpf_"))
        .collect();
    assert_eq!(own, [""; 0], "the profiler's own frames are the thread's");
}

#[test]
fn a_storm_of_calls_has_no_frames_of_the_profiler() {
    // Check that ticks in the programs that trace a program's calls show nothing of them: at their
    // begin, inside of them, and in what calls them.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let program = Program {
        name: "storm",
        compiler: "gcc",
        flags: &["-O2"],
        source: "
#include <sys/syscall.h>
NOINLINE static void call(void) { for (int n = 0; n < 1000; n++) syscall(SYS_getppid); sink++; }
int main(void) { ready(); usleep(300000); for (;;) call(); }
",
        chain: &["main", "call"],
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let Some(running) = Running::start(&program, folder.path()) else {
        return;
    };
    std::thread::sleep(Duration::from_millis(3500));
    let path = format!("/processes/{}/functions?limit=0&frames=all", running.id());
    let table = reads::until(daemon, &path, unix_now_ns(), |_| true);
    let calls = number(reads::function(&table, "call"), "/samples/inclusive");
    assert!(calls > 500, "{calls} samples");
    let own: Vec<&str> = reads::rows(&table)
        .iter()
        .map(|row| reads::text(row, "/function"))
        .filter(|name| name.starts_with("bpf_prog_") || name.starts_with("bpf_trace_run"))
        .collect();
    assert_eq!(own, [""; 0], "of {calls} samples");
}
