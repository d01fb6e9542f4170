//! What reads names and lines, for `crate::fuzzing`: it must end, keep its bounds, and give nothing
//! that steers a terminal.

use std::{
    borrow::Cow,
    panic,
    sync::{Arc, Once},
};

use super::{
    chosen,
    debug_files::{DebugFile, Has, build_id_path, debug_link},
    demangle::{MAX_NAME_BYTES, demangle},
    elf::{ElfNames, FilePlaces, Part},
    kallsyms::Kallsyms,
    lines, perf_map, usdt,
};
use crate::{
    elf::ELFMAG,
    processes::{
        files::ModuleFile,
        module::{FileIdentity, ModuleId},
    },
    sys::memory_file::memory_file,
    units::{FileOffset, ModuleAddress, MonoNs, VirtualAddress},
    unwind::{
        fuzzing::split,
        made_files::{CODE_ADDRESS, MadeSection, program},
    },
};

/// A name as linkers write it.
pub(crate) fn symbol_name(bytes: &[u8]) {
    let raw = String::from_utf8_lossy(bytes);
    let name = demangle(&raw);
    assert!(name.len() <= MAX_NAME_BYTES);
    assert!(!name.chars().any(char::is_control));
}

/// A program file; or, where it is none, names and a symbol table that are put into one.
pub(crate) fn symbol_table(input: &[u8]) {
    let Some(file) = file_or(input, |input| {
        let (strings, symbols) = split(input)?;
        Some(vec![
            MadeSection::new(".symtab", symbols.to_vec()),
            MadeSection::new(".strtab", strings.to_vec()),
        ])
    }) else {
        return;
    };
    check_names(&file);
}

/// Entries that jump elsewhere, what relocates the words that they jump through, and the symbols
/// and names of these: put into a program. Each but the last behind two bytes with its length.
pub(crate) fn jump_table(input: &[u8]) {
    let Some(file) = file_or(input, |input| {
        let (entries, rest) = split(input)?;
        let (relocations, rest) = split(rest)?;
        let (symbols, strings) = split(rest)?;
        let half = entries.len() / 2;
        let at = |offset: usize| CODE_ADDRESS + offset as u64;
        Some(vec![
            MadeSection::code(".plt", CODE_ADDRESS, entries[..half].to_vec()),
            MadeSection::code(".plt.got", at(half), entries[half..].to_vec()),
            MadeSection::new(".rela.plt", relocations.to_vec()),
            MadeSection::new(".dynsym", symbols.to_vec()),
            MadeSection::new(".dynstr", strings.to_vec()),
        ])
    }) else {
        return;
    };
    check_names(&file);
}

/// Code, and the symbols and names that say where its functions lie: put into a program. Each but
/// the last behind two bytes with its length. Whatever they say, probes are put where instructions
/// begin that are executed from a function's first one on.
pub(crate) fn chosen_functions(input: &[u8]) {
    let made;
    let file = if input.starts_with(&ELFMAG) {
        input
    } else {
        let parts = split(input).and_then(|(code, rest)| {
            let (symbols, strings) = split(rest)?;
            Some((code, symbols, strings))
        });
        let Some((code, symbols, strings)) = parts else {
            return;
        };
        made = program(
            code,
            &[
                MadeSection::new(".symtab", symbols.to_vec()),
                MadeSection::new(".strtab", strings.to_vec()),
                MadeSection::new(".gopclntab", vec![0; 16]),
            ],
        );
        &made
    };
    chosen::fuzzing::check(&memory_file(file).expect("there is room for a small file"));
}

/// Names places all over a file, as that of a program and as that with what was taken out of one.
fn check_names(file: &[u8]) {
    let size_bytes = file.len() as u64;
    let open = || memory_file(file).expect("there is room for a small file");
    let module = ModuleId(7);
    let own = Part::Own(Arc::new(ModuleFile {
        module,
        file: open(),
        identity: FileIdentity {
            device: 0,
            inode: 0,
            size_bytes,
            modified_unix_ns: 0,
        },
    }));
    let debug = DebugFile {
        file: open(),
        size_bytes,
        has: Has::default(),
    };
    let debug = Part::Debug(module, Arc::new(debug));
    let beginnings = (0..64).map(|part| 0x1000 + part * 8);
    let offsets = beginnings.chain((0..64).map(|part| part * size_bytes / 64));
    let offsets: Vec<FileOffset> = offsets.map(FileOffset::new).collect();
    let addresses = (0..64).map(|part| ModuleAddress::new(CODE_ADDRESS + part * 16));
    let addresses: Vec<ModuleAddress> = addresses.collect();
    let mut names = ElfNames::new();
    panics_may_be_caught();
    for (part, places) in [
        (own, FilePlaces::Offsets(&offsets)),
        (debug, FilePlaces::Addresses(&addresses)),
    ] {
        let found = names.names(part, places, MonoNs::ZERO);
        assert_eq!(found.len(), places.len());
        for found in found.into_iter().flatten() {
            assert!(!found.name.is_empty() && found.name.len() <= MAX_NAME_BYTES);
            assert!(!found.name.chars().any(char::is_control));
        }
    }
    names.unload(MonoNs::MAX);
    assert_eq!(names.loaded(), 0);
}

