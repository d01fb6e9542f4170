//! What a hostile program does to whoever profiles it, as an ordinary user. None of this needs a
//! privilege; who runs them as another user than root, in namespaces of their own where they make
//! some, sees what a profiler must bear.

mod chains;
mod elf;
mod fuse;
mod mappings;
mod names;
mod perf_map;
mod tables;
mod versions;

use std::ffi::CString;

use anyhow::Context;

use super::Program;

pub(super) const PROGRAMS: [Program; 7] = [
    chains::PROGRAM,
    fuse::PROGRAM,
    mappings::PROGRAM,
    names::PROGRAM,
    perf_map::PROGRAM,
    tables::PROGRAM,
    versions::PROGRAM,
];

/// Becomes root of a user namespace and owner of a mount namespace of its own, which any user may.
fn enter_namespaces() -> anyhow::Result<()> {
    // SAFETY: no arguments.
    let (uid, gid) = unsafe { (libc::geteuid(), libc::getegid()) };
    // SAFETY: plain flags; this program has one thread here.
    let answer = unsafe { libc::unshare(libc::CLONE_NEWUSER | libc::CLONE_NEWNS) };
    if answer != 0 {
        return Err(std::io::Error::last_os_error()).context("making namespaces");
    }
    std::fs::write("/proc/self/setgroups", "deny")?;
    std::fs::write("/proc/self/uid_map", format!("0 {uid} 1"))?;
    std::fs::write("/proc/self/gid_map", format!("0 {gid} 1")).context("mapping the users")
}

/// Mounts something over a file or folder that is there.
fn mount(
    source: &str,
    target: &str,
    kind: &str,
    flags: libc::c_ulong,
    options: &str,
) -> anyhow::Result<()> {
    let text = |text: &str| CString::new(text).context("a zero byte");
    let (source, target_text) = (text(source)?, text(target)?);
    let (kind, options) = (text(kind)?, text(options)?);
    // SAFETY: four zero-terminated strings that outlive the call.
    let answer = unsafe {
        libc::mount(
            source.as_ptr(),
            target_text.as_ptr(),
            kind.as_ptr(),
            flags,
            options.as_ptr().cast(),
        )
    };
    if answer != 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("mounting over {target}"));
    }
    Ok(())
}

/// Takes away what was mounted there.
fn unmount(target: &str) -> anyhow::Result<()> {
    let text = CString::new(target).context("a zero byte")?;
    // SAFETY: a zero-terminated string that outlives the call.
    if unsafe { libc::umount2(text.as_ptr(), libc::MNT_DETACH) } != 0 {
        return Err(std::io::Error::last_os_error())
            .with_context(|| format!("unmounting {target}"));
    }
    Ok(())
}

/// Maps memory; without a file it has none.
fn map(
    at: usize,
    bytes: usize,
    protection: libc::c_int,
    flags: libc::c_int,
    file: Option<&std::fs::File>,
) -> std::io::Result<usize> {
    use std::os::fd::AsRawFd as _;
    let fd = file.map_or(-1, |file| file.as_raw_fd());
    // SAFETY: a new mapping; where it is asked to replace one, the caller says that nothing uses
    // that.
    let address = unsafe { libc::mmap(at as *mut libc::c_void, bytes, protection, flags, fd, 0) };
    if address == libc::MAP_FAILED {
        return Err(std::io::Error::last_os_error());
    }
    Ok(address as usize)
}

/// A page of machine code, at this address or, with 0, anywhere.
fn code_page(at: usize, code: &[u8]) -> anyhow::Result<usize> {
    const PAGE_BYTES: usize = 4096;
    let place = if at == 0 {
        0
    } else {
        libc::MAP_FIXED_NOREPLACE
    };
    let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | place;
    let writable = libc::PROT_READ | libc::PROT_WRITE;
    let page = map(at, PAGE_BYTES, writable, flags, None)?;
    anyhow::ensure!(code.len() <= PAGE_BYTES, "more code than a page holds");
    // SAFETY: the fresh page is writable and no shorter than the code.
    unsafe { std::ptr::copy_nonoverlapping(code.as_ptr(), page as *mut u8, code.len()) };
    let executable = libc::PROT_READ | libc::PROT_EXEC;
    // SAFETY: changes only that page: from writable to executable.
    let answer = unsafe { libc::mprotect(page as *mut libc::c_void, PAGE_BYTES, executable) };
    if answer != 0 {
        return Err(std::io::Error::last_os_error()).context("making a page executable");
    }
    Ok(page)
}

/// Gives a mapping back.
fn unmap(address: usize, bytes: usize) {
    // SAFETY: a mapping made by `map` that nothing refers to any more.
    unsafe { libc::munmap(address as *mut libc::c_void, bytes) };
}
