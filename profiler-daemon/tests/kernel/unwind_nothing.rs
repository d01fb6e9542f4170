//! Stacks of a program without any unwind information and without frame pointers: what its code
//! tells is followed, and where it does not tell, the stack says so. The program is compiled here,
//! by the machine's own compiler.

use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::Value;

use crate::daemon::{self, say};
use crate::unwinding::{Running, has_chain};

/// Half of its time below `begin` on its own stack, half on another one, to which it goes with a
/// frame pointer of zero.
const SOURCE: &str = r#"
#define NOINLINE __attribute__((noinline, noclone))
volatile unsigned long sink;
static unsigned long other[1 << 16];
NOINLINE static void burn(unsigned long n) { for (unsigned long i = 0; i < n; i++) sink += i * 7; }
NOINLINE static void inner(void) { burn(300000); sink += 1; }
NOINLINE static void outer(void) { inner(); sink += 1; }
NOINLINE static void elsewhere(void) { inner(); sink += 2; }
void on_other_stack(void (*function)(void), void *end);
__asm__(".globl on_other_stack\non_other_stack:\n push %rbp\n push %r12\n mov %rsp, %r12\n mov %rsi, %rsp\n xor %ebp, %ebp\n"
        " call *%rdi\n mov %r12, %rsp\n pop %r12\n pop %rbp\n ret\n");
NOINLINE void begin(void) {
  long written;
  __asm__ volatile("syscall" : "=a"(written) : "a"(1L), "D"(1L), "S"("ready\n"), "d"(6L) : "rcx", "r11", "memory");
  for (;;) { outer(); on_other_stack(elsewhere, other + (1 << 16)); }
}
__asm__(".globl _start\n_start:\n xor %ebp, %ebp\n and $-16, %rsp\n call begin\n hlt\n");
"#;

#[test]
fn a_program_that_says_nothing_is_not_made_up() {
    // Check that stacks of a program without unwind information are followed by its code, that
    // those whose end the code does not tell are told as incomplete, not as complete and not below
    // callers that they do not have, and that the status says why.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    let (source, exe) = (folder.path().join("a.c"), folder.path().join("nothing"));
    std::fs::write(&source, SOURCE).expect("a file can be written");
    let built = Command::new("gcc")
        .args([
            "-O2",
            "-fomit-frame-pointer",
            "-fno-asynchronous-unwind-tables",
        ])
        .args(["-ffreestanding", "-nostdlib", "-static", "-no-pie", "-o"])
        .args([&exe, &source])
        .stderr(Stdio::null())
        .status();
    if !built.is_ok_and(|status| status.success()) {
        say("skipped: a program without unwind information, which gcc cannot build here");
        return;
    }
    let running = Running::run(&exe);
    let before = running.first_whole_stacks(daemon);
    std::thread::sleep(Duration::from_millis(1500));
    let after = running.stacks(daemon);
    let walked = after.walked - before.walked;
    let complete = after.complete - before.complete;
    // Half of the time is on either stack.
    assert!(
        walked >= 100 && complete * 3 > walked && complete * 3 < walked * 2,
        "{complete} of {walked}"
    );
    // Its frame pointer is a number that is no address, or leads to memory without a return
    // address. The status is made once a second.
    let incomplete = |unwinding: &Value| {
        let failures = &unwinding["failures"];
        let of = |reason: &str| failures[reason].as_u64().unwrap_or_default();
        of("bad_frame_pointer") + of("zero_return_address")
    };
    let mut status = daemon.get("/status");
    for _ in 0..3 {
        if incomplete(&status["unwinding"]) * 4 <= walked {
            std::thread::sleep(Duration::from_secs(1));
            status = daemon.get("/status");
        }
    }
    let unwinding = &status["unwinding"];
    assert!(incomplete(unwinding) * 4 > walked, "{unwinding}");
    let path = exe.to_str().expect("a path of letters");
    let files = unwinding["files_without_information"].as_array();
    let file = files
        .into_iter()
        .flatten()
        .find(|file| file["path"] == path)
        .expect("the file is listed");
    assert_eq!(file["reason"], "no_unwind_information");
    assert_eq!(file["followed_by"], "code");
    let tree = daemon.get(&format!("/processes/{}/calltree", running.pid()));
    let root = &tree["root"];
    assert!(
        has_chain(root, &["_start", "begin", "outer", "inner", "burn"]),
        "{tree}"
    );
    let other = [
        "[incomplete: bad_frame_pointer]",
        "on_other_stack",
        "elsewhere",
        "inner",
    ];
    assert!(has_chain(root, &other), "{tree}");
    for wrong in [
        ["begin", "elsewhere"],
        ["on_other_stack", "outer"],
        ["outer", "elsewhere"],
    ] {
        assert!(!has_chain(root, &wrong), "{wrong:?} in {tree}");
    }
}
