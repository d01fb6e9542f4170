//! Stacks of threads that are inside functions with return probes. The kernel has put the address
//! of its trampoline in place of such a function's return address, and remembers where the function
//! is to return to.
//!
//! Pure: what the kernel remembers comes from whoever walks. Source: `kernel/events/uprobes.c`.

use super::{
    UnwindFailure, UnwindRow, kind,
    step::{LEAF, Memory, Registers},
};

/// Return addresses that a thread can have replaced at a time (`MAX_URETPROBE_DEPTH`).
pub const MAX_PENDING_RETURNS: usize = 64;
/// Bytes of the page that the kernel maps as `[uprobes]` into a process.
const PAGE_BYTES: u64 = 4096;
/// Bytes of each of its slots, the first of which is the trampoline.
const SLOT_BYTES: u64 = 128;
/// An instruction that is executed in a slot of the page has at most so many.
const INSTRUCTION_BYTES: u64 = 15;
/// Where the trampoline of Linux 6.11 and later goes on after it was in the kernel. By then the
/// kernel has forgotten the call, and has put the return address back.
const AFTER_KERNEL: u64 = 13;

/// A return address that was replaced.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PendingReturn {
    /// Where on the stack it was.
    pub slot: u64,
    /// What it was.
    pub returns_to: u64,
}

impl PendingReturn {
    /// Whether it was at one of these places.
    #[must_use]
    #[inline(always)]
    pub const fn is_at(&self, slots: [u64; 2]) -> bool {
        self.slot == slots[0] || self.slot == slots[1]
    }
}

/// The instruction under a probe that was last executed in the page, out of its line.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OutOfLine {
    /// Where it is executed; 0: none was.
    pub at: u64,
    /// Where it belongs.
    pub belongs_at: u64,
}

/// What the kernel remembers of a thread's probes. Who walks searches it in his own way: a program
/// in the kernel by its helper for loops, since the verifier would follow each turn otherwise.
pub trait ReturnInstances {
    /// The innermost return address that was replaced at one of these two places on the stack. It
    /// and those before it are not found again.
    fn find(&mut self, slots: [u64; 2]) -> Option<PendingReturn>;

    /// The return address that comes next. It can still be found.
    fn next(&mut self) -> Option<PendingReturn>;

    /// The instruction that the thread executes out of its line, or did last.
    fn out_of_line(&mut self) -> OutOfLine;
}

/// What was remembered of a thread's probes at some moment.
#[derive(Clone, Copy, Debug, Default)]
pub struct KnownProbes<'a> {
    /// Return addresses that were replaced, innermost first.
    pub returns: &'a [PendingReturn],
    /// See [`ReturnInstances::out_of_line`].
    pub out_of_line: OutOfLine,
}

impl ReturnInstances for KnownProbes<'_> {
    fn find(&mut self, slots: [u64; 2]) -> Option<PendingReturn> {
        let mut known = self.returns.iter();
        let found = known.position(|pending| pending.is_at(slots))?;
        let pending = self.returns[found];
        self.returns = &self.returns[found + 1..];
        Some(pending)
    }

    fn next(&mut self) -> Option<PendingReturn> {
        self.returns.first().copied()
    }

    fn out_of_line(&mut self) -> OutOfLine {
        self.out_of_line
    }
}

/// Whether a frame is in the `[uprobes]` page at that address (0: the process has none).
#[must_use]
#[inline(always)]
pub const fn is_in_probes(registers: &Registers, page: u64) -> bool {
    page != 0 && registers.pc.wrapping_sub(page) < PAGE_BYTES
}

