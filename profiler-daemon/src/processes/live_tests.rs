//! Tests of `live` and `upkeep` over a made-up machine: timelines of records, and what `/proc`
//! shows at the time.

use super::*;
use crate::{
    processes::ids::START_TICK_NS,
    processes::made_up::{self, Machine, link, module_at, sweep},
    sys::perf_record::Device,
    units::FileOffset,
};

const OPTIONS: ProcessOptions = ProcessOptions {
    cmdline: false,
    open_files: 10,
};
const TICK: u64 = START_TICK_NS;

fn machine() -> (Machine, Processes) {
    let machine = Machine::default();
    (
        machine.clone(),
        Processes::new(Box::new(machine), OPTIONS, ClockOffsets::default()),
    )
}

fn fork(pid: u32, ppid: u32, time_ns: u64) -> Event {
    Event::Fork {
        pid,
        ppid,
        tid: pid,
        ptid: ppid,
        time_ns: MonoNs::new(time_ns),
    }
}

fn thread(pid: u32, tid: u32, time_ns: u64) -> Event {
    Event::Fork {
        pid,
        ppid: pid,
        tid,
        ptid: pid,
        time_ns: MonoNs::new(time_ns),
    }
}

fn exec(pid: u32, name: &str, time_ns: u64) -> Event {
    Event::Comm {
        pid,
        tid: pid,
        comm: name.as_bytes().into(),
        exec: true,
        time_ns: MonoNs::new(time_ns),
    }
}

fn exit(pid: u32, tid: u32, time_ns: u64) -> Event {
    Event::Exit {
        pid,
        tid,
        time_ns: MonoNs::new(time_ns),
    }
}

fn mmap(pid: u32, start: u64, path: &str, time_ns: u64) -> Event {
    Event::Mmap(MmapEvent {
        pid,
        tid: pid,
        start: VirtualAddress::new(start),
        len_bytes: 0x1000,
        file_offset: FileOffset::ZERO,
        device: Device { major: 8, minor: 1 },
        inode: made_up::inode(path),
        inode_generation: 0,
        prot: 5,
        flags: 2,
        path: path.as_bytes().into(),
        time_ns: MonoNs::new(time_ns),
    })
}

/// The name of the module at an address, and the offset.
fn module(
    processes: &mut Processes,
    key: ProcessKey,
    time_ns: u64,
    address: u64,
) -> Option<String> {
    let place = processes.resolve(key, MonoNs::new(time_ns), VirtualAddress::new(address))?;
    Some(processes.modules().get(place.module).name.to_string())
}

fn apply(processes: &mut Processes, events: &[Event]) {
    for event in events {
        processes.apply(event);
    }
}

// Check a child's life: fork 100 exec 200 /bin/new 210 exit 300; the kernel says it started at 99.
#[test]
fn fork_exec_exit() {
    let (machine, mut processes) = machine();
    machine.show(1, 0, &[(0x1000, "/bin/old")]);
    processes.seed_from_proc();
    let events = [
        fork(2, 1, 100),
        exec(2, "new", 200),
        mmap(2, 0x5000, "/bin/new", 210),
        mmap(2, 0x9000, "/lib/library", 220),
        exit(2, 2, 300),
    ];
    apply(&mut processes, &events);
    let key = link(&mut processes, 2, 99);
    assert_eq!(
        module(&mut processes, key, 150, 0x1010).as_deref(),
        Some("/bin/old")
    );
    assert_eq!(module(&mut processes, key, 250, 0x1010), None);
    assert_eq!(
        module(&mut processes, key, 250, 0x5010).as_deref(),
        Some("/bin/new")
    );
    let info = processes.info(key).unwrap();
    assert_eq!(
        (info.ppid, info.exited_ns, info.facts.uid),
        (1, Some(MonoNs::new(300)), Some(7))
    );
    assert_eq!(info.facts.exe.as_deref(), Some("/bin/new"));
    let image = info.facts.image.as_deref().unwrap();
    assert_eq!(
        (image.device, image.inode, &*image.path),
        (8 << 32 | 1, 5, "/bin/new")
    );
    assert_eq!(&info.comm[..4], b"new\0");
    assert_eq!(processes.mappings(key).unwrap().generation(), 1);
}

