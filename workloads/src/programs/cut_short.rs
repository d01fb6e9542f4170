//! Calls and code that are cut short: by signals whose handlers return through a call of their own,
//! by calls that are begun again, by a process that is stopped. And code whose leaf is not the
//! program's: the C library's copies, the clock of the vDSO.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};

use super::Program;
use crate::options::Options;
use crate::places::Places;
use crate::sys;
use crate::truth::Truth;
use crate::work::{burn, workers};

pub(super) const SIGRETURNS: Program = Program {
    name: "sigreturns",
    about: "a signal every 400 us: 50 us of user code in on_tick, and the call that returns from it; grind is interrupted [--seconds]",
    run: run_sigreturns,
};

pub(super) const RESTARTS: Program = Program {
    name: "restarts",
    about: "a signal every 400 us into patient, a wait of 1.7 ms that begins again each time, and brief, one of 0.2 ms [--seconds]",
    run: run_restarts,
};

pub(super) const STOPS: Program = Program {
    name: "stops",
    about: "a forked child in trudge (3 ms of user code) and doze (1 ms of sleep), stopped for 2 ms every 7 ms [--seconds]",
    run: run_stops,
};

pub(super) const LEAVES: Program = Program {
    name: "leaves",
    about: "60 us of memmove in carry_one, 120 us in carry_two, 90 us of clock reading in look_up [--seconds]",
    run: run_leaves,
};

workers! {
    /// What is interrupted.
    grind = 381;
    /// Until it is stopped.
    trudge = 382;
}

static HANDLER_ROUNDS: AtomicU64 = AtomicU64::new(0);
static HANDLED: AtomicU64 = AtomicU64::new(0);
static HANDLER_NS: AtomicU64 = AtomicU64::new(0);

#[inline(never)]
extern "C" fn on_tick(_signal: libc::c_int) {
    let start_ns = sys::monotonic_ns();
    black_box(burn(HANDLER_ROUNDS.load(Ordering::Relaxed), 383));
    HANDLED.fetch_add(1, Ordering::Relaxed);
    HANDLER_NS.fetch_add(sys::monotonic_ns() - start_ns, Ordering::Relaxed);
}

const SIGNAL_EVERY_US: i64 = 400;

fn run_sigreturns(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["grind", "on_tick"]);
    let handler_rounds = places.rounds(50);
    HANDLER_ROUNDS.store(handler_rounds, Ordering::Relaxed);
    let rounds = places.rounds(40);
    sys::on_signal(libc::SIGALRM, on_tick);
    sys::interval_timer(SIGNAL_EVERY_US);
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        places.work(0, rounds, grind);
    }
    sys::interval_timer(0);
    let handled = HANDLED.load(Ordering::Relaxed);
    let handler_ns = HANDLER_NS.load(Ordering::Relaxed);
    // The handler's time lies within the slices that it cut.
    let times = places.of(0);
    times.work_ns = times.work_ns.saturating_sub(handler_ns);
    times.error_ns += handled * 3000;
    // The ways into the kernel and out of it: what a hypervisor takes for them is in neither mode,
    // and seen as user code.
    times.user_error_ns += handled * 10_000;
    let times = places.of(1);
    times.rounds += handler_rounds * handled;
    times.work_ns += handler_ns;
    // The way in, and the call that returns.
    times.user_error_ns += handled * 500;
    times.error_ns += handled * 3000;
    truth.set("handled", handled);
    // The handler stands on the stack of what it interrupts.
    truth.set("by", "exclusive");
    truth.set("functions", places.json());
    Ok(truth)
}

#[inline(never)]
fn patient(fd: i32) {
    black_box(sys::read(fd, &mut [0u8; 8]));
}

#[inline(never)]
fn brief() {
    sys::nanosleep(black_box(200_000));
}

#[inline(never)]
extern "C" fn on_knock(_signal: libc::c_int) {
    HANDLED.fetch_add(1, Ordering::Relaxed);
}

