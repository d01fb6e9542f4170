//! Page faults: a million and more a second that only run, and thousands that wait for another
//! thread. Both are time outside any system call that is not the program's own code.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::Context;

use super::Program;
use crate::options::Options;
use crate::places::Places;
use crate::sys;
use crate::truth::Truth;
use crate::work::{Jitter, workers};

pub(super) const MINOR: Program = Program {
    name: "minor-faults",
    about: "fresh pages: two thirds in touch_much, a third in touch_some; 30 % user code in reckon; drop_pages gives them back \
            [--seconds]",
    run: run_minor,
};

pub(super) const WAITING: Program = Program {
    name: "waiting-faults",
    about: "page faults that another thread answers, late in scan, soon in probe; probe has three times as many [--seconds]",
    run: run_waiting,
};

workers! {
    /// User code between the faults.
    reckon = 341;
}

const PAGE: usize = 4096;
const PAGES: usize = 6144;

/// Functions that write a byte to each page.
macro_rules! touchers {
    ($($name:ident = $seed:literal)*) => {
        $(#[inline(never)]
        fn $name(pages: &mut [u8]) {
            for page in pages.chunks_mut(PAGE) {
                page[0] = black_box($seed);
            }
        })*
    };
}
touchers! { touch_much = 1 touch_some = 2 touch_again = 3 scan = 4 probe = 5 }

#[inline(never)]
fn drop_pages(pages: &mut [u8]) {
    sys::drop_pages(pages);
}

fn run_minor(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&[
        "touch_much",
        "touch_some",
        "touch_again",
        "reckon",
        "drop_pages",
    ]);
    let memory = sys::map(PAGES * PAGE).context("mapping memory")?;
    sys::no_huge_pages(memory);
    let rounds = places.rounds(1500);
    let faults_before = sys::minor_faults();
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let mut fastest_ns = u64::MAX;
    while sys::monotonic_ns() < until_ns {
        let (much, some) = memory.split_at_mut(PAGES / 3 * 2 * PAGE);
        let start_ns = sys::monotonic_ns();
        touch_much(much);
        let much_ns = sys::monotonic_ns();
        touch_some(some);
        let some_ns = sys::monotonic_ns();
        // The same stores without faults: what of the two is user code.
        let cpu_before_ns = sys::thread_cpu_ns();
        let again_start_ns = sys::monotonic_ns();
        touch_again(memory);
        let again_ns = sys::monotonic_ns() - again_start_ns;
        let again_cpu_ns = sys::thread_cpu_ns() - cpu_before_ns;
        fastest_ns = fastest_ns.min(again_ns);
        // What took longer was preempted.
        let stores_ns = again_ns.min(fastest_ns * 3 / 2);
        for (place, wall_ns, user_ns) in [
            (0, much_ns - start_ns, stores_ns * 2 / 3),
            (1, some_ns - much_ns, stores_ns / 3),
        ] {
            let times = places.of(place);
            let user_ns = user_ns.min(wall_ns);
            times.user_ns += user_ns;
            times.fault_ns += wall_ns - user_ns;
            times.readings += 1;
            // Stores that fault miss the caches as well, and the ways in and out are the
            // processor's.
            times.user_error_ns += user_ns + wall_ns / 40;
        }
        // It has no faults: what of it was on the processor was its own code.
        let times = places.of(2);
        let user_ns = again_cpu_ns.min(again_ns);
        times.user_ns += user_ns;
        times.outside_ns += again_ns - user_ns;
        times.user_error_ns += user_ns / 10;
        times.readings += 1;
        places.work(3, rounds, reckon);
        places.call(4, || drop_pages(memory));
    }
    truth.set("minor_faults", sys::minor_faults() - faults_before);
    truth.set("functions", places.json());
    Ok(truth)
}

/// Answers faults with an empty page: at once for the second half of the memory, after 150 to 250
/// us for the first.
fn pager(faults: i32, late_until: usize, served: &AtomicU64) {
    let mut jitter = Jitter::new();
    while let Some(address) = sys::read_fault(faults) {
        if address < late_until {
            sys::nanosleep(jitter.between(150_000, 250_000));
        }
        sys::answer_fault(faults, address & !(PAGE - 1), PAGE);
        served.fetch_add(1, Ordering::Relaxed);
    }
}

fn run_waiting(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    const SLOW: usize = 16;
    let mut places = Places::new(&["scan", "probe", "drop_pages"]);
    let memory = sys::map(SLOW * 4 * PAGE).context("mapping memory")?;
    sys::no_huge_pages(memory);
    let faults = sys::watch_faults(memory).context("userfaultfd, which needs root")?;
    let late_until = memory.as_ptr() as usize + SLOW * PAGE;
    let served = Arc::new(AtomicU64::new(0));
    std::thread::Builder::new().name("pager".into()).spawn({
        let served = Arc::clone(&served);
        move || pager(faults, late_until, &served)
    })?;
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        let (slow, quick) = memory.split_at_mut(SLOW * PAGE);
        // A page of one and three of the other in turns.
        for (slow, quick) in slow.chunks_mut(PAGE).zip(quick.chunks_mut(3 * PAGE)) {
            for (place, function, pages) in [
                (0, scan as fn(&mut [u8]), slow),
                (1, probe as fn(&mut [u8]), quick),
            ] {
                let faults = (pages.len() / PAGE) as u64;
                let start_ns = sys::monotonic_ns();
                function(pages);
                let times = places.of(place);
                times.outside_ns += sys::monotonic_ns() - start_ns;
                times.readings += 1;
                // It runs before it waits; nearly all of that is in the kernel.
                times.user_error_ns += faults * 1000;
            }
        }
        places.call(2, || drop_pages(memory));
    }
    truth.set("served", served.load(Ordering::Relaxed));
    truth.set("functions", places.json());
    Ok(truth)
}
