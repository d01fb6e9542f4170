//! What the programs keep of threads that do known things: the ledger of kinds, marks and waits,
//! and what lies at each place.
//!
//! The places are system-call instructions of this file: nobody makes unwind tables here, so a
//! stack is its innermost frame.

use std::arch::asm;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use profiler_common::Class;
use profiler_common::kinds::{
    BLOCKED, Kind, MARK_BLOCKED, MARK_CALL, MARK_RUNNABLE, Primary, RUNNABLE, Tick,
};
use profiler_daemon::kernel::{KernelSettings, TracedSystemCalls};
use profiler_daemon::sys::clock::thread_ns;

use crate::observed::{GAP_NS, NOT_KEPT, NOT_SAMPLED, observe, observe_all, settings, stolen_ns};

/// A system call with two arguments and a zero, from an instruction of its own for each `PLACE`.
/// Returns its result.
#[inline(never)]
fn call<const PLACE: u32>(number: libc::c_long, first: usize, second: usize) -> isize {
    let result;
    // SAFETY: the calls that are made here read the two arguments at most, which are null or point
    // to what they take.
    unsafe {
        asm!(
            "mov r9d, {place}",
            "syscall",
            place = const PLACE,
            inlateout("rax") number as isize => result,
            in("rdi") first,
            in("rsi") second,
            in("rdx") 0,
            out("rcx") _,
            out("r9") _,
            out("r11") _,
        );
    }
    result
}

/// Sleeps at a place of its own. How long it did not run meanwhile, nanoseconds.
fn sleep<const PLACE: u32>(ns: i64) -> u64 {
    let time = libc::timespec {
        tv_sec: 0,
        tv_nsec: ns,
    };
    // In this order a half of one reading is too much and a half of the other too little.
    let (before, ran_before_ns) = (Instant::now(), thread_ns());
    let result = call::<PLACE>(libc::SYS_nanosleep, &raw const time as usize, 0);
    let (elapsed, ran_ns) = (before.elapsed(), thread_ns() - ran_before_ns);
    assert_eq!(result, 0);
    let elapsed_ns = u64::try_from(elapsed.as_nanos()).expect("a short sleep");
    elapsed_ns.saturating_sub(ran_ns)
}

fn spin(time: Duration) {
    let begun = Instant::now();
    while begun.elapsed() < time {
        std::hint::spin_loop();
    }
}

/// `found` marks where `expected` fall on average.
fn assert_marks(what: &str, found: u64, expected: f64) {
    assert!(
        (found as f64 - expected).abs() <= 4.0 * expected.sqrt() + 4.0,
        "{what}: {found} marks, {expected:.1} expected"
    );
}

/// `found` ticks in so much user time, while the host took `stolen_ns` from the processors, in
/// which there are none.
fn assert_ticks(found: u64, user_ns: u64, stolen_ns: u64) {
    let expected = user_ns as f64 * 997e-9;
    let slack = 4.0 * expected.sqrt() + 4.0;
    let least = expected - stolen_ns as f64 * 997e-9 - slack;
    assert!(
        (least..=expected + slack).contains(&(found as f64)),
        "{found} ticks, {expected:.1} expected; {stolen_ns} ns were stolen"
    );
}

#[test]
fn user_code_before_a_call_is_none_of_the_call() {
    // Check that a loop of 700 us of user code and one call of nothing has its ticks in user mode,
    // and in the call as many marks as the call's own time has gaps.
    let work = |stop: &AtomicBool| {
        while !stop.load(Ordering::Relaxed) {
            spin(Duration::from_micros(700));
            call::<1>(libc::SYS_getppid, 0, 0);
        }
    };
    let stolen_before_ns = stolen_ns();
    let Some((account, ())) = observe(TracedSystemCalls::All, work, 3.0) else {
        return;
    };
    let stolen_ns = stolen_ns() - stolen_before_ns;
    let (sum, thread) = (account.sum(), account.snapshot());
    let user_ns = thread.kinds[Kind::User as usize];
    let call_ns = thread.kinds[Kind::Call as usize];
    assert!(user_ns > 30 * call_ns, "{user_ns} and {call_ns}");
    let ticks = sum.ticks[Tick::User as usize] + sum.ticks[Tick::Fault as usize];
    assert_ticks(ticks, user_ns, stolen_ns);
    assert!(sum.ticks[Tick::User as usize] > 9 * sum.ticks[Tick::Fault as usize]);
    assert_marks(
        "calls",
        sum.marks[MARK_CALL],
        call_ns as f64 / GAP_NS as f64,
    );
}

