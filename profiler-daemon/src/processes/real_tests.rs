//! The whole stage against real processes of this machine: side-band, `/proc`, files. Needs the
//! right to hear the side-band (root); without it there is nothing to test.

use std::{
    fs,
    process::Command,
    time::{Duration, Instant},
};

use super::{
    ids::ProcessKey,
    live::{ProcessOptions, Processes},
    module::ModuleKind,
    source::ProcFs,
};
use crate::sys::{
    clock::{self, ClockOffsets},
    perf_event::SideBand,
    perf_record::Event,
    waker::Waker,
};
use crate::units::{BootNs, MonoNs};

const OPTIONS: ProcessOptions = ProcessOptions {
    cmdline: true,
    open_files: 100,
};

fn start() -> Option<(SideBand, Processes)> {
    let side_band = SideBand::open(256 << 10).ok()?;
    let clocks = ClockOffsets::now();
    Some((side_band, Processes::new(Box::new(ProcFs), OPTIONS, clocks)))
}

/// Handles records until `done` says so of one; answers its time.
fn follow(
    side_band: &mut SideBand,
    processes: &mut Processes,
    done: impl Fn(&Event) -> bool,
) -> MonoNs {
    let waker = Waker::new().unwrap();
    let deadline = Instant::now() + Duration::from_secs(20);
    loop {
        assert!(Instant::now() < deadline, "the record never came");
        side_band.wait(Duration::from_millis(100), &waker).unwrap();
        let mut found = None;
        side_band.read(|event| {
            processes.apply(&event);
            if done(&event) {
                found = Some(event.time_ns());
            }
        });
        processes.describe_new();
        if let Some(time_ns) = found {
            return time_ns;
        }
    }
}

// Check that a program that lives 50 ms and whose file is deleted meanwhile is known by name, user
// and file after its end.
#[test]
fn short_life() {
    let Some((mut side_band, mut processes)) = start() else {
        return;
    };
    processes.seed_from_proc();
    let directory = tempfile::tempdir().unwrap();
    let program = directory.path().join("briefly");
    fs::copy("/bin/sleep", &program).unwrap();
    let before_ns = clock::monotonic_ns();
    let mut child = Command::new(&program).arg("0.05").spawn().unwrap();
    let pid = child.id();
    let path = program.as_os_str().as_encoded_bytes().to_vec();
    let mapped_ns = follow(
        &mut side_band,
        &mut processes,
        |event| matches!(event, Event::Mmap(mmap) if mmap.pid == pid && *mmap.path == *path),
    );
    fs::remove_file(&program).unwrap();
    child.wait().unwrap();
    let exit_ns = follow(
        &mut side_band,
        &mut processes,
        |event| matches!(event, Event::Exit { pid: ended, .. } if *ended == pid),
    );
    let clocks = ClockOffsets::now();
    let key = processes.link(pid, before_ns, clocks.boot_from_monotonic(before_ns));
    let info = processes.info(key).unwrap();
    assert_eq!(info.facts.exe.as_deref(), program.to_str());
    assert_eq!(info.ppid, std::process::id());
    assert_eq!(&info.comm[..8], b"briefly\0");
    assert_eq!(info.exited_ns, Some(exit_ns));
    assert!(info.facts.uid.is_some() && info.facts.cgroup.is_some());
    let mappings = processes.mappings(key).unwrap();
    let modules = processes.modules().clone();
    let module = mappings
        .present()
        .iter()
        // Not by its name: another copy of the same program may run, and have given it its.
        .find(|mapping| mapping.since_ns == mapped_ns);
    let module = module.expect("the program is mapped");
    let place = processes.resolve(key, exit_ns, module.start + 5).unwrap();
    assert_eq!(place.module, module.module);
    assert!(
        processes
            .resolve(key, mapped_ns - 1, module.start)
            .is_none()
    );
    assert!(processes.file(module.module).is_some());
    assert!(
        mappings
            .present()
            .iter()
            .any(|mapping| modules.get(mapping.module).kind == ModuleKind::Vdso)
    );
}

// Check that a process that was there before has the same mappings as one heard from the side-band,
// by module and offset.
#[test]
fn seeded_and_heard_agree() {
    let Some((mut side_band, mut heard)) = start() else {
        return;
    };
    let before_ns = clock::monotonic_ns();
    let mut child = Command::new("/bin/sleep").arg("60").spawn().unwrap();
    let pid = child.id();
    follow(
        &mut side_band,
        &mut heard,
        |event| matches!(event, Event::Mmap(mmap) if mmap.pid == pid && mmap.path.windows(5).any(|part| part == b"libc.")),
    );
    let clocks = ClockOffsets::now();
    let mut seeded = Processes::new(Box::new(ProcFs), OPTIONS, clocks);
    seeded.seed_from_proc();
    let ticks = crate::sys::proc_fs::stat(pid).unwrap().start_ticks;
    let key: ProcessKey = seeded.link(
        pid,
        before_ns,
        BootNs::new(ticks * super::ids::START_TICK_NS),
    );
    let heard_key = heard.link(pid, before_ns, clocks.boot_from_monotonic(before_ns));
    child.kill().unwrap();
    child.wait().unwrap();
    let now_ns = clock::monotonic_ns();
    let listed = seeded.mappings(key).unwrap();
    let mut compared = 0;
    for mapping in listed.present() {
        let Some(other) = heard.resolve(heard_key, now_ns, mapping.start) else {
            continue;
        };
        let here = mapping.place(mapping.start);
        assert_eq!(here.offset, other.offset);
        assert_eq!(
            seeded.modules().get(here.module),
            heard.modules().get(other.module)
        );
        compared += 1;
    }
    // The program, the loader, the C library, the vDSO.
    assert!(compared >= 4, "{listed:?}");
}
