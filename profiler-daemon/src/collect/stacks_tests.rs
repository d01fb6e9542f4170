//! Tests of `stacks` over a made-up machine: what becomes of a stack that travels again and again.

use super::*;
use crate::processes::{live::ProcessOptions, made_up::Machine};
use crate::sys::clock::ClockOffsets;
use crate::units::VirtualAddress;
use profiler_common::records::StackHead;

const SECOND: u64 = 1_000_000_000;

/// Frames as they travel.
fn places(addresses: &[u64]) -> Box<[VirtualAddress]> {
    addresses.iter().copied().map(VirtualAddress::new).collect()
}

/// A process whose one stack travels.
struct SeenStacks {
    machine: Machine,
    processes: Processes,
    table: FrameTable,
    stacks: StackCache,
}

impl SeenStacks {
    fn new(maps: &[(u64, &'static str)]) -> Self {
        let machine = Machine::default();
        machine.show(2, 0, maps);
        let options = ProcessOptions {
            cmdline: false,
            open_files: 10,
        };
        let mut processes =
            Processes::new(Box::new(machine.clone()), options, ClockOffsets::default());
        processes.seed_from_proc();
        Self {
            machine,
            processes,
            table: FrameTable::new(100),
            stacks: StackCache::default(),
        }
    }

    /// The names of the modules on the stack after it travelled at that time, outermost first, and
    /// whether it was cut short.
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
            user: places(addresses),
            kernel: [].into(),
        };
        self.stacks.add(&raw, &mut self.processes, &mut self.table);
        let key = self.processes.link(2, MonoNs::new(1), BootNs::new(1));
        let stack = self.stacks.user(key, 0, 7).unwrap();
        let name = |frame: &FrameId| {
            let module = self.table.get(*frame).module;
            self.processes.modules().get(module).name.to_string()
        };
        (stack.frames.iter().map(name).collect(), stack.end.is_some())
    }
}