fn run_restarts(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["patient", "brief"]);
    let timer = sys::timer_fd()?;
    // With SA_RESTART: a read goes on, a sleep ends.
    sys::on_signal(libc::SIGALRM, on_knock);
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        sys::arm_timer_fd(timer, 1_700_000);
        sys::interval_timer(SIGNAL_EVERY_US);
        let knocked = HANDLED.load(Ordering::Relaxed);
        places.call(0, || patient(timer));
        let knocks = HANDLED.load(Ordering::Relaxed) - knocked;
        // The handler is in what was measured, but not in the function's own time.
        let times = places.of(0);
        times.error_ns += knocks * 3000;
        times.user_error_ns += knocks * 1500;
        sys::interval_timer(0);
        places.call(1, brief);
    }
    truth.set("knocks", HANDLED.load(Ordering::Relaxed));
    truth.set("functions", places.json());
    Ok(truth)
}

#[inline(never)]
fn doze() {
    sys::nanosleep(black_box(1_000_000));
}

fn run_stops(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let places = Places::new(&["trudge", "doze"]);
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    let (from_child, to_parent) = sys::pipe()?;
    let per_ms = places.per_ms();
    let pid = sys::fork(|| {
        let mut places = Places::with_rate(&["trudge", "doze"], per_ms);
        let rounds = places.rounds(3000);
        while sys::monotonic_ns() < until_ns {
            places.work(0, rounds, trudge);
            places.call(1, doze);
        }
        sys::write_all(to_parent, places.json().to_string().as_bytes());
    })?;
    sys::close(to_parent);
    let mut stops = 0u64;
    while sys::monotonic_ns() + 20_000_000 < until_ns {
        sys::nanosleep(5_000_000);
        sys::kill(pid, libc::SIGSTOP);
        sys::nanosleep(2_000_000);
        sys::kill(pid, libc::SIGCONT);
        stops += 1;
    }
    let mut text = [0u8; 4096];
    let length = sys::read(from_child, &mut text).max(0) as usize;
    sys::wait_child(pid)?;
    truth.set("stops", stops);
    truth.set("child_pid", pid);
    truth.set(
        "functions",
        serde_json::from_slice::<serde_json::Value>(&text[..length])?,
    );
    truth.set("scope", "session");
    Ok(truth)
}

/// Functions that do nothing but let the C library copy; they return the time it took.
macro_rules! carriers {
    ($($name:ident = $seed:literal)*) => {
        $(#[inline(never)]
        fn $name(bytes: &mut [u8], times: u64) {
            let half = bytes.len() / 2;
            for _ in 0..times {
                bytes.copy_within(..half, black_box(half));
            }
            bytes[0] = black_box($seed);
        })*
    };
}
carriers! { carry_one = 1 carry_two = 2 }

#[inline(never)]
fn look_up(times: u64) -> u64 {
    let mut last = 0;
    for _ in 0..times {
        last = black_box(sys::monotonic_ns());
    }
    black_box(last)
}

fn run_leaves(options: &Options, mut truth: Truth) -> anyhow::Result<Truth> {
    let mut places = Places::new(&["carry_one", "carry_two", "look_up"]);
    let mut bytes = vec![7u8; 16 << 10];
    let start_ns = sys::monotonic_ns();
    carry_one(&mut bytes, 1000);
    let copies = 60_000_000 / (sys::monotonic_ns() - start_ns).max(1);
    let until_ns = sys::monotonic_ns() + options.duration_ns();
    while sys::monotonic_ns() < until_ns {
        let mut times = [0; 4];
        times[0] = sys::monotonic_ns();
        carry_one(&mut bytes, copies);
        times[1] = sys::monotonic_ns();
        carry_two(&mut bytes, copies * 2);
        times[2] = sys::monotonic_ns();
        look_up(2000);
        times[3] = sys::monotonic_ns();
        for place in 0..3 {
            let wall_ns = times[place + 1] - times[place];
            // Longer than this it was not only working.
            let lost = wall_ns > [120_000, 240_000, 200_000][place];
            let places = places.of(place);
            if lost {
                places.outside_ns += wall_ns;
                places.user_error_ns += 120_000;
            } else {
                places.user_ns += wall_ns;
            }
            places.readings += 1;
        }
    }
    truth.set("functions", places.json());
    Ok(truth)
}
