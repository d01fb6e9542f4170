//! Which measured calls a thread is in.
//!
//! A call is known by its function and the stack pointer at its entry, the same at each of its
//! exits. Calls lie in the order of their entries; the one below another is its caller, in that the
//! time of the upper one passes within it. A call can end without an exit (an exception, a jump
//! across frames): it is found to be gone when a call begins, or an exit is met, further out on the
//! same stack. Calls on other stacks stay (coroutines): one whose caller ends before it has no
//! caller from then on.
//!
//! All loops are bounded by [`MAX_DEPTH`]. What they go by lies in the frames themselves and is
//! read anew in each turn, so that the kernel's verifier, which does not follow what lies there,
//! sees each turn once.

use super::call_frame::{
    CallFrame, EnteredCall, MadeBelow, ORPHAN, OUTERMOST, STEPPED_ENTRY, UNTRACED_ENTRY, bump,
    exit_alone, is_dead, one_hit, saturating,
};
use super::row::{CompleteCall, MeasuredRow};
use super::{CallCosts, PROBE_KINDS, ThreadUsage, less};
use crate::clock::CLASS_COUNT;

/// Calls that are open at a time in a thread; those beyond are counted only. A power of two.
pub const MAX_DEPTH: usize = 32;

/// Places of calls that are over which are passed over in the search for the next open call: they
/// lie between open ones only where calls on several stacks end out of order. With more of them in
/// a row a call has no caller.
const MAX_PASSED_OVER: usize = 8;

/// The open calls of a thread. All zero: none. Written by the thread itself; the daemon reads
/// [`ShadowStack::depth`] once the thread is gone.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShadowStack {
    /// Places in use.
    pub depth: u32,
    /// Where a loop is.
    cursor: u32,
    /// How often the thread had executed a program: open calls of an earlier one are over.
    pub exec_count: u32,
    /// Place of a frame that was looked for, plus 1; 0 = none.
    found: u32,
    /// Calls that had no place since there was one last, and whose exits were not met.
    without_place: u32,
    /// Unused.
    padding: u32,
    /// The places, outermost first.
    pub frames: [CallFrame; MAX_DEPTH],
}

/// Finds what is known of a function's calls in this thread; `None`: there is no room (which the
/// finder counts).
pub trait Rows {
    /// The function's row, made where there is none.
    fn row(&mut self, function: u32) -> Option<&mut MeasuredRow>;

    /// The row of a function of which a call is open, and so was counted; `None`: it was removed
    /// since, as nobody measures the function any more. (Not [`Rows::row`]: within loops, ways that
    /// cannot be gone are many for the kernel's verifier all the same.)
    fn known(&mut self, function: u32) -> Option<&mut MeasuredRow>;

    /// The function was called, by what it returns to at `caller`.
    fn called_by(&mut self, function: u32, caller: u64);

    /// An outermost call that was made from there is complete.
    fn completed_by(&mut self, function: u32, caller: u64, call: &CompleteCall<'_>);
}

impl ShadowStack {
    /// No open calls.
    pub const EMPTY: Self = Self {
        depth: 0,
        cursor: 0,
        exec_count: 0,
        found: 0,
        without_place: 0,
        padding: 0,
        frames: [CallFrame {
            sp: 0,
            caller: 0,
            function: 0,
            flags: 0,
            entered: [0; 5],
            below: [0; 5],
            faults: [0; 2],
            probes_below: [0; PROBE_KINDS],
            probes_direct: [0; PROBE_KINDS],
        }; MAX_DEPTH],
    };

    /// A call begins, after [`ShadowStack::drop_dead`]. True if it has a place:
    /// [`ShadowStack::started`] is then to follow with the thread's times, as late as can be.
    #[inline(always)]
    pub fn enter(&mut self, call: &EnteredCall, rows: &mut impl Rows) -> bool {
        self.enter_within(call, None, rows)
    }

