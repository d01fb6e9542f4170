//! What the daemon says when it cannot start: one sentence, a code that is not zero, and no panic.

use std::net::TcpListener;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Output};

use crate::daemon::{daemon_exe, free_address, privileged};

/// Nobody's user and group number on every Linux.
const NOBODY: u32 = 65_534;

fn refuses(mut command: Command, expected: &[&str]) {
    let output = command.output().expect("the daemon's file can be executed");
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success(), "it started: {errors}");
    assert!(
        output.status.code().is_some_and(|code| code != 101),
        "it ended with {}: {errors}",
        output.status
    );
    assert!(!errors.contains("panicked"), "it panicked: {errors}");
    let sentence = errors
        .trim_end()
        .lines()
        .last()
        .unwrap_or_default()
        .to_lowercase();
    assert!(!sentence.is_empty(), "it says nothing");
    for part in expected {
        assert!(
            sentence.contains(&part.to_lowercase()),
            "`{part}` is not in its last line: {errors}"
        );
    }
}

fn with_config(text: &str) -> (tempfile::TempDir, Command) {
    let directory = tempfile::tempdir().expect("a temporary directory");
    let path = directory.path().join("broken.toml");
    std::fs::write(&path, text).expect("the configuration can be written");
    let mut command = Command::new(daemon_exe());
    command.arg("--config").arg(&path);
    (directory, command)
}

#[test]
fn a_broken_configuration_is_refused_with_its_place() {
    // Check that bad TOML, an unknown key and a value out of bounds are refused with file, line and
    // what is allowed.
    for (text, expected) in [
        ("frequency_hz = \n", &["broken.toml:1"][..]),
        (
            "frequency_hz = 99\nfrequency = 3\n",
            &["broken.toml:2", "frequency"][..],
        ),
        (
            "frequency_hz = 0\n",
            &["broken.toml:1", "frequency_hz", "1"][..],
        ),
        (
            "[limits]\nmax_threads = \"many\"\n",
            &["broken.toml:2", "max_threads"][..],
        ),
        (
            "min_interval = \"5\"\n",
            &["broken.toml:1", "min_interval"][..],
        ),
    ] {
        let (_directory, command) = with_config(text);
        refuses(command, expected);
    }
}

#[test]
fn a_missing_configuration_is_named() {
    // Check that a file that is not there is named.
    let mut command = Command::new(daemon_exe());
    command.args(["--config", "/nonexistent/profiler.toml"]);
    refuses(command, &["/nonexistent/profiler.toml", "no such file"]);
}

#[test]
fn an_unknown_option_is_refused() {
    // Check that an option that does not exist is refused, and not taken for a default.
    let mut command = Command::new(daemon_exe());
    command.arg("--frequency=99");
    let output = command.output().expect("the daemon's file can be executed");
    assert_eq!(output.status.code(), Some(2));
    assert!(
        String::from_utf8_lossy(&output.stderr).contains("--frequency"),
        "the option is named"
    );
}

#[test]
fn a_port_in_use_is_named() {
    // Check that a port that another program holds is told as such, with the address.
    if !privileged() {
        return;
    }
    let address = free_address();
    let _holder = TcpListener::bind(address).expect("the port was free a moment ago");
    let mut command = Command::new(daemon_exe());
    command.args(["--listen", &address.to_string()]);
    refuses(command, &[&address.to_string(), "in use"]);
}

#[test]
fn without_privilege_it_says_which() {
    // Check that a user without privileges gets one sentence that says what is missing, not a list
    // of errors.
    if !privileged() {
        return;
    }
    let directory = tempfile::tempdir().expect("a temporary directory");
    let exe = directory.path().join("profiler-daemon");
    std::fs::copy(daemon_exe(), &exe).expect("the daemon can be copied");
    for path in [directory.path(), exe.as_path()] {
        std::fs::set_permissions(path, PermissionsExt::from_mode(0o755)).expect("the copy is ours");
    }
    let mut command = Command::new(&exe);
    command
        .args(["--listen", &free_address().to_string()])
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/");
    refuses(command, &["CAP_"]);
    let mut doctor = Command::new(&exe);
    doctor
        .arg("doctor")
        .uid(NOBODY)
        .gid(NOBODY)
        .current_dir("/");
    let output = doctor.output().expect("the daemon's file can be executed");
    assert!(
        !output.status.success(),
        "doctor finds nothing wrong: {}",
        both(&output)
    );
    assert!(
        !both(&output).contains("panicked") && both(&output).contains("CAP_"),
        "{}",
        both(&output)
    );
}

#[test]
fn the_doctor_finds_this_machine_fit() {
    // Check that where the other tests run, doctor says so, for people and for programs.
    if !privileged() {
        return;
    }
    let output = Command::new(daemon_exe())
        .arg("doctor")
        .output()
        .expect("the daemon's file can be executed");
    assert!(output.status.success(), "{}", both(&output));
    assert!(
        output.stdout.split(|byte| *byte == b'\n').count() > 3,
        "{}",
        both(&output)
    );
    let output = Command::new(daemon_exe())
        .args(["doctor", "--json"])
        .output()
        .expect("the daemon's file can be executed");
    assert!(output.status.success(), "{}", both(&output));
    assert!(
        serde_json::from_slice::<serde_json::Value>(&output.stdout).is_ok(),
        "{}",
        both(&output)
    );
}

fn both(output: &Output) -> String {
    format!(
        "{}{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}