/// From a frame in the page ([`is_in_probes`]) to the program's own frame that it stands for.
///
/// # Errors
/// [`UnwindFailure::ReturnProbe`]: what the kernel remembers does not tell.
/// [`UnwindFailure::ReadReturn`]: the stack could not be read. The registers are as before.
#[inline(always)]
pub fn leave_probes(
    registers: &mut Registers,
    page: u64,
    probes: &mut impl ReturnInstances,
    memory: &mut impl Memory,
) -> Result<(), UnwindFailure> {
    let is_leaf = registers.flags & LEAF != 0;
    let offset = registers.pc.wrapping_sub(page);
    if offset >= SLOT_BYTES {
        let copy = probes.out_of_line();
        let offset = registers.pc.wrapping_sub(copy.at);
        if !is_leaf || copy.at == 0 || offset > INSTRUCTION_BYTES {
            return Err(UnwindFailure::ReturnProbe);
        }
        registers.pc = copy.belongs_at.wrapping_add(offset);
        return Ok(());
    }
    // A frame that called the function has its stack pointer right above the return address. One
    // that is in the trampoline itself may have pushed something, unless the trampoline is of the
    // one byte that it was before Linux 6.11, or the kernel has already put the stack pointer back.
    let plain = registers.sp.wrapping_sub(8);
    let slot = plain.wrapping_add(pushed_bytes(offset));
    let slots = [slot, plain];
    if offset >= AFTER_KERNEL && is_leaf && !probes.next().is_some_and(|next| next.is_at(slots)) {
        let returns_to = memory.word(slot).ok_or(UnwindFailure::ReadReturn)?;
        go_to_caller(registers, slot, returns_to);
        return Ok(());
    }
    // Those of calls that were left by `longjmp`, and of other stacks, are still among them.
    let pending = probes.find(slots).ok_or(UnwindFailure::ReturnProbe)?;
    go_to_caller(registers, pending.slot, pending.returns_to);
    Ok(())
}

/// The address lies behind a call. All registers that a call keeps are as they were.
#[inline(always)]
fn go_to_caller(registers: &mut Registers, slot: u64, returns_to: u64) {
    registers.pc = returns_to;
    registers.sp = slot.wrapping_add(8);
    registers.flags &= LEAF;
}

/// What the trampoline of return probes has pushed so far behind its beginning: rax (1 byte), rcx
/// (1), r11 (2), then mov (7) and syscall (2), and takes back: r11 (2), rcx (1), ret.
#[inline(always)]
const fn pushed_bytes(offset: u64) -> u64 {
    match offset {
        0 | 17.. => 0,
        1 | 16 => 8,
        2 | 3 | 15 => 16,
        4..=14 => 24,
    }
}

