//! USDT points, written by hand as SystemTap's header does it, whose hits, arguments and distances
//! the program knows: for probes that count them.

use std::arch::asm;
use std::hint::black_box;
use std::sync::atomic::AtomicU16;
use std::time::Duration;

use anyhow::Context as _;

use super::Program;
use crate::options::Options;
use crate::sys;
use crate::truth::{self, Truth};

pub(super) const PROGRAM: Program = Program {
    name: "marked",
    about: "hits the USDT points workload:hit, workload:begin and workload:end a known number of times, the last two \
            in different threads, 10 ms apart",
    run,
};

pub(super) const AGAIN: Program = Program {
    name: "marked-again",
    about: "a child hits workload:begin and ends, and one of the same pid lives until a line comes (needs root)",
    run: run_again,
};

/// How many probe `workload:hit`: the kernel counts them here.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".probes")]
static WORKLOAD_HIT_SEMAPHORE: Semaphore = Semaphore(AtomicU16::new(0));

/// On a page of its own: linkers let segments share pages of the file, and the kernel raises what
/// is on such a page in the first of them.
#[repr(C, align(4096))]
struct Semaphore(AtomicU16);

/// Hits of `workload:hit`.
const HITS: u32 = 1000;
/// Pairs of `workload:begin` and `workload:end`.
const PAIRS: u64 = 41;
/// From one to the other.
const PAIR: Duration = Duration::from_millis(10);
/// Calls of `marked_first`, each with one of `marked_second`.
const CALLS: u64 = 100;

/// A place: a nop, and a note that says where it is, what it is called and where its arguments are.
macro_rules! mark {
    ($name:literal, $arguments:literal, $semaphore:literal, $($operands:tt)*) => {
        asm!(
            "990: nop",
            ".pushsection .note.stapsdt, \"\", @note",
            ".balign 4",
            ".4byte 992f - 991f, 994f - 993f, 3",
            "991: .asciz \"stapsdt\"",
            "992: .balign 4",
            "993: .8byte 990b",
            ".8byte _.stapsdt.base",
            concat!(".8byte ", $semaphore),
            ".asciz \"workload\"",
            concat!(".asciz \"", $name, "\""),
            concat!(".asciz \"", $arguments, "\""),
            "994: .balign 4",
            ".popsection",
            ".ifndef _.stapsdt.base",
            ".pushsection .stapsdt.base, \"aG\", @progbits, .stapsdt.base, comdat",
            ".weak _.stapsdt.base",
            ".hidden _.stapsdt.base",
            "_.stapsdt.base: .space 1",
            ".size _.stapsdt.base, 1",
            ".popsection",
            ".endif",
            $($operands)*
            options(att_syntax, nostack, readonly, preserves_flags),
        )
    };
}

fn run(_: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    for number in 0..HITS {
        let list = [u64::from(number), 7];
        // Negative ones too.
        hit(number.cast_signed() - 100, &list);
    }
    // SAFETY: a live counter. Volatile: nobody but the kernel writes it.
    let semaphore = unsafe { WORKLOAD_HIT_SEMAPHORE.0.as_ptr().read_volatile() };
    let (mut within, mut around): (Vec<u64>, Vec<u64>) = (0..PAIRS).map(pair).unzip();
    within.sort_unstable();
    around.sort_unstable();
    for number in 0..CALLS {
        black_box(marked_first(number));
        black_box(marked_second(number));
    }
    // Of the keys of this one there are two: each second one replaces a first one, and has no end.
    for number in 0..4 {
        begin(PAIRS + number % 2);
    }
    truth.set("hits", HITS);
    truth.set(
        "sum",
        (0..i64::from(HITS)).map(|number| number - 100).sum::<i64>(),
    );
    truth.set("memory_sum", (0..HITS).map(u64::from).sum::<u64>());
    truth.set("semaphore", semaphore);
    truth.set("pairs", PAIRS);
    // A pair is no shorter than what lies within it, and no longer than what is around it.
    truth.set("pair_p50_least_ns", within[within.len() / 2]);
    truth.set("pair_p50_most_ns", around[around.len() / 2]);
    truth.set("pair_max_ns", around[around.len() - 1]);
    truth.set("calls", CALLS);
    Ok(truth)
}

fn run_again(_: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let first = sys::fork(|| {
        // Where others run this program too, whoever follows it has to find this child first.
        sys::nanosleep(500_000_000);
        begin(0);
    })?;
    sys::wait_child(first)?;
    // Starts are told apart in ticks of 10 ms.
    sys::nanosleep(50_000_000);
    let second = sys::fork_as(first, || sys::nanosleep(20_000_000_000))
        .with_context(|| format!("starting a second process with pid {first}"))?;
    truth::ready("marked-again", serde_json::json!({"pid": second}));
    truth::wait_for_line();
    sys::kill(second, libc::SIGKILL);
    sys::wait_child(second)?;
    truth.set("pid", second);
    Ok(truth)
}

/// `workload:hit(int, u64)`: one argument in a register, one in memory.
#[inline(never)]
fn hit(number: i32, list: &[u64; 2]) {
    // SAFETY: does nothing.
    unsafe {
        mark!("hit", "-4@%edi 8@8(%rsi) 8@(%rsi)", "WORKLOAD_HIT_SEMAPHORE", in("edi") number, in("rsi") list,);
    }
}

/// `workload:begin(u64)`.
#[inline(never)]
fn begin(key: u64) {
    // SAFETY: as above.
    unsafe { mark!("begin", "8@%rax", "0", in("rax") key,) }
}

/// `workload:end(u64)`.
#[inline(never)]
fn end(key: u64) {
    // SAFETY: as above.
    unsafe { mark!("end", "8@%rdx", "0", in("rdx") key,) }
}

/// From a begin here to an end in another thread: how far they are apart at least and at most,
/// nanoseconds, by clocks read after the begin and before the end, and by those around both.
fn pair(key: u64) -> (u64, u64) {
    let before_ns = sys::monotonic_ns();
    begin(key);
    let began_ns = sys::monotonic_ns();
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            std::thread::sleep(PAIR);
            let ends_ns = sys::monotonic_ns();
            end(key);
            (ends_ns - began_ns, sys::monotonic_ns() - before_ns)
        });
        other.join().unwrap_or_default()
    })
}

#[inline(never)]
fn marked_first(number: u64) -> u64 {
    black_box(number) + 1
}

#[inline(never)]
fn marked_second(number: u64) -> u64 {
    black_box(number) + 2
}