/// A file with debug information; or, where it is no program, sections of it: each a byte that says
/// which, two with its length, and its bytes.
pub(crate) fn debug_lines(input: &[u8]) {
    const NAMES: [&str; 10] = [
        ".debug_info",
        ".debug_abbrev",
        ".debug_line",
        ".debug_str",
        ".debug_ranges",
        ".debug_rnglists",
        ".debug_addr",
        ".debug_aranges",
        ".debug_line_str",
        ".debug_str_offsets",
    ];
    let file = file_or(input, |mut rest| {
        let mut sections = Vec::new();
        while let Some((kind, behind)) = rest.split_first() {
            let (bytes, behind) = split(behind)?;
            rest = behind;
            let flags = if kind & 0x80 == 0 { 0 } else { 1 << 11 };
            sections.push(MadeSection {
                flags,
                ..MadeSection::new(NAMES[usize::from(kind % 10)], bytes.to_vec())
            });
        }
        Some(sections)
    });
    let Some(file) = file else { return };
    let addresses = (0..64).map(|part| {
        if part < 48 {
            CODE_ADDRESS + part
        } else {
            part * 97
        }
    });
    panics_may_be_caught();
    lines::fuzzing::check(&file, addresses.map(ModuleAddress::new));
}

/// A program file; or, where it is none, a section with notes of USDT points, which is put into one
/// too.
pub(crate) fn usdt_notes(input: &[u8]) {
    usdt::fuzzing::notes_of(input);
    let section = |input: &[u8]| vec![MadeSection::new(".note.stapsdt", input.to_vec())];
    let Some(file) = file_or(input, |input| Some(section(input))) else {
        return;
    };
    let open = memory_file(&file).expect("there is room for a small file");
    usdt::fuzzing::places_of(&open, &file);
}

/// What a process that reads lines has written.
pub(crate) fn line_answers(text: &[u8]) {
    for steps in lines::fuzzing::answers(text).into_iter().flatten() {
        assert!(!steps.is_empty());
    }
}

/// The section of a program that names the file with its debug information.
pub(crate) fn debug_file_link(section: &[u8]) {
    if let Some((name, _)) = debug_link(section) {
        assert!(!name.is_empty() && !name.contains(&b'/') && !name.contains(&0));
        assert!(*name != *b"." && *name != *b"..");
    }
    if let Some(path) = build_id_path(section) {
        assert_eq!(path.iter().filter(|byte| **byte == b'/').count(), 6);
        assert!(path.is_ascii());
    }
}

/// The file in which a process names the code that it makes.
pub(crate) fn perf_map(text: &[u8]) {
    perf_map::fuzzing::check(text);
}

/// The kernel's list of its functions.
pub(crate) fn kernel_names(mut text: &[u8]) {
    let names = Kallsyms::read(&mut text).expect("bytes can be read");
    for address in [0, 1, 0xffff_ffff_8000_0000, 0xffff_ffff_c000_0000, u64::MAX] {
        let address = VirtualAddress::new(address);
        let Some(found) = names.find(address) else {
            continue;
        };
        assert!(found.start <= address && !found.name.is_empty());
        assert!(names.find(found.start) == Some(found));
    }
}

/// The input as a program file, or one of what `sections` makes of it.
fn file_or<'a>(
    input: &'a [u8],
    sections: impl FnOnce(&'a [u8]) -> Option<Vec<MadeSection>>,
) -> Option<Cow<'a, [u8]>> {
    if input.starts_with(&ELFMAG) {
        return Some(input.into());
    }
    Some(program(&[0xc3; 1024], &sections(input)?).into())
}

/// Lets panics be caught from here on: a fuzzer ends at each otherwise. Those that nobody catches
/// end it all the same.
fn panics_may_be_caught() {
    static ONCE: Once = Once::new();
    if cfg!(not(test)) {
        ONCE.call_once(|| {
            let told = panic::take_hook();
            drop(told);
            panic::set_hook(Box::new(|panic| tell(&panic.to_string())));
        });
    }
}

#[expect(clippy::print_stderr, reason = "a fuzzer's terminal")]
fn tell(sentence: &str) {
    eprintln!("{sentence}");
}
