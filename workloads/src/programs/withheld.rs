//! A thread asleep on a stack that is not there any more: its pages are to be brought by this
//! program (userfaultfd), which never does. Whoever reads them without care waits for ever.

use std::ffi::c_void;
use std::hint::black_box;
use std::io;

use serde_json::json;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::{self, Truth};

pub(super) const PROGRAM: Program = Program {
    name: "withheld",
    about: "a thread asleep on a stack whose pages never come, until standard input closes",
    run,
};

/// Bytes of the stack.
const STACK: usize = 256 << 10;
/// `UFFDIO_API`, `UFFDIO_REGISTER`, and its mode for pages that are missing.
const API: u64 = 0xc018_aa3f;
const REGISTER: u64 = 0xc020_aa00;
const MISSING: u64 = 1;

#[inline(never)]
fn rest_withheld() {
    // A time that no other program sleeps: of functions with the same instructions the compiler
    // may make one, by either name.
    sys::nanosleep(3_599_000_000_000);
}

#[inline(never)]
fn rest_deep(depth: usize) {
    // Some pages, so that the callers are not on the page that the thread sleeps on.
    let room = black_box([0_u8; 1024]);
    if depth > 0 {
        rest_deep(black_box(depth - 1));
    } else {
        rest_withheld();
    }
    black_box(room);
}

extern "C" fn begin(_: *mut c_void) -> *mut c_void {
    rest_deep(32);
    std::ptr::null_mut()
}

/// A thread asleep on a stack at that address.
fn start(stack: *mut c_void) {
    // SAFETY: attributes and a stack that live as long as the process.
    unsafe {
        let mut attributes: libc::pthread_attr_t = std::mem::zeroed();
        let mut thread = 0;
        libc::pthread_attr_init(&raw mut attributes);
        libc::pthread_attr_setstack(&raw mut attributes, stack, STACK);
        libc::pthread_create(
            &raw mut thread,
            &raw const attributes,
            begin,
            std::ptr::null_mut(),
        );
    }
}

/// Takes the pages of the stack away, but for none: whoever touches them waits. False where the
/// kernel has or allows no such thing.
fn withhold(stack: *mut c_void) -> bool {
    // SAFETY: structures as these calls take them; the memory is a stack on which nobody runs.
    unsafe {
        let fd = libc::syscall(libc::SYS_userfaultfd, libc::O_CLOEXEC) as i32;
        let mut api = [0xaa_u64, 0, 0];
        let mut register = [stack.addr() as u64, STACK as u64, MISSING, 0];
        fd >= 0
            && libc::ioctl(fd, API, api.as_mut_ptr()) == 0
            && libc::ioctl(fd, REGISTER, register.as_mut_ptr()) == 0
            && libc::madvise(stack, STACK, libc::MADV_DONTNEED) == 0
    }
}

fn run(_options: &Options, _truth: Truth) -> anyhow::Result<Truth> {
    // SAFETY: a new mapping.
    let stack = unsafe {
        libc::mmap(
            std::ptr::null_mut(),
            STACK,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
            -1,
            0,
        )
    };
    if stack == libc::MAP_FAILED {
        return Err(io::Error::last_os_error().into());
    }
    start(stack);
    // By then it sleeps.
    sys::nanosleep(200_000_000);
    let withheld = withhold(stack);
    truth::ready("withheld", json!({ "withheld": withheld }));
    truth::hold_until_closed();
    // Its thread cannot go on, nor can what waits for it.
    sys::exit_now(0)
}
