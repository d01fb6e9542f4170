//! Rules read off code, held against those that compilers wrote down for the same code.

use std::fs;

use gimli::EhFrame;
use profiler_common::unwind::{FRAME_UNCHANGED, kind};

use crate::sys::clock::thread_ns;
use crate::units::ModuleAddress;

use super::{
    BuildLimits, BuildStats,
    code::{CodeReader, RegisterState, call_targets},
    elf::{Elf, FrameForm},
    frames::{FrameEntries, RulesAt, bytes},
    made_files,
    rule::Rule,
};

#[derive(Clone, Copy, Debug, Default)]
struct Agreement {
    /// Instructions of which both know the CFA, and those where it is the same.
    compared: u64,
    cfa: u64,
    /// Of these, instructions where the caller's rbp is found too.
    frame: u64,
    /// Instructions that only the compiler knows.
    unknown: u64,
}

/// Reads each function's code as if it had no unwind information, and compares instruction by
/// instruction.
fn agreement(path: &str) -> Option<Agreement> {
    let file = fs::read(path).ok()?;
    let limits = BuildLimits::default();
    let elf = Elf::read(&*file, limits.max_section_bytes, &mut || true).ok()?;
    let information = elf.frames.as_ref().ok()?;
    let section = &*information.bytes;
    let mut frames = FrameEntries::new(
        EhFrame::from(bytes(section)),
        section,
        information.address,
        false,
    );
    let terminator = information.form == FrameForm::EhFrameToTerminator;
    let mut stats = BuildStats::default();
    let spans = frames
        .spans(&elf.segments, terminator, &limits, &mut || true, &mut stats)
        .ok()?;
    let mut reader = CodeReader::new();
    let mut found = Agreement::default();
    for span in spans {
        let mut written: Vec<(ModuleAddress, Rule)> = Vec::new();
        let RulesAt::Frames(offset) = span.described else {
            continue;
        };
        frames
            .rules(span, offset, &mut stats, |address, rule| {
                written.push((address, rule));
                Ok(())
            })
            .ok()?;
        // The cold parts of functions begin in the middle of things.
        if written
            .first()
            .is_none_or(|(_, rule)| (rule.kind, rule.param) != (kind::CFA_RSP, 8))
        {
            continue;
        }
        let mut code = vec![0; (span.end - span.start) as usize];
        if !elf.read_code(&*file, span.start, &mut code) {
            continue;
        }
        reader.states(&code, span.start, |address, state| {
            let index = written.partition_point(|(start, _)| *start <= address);
            let Some((_, rule)) = index.checked_sub(1).map(|index| written[index]) else {
                return;
            };
            let ours = match rule.kind {
                kind::CFA_RSP => state.sp,
                kind::CFA_RBP => state.fp.or(state.sp.map(|_| rule.param)),
                _ => return,
            };
            let Some(ours) = ours else {
                found.unknown += 1;
                return;
            };
            found.compared += 1;
            if ours == rule.param {
                found.cfa += 1;
                found.frame += u64::from(finds_frame(state, rule));
            }
        });
    }
    Some(found)
}

/// Whether the caller's rbp is where the compiler says; or in the register again, when the compiler
/// does not say that its place has been taken off the stack.
fn finds_frame(state: RegisterState, rule: Rule) -> bool {
    let popped = state.sp.is_some_and(|sp| sp < -8 * i32::from(rule.frame));
    state.saved == rule.frame || (state.saved == FRAME_UNCHANGED && popped)
}

