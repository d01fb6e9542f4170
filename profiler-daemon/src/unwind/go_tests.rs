//! Go's tables, made by hand: what rules they give, and that no bytes hold the reader up.

use profiler_common::unwind::{
    FRAME_BELOW_RETURN, FRAME_UNCHANGED, UnwindFailure, UnwindRow, kind,
};
use proptest::prelude::*;

use crate::sys::clock::thread_ns;
use crate::units::ModuleAddress;

use super::{
    BuildLimits, UnwindTable, build_file,
    made_files::{CODE_ADDRESS, MadeSection, program},
};

const MAGIC: u32 = 0xffff_fff1;
/// Bytes of code of each function.
const SPAN: usize = 64;

/// A function: its code, how many bytes its frame has from which byte on, its kind and flags.
struct Made {
    code: &'static [u8],
    frames: &'static [(u32, i32)],
    kind: u8,
    flags: u8,
}

/// `push %rbp; mov %rsp, %rbp; sub $0x20, %rsp; …; add $0x20, %rsp; pop %rbp; ret`
const COMPILED: Made = Made {
    code: &[
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x20, 0x90, 0x48, 0x83, 0xc4, 0x20, 0x5d, 0xc3,
    ],
    frames: &[(0, 0), (1, 8), (8, 40), (13, 8), (14, 0)],
    kind: 0,
    flags: 0,
};
/// `push %r15; nop; pop %r15; ret`: rbp stays in the register.
const BY_HAND: Made = Made {
    code: &[0x41, 0x57, 0x90, 0x41, 0x5f, 0xc3],
    frames: &[(0, 0), (2, 8), (5, 0)],
    kind: 0,
    flags: 4,
};
/// `sub $0x30, %rsp; mov %rbp, 0x28(%rsp)`
const STORES: Made = Made {
    code: &[0x48, 0x83, 0xec, 0x30, 0x48, 0x89, 0x6c, 0x24, 0x28],
    frames: &[(0, 0), (4, 48)],
    kind: 0,
    flags: 5,
};
/// `push %rbp; mov %rsp, %rbp; mov 0x38(%rdx), %rsp; call *%rdi; pop %rbp; ret`
const LEAVES: Made = Made {
    code: &[
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x8b, 0x62, 0x38, 0xff, 0xd7, 0x5d, 0xc3,
    ],
    frames: &[(0, 0), (1, 8), (11, 0)],
    kind: 21,
    flags: 6,
};
const TOP: Made = Made {
    code: &[0x90],
    frames: &[(0, 0)],
    kind: 8,
    flags: 5,
};
const TRAMPOLINE: Made = Made {
    code: &[0x48, 0xc7, 0xc0, 0x0f, 0, 0, 0, 0x0f, 0x05],
    frames: &[(0, 0)],
    kind: 0,
    flags: 4,
};