    /// The same; where the row is not of these calls alone, it is to be said whether another call
    /// of the function is open ([`ShadowStack::is_in`]).
    #[inline(always)]
    pub fn enter_within(
        &mut self,
        call: &EnteredCall,
        is_within: Option<bool>,
        rows: &mut impl Rows,
    ) -> bool {
        let depth = word(&self.depth);
        let Some(row) = rows.row(call.function) else {
            return false;
        };
        row.sequence = row.sequence.wrapping_add(1);
        row.calls += 1;
        let has_place = depth < MAX_DEPTH as u32;
        let mut flags = if call.stepped { STEPPED_ENTRY } else { 0 };
        if has_place {
            if !is_within.unwrap_or(row.open != 0) {
                flags |= OUTERMOST;
            }
            row.open = row.open.wrapping_add(1);
        } else {
            row.too_deep += 1;
        }
        row.sequence = row.sequence.wrapping_add(1);
        rows.called_by(call.function, call.caller);
        if !has_place {
            self.without_place = self.without_place.wrapping_add(1);
            self.passed(call.stepped);
            return false;
        }
        self.without_place = 0;
        let frame = self.at_mut(depth);
        frame.sp = call.sp;
        frame.caller = call.caller;
        frame.function = call.function;
        frame.flags = flags;
        frame.below = [0; 5];
        frame.probes_below = [0; PROBE_KINDS];
        frame.probes_direct = [0; PROBE_KINDS];
        self.depth = depth + 1;
        true
    }

    /// The times at which the call begins that [`ShadowStack::enter`] has given a place.
    #[inline(always)]
    pub fn started(&mut self, snapshot: &ThreadUsage) {
        let depth = word(&self.depth);
        if depth == 0 || depth > MAX_DEPTH as u32 {
            return;
        }
        let frame = self.at_mut(depth - 1);
        frame.entered = snapshot.times;
        frame.faults = snapshot.faults;
        if snapshot.untraced != 0 {
            frame.flags |= UNTRACED_ENTRY;
        }
    }

    /// The call that [`ShadowStack::enter`] has given a place is counted only: its times are not
    /// known.
    #[inline(always)]
    pub fn cancel(&mut self, rows: &mut impl Rows) {
        let depth = word(&self.depth);
        if depth == 0 || depth > MAX_DEPTH as u32 {
            return;
        }
        let frame = self.at_mut(depth - 1);
        let function = frame.function;
        let stepped = frame.flags & STEPPED_ENTRY != 0;
        frame.function = 0;
        self.depth = depth - 1;
        if let Some(row) = rows.known(function) {
            row.sequence = row.sequence.wrapping_add(1);
            row.open = row.open.wrapping_sub(1);
            row.no_times += 1;
            row.sequence = row.sequence.wrapping_add(1);
        }
        self.passed(stepped);
    }

    /// A probe was hit that begins no call and ends none: its cost is in the innermost open call
    /// all the same, and in its function's row by [`MeasuredRow::pass`]. `stepped`: the instruction
    /// is executed out of its line.
    #[inline(always)]
    pub fn passed(&mut self, stepped: bool) {
        self.cost_within(one_hit(stepped));
    }

    /// A probe that costs as much as one call of this kind was hit in the innermost open call, and
    /// is in no other's time.
    #[inline(always)]
    fn cost_within(&mut self, kind: usize) {
        let depth = word(&self.depth);
        if let Some(caller) = self.nearest_below(depth) {
            bump(&mut caller.probes_below, kind);
            bump(&mut caller.probes_direct, kind);
        }
    }

    /// Is this, met at the entry of a function whose code jumps back there, no new call but another
    /// turn of the innermost open one?
    #[inline(always)]
    pub fn is_turn(&mut self, call: &EnteredCall) -> bool {
        let depth = word(&self.depth);
        match self.nearest_below(depth) {
            Some(open) => {
                open.function == call.function && open.sp == call.sp && open.caller == call.caller
            }
            None => false,
        }
    }

