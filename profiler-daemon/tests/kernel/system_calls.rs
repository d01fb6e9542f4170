//! System calls: every one is counted, and its time is where the caller felt it.

use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;

use crate::daemon::{self, Settings};
use crate::ledger;
use crate::reads::{self, assert_near, number, system_call};
use crate::workload;

#[test]
fn every_system_call_is_counted() {
    // Check that N calls are N calls, for one kind and for three in turn, and that average and
    // maximum fit the total.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    for (kind, slack) in [("getppid", 0), ("mix", 300)] {
        let finished = workload::run(&format!("storm --count 400000 --kind {kind}"));
        reads::ended(daemon, &finished);
        let events = reads::events(daemon, &finished);
        let expected = finished.truth["syscalls"]
            .as_object()
            .expect("the truth counts its calls");
        for (name, count) in expected {
            let count = count.as_u64().expect("a count is a number");
            let row = system_call(&events, name).unwrap_or_else(|| panic!("no {name} in {events}"));
            let found = number(row, "/count");
            // Start-up and printing read and write too, and the runtime may ask for its pid.
            let slack = if name == "getpid" { 16 } else { slack };
            assert!(
                (count..=count + slack).contains(&found),
                "{name}: {found} calls, {count} made"
            );
            let total_ns = number(row, "/total_ns");
            // The rest of a call's time it was runnable.
            let known_ns = number(row, "/running_ns") + number(row, "/blocked_ns");
            assert!(known_ns <= total_ns, "{name}: {row}");
            assert_eq!(
                number(row, "/average_ns"),
                total_ns / found,
                "{name}: {row}"
            );
            assert!(
                (total_ns / found..=total_ns).contains(&number(row, "/max_ns")),
                "{name}: {row}"
            );
        }
        assert!(
            ledger::check_process(daemon, &finished.selector),
            "the process has just ended"
        );
    }
}

#[test]
fn a_sleeps_time_is_in_its_call() {
    // Check that the sleeps of the gate's holder are so many nanosleep calls of that length,
    // blocked.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("contention --threads 1 --millis 10 --count 40");
    reads::ended(daemon, &finished);
    let events = reads::events(daemon, &finished);
    let row =
        system_call(&events, "nanosleep").unwrap_or_else(|| panic!("no nanosleep in {events}"));
    assert_eq!(number(row, "/count"), 40);
    assert_near(
        "nanosleep",
        number(row, "/total_ns"),
        number(&finished.truth, "/held_ns"),
        0.01,
        5_000_000,
    );
    assert!(
        number(row, "/max_ns") >= 10_000_000,
        "one sleep lasts at least what was asked: {row}"
    );
}

#[test]
fn without_the_hooks_the_rest_is_exact() {
    // Check that with system_calls off no call is counted, that waits are exact by call all the
    // same, as are blocked time and totals, and that the ledger holds.
    let settings = Settings {
        top: "system_calls = \"off\"",
        ..Settings::default()
    };
    let Some(daemon) = daemon::own(&settings) else {
        return;
    };
    let finished = workload::run("contention --threads 2 --millis 20 --count 20");
    let process = reads::ended(&daemon, &finished);
    let events = reads::events(&daemon, &finished);
    let calls = events["syscalls"].as_array().expect("a list");
    assert!(
        calls.iter().all(|row| number(row, "/count") == 0),
        "{events}"
    );
    assert_eq!(events["observed_percent"], 0.0, "{events}");
    let held_ns = number(&finished.truth, "/held_ns");
    let sleeps = system_call(&events, "nanosleep").expect("it sleeps");
    assert_near(
        "nanosleep",
        number(sleeps, "/total_ns"),
        held_ns,
        0.03,
        10_000_000 + finished.stolen_ns,
    );
    assert_near(
        "blocked of three threads",
        reads::classes(&process)[2],
        3 * held_ns,
        0.03,
        30_000_000 + 3 * finished.stolen_ns,
    );
    assert!(
        ledger::check_process(&daemon, &finished.selector),
        "the process has just ended"
    );
}

