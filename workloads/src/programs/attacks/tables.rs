//! Files that are small and take long to read: 40 000 functions under one CIE of 4000 bytes, a new
//! file every 20 ms.

use std::fs::File;

use super::{Program, elf, map, unmap};
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;

pub(super) const PROGRAM: Program = Program {
    name: "attack-tables",
    about: "maps new files of dear unwind information for --seconds [--millis between two, --path directory of the files]",
    run,
};

/// Files that are mapped at the same time.
const MAPPED: usize = 100;

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let image = elf::with_one_cie(40_000, 4_000);
    let directory = options.path.clone().unwrap_or_else(std::env::temp_dir);
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let mut mapped = std::collections::VecDeque::new();
    let mut files = 0u64;
    while sys::monotonic_ns() < until_ns {
        let path = directory.join(format!("tables-{}-{files}.so", std::process::id()));
        std::fs::write(&path, &image)?;
        let (protection, file) = (libc::PROT_READ | libc::PROT_EXEC, File::open(&path)?);
        mapped.push_back(map(
            0,
            image.len(),
            protection,
            libc::MAP_PRIVATE,
            Some(&file),
        )?);
        std::fs::remove_file(&path)?;
        if mapped.len() > MAPPED
            && let Some(oldest) = mapped.pop_front()
        {
            unmap(oldest, image.len());
        }
        files += 1;
        sys::nanosleep(options.millis_or(20) * 1_000_000);
    }
    truth.set("files", files);
    Ok(truth)
}
