//! Lines of source of a program that was just compiled, whose lines have known shares.

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::{self, Daemon, say};
use crate::reads::{number, rows};

/// Lines 6 and 7 run the same loop, three times as often and once; line 3 is inlined into line 8,
/// and runs it twice as often.
///
/// Each turn waits for the multiplication of the one before: loops through memory do not run alike
/// on some processors.
const SOURCE: &str = r#"#define STEP { x = x * 2862933555777941757UL + 3; __asm__ volatile("" : "+r"(x)); }
static inline __attribute__((always_inline)) unsigned long inlined(unsigned long x) {
  for (int i = 0; i < 20000; i++) STEP
  return x; }
__attribute__((noinline)) unsigned long work(unsigned long x) {
  for (int i = 0; i < 30000; i++) STEP
  for (int i = 0; i < 10000; i++) STEP
  return inlined(x);
}
int main(void) {
  for (unsigned long x = 1;;) x = work(x);
}
"#;

/// Samples of the program from which on shares are judged.
const SAMPLES: u64 = 600;
/// How long they may take to come, on a machine that does much else.
const WITHIN: Duration = Duration::from_secs(600);

/// A running program. Killed when dropped.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // It cannot have ended by itself, and if it has, so much the better.
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn start(folder: &Path) -> Option<Running> {
    std::fs::write(folder.join("lines.c"), SOURCE).expect("a file");
    let compiled = Command::new("cc")
        .args(["-g", "-O1", "-o", "program", "lines.c"])
        .current_dir(folder)
        .status();
    let Ok(status) = compiled else {
        say("skipped: there is no C compiler");
        return None;
    };
    assert!(status.success(), "the program compiles");
    let mut command = Command::new(folder.join("program"));
    command.stdin(Stdio::null()).stdout(Stdio::null());
    Some(Running(command.spawn().expect("the program runs")))
}

/// A table of the program, once it has enough samples and all its lines were read.
fn table(daemon: &Daemon, program: &Running, question: &str) -> Value {
    let deadline = Instant::now() + WITHIN;
    let pid = program.0.id();
    loop {
        let answer = daemon.try_get(&format!("/api/v1/processes/{pid}/{question}"));
        if answer.status == 200 {
            let list = answer.json();
            let samples: u64 = rows(&list)
                .iter()
                .map(|row| number(row, "/samples/exclusive"))
                .sum();
            let pending = list["completeness"]["lines_unknown"].get("pending");
            if samples >= SAMPLES && pending.is_none() {
                return list;
            }
        }
        assert!(
            Instant::now() < deadline,
            "no {SAMPLES} samples in {WITHIN:?}: {}",
            answer.text()
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

/// Exclusive samples of a line.
fn samples(list: &Value, line: u64, function: &str) -> u64 {
    let rows = rows(list).iter();
    let of_line = rows.filter(|row| row["line"] == line && row["function"] == function);
    let of_file = of_line.filter(|row| {
        let file = row["file"].as_str();
        file.is_some_and(|file| file.ends_with("/lines.c"))
    });
    of_file.map(|row| number(row, "/samples/exclusive")).sum()
}

/// Fails unless `part` out of `all` is a share that is likely for `expected`.
fn assert_share(what: &str, part: u64, all: u64, expected: f64) {
    let share = part as f64 / all as f64;
    // Four standard deviations, and two points for loops that do not run alike.
    let slack = 4.0 * (expected * (1.0 - expected) / all as f64).sqrt() + 0.02;
    assert!(
        (share - expected).abs() < slack,
        "{what}: {part} of {all} samples, not {expected} +- {slack}"
    );
}

#[test]
fn lines_have_their_shares() {
    // Check that lines of a live program show the shares that its loops have, that an inlined
    // function is a row of its own where that is asked for, that instructions sum to their lines,
    // and that rows and time without a stack make the total.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a folder");
    let Some(program) = start(folder.path()) else {
        return;
    };
    let list = table(daemon, &program, "lines?limit=0");
    let found = [6, 7, 3].map(|line| samples(&list, line, "work"));
    let all: u64 = found.iter().sum();
    for (line, (part, expected)) in found
        .into_iter()
        .zip([0.5, 1.0 / 6.0, 1.0 / 3.0])
        .enumerate()
    {
        assert_share(&format!("loop {line}"), part, all, expected);
    }
    assert_share("line 6 of 6 and 7", found[0], found[0] + found[1], 0.75);
    let sum: u64 = rows(&list)
        .iter()
        .map(|row| number(row, "/elapsed/exclusive_ns"))
        .sum();
    let unattributed = number(&list, "/completeness/elapsed_unattributed_ns");
    let total = rows(&list).iter().map(|row| {
        let share = row["elapsed"]["exclusive_percent_of_process"].as_f64();
        share.expect("a share")
    });
    let lacking = 100.0 * unattributed as f64 / (sum + unattributed) as f64;
    let total: f64 = total.sum();
    assert!(
        (total + lacking - 100.0).abs() < 1e-6,
        "{total} + {lacking} %"
    );

    let list = table(daemon, &program, "lines?limit=0&inlines=true");
    let inlined = samples(&list, 3, "inlined");
    assert!(inlined > 0 && samples(&list, 3, "work") == 0);
    let caller = rows(&list)
        .iter()
        .find(|row| row["line"] == 8 && row["function"] == "work");
    let caller = caller.expect("the line of the inlined call");
    assert!(number(caller, "/samples/inclusive") >= inlined);

    let list = table(daemon, &program, "functions?limit=0&inlines=true");
    let row = |name: &str, inlined: bool| {
        let mut rows = rows(&list).iter();
        let row = rows.find(|row| row["function"] == name && row["inlined"] == inlined);
        row.unwrap_or_else(|| panic!("no {name}")).clone()
    };
    let of = |row: &Value, what: &str| number(row, &format!("/samples/{what}"));
    let (work, inlined) = (row("work", false), row("inlined", true));
    assert_eq!(
        of(&work, "inclusive"),
        of(&work, "exclusive") + of(&inlined, "inclusive")
    );

    let list = table(daemon, &program, "instructions?limit=0&function=work");
    for row in rows(&list) {
        let text = |name: &str| row[name].as_str().expect("a text").to_owned();
        assert!(text("address").starts_with("0x") && text("file").ends_with("/lines.c"));
        assert!(number(row, "/offset") < 4096, "{row}");
    }
}
