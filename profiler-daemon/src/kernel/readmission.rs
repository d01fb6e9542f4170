//! When threads that are not observed get another chance, though the targets have not changed.
//! Pure.

use crate::units::MonoNs;

/// Least time between two chances: each is a look at all tasks.
const LEAST_NS: u64 = 1_000_000_000;

/// What the programs have counted since the start.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct ReadmissionCounts {
    /// Threads turned away for want of a record.
    pub(super) turned_away: u64,
    /// Switches of threads that were not known.
    pub(super) late: u64,
    /// Processes that became targets by name, or are none any more, by another name.
    pub(super) renamed: u64,
}

/// What is remembered from pass to pass.
#[derive(Debug, Default)]
pub(super) struct Readmission {
    /// As of the last pass.
    counted: ReadmissionCounts,
    /// There is another reason than those who wait for a record.
    due: bool,
    /// Some wait: they were turned away, and not evaluated anew since.
    waiting: bool,
    /// Records have come free since somebody was turned away last.
    room: bool,
    /// When they were evaluated anew last.
    last_ns: MonoNs,
}

impl Readmission {
    /// A pass at `now_ns`, in which so many records were given back. True: every thread is to be
    /// evaluated anew.
    pub(super) const fn pass(
        &mut self,
        now_ns: MonoNs,
        counted: ReadmissionCounts,
        freed: usize,
    ) -> bool {
        if counted.turned_away > self.counted.turned_away {
            // There was no record at that time, whatever came free before.
            self.waiting = true;
            self.room = false;
        }
        self.due |= counted.late > self.counted.late || counted.renamed > self.counted.renamed;
        self.counted = counted;
        self.room |= freed > 0;
        let wanted = self.due || (self.waiting && self.room);
        let due = wanted && now_ns.saturating_since(self.last_ns) >= LEAST_NS;
        if due {
            self.waiting = false;
            self.due = false;
            self.last_ns = now_ns;
        }
        due
    }

    /// They were not evaluated anew after all: they are to be, as soon as may be.
    pub(super) const fn again(&mut self) {
        self.due = true;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    fn turned_away(turned_away: u64) -> ReadmissionCounts {
        ReadmissionCounts {
            turned_away,
            ..ReadmissionCounts::default()
        }
    }

    #[test]
    fn who_was_turned_away_is_taken_in_whenever_there_is_room() {
        // Check that threads that were turned away are evaluated anew once records come free,
        // however much later that is, that nobody is while none is free or nobody waits, and that
        // those who found no room even so wait on.
        let mut state = Readmission::default();
        assert!(
            !state.pass(MonoNs::new(SECOND), turned_away(0), 5),
            "nobody waits"
        );
        assert!(
            !state.pass(MonoNs::new(2 * SECOND), turned_away(3), 0),
            "nothing is free"
        );
        assert!(
            !state.pass(MonoNs::new(3 * SECOND), turned_away(3), 0),
            "nothing is free yet"
        );
        assert!(
            state.pass(MonoNs::new(9 * SECOND), turned_away(3), 2),
            "records came free"
        );
        assert!(
            !state.pass(MonoNs::new(10 * SECOND), turned_away(4), 0),
            "one is left, and waits"
        );
        assert!(
            state.pass(MonoNs::new(11 * SECOND), turned_away(4), 1),
            "that one"
        );
        assert!(
            !state.pass(MonoNs::new(12 * SECOND), turned_away(4), 1),
            "nobody waits any more"
        );
        assert!(
            state.pass(MonoNs::new(13 * SECOND), turned_away(5), 1),
            "both in one pass: the records came free last"
        );
    }

    #[test]
    fn not_more_often_than_once_a_second() {
        // Check that passes that follow each other fast do not each have all tasks looked at, and
        // that nobody is forgotten by that.
        let mut state = Readmission::default();
        assert!(state.pass(MonoNs::new(SECOND), turned_away(1), 1));
        assert!(!state.pass(MonoNs::new(SECOND + 100), turned_away(2), 1));
        assert!(!state.pass(MonoNs::new(2 * SECOND - 1), turned_away(2), 0));
        assert!(state.pass(MonoNs::new(2 * SECOND), turned_away(2), 0));
    }

    #[test]
    fn who_was_met_at_a_switch_only_is_made_known() {
        // Check that threads that are met where nothing can be made known have all tasks scanned,
        // once, whether records are free or not.
        let late = |late| ReadmissionCounts {
            late,
            ..ReadmissionCounts::default()
        };
        let mut state = Readmission::default();
        assert!(!state.pass(MonoNs::new(SECOND), late(0), 0));
        assert!(state.pass(MonoNs::new(2 * SECOND), late(7), 0));
        assert!(!state.pass(MonoNs::new(3 * SECOND), late(7), 0));
    }

    #[test]
    fn a_program_that_renames_itself_all_the_time_does_not_keep_everybody_busy() {
        // Check that a process that changes its name has all threads evaluated anew, and that one
        // that does so in a loop has them once a second, however often passes are made.
        let mut state = Readmission::default();
        let mut evaluated = 0;
        for pass in 0..100 {
            let renamed = ReadmissionCounts {
                renamed: 1000 * pass,
                ..ReadmissionCounts::default()
            };
            evaluated +=
                u32::from(state.pass(MonoNs::new(SECOND + pass * SECOND / 20), renamed, 0));
        }
        assert_eq!(evaluated, 5);
    }
}
