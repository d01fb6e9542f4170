//! Each rule over a stack drawn by hand: which word lies where, and what the step makes of it.

use super::*;
use std::{collections::BTreeMap, vec::Vec};

/// Memory as drawn; all else cannot be read.
#[derive(Default)]
struct Drawn {
    words: BTreeMap<u64, u64>,
    registers: BTreeMap<u32, u64>,
    /// What was read: address and how many words.
    reads: Vec<(u64, u32)>,
}

impl Memory for Drawn {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.reads.push((address, 1));
        self.words.get(&address).copied()
    }

    fn pair(&mut self, address: u64) -> Option<[u64; 2]> {
        self.reads.push((address, 2));
        Some([*self.words.get(&address)?, *self.words.get(&(address + 8))?])
    }

    fn leaf_register(&mut self, register: u32) -> Option<u64> {
        self.registers.get(&register).copied()
    }
}

fn drawn(words: &[(u64, u64)]) -> Drawn {
    Drawn {
        words: words.iter().copied().collect(),
        ..Drawn::default()
    }
}

fn row(kind: u8, frame: i8, param: i32) -> UnwindRow {
    UnwindRow {
        pc: 0,
        kind,
        frame,
        param,
    }
}

const CODE: u64 = 0x40_1000;
const STACK: u64 = 0x7ffc_0000_1000;

/// A frame in the middle of a stack.
fn caller_frame(sp: u64, fp: u64) -> Registers {
    Registers {
        pc: CODE,
        sp,
        fp,
        ..Registers::default()
    }
}

#[track_caller]
fn goes_to(row: UnwindRow, from: Registers, memory: &mut Drawn, pc: u64, sp: u64, fp: u64) {
    let mut registers = from;
    assert_eq!(step(row, &mut registers, memory), StepResult::Caller);
    assert_eq!((registers.pc, registers.sp, registers.fp), (pc, sp, fp));
    assert_eq!(registers.flags, 0);
    assert_eq!(registers.lookup_pc(), pc - 1);
}

#[track_caller]
fn fails(row: UnwindRow, from: Registers, memory: &mut Drawn, failure: UnwindFailure) {
    let mut registers = from;
    assert_eq!(
        step(row, &mut registers, memory),
        StepResult::Failed(failure)
    );
    assert_eq!(registers, from, "a failed step changes nothing");
}

#[test]
fn from_the_stack_pointer() {
    // Check the commonest rule: the frame is param bytes large, rbp is untouched or saved anywhere
    // in it.
    //
    //   sp -> 0x00 local
    //         0x08 caller's rbp
    //         0x10 rbx
    //         0x18 return address
    //   CFA   0x20
    let words = [(STACK + 0x8, 0xb0b), (STACK + 0x18, CODE + 5)];
    let from = caller_frame(STACK, 0xabc);
    goes_to(
        row(kind::CFA_RSP, -3, 0x20),
        from,
        &mut drawn(&words),
        CODE + 5,
        STACK + 0x20,
        0xb0b,
    );
    goes_to(
        row(kind::CFA_RSP, FRAME_UNCHANGED, 0x20),
        from,
        &mut drawn(&words),
        CODE + 5,
        STACK + 0x20,
        0xabc,
    );
}

#[test]
fn from_the_frame_pointer_in_one_read() {
    // Check that rbp right below the return address is read together with it.
    //
    //   sp -> ...
    //   rbp-> 0x40 caller's rbp
    //         0x48 return address
    //   CFA   0x50
    let mut memory = drawn(&[(STACK + 0x40, STACK + 0x90), (STACK + 0x48, CODE + 5)]);
    goes_to(
        row(kind::CFA_RBP, FRAME_BELOW_RETURN, 16),
        caller_frame(STACK, STACK + 0x40),
        &mut memory,
        CODE + 5,
        STACK + 0x50,
        STACK + 0x90,
    );
    assert_eq!(memory.reads, [(STACK + 0x40, 2)]);
}

