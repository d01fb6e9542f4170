//! The page in a real browser: Chromium, without a window, opens the server over a profile that
//! moves, and `check.mjs` looks at every view. Screenshots go to `target/page-screenshots`, for
//! people; nothing compares them.
//!
//! Needs `node`, `chromium`, and playwright-core where `cargo xtask test` puts it. Without them it
//! is skipped, but not where `CI` is set.

#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod backend;
mod names;
#[path = "../shared/primary.rs"]
mod primary;
mod programs;
mod replay;
mod world;

use std::env;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use profiler_daemon::config::Config;
use profiler_daemon::http::{HttpOptions, app, serve};
use profiler_daemon::metrics::RequestCounts;
use tokio::net::TcpListener;

/// How long all checks may take.
const PATIENCE: Duration = Duration::from_secs(900);

/// What the checks are run with.
struct Tools {
    node: PathBuf,
    chromium: PathBuf,
    /// The folder that holds `node_modules`.
    modules: PathBuf,
}

fn program(names: &[&str]) -> Result<PathBuf, String> {
    let path = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&path)
        .flat_map(|folder| names.iter().map(move |name| folder.join(name)))
        .find(|file| file.is_file());
    found.ok_or_else(|| format!("{} is not installed", names[0]))
}

fn target_dir() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap()
}

fn tools() -> Result<Tools, String> {
    let modules = target_dir().join("tools/page");
    if !modules.join("node_modules/playwright-core").is_dir() {
        return Err("playwright-core is not installed (cargo xtask test does it)".to_owned());
    }
    Ok(Tools {
        node: program(&["node"])?,
        chromium: program(&["chromium", "chromium-browser", "google-chrome"])?,
        modules,
    })
}

/// The tools; nothing, and says so, where they are missing and may be.
fn tools_or_skip(what: &str) -> Option<Tools> {
    match tools() {
        Ok(tools) => Some(tools),
        Err(why) if env::var_os("CI").is_some() => panic!("the page cannot be tested: {why}"),
        Err(why) => {
            // Past the harness, which would keep it to itself.
            writeln!(std::io::stderr(), "skipped: {what}, since {why}").unwrap_or_default();
            None
        }
    }
}

/// Runs the checks for that kind of profile on the page at `url`. Its screenshots go to a folder of
/// that name.
fn run_checks(tools: Tools, url: &str, profile: &str, screenshots: &str) {
    let screenshots = target_dir().join(screenshots);
    std::fs::create_dir_all(&screenshots).unwrap();
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/page/check.mjs");
    let output = Command::new(tools.node)
        .arg(script)
        .env("PAGE_URL", url)
        .env("PAGE_PROFILE", profile)
        .env("PAGE_MODULES", tools.modules)
        .env("PAGE_CHROMIUM", tools.chromium)
        .env("PAGE_SCREENSHOTS", &screenshots)
        .env("PAGE_BUSY", world::BUSY.to_string())
        .env("PAGE_LARGE", world::LARGE.to_string())
        .env("PAGE_HOSTILE", world::HOSTILE.to_string())
        .env("PAGE_DROPPED", world::DROPPED.to_string())
        // The checks end themselves when they take too long.
        .env("PAGE_PATIENCE_S", PATIENCE.as_secs().to_string())
        .stdin(Stdio::null())
        .output()
        .unwrap();
    std::fs::write(screenshots.join("checks.txt"), &output.stdout).unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}\n{}",
        String::from_utf8_lossy(&output.stderr)
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_works_in_a_browser() {
    // Check the page in a browser: every view, by pointer and keys, narrow and dark, with hostile
    // names and a tree of 20000 nodes. Needs node, chromium and playwright-core.
    let Some(tools) = tools_or_skip("the page in a browser") else {
        return;
    };
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let mut options = options();
    options.listen = address;
    let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
    let router = app(Arc::new(backend::Machine::new(true)), options.clone());
    let server = tokio::spawn(serve(listener, router, options, async {
        stopped.await.unwrap_or_default();
    }));
    let url = format!("http://{address}");
    tokio::task::spawn_blocking(move || run_checks(tools, &url, "moving", "page-screenshots"))
        .await
        .unwrap();
    stop.send(()).unwrap();
    server.await.unwrap().unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_page_works_on_a_replay() {
    // Check the same page over a profile that was saved and is served by the program itself, with
    // --replay, of which only what needs numbers that move is left out.
    let Some(tools) = tools_or_skip("the page on a replay") else {
        return;
    };
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("world.profile");
    let machine = backend::Machine::new(false);
    std::fs::write(&file, replay::saved(&machine).await).unwrap();
    let program = replay::Program::start(&file);
    let url = program.url().to_owned();
    tokio::task::spawn_blocking(move || {
        run_checks(tools, &url, "replay", "page-screenshots-replay")
    })
    .await
    .unwrap();
}

/// Options of a server with no configuration.
fn options() -> HttpOptions {
    HttpOptions::new(&Config::default(), Arc::new(RequestCounts::default()))
}
