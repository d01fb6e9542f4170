//! Threads whose end the programs do not see. The test makes them blind for a moment, by the map
//! through which the daemon does.

use std::os::unix::ffi::OsStrExt as _;
use std::time::{Duration, Instant};

use aya::maps::{Array, Map, MapData};
use profiler_common::records::Control;

use crate::daemon::{self, Daemon, Settings};
use crate::ledger;
use crate::reads::{self, number, text, unix_now_ns};
use crate::workload::Workload;

const THREADS: usize = 20;

/// The daemon's control element: the only array of one element of that size among its maps that can
/// be mapped.
fn control(daemon: &Daemon) -> Array<MapData, Control> {
    let folder = format!("/proc/{}/fd", daemon.pid());
    let found = std::fs::read_dir(folder)
        .expect("the daemon lives")
        .find_map(|entry| {
            let path = entry.ok()?.path();
            let target = std::fs::read_link(&path).ok()?;
            if !target.as_os_str().as_bytes().ends_with(b"bpf-map") {
                return None;
            }
            let text = path.to_str().expect("a number").replace("/fd/", "/fdinfo/");
            let text = std::fs::read_to_string(text).ok()?;
            let is = |name: &str, wanted: u64| {
                let value = text
                    .lines()
                    .find_map(|line| line.strip_prefix(name)?.trim().parse().ok());
                value == Some(wanted)
            };
            let size = size_of::<Control>() as u64;
            let id = text
                .lines()
                .find_map(|line| line.strip_prefix("map_id:")?.trim().parse().ok());
            let is_mappable = text.lines().any(|line| line == "map_flags:\t0x400");
            (is_mappable && is("value_size:", size) && is("max_entries:", 1)).then_some(id?)
        });
    let map = MapData::from_id(found.expect("the daemon has its control map"));
    Map::Array(map.expect("it can be opened"))
        .try_into()
        .expect("an array of it")
}

#[test]
fn threads_whose_end_was_missed_do_not_grow_for_ever() {
    // Check that a process whose threads all ended while the programs did not look is reported as
    // exited, some seconds later, with the missed ends counted and nothing left that grows.
    let Some(daemon) = daemon::own(&Settings::default()) else {
        return;
    };
    let mut control = control(&daemon);
    let many = Workload::start(&format!("many --threads {THREADS}"));
    many.ready();
    let selector = many.selector();
    let path = format!("/processes/{selector}");
    reads::until(&daemon, &path, unix_now_ns(), |row| {
        number(row, "/threads") as usize > THREADS
    });
    let mut blind = control.get(&0, 0).expect("the element can be read");
    assert_eq!(blind.enabled, 1);
    blind.enabled = 0;
    control
        .set(0, blind, 0)
        .expect("the element can be written");
    let status = many.stop();
    blind.enabled = 1;
    control
        .set(0, blind, 0)
        .expect("the element can be written");
    assert!(!status.success(), "it was asleep: {status}");
    let row = reads::until(&daemon, &path, unix_now_ns(), |_| true);
    assert_ne!(text(&row, "/state"), "exited", "its end was seen: {row}");

    let deadline = Instant::now() + Duration::from_secs(90);
    let ended = loop {
        let row = daemon.get(&path);
        if text(&row, "/state") == "exited" {
            break row;
        }
        assert!(Instant::now() < deadline, "it lives for ever: {row}");
        std::thread::sleep(Duration::from_millis(500));
    };
    let causes = daemon.get("/session")["completeness"]["causes"].clone();
    let missed = number(&causes, "/thread_ends_missed") as usize;
    // Others may have ended meanwhile; a pass between the two writes lets the programs see again.
    assert!(missed > 0, "{causes}");
    let later = reads::until(&daemon, &path, unix_now_ns() + 1_500_000_000, |_| true);
    assert_eq!(
        number(&later, "/elapsed_ns"),
        number(&ended, "/elapsed_ns"),
        "{later}"
    );
    assert!(
        ledger::check_process(&daemon, &selector),
        "it has just ended"
    );
}
