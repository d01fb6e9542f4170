//! Programs whose functions are measured go on as without: those that leave functions by
//! exceptions, jumps, other stacks and ends of threads, and those whose profiler is killed.

use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, Instant};

use object::{Object as _, ObjectSegment as _};
use serde_json::Value;

use crate::daemon::{daemon_exe, say};
use crate::exact_functions::{is_refused_here, row, run};
use crate::reads::{number, text};

const PROGRAM: &str = include_str!("survival/program.cpp");
const LIBRARY: &str = include_str!("survival/library.c");
const GOROUTINES: &str = include_str!("survival/goroutines.go");

/// A program in a folder of its own.
pub(crate) struct Compiled {
    folder: tempfile::TempDir,
    program: PathBuf,
}

impl Compiled {
    /// `None`: there is no such compiler (said).
    pub(crate) fn new(compiler: &str, source: (&str, &str), options: &[&str]) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let program = folder.path().join("program");
        compile(folder.path(), compiler, source, options, &program)
            .then_some(Self { folder, program })
    }

    fn path(&self) -> &str {
        self.program.to_str().expect("the path is text")
    }

    /// As it is, and under a recording with these options, which must not change what it says and
    /// how it ends. Answers the report; `None` where nothing can be measured.
    pub(crate) fn with_and_without(&self, options: &[&str], arguments: &[&str]) -> Option<Value> {
        let plain = Command::new(&self.program)
            .args(arguments)
            .stdin(Stdio::null())
            .output()
            .expect("it runs");
        let report = self.folder.path().join("report.json");
        let path = report.to_str().expect("the path is text");
        let own = ["-o", path, "--", self.path()];
        let output = run(&[options, &own, arguments].concat());
        if is_refused_here(&output) {
            return None;
        }
        assert_same(&plain, &output, arguments);
        let report = fs::read(report).expect("the report was written");
        Some(serde_json::from_slice(&report).expect("JSON"))
    }
}

fn assert_same(plain: &Output, probed: &Output, what: &[&str]) {
    let said = String::from_utf8_lossy(&probed.stderr);
    assert_eq!(
        plain.status.code(),
        probed.status.code(),
        "{what:?}: {said}"
    );
    assert_eq!(
        String::from_utf8_lossy(&plain.stdout),
        String::from_utf8_lossy(&probed.stdout),
        "{what:?}: {said}"
    );
}

pub(crate) fn compile(
    folder: &Path,
    compiler: &str,
    (name, source): (&str, &str),
    options: &[&str],
    program: &Path,
) -> bool {
    fs::write(folder.join(name), source).expect("a file");
    let mut command = Command::new(compiler);
    command.args(options).arg("-o").arg(program).arg(name);
    let Ok(output) = command
        .current_dir(folder)
        .env("GO111MODULE", "off")
        .output()
    else {
        say(&format!("skipped: there is no {compiler}"));
        return false;
    };
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{compiler} {name}: {said}");
    true
}

/// The program of goroutines. `GOROUTINES_BIN` names one that is built already.
fn goroutines() -> Option<Compiled> {
    if let Some(program) = std::env::var_os("GOROUTINES_BIN") {
        return Some(Compiled {
            folder: tempfile::tempdir().expect("a folder"),
            program: program.into(),
        });
    }
    Compiled::new("go", ("goroutines.go", GOROUTINES), &["build"])
}

/// The program of many ways to leave a function.
fn program() -> Option<Compiled> {
    let options = ["-O1", "-no-pie", "-pthread"];
    Compiled::new("c++", ("program.cpp", PROGRAM), &options)
}

