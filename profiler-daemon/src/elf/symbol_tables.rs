//! Looks at a file's section headers before the symbolizer does, and refuses tables that are too
//! large to be true: the symbolizer makes room for as many symbols as a table claims, and a sparse
//! file claims any number for nothing. It does not judge whether the file makes sense otherwise.

use std::fs::File;

use object::NativeEndian;
use object::elf::{ELFCLASS64, ELFMAG, FileHeader32, FileHeader64, PN_XNUM, SHN_LORESERVE};
use object::read::elf::{FileHeader, SectionHeader as _};

use super::read::{entries, entry};
use crate::units::FileOffset;

/// Most bytes of one symbol table: over five million symbols, ten times what a web browser has.
const MAX_TABLE_BYTES: u64 = 128 << 20;

/// Bytes of the symbol tables of this file, if it is one with symbol tables; `None` if they are not
/// small enough to be read.
#[must_use]
pub fn bytes_of(file: &File) -> Option<u64> {
    let wide: Option<FileHeader64<NativeEndian>> = entry(file, FileOffset::ZERO);
    match wide.filter(|header| header.e_ident.magic == ELFMAG) {
        // Nothing can be made room for: the symbolizer says what is wrong.
        None => Some(0),
        Some(wide) if wide.e_ident.class == ELFCLASS64 => bytes_by(file, &wide),
        Some(_) => bytes_by(
            file,
            &entry::<FileHeader32<NativeEndian>>(file, FileOffset::ZERO)?,
        ),
    }
}

/// The same by a header in one of its layouts. The symbolizer takes all numbers in this machine's
/// byte order, so they are taken so here.
fn bytes_by<Header: FileHeader<Endian = NativeEndian>>(
    file: &File,
    header: &Header,
) -> Option<u64> {
    let count = header.e_shnum(NativeEndian);
    // Larger counts are written elsewhere, and mean object files of compilers.
    let is_elsewhere = count == 0 || count >= SHN_LORESERVE;
    if is_elsewhere || header.e_phnum(NativeEndian) == PN_XNUM {
        return None;
    }
    let at = FileOffset::new(header.e_shoff(NativeEndian).into());
    let sections: Vec<Header::SectionHeader> = entries(file, at, count.into())?;
    let names = sections.get(usize::from(header.e_shstrndx(NativeEndian)))?;
    let names_at = FileOffset::new(names.sh_offset(NativeEndian).into());
    let is_symbol_table = |section: &&Header::SectionHeader| {
        let name_at = names_at.saturating_add(section.sh_name(NativeEndian).into());
        let name = entry::<[u8; 8]>(file, name_at);
        name.is_some_and(|name| matches!(&name, b".symtab\0" | b".dynsym\0"))
    };
    // There are two; more, or larger ones, would only buy their reader time.
    let mut tables = sections.iter().filter(is_symbol_table);
    tables.try_fold(0_u64, |sum, table| {
        let bytes = table.sh_size(NativeEndian).into();
        let sum = sum.saturating_add(bytes);
        (bytes <= MAX_TABLE_BYTES && sum <= 2 * MAX_TABLE_BYTES).then_some(sum)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{fs, mem::offset_of, os::unix::fs::FileExt as _};

    type Header = FileHeader64<NativeEndian>;
    type SectionHeader = object::elf::SectionHeader64<NativeEndian>;

    /// A copy of this program and where the header of its section `name` stands.
    fn copy_with(name: &[u8]) -> (tempfile::NamedTempFile, u64) {
        let image = fs::read(std::env::current_exe().unwrap()).unwrap();
        let header = Header::parse(&*image).unwrap();
        let sections = header.sections(NativeEndian, &*image).unwrap();
        let (index, _) = sections
            .section_by_name(NativeEndian, name.strip_suffix(b"\0").unwrap())
            .unwrap();
        let at = header.e_shoff(NativeEndian) + (index.0 * size_of::<SectionHeader>()) as u64;
        let copy = tempfile::NamedTempFile::new().unwrap();
        fs::write(copy.path(), &image).unwrap();
        (copy, at)
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
                header_at + offset_of!(SectionHeader, sh_size) as u64,
            )
            .unwrap();
            assert_eq!(bytes_of(file), None);
        }
        for (at, count) in [
            (offset_of!(Header, e_shnum), 0),
            (offset_of!(Header, e_shnum), SHN_LORESERVE),
            (offset_of!(Header, e_phnum), PN_XNUM),
            (offset_of!(Header, e_shstrndx), SHN_LORESERVE),
            (offset_of!(Header, e_shoff) + 6, 1),
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
        let size_at = header_at + offset_of!(SectionHeader, sh_size) as u64;
        let file = copy.as_file();
        file.write_all_at(&(1_u64 << 40).to_ne_bytes(), size_at)
            .unwrap();
        assert!(bytes_of(file).is_some());
        file.write_all_at(b"text", 0).unwrap();
        assert_eq!(bytes_of(file), Some(0));
    }
}