    /// A call begins whose end nobody looks for, probed as `kind`. What its probe takes is in the
    /// innermost open call: where that has ended, [`ShadowStack::drop_dead`] hands it on.
    #[inline(always)]
    pub fn count(&mut self, function: u32, caller: u64, kind: usize, rows: &mut impl Rows) {
        self.cost_within(kind);
        if let Some(row) = rows.row(function) {
            row.sequence = row.sequence.wrapping_add(1);
            row.calls += 1;
            if let Some(own) = row.probes_own.get_mut(kind) {
                *own += 1;
            }
            row.sequence = row.sequence.wrapping_add(1);
            rows.called_by(function, caller);
        }
    }

    /// A call ends at `now`, probed as `kind`, where probes cost so much. True if its entry was
    /// seen.
    #[inline(always)]
    pub fn exit(
        &mut self,
        (function, sp): (u32, u64),
        (kind, costs): (usize, &CallCosts),
        now: &ThreadUsage,
        rows: &mut impl Rows,
    ) -> bool {
        if !self.find(function, sp) {
            self.cost_within(exit_alone(kind));
            if self.without_place > 0 {
                // That of a call which had no place: those further in end first.
                self.without_place -= 1;
            } else if let Some(row) = rows.row(function) {
                row.sequence = row.sequence.wrapping_add(1);
                row.exits_unmatched += 1;
                row.sequence = row.sequence.wrapping_add(1);
            }
            return false;
        }
        self.drop_dead_above(sp, rows);
        let place = word(&self.found).wrapping_sub(1);
        self.orphan_above(place);
        let caller = self.at_mut(place).caller;
        let call = self.end(place, (kind, costs), now);
        if let Some(row) = rows.known(function) {
            row.sequence = row.sequence.wrapping_add(1);
            row.open = row.open.wrapping_sub(1);
            row.complete(&call);
            row.sequence = row.sequence.wrapping_add(1);
            if call.outermost {
                rows.completed_by(function, caller, &call);
            }
        }
        self.pop_ended();
        true
    }

    /// The thread executes another program: no call of the last one is open. `rows` are those of
    /// the last one.
    #[inline(always)]
    pub fn exec(&mut self, exec_count: u32, rows: &mut impl Rows) {
        if self.exec_count == exec_count {
            return;
        }
        self.exec_count = exec_count;
        let mut turn = 0;
        while turn < MAX_DEPTH {
            turn += 1;
            let depth = word(&self.depth);
            if depth == 0 || depth > MAX_DEPTH as u32 {
                break;
            }
            let function = self.at_mut(depth - 1).function;
            self.depth = depth - 1;
            if function != 0
                && let Some(row) = rows.known(function)
            {
                row.open = row.open.wrapping_sub(1);
                row.left_exec += 1;
            }
        }
    }

    /// What a call that was found was, and what it leaves to its caller. (The values stay in its
    /// place: the program stack has no room for them.)
    #[inline(always)]
    fn end(
        &mut self,
        place: u32,
        (kind, costs): (usize, &CallCosts),
        now: &ThreadUsage,
    ) -> CompleteCall<'_> {
        let frame = self.at_mut(place);
        frame.entered = less(&now.times, &frame.entered);
        frame.below = less(&frame.entered, &frame.below);
        frame.function = 0;
        let has_caller = frame.flags & ORPHAN == 0;
        if has_caller && self.nearest_below(place).is_some() {
            let caller = word(&self.cursor).wrapping_sub(1);
            self.give_to_caller(place, caller);
            let caller = self.at_mut(caller);
            bump(&mut caller.probes_below, kind);
            bump(&mut caller.probes_direct, kind);
        }
        let frame = self.at_mut(place);
        CompleteCall {
            faults: [
                now.faults[0].wrapping_sub(frame.faults[0]),
                now.faults[1].wrapping_sub(frame.faults[1]),
            ],
            probes_ns: costs.within(kind, &frame.probes_below),
            kind,
            outermost: frame.flags & OUTERMOST != 0,
            untraced: frame.flags & UNTRACED_ENTRY != 0 || now.untraced != 0,
            inclusive: &frame.entered,
            exclusive: &frame.below,
            probes_below: &frame.probes_below,
            probes_direct: &frame.probes_direct,
        }
    }

