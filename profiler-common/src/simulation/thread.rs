//! One simulated thread: its events drive the thread clock and the marks as the kernel programs do.

use super::draw::MS;
use super::rules::DivisionRule;
use super::world::{Actions, NOT_SAMPLED, World, length};
use crate::clock::{Class, KERNEL_THREAD, NO_CALL, Phase, ThreadClock, UNTRACED};
use crate::kinds::{
    BLOCKED, MARK_BLOCKED, MARK_CALL, MARK_RUNNABLE, MARKS, Primary, RUNNABLE, excess,
};
use crate::kinds::{Tick, WaitNs};
use crate::marks::{
    Ended, LONG_WAIT_NS, RATE_NS, ThreadMarks, WaitSums, is_drawn, is_inside, tick_kind,
};

/// How long a walk takes.
const WALK_NS: u64 = 6000;

/// A thread of the world's current process.
pub(super) struct SimulatedThread<'world> {
    world: &'world mut World,
    clock: ThreadClock,
    marks: ThreadMarks,
    /// The function whose call it is in.
    place: usize,
    /// Is it in a call, whether or not that is traced?
    in_call: bool,
    /// Time by mark since the last walk in this call: whose marks no walk has taken yet.
    untaken: [u64; MARKS],
    /// Marks that wait for the next call's exit ([`DivisionRule::NextCallsExit`],
    /// [`DivisionRule::OutsideAtExit`]).
    late: Primary,
    /// Start and number of walked waits outside calls ([`DivisionRule::FirstWaits`]).
    walked: (u64, u64),
}

impl<'world> SimulatedThread<'world> {
    /// A thread that begins now, with these flags of the clock.
    pub(super) fn new(world: &'world mut World, flags: u32) -> Self {
        let mut clock = ThreadClock::default();
        clock.start(world.now_ns, Phase::Running, NO_CALL, 0);
        clock.set_flags(flags);
        let mut marks = ThreadMarks::default();
        let gap_ns = world.gap_ns;
        marks.start(world.now_ns, gap_ns, &mut || world.random.bits());
        if world.rule == DivisionRule::FirstGapWhole {
            marks.next_call_ns = world.random.even(gap_ns, 0.5, 1.5);
            marks.next_wait_ns = world.random.even(gap_ns, 0.5, 1.5);
        }
        Self {
            world,
            clock,
            marks,
            place: NOT_SAMPLED,
            in_call: false,
            untaken: [0; MARKS],
            late: Primary::default(),
            walked: (0, 0),
        }
    }

    /// The thread ends; in a call, it was killed.
    pub(super) fn end(mut self) {
        let waited = self.clock.exit(self.world.now_ns);
        assert_eq!(waited, [0; 2], "it ran");
        if self.in_call {
            self.abandon_marks();
        }
        let kinds = self.marks.kinds(&self.clock);
        for (to, from) in self.world.process().kinds.iter_mut().zip(kinds) {
            *to += from;
        }
    }

    fn row(&mut self, place: usize) -> &mut Primary {
        &mut self.world.process().rows[place]
    }

    /// Runs for `ns`, interrupted by ticks.
    fn spend(&mut self, place: usize, user_mode: bool, ns: u64) {
        let start_ns = self.world.now_ns;
        let end_ns = start_ns + ns;
        while let Some(tick_ns) = self.world.ticks.next_before(end_ns) {
            if tick_ns >= start_ns {
                self.tick(tick_ns, place, user_mode);
            }
        }
        self.world.now_ns = end_ns;
        let kind = tick_kind(&self.clock, user_mode, || self.in_call);
        let truth = &mut self.world.truth[place];
        truth.divided.ticks[kind as usize] += ns;
        let class = match kind {
            Tick::User | Tick::UntracedUser => Class::User,
            Tick::Fault | Tick::UntracedFault => {
                truth.product.fault_ns += ns;
                Class::User
            }
            Tick::Call => {
                // Those from the last tick on; what came before was taken then.
                let since_ns = self.clock.last_ns.max(start_ns);
                self.untaken[MARK_CALL] += end_ns - since_ns;
                truth.divided.marks[MARK_CALL] += ns;
                Class::Syscall
            }
            Tick::UntracedCall => Class::Syscall,
            Tick::Kernel => Class::Kernel,
        };
        self.world.spent(place, class, ns);
    }

