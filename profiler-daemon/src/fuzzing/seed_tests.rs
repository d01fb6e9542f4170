//! The inputs of the corpora that are no text: well-formed ones, and attacks that are known. Inputs
//! that a fuzzer found, and texts, stand beside them as files of their own.
//!
//! `UPDATE_GENERATED=1 cargo test --lib fuzzing` writes them anew.

use std::{fs, io::Write as _, path::Path};

use flate2::{Compression, write::ZlibEncoder};

use crate::export::saved::fuzzing::nothing;
use crate::symbols::elf_made;
use crate::unwind::{
    fuzzing::kept,
    go_tests,
    made_files::{CODE_ADDRESS, MadeSection, program, shared_padding},
};

type Seed = (&'static str, &'static str, Vec<u8>);

// Check that the files of the corpora are what is made here.
#[test]
fn the_corpora_are_current() {
    let corpus = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (target, name, bytes) in seeds() {
        let folder = corpus.join(target);
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            fs::create_dir_all(&folder).unwrap();
            fs::write(folder.join(name), &bytes).unwrap();
        }
        let found = fs::read(folder.join(name)).unwrap_or_default();
        assert!(
            found == bytes,
            "{target}/{name}: set UPDATE_GENERATED=1 to write it"
        );
    }
}

fn seeds() -> Vec<Seed> {
    let (go_code, go_table) = go_tests::parts();
    let frames = [
        vec![0],
        frames(&[0x0c, 7, 8, 0x90, 1], &[&[0x41, 0x0e, 16, 0x86, 2], &[]]),
    ]
    .concat();
    let plain = program(
        &code(),
        &[MadeSection::new(".eh_frame", frames[1..].to_vec())],
    );
    let names = symbol_names();
    let (saved, saved_content) = nothing();
    vec![
        ("elf_headers", "program", with_build_id()),
        ("unwind_table", "frames", plain.clone()),
        ("unwind_table", "code", program(&code(), &[])),
        (
            "unwind_table",
            "go",
            program(
                &go_code,
                &[MadeSection::new(".gopclntab", go_table.clone())],
            ),
        ),
        ("frame_section", "functions", frames),
        ("frame_section", "shared_by_many", shared_by_many()),
        ("frame_section", "remembers", remembers()),
        ("go_table", "functions", behind_length(&go_code, &go_table)),
        ("go_table", "rows_without_end", rows_without_end()),
        ("machine_code", "functions", code()),
        ("machine_code", "shared_padding", shared_padding(700)),
        ("packed_section", "plain", packed(0, 400, &[7; 400])),
        (
            "packed_section",
            "bomb",
            packed(0, 4 << 20, &vec![0; 4 << 20]),
        ),
        ("packed_section", "claims_less", packed(0, 4, &[0; 8000])),
        ("packed_section", "old", packed(1, 400, &[7; 400])),
        ("kept_table", "table", kept(&plain)),
        ("symbol_table", "functions", names),
        ("symbol_table", "one_address", symbols_at_one_address()),
        ("jump_table", "of_each_kind", jumps()),
        ("usdt_notes", "section", usdt_notes()),
        (
            "usdt_notes",
            "program",
            program(
                &[0x90; 64],
                &[MadeSection::new(".note.stapsdt", usdt_notes())],
            ),
        ),
        ("debug_lines", "inlined", debug_information(0x20, false)),
        ("debug_lines", "packed", debug_information(0x20, true)),
        (
            "debug_lines",
            "its_own_origin",
            debug_information(0x33, false),
        ),
        ("process_records", "all_kinds", records()),
        ("saved_profile", "nothing", saved),
        ("saved_content", "nothing", saved_content),
    ]
}