#[test]
fn in_a_linkage_stub() {
    // Check that a stub's pushed word counts from the byte on that its form says.
    for (kind, from) in [(kind::PLT11, 11), (kind::PLT10, 10)] {
        for byte in 0..16 {
            let pushed = if byte >= from { 8 } else { 0 };
            let mut memory = drawn(&[(STACK + pushed, CODE + 5)]);
            goes_to(
                row(kind, FRAME_UNCHANGED, 0),
                Registers::interrupted(CODE + byte, STACK, 7),
                &mut memory,
                CODE + 5,
                STACK + pushed + 8,
                7,
            );
        }
    }
}

#[test]
fn through_a_word_on_the_stack() {
    // Check functions that realign their stack: the CFA is in a word below rbp, the caller's rbp
    // where rbp points to.
    //
    //   rbp-8   CFA
    //   rbp     caller's rbp
    let fp = STACK + 0x40;
    let mut memory = drawn(&[
        (fp - 8, STACK + 0x80),
        (fp, STACK + 0x200),
        (STACK + 0x78, CODE + 5),
    ]);
    let param = deref_param(-8, 0).unwrap();
    goes_to(
        row(kind::DEREF_RBP, FRAME_AT_FRAME, param),
        caller_frame(STACK, fp),
        &mut memory,
        CODE + 5,
        STACK + 0x80,
        STACK + 0x200,
    );
    // And from the stack pointer, with something to add.
    let mut memory = drawn(&[
        (STACK + 152, STACK + 0x100),
        (STACK + 0x100, CODE + 9),
        (STACK + 0xf8, 0x77),
    ]);
    let param = deref_param(152, 8).unwrap();
    goes_to(
        row(kind::DEREF_RSP, FRAME_BELOW_RETURN, param),
        caller_frame(STACK, fp),
        &mut memory,
        CODE + 9,
        STACK + 0x108,
        0x77,
    );
    fails(
        row(kind::DEREF_RSP, FRAME_UNCHANGED, 0),
        caller_frame(STACK, fp),
        &mut drawn(&[]),
        UnwindFailure::ReadCfa,
    );
}

#[test]
fn from_a_register_of_the_leaf() {
    // Check that other registers serve where they are known, and only there.
    let rule = row(kind::REGISTER + 10, FRAME_UNCHANGED, 8);
    let mut memory = drawn(&[(STACK + 0x40, CODE + 5)]);
    memory.registers.insert(10, STACK + 0x40);
    for leaf in [
        Registers::interrupted(CODE, STACK, 1),
        Registers::in_system_call(CODE, STACK, 1),
    ] {
        goes_to(rule, leaf, &mut memory, CODE + 5, STACK + 0x48, 1);
    }
    fails(
        rule,
        caller_frame(STACK, 1),
        &mut memory,
        UnwindFailure::LeafRegisterAboveLeaf,
    );
    fails(
        row(kind::REGISTER + 11, FRAME_UNCHANGED, 8),
        Registers::interrupted(CODE, STACK, 1),
        &mut memory,
        UnwindFailure::ReadLeafRegister,
    );
    // vfork keeps its return address in rdi while in the kernel; the stack pointer is the caller's
    // already.
    memory.registers.insert(5, CODE + 0x77);
    let mut registers = Registers::in_system_call(CODE, STACK, 1);
    let rule = row(kind::RETURN_REGISTER + 5, FRAME_UNCHANGED, 0);
    assert_eq!(step(rule, &mut registers, &mut memory), StepResult::Caller);
    assert_eq!((registers.pc, registers.sp), (CODE + 0x77, STACK));
}