// Check that programs that leave functions by exceptions, longjmp, swapcontext, pthread_exit,
// cancellation, fork and exec, that look at their own stacks, and that forbid the system calls of
// the kernel's trampolines, say and end as without probes; and that each call was counted.
#[test]
fn programs_go_on_as_without() {
    let Some(program) = program() else { return };
    let all = format!("{}:t_*", program.path());
    let names = [
        "exceptions",
        "jumps",
        "coroutines",
        "threads",
        "forks",
        "executes",
        "filtered",
        "backtraces",
    ];
    for mode in names {
        let options = ["--trace", &all, "--trace-budget=0%"];
        let Some(report) = program.with_and_without(&options, &[mode]) else {
            return;
        };
        let calls = |function: &str| number(row(&report, function), "/calls");
        // Where its clock was being changed, a call is counted only.
        let returned = |function: &str| {
            let row = row(&report, function);
            number(row, "/outermost") + number(row, "/counted_only")
        };
        match mode {
            "exceptions" => {
                let thrower = row(&report, "t_throw");
                assert_eq!(number(thrower, "/calls"), 30);
                let unseen = number(thrower, "/left_unseen");
                let seen = number(thrower, "/outermost");
                assert!(unseen <= 10 && seen <= 20, "{thrower:#}");
                assert_eq!(returned("t_throw") + unseen, 30, "{thrower:#}");
                assert_eq!(returned("t_catch"), 30);
            }
            "jumps" => {
                // It returns twice and is left once.
                assert_eq!(returned("t_lands"), 50);
                let leaps: u64 = (0..50).map(|depth| depth % 9 + 1).sum();
                assert_eq!(calls("t_leap"), leaps);
            }
            "coroutines" => {
                assert_eq!(returned("t_resume"), 60);
                let unseen = number(row(&report, "t_yield"), "/left_unseen");
                assert_eq!(calls("t_yield"), 60);
                // The last one does not end, nor does who called it.
                assert!((59..=60).contains(&returned("t_yield")));
                assert_eq!(returned("t_yield") + unseen, 60);
            }
            "threads" => assert_eq!(calls("t_leaves"), 5),
            // Each child calls one of them, and returns from the other without having called it.
            "forks" => assert_eq!((calls("t_forks"), calls("t_value")), (64, 64)),
            "executes" => assert_eq!((calls("t_executes"), calls("t_throw")), (1, 30)),
            "filtered" => assert_eq!(returned("t_value"), 100),
            _ => assert_eq!(calls("t_frames"), 14),
        }
    }
}

// Check that no call is missed of a program that is named by its path and that the command runs
// again and again, a millisecond each time.
#[test]
fn short_children_are_measured() {
    const SOURCE: &str = "__attribute__((noipa)) int t_brief(int x) { return x; }\n\
        int main(int count, char **words) { (void)words; return t_brief(count - 1); }\n";
    let Some(program) = Compiled::new("cc", ("brief.c", SOURCE), &["-O1"]) else {
        return;
    };
    let report = program.folder.path().join("report.json");
    let pattern = format!("{}:t_brief", program.path());
    let script = "i=0; while [ $i -lt 100 ]; do \"$0\" || exit 9; i=$((i + 1)); done; exit 4";
    let output = run(&[
        "--trace",
        &pattern,
        "-o",
        report.to_str().expect("the path is text"),
        "--",
        "sh",
        "-c",
        script,
        program.path(),
    ]);
    if is_refused_here(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(4), "{output:?}");
    let report = fs::read(report).expect("the report was written");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let row = row(&report, "t_brief");
    assert_eq!(number(row, "/calls"), 100, "{row:#}");
    assert_eq!(number(row, "/outermost"), 100, "{row:#}");
}

// Check that functions of a library are measured each time that it is loaded anew.
#[test]
fn a_library_may_come_and_go() {
    let Some(program) = program() else { return };
    let library = program.folder.path().join("libloaded.so");
    let options = ["-O1", "-shared", "-fPIC"];
    if !compile(
        program.folder.path(),
        "cc",
        ("library.c", LIBRARY),
        &options,
        &library,
    ) {
        return;
    }
    let library = library.to_str().expect("the path is text");
    let pattern = format!("{library}:t_loaded");
    let options = ["--trace", &pattern];
    if let Some(report) = program.with_and_without(&options, &["loads", library]) {
        assert_eq!(number(row(&report, "t_loaded"), "/calls"), 20);
    }
}