// Check that what is read off the code of real libraries is what their compilers wrote down, for
// nearly every instruction.
#[test]
fn agrees_with_compilers() {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut files: Vec<&str> = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|path| path.contains(".so"))
        .collect();
    files.extend(["/usr/bin/perl", "/usr/bin/bash", "/usr/bin/git"]);
    files.dedup();
    let mut seen = 0;
    for path in files {
        let Some(found) = agreement(path).filter(|found| found.compared > 10_000) else {
            continue;
        };
        seen += 1;
        let least = |part: u64, of: u64, permille: u64| {
            assert!(part * 1000 >= of * permille, "{path}: {found:?}")
        };
        // Perl calls functions that never return with arguments on the stack.
        let permille = if path.contains(".so") { 998 } else { 992 };
        least(found.cfa, found.compared, permille);
        least(found.frame, found.cfa, 998);
        least(found.compared, found.compared + found.unknown, 999);
    }
    assert!(seen >= 2, "{seen}");
}

fn rules(code: &[u8]) -> Vec<(u64, Rule)> {
    let mut rules: Vec<(u64, Rule)> = Vec::new();
    CodeReader::new().rules(code, ModuleAddress::new(0x1000), |address, rule| {
        if rules.last().is_none_or(|(_, last)| *last != rule) {
            rules.push((address.get() - 0x1000, rule));
        }
    });
    rules
}

const fn by_rsp(param: i32, frame: i8) -> Rule {
    Rule {
        kind: kind::CFA_RSP,
        frame,
        param,
    }
}

/// Of a function that has pushed rbp and pointed it there.
const BY_RBP: Rule = Rule {
    kind: kind::CFA_RBP,
    frame: -2,
    param: 16,
};

// Check that pushes, a room of its own and an early return are followed: behind the return the
// body's rule holds again.
#[test]
fn early_return() {
    let code = [
        0x55, // push %rbp
        0x53, // push %rbx
        0x48, 0x83, 0xec, 0x18, // sub $24, %rsp
        0x85, 0xff, // test %edi, %edi
        0x74, 0x07, // je 17
        0x48, 0x83, 0xc4, 0x18, // add $24, %rsp
        0x5b, // pop %rbx
        0x5d, // pop %rbp
        0xc3, // ret
        0x90, // nop, at 17
        0xeb, 0xf6, // jmp 10
    ];
    let unchanged = FRAME_UNCHANGED;
    let expected = [
        (0, by_rsp(8, unchanged)),
        (1, by_rsp(16, -2)),
        (2, by_rsp(24, -2)),
        (6, by_rsp(48, -2)),
        (14, by_rsp(24, -2)),
        (15, by_rsp(16, -2)),
        (16, by_rsp(8, unchanged)),
        (17, by_rsp(48, -2)),
    ];
    assert_eq!(rules(&code), expected);
}

// Check that a stack pointer moved by a register is found through rbp, and that the cases of a
// table of jumps have what held at the jump, while code that saves a register is a function of its
// own.
#[test]
fn unknown_moves_and_cases() {
    let code = [
        0x55, // push %rbp
        0x48, 0x89, 0xe5, // mov %rsp, %rbp
        0x48, 0x29, 0xc4, // sub %rax, %rsp
        0xff, 0xe1, // jmp *%rcx
        0x31, 0xc0, // xor %eax, %eax
        0xc9, // leave
        0xc3, // ret
        0x41, 0x54, // push %r12
        0x41, 0x5c, // pop %r12
        0xc3, // ret
    ];
    let expected = [
        (0, by_rsp(8, FRAME_UNCHANGED)),
        (1, by_rsp(16, -2)),
        (7, BY_RBP),
        (12, by_rsp(8, FRAME_UNCHANGED)),
        (15, by_rsp(16, FRAME_UNCHANGED)),
        (17, by_rsp(8, FRAME_UNCHANGED)),
    ];
    assert_eq!(rules(&code), expected);
}