/// `push %rbp; mov %rsp, %rbp; sub $16, %rsp; call next; leave; ret; next: ret`, and what programs
/// begin with.
fn code() -> Vec<u8> {
    let mut code = vec![
        0x55, 0x48, 0x89, 0xe5, 0x48, 0x83, 0xec, 0x10, 0xe8, 2, 0, 0, 0, 0xc9, 0xc3, 0xc3,
    ];
    code.extend([
        0x31, 0xed, 0x48, 0x89, 0xe7, 0xe8, 0xe6, 0xff, 0xff, 0xff, 0xf4,
    ]);
    code.resize(64, 0xcc);
    code
}

/// Two places, one with a semaphore and with arguments of each kind.
fn usdt_notes() -> Vec<u8> {
    let note = |semaphore: u64, texts: &[u8]| {
        let addresses = [CODE_ADDRESS + 16, 0x1000, semaphore];
        let mut note: Vec<u8> = addresses.iter().flat_map(|at| at.to_le_bytes()).collect();
        note.extend(texts);
        let words = [8, note.len() as u32, 3];
        let head = words.iter().flat_map(|word| word.to_le_bytes());
        let mut whole: Vec<u8> = head.chain(*b"stapsdt\0").chain(note).collect();
        whole.resize(whole.len().next_multiple_of(4), 0);
        whole
    };
    [
        note(
            CODE_ADDRESS + 32,
            b"app\0begin\0-4@%edi 8@-8(%rbp) 4@$5 8@(%rax,%r9,8)\0",
        ),
        note(0, b"app\0end\0\0"),
    ]
    .concat()
}

fn with_build_id() -> Vec<u8> {
    let mut file = program(&code(), &[]);
    // A second segment: notes, in the room between the tables and the code.
    let note = [
        4, 0, 0, 0, 8, 0, 0, 0, 3, 0, 0, 0, b'G', b'N', b'U', 0, 1, 2, 3, 4, 5, 6, 7, 8,
    ];
    file[56] = 2;
    file[120] = 4;
    file[128..136].copy_from_slice(&512_u64.to_le_bytes());
    file[152..160].copy_from_slice(&(note.len() as u64).to_le_bytes());
    file[168] = 4;
    file[512..512 + note.len()].copy_from_slice(&note);
    file
}

/// An `.eh_frame`: one shared entry with these instructions, and functions of 16 bytes with theirs.
fn frames(shared: &[u8], functions: &[&[u8]]) -> Vec<u8> {
    let entry = |body: Vec<u8>| {
        let mut body = body;
        body.resize(body.len().next_multiple_of(4), 0);
        [(body.len() as u32).to_le_bytes().as_slice(), &body].concat()
    };
    // Version 1, no augmentation, code by 1, data by -8, returns to 16.
    let mut section = entry([&[0, 0, 0, 0, 1, 0, 1, 0x78, 16], shared].concat());
    for (instructions, start) in functions.iter().zip((CODE_ADDRESS..).step_by(16)) {
        let mut body = (section.len() as u32 + 4).to_le_bytes().to_vec();
        body.extend(start.to_le_bytes());
        body.extend(16_u64.to_le_bytes());
        body.extend(*instructions);
        section.extend(entry(body));
    }
    section
}

/// Functions that each run 4000 bytes of instructions before their own.
fn shared_by_many() -> Vec<u8> {
    let section = frames(
        &[[0x0c, 7, 8].as_slice(), &[0x0e, 16].repeat(1990)].concat(),
        &[&[][..]; 400],
    );
    [vec![0], section].concat()
}

/// One function that remembers and restores all the time, and never gets on.
fn remembers() -> Vec<u8> {
    let section = frames(
        &[0x0c, 7, 8, 0x90, 1],
        &[&[0x0a, 0x40, 0x0b, 0x40].repeat(2000)],
    );
    [vec![0], section].concat()
}

fn behind_length(first: &[u8], second: &[u8]) -> Vec<u8> {
    [(first.len() as u16).to_le_bytes().as_slice(), first, second].concat()
}

