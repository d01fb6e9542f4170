//! Attacks of an ordinary user, in namespaces of its own where it needs some, beside an ordinary
//! program: its functions are named and whole during and after each of them, every answer comes
//! within a second, and memory does not grow.

use std::ffi::CString;
use std::net::TcpStream;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use serde_json::Value;
use tempfile::TempDir;

use crate::daemon::{self, Daemon, Settings};
use crate::observed::stolen_ns;
use crate::reads::{self, is_function, number, rows, text, unix_now_ns};
use crate::workload::{self, Workload};

/// A user whom nobody knows.
const ATTACKER: u32 = 47_110;
/// How long each attack goes on.
const SECONDS: u64 = 5;
/// How long an answer may take.
const ANSWER_WITHIN: Duration = Duration::from_secs(1);
/// The machine may be busy with something else for a moment: so many answers of a run may take
/// twice that.
const SLOW_ANSWERS: u32 = 1;
/// Answers that did.
static SLOW: AtomicU32 = AtomicU32::new(0);
/// How long a daemon may take to give back what attacks took.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// What a file of root's says that nobody else may read.
const SECRET: &str = "secret_of_root";

/// What the attacker finds: a program, a folder, a FUSE device that everybody may open
/// (distributions have one; a machine for tests may not), and a file of root's that looks like a
/// list of functions.
struct Stage {
    folder: TempDir,
    program: PathBuf,
}

impl Stage {
    fn set() -> Self {
        let folder = tempfile::tempdir().expect("a temporary directory");
        let program = folder.path().join("workload");
        std::fs::copy(workload::exe(), &program).expect("the program can be copied");
        let mode = |path: &Path, mode| {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
                .expect("the folder is this test's");
        };
        mode(folder.path(), 0o755);
        let own = folder.path().join("own");
        std::fs::create_dir(&own).expect("a folder");
        chown(&own, Some(ATTACKER), Some(ATTACKER)).expect("root gives folders away");
        let secret = folder.path().join("secret");
        std::fs::write(&secret, format!("1000000000 1000 {SECRET}\n")).expect("a file");
        mode(&secret, 0o600);
        let stage = Self { folder, program };
        let fuse = CString::new(stage.path("fuse")).expect("no zero byte");
        // SAFETY: a zero-terminated path and plain numbers.
        let made =
            unsafe { libc::mknod(fuse.as_ptr(), libc::S_IFCHR | 0o666, libc::makedev(10, 229)) };
        assert_eq!(made, 0, "root makes devices");
        mode(Path::new(&stage.path("fuse")), 0o666);
        stage
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    /// Whether an attack can be made here: some machines leave users no namespaces, or have no
    /// FUSE.
    fn allows(&self, program: &str) -> bool {
        let mut namespaces = Command::new("unshare");
        namespaces.args(["--user", "--mount", "true"]);
        let status = namespaces.uid(ATTACKER).gid(ATTACKER).status();
        let has_namespaces = status.is_ok_and(|status| status.success());
        let allowed = match program {
            "attack-perf-map" => has_namespaces,
            "attack-fuse" => has_namespaces && std::fs::File::open(self.path("fuse")).is_ok(),
            _ => true,
        };
        if !allowed {
            daemon::say(&format!("skipped: {program}; users may not do that here"));
        }
        allowed
    }

    fn attack(&self, program: &str, options: &[&str]) -> Attack {
        let child = Command::new(&self.program)
            .arg(program)
            .args(["--seconds", &SECONDS.to_string()])
            .args(options)
            .env("TMPDIR", self.path("own"))
            .uid(ATTACKER)
            .gid(ATTACKER)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .expect("the program can be executed");
        Attack {
            name: program.to_owned(),
            child,
        }
    }
}

/// An attack under way.
struct Attack {
    name: String,
    child: Child,
}

impl Attack {
    fn has_ended(&mut self) -> bool {
        self.child
            .try_wait()
            .expect("it is a child of this process")
            .is_some()
    }