// Check that taking in the records of a new program reads nothing about it, and that it is
// described right afterwards: once, and for good, though it ends then.
#[test]
fn described_after_its_records() {
    let (machine, mut processes) = machine();
    machine.show(1, 0, &[]);
    processes.seed_from_proc();
    machine.show(2, 0, &[]);
    let events = [
        fork(2, 1, 100),
        exec(2, "sh", 200),
        mmap(2, 0x1000, "/bin/first", 205),
        exec(2, "new", 210),
        mmap(2, 0x5000, "/bin/mapped", 215),
    ];
    apply(&mut processes, &events);
    assert_eq!(machine.described(2), 0);
    processes.describe_new();
    processes.describe_new();
    assert_eq!(machine.described(2), 1);
    machine.hide(2);
    let key = link(&mut processes, 2, 99);
    let facts = processes.info(key).unwrap().facts;
    assert_eq!(
        (facts.exe.as_deref(), facts.uid),
        (Some("/bin/shown"), Some(7))
    );
}

// Check that of more new programs than may be described in a pass, the others are described when
// they are asked for.
#[test]
fn described_when_asked_for() {
    let (machine, mut processes) = machine();
    machine.show(1, 0, &[]);
    processes.seed_from_proc();
    let pids = 2..MAX_GATHERS + 12;
    for pid in pids.clone() {
        machine.show(pid, 0, &[]);
        apply(&mut processes, &[fork(pid, 1, 100), exec(pid, "new", 200)]);
    }
    processes.describe_new();
    let described = || -> u32 { pids.clone().map(|pid| machine.described(pid)).sum() };
    assert_eq!(described(), MAX_GATHERS);
    let key = link(&mut processes, MAX_GATHERS + 11, 99);
    assert_eq!(processes.info(key).unwrap().facts.uid, Some(7));
    assert_eq!(described(), MAX_GATHERS + 1);
    sweep(&mut processes, 1000);
    apply(&mut processes, &[exec(MAX_GATHERS + 10, "again", 2000)]);
    processes.describe_new();
    assert_eq!(described(), MAX_GATHERS + 2);
}

// Check that one number used by three processes stays three: each key finds its own, in whatever
// order they are linked.
#[test]
fn reused_pid() {
    let (machine, mut processes) = machine();
    machine.show(1, 0, &[]);
    machine.show(9, 5, &[(0x1000, "/bin/first")]);
    processes.seed_from_proc();
    machine.hide(9);
    let later = 6_000_000_000;
    let events = [
        exit(9, 9, 5_500_000_000),
        fork(9, 1, later),
        mmap(9, 0x1000, "/bin/second", later + 1),
        exit(9, 9, later + 2),
        fork(9, 1, 2 * later),
        mmap(9, 0x1000, "/bin/third", 2 * later + 1),
    ];
    apply(&mut processes, &events);
    let third = link(&mut processes, 9, 2 * later - 5);
    let first = link(&mut processes, 9, 5 * TICK + 3);
    let second = link(&mut processes, 9, later - 7);
    for (key, name) in [
        (first, "/bin/first"),
        (second, "/bin/second"),
        (third, "/bin/third"),
    ] {
        assert_eq!(
            module(&mut processes, key, 3 * later, 0x1000).as_deref(),
            Some(name)
        );
    }
    assert!(processes.info(third).unwrap().exited_ns.is_none());
    assert_eq!(processes.counts().vanished, 0);
}

// Check that a process the kernel side sees before its records are read is one process, not two,
// and gets its parent's mappings once the fork is read.
#[test]
fn linked_before_its_fork_is_read() {
    let (machine, mut processes) = machine();
    machine.show(1, 0, &[(0x1000, "/bin/old")]);
    processes.seed_from_proc();
    let key = link(&mut processes, 2, 1000);
    assert_eq!(processes.counts().vanished, 1);
    assert_eq!(module(&mut processes, key, 1500, 0x1000), None);
    apply(&mut processes, &[exit(2, 2, 900), fork(2, 1, 1200)]);
    assert_eq!(
        module(&mut processes, key, 1500, 0x1000).as_deref(),
        Some("/bin/old")
    );
    assert_eq!(processes.len(), 2);
    assert!(processes.info(key).unwrap().exited_ns.is_none());
}

// Check that a process found in /proc and its fork record, read later, are one process.
#[test]
fn seeded_before_its_fork_is_read() {
    let (machine, mut processes) = machine();
    machine.show(3, 7, &[(0x1000, "/bin/a")]);
    processes.seed_from_proc();
    processes.apply(&fork(3, 1, 7 * TICK + 500));
    assert_eq!(processes.len(), 1);
    let key = link(&mut processes, 3, 7 * TICK + 100);
    assert_eq!(
        module(&mut processes, key, 8 * TICK, 0x1000).as_deref(),
        Some("/bin/a")
    );
}