// Check that calls of Go's functions are measured from entry to exit, each once although growing
// stacks begin them anew: as long as by the program's own clock although they go on on other
// threads and stacks; what panics leave is told; elapsed time alone is; and the program goes on as
// without.
#[test]
fn calls_of_goroutines_are_measured() {
    let Some(program) = goroutines() else { return };
    let functions = ["outer", "leaf", "nap", "grow", "take", "throw", "catch"];
    let patterns = functions.map(|name| format!("{}:main.{name}", program.path()));
    let mut options = vec!["--trace-budget=0%"];
    options.extend(patterns.iter().flat_map(|pattern| ["--trace", pattern]));
    let truth = program.folder.path().join("truth");
    let arguments = [truth.to_str().expect("the path is text")];
    let Some(report) = program.with_and_without(&options, &arguments) else {
        return;
    };
    let of = |name: &str| row(&report, &format!("main.{name}"));
    if of("outer")["exits"] == "none" {
        say("counted only: this kernel does not follow goroutines");
        assert_eq!(number(of("outer"), "/calls"), 20 * 200);
        return;
    }
    let costs = report["measured"]["probe_costs"].as_array();
    let mut costs = costs.expect("costs").iter();
    let is_known = |cost: &Value| cost["outside_ns"].as_f64() > Some(0.0);
    assert!(costs.all(is_known), "{report:#}");
    // Calls, those that no other of the function was around, those left by a panic, and those for
    // which there was no place.
    for (name, calls, outermost, unseen, without_place) in [
        ("outer", 20 * 200, 20, 0, 20 * 168),
        ("leaf", 20, 0, 0, 20),
        ("nap", 200, 200, 0, 0),
        ("grow", 200 * 25, 200, 0, 0),
        ("take", 20, 20, 0, 0),
        ("throw", 200, 100, 100, 0),
        ("catch", 200, 200, 0, 0),
    ] {
        let row = of(name);
        let counts = ["calls", "outermost", "left_unseen", "counted_only"];
        let counts = counts.map(|count| number(row, &format!("/{count}")));
        assert_eq!(counts, [calls, outermost, unseen, without_place], "{row:#}");
        assert_eq!(number(row, "/exits_unmatched"), 0, "{row:#}");
        assert_eq!(number(row, "/open"), 0, "{row:#}");
        assert!(row["application"].is_null() && row["classes"].is_null());
        assert!(text(row, "/why").contains("elapsed time alone"), "{row:#}");
    }
    let truth = fs::read_to_string(&truth).expect("the program has written it");
    let truth: Vec<u64> = truth
        .split_whitespace()
        .map(|ns| ns.parse().unwrap())
        .collect();
    for (name, truth_ns) in [("nap", truth[0]), ("take", truth[1])] {
        let row = of(name);
        // The program's own clock has what the probes took as well, and what it took to come to
        // the call.
        let found_ns = number(row, "/elapsed/inclusive_ns") + number(row, "/probe_ns");
        let off = (truth_ns as f64 - found_ns as f64) / truth_ns as f64;
        assert!(
            (-0.01..0.05).contains(&off),
            "{name}: {truth_ns} ns, {row:#}"
        );
    }
    let [all, own, below] = [
        number(of("nap"), "/elapsed/inclusive_ns"),
        number(of("nap"), "/elapsed/exclusive_ns"),
        number(of("grow"), "/elapsed/inclusive_ns"),
    ];
    assert!(
        all.abs_diff(own + below) <= 3,
        "{all} is not {own} + {below}"
    );
}