    /// What the call at a place has taken, and what probes were hit in it, is below its caller.
    #[inline(always)]
    fn give_to_caller(&mut self, place: u32, caller: u32) {
        let mut class = 0;
        while class < CLASS_COUNT {
            let ns = self.at_mut(place).entered[class];
            self.at_mut(caller).below[class] += ns;
            class += 1;
        }
        let mut kind = 0;
        while kind < PROBE_KINDS {
            let hit = self.at_mut(place).probes_below[kind];
            let below = &mut self.at_mut(caller).probes_below[kind];
            *below = saturating(*below, hit);
            kind += 1;
        }
    }

    /// A call begins at `sp`: those on the same stack that lie no further out are over, at the
    /// inner end. (Apart from what follows: there the kernel's verifier would go through it twice.)
    #[inline(always)]
    pub fn drop_dead(&mut self, sp: u64, rows: &mut impl Rows) {
        // The place, plus 1, of one that was left and whose caller the next open call is. No search
        // for it as elsewhere: a loop within each turn is what the verifier takes longest for.
        self.cursor = 0;
        let mut turn = 0;
        while turn < MAX_DEPTH {
            turn += 1;
            let depth = word(&self.depth);
            if depth == 0 || depth > MAX_DEPTH as u32 {
                break;
            }
            let frame = self.at_mut(depth - 1);
            if frame.function != 0 {
                let is_over = is_dead(frame.sp, sp);
                let left = word(&self.cursor);
                if left != 0 {
                    self.cursor = 0;
                    let made = self.made_below(left - 1);
                    self.at_mut(depth - 1).take_over(&made);
                }
                if !is_over {
                    break;
                }
                if self.leave_unseen(depth - 1, rows) {
                    self.cursor = depth;
                }
            }
            self.depth = depth - 1;
        }
    }

    /// The same of those above the frame that was found, between which others may lie.
    #[inline(always)]
    fn drop_dead_above(&mut self, sp: u64, rows: &mut impl Rows) {
        self.cursor = self.depth;
        let mut turn = 0;
        while turn < MAX_DEPTH {
            turn += 1;
            let cursor = word(&self.cursor);
            if cursor <= word(&self.found) || cursor > MAX_DEPTH as u32 {
                break;
            }
            let frame = self.at_mut(cursor - 1);
            if frame.function != 0 && is_dead(frame.sp, sp) {
                if self.leave_unseen(cursor - 1, rows) {
                    let made = self.made_below(cursor - 1);
                    if let Some(caller) = self.nearest_below(cursor - 1) {
                        caller.take_over(&made);
                    }
                } else {
                    self.orphan_above(cursor - 1);
                }
            }
            self.cursor = cursor - 1;
        }
    }

    /// The open call next to this place, further in, loses its caller.
    #[inline(always)]
    fn orphan_above(&mut self, place: u32) {
        self.cursor = place + 1;
        let mut turn = 0;
        while turn < MAX_PASSED_OVER {
            turn += 1;
            let cursor = word(&self.cursor);
            if cursor >= word(&self.depth) || cursor >= MAX_DEPTH as u32 {
                break;
            }
            let frame = self.at_mut(cursor);
            if frame.function != 0 {
                frame.flags |= ORPHAN;
                break;
            }
            self.cursor = cursor + 1;
        }
    }

