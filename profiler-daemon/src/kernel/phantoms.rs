//! Threads whose end was not seen: their records would stay, and their time grow, for ever. So
//! threads without an event for some time are looked for in turn, some a second, and the records of
//! those that are gone are ended. Pure but for [`is_gone`].

use profiler_common::Phase;
use profiler_common::records::ThreadRecord;

use crate::sys::thread_life::{ThreadLife, thread_life};
use crate::units::{BootNs, MonoNs};

/// A thread without an event for so long may be gone. Much longer than a thread needs from its last
/// breath to its last switch, so nothing writes to the record of one that is gone any more.
const QUIET_NS: u64 = 10_000_000_000;
/// Least time between two checks.
const LEAST_NS: u64 = 1_000_000_000;
/// Threads that are looked for at a time: so many that all have had their turn after half a minute,
/// where that is no more than the most. One takes some 20 microseconds.
const CHECKS: std::ops::RangeInclusive<usize> = 4..=32;
const TURNS: usize = 30;
/// Slots that are gone through at a time to find them.
const MAX_SLOTS: u32 = 4096;

/// A thread to look for.
#[derive(Clone, Copy, Debug)]
pub(super) struct Quiet {
    tid: u32,
    pid: u32,
    start_boot_ns: BootNs,
    process_start_boot_ns: BootNs,
}

impl Quiet {
    /// The thread of that record, if it may be gone at `at_ns`.
    pub(super) fn of(record: &ThreadRecord, at_ns: MonoNs) -> Option<Self> {
        let is_quiet = at_ns.saturating_since(MonoNs::new(record.clock.last_ns)) >= QUIET_NS;
        (is_quiet && record.clock.phase != Phase::Exited as u32).then_some(Self {
            tid: record.tid,
            pid: record.pid,
            start_boot_ns: BootNs::new(record.start_boot_ns),
            process_start_boot_ns: BootNs::new(record.process_start_boot_ns),
        })
    }
}

/// What is remembered from pass to pass.
#[derive(Debug, Default)]
pub(super) struct Phantoms {
    /// Where the next check goes on.
    next_slot: u32,
    last_ns: MonoNs,
    ended: u64,
}

impl Phantoms {
    /// Is it time for a check?
    pub(super) const fn is_due(&self, now_ns: MonoNs) -> bool {
        now_ns.saturating_since(self.last_ns) >= LEAST_NS
    }

    /// Looks for the next threads in turn, those that `quiet` finds in the first `slots`. Returns
    /// the slots of those that are gone.
    pub(super) fn check(
        &mut self,
        now_ns: MonoNs,
        slots: u32,
        quiet: impl Fn(u32) -> Option<Quiet>,
        is_gone: impl Fn(&Quiet) -> bool,
    ) -> Vec<u32> {
        self.last_ns = now_ns;
        let first = if self.next_slot < slots {
            self.next_slot
        } else {
            0
        };
        let turn = (first..slots).chain(0..first).take(MAX_SLOTS as usize);
        let most = (slots as usize / TURNS).clamp(*CHECKS.start(), *CHECKS.end());
        let (mut gone, mut checks) = (Vec::new(), 0);
        for slot in turn {
            self.next_slot = slot + 1;
            if let Some(thread) = quiet(slot) {
                checks += 1;
                if is_gone(&thread) {
                    gone.push(slot);
                }
            }
            if checks == most {
                break;
            }
        }
        self.ended += gone.len() as u64;
        gone
    }

    /// Threads that were found to be gone, since the start.
    pub(super) const fn ended(&self) -> u64 {
        self.ended
    }
}

/// Is that thread surely past its last event? What cannot be told is taken to live.
pub(super) fn is_gone(thread: &Quiet) -> bool {
    match thread_life(thread.pid, thread.tid) {
        ThreadLife::None | ThreadLife::Ended => true,
        // One that has executed a program, and was not the first thread of its process, has taken
        // the number and start of that over.
        ThreadLife::Since(ticks) => {
            ticks != ThreadLife::ticks(thread.start_boot_ns)
                && (thread.tid != thread.pid
                    || ticks != ThreadLife::ticks(thread.process_start_boot_ns))
        }
        ThreadLife::Unknown => false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn thread(slot: u32) -> Quiet {
        Quiet {
            tid: slot,
            pid: slot,
            start_boot_ns: BootNs::ZERO,
            process_start_boot_ns: BootNs::ZERO,
        }
    }

    #[test]
    fn every_quiet_thread_has_its_turn() {
        // Check that of more quiet threads than are looked for at a time each is looked for in
        // turn, and that those that are gone are told, once each, and counted.
        const THREADS: u32 = 400;
        const SLOTS: u32 = 3 * THREADS + 1;
        let mut phantoms = Phantoms::default();
        let mut quiet: Vec<u32> = (1..=THREADS).map(|slot| slot * 3).collect();
        let mut found = Vec::new();
        for second in 1..=13 {
            assert!(phantoms.is_due(MonoNs::new(second * LEAST_NS)));
            let find = |slot| quiet.contains(&slot).then(|| thread(slot));
            let at_ns = second * LEAST_NS;
            let asked = std::cell::Cell::new(0);
            let gone = phantoms.check(MonoNs::new(at_ns), SLOTS, find, |thread| {
                asked.set(asked.get() + 1);
                thread.tid % 2 == 0
            });
            assert!(asked.get() <= 32);
            assert!(!phantoms.is_due(MonoNs::new(second * LEAST_NS + 1)));
            quiet.retain(|slot| !gone.contains(slot));
            found.extend(gone);
        }
        found.sort_unstable();
        let expected: Vec<u32> = (1..=THREADS)
            .map(|slot| slot * 3)
            .filter(|slot| slot % 2 == 0)
            .collect();
        assert_eq!(found, expected);
        assert_eq!(phantoms.ended(), u64::from(THREADS / 2));
        assert!(
            phantoms
                .check(MonoNs::new(14 * LEAST_NS), 0, |_| None, |_| true)
                .is_empty()
        );
    }
}