/// Where the programs below are loaded.
const LOADED_AT: u32 = 0x0800_0000;
/// Calls that they make.
const CALLS: u32 = 5_000;

/// A program of a few instructions, as a file: asks `CALLS` times by the 32-bit table for its
/// parent's number (`int 0x80`), then pauses.
fn program_of_32_bit_calls(is_64_bit: bool) -> Vec<u8> {
    let mut code = vec![0xbe]; // mov esi, CALLS
    code.extend(CALLS.to_le_bytes());
    code.extend([0xb8, 64, 0, 0, 0]); // again: mov eax, getppid
    code.extend([0xcd, 0x80]); // int 0x80
    code.extend([0xff, 0xce]); // dec esi
    code.extend([0x75, 0xf5]); // jnz again
    code.extend([0xb8, 29, 0, 0, 0]); // mov eax, pause
    code.extend([0xcd, 0x80]); // int 0x80
    code.extend([0xeb, 0xf7]); // and so on
    let (header, segment) = if is_64_bit { (64, 56) } else { (52, 32) };
    let entry = LOADED_AT + header + segment;
    let size = header + segment + code.len() as u32;
    let word = |bytes: &mut Vec<u8>, value: u32| {
        bytes.extend(value.to_le_bytes());
        if is_64_bit {
            bytes.extend([0; 4]);
        }
    };
    let mut file = vec![0x7f, b'E', b'L', b'F', 1 + u8::from(is_64_bit), 1, 1];
    file.resize(16, 0);
    file.extend([2, 0, if is_64_bit { 62 } else { 3 }, 0, 1, 0, 0, 0]);
    word(&mut file, entry);
    word(&mut file, header);
    word(&mut file, 0);
    file.extend([0; 4]);
    for half in [header, segment, 1, 0, 0, 0] {
        file.extend((half as u16).to_le_bytes());
    }
    const LOAD: u32 = 1;
    const READ_AND_EXECUTE: u32 = 5;
    file.extend(LOAD.to_le_bytes());
    if is_64_bit {
        file.extend(READ_AND_EXECUTE.to_le_bytes());
    }
    for value in [0, LOADED_AT, LOADED_AT, size, size] {
        word(&mut file, value);
    }
    if !is_64_bit {
        file.extend(READ_AND_EXECUTE.to_le_bytes());
    }
    word(&mut file, 0x1000);
    file.extend(code);
    file
}

#[test]
fn calls_of_the_32_bit_table_have_its_names() {
    // Check that the calls of a 32-bit program, and those that a 64-bit one makes by the 32-bit
    // table, are named by that table, and counted; and that what has that number in the other table
    // is not among them.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let folder = tempfile::tempdir().expect("a temporary directory");
    for is_64_bit in [false, true] {
        let path = folder.path().join(format!("calls-{is_64_bit}"));
        std::fs::write(&path, program_of_32_bit_calls(is_64_bit)).expect("a file can be written");
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))
            .expect("it is this process's file");
        let mut child = match Command::new(&path).spawn() {
            Err(error) if error.raw_os_error() == Some(libc::ENOEXEC) => {
                daemon::say("skipped: this kernel runs no 32-bit programs");
                return;
            }
            child => child.expect("the program can be executed"),
        };
        let selector = format!("{}.{}", child.id(), reads::start_ticks(child.id()));
        let events = reads::until(
            daemon,
            &format!("/processes/{selector}/os-events"),
            reads::unix_now_ns(),
            |events| {
                system_call(events, "pause (32-bit)").is_some_and(|row| row["in_progress"] == 1)
            },
        );
        child.kill().expect("it pauses");
        child.wait().expect("it is this process's child");
        let row = system_call(&events, "getppid (32-bit)");
        let row = row.unwrap_or_else(|| panic!("no getppid in {events}"));
        assert_eq!(number(row, "/count"), u64::from(CALLS), "{events}");
        for other in ["semget", "shmget"] {
            // What 64 and 29 are in the table of 64-bit calls.
            assert!(system_call(&events, other).is_none(), "{other}: {events}");
        }
    }
}