// Check that the end of the first thread is not the end of a process that has others, that the last
// thread's is, and that an exec by another thread brings a process back.
#[test]
fn threads_and_ends() {
    let (machine, mut processes) = machine();
    machine.show(1, 0, &[]);
    machine.show(4, 0, &[]);
    machine.threads(4, 3);
    processes.seed_from_proc();
    let key = link(&mut processes, 4, 10);
    let ended = |processes: &mut Processes| processes.info(key).unwrap().exited_ns;
    apply(
        &mut processes,
        &[thread(4, 5, 50), exit(4, 5, 60), exit(4, 4, 100)],
    );
    assert_eq!(ended(&mut processes), None);
    machine.threads(4, 1);
    processes.apply(&exit(4, 6, 200));
    assert_eq!(ended(&mut processes), Some(MonoNs::new(200)));
    apply(
        &mut processes,
        &[exec(4, "again", 300), mmap(4, 0x9000, "/bin/again", 301)],
    );
    assert_eq!(ended(&mut processes), None);
    assert_eq!(
        module(&mut processes, key, 301, 0x9000).as_deref(),
        Some("/bin/again")
    );
}

// Check that after lost records everything is read again: what mapped something is known, what
// ended has ended, what is new is found.
#[test]
fn lost_records() {
    let (machine, mut processes) = machine();
    machine.show(1, 0, &[]);
    machine.show(2, 0, &[(0x1000, "/bin/a")]);
    machine.show(3, 0, &[]);
    processes.seed_from_proc();
    let [two, three] = [2, 3].map(|pid| link(&mut processes, pid, 1));
    machine.show(2, 0, &[(0x1000, "/bin/b"), (0x5000, "/lib/c")]);
    machine.hide(3);
    machine.show(8, 400, &[(0x1000, "/bin/new")]);
    let now = 10_000_000_000;
    processes.apply(&Event::Lost {
        records: 5,
        time_ns: MonoNs::new(now),
    });
    sweep(&mut processes, now + 5);
    assert_eq!(
        module(&mut processes, two, now, 0x5000).as_deref(),
        Some("/lib/c")
    );
    assert_eq!(
        module(&mut processes, two, now, 0x1000).as_deref(),
        Some("/bin/b")
    );
    assert_eq!(
        module(&mut processes, two, 5, 0x1000).as_deref(),
        Some("/bin/a")
    );
    assert_eq!(
        processes.info(three).unwrap().exited_ns,
        Some(MonoNs::new(now + 5))
    );
    let eight = link(&mut processes, 8, 400 * TICK);
    assert_eq!(
        module(&mut processes, eight, now, 0x1000).as_deref(),
        Some("/bin/new")
    );
    assert_eq!(
        (processes.counts().records_lost, processes.counts().vanished),
        (5, 0)
    );
}

// Check that records lost in every pass leave no process out: all are read again in turn, those
// with addresses in no mapping first, as often as these come up.
#[test]
fn lost_records_again_and_again() {
    let (machine, mut processes) = machine();
    let pids = 1..200;
    for pid in pids.clone() {
        machine.show(pid, 0, &[]);
    }
    processes.seed_from_proc();
    let keys: Vec<_> = pids
        .clone()
        .map(|pid| link(&mut processes, pid, 1))
        .collect();
    for pid in pids {
        machine.show(pid, 0, &[(0x1000, "/lib/late")]);
    }
    let mut known = Vec::new();
    for pass in 1..=14 {
        let now = pass * 10_000_000_000;
        // More than have room in a pass.
        for key in &keys[100..140] {
            assert_eq!(module(&mut processes, *key, now, 0x7000), None);
        }
        processes.apply(&Event::Lost {
            records: 1,
            time_ns: MonoNs::new(now),
        });
        sweep(&mut processes, now);
        let known_in = |keys: &[ProcessKey]| {
            let mappings = keys.iter().filter_map(|key| processes.mappings(*key));
            mappings
                .filter(|mappings| !mappings.present().is_empty())
                .count()
        };
        known.push((known_in(&keys), known_in(&keys[100..140])));
    }
    assert!((16..=32).contains(&known[0].1), "{known:?}");
    assert_eq!(known[13].0, keys.len(), "{known:?}");
}

