//! The interface asked by schemathesis, which makes right and wrong requests out of its description
//! and checks the answers by it.
//!
//! `cargo xtask test` installs it (`tests/http/schemathesis`). Without it these tests are skipped,
//! but not where `CI` is set.

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::time::Duration;

use profiler_daemon::config::Config;
use profiler_daemon::http::HttpOptions;
use profiler_daemon::metrics::RequestCounts;

use super::backend::Fake;
use super::connections::start;

/// The folder that everything is built in.
fn target_dir() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

/// The program, if it can be had; else says that the test is skipped.
fn program() -> Option<PathBuf> {
    let program = target_dir().join("tools/schemathesis/bin/schemathesis");
    if program.exists() {
        return Some(program);
    }
    let why = "schemathesis is not installed (cargo xtask test does it)";
    assert!(env::var_os("CI").is_none(), "{why}");
    // Past the harness, which would keep it to itself.
    let mut past = std::io::stderr();
    writeln!(
        past,
        "skipped: asking the interface by its description, since {why}"
    )
    .unwrap();
    None
}

async fn run(arguments: &[&str]) -> Option<Output> {
    let program = program()?;
    let mut options = HttpOptions::new(&Config::default(), Arc::new(RequestCounts::default()));
    // A stream ends after its first event.
    options.max_stream_age = Duration::ZERO;
    options.instrumentation = true;
    let server = start(Fake::default(), options).await;
    let folder = target_dir().join("schemathesis");
    std::fs::create_dir_all(&folder).unwrap();
    let config =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/http/schemathesis/schemathesis.toml");
    let mut command = Command::new(program);
    command
        .current_dir(folder)
        .arg("--no-color")
        .arg("--config-file")
        .arg(config)
        .arg("run")
        .arg(format!("http://{}/api/v1/openapi.json", server.address))
        .args(["--suppress-health-check", "all", "--workers", "1"])
        .args(arguments);
    let output = tokio::task::spawn_blocking(move || command.output())
        .await
        .unwrap()
        .unwrap();
    server.stop().await;
    Some(output)
}

#[track_caller]
fn check(output: &Output) {
    let told = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{told}\n{errors}");
    assert!(
        told.contains("No issues found"),
        "nothing was asked: {told}\n{errors}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_interface_keeps_its_description() {
    // Check that answers to right, wrong and odd requests at every bound are described ones; but
    // for what waits for seconds.
    let waiting = "^/debug/pprof/";
    let arguments = [
        "--phases",
        "coverage,fuzzing",
        "--max-examples",
        "5",
        "--seed",
        "1",
        "--exclude-path-regex",
        waiting,
    ];
    if let Some(output) = run(&arguments).await {
        check(&output);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "takes many minutes"]
async fn the_interface_keeps_its_description_at_length() {
    // Check the same of all endpoints, with other requests each time, and sequences of them.
    if let Some(output) = run(&["--max-examples", "100"]).await {
        check(&output);
    }
}