// Check that code made at run time is one module by the name of its process, and that a stack of
// it, seen in every pass, has the names that its process gives it late.
#[test]
fn code_named_later() {
    let mut seen = SeenStacks::new(&[(0x1000, "/bin/engine"), (0x5000, "//anon")]);
    let addresses = [0x5010, 0x1010];
    let nameless = ["/bin/engine", "[jit] shown"].map(str::to_owned);
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

// Check that code without names is one frame wherever it called and however deep, that instructions
// at which a thread was are told apart up to the bound, and those that were go on to be.
#[test]
fn nameless_code_stays_together() {
    let mut seen = SeenStacks::new(&[(0x1000, "/bin/engine"), (0x5000, "//anon")]);
    let mut innermost = Vec::new();
    for address in [0x5010, 0x5020, 0x5030, 0x5040, 0x5050, 0x5020] {
        let addresses = [address, 0x5100, 0x5200, 0x1010, 0x5300, 0x5400, 0x1020];
        seen.stacks = StackCache {
            nameless: std::mem::take(&mut seen.stacks.nameless),
            ..StackCache::default()
        };
        let (modules, cut) = seen.travel(10 * SECOND, &addresses);
        let (engine, nameless) = ("/bin/engine", "[jit] shown");
        assert_eq!(
            (modules, cut),
            (
                vec![
                    engine.to_owned(),
                    nameless.to_owned(),
                    engine.to_owned(),
                    nameless.to_owned()
                ],
                false
            )
        );
        let key = seen.processes.link(2, MonoNs::new(1), BootNs::new(1));
        let frames = seen.stacks.user(key, 0, 7).unwrap().frames;
        assert_eq!(seen.table.get(frames[1]).offset, ModuleOffset::ZERO);
        innermost.push(seen.table.get(frames[3]).offset.get());
    }
    assert_eq!(innermost, [0x5010, 0x5020, 0x5030, 0, 0, 0x5020]);
}

// Check that a stack with an address in no mapping is whole once the mapping is known, and is
// resolved no more often than mappings change.
#[test]
fn mappings_known_later() {
    for (addresses, at_first) in [
        ([0x1010, 0x5010], (vec!["/bin/engine"], true)),
        ([0x5010, 0x1010], (vec!["/bin/engine", "[unknown]"], false)),
    ] {
        let mut seen = SeenStacks::new(&[(0x1000, "/bin/engine")]);
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
        seen.processes
            .sweep(MonoNs::new(now + 10), ClockOffsets::default());
        let (mut modules, cut) = seen.travel(now + 20, &addresses);
        modules.sort();
        assert_eq!((modules.len(), &*modules[1], cut), (2, "/lib/late", false));
    }
}

/// A walk of user code of a process that began when it was shown.
fn walk(pid: u32, id: u64, addresses: &[u64]) -> RawStack {
    RawStack {
        head: StackHead {
            user: id,
            kernel: id,
            time_ns: 10 * SECOND,
            process_start_boot_ns: 1,
            process_start_ns: 1,
            pid,
            user_len: u16::try_from(addresses.len()).unwrap(),
            kernel_len: 1,
            end: StackEnd::Complete.to_u32(),
            image: 0,
        },
        user: places(addresses),
        kernel: places(&[0xffff_ffff_8000_0000 + id % 0x1000_0000]),
    }
}

// Check that a process that invents frames and stacks, more than the tables hold, leaves room for
// the stacks of others while it does so, of its user's too, and that its frames leave with its
// stacks, so that it can have others then.
#[test]
fn invented_stacks_leave_room() {
    const ATTACKER: u32 = 2;
    let machine = Machine::default();
    let invented: Vec<(u64, &'static str)> = (0..512u64)
        .map(|page| (0x1000_0000 + page * 0x1000, "//anon"))
        .collect();
    machine.show(ATTACKER, 0, &invented);
    // Code that it names, so that each address is a frame.
    let names = tempfile::NamedTempFile::new().unwrap();
    machine.perf_map(ATTACKER, names.path().to_owned());
    let victims = [(3, 1001), (4, 1000)];
    for (pid, uid) in victims {
        machine.show(pid, 0, &[(0x1000, "/bin/victim")]);
        machine.user(pid, uid);
    }
    machine.user(ATTACKER, 1000);
    let options = ProcessOptions {
        cmdline: false,
        open_files: 10,
    };
    let mut processes = Processes::new(Box::new(machine.clone()), options, ClockOffsets::default());
    processes.seed_from_proc();
    let (mut stacks, mut table) = (StackCache::default(), FrameTable::new(1 << 20));
    // Whether all of a new stack of a process is known, of user and of kernel frames.
    let travel =
        |stacks: &mut StackCache, table: &mut FrameTable, processes: &mut Processes, pid, id| {
            let addresses = [0x1000 + id % 0x1000, 0x1001 + id % 0xfff];
            stacks.add(
                &walk(pid, u64::from(pid) << 32 | id, &addresses),
                processes,
                table,
            );
            let key = processes.link(pid, MonoNs::new(1), BootNs::new(1));
            let user = stacks.user(key, 0, u64::from(pid) << 32 | id);
            let kernel = stacks.kernel(u64::from(pid) << 32 | id);
            let is_known = |frames: &[FrameId]| !frames.contains(&FrameId::UNKNOWN);
            user.is_some_and(|stack| is_known(&stack.frames) && stack.end.is_none())
                && kernel.is_some_and(|frames| is_known(&frames))
        };
    let pages = invented.len() as u64;
    for id in 0..80_000 {
        // Of the first ones each frame is new.
        let first = 0x1000_0000 + id * 64 % (pages * 0x1000 - 64);
        let addresses: Vec<u64> = (first..first + 64).collect();
        let frames = if id < 32_000 { 64 } else { 1 };
        stacks.add(
            &walk(ATTACKER, 1 + id, &addresses[..frames]),
            &mut processes,
            &mut table,
        );
        if id % 500 == 0 {
            for (pid, _) in victims {
                assert!(
                    travel(&mut stacks, &mut table, &mut processes, pid, id),
                    "{pid} at {id}"
                );
            }
        }
    }
    assert_eq!((table.refused().full, stacks.refused().full), (0, 0));
    assert!(table.refused().over_share > 100_000 && table.len() < (1 << 20) / 3 + 100_000);
    assert!(stacks.refused().over_share > 50_000 && stacks.known()[0] < MAX_STACKS / 2);
    for _ in 0..3 {
        stacks.end_pass();
    }
    let gone = table.sweep(|marks| stacks.mark(marks));
    assert!(gone > 300_000 && table.len() < 1_000, "{gone}");
    machine.show(9, 0, &[(0x1000, "/bin/late")]);
    assert!(travel(&mut stacks, &mut table, &mut processes, 9, 1));
    stacks.add(
        &walk(ATTACKER, 1, &[0x1000_0000]),
        &mut processes,
        &mut table,
    );
    let key = processes.link(ATTACKER, MonoNs::new(1), BootNs::new(1));
    assert!(stacks.user(key, 0, 1).is_some_and(|stack| !stack.cramped));
}

// Check that a stack whose frames found no room is whole once it travels again and there is some.
#[test]
fn cramped_stacks_are_resolved_again() {
    let mut seen = SeenStacks::new(&[(0x1000, "/bin/engine")]);
    seen.table = FrameTable::new(2);
    let (_, _) = seen.travel(10 * SECOND, &[0x1010, 0x1020]);
    assert_eq!(seen.table.refused().total(), 1);
    let full = std::mem::replace(&mut seen.table, FrameTable::new(10));
    assert!(full.wants_sweep());
    let (modules, _) = seen.travel(11 * SECOND, &[0x1010, 0x1020]);
    assert_eq!(modules, ["/bin/engine", "/bin/engine"]);
}
