//! Names: a process that renames itself, and one whose names are meant to break whoever prints
//! them.

use std::ffi::OsStr;
use std::hint::black_box;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

use anyhow::Context;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;
use crate::work::{rounds_per_ms, workers};

pub(super) const PROGRAM: Program = Program {
    name: "comm",
    about: "renames itself every 50 ms: comm-0, comm-1, … for --seconds, working in comm_work",
    run,
};

pub(super) const HOSTILE: Program = Program {
    name: "hostile",
    about: "copies itself to a path with newline, quotes, escapes, markup and bad UTF-8 under --path, and executes that",
    run: run_hostile,
};

pub(super) const NAMED: Program = Program {
    name: "hostile-named",
    about: "what `hostile` executes; sets a comm of the same sort",
    run: run_named,
};

workers! {
    /// Works under changing names.
    comm_work = 661;
}

/// A file name and (its first 15 bytes) a comm that no printer may take at its word.
const HOSTILE_NAME: &[u8] = b"a\n\"b\\\x1b[31m\xff,<i>'; {x=\"1\"} \t#.bin";

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let per_ms = rounds_per_ms();
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let mut names = 0u64;
    let mut last = String::new();
    while sys::monotonic_ns() < until_ns {
        last = format!("comm-{names}");
        sys::set_comm(last.as_bytes());
        black_box(comm_work(per_ms * 50));
        names += 1;
    }
    truth.set("names", names);
    truth.set("last_comm", last);
    Ok(truth)
}

fn run_hostile(options: &Options, truth: Truth) -> anyhow::Result<Truth> {
    drop(truth);
    let directory = options.path.clone().unwrap_or_else(std::env::temp_dir);
    let path = directory.join(OsStr::from_bytes(HOSTILE_NAME));
    std::fs::copy(std::env::current_exe()?, &path)
        .with_context(|| format!("copying to {}", path.display()))?;
    let mut command = Command::new(&path);
    command.args(["hostile-named", "--seconds", &options.seconds.to_string()]);
    if options.hold {
        command.arg("--hold");
    }
    Err(command.exec().into())
}

fn run_named(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    sys::set_comm(HOSTILE_NAME);
    let per_ms = rounds_per_ms();
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        black_box(comm_work(per_ms));
    }
    truth.set("comm_bytes", HOSTILE_NAME[..15].to_vec());
    truth.set(
        "exe",
        std::env::current_exe()?.to_string_lossy().into_owned(),
    );
    Ok(truth)
}
