//! `cargo xtask names`: the functions of real programs beside those that perf names
//! (`profiler-daemon/tests/names`), with the programs taken from Debian's packages.

use std::env;
use std::fs;

use anyhow::Context as _;

use crate::packages;
use crate::shell;
use crate::workspace::Workspace;

/// What is run, and perf.
const PACKAGES: [&str; 5] = ["linux-perf", "python3", "perl", "openssl", "gcc"];
/// Servers: merely unpacked, since their packages would start them.
const SERVERS: [&str; 2] = ["redis-server", "nginx"];
const WHY: &str = "the names of their functions are compared with perf's";

/// Installs or unpacks what is missing, and compares. Fails where more than one named sample in a
/// hundred has another function.
pub(crate) fn names(workspace: &Workspace) -> anyhow::Result<()> {
    let mut programs = Vec::new();
    let mut libraries = Vec::new();
    if packages::has_apt() {
        packages::install(&PACKAGES, WHY)?;
        let tools = workspace.target_dir().join("tools");
        for server in SERVERS.into_iter().filter(|server| !shell::has(server)) {
            let usr = packages::unpack_with_dependencies(server, WHY, &tools)?.join("usr");
            programs.extend([usr.join("bin"), usr.join("sbin")]);
            // A folder of their machine's name, where there are libraries that this machine lacks.
            let folders = fs::read_dir(usr.join("lib")).into_iter().flatten();
            libraries.extend(folders.filter_map(Result::ok).map(|entry| entry.path()));
        }
    }
    let before = |more: Vec<_>, variable| {
        let known = env::var_os(variable).unwrap_or_default();
        let known: Vec<_> = env::split_paths(&known).collect();
        env::join_paths(more.into_iter().chain(known)).context("a folder with a colon in its name")
    };
    let mut tests = workspace.cargo("test");
    tests
        .args([
            "--release",
            "-p",
            "profiler-daemon",
            "--test",
            "names",
            "--",
        ])
        .args(["--ignored", "--nocapture"])
        .env("PATH", before(programs, "PATH")?)
        .env("LD_LIBRARY_PATH", before(libraries, "LD_LIBRARY_PATH")?);
    shell::run(&mut tests)
}
