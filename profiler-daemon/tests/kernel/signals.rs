//! Where threads go on without a call before it: at the beginning of a signal's handler, where that
//! returns to, at a fault in a function's first instruction. What lies in front is another's.

use std::time::Duration;

use serde_json::Value;

use crate::daemon;
use crate::reads::{self, number, text, unix_now_ns};
use crate::unwinding::{Program, Running};

/// The functions of a program that has run for some seconds; `None`: nothing can be profiled here.
fn functions_of(program: &Program) -> Option<Value> {
    let daemon = daemon::shared()?;
    let folder = tempfile::tempdir().expect("a temporary directory");
    let running = Running::start(program, folder.path())?;
    std::thread::sleep(Duration::from_millis(3500));
    let path = format!("/processes/{}/functions?limit=0", running.id());
    Some(reads::until(daemon, &path, unix_now_ns(), |_| true))
}

#[test]
fn handlers_are_called_by_what_they_interrupt() {
    // Check that the time of a handler that begins all the time, and does little, is its own, and
    // nothing of it is in the function that lies in front of it; and that the same holds for the
    // code that handlers return to, where a program has its own.
    let program = Program {
        name: "signalled",
        compiler: "gcc",
        flags: &["-Os"],
        source: "
#include <signal.h>
#include <sys/syscall.h>
asm(\".text\\n.globl before_restorer\\n.type before_restorer,@function\\nbefore_restorer: ret\\n\"
    \".size before_restorer,.-before_restorer\\n.globl my_restorer\\n.type my_restorer,@function\\n\"
    \".p2align 0\\nmy_restorer: mov $15,%rax\\n syscall\\n.size my_restorer,.-my_restorer\\n\");
void before_restorer(void); void my_restorer(void);
struct action { void (*handler)(int); unsigned long flags; void (*restorer)(void); unsigned long mask; };
NOINLINE __attribute__((no_reorder)) void before_handler(void) { sink += 3; }
NOINLINE __attribute__((no_reorder)) void handler(int signal) { sink += signal; }
int main(int count, char **words) {
    struct action action = { handler, 0x04000000 | 0x40000000, my_restorer, 0 };
    syscall(SYS_rt_sigaction, SIGUSR1, &action, 0, 8);
    if (count > 5) { before_handler(); before_restorer(); }
    ready();
    usleep(300000);
    for (;;) syscall(SYS_tgkill, getpid(), getpid(), SIGUSR1);
}
",
        chain: &["main", "my_restorer", "handler"],
    };
    let Some(table) = functions_of(&program) else {
        return;
    };
    let of = |name: &str, value: &str| number(reads::function(&table, name), value);
    let samples = of("handler", "/samples/inclusive");
    assert!(samples > 20, "{samples} samples in the handler");
    assert!(of("my_restorer", "/samples/inclusive") >= samples);
    assert!(of("main", "/samples/inclusive") >= of("my_restorer", "/samples/inclusive"));
    let wrong: Vec<&str> = reads::rows(&table)
        .iter()
        .map(|row| text(row, "/function"))
        .filter(|name| name.starts_with("before_"))
        .collect();
    assert_eq!(wrong, [""; 0], "of {samples} samples");
}

#[test]
fn faults_at_a_functions_beginning_are_its_own() {
    // Check that faults at the first instruction of a function are its own, also where it was
    // called through the register in which system calls leave where they go on.
    let program = Program {
        name: "faulting",
        compiler: "gcc",
        flags: &["-O1"],
        source: "
#include <sys/mman.h>
asm(\".text\\n.p2align 12\\n.globl before_target\\n.type before_target,@function\\nbefore_target:\\n\"
    \".fill 4095,1,0x90\\n ret\\n.size before_target,.-before_target\\n\"
    \".globl target\\n.type target,@function\\ntarget: ret\\n.size target,.-target\\n.p2align 12\\n\");
void target(void);
int main(void) {
    ready();
    usleep(300000);
    for (;;) {
        madvise((void *)target, 4096, MADV_DONTNEED);
        asm volatile(\"mov %0,%%rcx\\n call *%%rcx\" :: \"r\"(target) : \"rcx\", \"memory\");
    }
}
",
        chain: &["main", "target"],
    };
    let Some(table) = functions_of(&program) else {
        return;
    };
    let samples = number(reads::function(&table, "target"), "/samples/exclusive");
    assert!(samples > 100, "{samples} samples");
    let is_wrong = |row: &&Value| text(row, "/function") == "before_target";
    assert_eq!(reads::rows(&table).iter().find(is_wrong), None);
}
