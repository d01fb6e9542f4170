//! A file system that opens its one file and never answers a read of it. The file is mapped,
//! executable, over a vDSO that was moved below 4 GiB: whoever reads there waits, and cannot be
//! killed while this program lives.

use std::fs::File;
use std::io::{Read as _, Write as _};
use std::os::fd::AsRawFd as _;

use anyhow::{Context, bail};

use super::{Program, enter_namespaces, map, mount};
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;

pub(super) const PROGRAM: Program = Program {
    name: "attack-fuse",
    about: "maps a file that never answers over moved vDSOs for --seconds [--path the FUSE device, --count processes]",
    run,
};

/// Where vDSOs are moved to.
const LOW: usize = 0x7000_0000;
/// Size of the file and of what is mapped of it, bytes.
const FILE_BYTES: usize = 8192;

// From the kernel's linux/fuse.h.
const GETATTR: u32 = 3;
const OPEN: u32 = 14;
const READ: u32 = 15;
const INIT: u32 = 26;

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let device = options.path.as_ref().context("--path is the FUSE device")?;
    let file = std::env::temp_dir().join(format!("never-{}", std::process::id()));
    let file = file.to_str().context("a path that is no text")?;
    std::fs::write(file, "")?;
    enter_namespaces()?;
    let device = File::options().read(true).write(true).open(device)?;
    let fuse = format!(
        "fd={},rootmode=100000,user_id=0,group_id=0",
        device.as_raw_fd()
    );
    mount(
        "never",
        file,
        "fuse",
        libc::MS_NOSUID | libc::MS_NODEV,
        &fuse,
    )?;
    let server = std::thread::spawn(move || serve(device));
    let never = File::open(file).context("opening the file")?;
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let mut processes = 0u64;
    while sys::monotonic_ns() < until_ns && !server.is_finished() {
        let mut children = Vec::new();
        for number in 0..options.count_or(20) {
            // SAFETY: the child makes system calls only, and ends without unwinding.
            match unsafe { libc::fork() } {
                0 => cover(&never, number * 500_000),
                child => children.push(child),
            }
        }
        processes += children.len() as u64;
        sys::nanosleep(500_000_000);
        for child in children {
            // SAFETY: plain numbers; nobody asks how it ended.
            unsafe {
                libc::kill(child, libc::SIGKILL);
                libc::waitpid(child, std::ptr::null_mut(), 0);
            }
        }
    }
    if server.is_finished() {
        bail!("the file system ended");
    }
    truth.set("processes", processes);
    Ok(truth)
}

/// Moves the vDSO, and after a while maps the file over it.
fn cover(never: &File, after_ns: u64) -> ! {
    let (start, bytes) = vdso().unwrap_or_default();
    // SAFETY: nothing here uses the vDSO; what is mapped at the new place is nothing.
    unsafe {
        libc::mremap(
            start as *mut libc::c_void,
            bytes,
            bytes,
            libc::MREMAP_MAYMOVE | libc::MREMAP_FIXED,
            LOW as *mut libc::c_void,
        );
    }
    sys::nanosleep(after_ns);
    let flags = libc::MAP_PRIVATE | libc::MAP_FIXED;
    let mapped = map(
        LOW,
        FILE_BYTES,
        libc::PROT_READ | libc::PROT_EXEC,
        flags,
        Some(never),
    );
    loop {
        sys::nanosleep(if mapped.is_ok() {
            10_000_000
        } else {
            1_000_000_000
        });
    }
}

/// Where this process's vDSO lies, and how long it is.
fn vdso() -> Option<(usize, usize)> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.ends_with("[vdso]"))?;
    let (start, rest) = line.split_once('-')?;
    let start = usize::from_str_radix(start, 16).ok()?;
    let end = usize::from_str_radix(rest.split_once(' ')?.0, 16).ok()?;
    Some((start, end - start))
}

/// Answers what is needed to open the file, and nothing that reads it.
fn serve(mut device: File) -> std::io::Result<()> {
    let mut request = vec![0u8; 256 << 10];
    loop {
        let length = device.read(&mut request)?;
        let word = |at: usize| {
            let bytes = request.get(at..at + 4).filter(|_| at + 4 <= length);
            bytes.map_or(0, |bytes| {
                u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]])
            })
        };
        let (opcode, unique) = (word(4), [word(8), word(12)]);
        let answer = match opcode {
            READ => continue,
            // Version, read ahead, flags, background, largest write.
            INIT => Ok(init(word(44))),
            GETATTR => Ok(attributes()),
            OPEN => Ok(vec![0; 16]),
            _ => Err(libc::ENOSYS),
        };
        let (error, body) = match answer {
            Ok(body) => (0, body),
            Err(error) => (-error, Vec::new()),
        };
        let mut out = (16 + body.len() as u32).to_le_bytes().to_vec();
        out.extend(error.to_le_bytes());
        unique
            .iter()
            .for_each(|word| out.extend(word.to_le_bytes()));
        out.extend(body);
        device.write_all(&out)?;
    }
}

/// `struct fuse_init_out`: protocol 7 of the minor version that the kernel has, no features.
fn init(minor: u32) -> Vec<u8> {
    let mut out = Vec::new();
    for word in [7, minor, 0, 0, 0, 4096] {
        out.extend(u32::to_le_bytes(word));
    }
    out.resize(64, 0);
    out
}

/// `struct fuse_attr_out`: a file of everybody's.
fn attributes() -> Vec<u8> {
    let mut out = vec![0; 16];
    for word in [1, FILE_BYTES as u64, 16, 0, 0, 0] {
        out.extend(u64::to_le_bytes(word));
    }
    out.extend([0; 12]);
    for word in [libc::S_IFREG | 0o777, 1, 0, 0, 0, 4096, 0] {
        out.extend(u32::to_le_bytes(word));
    }
    out
}
