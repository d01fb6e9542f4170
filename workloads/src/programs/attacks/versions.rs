//! One file that is another one each time it is mapped: its time of modification changes.

use std::fs::File;
use std::time::{Duration, SystemTime};

use super::{Program, elf, map, unmap};
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;

pub(super) const PROGRAM: Program = Program {
    name: "attack-versions",
    about: "maps one file with ever new times of modification for --seconds [--path directory of the file]",
    run,
};

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let image = elf::with_one_cie(100, 16);
    let directory = options.path.clone().unwrap_or_else(std::env::temp_dir);
    let path = directory.join(format!("versions-{}.so", std::process::id()));
    std::fs::write(&path, &image)?;
    let file = File::options().read(true).write(true).open(&path)?;
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let mut versions = 0u64;
    while sys::monotonic_ns() < until_ns {
        versions += 1;
        file.set_modified(SystemTime::UNIX_EPOCH + Duration::from_millis(versions))?;
        let protection = libc::PROT_READ | libc::PROT_EXEC;
        let address = map(0, image.len(), protection, libc::MAP_PRIVATE, Some(&file))?;
        // Long enough for whoever looks at the file when it is told of the mapping.
        sys::nanosleep(100_000);
        unmap(address, image.len());
    }
    std::fs::remove_file(&path)?;
    truth.set("versions", versions);
    Ok(truth)
}
