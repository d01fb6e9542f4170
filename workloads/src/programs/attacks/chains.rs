//! Stacks that never were: code without unwind information under chains of frame pointers that lead
//! through a gigabyte of executable memory. Each walk shows hundreds of functions that nobody ever
//! saw before.

use anyhow::bail;

use super::{Program, code_page, map};
use crate::options::Options;
use crate::sys;
use crate::truth::Truth;

pub(super) const PROGRAM: Program = Program {
    name: "attack-chains",
    about: "shows stacks of invented frames for --seconds [--threads]",
    run,
};

/// push rbp; mov rbp, rdi; 1: dec rsi; jnz 1b; mov rdi, rdx; xor esi, esi; mov eax, nanosleep;
/// syscall; pop rbp; ret
const CODE: [u8; 24] = [
    0x55, 0x48, 0x89, 0xfd, 0x48, 0xff, 0xce, 0x75, 0xfb, 0x48, 0x89, 0xd7, 0x31, 0xf6, 0xb8, 0x23,
    0x00, 0x00, 0x00, 0x0f, 0x05, 0x5d, 0xc3, 0x90,
];
/// Where return addresses lie.
const ROOM_BYTES: usize = 1 << 30;
/// Frames of a chain.
const FRAMES: usize = 500;
/// About 0.2 ms.
const SPINS: u64 = 600_000;

type Code = extern "C" fn(*const [u64; 2], u64, *const libc::timespec);

fn run(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    if !cfg!(target_arch = "x86_64") {
        bail!("the code is x86_64 only");
    }
    let private = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    let room = map(
        0,
        ROOM_BYTES,
        libc::PROT_READ | libc::PROT_EXEC,
        private,
        None,
    )?;
    let page = code_page(0, &CODE)?;
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let threads: Vec<_> = (0..options.threads_or(4))
        .map(|number| {
            let seed = number as u64 + u64::from(std::process::id()) * 64 + 1;
            std::thread::spawn(move || show(page, room, seed, until_ns))
        })
        .collect();
    let chains: u64 = threads
        .into_iter()
        .filter_map(|thread| thread.join().ok())
        .sum();
    truth.set("chains", chains);
    Ok(truth)
}

/// One chain after another, each at work and asleep.
fn show(page: usize, room: usize, seed: u64, until_ns: u64) -> u64 {
    // SAFETY: the page holds a whole function with this signature, which reads nothing at the
    // addresses of the chain.
    let code: Code = unsafe { std::mem::transmute(page) };
    let mut random = seed.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let nap = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000,
    };
    let mut chain = [[0u64; 2]; FRAMES];
    let mut chains = 0;
    while sys::monotonic_ns() < until_ns {
        let first = chain.as_ptr() as u64;
        for (number, frame) in chain.iter_mut().enumerate() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            *frame = [
                first + 16 * (number as u64 + 1),
                room as u64 + random % ROOM_BYTES as u64,
            ];
        }
        chain[FRAMES - 1] = [0, 0];
        code(chain.as_ptr(), SPINS, &raw const nap);
        chains += 1;
    }
    chains
}
