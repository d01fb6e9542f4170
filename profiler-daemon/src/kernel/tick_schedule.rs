//! When each processor's ticks get another rate, and which. Pure: time is an argument, random
//! numbers come from a generator with a seed. What it takes to change a rate is `ticks`.
//!
//! Timers and the programs' clocks are one clock. At a fixed period, a program that does the same
//! again and again is met at the same few places for ever; so ten times a second or more often, at
//! a drawn moment, each processor gets a drawn rate. Changing it begins a period anew, so that is a
//! drawn phase too: what a program in step with the ticks is met at is drawn as often.
//!
//! **What keeps the mean.** A sample stands for 1 / `frequency_hz`, so *ticks per second* must have
//! that mean. The next change is drawn together with the rate, so how many ticks fall until then
//! can be chosen: the period is the time until then over that number and a drawn part of one. The
//! number is drawn around what the time stands for. Rates come in pairs: the second makes good what
//! ticks there were too many or too few before it, so that also over some seconds, not only in the
//! long run, ticks are as many as they stand for. The moments depend on nothing but the generator,
//! so no time has another chance of a tick.
//!
//! **Few moments.** Time is cut into slots, each with one drawn moment, at which all are served
//! whose turn it is in that slot.

use std::collections::BTreeMap;

use fastrand::Rng;

use crate::units::MonoNs;

/// How many ticks until the next change may be too many or too few, as a share of those that the
/// time stands for.
const SPREAD: f64 = 0.3;
/// Ticks beyond so many and twice that, too few or too many, are not made good: the owner had
/// stopped.
const MAX_OWED: f64 = 20.0;
/// Length of a slot in periods: the moments must be drawn over whole ones.
const SLOT_PERIODS: u64 = 3;
/// And at least: no second touches more than 68. (34 at 99 Hz.)
const SLOT_NS: u64 = 15_000_000;
/// Slots from one change of a processor's rate to the next: 60 to 150 ms at 99 Hz, half of it at
/// 997.
const SLOTS_AHEAD: std::ops::RangeInclusive<u64> = 3..=4;
/// Processors that have their turn together at most, where they need not.
const TOGETHER: usize = 8;
/// The time to the next turn of an idle processor is doubled so often at most: to a second at 99
/// Hz.
const MAX_DOUBLED: u32 = 3;
/// Whoever was refused by the kernel has its turn after so long.
const LATER_NS: u64 = 1_000_000_000;
/// A phase is no longer, so that nobody waits long for it. Ticks of less than 50 Hz have theirs
/// from their first change on.
const MAX_PHASE_NS: u64 = 20_000_000;
/// Whoever is served later than this is put off to another moment, once: the owner was busy, and
/// the end of what kept it busy is no drawn moment.
const LATE_NS: u64 = 5_000_000;

/// The rate of one processor until its next turn.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct Epoch {
    /// When the timer began its first period.
    pub(super) since_ns: MonoNs,
    /// Nanoseconds from tick to tick.
    pub(super) period_ns: u64,
    /// Ticks that there had been too few before it.
    owed: f64,
    /// The second of a pair.
    makes_good: bool,
}

impl Epoch {
    /// Ticks that are due by `now_ns`.
    pub(super) const fn ticks_until(&self, now_ns: MonoNs) -> u64 {
        now_ns.saturating_since(self.since_ns) / self.period_ns
    }
}

/// Whose turn is when.
#[derive(Debug)]
pub(super) struct Schedule {
    frequency_hz: f64,
    slot_ns: u64,
    random: Rng,
    /// The slots in which it is somebody's turn, by number.
    slots: BTreeMap<u64, ProcessorSlot>,
}

#[derive(Debug)]
struct ProcessorSlot {
    moment_ns: MonoNs,
    turns: Vec<NextTick>,
}

#[derive(Clone, Copy, Debug)]
struct NextTick {
    cpu: u32,
    put_off: bool,
}

impl Schedule {
    /// Nobody's turn yet. `frequency_hz` is from 1 to 10000.
    pub(super) fn new(frequency_hz: u32, random: Rng) -> Self {
        let frequency_hz = frequency_hz.max(1);
        Self {
            frequency_hz: f64::from(frequency_hz),
            slot_ns: SLOT_NS.max(SLOT_PERIODS * 1_000_000_000 / u64::from(frequency_hz)),
            random,
            slots: BTreeMap::new(),
        }
    }

    /// A drawn phase: nanoseconds below one period.
    pub(super) fn phase_ns(&mut self) -> u64 {
        let period_ns = (1e9 / self.frequency_hz) as u64;
        self.random.u64(0..period_ns.min(MAX_PHASE_NS))
    }

    /// The next moment at which it is somebody's turn.
    pub(super) fn next_moment_ns(&self) -> Option<MonoNs> {
        let (_, slot) = self.slots.first_key_value()?;
        Some(slot.moment_ns)
    }