// Check that an address in no mapping has the maps read again, but not again and again, and never
// another process's.
#[test]
fn unknown_addresses() {
    let (machine, mut processes) = machine();
    machine.show(2, 0, &[]);
    processes.seed_from_proc();
    let key = link(&mut processes, 2, 1);
    machine.show(2, 0, &[(0x1000, "/lib/late")]);
    let now = 10_000_000_000;
    assert_eq!(module(&mut processes, key, now, 0x1000), None);
    sweep(&mut processes, now);
    assert_eq!(
        module(&mut processes, key, now, 0x1000).as_deref(),
        Some("/lib/late")
    );
    for step in 0..10 {
        assert_eq!(module(&mut processes, key, now, 0x7000), None);
        sweep(&mut processes, now + step * 100_000_000);
    }
    assert_eq!(processes.counts().reread, 1);
    machine.show(2, 99, &[(0x7000, "/bin/stranger")]);
    sweep(&mut processes, now + 5_000_000_000);
    assert_eq!(processes.counts().reread, 2);
    assert_eq!(module(&mut processes, key, now, 0x7000), None);
    assert!(processes.info(key).unwrap().exited_ns.is_some());
}

// Check that ended processes are forgotten: soon when the kernel side is done, late when it never
// says so.
#[test]
fn forgets_the_ended() {
    let (machine, mut processes) = machine();
    machine.show(1, 0, &[]);
    processes.seed_from_proc();
    apply(
        &mut processes,
        &[fork(2, 1, 10), fork(3, 1, 10), fork(4, 1, 10)],
    );
    let [two, three] = [2, 3].map(|pid| link(&mut processes, pid, 9));
    apply(
        &mut processes,
        &[exit(2, 2, 100), exit(3, 3, 100), exit(4, 4, 100)],
    );
    processes.retire(two);
    sweep(&mut processes, 1_000_000_000);
    assert_eq!(processes.len(), 4);
    sweep(&mut processes, 20_000_000_000);
    assert_eq!(processes.len(), 2);
    assert!(processes.info(two).is_none() && processes.info(three).is_some());
    sweep(&mut processes, 2_000_000_000_000);
    assert_eq!(processes.len(), 1);
    assert_eq!(processes.by_key.len() + processes.by_pid.len(), 1);
}

// Check that a child whose parent was never seen is read from /proc rather than left empty.
#[test]
fn unknown_parent() {
    let (machine, mut processes) = machine();
    machine.show(2, 100, &[(0x1000, "/bin/orphan")]);
    processes.apply(&fork(2, 77, 100 * TICK + 5));
    let key = link(&mut processes, 2, 100 * TICK);
    sweep(&mut processes, 101 * TICK);
    assert_eq!(
        module(&mut processes, key, 101 * TICK, 0x1000).as_deref(),
        Some("/bin/orphan")
    );
}

// Check that a fork storm is bounded and counted.
#[test]
fn too_many() {
    let (_, mut processes) = machine();
    for pid in 1..=u32::try_from(MAX_PROCESSES).unwrap() + 5 {
        processes.apply(&fork(pid, 0, 10));
    }
    assert_eq!(processes.len(), MAX_PROCESSES);
    assert_eq!(processes.counts().refused, 5);
}

// Check that a program finds the file that names its code at once, though that of the program
// before it was just found.
#[test]
fn names_of_code_after_an_exec() {
    let (machine, mut processes) = machine();
    machine.show(2, 0, &[(0x1000, "//anon")]);
    let file = tempfile::NamedTempFile::new().unwrap();
    machine.perf_map(2, file.path().to_owned());
    // Linked while records wait to be read: /proc tells of the program that they are about.
    let key = link(&mut processes, 2, 1);
    let now = 10_000_000_000;
    let named = module_at(&mut processes, key, now);
    assert_ne!(named, ModuleId::JIT);
    let events = [exec(2, "new", now - 5), mmap(2, 0x1000, "//anon", now - 4)];
    apply(&mut processes, &events);
    assert_eq!(module_at(&mut processes, key, now + 1), named);
}

// Check that a file that was closed is opened through another process that has it mapped where the
// one that mapped it last, by a path of its own, is gone; and that it is looked for again after
// nobody led to it.
#[test]
fn a_file_that_was_mapped_by_another_path() {
    let (machine, mut processes) = machine();
    let (now, folder) = (10_000_000_000, tempfile::tempdir().unwrap());
    let show = |processes: &mut Processes, pid, user, path, file: &str| {
        let file = folder.path().join(file);
        if !file.exists() {
            std::fs::write(&file, "text").unwrap();
        }
        machine.show(pid, 0, &[(0x1000, path)]);
        machine.user(pid, user);
        machine.file(pid, file);
        let key = link(processes, pid, 1);
        module_at(processes, key, now)
    };
    let module = show(&mut processes, 2, 7, "/lib/own", "own");
    let attacked = show(&mut processes, 3, 7, "/attack/own", "own");
    assert_eq!(attacked, module);
    let seen = |processes: &Processes| processes.seen(module).unwrap();
    assert_eq!(*seen(&processes).path, *b"/attack/own");
    machine.hide(3);
    for pid in 10..30 {
        show(&mut processes, pid, pid, "/lib/other", &pid.to_string());
    }
    machine.hide(2);
    assert!(processes.file(module).is_none());
    assert_eq!(show(&mut processes, 2, 7, "/lib/own", "own"), module);
    let file = processes.file(module).unwrap();
    assert_eq!(file.module, module);
    assert_eq!(*seen(&processes).path, *b"/lib/own");
}

