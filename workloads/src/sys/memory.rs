//! Memory that the kernel gives page by page: mapped, given back, watched by a thread that answers
//! its faults.

use std::io;
use std::sync::atomic::AtomicU64;

use super::{checked, raw};

/// Fresh private memory that is never given back; a multiple of the page size.
pub(crate) fn map(bytes: usize) -> io::Result<&'static mut [u8]> {
    let address = mapped(bytes, libc::MAP_PRIVATE)?;
    // SAFETY: fresh zeroed memory of this length that nothing else owns.
    Ok(unsafe { std::slice::from_raw_parts_mut(address as *mut u8, bytes) })
}

/// Numbers that forked children share.
pub(crate) fn map_shared(count: usize) -> io::Result<&'static [AtomicU64]> {
    let address = mapped(count * size_of::<AtomicU64>(), libc::MAP_SHARED)?;
    // SAFETY: fresh zeroed memory of this length; zeros are valid numbers.
    Ok(unsafe { std::slice::from_raw_parts(address as *const AtomicU64, count) })
}

fn mapped(bytes: usize, kind: libc::c_int) -> io::Result<usize> {
    let protection = (libc::PROT_READ | libc::PROT_WRITE) as usize;
    let flags = (kind | libc::MAP_ANONYMOUS) as usize;
    // SAFETY: a fresh anonymous mapping at an address of the kernel's choice.
    checked(unsafe { raw(libc::SYS_mmap, [0, bytes, protection, flags, usize::MAX, 0]) })
}

/// Gives the pages of private memory back: they are zero again, and fault again.
#[inline(always)]
pub(crate) fn drop_pages(memory: &mut [u8]) {
    advise(memory, libc::MADV_DONTNEED);
}

/// One fault for each page.
pub(crate) fn no_huge_pages(memory: &mut [u8]) {
    advise(memory, libc::MADV_NOHUGEPAGE);
}

#[inline(always)]
fn advise(memory: &mut [u8], advice: libc::c_int) {
    // SAFETY: the memory is borrowed for as long as its content changes, and every content is
    // valid.
    unsafe {
        raw(
            libc::SYS_madvise,
            [
                memory.as_mut_ptr() as usize,
                memory.len(),
                advice as usize,
                0,
                0,
                0,
            ],
        )
    };
}

/// Page faults of this process that needed no reading, so far.
pub(crate) fn minor_faults() -> u64 {
    // SAFETY: all-zero is a valid value of this plain structure.
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: a valid place for the answer.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    usage.ru_minflt as u64
}

// From the kernel's linux/userfaultfd.h; the C library has no names for them.
const UFFD_API: u64 = 0xAA;
const UFFDIO_API: usize = 0xC018_AA3F;
const UFFDIO_REGISTER: usize = 0xC020_AA00;
const UFFDIO_ZEROPAGE: usize = 0xC020_AA04;
const UFFDIO_REGISTER_MODE_MISSING: u64 = 1;
const UFFD_EVENT_PAGEFAULT: u8 = 0x12;

/// A descriptor on which this memory's faults can be read.
pub(crate) fn watch_faults(memory: &mut [u8]) -> io::Result<i32> {
    // SAFETY: plain numbers.
    let fd = checked(unsafe {
        raw(
            libc::SYS_userfaultfd,
            [libc::O_CLOEXEC as usize, 0, 0, 0, 0, 0],
        )
    })?;
    let mut api = [UFFD_API, 0, 0];
    control(fd, UFFDIO_API, &mut api)?;
    let mut range = [
        memory.as_mut_ptr() as u64,
        memory.len() as u64,
        UFFDIO_REGISTER_MODE_MISSING,
        0,
    ];
    control(fd, UFFDIO_REGISTER, &mut range)?;
    Ok(fd as i32)
}

fn control<const N: usize>(fd: usize, request: usize, words: &mut [u64; N]) -> io::Result<()> {
    // SAFETY: the words are as many as the request reads and writes.
    checked(unsafe {
        raw(
            libc::SYS_ioctl,
            [fd, request, words.as_mut_ptr() as usize, 0, 0, 0],
        )
    })
    .map(drop)
}

/// Sleeps until a fault happens and returns its address; nothing when the descriptor is no more.
pub(crate) fn read_fault(fd: i32) -> Option<usize> {
    let mut message = [0u8; 32];
    loop {
        if super::read(fd, &mut message) != 32 {
            return None;
        }
        if message[0] == UFFD_EVENT_PAGEFAULT {
            let mut address = [0; 8];
            address.copy_from_slice(&message[16..24]);
            return Some(u64::from_ne_bytes(address) as usize);
        }
    }
}

/// Puts an empty page there and lets the thread go on; no matter if it is there already.
pub(crate) fn answer_fault(fd: i32, address: usize, bytes: usize) {
    let mut range = [address as u64, bytes as u64, 0, 0];
    control(fd as usize, UFFDIO_ZEROPAGE, &mut range).unwrap_or_default();
}
