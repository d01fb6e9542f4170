//! Looks at a file's section headers before the symbolizer does, and refuses tables that are too
//! large to be true: the symbolizer makes room for as many symbols as a table claims, and a sparse
//! file claims any number for nothing. It does not judge whether the file makes sense otherwise.

use std::{fs::File, os::unix::fs::FileExt as _};

/// Most bytes of one symbol table: over five million symbols, ten times what a web browser has.
const MAX_TABLE_BYTES: u64 = 128 << 20;
/// Section counts from here on are written elsewhere, and mean object files of compilers.
const MAX_SECTIONS: u16 = 0xff00;
/// A program header count that is written elsewhere.
const MANY_PROGRAM_HEADERS: u16 = 0xffff;

/// Bytes of the symbol tables of this file, if it is one with symbol tables; `None` if they are not
/// small enough to be read.
pub(super) fn bytes_of(file: &File) -> Option<u64> {
    let mut header = [0; 64];
    if file.read_exact_at(&mut header, 0).is_err() || !header.starts_with(b"\x7fELF") {
        // Nothing can be made room for: the symbolizer says what is wrong.
        return Some(0);
    }
    let layout = if header[4] == 2 { &WIDE } else { &NARROW };
    let program_headers = u16_at(&header, layout.program_header_count);
    let sections = u16_at(&header, layout.section_count);
    if program_headers == MANY_PROGRAM_HEADERS || sections == 0 || sections >= MAX_SECTIONS {
        return None;
    }
    let mut table = vec![0; usize::from(sections) * layout.section_bytes];
    if file
        .read_exact_at(&mut table, layout.word(&header, layout.sections_at))
        .is_err()
    {
        return None;
    }
    let section = |index: usize| {
        let at = index * layout.section_bytes;
        table.get(at..at + layout.section_bytes)
    };
    let names = section(usize::from(u16_at(&header, layout.names_index)))?;
    let names_at = layout.word(names, layout.section_offset);
    let sections = table.chunks_exact(layout.section_bytes);
    let mut tables = sections
        .filter(|section| {
            is_symbol_table(file, names_at.saturating_add(u64::from(u32_at(section, 0))))
        })
        .map(|section| layout.word(section, layout.section_size));
    // There are two; more, or larger ones, would only buy their reader time.
    tables.try_fold(0_u64, |sum, bytes| {
        let sum = sum.saturating_add(bytes);
        (bytes <= MAX_TABLE_BYTES && sum <= 2 * MAX_TABLE_BYTES).then_some(sum)
    })
}

/// Whether the name at this place is that of a table the symbolizer reads.
fn is_symbol_table(file: &File, name_at: u64) -> bool {
    let mut name = [0; 8];
    file.read_exact_at(&mut name, name_at).is_ok()
        && (&name == b".symtab\0" || &name == b".dynsym\0")
}

/// Where fields stand. The symbolizer takes them in this machine's byte order, so they are taken so
/// here.
struct FieldLayout {
    wide: bool,
    sections_at: usize,
    program_header_count: usize,
    section_count: usize,
    names_index: usize,
    section_bytes: usize,
    section_offset: usize,
    section_size: usize,
}

const WIDE: FieldLayout = FieldLayout {
    wide: true,
    sections_at: 40,
    program_header_count: 56,
    section_count: 60,
    names_index: 62,
    section_bytes: 64,
    section_offset: 24,
    section_size: 32,
};

const NARROW: FieldLayout = FieldLayout {
    wide: false,
    sections_at: 32,
    program_header_count: 44,
    section_count: 48,
    names_index: 50,
    section_bytes: 40,
    section_offset: 16,
    section_size: 20,
};

impl FieldLayout {
    fn word(&self, bytes: &[u8], at: usize) -> u64 {
        if self.wide {
            u64::from_ne_bytes(array(bytes, at))
        } else {
            u64::from(u32_at(bytes, at))
        }
    }
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(array(bytes, at))
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(array(bytes, at))
}

fn array<const N: usize>(bytes: &[u8], at: usize) -> [u8; N] {
    bytes[at..at + N]
        .try_into()
        .expect("a range of N bytes has N bytes")
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    /// A copy of this program and where the header of its section `name` stands.
    fn copy_with(name: &[u8]) -> (tempfile::NamedTempFile, u64) {
        let image = fs::read(std::env::current_exe().unwrap()).unwrap();
        let at = usize::try_from(WIDE.word(&image, WIDE.sections_at)).unwrap();
        let section = |index: usize| &image[at + index * WIDE.section_bytes..];
        let names = WIDE.word(
            section(usize::from(u16_at(&image, WIDE.names_index))),
            WIDE.section_offset,
        );
        let count = usize::from(u16_at(&image, WIDE.section_count));
        let index = (0..count)
            .find(|&index| {
                let name_at = usize::try_from(names).unwrap() + u32_at(section(index), 0) as usize;
                image[name_at..].starts_with(name)
            })
            .unwrap();
        let copy = tempfile::NamedTempFile::new().unwrap();
        fs::write(copy.path(), &image).unwrap();
        (copy, (at + index * WIDE.section_bytes) as u64)
    }

    // Check that this program passes, and that it does not once one of its tables or counts is
    // beyond all bounds.
    #[test]
    fn tables_beyond_bounds_are_refused() {
        for name in [b".symtab\0", b".dynsym\0"] {
            let (copy, header_at) = copy_with(name);
            let file = copy.as_file();
            assert!(bytes_of(file).is_some_and(|bytes| bytes > 10_000));
            file.write_all_at(
                &(MAX_TABLE_BYTES + 1).to_ne_bytes(),
                header_at + WIDE.section_size as u64,
            )
            .unwrap();
            assert_eq!(bytes_of(file), None);
        }
        for (at, count) in [
            (WIDE.section_count, 0),
            (WIDE.section_count, MAX_SECTIONS),
            (WIDE.program_header_count, MANY_PROGRAM_HEADERS),
            (WIDE.names_index, MAX_SECTIONS),
            (WIDE.sections_at + 6, 1),
        ] {
            let (copy, _) = copy_with(b".symtab\0");
            copy.as_file()
                .write_all_at(&count.to_ne_bytes(), at as u64)
                .unwrap();
            assert_eq!(bytes_of(copy.as_file()), None, "{count} at {at}");
        }
    }

    // Check that other sections may be as large as they like, and that what is no program is left
    // to the symbolizer.
    #[test]
    fn what_is_not_read_has_no_bound() {
        let (copy, header_at) = copy_with(b".text\0");
        let size_at = header_at + WIDE.section_size as u64;
        let file = copy.as_file();
        file.write_all_at(&(1_u64 << 40).to_ne_bytes(), size_at)
            .unwrap();
        assert!(bytes_of(file).is_some());
        file.write_all_at(b"text", 0).unwrap();
        assert_eq!(bytes_of(file), Some(0));
    }
}
