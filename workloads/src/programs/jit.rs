//! Machine code that no symbol table knows: written into anonymous memory, or into a file that is
//! mapped while running.

use std::hint::black_box;
use std::os::fd::AsRawFd;

use anyhow::{Context, bail};

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;

pub(super) const PROGRAM: Program = Program {
    name: "jit",
    about: "runs machine code of its own making for --seconds [--kind anonymous|file, --path directory of the file]",
    run,
};

/// push rbp; mov rbp, rsp; mov rax, rdi; 1: imul rax, rax, 0x12345; dec rdi; jnz 1b; pop rbp; ret
const CODE: [u8; 20] = [
    0x55, 0x48, 0x89, 0xe5, 0x48, 0x89, 0xf8, 0x48, 0x69, 0xc0, 0x45, 0x23, 0x01, 0x00, 0x48, 0xff,
    0xcf, 0x75, 0xf4, 0x5d,
];
const RETURN: u8 = 0xc3;
const PAGE_BYTES: usize = 4096;
/// The code starts here in the file, so that offset and address differ.
const CODE_PAGE: usize = 1;

type Code = extern "C" fn(u64) -> u64;

#[inline(never)]
fn call_unknown_code(code: Code, rounds: u64) -> u64 {
    black_box(code(rounds))
}

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the code is x86_64 only");
    }
    let mut image = vec![0u8; PAGE_BYTES * (CODE_PAGE + 1)];
    let start = PAGE_BYTES * CODE_PAGE;
    image[start..start + CODE.len()].copy_from_slice(&CODE);
    image[start + CODE.len()] = RETURN;
    let address = if options.kind == "file" {
        let directory = options.path.clone().unwrap_or_else(std::env::temp_dir);
        let path = directory.join(format!("workload-mapped-{}.bin", std::process::id()));
        std::fs::write(&path, &image).with_context(|| format!("writing {}", path.display()))?;
        let file = std::fs::File::open(&path)?;
        truth.set("mapped", path.to_string_lossy().into_owned());
        map(Some(&file), start)?
    } else {
        let address = map(None, 0)?;
        // SAFETY: the fresh mapping is one writable page and the code is shorter.
        unsafe {
            std::ptr::copy_nonoverlapping(image[start..].as_ptr(), address as *mut u8, PAGE_BYTES)
        };
        // SAFETY: changes only that page: from writable to executable.
        sys::checked(unsafe {
            sys::raw(
                libc::SYS_mprotect,
                [
                    address,
                    PAGE_BYTES,
                    (libc::PROT_READ | libc::PROT_EXEC) as usize,
                    0,
                    0,
                    0,
                ],
            )
        })?;
        address
    };
    // SAFETY: the page holds a whole function with this signature.
    let code: Code = unsafe { std::mem::transmute(address) };
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let start_ns = sys::monotonic_ns();
    let mut calls = 0u64;
    while sys::monotonic_ns() < until_ns {
        call_unknown_code(code, 1_000_000);
        calls += 1;
    }
    truth.set("calls", calls);
    truth.set("code_ns", sys::monotonic_ns() - start_ns);
    Ok(truth)
}

/// Maps one page: executable from the file, or writable and anonymous.
fn map(file: Option<&std::fs::File>, offset: usize) -> anyhow::Result<usize> {
    let (protection, flags, fd) = match file {
        Some(file) => (
            libc::PROT_READ | libc::PROT_EXEC,
            libc::MAP_PRIVATE,
            file.as_raw_fd() as usize,
        ),
        None => (
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            usize::MAX,
        ),
    };
    // SAFETY: a new mapping at an address of the kernel's choice.
    sys::checked(unsafe {
        sys::raw(
            libc::SYS_mmap,
            [
                0,
                PAGE_BYTES,
                protection as usize,
                flags as usize,
                fd,
                offset,
            ],
        )
    })
    .context("mapping the code")
}
