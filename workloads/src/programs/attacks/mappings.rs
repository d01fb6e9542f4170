//! Processes that have as much mapped as they may, each apart from the others.

use std::fs::File;

use anyhow::ensure;

use super::{Program, elf, map};
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;

pub(super) const PROGRAM: Program = Program {
    name: "attack-mappings",
    about: "--count (30) processes that map a file 4000 times each, and stay for --seconds [--path directory of the file]",
    run,
};

/// Below the bound on mappings of one process.
const MAPPINGS: usize = 4000;

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let image = elf::with_one_cie(100, 16);
    let directory = options.path.clone().unwrap_or_else(std::env::temp_dir);
    let path = directory.join(format!("mappings-{}.so", std::process::id()));
    std::fs::write(&path, &image)?;
    let file = File::open(&path)?;
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let (done_read, done_write) = sys::pipe()?;
    let mut children = Vec::new();
    for _ in 0..options.count_or(30) {
        children.push(sys::fork(|| {
            let protection = libc::PROT_READ | libc::PROT_EXEC;
            let mut mappings = 0..MAPPINGS;
            if mappings.all(|_| map(0, 4096, protection, libc::MAP_PRIVATE, Some(&file)).is_ok()) {
                sys::write_all(done_write, &[1]);
            }
            sys::nanosleep(until_ns.saturating_sub(sys::monotonic_ns()));
        })?);
    }
    for child in &children {
        sys::wait_child(*child)?;
    }
    sys::close(done_write);
    let mut done = vec![0; children.len() + 1];
    let done = sys::read(done_read, &mut done);
    ensure!(
        done == children.len() as isize,
        "{done} processes have mapped all"
    );
    std::fs::remove_file(&path)?;
    truth.set("processes", children.len() as u64);
    Ok(truth)
}