// Check that a user whose processes all name the code they make takes the file of nobody else's,
// and that those of his own that were closed for want of room are opened again when they are asked
// for.
#[test]
fn many_files_that_name_code() {
    let (machine, mut processes) = machine();
    let file = tempfile::NamedTempFile::new().unwrap();
    let now = 10_000_000_000;
    let modules: Vec<ModuleId> = (2..202)
        .map(|pid| {
            machine.show(pid, 0, &[(0x1000, "//anon")]);
            machine.perf_map(pid, file.path().to_owned());
            machine.user(pid, if pid == 2 { 7 } else { 8 });
            let key = link(&mut processes, pid, 1);
            module_at(&mut processes, key, now)
        })
        .collect();
    assert_eq!(processes.file_counts().evicted, 200 - 64);
    assert!(processes.file(modules[0]).is_some());
    assert_eq!(processes.file_counts().evicted, 200 - 64);
    let again = processes.file(modules[1]).unwrap();
    assert_eq!(again.module, modules[1]);
    machine.hide(4);
    assert!(processes.file(modules[2]).is_none());
}

// Check that modules stay that a process has mapped, or had before it ended or executed another
// program a short while ago, and leave when that is forgotten.
#[test]
fn modules_leave_with_their_last_mapping() {
    const SECOND: u64 = 1_000_000_000;
    let (machine, mut processes) = machine();
    machine.show(1, 0, &[(0x1000, "/bin/old"), (0x3000, "/lib/shared")]);
    machine.show(2, 0, &[(0x1000, "/bin/ends"), (0x3000, "/lib/shared")]);
    processes.seed_from_proc();
    apply(
        &mut processes,
        &[exec(1, "new", 200), mmap(1, 0x5000, "/bin/new", 210)],
    );
    machine.hide(2);
    apply(&mut processes, &[exit(2, 2, 300)]);
    let left = |processes: &mut Processes| {
        let before = processes.modules().view();
        let gone = processes.sweep_modules(|_| {});
        let mut names: Vec<String> = gone
            .iter()
            .map(|id| before.get(*id).name.to_string())
            .collect();
        names.sort();
        names
    };
    assert!(left(&mut processes).is_empty());
    sweep(&mut processes, SECOND);
    assert!(left(&mut processes).is_empty());
    sweep(&mut processes, 7 * SECOND);
    assert_eq!(
        left(&mut processes),
        ["/bin/ends", "/bin/old", "/lib/shared"]
    );
    let key = link(&mut processes, 1, 0);
    let now = module(&mut processes, key, 7 * SECOND, 0x5010);
    assert_eq!(now.as_deref(), Some("/bin/new"));
}

// Check that a file that was mapped when there was no room for its module is one once there is
// some.
#[test]
fn a_module_without_room_is_looked_at_again() {
    use super::super::module::{Module, ModuleIdentity, ModuleKind};
    let (machine, mut processes) = machine();
    machine.show(2, 0, &[(0x1000, "/bin/shown")]);
    processes.seed_from_proc();
    for number in 0.. {
        let name: Box<str> = format!("[{number}]").into();
        let table = processes.modules_mut();
        let filler = || Module::named("[filler]", ModuleKind::KernelModule);
        if table.intern(ModuleIdentity::Named(name), filler) == ModuleId::UNKNOWN {
            break;
        }
    }
    apply(&mut processes, &[mmap(2, 0x9000, "/lib/late", 220)]);
    let key = link(&mut processes, 2, 0);
    let name = module(&mut processes, key, 300, 0x9010);
    assert_eq!(name.as_deref(), Some("[unknown]"));
    assert!(processes.modules().wants_sweep());
    assert!(processes.sweep_modules(|_| {}).len() > 60_000);
    machine.show(2, 0, &[(0x1000, "/bin/shown"), (0x9000, "/lib/late")]);
    sweep(&mut processes, 1_000);
    let name = module(&mut processes, key, 1_100, 0x9010);
    assert_eq!(name.as_deref(), Some("/lib/late"));
}