    /// An open call is over and nobody knows since when: its time stays with its caller, who is to
    /// take over what it made. Returns whether it has a caller.
    #[inline(always)]
    fn leave_unseen(&mut self, place: u32, rows: &mut impl Rows) -> bool {
        let frame = self.at_mut(place);
        let function = frame.function;
        let has_caller = frame.flags & ORPHAN == 0;
        // The probe at its entry is one more that was hit within its caller.
        let entry = one_hit(frame.flags & STEPPED_ENTRY != 0);
        bump(&mut frame.probes_below, entry);
        bump(&mut frame.probes_direct, entry);
        frame.function = 0;
        if let Some(row) = rows.known(function) {
            row.sequence = row.sequence.wrapping_add(1);
            row.open = row.open.wrapping_sub(1);
            row.left_unseen += 1;
            row.sequence = row.sequence.wrapping_add(1);
        }
        has_caller
    }

    /// What calls took and probes hit that the one at a place made.
    #[inline(always)]
    fn made_below(&mut self, place: u32) -> MadeBelow {
        let frame = self.at_mut(place);
        MadeBelow {
            times: frame.below,
            probes: frame.probes_below,
            direct: frame.probes_direct,
        }
    }

    /// Is a call of the function open?
    #[inline(always)]
    pub fn is_in(&mut self, function: u32) -> bool {
        self.cursor = self.depth;
        let mut turn = 0;
        while turn < MAX_DEPTH {
            turn += 1;
            let cursor = word(&self.cursor);
            if cursor == 0 || cursor > MAX_DEPTH as u32 {
                return false;
            }
            if self.at_mut(cursor - 1).function == function {
                return true;
            }
            self.cursor = cursor - 1;
        }
        false
    }

    /// Where the open call of the function with that stack pointer is, from the inner end.
    #[inline(always)]
    fn find(&mut self, function: u32, sp: u64) -> bool {
        self.cursor = self.depth;
        self.found = 0;
        let mut turn = 0;
        while turn < MAX_DEPTH {
            turn += 1;
            let cursor = word(&self.cursor);
            if cursor == 0 || cursor > MAX_DEPTH as u32 {
                break;
            }
            let frame = self.at_mut(cursor - 1);
            if frame.function == function && frame.sp == sp {
                self.found = cursor;
                break;
            }
            self.cursor = cursor - 1;
        }
        word(&self.found) != 0
    }

    /// The open call next to this place, further out.
    #[inline(always)]
    fn nearest_below(&mut self, place: u32) -> Option<&mut CallFrame> {
        self.cursor = place;
        let mut turn = 0;
        while turn < MAX_PASSED_OVER {
            turn += 1;
            let cursor = word(&self.cursor);
            if cursor == 0 || cursor > MAX_DEPTH as u32 {
                break;
            }
            if self.at_mut(cursor - 1).function != 0 {
                break;
            }
            self.cursor = cursor - 1;
        }
        let cursor = word(&self.cursor);
        if cursor == 0 || cursor > MAX_DEPTH as u32 || self.at_mut(cursor - 1).function == 0 {
            return None;
        }
        Some(self.at_mut(cursor - 1))
    }

    /// Gives back the places of calls that are over, at the inner end.
    #[inline(always)]
    fn pop_ended(&mut self) {
        let mut turn = 0;
        while turn < MAX_DEPTH {
            turn += 1;
            let depth = word(&self.depth);
            if depth == 0 || depth > MAX_DEPTH as u32 || self.at_mut(depth - 1).function != 0 {
                break;
            }
            self.depth = depth - 1;
        }
    }

    /// The frame at a place; of one that is none, some other. (What is known of the place is
    /// forgotten, so that it is masked in any case: the verifier of Linux 5.15 knows less of it
    /// than the compiler.)
    #[inline(always)]
    fn at_mut(&mut self, place: u32) -> &mut CallFrame {
        &mut self.frames[core::hint::black_box(place) as usize & (MAX_DEPTH - 1)]
    }
}

/// A word as it lies there now: whatever was known of it is forgotten.
#[inline(always)]
fn word(word: &u32) -> u32 {
    *core::hint::black_box(word)
}

const _: () =
    assert!(size_of::<CallFrame>() == 176 && size_of::<ShadowStack>() == 24 + 176 * MAX_DEPTH);

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