#[test]
fn where_threads_go_on() {
    // Check that the address is exact of who was interrupted, and of who goes on at a handler or in
    // another program behind a call; and is not of who waits in one.
    assert!(Registers::is_elsewhere(u64::MAX, 0, CODE));
    // A fault at the first instruction of a function that was called by `call *%rcx`.
    assert!(Registers::is_elsewhere(u64::MAX, CODE, CODE));
    assert!(Registers::is_elsewhere(35, CODE, CODE + 0x40));
    assert!(Registers::is_elsewhere(59, 0, CODE));
    assert!(!Registers::is_elsewhere(35, CODE, CODE));
    assert!(
        !Registers::is_elsewhere(15, 0, CODE),
        "its registers are being put back"
    );
}

#[test]
fn over_a_signal() {
    // Check that all registers come from the signal frame, also onto a lower stack, that the
    // interrupted address is exact, and that the interrupted function's other registers are found
    // there.
    let context = STACK;
    let low = 0x10_0000;
    let mut memory = drawn(&[
        (context + 120, low + 0x80),
        (context + 160, low),
        (context + 168, CODE + 0x20),
        (context + 56, low + 0x40),
        (low + 0x38, CODE + 0x30),
    ]);
    let mut registers = caller_frame(context, 5);
    assert_eq!(registers.lookup_pc(), CODE - 1);
    assert_eq!(registers.shown_pc(kind::SIGNAL), CODE, "the trampoline");
    assert_eq!(registers.shown_pc(kind::CFA_RSP), CODE - 1);
    let ends = Registers::in_system_call(CODE, STACK, 0);
    assert_eq!(ends.shown_pc(kind::SIGNAL), CODE - 1);
    let signal = row(kind::SIGNAL, FRAME_UNCHANGED, 0);
    assert_eq!(
        step(signal, &mut registers, &mut memory),
        StepResult::Caller
    );
    assert_eq!(
        registers,
        Registers {
            pc: CODE + 0x20,
            sp: low,
            fp: low + 0x80,
            context,
            flags: EXACT | LEAF,
            padding: 0
        }
    );
    assert_eq!(registers.lookup_pc(), CODE + 0x20);
    // r10 of the interrupted function lies at +56.
    goes_to(
        row(kind::REGISTER + 10, FRAME_UNCHANGED, 0),
        registers,
        &mut memory,
        CODE + 0x30,
        low + 0x40,
        low + 0x80,
    );
    fails(
        signal,
        caller_frame(context + 8, 5),
        &mut memory,
        UnwindFailure::ReadSignal,
    );
    memory.words.insert(context + 168, 0);
    fails(
        signal,
        caller_frame(context, 5),
        &mut memory,
        UnwindFailure::ZeroReturnAddress,
    );
}

#[test]
fn registers_lie_where_the_kernel_puts_them() {
    // Check the offsets of all registers against the kernel's two structures.
    let signal = [
        144, 136, 152, 128, 112, 104, 120, 160, 40, 48, 56, 64, 72, 80, 88, 96,
    ];
    let saved = [
        80, 96, 88, 40, 104, 112, 32, 0, 72, 64, 56, 48, 24, 16, 8, 0,
    ];
    for register in 0..16 {
        assert_eq!(signal_offset(register), signal[register as usize]);
        if register != 7 {
            assert_eq!(pt_regs_offset(register), saved[register as usize]);
        }
    }
}

#[test]
fn where_a_stack_ends() {
    // Check the two good ends, and that rows which say they are unsupported name their reason.
    let mut none = drawn(&[]);
    let mut registers = caller_frame(STACK, 0);
    let before = registers;
    for kind in [kind::STOP, kind::GAP] {
        assert_eq!(
            step(row(kind, 0, 0), &mut registers, &mut none),
            StepResult::End
        );
        assert_eq!(registers, before);
    }
    fails(
        row(
            kind::UNSUPPORTED,
            0,
            UnwindFailure::UnsupportedReturn as i32,
        ),
        before,
        &mut none,
        UnwindFailure::UnsupportedReturn,
    );
    fails(row(12, 0, 0), before, &mut none, UnwindFailure::UnknownKind);
}

