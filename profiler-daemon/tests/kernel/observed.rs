//! What the programs tell of this process's threads, read pass by pass without a profile, with the
//! ledger of each thread checked at every pass.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use profiler_common::kinds::{BLOCKED, Kind, Primary, RUNNABLE};
use profiler_common::{Class, Counter, Phase};
use profiler_daemon::kernel::{
    Kernel, KernelSettings, MissingStack, NamedTargets, Pass, ThreadSnapshot, TracedSystemCalls,
};
use profiler_daemon::sys::clock::monotonic_ns;

use crate::daemon::privileged;

/// The mean gap between marks.
pub(crate) const GAP_NS: u64 = 1_000_000;
/// What has no stack: marks whose look never came, and what found no room.
pub(crate) const NOT_SAMPLED: u8 = 0;
pub(crate) const NOT_KEPT: u8 = 1;
/// Between two passes.
const PASS: Duration = Duration::from_millis(200);

pub(crate) fn settings(system_calls: TracedSystemCalls) -> KernelSettings {
    KernelSettings {
        frequency_hz: 997,
        min_interval_ns: GAP_NS,
        system_calls,
        max_threads: 1024,
        stacks_per_drain: 4096,
        ring_bytes: 1 << 20,
        user_frames: 127,
        mappings: 8192,
        unwind_chunks: 1,
    }
}

/// What the programs have told of one thread.
#[derive(Default)]
pub(crate) struct Account {
    /// By user stack; what has no stack is under `Err`.
    pub(crate) places: BTreeMap<Result<u64, u8>, Primary>,
    last: Option<ThreadSnapshot>,
    pub(crate) passes: usize,
}

impl Account {
    pub(crate) fn sum(&self) -> Primary {
        let mut sum = Primary::default();
        self.places.values().for_each(|primary| sum.add(primary));
        sum
    }

    pub(crate) fn snapshot(&self) -> &ThreadSnapshot {
        self.last.as_ref().expect("the thread was seen")
    }

    /// Kinds, exact and open waits are no more than the classes, in every pass; and the same as
    /// soon as `ended`.
    fn check(&self, ended: bool) {
        let Some(thread) = &self.last else { return };
        let (classes, kinds) = (&thread.classes, &thread.kinds);
        let class = |class: Class| classes[class as usize];
        let kind = |kind: Kind| kinds[kind as usize];
        assert_eq!(kind(Kind::User) + kind(Kind::Untraced), class(Class::User));
        assert_eq!(kind(Kind::Call), class(Class::Syscall));
        assert_eq!(kind(Kind::Kernel), class(Class::Kernel));
        let exact = self.sum().exact;
        let open = thread.off_cpu.map_or([0; 5], |off_cpu| off_cpu.classes);
        let waits = [
            (
                class(Class::Blocked),
                kind(Kind::CallBlocked) + kind(Kind::OutsideBlocked) + exact[BLOCKED],
                open[Class::Blocked as usize],
            ),
            (
                class(Class::Runnable),
                kind(Kind::CallRunnable) + kind(Kind::OutsideRunnable) + exact[RUNNABLE],
                open[Class::Runnable as usize],
            ),
        ];
        for (total, closed, open) in waits {
            assert!(
                closed + open <= total,
                "{closed} + {open} of {total}: {thread:?}"
            );
            assert!(!ended || closed == total, "{closed} of {total}: {thread:?}");
        }
    }
}

/// What the programs have told of all threads.
#[derive(Default)]
pub(crate) struct Observed {
    /// By the place of the record.
    living: BTreeMap<u32, Account>,
    pub(crate) ended: Vec<Account>,
    counters: Vec<u64>,
    counters_before: Vec<u64>,
}

/// A pass. Most are not ready at once, and gone on with: nothing is lost by that.
pub(crate) fn whole_pass(kernel: &mut Kernel) -> Pass {
    let mut pass = |within| kernel.pass(false, within, &mut |_| {}).expect("a pass");
    pass(Duration::ZERO)
        .unwrap_or_else(|| pass(Duration::from_secs(60)).expect("programs end within a minute"))
}