    fn tick(&mut self, tick_ns: u64, place: usize, user_mode: bool) {
        self.clock.tick(tick_ns);
        let shift = self.world.walk_shift();
        let random = &mut self.world.random;
        if !is_drawn(shift, &mut || random.bits()) {
            return;
        }
        let kind = tick_kind(&self.clock, user_mode, || self.in_call);
        let row = self.row(place);
        row.ticks[kind as usize] += 1 << shift;
        row.tick_excess += excess(1, shift);
        row.walks += 1;
        if kind == Tick::Call {
            self.walk(place);
        }
    }

    /// A walk within the call of `place`.
    fn walk(&mut self, place: usize) {
        self.walk_for(place, 0);
    }

    /// Walks, for `1 << shift` walks.
    fn walk_for(&mut self, place: usize, shift: u32) {
        self.untaken = [0; MARKS];
        if self.world.rule == DivisionRule::TakeOnlyWhenDue && !self.marks.is_due(&self.clock) {
            return;
        }
        let taken = self.take_marks();
        let row = self.row(place);
        for (to, marks) in row.excess.iter_mut().zip(taken) {
            *to += excess(marks, shift);
        }
        add_marks(row, taken.map(|marks| marks << shift));
    }

    fn take_marks(&mut self) -> [u64; MARKS] {
        let gap_ns = self.world.gap_ns;
        let random = &mut self.world.random;
        let mut taken = self
            .marks
            .take_fallen(&self.clock, gap_ns, &mut || random.bits());
        match self.world.rule {
            DivisionRule::OneMarkPerWalk => taken = taken.map(|count| count.min(1)),
            DivisionRule::GapFromWalk if taken[MARK_CALL] > 0 => {
                let ran_ns = self.clock.totals[Class::Syscall as usize];
                self.marks.next_call_ns = ran_ns + random.even(gap_ns, 0.5, 1.5);
            }
            DivisionRule::WaitsAreBlocked => {
                taken[MARK_BLOCKED] += taken[MARK_RUNNABLE];
                taken[MARK_RUNNABLE] = 0;
            }
            _ => {}
        }
        taken
    }

    /// The call ends and nobody sees it: what fell since the last walk is not sampled.
    fn abandon_marks(&mut self) {
        let taken = self.take_marks();
        if self.world.rule != DivisionRule::DropUntaken {
            add_marks(self.row(NOT_SAMPLED), taken);
        }
        let classes = [Class::Syscall, Class::Blocked, Class::Runnable];
        for (index, class) in classes.into_iter().enumerate() {
            let ns = self.untaken[index];
            for (place, sign) in [(self.place, -1), (NOT_SAMPLED, 1)] {
                let truth = &mut self.world.truth[place];
                let change = i64::try_from(ns).expect("no simulated call is as long") * sign;
                let of_class = &mut truth.product.classes[class as usize];
                *of_class = of_class.wrapping_add_signed(change);
                let divided = &mut truth.divided.marks[index];
                *divided = divided.wrapping_add_signed(change);
            }
        }
        self.untaken = [0; MARKS];
    }

