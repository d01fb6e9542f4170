//! The two hooks on system calls: attached and detached while the programs run, and what they cost,
//! measured.
//!
//! Their presence alone doubles the time of a short call, whatever the programs do: where that is
//! too dear only being without them helps.

use aya::programs::tp_btf::BtfTracePointLinkId;
use profiler_common::records::{scanning, system_calls};
use tracing::debug;

use super::cost::Costs;
use super::programs::Programs;
use super::refusal::StartError;
use super::settings::TracedSystemCalls;
use super::targets::TargetControl;
use crate::sys::clock::thread_ns;

/// Their tracepoints, in the order in which they are attached.
pub(super) const TRACEPOINTS: [&str; 2] = ["sys_enter", "sys_exit"];
/// Pairs of loops, with the hooks and without.
const ROUNDS: usize = 5;
/// Calls of one loop: 0.1 to 0.5 ms.
const CALLS: u32 = 1_000;

/// Whether system calls are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallTracing {
    /// They are not.
    Off,
    /// For a moment, in which waits are as they were before.
    Sample,
    /// Until further notice.
    On,
}

/// The hooks.
pub struct CallHooks {
    /// Whose calls are traced while any are.
    whose: TracedSystemCalls,
    /// Those that are attached, in that order.
    links: Vec<(&'static str, BtfTracePointLinkId)>,
    price_ns: f64,
    idle_run_ns: f64,
}

impl CallHooks {
    /// Not attached yet.
    pub(super) const fn new(whose: TracedSystemCalls) -> Self {
        Self {
            whose,
            links: Vec::new(),
            price_ns: 0.0,
            idle_run_ns: 0.0,
        }
    }

    /// The tracepoints of those that are attached.
    pub(super) fn attached(&self) -> impl Iterator<Item = &'static str> {
        self.links.iter().map(|(name, _)| *name)
    }

    /// What a pair of hooks costs a system call whose programs do nothing, nanoseconds; 0 where
    /// they are never attached.
    #[must_use]
    pub const fn price_ns(&self) -> f64 {
        self.price_ns
    }

    /// What the kernel's run-time statistics say of one run of such a program that does nothing:
    /// most of it is the measuring. 0 where there are no hooks, or no statistics.
    #[must_use]
    pub const fn idle_run_ns(&self) -> f64 {
        self.idle_run_ns
    }

    /// Has system calls traced from now on, or not; only where the settings allow it. Threads that
    /// are off their processors go on in their call, and are traced or not from when they come.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses; they are then not traced.
    pub fn trace(
        &mut self,
        tracing: CallTracing,
        targets: &mut TargetControl,
        programs: &mut Programs,
    ) -> Result<(), StartError> {
        let on = tracing != CallTracing::Off;
        if self.whose == TracedSystemCalls::Off || on == targets.calls_are_traced() {
            return Ok(());
        }
        let whose = match tracing {
            CallTracing::Off => system_calls::OFF,
            CallTracing::Sample => system_calls::SAMPLED,
            CallTracing::On => self.whose.number(),
        };
        if on {
            if let Err(error) = self.attach(programs) {
                self.detach(programs)?;
                return Err(error);
            }
            return targets.trace_calls(whose);
        }
        targets.trace_calls(whose)?;
        // Whoever makes calls has evaluated itself by now. The hooks go before the rest is
        // evaluated, which waits for the kernel: they are what is dear.
        self.detach(programs)?;
        targets.scan_tasks(scanning::RUNNING, programs)
    }

    /// Attaches the hooks, before the programs work, and measures what they cost, and what the
    /// statistics make of that.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses.
    pub(super) fn start(
        &mut self,
        programs: &mut Programs,
        costs: &mut Costs,
    ) -> Result<(), StartError> {
        if self.whose == TracedSystemCalls::Off {
            return Ok(());
        }
        let mut prices: Vec<f64> = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let without_ns = ns_per_call();
            self.attach(programs)?;
            let with_ns = ns_per_call();
            prices.push(with_ns - without_ns);
            if prices.len() < ROUNDS {
                self.detach(programs)?;
            }
        }
        self.price_ns = median(prices).max(0.0);
        let runs = costs.measure(true).and_then(|()| {
            let runs = (0..ROUNDS).filter_map(|_| run_ns(programs)).collect();
            costs.measure(false).map(|()| runs)
        });
        match runs {
            Ok(runs) => self.idle_run_ns = median(runs),
            // Nothing is learnt from them later either.
            Err(error) => debug!("no run-time statistics: {error}"),
        }
        Ok(())
    }

    fn attach(&mut self, programs: &mut Programs) -> Result<(), StartError> {
        for name in TRACEPOINTS {
            self.links.push((name, programs.attach(name)?));
        }
        Ok(())
    }

    fn detach(&mut self, programs: &mut Programs) -> Result<(), StartError> {
        while let Some((name, link)) = self.links.pop() {
            programs.detach(name, link)?;
        }
        Ok(())
    }
}

/// The middle one; 0 of none.
fn median(mut values: Vec<f64>) -> f64 {
    values.sort_unstable_by(f64::total_cmp);
    values.get(values.len() / 2).copied().unwrap_or_default()
}

/// What a run of the hooks' programs takes by the statistics, which are on.
fn run_ns(programs: &Programs) -> Option<f64> {
    let sum = || {
        let costs = programs.costs().into_iter();
        let hooks = costs.filter(|cost| TRACEPOINTS.contains(&cost.name.as_str()));
        hooks.fold((0, 0), |(runs, ns), cost| {
            (runs + cost.runs, ns + cost.run_ns)
        })
    };
    let before = sum();
    ns_per_call();
    let after = sum();
    let runs = after.0.checked_sub(before.0).filter(|runs| *runs > 0)?;
    Some(after.1.saturating_sub(before.1) as f64 / runs as f64)
}

/// What a system call that does next to nothing takes this thread.
fn ns_per_call() -> f64 {
    let began_ns = thread_ns();
    for _ in 0..CALLS {
        // SAFETY: takes nothing, and cannot fail. As a system call: the C library might remember
        // the answer.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
    thread_ns().saturating_sub(began_ns) as f64 / f64::from(CALLS)
}