/// A Go table whose functions all have the same rows, which lead nowhere.
fn rows_without_end() -> Vec<u8> {
    const FUNCTIONS: u32 = 256;
    let rows = [[0, 0, 0].as_slice(), [1, 0, 2, 0].repeat(3000).as_slice()].concat();
    let mut table = 0xffff_fff1_u32.to_le_bytes().to_vec();
    table.extend([0, 0, 1, 8]);
    let functions_at = 72 + rows.len() as u64;
    let words = [u64::from(FUNCTIONS), 0, 0, 0, 0, 0, 72, functions_at];
    table.extend(words.iter().flat_map(|word| word.to_le_bytes()));
    table.extend(rows);
    let described_at = FUNCTIONS * 8 + 8;
    for number in 0..FUNCTIONS {
        table.extend((number * 16).to_le_bytes());
        table.extend(described_at.to_le_bytes());
    }
    table.extend(u64::from(FUNCTIONS * 16).to_le_bytes());
    let mut function = [0; 44];
    function[16] = 1;
    table.extend(function);
    behind_length(&[0x90; 512], &table)
}

/// A compressed section behind the byte that says in which form.
fn packed(form: u8, claims_bytes: u64, bytes: &[u8]) -> Vec<u8> {
    let mut input = vec![form];
    if form == 0 {
        input.extend(
            [1_u64, claims_bytes, 1]
                .iter()
                .flat_map(|word| word.to_le_bytes()),
        );
    } else {
        input.extend(b"ZLIB");
        input.extend(claims_bytes.to_be_bytes());
    }
    let mut encoder = ZlibEncoder::new(input, Compression::best());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A symbol: where its name is, what it is, where it is defined, and from where on for how many
/// bytes.
fn symbol(name: u32, section: u16, address: u64, size_bytes: u64) -> Vec<u8> {
    let mut symbol = name.to_le_bytes().to_vec();
    symbol.extend([0x12, 0]);
    symbol.extend(section.to_le_bytes());
    symbol.extend(address.to_le_bytes());
    symbol.extend(size_bytes.to_le_bytes());
    symbol
}

/// Functions that lie within each other, beside each other, and past the end of all addresses.
/// Entries, relocations, symbols and strings, each but the last behind its length.
fn jumps() -> Vec<u8> {
    let made = elf_made::jumps();
    let parts = [made.entries, made.relocations, made.symbols].map(|part| {
        let length = u16::try_from(part.len()).unwrap().to_le_bytes();
        [length.to_vec(), part].concat()
    });
    [parts.concat(), made.strings].concat()
}

fn symbol_names() -> Vec<u8> {
    let names = b"\0main\0_ZN3foo3barEi\0_RNvNtCs1234_7mycrate3foo3bar\0";
    let symbols = [
        symbol(0, 0, 0, 0),
        symbol(1, 1, CODE_ADDRESS, 64),
        symbol(6, 1, CODE_ADDRESS + 16, 16),
        symbol(20, 1, CODE_ADDRESS + 20, u64::MAX),
        symbol(999, 1, CODE_ADDRESS + 512, 0),
    ];
    behind_length(names, &symbols.concat())
}

/// Symbols that all begin at one place and are nowhere defined.
fn symbols_at_one_address() -> Vec<u8> {
    behind_length(b"\0f\0", &symbol(1, 0, CODE_ADDRESS, 4096).repeat(500))
}

/// Debug information of one function and one that was inlined into it, whose name is in the entry
/// at `origin`.
fn debug_information(origin: u32, is_packed: bool) -> Vec<u8> {
    let abbreviations = [
        // Unit: name, lines, code. Function: name, code. Inlined: origin, code, file and line of
        // the call.
        &[
            1, 0x11, 1, 0x03, 0x08, 0x10, 0x17, 0x11, 0x01, 0x12, 0x06, 0, 0,
        ][..],
        &[2, 0x2e, 1, 0x03, 0x08, 0x11, 0x01, 0x12, 0x06, 0, 0],
        &[
            3, 0x1d, 0, 0x31, 0x13, 0x11, 0x01, 0x12, 0x06, 0x58, 0x0b, 0x59, 0x0b, 0, 0, 0,
        ],
    ];
    let start = CODE_ADDRESS.to_le_bytes();
    let mut unit = [
        &[4, 0, 0, 0, 0, 0, 8][..],
        &[1],
        b"a.c\0",
        &[0; 4],
        &start,
        &64_u32.to_le_bytes(),
    ]
    .concat();
    unit.extend([&[2][..], b"outer\0", &start, &64_u32.to_le_bytes()].concat());
    unit.push(3);
    unit.extend(origin.to_le_bytes());
    unit.extend([&start[..], &16_u32.to_le_bytes(), &[1, 7, 0, 0]].concat());
    let information = [(unit.len() as u32).to_le_bytes().as_slice(), &unit].concat();

    let header = [
        &[1, 1, 1, 0xfb, 14, 13][..],
        &[0, 1, 1, 1, 1, 0, 0, 0, 1, 0, 0, 1],
        &[0],
        b"a.c\0",
        &[0, 0, 0, 0],
    ]
    .concat();
    let program = [&[0, 9, 2][..], &start, &[0x20, 0x4c, 0xf3, 2, 40, 0, 1, 1]].concat();
    let mut lines = 4_u16.to_le_bytes().to_vec();
    lines.extend((header.len() as u32).to_le_bytes());
    lines.extend([header, program].concat());
    let lines = [(lines.len() as u32).to_le_bytes().as_slice(), &lines].concat();

    let sections = [(0, information), (1, abbreviations.concat()), (2, lines)];
    let mut input = Vec::new();
    for (kind, bytes) in sections {
        // Behind the byte that `packed` begins with is the header of a section.
        let bytes = if is_packed {
            packed(0, bytes.len() as u64, &bytes)[1..].to_vec()
        } else {
            bytes
        };
        input.push(kind | if is_packed { 0x80 } else { 0 });
        input.extend(behind_length(&bytes, &[]));
    }
    input
}

/// One record of each kind, and one of another.
fn records() -> Vec<u8> {
    let record = |kind: u32, flags: u16, body: &[u8]| {
        let mut record = kind.to_ne_bytes().to_vec();
        record.extend(flags.to_ne_bytes());
        record.extend((8 + body.len() as u16 + 16).to_ne_bytes());
        record.extend(body);
        record.extend([7_u32, 7].iter().flat_map(|number| number.to_ne_bytes()));
        record.extend(1_000_u64.to_ne_bytes());
        record
    };
    let numbers =
        |numbers: &[u32]| -> Vec<u8> { numbers.iter().flat_map(|n| n.to_ne_bytes()).collect() };
    let mut mapping = numbers(&[7, 7]);
    mapping.extend(
        [0x40_0000_u64, 0x1000, 0]
            .iter()
            .flat_map(|word| word.to_ne_bytes()),
    );
    mapping.extend(numbers(&[8, 1]));
    mapping.extend([5_u64, 0].iter().flat_map(|word| word.to_ne_bytes()));
    mapping.extend(numbers(&[5, 2]));
    mapping.extend(b"/usr/bin/a\0\0\0\0\0\0");
    [
        record(7, 0, &[numbers(&[7, 1, 7, 1]), vec![0; 8]].concat()),
        record(
            3,
            1 << 13,
            &[numbers(&[7, 7]), b"name\0\0\0\0".to_vec()].concat(),
        ),
        record(10, 0, &mapping),
        record(10, 1 << 14, &mapping),
        record(2, 0, &[0; 16]),
        record(13, 0, &[1; 8]),
        record(9, 0, &[]),
        record(4, 0, &[numbers(&[7, 1, 7, 1]), vec![0; 8]].concat()),
    ]
    .concat()
}
