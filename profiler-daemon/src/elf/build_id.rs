//! Reads which build of a program an ELF file holds, also one for another machine. Hostile bytes:
//! every table and note is bounded.

use std::fs::File;

use object::Endianness;
use object::elf::{
    ELFCLASS32, ELFCLASS64, ELFDATA2LSB, ELFDATA2MSB, FileHeader32, FileHeader64, NT_GNU_BUILD_ID,
    PF_X, PT_LOAD, PT_NOTE,
};
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader as _};

use super::{
    file::{Segment, ident, program_headers},
    read::{ReadAt, entries, entry},
};
use crate::units::{FileOffset, ModuleAddress};

/// Most bytes of notes looked at.
const MAX_NOTE_BYTES: usize = 16 << 10;
/// Build IDs outside of this many bytes are not one: shorter ones repeat, longer ones are nonsense.
const BUILD_ID_BYTES: std::ops::RangeInclusive<usize> = 8..=64;

/// What is equal in all copies of a file that was linked with a build ID. Tools that move its code
/// or strip it (`patchelf`, `strip`) leave the build ID, and change the rest of this.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Build {
    /// The GNU build ID, 8 to 64 bytes.
    pub id: Box<[u8]>,
    /// Size of the file in bytes.
    pub size_bytes: u64,
    /// Where its code is, in the order of the program headers; at most 256.
    pub code: Box<[Segment]>,
}

/// What a file turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElfIdentity {
    /// An ELF file with the linker's mark.
    BuildId(Build),
    /// An ELF file without one.
    NoBuildId,
    /// Some other file.
    NotElf,
    /// It begins like an ELF file but makes no sense.
    Corrupt,
}

/// Reads the identity of an open file.
#[must_use]
pub fn of_file(file: &File) -> ElfIdentity {
    file.metadata()
        .map_or(ElfIdentity::NotElf, |metadata| of(file, metadata.len()))
}

/// Reads the identity of an image in memory.
#[must_use]
pub fn of_bytes(image: &[u8]) -> ElfIdentity {
    of(image, image.len() as u64)
}

fn of(file: &(impl ReadAt + ?Sized), size_bytes: u64) -> ElfIdentity {
    let Some(ident) = ident(file) else {
        return ElfIdentity::NotElf;
    };
    let endian = match ident.data {
        ELFDATA2LSB => Endianness::Little,
        ELFDATA2MSB => Endianness::Big,
        _ => return ElfIdentity::Corrupt,
    };
    let identity = match ident.class {
        ELFCLASS32 => identity::<FileHeader32<_>>(file, size_bytes, endian),
        ELFCLASS64 => identity::<FileHeader64<_>>(file, size_bytes, endian),
        _ => None,
    };
    identity.unwrap_or(ElfIdentity::Corrupt)
}

/// `None`: corrupt.
fn identity<Header: FileHeader>(
    file: &(impl ReadAt + ?Sized),
    size_bytes: u64,
    endian: Header::Endian,
) -> Option<ElfIdentity> {
    let header: Header = entry(file, FileOffset::ZERO)?;
    let programs = program_headers(file, &header, endian)?;
    let Some(id) = build_id::<Header>(file, &programs, endian)? else {
        return Some(ElfIdentity::NoBuildId);
    };
    let code = programs
        .iter()
        .filter(|program| program.p_type(endian) == PT_LOAD && program.p_flags(endian) & PF_X != 0)
        .map(|program| Segment {
            address: ModuleAddress::new(program.p_vaddr(endian).into()),
            offset: FileOffset::new(program.p_offset(endian).into()),
            size_bytes: program.p_filesz(endian).into(),
        })
        .collect();
    Some(ElfIdentity::BuildId(Build {
        id,
        size_bytes,
        code,
    }))
}