    /// Waits in `place`.
    fn leave_cpu(&mut self, place: usize, mut waited: WaitNs) {
        let gap_ns = self.world.gap_ns;
        let in_traced_call = is_inside(&self.clock);
        let inside = in_traced_call && !self.world.draws_waits;
        let left_ns = self.world.now_ns;
        self.clock.switch_out(left_ns, waited[BLOCKED] > 0);
        let shift = self.world.walk_shift();
        let by_age = self.marks.shift_by_age(shift, left_ns);
        let random = &mut self.world.random;
        let mut is_walked = self
            .marks
            .leave(inside, left_ns, || shift, gap_ns, &mut || random.bits());
        let weight = 1_u64 << (u32::from(self.marks.rate_shift) + by_age);
        if !inside && self.world.rule == DivisionRule::FirstWaits {
            is_walked = self.is_among_first(left_ns);
        }
        if !inside && self.world.rule == DivisionRule::AgeNotWeighted {
            self.marks.wait_shift = self.marks.rate_shift + shift as u16;
        }
        if is_walked {
            if in_traced_call {
                self.walk(place);
            }
            self.marks.keep();
            self.row(place).walks += 1;
            // Who is woken before the walk is over runs after it.
            let late_ns = WALK_NS.saturating_sub(waited[BLOCKED]);
            waited[RUNNABLE] += late_ns;
            if !inside
                && !matches!(
                    self.world.rule,
                    DivisionRule::FirstWaits | DivisionRule::WalksAreWaited
                )
            {
                self.marks.walked(left_ns, left_ns + WALK_NS, 0, 0);
            }
        }

        if waited[BLOCKED] > 0 {
            self.clock.woken_ns = left_ns + waited[BLOCKED];
        }
        self.world.now_ns = left_ns + length(waited);
        let off_cpu = self.clock.switch_in(self.world.now_ns, None).waited();
        assert_eq!(off_cpu, waited);
        if self.world.rule == DivisionRule::WeightAfterWait && length(waited) >= RATE_NS {
            self.marks.wait_shift = 0;
        }
        let may_be_found = match self.world.rule {
            DivisionRule::FoundIfUnwalked => !self.marks.has_stack(),
            _ => self.marks.may_be_found(),
        };
        if may_be_found && self.world.is_found(place, waited) {
            self.marks.find();
        }
        let random = &mut self.world.random;
        let ended = self
            .marks
            .end_wait(inside, waited, gap_ns, &mut || random.bits());
        self.note_wait(place, inside, waited, weight, &ended);
        match ended {
            Ended::Divided => {}
            Ended::Walked(sums) => self.keep_wait(place, inside, waited, &sums),
            Ended::NotKept(_) => panic!("all stacks are kept"),
            Ended::NotSampled(waited) => {
                let row = self.row(NOT_SAMPLED);
                row.exact[BLOCKED] += waited[BLOCKED];
                row.exact[RUNNABLE] += waited[RUNNABLE];
            }
        }
    }

    fn keep_wait(&mut self, place: usize, inside: bool, waited: WaitNs, sums: &WaitSums) {
        let mut given = Primary {
            exact: sums.exact,
            weighted: sums.weighted,
            squares_ms2: sums.squares_ms2,
            ..Primary::default()
        };
        match self.world.rule {
            DivisionRule::FirstWaits if !inside => given.weighted = waited,
            DivisionRule::WalkedStandForAll if inside => {
                // Walked waits are marks as well, in proportion to their length.
                (given.marks, given.exact) = ([0, waited[0], waited[1]], [0; 2]);
                self.marks.unwalked[BLOCKED] += waited[BLOCKED];
                self.marks.unwalked[RUNNABLE] += waited[RUNNABLE];
                self.marks.next_wait_ns = u64::MAX;
            }
            DivisionRule::OutsideAtExit if !inside => {
                self.late.add(&given);
                return;
            }
            _ => {}
        }
        self.row(place).add(&given);
    }

    /// The truth about a wait that has ended, and about its chances.
    fn note_wait(
        &mut self,
        place: usize,
        inside: bool,
        waited: WaitNs,
        weight: u64,
        ended: &Ended,
    ) {
        let is_lost = matches!(ended, Ended::NotSampled(_));
        let place = if is_lost { NOT_SAMPLED } else { place };
        for (class, index) in [(Class::Blocked, BLOCKED), (Class::Runnable, RUNNABLE)] {
            self.world.spent(place, class, waited[index]);
            let own_ns = match ended {
                Ended::Walked(sums) if !inside => sums.exact[index],
                _ => 0,
            };
            let ns = waited[index] - own_ns;
            let truth = &mut self.world.truth[place];
            if inside {
                if *ended == Ended::Divided {
                    truth.divided.marks[MARK_BLOCKED + index] += ns;
                    self.untaken[MARK_BLOCKED + index] += ns;
                }
            } else if !is_lost && length(waited) < LONG_WAIT_NS {
                truth.outside[index] += ns;
                let (length, weight) = (ns as f64, weight as f64);
                truth.drawn[index] += length.powi(2) * (weight - 1.0);
                truth.largest[index] = truth.largest[index].max(length * weight);
            }
        }
    }