#[test]
fn sleeps_of_many_lengths_have_their_time() {
    // Check that sleeps of 10 us, 150 us, 1 ms and 20 ms have, each at its place, the blocked and
    // runnable time that the program itself measures: exact waits, and marks for the rest.
    let work = |stop: &AtomicBool| {
        let mut truth = [0; 4];
        while !stop.load(Ordering::Relaxed) {
            for _ in 0..10 {
                truth[0] += sleep::<1>(10_000);
            }
            for _ in 0..4 {
                truth[1] += sleep::<2>(150_000);
            }
            truth[2] += sleep::<3>(1_000_000);
            truth[3] += sleep::<4>(20_000_000);
        }
        truth
    };
    let Some((account, truth)) = observe(TracedSystemCalls::All, work, 6.0) else {
        return;
    };
    let sum = account.sum();
    let kinds = account.snapshot().kinds;
    let divided_ns = [
        kinds[Kind::CallBlocked as usize],
        kinds[Kind::CallRunnable as usize],
    ];
    // Each place's time, and its standard deviation by its marks.
    let share = |primary: &Primary| {
        let (mut ns, mut variance) = (0.0, 0.0);
        for (wait, mark) in [(BLOCKED, MARK_BLOCKED), (RUNNABLE, MARK_RUNNABLE)] {
            ns += primary.exact[wait] as f64;
            if sum.marks[mark] != 0 {
                let of_mark = divided_ns[wait] as f64 / sum.marks[mark] as f64;
                ns += of_mark * primary.marks[mark] as f64;
                variance += of_mark.powi(2) * (primary.marks[mark] as f64 + 1.0);
            }
        }
        (ns, variance.sqrt())
    };
    // All of one's sleeps may follow others too soon to be walked: it has marks alone then.
    let mut found: Vec<(f64, f64, &Primary)> = account
        .places
        .values()
        .map(|primary| {
            let (ns, sigma) = share(primary);
            (ns, sigma, primary)
        })
        .filter(|(ns, ..)| *ns > 1e7)
        .collect();
    assert_eq!(found.len(), 4, "four places: {:?}", account.places);
    found.sort_by(|one, other| one.0.total_cmp(&other.0));
    let mut truth: Vec<f64> = truth.iter().map(|ns| *ns as f64).collect();
    truth.sort_by(f64::total_cmp);
    for ((ns, sigma, primary), truth) in found.iter().zip(truth) {
        // The scheduler reads its clock a little before or after the program that watches it.
        let around = 0.05 * truth;
        assert!(
            (*ns - truth).abs() < around + 4.0 * sigma,
            "{ns:.0} ± {sigma:.0}, truly {truth:.0}: {primary:?}"
        );
    }
    assert!(
        sum.exact[BLOCKED] > divided_ns[BLOCKED],
        "long waits are exact: {:?} and {divided_ns:?}",
        sum.exact
    );
    assert!(
        !account.places.contains_key(&Err(NOT_KEPT)),
        "there is room"
    );
}

#[test]
fn page_faults_are_told_apart_and_counted() {
    // Check that a thread which touches new pages has ticks in kernel mode outside calls, and the
    // faults that it counts itself.
    const BYTES: usize = 16 << 20;
    let faults = || {
        let mut usage = std::mem::MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: writes the struct it is given.
        let result = unsafe { libc::getrusage(libc::RUSAGE_THREAD, usage.as_mut_ptr()) };
        assert_eq!(result, 0);
        // SAFETY: written, and all-zero bytes would be a value.
        unsafe { usage.assume_init() }.ru_minflt.cast_unsigned()
    };
    let work = |stop: &AtomicBool| {
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let access = libc::PROT_READ | libc::PROT_WRITE;
        // SAFETY: new memory.
        let start = unsafe { libc::mmap(std::ptr::null_mut(), BYTES, access, flags, -1, 0) };
        assert_ne!(start, libc::MAP_FAILED);
        // SAFETY: the memory just made.
        unsafe { libc::madvise(start, BYTES, libc::MADV_NOHUGEPAGE) };
        while !stop.load(Ordering::Relaxed) {
            for page in (0..BYTES).step_by(4096) {
                // SAFETY: within the memory.
                unsafe { start.cast::<u8>().add(page).write_volatile(1) };
            }
            // SAFETY: the memory, which holds nothing.
            unsafe { libc::madvise(start, BYTES, libc::MADV_DONTNEED) };
        }
        // SAFETY: the memory, which is not used any more.
        unsafe { libc::munmap(start, BYTES) };
        faults()
    };
    let Some((account, faults)) = observe(TracedSystemCalls::All, work, 2.0) else {
        return;
    };
    let (sum, thread) = (account.sum(), account.snapshot());
    assert!(
        sum.ticks[Tick::Fault as usize] > 3 * sum.ticks[Tick::User as usize],
        "{:?}",
        sum.ticks
    );
    let missing = thread.minor_faults.abs_diff(faults);
    assert!(missing < 30, "{} and {faults} faults", thread.minor_faults);
    assert!(faults > 10_000, "{faults} faults");
}