/// `None`: corrupt. `Some(None)`: no build ID.
fn build_id<Header: FileHeader>(
    file: &(impl ReadAt + ?Sized),
    programs: &[Header::ProgramHeader],
    endian: Header::Endian,
) -> Option<Option<Box<[u8]>>> {
    let mut left_bytes = MAX_NOTE_BYTES;
    for program in programs {
        if left_bytes == 0 {
            break;
        }
        if program.p_type(endian) != PT_NOTE {
            continue;
        }
        let (at, bytes) = program.file_range(endian);
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(left_bytes);
        left_bytes -= bytes;
        let segment: Vec<u8> = entries(file, FileOffset::new(at), bytes)?;
        // Whatever is not 8 means 4, as 0 does.
        let align = match program.p_align(endian) {
            align if align.into() == 8 => align,
            _ => Header::Word::default(),
        };
        let notes = NoteIterator::<Header>::new(endian, align, &segment).ok()?;
        let id = notes.map_while(Result::ok).find(|note| {
            let value = note.desc();
            let usable =
                BUILD_ID_BYTES.contains(&value.len()) && value.iter().any(|byte| *byte != 0);
            note.n_type(endian) == NT_GNU_BUILD_ID && note.name_bytes() == b"GNU\0" && usable
        });
        if let Some(id) = id {
            return Some(Some(id.desc().into()));
        }
    }
    Some(None)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn image(id: &[u8], lead: &[u8]) -> Vec<u8> {
        let mut note = lead.to_vec();
        note.extend(4_u32.to_le_bytes());
        note.extend(u32::try_from(id.len()).unwrap().to_le_bytes());
        note.extend(NT_GNU_BUILD_ID.to_le_bytes());
        note.extend(b"GNU\0");
        note.extend(id);
        let mut image = vec![0; 120];
        image[..6].copy_from_slice(b"\x7fELF\x02\x01");
        image[32] = 64;
        image[54] = 56;
        image[56] = 1;
        image[64] = 4;
        image[72] = 120;
        image[96..104].copy_from_slice(&(note.len() as u64).to_le_bytes());
        image[112] = 4;
        image.extend(note);
        image
    }

    // Check that the build ID is found behind another note, and that weak ones do not count.
    #[test]
    fn finds_the_note() {
        let other = [4_u32, 4, 1]
            .iter()
            .flat_map(|word| word.to_le_bytes())
            .chain(*b"GNU\0abcd");
        let other: Vec<u8> = other.collect();
        let id: Vec<u8> = (1..=20).collect();
        let image_of_id = image(&id, &other);
        let build = Build {
            id: id.into(),
            size_bytes: image_of_id.len() as u64,
            code: Box::default(),
        };
        assert_eq!(of_bytes(&image_of_id), ElfIdentity::BuildId(build));
        assert_eq!(of_bytes(&image(&[0; 20], &[])), ElfIdentity::NoBuildId);
        assert_eq!(of_bytes(&image(&[1, 2], &[])), ElfIdentity::NoBuildId);
    }

    // Check that text, cut files and wild headers are told from files without a build ID.
    #[test]
    fn broken_files() {
        assert_eq!(of_bytes(b"#!/bin/sh\n and more text"), ElfIdentity::NotElf);
        assert_eq!(of_bytes(b""), ElfIdentity::NotElf);
        let good = image(&[7; 20], &[]);
        assert_eq!(of_bytes(&good[..100]), ElfIdentity::Corrupt);
        let mut wild = good.clone();
        wild[32..40].fill(0xff);
        assert_eq!(of_bytes(&wild), ElfIdentity::Corrupt);
        let mut class = good;
        class[4] = 9;
        assert_eq!(of_bytes(&class), ElfIdentity::Corrupt);
    }

    // Check that this test program itself, a real file, is read.
    #[test]
    fn real_file() {
        let identity = of_file(&File::open("/proc/self/exe").unwrap());
        assert!(
            matches!(identity, ElfIdentity::BuildId(_) | ElfIdentity::NoBuildId),
            "{identity:?}"
        );
    }

    proptest! {
        // Check that a good file with any bytes overwritten never makes the reader panic, and never
        // gives a weak ID.
        #[test]
        fn damaged(changes in prop::collection::vec((0_usize..160, any::<u8>()), 1..12)) {
            let mut image = image(&[7; 20], &[]);
            for (at, byte) in changes {
                if let Some(place) = image.get_mut(at) {
                    *place = byte;
                }
            }
            if let ElfIdentity::BuildId(build) = of_bytes(&image) {
                prop_assert!(BUILD_ID_BYTES.contains(&build.id.len()));
            }
        }
    }
}
