//! Page faults (time in the kernel that is no system call) and file writing with synchronisation
//! (real waiting).

use std::fs::File;
use std::hint::black_box;
use std::io::Write;

use anyhow::Context;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;

pub(super) const PROGRAM: Program = Program {
    name: "faults",
    about: "touches fresh pages in touch_pages; no system call while it does [--seconds]",
    run,
};

pub(super) const IO: Program = Program {
    name: "io",
    about: "writes and synchronises a file in write_and_sync [--count writes, --path directory]",
    run: run_io,
};

const MAPPING_BYTES: usize = 64 << 20;
const PAGE_BYTES: usize = 4096;

#[inline(never)]
fn touch_pages(memory: &mut [u8]) -> u64 {
    let mut touched = 0;
    for page in memory.chunks_mut(PAGE_BYTES) {
        page[0] = black_box(1);
        touched += 1;
    }
    black_box(touched)
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let (mut pages, mut touching_ns, mut maps) = (0, 0, 0u64);
    while sys::monotonic_ns() < until_ns {
        // Large enough for the allocator to map it fresh and give it back whole.
        let mut memory = vec![0u8; MAPPING_BYTES];
        let start_ns = sys::monotonic_ns();
        pages += touch_pages(&mut memory);
        touching_ns += sys::monotonic_ns() - start_ns;
        maps += 1;
    }
    truth.set("pages", pages);
    truth.set("mappings", maps);
    truth.set("touching_ns", touching_ns);
    Ok(truth)
}

#[inline(never)]
fn write_and_sync(file: &mut File, bytes: &[u8]) -> std::io::Result<()> {
    file.write_all(bytes)?;
    file.sync_data()
}

fn run_io(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let directory = options.path.clone().unwrap_or_else(std::env::temp_dir);
    let path = directory.join(format!("workload-io-{}", std::process::id()));
    let mut file = File::create(&path).with_context(|| format!("creating {}", path.display()))?;
    std::fs::remove_file(&path)?;
    let bytes = vec![7u8; 64 << 10];
    let mut waiting_ns = 0;
    let count = options.count_or(50);
    for _ in 0..count {
        let start_ns = sys::monotonic_ns();
        write_and_sync(&mut file, &bytes)?;
        waiting_ns += sys::monotonic_ns() - start_ns;
    }
    truth.set("writes", count);
    truth.set("in_calls_ns", waiting_ns);
    Ok(truth)
}
