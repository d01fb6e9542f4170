//! The lines a workload prints: `{"ready": …}` when it is in the state it promises, `{"truth": …}`
//! when its work is done.

use std::path::Path;
use std::thread::JoinHandle;

use serde_json::{Map, Value, json};

use crate::sys;

/// What a program knows about itself.
#[derive(Debug)]
pub(crate) struct Truth {
    program: String,
    started_ns: u64,
    values: Map<String, Value>,
}

impl Truth {
    /// Starts the program's own clock.
    pub(crate) fn start(program: &str) -> Self {
        Self {
            program: program.to_owned(),
            started_ns: sys::monotonic_ns(),
            values: Map::new(),
        }
    }

    /// Adds one fact.
    pub(crate) fn set(&mut self, key: &str, value: impl Into<Value>) {
        self.values.insert(key.to_owned(), value.into());
    }

    /// Prints everything with the totals of the process so far.
    pub(crate) fn print(mut self) {
        let usage = sys::usage(libc::RUSAGE_SELF);
        let children = sys::usage(libc::RUSAGE_CHILDREN);
        let now_ns = sys::monotonic_ns();
        self.set("truth", self.program.clone());
        self.set("pid", std::process::id());
        self.set("started_monotonic_ns", self.started_ns);
        self.set("ended_monotonic_ns", now_ns);
        self.set("wall_ns", now_ns - self.started_ns);
        self.set("user_ns", usage.user_ns);
        self.set("system_ns", usage.system_ns);
        self.set("voluntary_switches", usage.voluntary_switches);
        self.set("involuntary_switches", usage.involuntary_switches);
        self.set("children_cpu_ns", children.user_ns + children.system_ns);
        print_line(&Value::Object(self.values));
    }
}

/// The truth of the calling thread, to be listed under `threads`.
pub(crate) fn thread(name: &str, started_ns: u64) -> Value {
    let usage = sys::usage(libc::RUSAGE_THREAD);
    json!({
        "name": name,
        "tid": sys::gettid(),
        "wall_ns": sys::monotonic_ns() - started_ns,
        "user_ns": usage.user_ns,
        "system_ns": usage.system_ns,
        "switches": usage.voluntary_switches + usage.involuntary_switches,
    })
}

/// A thread whose life is timed from without too.
#[derive(Debug)]
pub(crate) struct TimedThread {
    before_ns: u64,
    handle: JoinHandle<Value>,
}

impl TimedThread {
    /// Starts a thread that does `work`, which returns its truth ([`thread`]).
    pub(crate) fn spawn(
        name: &str,
        work: impl FnOnce() -> Value + Send + 'static,
    ) -> std::io::Result<Self> {
        let before_ns = sys::monotonic_ns();
        let handle = std::thread::Builder::new()
            .name(name.to_owned())
            .spawn(work)?;
        Ok(Self { before_ns, handle })
    }

    /// Waits for threads that end at about the same time. The truth of each gets `outer_wall_ns`,
    /// from before its start until the kernel knows it no more: its life is between `wall_ns` and
    /// that, however late a busy machine starts or ends it.
    pub(crate) fn join(threads: Vec<Self>) -> Vec<Value> {
        let joined = threads.into_iter().filter_map(|thread| {
            let mut fact = thread.handle.join().ok()?;
            // Whoever joins it is told before its last event.
            let entry = format!("/proc/self/task/{}", fact["tid"]);
            while Path::new(&entry).exists() {
                sys::nanosleep(100_000);
            }
            fact["outer_wall_ns"] = (sys::monotonic_ns() - thread.before_ns).into();
            Some(fact)
        });
        joined.collect()
    }
}

/// Prints the `ready` line with whatever the reader needs to find the state.
pub(crate) fn ready(program: &str, facts: Value) {
    print_line(&json!({
        "ready": program,
        "pid": std::process::id(),
        "monotonic_ns": sys::monotonic_ns(),
        "unix_ns": sys::unix_ns(),
        "facts": facts,
    }));
}

fn print_line(value: &Value) {
    sys::write_all(1, format!("{value}\n").as_bytes());
}

/// Sleeps until a line, or the end, arrives on standard input.
#[inline(never)]
pub(crate) fn wait_for_line() {
    let mut byte = [0u8];
    while sys::read(0, &mut byte) == 1 && byte != *b"\n" {}
}

/// Sleeps until standard input is closed.
#[inline(never)]
pub(crate) fn hold_until_closed() {
    let mut bytes = [0u8; 64];
    while sys::read(0, &mut bytes) > 0 {}
}