/// Pieces of seven bits, the lowest first.
fn number(bytes: &mut Vec<u8>, mut value: u32) {
    while value >= 0x80 {
        bytes.push(value as u8 | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

/// A program of these functions. `text`: what the header says of where its code begins.
fn made(functions: &[Made], text: u64) -> Vec<u8> {
    made_behind(0, functions, text)
}

/// The same behind so many bytes of other code.
fn made_behind(other_bytes: usize, functions: &[Made], text: u64) -> Vec<u8> {
    let (code, section) = parts_behind(other_bytes, functions, text);
    program(&code, &[MadeSection::new(".gopclntab", section)])
}

/// Code and table of a program with functions of each kind.
pub(crate) fn parts() -> (Vec<u8>, Vec<u8>) {
    parts_behind(0, &FUNCTIONS, CODE_ADDRESS)
}

fn parts_behind(other_bytes: usize, functions: &[Made], text: u64) -> (Vec<u8>, Vec<u8>) {
    let mut code = vec![0xc3; other_bytes];
    // No function has the first byte.
    let mut rows = vec![0];
    let mut starts = Vec::new();
    for function in functions {
        code.extend(function.code);
        code.resize(
            (code.len() - other_bytes).next_multiple_of(SPAN) + other_bytes,
            0xcc,
        );
        starts.push(rows.len() as u32);
        let mut before = -1;
        for (index, (at, frame_bytes)) in function.frames.iter().enumerate() {
            let next = function.frames.get(index + 1);
            let growth = frame_bytes - before;
            number(&mut rows, ((growth << 1) ^ (growth >> 31)) as u32);
            number(&mut rows, next.map_or(SPAN as u32, |(next, _)| *next) - at);
            before = *frame_bytes;
        }
        rows.push(0);
    }
    rows.resize(rows.len().next_multiple_of(8), 0);
    let table_bytes = functions.len() as u32 * 8 + 8;
    let (mut table, mut described) = (Vec::new(), Vec::new());
    for (index, function) in functions.iter().enumerate() {
        table.extend((index as u32 * SPAN as u32).to_le_bytes());
        table.extend((table_bytes + index as u32 * 44).to_le_bytes());
        let mut one = vec![0; 44];
        one[16..20].copy_from_slice(&starts[index].to_le_bytes());
        one[40..42].copy_from_slice(&[function.kind, function.flags]);
        described.extend(one);
    }
    table.extend(((code.len() - other_bytes) as u64).to_le_bytes());
    let mut section = MAGIC.to_le_bytes().to_vec();
    section.extend([0, 0, 1, 8]);
    let rows_at = 72;
    let words = [functions.len() as u64, 0, text, 0, 0, 0, rows_at];
    section.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    section.extend((rows_at + rows.len() as u64).to_le_bytes());
    section.extend([rows, table, described].concat());
    (code, section)
}

fn table(file: &[u8]) -> UnwindTable {
    build_file(file, &BuildLimits::default(), &mut || true).unwrap()
}

const FUNCTIONS: [Made; 6] = [COMPILED, BY_HAND, STORES, LEAVES, TOP, TRAMPOLINE];

fn row(table: &UnwindTable, function: usize, at: usize) -> UnwindRow {
    let address = CODE_ADDRESS + (function * SPAN + at) as u64;
    table.row_for(ModuleAddress::new(address)).unwrap()
}

// Check that each kind of function has the rules that its code means: compiled ones save rbp, those
// made by hand if they do, those that leave their stack are followed by rbp, stacks end where they
// begin, and handlers of signals return to what was interrupted.
#[test]
fn rules_of_functions() {
    let table = table(&made(&FUNCTIONS, CODE_ADDRESS));
    assert_eq!(table.without, None);
    assert_eq!(table.stats.functions, 6);
    let rule = |function, at| {
        let row = row(&table, function, at);
        (row.kind, row.frame, row.param)
    };
    let by_rsp = |frame, param| (kind::CFA_RSP, frame, param);
    assert_eq!(rule(0, 0), by_rsp(FRAME_UNCHANGED, 8));
    assert_eq!(rule(0, 1), by_rsp(FRAME_BELOW_RETURN, 16));
    assert_eq!(rule(0, 8), by_rsp(FRAME_BELOW_RETURN, 48));
    assert_eq!(rule(0, 13), by_rsp(FRAME_BELOW_RETURN, 16));
    assert_eq!(rule(0, 14), by_rsp(FRAME_UNCHANGED, 8));
    assert_eq!(rule(1, 2), by_rsp(FRAME_UNCHANGED, 16));
    assert_eq!(rule(2, 4), by_rsp(FRAME_BELOW_RETURN, 56));
    assert_eq!(rule(3, 0), by_rsp(FRAME_UNCHANGED, 8));
    assert_eq!(rule(3, 9).0, kind::OTHER_STACK);
    assert_eq!(rule(3, 11), by_rsp(FRAME_UNCHANGED, 8));
    assert_eq!(rule(4, 0).0, kind::STOP);
    assert_eq!(rule(4, SPAN - 1).0, kind::SIGNAL);
    assert_eq!(rule(5, 0).0, kind::SIGNAL);
}

// Check that a function without a frame that leaves its stack, as one that goes on with another
// goroutine, is followed by rbp from its beginning on.
#[test]
fn without_a_frame_on_another_stack() {
    // mov 0x38(%rbx), %rsp; jmp *%rbx
    const GOES_ON: Made = Made {
        code: &[0x48, 0x8b, 0x63, 0x38, 0xff, 0xe3],
        frames: &[(0, 0)],
        kind: 9,
        flags: 6,
    };
    let table = table(&made(&[COMPILED, GOES_ON], CODE_ADDRESS));
    assert_eq!(row(&table, 1, 0).kind, kind::OTHER_STACK);
    assert_eq!(row(&table, 1, 4).kind, kind::OTHER_STACK);
}

// Check that the code is looked for where its section is when the header does not say, or says
// something else, and that a table which fits the code nowhere is not used.
#[test]
fn where_the_code_begins() {
    for text in [0, CODE_ADDRESS + 16, u64::MAX - 8] {
        let table = table(&made(&FUNCTIONS, text));
        assert_eq!(row(&table, 4, 0).kind, kind::STOP, "{text:#x}");
    }
    const UNLIKE: Made = Made {
        frames: &[(0, 0), (3, 8), (8, 40)],
        ..COMPILED
    };
    let table = table(&made(&[UNLIKE, TOP], CODE_ADDRESS));
    assert!(table.without.is_some());
    assert_ne!(row(&table, 1, 0).kind, kind::STOP);
}

// Check that code which begins behind that of others is found if enough of it fits, and not where
// too little does.
#[test]
fn behind_other_code() {
    let many: Vec<Made> = (0..70).map(|_| COMPILED).chain([TOP]).collect();
    let table_of = |functions| table(&made_behind(0x4320, functions, 0));
    let found = table_of(&many);
    let top = CODE_ADDRESS + 0x4320 + 70 * SPAN as u64;
    assert_eq!(
        found.row_for(ModuleAddress::new(top)).unwrap().kind,
        kind::STOP
    );
    assert_eq!(found.stats.functions, 71);
    assert_eq!(table_of(&many[40..]).stats.functions, 0);
}

// Check that frames that shrink below nothing are unsupported from there on, and cost the other
// functions nothing.
#[test]
fn frames_that_make_no_sense() {
    const WRONG: Made = Made {
        frames: &[(0, 0), (1, 8), (8, -40), (13, 8)],
        ..COMPILED
    };
    let table = table(&made(&[WRONG, COMPILED], CODE_ADDRESS));
    assert_eq!(table.stats.functions_corrupt, 1);
    assert_eq!(row(&table, 0, 1).param, 16);
    for at in [8, 13, SPAN - 1] {
        let row = row(&table, 0, at);
        let why = UnwindFailure::UnsupportedCorrupt as i32;
        assert_eq!((row.kind, row.param), (kind::UNSUPPORTED, why));
    }
    assert_eq!(row(&table, 1, 8).param, 48);
}

// Check that functions whose rows lead nowhere cost a bounded time, however many rows they share.
#[test]
fn rows_without_end() {
    const FUNCTIONS: u32 = 256;
    let rows = [
        [0, 0, 0].as_slice(),
        [1, 0, 2, 0].repeat(2 << 20).as_slice(),
    ]
    .concat();
    let mut section = MAGIC.to_le_bytes().to_vec();
    section.extend([0, 0, 1, 8]);
    let words = [
        u64::from(FUNCTIONS),
        0,
        0,
        0,
        0,
        0,
        72,
        72 + rows.len() as u64,
    ];
    section.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    section.extend(rows);
    for number in 0..FUNCTIONS {
        section.extend((number * 16).to_le_bytes());
        section.extend((FUNCTIONS * 8 + 8).to_le_bytes());
    }
    section.extend(u64::from(FUNCTIONS * 16).to_le_bytes());
    let mut function = [0; 44];
    function[16] = 1;
    section.extend(function);
    let file = program(&[0x90; 4096], &[MadeSection::new(".gopclntab", section)]);
    let start_ns = thread_ns();
    assert!(table(&file).without.is_some());
    let took_ns = thread_ns() - start_ns;
    assert!(took_ns < 5_000_000_000, "{took_ns} ns");
}

proptest! {
    // Check that a file with any bytes overwritten and cut anywhere never panics the reader.
    #[test]
    fn damaged(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..40),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut file = made(&FUNCTIONS, CODE_ADDRESS);
        // The code is in the first part, the tables are in the last.
        let tables = 0x1000 + FUNCTIONS.len() * SPAN;
        for (place, byte) in changes {
            let place = tables + place.index(file.len() - tables);
            file[place] = byte;
        }
        file.truncate(tables + cut.index(8 * file.len()));
        // A table or a reason: both are fine.
        drop(build_file(&*file, &BuildLimits::default(), &mut || true));
    }
}