#[test]
fn untraced_time_has_ticks_of_all_three_sorts() {
    // Check that where calls are not traced, running time is one exact total, and its ticks tell
    // user mode, calls and waits apart.
    let work = |stop: &AtomicBool| {
        let mut bytes = vec![0_u8; 1 << 18];
        while !stop.load(Ordering::Relaxed) {
            spin(Duration::from_micros(500));
            call::<1>(
                libc::SYS_getrandom,
                bytes.as_mut_ptr() as usize,
                bytes.len(),
            );
            sleep::<2>(200_000);
        }
    };
    let Some((account, ())) = observe(TracedSystemCalls::Off, work, 3.0) else {
        return;
    };
    let (sum, thread) = (account.sum(), account.snapshot());
    let kinds = thread.kinds;
    assert_eq!(kinds[Kind::User as usize], 0);
    assert_eq!(
        kinds[Kind::Untraced as usize],
        thread.classes[Class::User as usize]
    );
    assert_eq!(sum.marks, [0; 3], "no call is seen");
    assert!(
        sum.ticks[Tick::UntracedUser as usize] > 100,
        "{:?}",
        sum.ticks
    );
    assert!(
        sum.ticks[Tick::UntracedCall as usize] > 100,
        "{:?}",
        sum.ticks
    );
    let total_ns = kinds[Kind::OutsideBlocked as usize];
    let weighted_ns = sum.weighted[BLOCKED];
    let sigma_ns = 1e6 * (sum.squares_ms2[BLOCKED] as f64).sqrt();
    assert!(
        weighted_ns.abs_diff(total_ns) as f64 <= 4.0 * sigma_ns,
        "drawn waits stand for {weighted_ns} of {total_ns}"
    );
}

#[test]
fn without_an_interval_each_nanosecond_of_calls_has_its_stack() {
    // Check that with an interval of zero all running time in calls is marked to the nanosecond,
    // and all waits in calls are exact, but for that before the first run, which nobody could walk,
    // and those few that find no room.
    let work = |stop: &AtomicBool| {
        while !stop.load(Ordering::Relaxed) {
            spin(Duration::from_micros(20));
            call::<1>(libc::SYS_getppid, 0, 0);
            sleep::<2>(50_000);
        }
    };
    let settings = KernelSettings {
        min_interval_ns: 0,
        ..settings(TracedSystemCalls::All)
    };
    let Some((observed, tid, ())) = observe_all(settings, work, 2.0) else {
        return;
    };
    let account = observed.thread(tid);
    let (sum, kinds) = (account.sum(), account.snapshot().kinds);
    let divided =
        [Kind::Call, Kind::CallBlocked, Kind::CallRunnable].map(|kind| kinds[kind as usize]);
    assert_eq!(sum.marks, divided);
    assert!(
        divided[MARK_BLOCKED] < sum.exact[BLOCKED] / 100,
        "{divided:?}"
    );
    assert!(account.places.len() > 2, "{:?}", account.places);
}

#[test]
fn what_finds_no_room_is_kept_without_its_stack() {
    // Check that where the map of rows is far too small, every tick, mark and wait is there all the
    // same, most under the reason.
    let work = |stop: &AtomicBool| {
        while !stop.load(Ordering::Relaxed) {
            spin(Duration::from_micros(300));
            call::<1>(libc::SYS_getppid, 0, 0);
            sleep::<2>(50_000);
            sleep::<3>(60_000);
        }
    };
    let settings = KernelSettings {
        stacks_per_drain: 2,
        ..settings(TracedSystemCalls::All)
    };
    let stolen_before_ns = stolen_ns();
    let Some((observed, tid, ())) = observe_all(settings, work, 2.0) else {
        return;
    };
    let stolen_ns = stolen_ns() - stolen_before_ns;
    let account = observed.thread(tid);
    let not_kept = account.places.get(&Err(NOT_KEPT));
    let samples = not_kept.map_or(0, Primary::samples);
    assert!(samples > 100, "{:?}", account.places);
    observed.check_samples();
    let user_ns = account.snapshot().kinds[Kind::User as usize];
    let ticks = account.sum().ticks;
    let found = ticks[Tick::User as usize] + ticks[Tick::Fault as usize];
    assert_ticks(found, user_ns, stolen_ns);
}

#[test]
fn processes_that_come_and_go_are_whole() {
    // Check that of processes which are forked, execute a program and end, each thread's ledger
    // comes out to the nanosecond, and that marks of their calls are rarely without a look.
    let work = |stop: &AtomicBool| {
        let mut children = 0_usize;
        while !stop.load(Ordering::Relaxed) {
            let status = std::process::Command::new("/proc/self/exe")
                .arg("--list")
                .stdout(std::process::Stdio::null())
                .status();
            assert!(status.expect("this program can be executed").success());
            children += 1;
        }
        children
    };
    let settings = KernelSettings {
        min_interval_ns: 20_000,
        ..settings(TracedSystemCalls::All)
    };
    let Some((observed, _, children)) = observe_all(settings, work, 3.0) else {
        return;
    };
    assert!(
        children > 10 && observed.ended.len() > children,
        "{children}"
    );
    let (mut all, mut not_sampled) = (0, 0);
    for account in &observed.ended {
        let marks = |primary: &Primary| primary.marks.iter().sum::<u64>();
        all += marks(&account.sum());
        not_sampled += account.places.get(&Err(NOT_SAMPLED)).map_or(0, marks);
    }
    assert!(
        all > 1000 && not_sampled * 50 < all,
        "{not_sampled} of {all}"
    );
    observed.check_samples();
}