    /// Fails the test if the attack did not do what it is for.
    fn finish(self) {
        let output = self
            .child
            .wait_with_output()
            .expect("it is a child of this process");
        assert!(
            output.status.success(),
            "{} did not work: {}",
            self.name,
            String::from_utf8_lossy(&output.stderr)
        );
    }
}

/// One answer, in time.
fn prompt(daemon: &Daemon, path: &str, during: &str) -> Value {
    let (begin, stolen_before_ns) = (Instant::now(), stolen_ns());
    let answer = daemon.try_get(path);
    // In what the host takes of the processors nobody gets on.
    let stolen = Duration::from_nanos(stolen_ns().saturating_sub(stolen_before_ns));
    let took = begin.elapsed().saturating_sub(stolen);
    assert_eq!(
        answer.status,
        200,
        "{path} during {during}: {}",
        answer.text()
    );
    let is_slow = took >= ANSWER_WITHIN;
    let slow = SLOW.fetch_add(u32::from(is_slow), Ordering::Relaxed);
    assert!(
        !is_slow || (took < 2 * ANSWER_WITHIN && slow < SLOW_ANSWERS),
        "{path} took {took:?} during {during}, after {slow} other slow answers"
    );
    answer.json()
}

/// The share of a process's samples that its own three functions have, and that of whole stacks, in
/// percent.
fn named(list: &Value) -> (u64, f64) {
    let samples = |row: &Value| number(row, "/samples/exclusive");
    let all: u64 = rows(list).iter().map(samples).sum();
    let own = rows(list).iter().filter(|row| {
        ["split_sixty", "split_thirty", "split_ten"]
            .iter()
            .any(|name| is_function(text(row, "/function"), name))
    });
    let own: u64 = own.map(samples).sum();
    (all, 100.0 * own as f64 / all.max(1) as f64)
}

fn assert_named(list: &Value, what: &str) {
    let (samples, own_percent) = named(list);
    assert!(samples >= 20, "{what}: only {samples} samples");
    assert!(
        own_percent > 95.0,
        "{what}: {own_percent:.1} % of {samples} samples are named: {list}"
    );
    let incomplete = incomplete(list);
    assert!(
        incomplete * 20 <= samples,
        "{what}: {incomplete} of {samples} samples have no whole stack: {list}"
    );
}

/// Samples whose stack does not reach the beginning of its thread.
fn incomplete(list: &Value) -> u64 {
    let is_it = |row: &&Value| text(row, "/function") == "[incomplete]";
    let row = rows(list).iter().find(is_it);
    row.map_or(0, |row| number(row, "/samples/inclusive"))
}

/// A program that starts now is named, too.
fn assert_newcomer_is_named(daemon: &Daemon, when: &str) {
    let finished = workload::run("split --seconds 1 --nice -10");
    let list = reads::table(daemon, &finished, "functions");
    assert_named(&list, &format!("a program started {when}"));
}

fn resident_kib(daemon: &Daemon) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{}/status", daemon.pid()));
    let status = status.expect("the daemon is running");
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let number = line.and_then(|rest| rest.split_ascii_whitespace().next()?.parse().ok());
    number.expect("a process has memory")
}

/// Watches the victim while an attack goes on, and looks at it and at a newcomer afterwards.
fn bear(daemon: &Daemon, victim: &Workload, mut attack: Attack) {
    let name = attack.name.clone();
    let begin_ns = unix_now_ns();
    let functions = format!("/api/v1/processes/{}/functions?limit=0", victim.selector());
    while !attack.has_ended() {
        prompt(daemon, &functions, &name);
        prompt(daemon, "/api/v1/processes", &name);
        assert_eq!(daemon.try_get("/readyz").status, 200, "during {name}");
        std::thread::sleep(Duration::from_millis(100));
    }
    attack.finish();
    let span = format!("&window={SECONDS}s");
    let list = reads::until(
        daemon,
        &format!("/processes/{}/functions?limit=0{span}", victim.selector()),
        begin_ns + SECONDS * 1_000_000_000,
        |_| true,
    );
    assert_named(&list, &format!("the victim of {name}"));
    assert_newcomer_is_named(daemon, &format!("after {name}"));
    daemon::say(&format!("{name}: {} KiB", resident_kib(daemon)));
}

