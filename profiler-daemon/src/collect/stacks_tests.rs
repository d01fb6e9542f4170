//! Tests of `stacks` over a made-up machine: what becomes of a stack that travels again and again.

use super::*;
use crate::processes::{live::ProcessOptions, made_up::Machine};
use profiler_common::records::StackHead;

const SECOND: u64 = 1_000_000_000;

/// A process whose one stack travels.
struct Seen {
    machine: Machine,
    processes: Processes,
    table: FrameTable,
    stacks: Stacks,
}

impl Seen {
    fn new(maps: &[(u64, &'static str)]) -> Self {
        let machine = Machine::default();
        machine.show(2, 0, maps);
        let options = ProcessOptions {
            cmdline: false,
            open_files: 10,
        };
        let mut processes = Processes::new(Box::new(machine.clone()), options, 0);
        processes.seed_from_proc();
        Self {
            machine,
            processes,
            table: FrameTable::new(100),
            stacks: Stacks::default(),
        }
    }

    /// The names of the modules on the stack after it travelled at that time, outermost first, and whether it was cut short.
    fn travel(&mut self, time_ns: u64, addresses: &[u64]) -> (Vec<String>, bool) {
        let raw = RawStack {
            head: StackHead {
                user: 7,
                kernel: 0,
                time_ns,
                process_start_boot_ns: 1,
                process_start_ns: 1,
                pid: 2,
                user_len: u16::try_from(addresses.len()).unwrap(),
                kernel_len: 0,
                end: StackEnd::Complete.to_u32(),
                image: 0,
            },
            user: addresses.into(),
            kernel: [].into(),
        };
        self.stacks.add(&raw, &mut self.processes, &mut self.table);
        let key = self.processes.link(2, 1, 1);
        let stack = self.stacks.user(key, 0, 7).unwrap();
        let name = |frame: &FrameId| {
            let module = self.table.get(*frame).module;
            self.processes.modules().get(module).name.to_string()
        };
        (stack.frames.iter().map(name).collect(), stack.end.is_some())
    }
}

// Check that a stack of code made at run time, seen in every pass, has the names that its process gives it late.
#[test]
fn code_named_later() {
    let mut seen = Seen::new(&[(0x1000, "/bin/engine"), (0x5000, "//anon")]);
    let addresses = [0x5010, 0x1010];
    let nameless = ["/bin/engine", "[jit]"].map(str::to_owned);
    for seconds in 10..15 {
        assert_eq!(seen.travel(seconds * SECOND, &addresses).0, nameless);
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    seen.machine.perf_map(2, file.path().to_owned());
    // Looked at once a second at most.
    assert_eq!(seen.travel(14 * SECOND + 1, &addresses).0, nameless);
    let (named, _) = seen.travel(16 * SECOND, &addresses);
    assert_eq!(named, ["/bin/engine", "[jit] /tmp/perf-2.map"]);
}

// Check that a stack with an address in no mapping is whole once the mapping is known, and is resolved no more often than
// mappings change.
#[test]
fn mappings_known_later() {
    for (addresses, at_first) in [
        ([0x1010, 0x5010], (vec!["/bin/engine"], true)),
        ([0x5010, 0x1010], (vec!["/bin/engine", "[unknown]"], false)),
    ] {
        let mut seen = Seen::new(&[(0x1000, "/bin/engine")]);
        let now = 10 * SECOND;
        for step in 0..5 {
            let (modules, cut) = seen.travel(now + step, &addresses);
            assert_eq!(
                (modules.iter().map(String::as_str).collect(), cut),
                at_first
            );
        }
        assert_eq!(seen.processes.counts().unmapped, 1);
        seen.machine
            .show(2, 0, &[(0x1000, "/bin/engine"), (0x5000, "/lib/late")]);
        seen.processes.sweep(now + 10, 0);
        let (mut modules, cut) = seen.travel(now + 20, &addresses);
        modules.sort();
        assert_eq!((modules.len(), &*modules[1], cut), (2, "/lib/late", false));
    }
}