    /// Those whose turn has come, each until it is given another one by [`Self::change`] or
    /// [`Self::soon`].
    pub(super) fn due(&mut self, now_ns: MonoNs) -> Vec<u32> {
        let mut due = Vec::new();
        while let Some(slot) = self.slots.first_entry()
            && slot.get().moment_ns <= now_ns
        {
            let slot = slot.remove();
            let late = now_ns - slot.moment_ns > LATE_NS;
            for turn in slot.turns {
                if late && !turn.put_off {
                    self.give_turn(turn.cpu, now_ns, 1, true);
                } else {
                    due.push(turn.cpu);
                }
            }
        }
        due
    }

    /// Gives a processor its turn at the next moment.
    pub(super) fn soon(&mut self, cpu: u32, now_ns: MonoNs) {
        self.give_turn(cpu, now_ns, 1, false);
    }

    /// Gives a processor its turn in about a second, and no other.
    pub(super) fn later(&mut self, cpu: u32, now_ns: MonoNs) {
        self.forget(cpu);
        self.give_turn(cpu, now_ns, (LATER_NS / self.slot_ns).max(1), false);
    }

    /// It is no turn of this processor any more.
    pub(super) fn forget(&mut self, cpu: u32) {
        self.slots.retain(|_, slot| {
            slot.turns.retain(|turn| turn.cpu != cpu);
            !slot.turns.is_empty()
        });
    }

    /// The processor keeps its rate until its next turn. It was idle at `idle_turns` in a row
    /// before this one: nothing was met by it, and who is idle for long is not looked at often.
    pub(super) fn keep(&mut self, cpu: u32, now_ns: MonoNs, idle_turns: u32) {
        let ahead = self.ahead(now_ns, idle_turns);
        self.give_turn(cpu, now_ns, ahead, false);
    }

    /// Draws the rate of a processor from now on, and when its next turn is: later for who was idle
    /// at so many turns in a row. `past` is the epoch that ends, if it had one.
    pub(super) fn change(
        &mut self,
        cpu: u32,
        now_ns: MonoNs,
        past: Option<Epoch>,
        idle_turns: u32,
    ) -> Epoch {
        let ahead = self.ahead(now_ns, idle_turns);
        let until_ns = self.give_turn(cpu, now_ns, ahead, false);
        let ahead_s = seconds(until_ns.saturating_since(now_ns).max(1));
        let stands_for = self.frequency_hz * ahead_s;
        let spread = SPREAD * stands_for;
        let owed = past.map_or(0.0, |past| {
            let stood_for = self.frequency_hz * seconds(now_ns.saturating_since(past.since_ns));
            past.owed + stood_for - past.ticks_until(now_ns) as f64
        });
        let max_owed = MAX_OWED + 2.0 * spread;
        let owed = owed.clamp(-max_owed, max_owed);
        let now_owed = owed.clamp(-spread - 1.0, spread + 1.0);
        let makes_good = past.is_some_and(|past| !past.makes_good);
        let off = if makes_good {
            now_owed
        } else {
            now_owed + spread * (2.0 * self.random.f64() - 1.0)
        };
        let ticks = (stands_for + off + self.random.f64()).floor().max(0.0);
        // Above the number, so that the last tick is not at the change itself.
        let parts = ticks + 1.0 - self.random.f64();
        Epoch {
            since_ns: now_ns,
            period_ns: ((1e9 * ahead_s / parts).round() as u64).max(1),
            owed,
            makes_good,
        }
    }

    /// Slots to a turn: with others where there are some, so that few processors cost few wake-ups;
    /// not with many.
    fn ahead(&mut self, now_ns: MonoNs, idle_turns: u32) -> u64 {
        let doubled = idle_turns.min(MAX_DOUBLED);
        let range = SLOTS_AHEAD.start() << doubled..=SLOTS_AHEAD.end() << doubled;
        let has_room = |ahead: &u64| {
            let slot = self.slots.get(&(now_ns.ns() / self.slot_ns + ahead));
            slot.is_some_and(|slot| slot.turns.len() < TOGETHER)
        };
        let others = range.clone().find(has_room);
        others.unwrap_or_else(|| self.random.u64(range))
    }

    /// Tells the moment of the turn.
    fn give_turn(&mut self, cpu: u32, now_ns: MonoNs, slots_ahead: u64, put_off: bool) -> MonoNs {
        let number = now_ns.ns() / self.slot_ns + slots_ahead;
        let slot = self.slots.entry(number).or_insert_with(|| ProcessorSlot {
            moment_ns: MonoNs::new(number * self.slot_ns) + self.random.u64(0..self.slot_ns),
            turns: Vec::new(),
        });
        slot.turns.push(NextTick { cpu, put_off });
        slot.moment_ns
    }
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
#[path = "tick_schedule_tests.rs"]
mod tests;
