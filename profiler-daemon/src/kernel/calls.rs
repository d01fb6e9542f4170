//! The two hooks on system calls: attached and detached while the programs run, and what they cost, measured.
//!
//! Their presence alone doubles the time of a short call, whatever the programs do: where that is too dear only being without them helps.

use aya::programs::BtfTracePoint;
use aya::programs::tp_btf::BtfTracePointLinkId;
use profiler_common::records::{scanning, system_calls};
use profiler_common::walk_budget::WHOLE_SHARE;
use tracing::warn;

use super::load::{Kernel, SystemCalls, program_of};
use super::refusal::{StartError, chain};
use super::ticks::Current;
use crate::sys::clock::thread_ns;

/// Their tracepoints, in the order in which they are attached.
pub(super) const TRACEPOINTS: [&str; 2] = ["sys_enter", "sys_exit"];
/// Pairs of loops, with the hooks and without.
const ROUNDS: usize = 5;
/// Calls of one loop: 0.1 to 0.5 ms.
const CALLS: u32 = 1_000;

/// The hooks that are attached.
#[derive(Default)]
pub(super) struct CallHooks {
    links: Vec<(&'static str, BtfTracePointLinkId)>,
    price_ns: f64,
}

/// What the programs have done since they were loaded, on all processors together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Work {
    /// Runs of the two programs at system calls.
    pub call_hooks: u64,
    /// Runs of the program at switches.
    pub switches: u64,
    /// What walks have cost, nanoseconds.
    pub walks_ns: u64,
    /// How long processors were idle, nanoseconds.
    pub idle_ns: u64,
}

impl Work {
    /// What has been done since `earlier`.
    #[must_use]
    pub const fn since(&self, earlier: &Self) -> Self {
        Self {
            call_hooks: self.call_hooks.saturating_sub(earlier.call_hooks),
            switches: self.switches.saturating_sub(earlier.switches),
            walks_ns: self.walks_ns.saturating_sub(earlier.walks_ns),
            idle_ns: self.idle_ns.saturating_sub(earlier.idle_ns),
        }
    }
}

impl Kernel {
    /// Are system calls traced now, for those threads for which they may be?
    #[must_use]
    pub const fn calls_are_traced(&self) -> bool {
        self.control_value.system_calls != system_calls::OFF
    }

    /// The tracepoints that have a program now.
    pub(super) fn attached_tracepoints(&self) -> impl Iterator<Item = &'static str> {
        let calls = self.call_hooks.links.iter().map(|(name, _)| *name);
        self.tracepoints.iter().copied().chain(calls)
    }

    /// What a pair of hooks costs a system call whose programs do nothing, nanoseconds; 0 where they are never attached.
    #[must_use]
    pub const fn hooks_price_ns(&self) -> f64 {
        self.call_hooks.price_ns
    }

    /// Has system calls traced from now on, or not; only where the settings allow it. Threads that are away go on in their call, and
    /// are traced or not from when they come.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses; they are then not traced.
    pub fn trace_calls(&mut self, on: bool) -> Result<(), StartError> {
        let mode = match self.settings.system_calls {
            SystemCalls::All => system_calls::ALL,
            SystemCalls::Named => system_calls::NAMED,
            SystemCalls::Off => return Ok(()),
        };
        if on == self.calls_are_traced() {
            return Ok(());
        }
        if on {
            if let Err(error) = self.attach_call_hooks() {
                self.detach_call_hooks()?;
                return Err(error);
            }
            // Every thread that finds the new generation finds whose calls are traced.
            self.control_value.system_calls = mode;
            self.write_control()?;
            self.next_generation();
            return self.write_control();
        }
        self.control_value.system_calls = system_calls::OFF;
        self.write_control()?;
        self.next_generation();
        self.write_control()?;
        // Whoever makes calls has judged itself by now. The hooks go before the rest is judged, which waits for the kernel: they are what
        // is dear.
        self.detach_call_hooks()?;
        self.scan_tasks(scanning::RUNNING)
    }

    /// Attaches the hooks, before the programs work, and measures what they cost.
    pub(super) fn start_call_hooks(&mut self) -> Result<(), StartError> {
        if self.settings.system_calls == SystemCalls::Off {
            return Ok(());
        }
        let mut prices: Vec<f64> = Vec::with_capacity(ROUNDS);
        for _ in 0..ROUNDS {
            let without_ns = ns_per_call();
            self.attach_call_hooks()?;
            let with_ns = ns_per_call();
            prices.push(with_ns - without_ns);
            if prices.len() < ROUNDS {
                self.detach_call_hooks()?;
            }
        }
        prices.sort_unstable_by(f64::total_cmp);
        self.call_hooks.price_ns = prices[ROUNDS / 2].max(0.0);
        Ok(())
    }

    fn attach_call_hooks(&mut self) -> Result<(), StartError> {
        for name in TRACEPOINTS {
            let program: &mut BtfTracePoint = program_of(&mut self.ebpf, name)?;
            let link = program.attach().map_err(|error| StartError::Program {
                program: name,
                reason: chain(&error),
            })?;
            self.call_hooks.links.push((name, link));
        }
        Ok(())
    }

    fn detach_call_hooks(&mut self) -> Result<(), StartError> {
        while let Some((name, link)) = self.call_hooks.links.pop() {
            let program: &mut BtfTracePoint = program_of(&mut self.ebpf, name)?;
            program.detach(link).map_err(|error| StartError::Program {
                program: name,
                reason: chain(&error),
            })?;
        }
        Ok(())
    }

    /// Threads are judged anew at their next event, once this is written.
    pub(super) const fn next_generation(&mut self) {
        let next = self.control_value.generation.wrapping_add(1);
        self.control_value.generation = if next == 0 { 1 } else { next };
    }

    /// Bounds what walks may cost, as a share of the time in which processors are at work; `None`: they are not bounded.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses.
    pub fn bound_walks(&mut self, share: Option<f64>) -> Result<(), StartError> {
        let units = share.map_or(0.0, |share| share.clamp(0.0, 1.0) * WHOLE_SHARE as f64);
        // Without gaps, every nanosecond is its stack's: there is nothing that other walks could stand for.
        let is_bound = share.is_some() && self.settings.min_interval_ns != 0;
        self.control_value.walk_share = if is_bound { (units as u32).max(1) } else { 0 };
        self.write_control()
    }

    /// What the programs have done by `now_ns`.
    #[must_use]
    pub fn work(&self, now_ns: u64) -> Work {
        let mut work = Work::default();
        match self.current.get(&0, 0) {
            Ok(values) => {
                for value in values.iter().map(Current::value) {
                    work.call_hooks += value.call_hooks;
                    work.switches += value.switches;
                    work.walks_ns += value.walks.spent_ns;
                    work.idle_ns += value.idle_by(now_ns).unwrap_or(0);
                }
            }
            Err(error) => warn!("what the programs have done cannot be read: {error}"),
        }
        work
    }
}

/// What a system call that does next to nothing takes this thread.
fn ns_per_call() -> f64 {
    let began_ns = thread_ns();
    for _ in 0..CALLS {
        // SAFETY: takes nothing, and cannot fail. As a system call: the C library might remember the answer.
        unsafe { libc::syscall(libc::SYS_getppid) };
    }
    thread_ns().saturating_sub(began_ns) as f64 / f64::from(CALLS)
}