#[test]
fn who_attacks_it_harms_no_other() {
    // Check that what an ordinary user does harms no other program's profile, delays no answer, and
    // leaves no memory taken. With little room for call trees: whoever is first may fill it, and by
    // default it is half as large as such a daemon.
    let Some(daemon) = daemon::own(&Settings {
        limits: "profile_stack_bytes = \"1MiB\"",
        ..Settings::default()
    }) else {
        return;
    };
    let stage = Stage::set();
    let own = stage.path("own");
    let victim = Workload::start("split --seconds 600 --nice -10");
    assert_newcomer_is_named(&daemon, "before all attacks");
    std::thread::sleep(Duration::from_secs(5));
    let memory = || daemon.get("/status")["own_cost"]["memory_bytes"].clone();
    let (before_kib, before) = (resident_kib(&daemon), memory());
    for (program, options) in [
        ("attack-names", vec![]),
        (
            "attack-perf-map",
            vec!["--path".to_owned(), stage.path("secret")],
        ),
        ("attack-fuse", vec!["--path".to_owned(), stage.path("fuse")]),
        ("attack-versions", vec!["--path".to_owned(), own.clone()]),
        ("attack-mappings", vec!["--path".to_owned(), own.clone()]),
        ("attack-tables", vec!["--path".to_owned(), own]),
        ("attack-chains", vec![]),
    ] {
        if !stage.allows(program) {
            continue;
        }
        let options: Vec<_> = options.iter().map(String::as_str).collect();
        let attack = stage.attack(program, &options);
        let attacker = attack.child.id();
        bear(&daemon, &victim, attack);
        let path = format!("/api/v1/processes/{attacker}/functions?limit=0");
        let answer = daemon.try_get(&path);
        let shown = answer.text();
        assert_eq!(answer.status, 200, "{path} after {program}: {shown}");
        assert!(!shown.contains(SECRET), "a line of root's file is shown");
        assert!(
            program != "attack-perf-map" || shown.contains("[jit]"),
            "it was not seen at work: {shown}"
        );
        assert!(
            program != "attack-names" || shown.contains("_Z1fDTnwnw"),
            "the dear name is shown as it is: {shown}"
        );
    }
    daemon::say(&format!("before all attacks: {before_kib} KiB, {before}"));
    let deadline = Instant::now() + SETTLED_WITHIN;
    loop {
        let now_kib = resident_kib(&daemon);
        if now_kib * 10 <= before_kib * 13 {
            daemon::say(&format!("settled: {now_kib} KiB, {}", memory()));
            break;
        }
        assert!(
            Instant::now() < deadline,
            "{before_kib} KiB before the attacks ({before}), {now_kib} KiB after them ({})",
            memory()
        );
        std::thread::sleep(Duration::from_millis(500));
    }
}

#[test]
fn a_new_program_is_unwound_while_others_queue() {
    // Check that a program that starts while another user maps files that take long to read has
    // whole stacks all the same.
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    let stage = Stage::set();
    let attack = stage.attack("attack-tables", &["--path", &stage.path("own")]);
    std::thread::sleep(Duration::from_secs(2));
    let begin_ns = unix_now_ns();
    let mut perl = Command::new("perl")
        .args(["-e", "my $end = time + 3; my $x = 0; while (time < $end) { $x += length(\"a$x\") for 1 .. 1000 }"])
        .spawn()
        .expect("Debian has perl");
    let pid = perl.id();
    let ticks = reads::start_ticks(pid);
    perl.wait().expect("it is a child of this process");
    let list = reads::until(
        &daemon,
        &format!("/processes/{pid}.{ticks}/functions?limit=0"),
        begin_ns + 3_000_000_000,
        |_| true,
    );
    let samples: u64 = rows(&list)
        .iter()
        .map(|row| number(row, "/samples/exclusive"))
        .sum();
    let incomplete = incomplete(&list);
    assert!(samples >= 50, "{list}");
    assert!(
        incomplete * 3 < samples,
        "{incomplete} of {samples} samples have no whole stack: {list}"
    );
    attack.finish();
}

#[test]
fn idle_connections_keep_nobody_out() {
    // Check that a user who holds as many connections as there may be, and opens them again, keeps
    // nobody from an answer.
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    let hold = || -> Vec<TcpStream> {
        let held = (0..64).map(|_| TcpStream::connect(daemon.address()));
        held.collect::<Result<_, _>>().expect("it listens")
    };
    let mut held = hold();
    for _ in 0..5 {
        prompt(&daemon, "/api/v1/processes", "64 idle connections");
        assert_eq!(daemon.try_get("/metrics").status, 200);
        held = hold();
    }
    drop(held);
}
