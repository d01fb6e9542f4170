//! What reads unwind information, for `crate::fuzzing`: it must end, keep its bounds, and make
//! tables that hold together.

use profiler_common::unwind::{MAX_PAGE_ROWS, PAGE_BITS};

use super::{
    BuildLimits, NoTable, UnwindTable, build, build_file,
    code::CodeReader,
    elf::{Elf, FrameForm, FrameSection, Segment},
    format,
    made_files::{CODE_ADDRESS, MadeSection, program},
    rows::MAX_PAGES,
};
use crate::units::{FileOffset, ModuleAddress};

/// Small enough to be reached by a small input.
const LIMITS: BuildLimits = BuildLimits {
    max_section_bytes: 4 << 20,
    max_functions: 4096,
    max_rows: 32_768,
    max_scan_bytes: 1 << 20,
};
const SHF_COMPRESSED: u64 = 1 << 11;
const KEY: &[u8] = b"fuzzing";

/// A whole program file.
pub(crate) fn table_of_file(file: &[u8]) {
    if let Ok(table) = build_file(file, &LIMITS, &mut || true) {
        check(&table);
    }
}

/// A section of unwind information behind a byte that says of which form it is.
pub(crate) fn frame_section(input: &[u8]) {
    let Some((form, bytes)) = input.split_first() else {
        return;
    };
    let form = [
        FrameForm::EhFrame,
        FrameForm::EhFrameToTerminator,
        FrameForm::DebugFrame,
    ][usize::from(form % 3)];
    let elf = Elf {
        segments: vec![Segment {
            address: ModuleAddress::new(CODE_ADDRESS),
            offset: FileOffset::ZERO,
            size_bytes: 1 << 20,
        }],
        entry: ModuleAddress::ZERO,
        frames: Ok(FrameSection {
            form,
            address: ModuleAddress::new(0x80_0000),
            bytes: bytes.to_vec(),
        }),
        go_table: None,
        text: ModuleAddress::ZERO,
        symbols: Vec::new(),
    };
    if let Ok(table) = build(&elf, [].as_slice(), &LIMITS, &mut || true) {
        check(&table);
    }
}

/// Go's table behind the code it is for: two bytes say how much code.
pub(crate) fn go_table(input: &[u8]) {
    let Some((code, table)) = split(input) else {
        return;
    };
    let section = MadeSection::new(".gopclntab", table.to_vec());
    table_of_file(&program(code, &[section]));
}

/// Machine code without unwind information.
pub(crate) fn code(code: &[u8]) {
    let start = ModuleAddress::new(CODE_ADDRESS);
    let mut next = start;
    CodeReader::new().states(code, start, |address, state| {
        assert!(address >= next, "instructions overlap");
        next = address + 1;
        assert!(address < start + code.len() as u64);
        assert!(state.sp.is_none_or(|bytes| bytes >= 8));
    });
    table_of_file(&program(code, &[]));
}

/// A compressed section, with its header, behind a byte that says in which form.
pub(crate) fn packed_section(input: &[u8]) {
    let Some((form, packed)) = input.split_first() else {
        return;
    };
    let section = if form % 2 == 0 {
        MadeSection {
            flags: SHF_COMPRESSED,
            ..MadeSection::new(".debug_frame", packed.to_vec())
        }
    } else {
        MadeSection::new(".zdebug_frame", packed.to_vec())
    };
    let file = program(&[0xc3], &[section]);
    let elf = Elf::read(&*file, LIMITS.max_section_bytes, &mut || true)
        .expect("only its section is damaged");
    match elf.frames {
        Ok(section) => assert!(section.bytes.len() as u64 <= LIMITS.max_section_bytes),
        Err(why) => assert!(!matches!(why, NoTable::TooSlow | NoTable::Panicked)),
    }
}

/// A table as it is kept on disk, the sum at its end corrected.
pub(crate) fn kept_table(input: &[u8]) {
    let sum = format::checksum(input);
    let summed = [input, sum.to_le_bytes().as_slice()].concat();
    for bytes in [input, &summed] {
        let Ok(table) = format::decode(KEY, bytes) else {
            continue;
        };
        check_pages(&table);
        assert!(
            format::encode(KEY, &table) == bytes,
            "it is not what was read"
        );
    }
}

/// The bytes of a kept table without the sum, for a corpus.
#[cfg(test)]
pub(crate) fn kept(file: &[u8]) -> Vec<u8> {
    let table = build_file(file, &LIMITS, &mut || true).expect("it is a good file");
    let mut bytes = format::encode(KEY, &table);
    bytes.truncate(bytes.len() - 8);
    bytes
}

/// Two parts, of which the first has as many bytes as the number in front says, or all.
pub(crate) fn split(input: &[u8]) -> Option<(&[u8], &[u8])> {
    let (length, rest) = input.split_first_chunk::<2>()?;
    let length = usize::from(u16::from_le_bytes(*length));
    Some(rest.split_at(length.min(rest.len())))
}

/// What holds for every table, however it came about.
fn check(table: &UnwindTable) {
    assert!(table.pages.len() <= MAX_PAGES);
    // Each page has a row more than the file says.
    assert!(table.rows.len() <= LIMITS.max_rows + table.pages.len());
    check_pages(table);
    for (page, number) in table.pages.iter().zip(table.base_page..) {
        let first = page.first as usize;
        let rows = &table.rows[first..first + usize::from(page.count)];
        assert_eq!(rows[0].pc, 0, "a page begins with what holds there");
        assert!(
            rows.is_sorted_by(|a, b| a.pc < b.pc),
            "rows rise within a page"
        );
        for row in rows {
            let address = number << PAGE_BITS | u64::from(row.pc);
            assert_eq!(
                table.row_for(ModuleAddress::new(address)),
                Some(*row),
                "{address:#x}"
            );
        }
    }
    let bytes = format::encode(KEY, table);
    let kept = format::decode(KEY, &bytes);
    assert!(kept.as_ref() == Ok(table), "it is not what was written");
    assert!(format::decode(b"another", &bytes).is_err());
}

/// Every row is of one page.
fn check_pages(table: &UnwindTable) {
    let mut next = 0;
    for page in &table.pages {
        assert_eq!(page.first as usize, next);
        assert!((1..=MAX_PAGE_ROWS).contains(&u32::from(page.count)));
        next += usize::from(page.count);
    }
    assert_eq!(next, table.rows.len());
}
