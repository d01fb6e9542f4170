//! What the program at probes makes of the flags, against the processor.

use std::arch::asm;

use profiler_common::measured::Condition;

/// What the processor makes of each condition, with these flags.
fn by_processor(flags: u64) -> [bool; 16] {
    let mut holds = [0_u8; 16];
    macro_rules! set {
        ($($number:literal $instruction:literal)*) => {
            $(
                let byte: u8;
                // SAFETY: the flags are restored: the compiler is told that they change.
                unsafe {
                    asm!(
                        "push {flags}",
                        "popfq",
                        concat!($instruction, " {byte}"),
                        flags = in(reg) flags,
                        byte = out(reg_byte) byte,
                    );
                }
                holds[$number] = byte;
            )*
        };
    }
    set!(0 "seto" 1 "setno" 2 "setb" 3 "setae" 4 "sete" 5 "setne" 6 "setbe" 7 "seta");
    set!(8 "sets" 9 "setns" 10 "setp" 11 "setnp" 12 "setl" 13 "setge" 14 "setle" 15 "setg");
    holds.map(|byte| byte != 0)
}

// Check each condition with each combination of the flags against the processor.
#[test]
fn conditions_are_the_processors() {
    // Carry, parity, zero, sign, overflow.
    let bits = [1, 1 << 2, 1 << 6, 1 << 7, 1 << 11];
    for combination in 0..32 {
        let set = |number: usize| combination >> number & 1 != 0;
        // The second bit and that of interrupts are always set.
        let flags = (0..5).filter(|number| set(*number));
        let flags = flags.fold(0x202, |flags, number| flags | bits[number]);
        for (number, holds) in by_processor(flags).into_iter().enumerate() {
            let condition = Condition::of_opcode(0x70 | number as u8);
            assert_eq!(condition.holds(flags), holds, "{number} of {flags:#x}");
            assert_eq!(Condition::from_bits(condition.to_bits()), condition);
        }
        assert!(Condition::ALWAYS.holds(flags));
    }
}
