//! A call that is open, and what is known of it until it ends.

use super::{PROBE_KINDS, add};
use crate::clock::ClassNs;

/// Stack pointers further apart than this are on different stacks.
pub(super) const STACK_BYTES: u64 = 1 << 20;

/// [`CallFrame::flags`]: no other call of the function was open when it began.
pub(super) const OUTERMOST: u32 = 1;
/// [`CallFrame::flags`]: its caller ended before it.
pub(super) const ORPHAN: u32 = 2;
/// [`CallFrame::flags`]: system calls were not traced at its entry.
pub(super) const UNTRACED_ENTRY: u32 = 4;
/// [`CallFrame::flags`]: the instruction at its entry was executed out of its line.
pub(super) const STEPPED_ENTRY: u32 = 8;

/// A call that begins.
#[derive(Clone, Copy, Debug)]
pub struct EnteredCall {
    /// Number of its function.
    pub function: u32,
    /// The stack pointer: where its return address lies.
    pub sp: u64,
    /// Where it returns to.
    pub caller: u64,
    /// Is the instruction at its entry executed out of its line?
    pub stepped: bool,
}

/// A call that is open.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CallFrame {
    /// The stack pointer at its entry: where its return address lies.
    pub sp: u64,
    /// Where it returns to.
    pub(super) caller: u64,
    /// Number of its function; 0: the call is over, and the place is not free yet.
    pub function: u32,
    pub(super) flags: u32,
    /// The thread's times at its entry; once it is over, what it has taken.
    pub(super) entered: ClassNs,
    /// What measured calls made directly by it have taken; once it is over, its own part.
    pub(super) below: ClassNs,
    /// The thread's page faults at its entry.
    pub(super) faults: [u32; 2],
    /// Probed calls below it that are over, or only counted, and other hits of probes: each as a
    /// call that is counted.
    pub(super) probes_below: [u32; PROBE_KINDS],
    /// Those of them that it made directly.
    pub(super) probes_direct: [u32; PROBE_KINDS],
}

/// See [`CallFrame::below`], [`CallFrame::probes_below`], [`CallFrame::probes_direct`].
pub(super) struct MadeBelow {
    pub(super) times: ClassNs,
    pub(super) probes: [u32; PROBE_KINDS],
    pub(super) direct: [u32; PROBE_KINDS],
}

impl CallFrame {
    /// What a call that it made and that nobody saw end had made is its own.
    #[inline(always)]
    pub(super) fn take_over(&mut self, made: &MadeBelow) {
        add(&mut self.below, &made.times);
        add_probes(&mut self.probes_below, &made.probes);
        add_probes(&mut self.probes_direct, &made.direct);
    }
}

/// Has a call whose entry was at `frame_sp` ended, if one begins or ends at `sp`?
#[inline(always)]
pub(super) const fn is_dead(frame_sp: u64, sp: u64) -> bool {
    frame_sp <= sp && sp - frame_sp < STACK_BYTES
}

/// The kind whose cost is that of one hit: a call that is counted.
#[inline(always)]
pub(super) const fn one_hit(stepped: bool) -> usize {
    stepped as usize
}

/// The kind of the exit alone of a call of this kind ([`super::probe_kind`]): those of goroutines
/// are returns, which are executed out of their line.
#[inline(always)]
pub(super) const fn exit_alone(kind: usize) -> usize {
    one_hit(kind & 4 == 0 || kind & 1 != 0)
}

#[inline(always)]
pub(super) fn bump(probes: &mut [u32; PROBE_KINDS], kind: usize) {
    if let Some(count) = probes.get_mut(kind) {
        *count = saturating(*count, 1);
    }
}

#[inline(always)]
pub(super) fn add_probes(to: &mut [u32; PROBE_KINDS], from: &[u32; PROBE_KINDS]) {
    let mut kind = 0;
    while kind < PROBE_KINDS {
        to[kind] = saturating(to[kind], from[kind]);
        kind += 1;
    }
}

/// The sum, at most `u32::MAX`; without a branch, whose both sides the kernel's verifier would
/// follow.
#[inline(always)]
pub(super) const fn saturating(a: u32, b: u32) -> u32 {
    let sum = a as u64 + b as u64;
    (sum | (sum >> 32).wrapping_neg()) as u32
}