impl Observed {
    /// Takes a pass in, and checks the ledger of each thread.
    fn pass(&mut self, kernel: &mut Kernel) {
        let pass = whole_pass(kernel);
        for sum in pass.sums {
            let place = match sum.missing {
                None => Ok(sum.user),
                Some(MissingStack::NotSampled) => Err(NOT_SAMPLED),
                Some(MissingStack::NotKept) => Err(NOT_KEPT),
            };
            let account = self.living.entry(sum.slot).or_default();
            account.places.entry(place).or_default().add(&sum.primary);
        }
        // Those whose end the last pass told have all they will get, and their places may be
        // others' by now.
        let is_ended = |account: &Account| {
            account
                .last
                .is_some_and(|thread| thread.phase == Phase::Exited)
        };
        let ended = self.living.extract_if(.., |_, account| is_ended(account));
        for (_, account) in ended {
            account.check(true);
            self.ended.push(account);
        }
        for thread in pass.threads {
            let account = self.living.entry(thread.slot).or_default();
            account.last = Some(thread);
            account.passes += 1;
            account.check(false);
        }
        self.counters_before = std::mem::replace(&mut self.counters, pass.counters);
    }

    /// The thread, which has ended.
    pub(crate) fn thread(&self, tid: u32) -> &Account {
        self.ended
            .iter()
            .find(|account| account.snapshot().tid == tid)
            .expect("the thread has a record")
    }

    /// Every tick that was counted up to the last pass but one, and none that was not, is in a
    /// thread's rows.
    pub(crate) fn check_samples(&self) {
        let accounts = self.living.values().chain(&self.ended);
        let samples: u64 = accounts.map(|account| account.sum().samples()).sum();
        let counted = |counters: &[u64]| counters[Counter::Samples as usize];
        let range = counted(&self.counters_before)..=counted(&self.counters);
        assert!(range.contains(&samples), "{samples} of {range:?}");
    }
}

/// What the host has taken from this machine's processors since boot, nanoseconds.
pub(crate) fn stolen_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/stat").expect("the machine's processor time");
    let ticks = text.split_ascii_whitespace().nth(8);
    let ticks = ticks.and_then(|ticks| ticks.parse::<u64>().ok());
    ticks.unwrap_or(0) * 10_000_000
}

/// Runs `work` in a thread of this process, which is the target with its children, until `seconds`
/// are over. All that was observed to its end, its id, and what it returns.
pub(crate) fn observe_all<T: Send>(
    settings: KernelSettings,
    work: impl FnOnce(&AtomicBool) -> T + Send,
    seconds: f64,
) -> Option<(Observed, u32, T)> {
    if !privileged() {
        return None;
    }
    let mut kernel = Kernel::start(settings).expect("the programs load");
    let targets = NamedTargets {
        pids: vec![std::process::id()],
        children: true,
        ..NamedTargets::default()
    };
    let named = kernel.targets.name(&targets);
    named.expect("targets can be set");
    let evaluated = kernel.targets.evaluate_anew(&mut kernel.programs);
    evaluated.expect("the tasks can be scanned");
    let stop = AtomicBool::new(false);
    let mut observed = Observed::default();
    let (sender, receiver) = std::sync::mpsc::channel();
    let (tid, result) = std::thread::scope(|scope| {
        let worker = scope.spawn(|| {
            // SAFETY: takes nothing.
            let tid = unsafe { libc::gettid() }.cast_unsigned();
            sender.send(tid).expect("the test waits");
            work(&stop)
        });
        let tid = receiver.recv().expect("the thread starts");
        let until = Instant::now() + Duration::from_secs_f64(seconds);
        while Instant::now() < until {
            let pass = Instant::now() + PASS;
            while Instant::now() < pass {
                std::thread::sleep(Duration::from_millis(5));
                let now_ns = monotonic_ns();
                if kernel
                    .ticks
                    .next_change_ns()
                    .is_some_and(|at_ns| at_ns <= now_ns)
                {
                    kernel.ticks.change(now_ns, &kernel.counts);
                }
            }
            observed.pass(&mut kernel);
        }
        stop.store(true, Ordering::Relaxed);
        (tid, worker.join().expect("the work is done"))
    });
    // Its end, and what was in the other buffer.
    std::thread::sleep(PASS);
    observed.pass(&mut kernel);
    observed.pass(&mut kernel);
    assert!(observed.thread(tid).passes > 3);
    Some((observed, tid, result))
}

/// The account of a thread that does `work`, and what it returns.
pub(crate) fn observe<T: Send>(
    system_calls: TracedSystemCalls,
    work: impl FnOnce(&AtomicBool) -> T + Send,
    seconds: f64,
) -> Option<(Account, T)> {
    let (mut observed, tid, result) = observe_all(settings(system_calls), work, seconds)?;
    let place = observed
        .ended
        .iter()
        .position(|account| account.snapshot().tid == tid);
    let account = observed
        .ended
        .swap_remove(place.expect("the thread has a record"));
    Some((account, result))
}
