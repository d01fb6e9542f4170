//! Exact counts whatever a function's first instruction is, what measuring an empty function comes
//! to, and many points at once.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::daemon::say;
use crate::exact_functions::{is_refused_here, kernel_version, row, run};
use crate::reads::{number, text};

/// Calls of each of the first functions by each of two threads.
const CALLS: u64 = 20_000;
/// Functions that are called once each, by the first letter of their names: how many, and how many
/// returns each has.
const GROUPS: [(&str, usize, usize); 2] = [("a", 250, 3), ("b", 250, 20)];

/// `first_push`, `first_endbr` and `first_mov` are called by two threads, then each function of the
/// groups once. All return at once.
fn source() -> String {
    let mut source = String::from(
        r#"
        #include <pthread.h>
        #define FUNCTION(name, first) __asm__(".globl " name "\n.type " name ", @function\n" \
            name ":\n" first "ret\n.size " name ", . - " name "\n.p2align 4\n")
        FUNCTION("first_push", "push %rbp\npop %rbp\n");
        FUNCTION("first_endbr", "endbr64\npush %rbp\npop %rbp\n");
        FUNCTION("first_mov", "mov %rdi, %rax\n");
        void first_push(void), first_endbr(void), first_mov(void);
        static void *calls(void *number) {
            for (long call = 0; call < (long)number; call++) {
                first_push();
                first_endbr();
                first_mov();
            }
            return 0;
        }
        "#,
    );
    let mut names = Vec::new();
    for (group, count, returns) in GROUPS {
        // The last one is written by the macro.
        let others = r"test %edi, %edi\nje 1f\nret\n1:\n".repeat(returns - 1);
        for number in 0..count {
            let name = format!("{group}_{number}");
            let line = format!(r#"FUNCTION("{name}", "push %rbp\npop %rbp\n{others}");"#);
            writeln!(source, "{line} void {name}(void);").expect("text");
            names.push(name);
        }
    }
    source.push_str(
        "int main(int count, char **arguments) {\n pthread_t other;\n if (count > 1) {\n",
    );
    for name in &names {
        writeln!(source, "{name}();").expect("text");
    }
    write!(
        source,
        "return 0;\n }}\n pthread_create(&other, 0, calls, (void *){CALLS});\n\
         calls((void *){CALLS});\n pthread_join(other, 0);\n return 0;\n}}\n"
    )
    .expect("text");
    source
}

/// Compiles it; false: there is no compiler (said).
fn compile(folder: &Path, program: &Path) -> bool {
    let path = folder.join("program.c");
    fs::write(&path, source()).expect("a file");
    let mut command = Command::new("cc");
    command.args(["-O1", "-fcf-protection=none", "-pthread", "-o"]);
    let Ok(output) = command.arg(program).arg(path).output() else {
        say("skipped: there is no C compiler");
        return false;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{said}");
    true
}

fn report(path: &Path) -> Value {
    serde_json::from_slice(&fs::read(path).expect("the report was written")).expect("JSON")
}

// Check that each call is counted, whether the first instruction is imitated, is the mark of jump
// targets, or is executed elsewhere, with exits probed and without, on two threads; and that an
// empty function's mean is nothing but what its probes' cost may be off.
#[test]
fn calls_are_counted_whatever_comes_first() {
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("program");
    if !compile(folder.path(), &program) {
        return;
    }
    let exe = program.to_str().expect("the path is text");
    let pattern = format!("{exe}:first_*");
    let json = folder.path().join("report.json");
    let path = json.to_str().expect("the path is text");
    let own = ["--trace", &pattern, "--trace-budget=0%", "-o", path];
    for more in [&["--", exe][..], &["--trace-counts", "--", exe]] {
        let output = run(&[&own, more].concat());
        if is_refused_here(&output) {
            return;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        let report = report(&json);
        let is_counted = more.len() > 2;
        for function in ["first_push", "first_endbr", "first_mov"] {
            let row = row(&report, function);
            assert_eq!(number(row, "/calls"), 2 * CALLS, "{row:#}");
            let outermost = number(row, "/outermost");
            if is_counted {
                assert_eq!(outermost, 0, "{row:#}");
                continue;
            }
            // Where its clock was being changed at its begin or end, a call has no times.
            let others = number(row, "/counted_only") + number(row, "/left_unseen");
            assert_eq!(outermost + others, 2 * CALLS, "{row:#}");
            assert!(outermost > CALLS, "{row:#}");
            assert!(row["mostly_probe"].as_bool().expect("a word"), "{row:#}");
            // What is left of its work is what the cost was off; it may have waited for a
            // processor too.
            let mean_ns = number(row, "/application/mean_ns");
            let error_ns = number(row, "/error_ns") / outermost;
            let probe_ns = number(row, "/probe_ns") / outermost;
            say(&format!(
                "{function}: {mean_ns} ns of an empty call are left, +-{error_ns}, of {probe_ns}"
            ));
            // On a machine with much else to do, the cost changes by more than it did while it was
            // measured.
            assert!(mean_ns <= error_ns.max(probe_ns / 2), "{row:#}");
        }
    }
}

// Check that a thousand points are attached and detached in bounded time with each call counted,
// and that more than may be are refused before anything runs.
#[test]
fn a_thousand_points_are_bearable_and_more_than_may_be_are_refused() {
    if kernel_version() < (6, 6) {
        say("skipped: this kernel has no links of many points");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let program = folder.path().join("program");
    if !compile(folder.path(), &program) {
        return;
    }
    let exe = program.to_str().expect("the path is text");
    let json = folder.path().join("report.json");
    let path = json.to_str().expect("the path is text");
    let patterns = GROUPS.map(|(group, ..)| format!("{exe}:{group}_*"));
    let traced = |patterns: &[String]| {
        let options = patterns.iter().flat_map(|one| ["--trace", one]);
        let rest = ["-o", path, "--", exe, "groups"];
        run(&options.chain(rest).collect::<Vec<_>>())
    };
    let took = |patterns: &[String]| {
        let began = Instant::now();
        (traced(patterns), began.elapsed())
    };
    let (few, took_few) = took(&[format!("{exe}:a_1")]);
    if is_refused_here(&few) {
        return;
    }
    assert!(few.status.success());
    let (many, took_many) = took(&patterns[..1]);
    let said = String::from_utf8_lossy(&many.stderr);
    assert!(many.status.success(), "{said}");
    let report = report(&json);
    let rows = report["measured"]["functions"].as_array().expect("rows");
    assert_eq!(rows.len(), 250);
    assert!(rows.iter().all(|row| number(row, "/calls") == 1));
    say(&format!(
        "1 point more takes {took_few:?}, 1000 take {took_many:?}"
    ));
    assert!(
        took_many < took_few + Duration::from_secs(10),
        "{took_many:?}"
    );
    let refused = |patterns: &[String]| {
        let output = traced(patterns);
        assert!(!output.status.success());
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    let said = refused(&patterns[1..]);
    assert!(
        said.contains("5250 points would be probed; at most 4096 can be"),
        "{said}"
    );
    let said = refused(&patterns);
    assert!(
        said.contains("500 functions are meant; at most 256 can be measured at a time"),
        "{said}"
    );
    assert_eq!(text(&rows[0], "/exits"), "sites");
}