#[test]
fn by_frame_pointers_where_no_table_is() {
    // Check the step over code without unwind information: the two words at rbp, and each way it
    // fails.
    let gap = row(kind::GAP, 0, 0);
    let fp = STACK + 0x40;
    let mut memory = drawn(&[(fp, fp + 0x40), (fp + 8, CODE + 5)]);
    goes_to(
        gap,
        Registers::interrupted(CODE, STACK, fp),
        &mut memory,
        CODE + 5,
        fp + 16,
        fp + 0x40,
    );
    fails(
        gap,
        caller_frame(STACK, STACK - 8),
        &mut memory,
        UnwindFailure::BadFramePointer,
    );
    fails(
        gap,
        caller_frame(STACK, STACK + 8),
        &mut memory,
        UnwindFailure::ReadFramePointer,
    );
    memory.words.insert(fp + 8, USER_ADDRESS_END);
    fails(
        gap,
        caller_frame(STACK, fp),
        &mut memory,
        UnwindFailure::KernelAddress,
    );
}

#[test]
fn zero_is_no_end_where_nothing_is_known() {
    // Check that in a file of which nothing is known neither a frame pointer of zero nor two zeros
    // at it end a stack, and that frames are found as elsewhere.
    let only = row(kind::FRAME_POINTER, 0, 0);
    let fp = STACK + 0x40;
    let none = UnwindFailure::BadFramePointer;
    fails(only, caller_frame(STACK, 0), &mut drawn(&[]), none);
    let mut memory = drawn(&[(fp, 0), (fp + 8, 0)]);
    fails(only, caller_frame(STACK, fp), &mut memory, none);
    let mut memory = drawn(&[(fp, 0), (fp + 8, CODE + 5)]);
    let from = caller_frame(STACK, fp);
    goes_to(only, from, &mut memory, CODE + 5, fp + 16, 0);
    fails(only, caller_frame(STACK, STACK - 8), &mut memory, none);
}

#[test]
fn from_another_stack() {
    // Check that a function which has left its caller's stack is followed to it by rbp, also down,
    // and ends the stack where it cleared rbp; the other guards stay.
    let other = row(kind::OTHER_STACK, 0, 0);
    let fp = STACK - 0x4000;
    let mut memory = drawn(&[(fp, fp + 0x40), (fp + 8, CODE + 5)]);
    let from = caller_frame(STACK, fp);
    goes_to(other, from, &mut memory, CODE + 5, fp + 16, fp + 0x40);
    let mut registers = caller_frame(STACK, 0);
    assert_eq!(step(other, &mut registers, &mut memory), StepResult::End);
    for fp in [fp + 4, USER_ADDRESS_END] {
        let from = caller_frame(STACK, fp);
        fails(other, from, &mut memory, UnwindFailure::BadFramePointer);
    }
}

#[test]
fn guards() {
    // Check that each implausible stack ends the walk with its own reason.
    let words = [
        (STACK, 0),
        (STACK + 8, 12),
        (STACK + 16, u64::MAX),
        (STACK + 24, CODE),
    ];
    let cases = [
        (0, UnwindFailure::StackNotGrowing),
        (-8, UnwindFailure::StackNotGrowing),
        (4, UnwindFailure::StackMisaligned),
        (8, UnwindFailure::ZeroReturnAddress),
        (16, UnwindFailure::LowAddress),
        (24, UnwindFailure::KernelAddress),
        (0x1000, UnwindFailure::ReadReturn),
    ];
    for (param, failure) in cases {
        fails(
            row(kind::CFA_RSP, FRAME_UNCHANGED, param),
            caller_frame(STACK, 1),
            &mut drawn(&words),
            failure,
        );
    }
    fails(
        row(kind::CFA_RSP, -9, 32),
        caller_frame(STACK, 1),
        &mut drawn(&words),
        UnwindFailure::ReadFrame,
    );
    fails(
        row(kind::CFA_RBP, FRAME_UNCHANGED, 16),
        caller_frame(STACK, USER_ADDRESS_END),
        &mut drawn(&words),
        UnwindFailure::StackOutOfRange,
    );
}
