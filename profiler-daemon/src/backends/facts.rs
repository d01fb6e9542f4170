//! What does not change while the daemon runs, and what works less well than it should.

use std::fs;

use crate::api::Degraded;
use crate::collect::{CollectorState, SpendingState, TornRecords};
use crate::config::{Config, SystemCalls};
use crate::sys::clock::unix_ns;
use crate::units::{MonoNs, UnixNs};

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct DaemonFacts {
    pub(super) version: String,
    pub(super) kernel_release: String,
    pub(super) started_unix_ns: UnixNs,
    pub(super) degraded: Vec<Degraded>,
}

impl DaemonFacts {
    pub(super) fn gather(config: &Config) -> Self {
        let mut facts = Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            // Reads what `uname -r` says; a system without it is still profiled.
            kernel_release: fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            started_unix_ns: unix_ns(),
            degraded: Vec::new(),
        };
        if !matches!(config.system_calls, SystemCalls::Auto | SystemCalls::All) {
            facts.degrade(
                "system calls",
                format!(
                    "system_calls is \"{}\": ticks tell what of the running time was in untraced system calls",
                    config.system_calls.as_str()
                ),
            );
        }
        facts
    }

    /// What works less well than it should, as of now: since the start, and of late.
    pub(super) fn degraded_now(
        &self,
        state: Option<&CollectorState>,
        now_ns: MonoNs,
    ) -> Vec<Degraded> {
        let late = state.and_then(|state| unread(&state.unreadable, now_ns));
        let waits = state.and_then(|state| waits(state.pass_waits_since_ns?, now_ns));
        let told = state.map_or(&[][..], |state| &state.tables_reported);
        let told = told.iter().map(|told| Degraded {
            what: format!("room for {}", told.fill.holds),
            why: told.to_string(),
        });
        let since_start = self.degraded.iter().cloned();
        let sampled = state.and_then(|state| sampled(&state.spending));
        let of_passes = waits.into_iter().chain(late);
        since_start
            .chain(sampled)
            .chain(of_passes)
            .chain(told)
            .collect()
    }

    pub(super) fn degrade(&mut self, what: &str, why: String) {
        self.degraded.push(Degraded {
            what: what.to_owned(),
            why,
        });
    }
}

/// Only samples of system calls are traced.
fn sampled(spending: &SpendingState) -> Option<Degraded> {
    spending.only_samples().then(|| Degraded {
        what: "system calls".to_owned(),
        why: "only samples are traced, since all would cost more than the budget: counts are of a part of the time (observed_percent), \
              and running time is divided into user mode and system calls by ticks (estimated_ns). A higher budget or \
              system_calls = \"all\" has all traced"
            .to_owned(),
    })
}

/// A pass that waits for so long is told.
const LONG_WAIT_NS: u64 = 5_000_000_000;

/// A pass has waited for long.
fn waits(since_ns: MonoNs, now_ns: MonoNs) -> Option<Degraded> {
    let waited_ns = now_ns.saturating_since(since_ns);
    (waited_ns >= LONG_WAIT_NS).then(|| Degraded {
        what: "passes".to_owned(),
        why: format!(
            "the kernel has had no time to end a grace period for {} s: answers are as of before",
            waited_ns / 1_000_000_000
        ),
    })
}

/// How long it is told that records could not be read.
const TOLD_NS: u64 = 60_000_000_000;

/// Threads whose records could not be read within the last minute.
fn unread(unreadable: &TornRecords, now_ns: MonoNs) -> Option<Degraded> {
    let is_late = now_ns.saturating_since(unreadable.last_ns) < TOLD_NS;
    (unreadable.last > 0 && is_late).then(|| Degraded {
        what: "thread records".to_owned(),
        why: format!(
            "{} could not be read in a pass of the last minute ({} since the start, records_unreadable): programs were preempted while \
            they changed them, and these threads are as of an earlier pass until they can be read",
            unreadable.last, unreadable.total
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn passes_that_wait_are_told() {
        // Check that a pass is told with its time once it has waited for long.
        let since_ns = MonoNs::new(7);
        assert_eq!(waits(since_ns, MonoNs::new(LONG_WAIT_NS)), None);
        let told = waits(since_ns, MonoNs::new(LONG_WAIT_NS + 7)).expect("it is long");
        assert!(told.why.contains("for 5 s"), "{}", told.why);
    }

    #[test]
    fn records_that_could_not_be_read_are_told_for_a_minute() {
        // Check that threads left out of a pass are told with their numbers, and no longer than a
        // minute after the last.
        let unreadable = TornRecords {
            total: 7,
            last: 2,
            last_ns: MonoNs::new(5),
        };
        let told = unread(&unreadable, MonoNs::new(TOLD_NS)).expect("it was just now");
        assert!(told.why.starts_with("2 could not be read"), "{}", told.why);
        assert!(told.why.contains("(7 since the start"), "{}", told.why);
        assert_eq!(unread(&unreadable, MonoNs::new(TOLD_NS + 5)), None);
        assert_eq!(
            unread(&TornRecords::default(), MonoNs::new(1)),
            None,
            "there were none"
        );
    }
}