// Check that a stack that a loop fills is followed by rbp, and that words which a call that never
// returns leaves behind are on no other way's stack.
#[test]
fn ways_that_meet() {
    let code = [
        0x55, // push %rbp
        0x48, 0x89, 0xe5, // mov %rsp, %rbp
        0xeb, 0x03, // jmp 9
        0xff, 0x34, 0xca, // push (%rdx,%rcx,8), at 6
        0x48, 0xff, 0xc9, // dec %rcx, at 9
        0x7d, 0xf8, // jge 6
        0xff, 0xd0, // call *%rax
        0x48, 0x89, 0xec, // mov %rbp, %rsp
        0x5d, // pop %rbp
        0xc3, // ret
    ];
    let expected = [
        (0, by_rsp(8, FRAME_UNCHANGED)),
        (1, by_rsp(16, -2)),
        (6, BY_RBP),
        (19, by_rsp(16, -2)),
        (20, by_rsp(8, FRAME_UNCHANGED)),
    ];
    assert_eq!(rules(&code), expected);
    let code = [
        0xff, 0xd0, // call *%rax
        0x50, // push %rax
        0xff, 0xd0, // call *%rax
        0x85, 0xff, // test %edi, %edi, at 5
        0x58, // pop %rax
        0x75, 0x01, // jne 11
        0xc3, // ret
        0x50, // push %rax, at 11
        0xeb, 0xf7, // jmp 5
    ];
    let expected = [
        (0, by_rsp(8, FRAME_UNCHANGED)),
        (3, by_rsp(16, FRAME_UNCHANGED)),
        (8, by_rsp(8, FRAME_UNCHANGED)),
        (12, by_rsp(16, FRAME_UNCHANGED)),
    ];
    assert_eq!(rules(&code), expected);
    // A loop that pops for ever ends with nothing known.
    let code = [0x58, 0xeb, 0xfd]; // pop %rax; jmp 0
    assert_eq!(rules(&code), [(0, Rule::FRAME_POINTER)]);
}

// Check that code which threads begin in has no rule but a gap, where a frame pointer of zero is
// the end, and that code which sets the stack pointer from anywhere is followed by frame pointers
// that have none.
#[test]
fn no_rule() {
    // xor %ebp, %ebp; pop %rdi; call *%r9
    assert_eq!(
        rules(&[0x31, 0xed, 0x5f, 0x41, 0xff, 0xd1])[1],
        (2, Rule::GAP)
    );
    // mov %rdi, %rsp; nop
    assert_eq!(
        rules(&[0x48, 0x89, 0xfc, 0x90])[1],
        (3, Rule::FRAME_POINTER)
    );
}

// Check that any bytes are read to the end, within bounds and without a rule before the code.
#[test]
fn any_bytes() {
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for length in [0, 1, 14, 15, 16, 4_000, 70_000] {
        let code: Vec<u8> = std::iter::repeat_with(|| {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            (random >> 56) as u8
        })
        .take(length)
        .collect();
        let found = rules(&code);
        assert!(found.is_sorted_by_key(|(at, _)| *at));
        assert!(found.iter().all(|(at, _)| *at < length as u64));
        let targets = call_targets(&code, ModuleAddress::ZERO, 0);
        assert!(targets.read_bytes >= length && targets.found.len() <= length / 5 + 1);
    }
}

// Check that calls within padding, each of which has all of it behind it, do not have it read once
// for each.
#[test]
fn shared_padding() {
    const CALLS: usize = 17_000;
    let code = made_files::shared_padding(CALLS);
    let start_ns = thread_ns();
    let mut states = 0;
    CodeReader::new().states(&code, ModuleAddress::new(0x1000), |_, _| states += 1);
    assert!(states > CALLS, "the jumps at least");
    let took_ns = thread_ns() - start_ns;
    assert!(took_ns < 5_000_000_000, "{took_ns} ns");
}

// Check that code in which every instruction is reached in one state after the other is not
// followed for long.
#[test]
fn loops_without_end() {
    for step in [[0x50, 0x75, 0xfd], [0x58, 0x75, 0xfd]] {
        // push or pop %rax; jne to it
        let code = step.repeat(80_000);
        let start_ns = thread_ns();
        assert!(!rules(&code).is_empty());
        let took_ns = thread_ns() - start_ns;
        assert!(took_ns < 5_000_000_000, "{took_ns} ns");
    }
}