/// The row for an address so far behind the beginning of an `[uprobes-trampoline]` (Linux 6.18),
/// which probes on long no-operations call: it pushes three registers, enters the kernel, and takes
/// them back.
#[must_use]
#[inline(always)]
pub const fn trampoline_row(offset: u64) -> UnwindRow {
    let pushed = match offset {
        0 | 17.. => 0,
        1 | 2 | 16 => 8,
        3 | 14 | 15 => 16,
        4..=13 => 24,
    };
    UnwindRow {
        pc: 0,
        kind: kind::CFA_RSP,
        frame: super::FRAME_UNCHANGED,
        param: 8 + pushed,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGE: u64 = 0x7fff_ffff_e000;

    /// By slot and address.
    fn list<const COUNT: usize>(pairs: [(u64, u64); COUNT]) -> [PendingReturn; COUNT] {
        pairs.map(|(slot, returns_to)| PendingReturn { slot, returns_to })
    }

    fn known(returns: &[PendingReturn]) -> KnownProbes<'_> {
        KnownProbes {
            returns,
            ..KnownProbes::default()
        }
    }

    /// A frame that a call will return to.
    fn caller(sp: u64) -> Registers {
        Registers {
            pc: PAGE,
            sp,
            ..Registers::default()
        }
    }

    /// Where the word at each address is its own address.
    struct Words;

    impl Memory for Words {
        fn word(&mut self, address: u64) -> Option<u64> {
            Some(address)
        }

        fn pair(&mut self, _: u64) -> Option<[u64; 2]> {
            None
        }

        fn leaf_register(&mut self, _: u32) -> Option<u64> {
            None
        }
    }

    fn left(
        mut registers: Registers,
        probes: &mut KnownProbes<'_>,
    ) -> Result<(u64, u64), UnwindFailure> {
        assert!(is_in_probes(&registers, PAGE));
        let left = leave_probes(&mut registers, PAGE, probes, &mut Words);
        left.map(|()| (registers.pc, registers.sp))
    }

    #[test]
    fn frames_return_to_where_they_were_called_from() {
        // Check that each frame finds its own return address by where it was: with frames in
        // between that have none, with what a `longjmp` left, with those of another stack, and with
        // two for one slot, as a tail call leaves them.
        let (near, far) = (0x7ffe_0000_1000, 0x7fff_1000_0000);
        let returns = list([
            (near - 64, 0x40_0001),
            (near, 0x40_1000),
            (far, 0x40_9999),
            (near + 32, 0x40_2000),
            (near + 32, 0x40_2000),
            (near + 96, 0x40_3000),
        ]);
        let mut probes = known(&returns);
        assert_eq!(
            left(caller(near + 8), &mut probes),
            Ok((0x40_1000, near + 8))
        );
        assert_eq!(
            left(caller(near + 40), &mut probes),
            Ok((0x40_2000, near + 40))
        );
        assert_eq!(
            left(caller(near + 104), &mut probes),
            Ok((0x40_3000, near + 104))
        );
        let failed = Err(UnwindFailure::ReturnProbe);
        assert_eq!(left(caller(near + 200), &mut probes), failed);
    }

    #[test]
    fn a_thread_that_is_just_returning_is_at_its_caller() {
        // Check the thread in the trampoline itself: right behind the return, with some registers
        // pushed, and (at 1) in the trampoline of one byte; never one whose call is long gone.
        let slot = 0x7ffe_0000_1000;
        for (offset, pushed) in [(0, 0), (1, 0), (1, 8), (2, 16), (4, 24), (11, 24)] {
            let returns = list([(slot - 48, 0x40_0001), (slot, 0x40_1000)]);
            let mut probes = known(&returns);
            let registers = Registers::interrupted(PAGE + offset, slot + 8 - pushed, 7);
            assert_eq!(left(registers, &mut probes), Ok((0x40_1000, slot + 8)));
        }
        // In the kernel and after it, which may have forgotten the call: its caller's is still
        // to be found.
        for (offset, pushed) in [(13, 24), (13, 0), (15, 16), (16, 8)] {
            let registers = Registers::interrupted(PAGE + offset, slot + 8 - pushed, 7);
            let returns = list([(slot, 0x40_1000), (slot + 16, 0x40_2000)]);
            let mut probes = known(&returns);
            assert_eq!(left(registers, &mut probes), Ok((0x40_1000, slot + 8)));
            if pushed == 0 {
                continue;
            }
            let returns = list([(slot + 16, 0x40_2000)]);
            let mut probes = known(&returns);
            assert_eq!(left(registers, &mut probes), Ok((slot, slot + 8)));
            assert_eq!(
                left(caller(slot + 24), &mut probes),
                Ok((0x40_2000, slot + 24))
            );
        }
        let mut registers = Registers::interrupted(PAGE, 0x1008, 7);
        let returns = list([(0x1000, 0x40_1000)]);
        let mut probes = known(&returns);
        leave_probes(&mut registers, PAGE, &mut probes, &mut Words).expect("remembered");
        assert_eq!(registers.lookup_pc(), 0x40_0fff);
        assert_eq!((registers.fp, registers.flags), (7, LEAF));
    }

    #[test]
    fn an_instruction_out_of_its_line_is_where_it_belongs() {
        // Check the thread that executes a copy, before and behind it; and that a copy elsewhere,
        // or none, is told.
        let mut probes = known(&[]);
        let at = |offset: u64| Registers::interrupted(PAGE + 256 + offset, 0x1000, 0);
        let failed = Err(UnwindFailure::ReturnProbe);
        assert_eq!(left(at(0), &mut probes), failed);
        probes.out_of_line = OutOfLine {
            at: PAGE + 256,
            belongs_at: 0x40_1000,
        };
        assert_eq!(left(at(0), &mut probes), Ok((0x40_1000, 0x1000)));
        assert_eq!(left(at(4), &mut probes), Ok((0x40_1004, 0x1000)));
        assert_eq!(left(at(128), &mut probes), failed);
    }

    #[test]
    fn a_process_without_probes_has_no_frame_in_them() {
        // Check that low addresses are not taken for a page that is not there.
        for pc in [0, 1, 4095, PAGE] {
            let registers = Registers::interrupted(pc, 0, 0);
            assert!(!is_in_probes(&registers, 0));
        }
    }

    #[test]
    fn the_trampoline_of_optimized_probes_has_a_row_per_push() {
        // Check each border of its instructions: push rcx (1 byte), r11 (2), rax (1), mov (7),
        // syscall (2), and back: rax (1), r11 (2), rcx (1), ret.
        let depth = |offset| trampoline_row(offset).param;
        let borders = [
            (0, 8),
            (1, 16),
            (3, 24),
            (4, 32),
            (11, 32),
            (12, 32),
            (13, 32),
        ];
        for (offset, cfa) in borders.into_iter().chain([(14, 24), (16, 16), (17, 8)]) {
            assert_eq!(depth(offset), cfa, "{offset}");
        }
    }
}