// Check that a profiler that is killed while calls are under way leaves nothing behind: within a
// second the program's text is that of its file again, and it goes on to its end.
#[test]
fn nothing_is_left_by_a_profiler_that_is_killed() {
    let Some(program) = program() else { return };
    let mut target = Command::new(&program.program)
        .arg("goes_on")
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut output = BufReader::new(target.stdout.take().expect("a pipe"));
    let mut line = String::new();
    output.read_line(&mut line).expect("its first line");
    let address = u64::from_str_radix(line.trim(), 16).expect("an address");
    let in_file = bytes_at(&program.program, address);
    let memory = fs::File::open(format!("/proc/{}/mem", target.id())).expect("its memory");
    let in_memory = || {
        let mut bytes = [0; 32];
        memory.read_exact_at(&mut bytes, address).expect("its text");
        bytes
    };
    assert_eq!(in_memory(), in_file);
    let pattern = format!("{}:t_slow", program.path());
    let mut profiler = Command::new(daemon_exe())
        .args(["record", "--trace", &pattern, "--pid"])
        .arg(target.id().to_string())
        .arg("-o")
        .arg(program.folder.path().join("report.json"))
        .stdin(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut refused = false;
    wait_until(Duration::from_secs(60), "probes are attached", || {
        refused = profiler.try_wait().expect("a child").is_some();
        refused || in_memory() != in_file
    });
    if !refused {
        // SAFETY: a signal to a child of this process that was not waited for.
        unsafe { libc::kill(profiler.id().cast_signed(), libc::SIGKILL) };
        let killed = Instant::now();
        wait_until(Duration::from_secs(5), "the text is restored", || {
            in_memory() == in_file
        });
        assert!(killed.elapsed() < Duration::from_secs(1), "{killed:?}");
    }
    let ended = profiler.wait_with_output().expect("it was a child");
    // SAFETY: as above.
    unsafe { libc::kill(target.id().cast_signed(), libc::SIGTERM) };
    assert_eq!(target.wait().expect("it was a child").code(), Some(11));
    let mut rest = String::new();
    output.read_to_string(&mut rest).expect("its last line");
    assert_eq!(rest, "went on 1\n");
    if refused {
        assert!(is_refused_here(&ended), "{ended:?}");
    }
}

// Check that a function of a microsecond that is called all the time is given up within three
// seconds, and that the program is as fast as before afterwards.
#[test]
fn a_function_that_is_called_all_the_time_is_given_up() {
    let Some(program) = program() else { return };
    let folder = program.folder.path();
    let report = folder.join("report.json");
    let path = report.to_str().expect("the path is text");
    let pattern = format!("{}:t_busy", program.path());
    let output = run(&[
        "--trace",
        &pattern,
        "-o",
        path,
        "--",
        program.path(),
        "busy",
    ]);
    if is_refused_here(&output) {
        return;
    }
    assert_eq!(output.status.code(), Some(12));
    let slots = String::from_utf8_lossy(&output.stdout);
    let slots: Vec<u64> = slots.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(slots.len(), 10);
    // Half seconds: the first ones are of a tenth of the speed. Other load changes it too.
    let (slow, fast) = (slots[0], slots[6..].iter().max().expect("four"));
    let slots_text = format!("{slots:?}");
    assert!(*fast > 100_000, "{slots_text}");
    assert!(slow * 2 < *fast || slots[1] > slow, "{slots_text}");
    let report: Value = serde_json::from_slice(&fs::read(report).expect("a report")).expect("JSON");
    let row = row(&report, "t_busy");
    assert!(text(row, "/why").contains("given up: "), "{row:#}");
}

fn wait_until(at_most: Duration, what: &str, mut is: impl FnMut() -> bool) {
    let deadline = Instant::now() + at_most;
    while !is() {
        assert!(Instant::now() < deadline, "{what}: not within {at_most:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// What the file has at a virtual address of a program that is loaded where it was linked.
fn bytes_at(program: &Path, address: u64) -> [u8; 32] {
    let bytes = fs::read(program).expect("the program can be read");
    let file = object::File::parse(&*bytes).expect("an ELF file");
    let mut segments = file.segments();
    let found = segments.find_map(|segment| {
        let at = usize::try_from(address.checked_sub(segment.address())?).ok()?;
        segment.data().ok()?.get(at..at + 32)?.try_into().ok()
    });
    found.expect("a segment has it")
}
