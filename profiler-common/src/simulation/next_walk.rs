//! The first design, to show what is wrong with it: time is pending until the next walk, whose
//! stack gets all of it.

use super::rules::DivisionRule;
use super::world::{Actions, GAP_NS, NOT_SAMPLED, World};
use crate::clock::{CLASS_COUNT, Class, ClassNs};
use crate::kinds::{BLOCKED, RUNNABLE, WaitNs};

/// Walks of one thread in quick succession.
const BURST: u64 = 8;

/// A thread under the old rule.
pub(super) struct OldThread<'world> {
    world: &'world mut World,
    pending: ClassNs,
    /// When the next walk is due if walks are evenly spaced.
    next_walk_ns: u64,
    place: Option<usize>,
}

impl<'world> OldThread<'world> {
    pub(super) fn new(world: &'world mut World) -> Self {
        assert_eq!(world.rule, DivisionRule::NextWalk);
        Self {
            world,
            pending: [0; CLASS_COUNT],
            next_walk_ns: 0,
            place: None,
        }
    }

    pub(super) fn end(mut self) {
        self.walk(NOT_SAMPLED);
    }

    fn walk(&mut self, place: usize) {
        let pending = std::mem::take(&mut self.pending);
        for (to, from) in self.world.given[place].classes.iter_mut().zip(pending) {
            *to += from;
        }
    }

    fn spend(&mut self, place: usize, class: Class, ns: u64) {
        let start_ns = self.world.now_ns;
        let end_ns = start_ns + ns;
        let mut last_ns = start_ns;
        while let Some(tick_ns) = self.world.ticks.next_before(end_ns) {
            if tick_ns >= start_ns {
                self.pending[class as usize] += tick_ns - last_ns;
                last_ns = tick_ns;
                self.walk(place);
            }
        }
        self.pending[class as usize] += end_ns - last_ns;
        self.world.now_ns = end_ns;
        self.world.spent(place, class, ns);
    }
}

impl Actions for OldThread<'_> {
    fn user(&mut self, place: usize, ns: u64) {
        self.spend(place, Class::User, ns);
    }

    fn fault(&mut self, place: usize, ns: u64) {
        self.spend(place, Class::User, ns);
        self.world.truth[place].product.fault_ns += ns;
    }

    fn off_cpu(&mut self, place: usize, waited: WaitNs) {
        let now_ns = self.world.now_ns;
        let is_walked = now_ns + (BURST - 1) * GAP_NS >= self.next_walk_ns;
        if is_walked {
            self.next_walk_ns = self.next_walk_ns.max(now_ns) + GAP_NS;
            self.walk(place);
        }
        for (class, index) in [(Class::Blocked, BLOCKED), (Class::Runnable, RUNNABLE)] {
            self.pending[class as usize] += waited[index];
            self.world.spent(place, class, waited[index]);
            self.world.now_ns += waited[index];
        }
        if is_walked {
            self.walk(place);
        }
    }

    fn enter(&mut self, place: usize) {
        self.place = Some(place);
    }

    fn run(&mut self, ns: u64) {
        let place = self.place.expect("in a call");
        self.spend(place, Class::Syscall, ns);
    }

    fn wait(&mut self, waited: WaitNs) {
        let place = self.place.expect("in a call");
        self.off_cpu(place, waited);
    }

    fn leave(&mut self, seen: bool) {
        let place = self.place.take().expect("in a call");
        if seen && self.pending.iter().sum::<u64>() >= GAP_NS {
            self.walk(place);
        }
    }

    fn now_ns(&self) -> u64 {
        self.world.now_ns
    }
}