    /// The call of `place` ends, and is one of `1 << shift` that are walked.
    fn note_exit(&mut self, shift: u32) {
        let others = f64::from((1_u32 << shift) - 1);
        let gap_ns = self.world.gap_ns;
        let truth = &mut self.world.truth[self.place];
        for (index, ns) in self.untaken.into_iter().enumerate() {
            // One mark at least, as often as it is a part of one.
            let product = ns as f64 * ns.max(gap_ns) as f64;
            truth.drawn_exits[index] += product * others;
            let largest = &mut truth.largest_exits[index];
            *largest = largest.max(product.sqrt() * others);
        }
    }

    /// Is this one of the first waits of its 100 ms, as many as are walked in it?
    fn is_among_first(&mut self, now_ns: u64) -> bool {
        if now_ns - self.walked.0 >= 100 * MS {
            self.walked = (now_ns, 0);
        }
        self.walked.1 += 1;
        let is_first = self.walked.1 <= 100;
        (self.marks.wait, self.marks.wait_shift) = if is_first {
            (crate::marks::wait::UNKEPT, 0)
        } else {
            (crate::marks::wait::PASSED, 0)
        };
        is_first
    }
}

fn add_marks(row: &mut Primary, taken: [u64; MARKS]) {
    for (to, from) in row.marks.iter_mut().zip(taken) {
        *to += from;
    }
    row.walks += 1;
}

impl Actions for SimulatedThread<'_> {
    fn user(&mut self, place: usize, ns: u64) {
        self.spend(place, true, ns);
    }

    fn fault(&mut self, place: usize, ns: u64) {
        self.spend(place, false, ns);
    }

    fn off_cpu(&mut self, place: usize, waited: WaitNs) {
        self.leave_cpu(place, waited);
    }

    fn enter(&mut self, place: usize) {
        (self.place, self.in_call) = (place, true);
        if self.clock.flags & (UNTRACED | KERNEL_THREAD) == 0 {
            let nested = self.clock.enter_call(self.world.now_ns, 1);
            assert!(!nested, "a missed exit is noticed at once here");
        }
    }

    fn run(&mut self, ns: u64) {
        self.spend(self.place, false, ns);
    }

    fn wait(&mut self, waited: WaitNs) {
        self.leave_cpu(self.place, waited);
    }

    fn leave(&mut self, seen: bool) {
        self.in_call = false;
        if self.clock.flags & (UNTRACED | KERNEL_THREAD) != 0 {
            return;
        }
        self.clock.leave_call(self.world.now_ns);
        let place = self.place;
        if !seen {
            self.abandon_marks();
        } else if self.world.rule == DivisionRule::NextCallsExit {
            let late = std::mem::take(&mut self.late);
            self.row(place).add(&late);
            self.untaken = [0; MARKS];
            if self.marks.is_due(&self.clock) {
                let taken = self.take_marks();
                add_marks(&mut self.late, taken);
            }
        } else {
            // A call that returns is walked only if there is something to find: its end is known to
            // the clock.
            if self.marks.is_due(&self.clock) {
                let (afforded, now_ns) = (self.world.walk_shift(), self.world.now_ns);
                let gap_ns = self.world.gap_ns;
                let shift = self
                    .marks
                    .shift_at_exit(&self.clock, (afforded, now_ns), gap_ns);
                self.note_exit(shift);
                let random = &mut self.world.random;
                let is_drawn = self
                    .marks
                    .leaves_call(&self.clock, shift, gap_ns, &mut || random.bits());
                if is_drawn && self.world.rule == DivisionRule::AgeNotWeighted {
                    self.walk_for(place, afforded);
                } else if is_drawn {
                    self.walk_for(place, shift);
                }
            }
            self.untaken = [0; MARKS];
            let late = std::mem::take(&mut self.late);
            self.row(place).add(&late);
        }
    }

    fn now_ns(&self) -> u64 {
        self.world.now_ns
    }
}
