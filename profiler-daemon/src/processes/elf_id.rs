//! Reads the build ID of an ELF file. Hostile bytes: every table and note is bounded, nothing is
//! mapped into memory, so a file that shrinks meanwhile only reads short.

use std::{fs::File, os::unix::fs::FileExt as _};

/// Most program headers looked at.
const MAX_HEADERS: usize = 256;
/// Most bytes of one note segment looked at.
const MAX_NOTE_BYTES: usize = 16 << 10;
/// Build IDs outside of this many bytes are not one: shorter ones repeat, longer ones are nonsense.
const BUILD_ID_BYTES: std::ops::RangeInclusive<usize> = 8..=64;

const PT_NOTE: u32 = 4;
const NT_GNU_BUILD_ID: u32 = 3;

/// What a file turned out to be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ElfIdentity {
    /// An ELF file with the linker's mark.
    BuildId(Box<[u8]>),
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
    of_reader(|offset, bytes| file.read_exact_at(bytes, offset).is_ok())
}

/// Reads the identity of an image in memory.
#[must_use]
pub fn of_bytes(image: &[u8]) -> ElfIdentity {
    of_reader(|offset, bytes| {
        let from = usize::try_from(offset).ok();
        let range = from.and_then(|from| image.get(from..from.checked_add(bytes.len())?));
        range.is_some_and(|range| {
            bytes.copy_from_slice(range);
            true
        })
    })
}

/// `read(offset, into)` fills `into` from that offset on, or answers false.
fn of_reader(read: impl Fn(u64, &mut [u8]) -> bool) -> ElfIdentity {
    let mut ident = [0; 16];
    if !read(0, &mut ident) || !ident.starts_with(b"\x7fELF") {
        return ElfIdentity::NotElf;
    }
    match notes(&read, ident) {
        None => ElfIdentity::Corrupt,
        Some(None) => ElfIdentity::NoBuildId,
        Some(Some(id)) => ElfIdentity::BuildId(id),
    }
}

/// Takes numbers of the file's byte order out of a table entry.
#[derive(Clone, Copy)]
struct ByteOrder {
    big: bool,
}

impl ByteOrder {
    fn u16(self, bytes: &[u8], at: usize) -> Option<u16> {
        let raw = bytes.get(at..at + 2)?.try_into().ok()?;
        Some(if self.big {
            u16::from_be_bytes(raw)
        } else {
            u16::from_le_bytes(raw)
        })
    }

    fn u32(self, bytes: &[u8], at: usize) -> Option<u32> {
        let raw = bytes.get(at..at + 4)?.try_into().ok()?;
        Some(if self.big {
            u32::from_be_bytes(raw)
        } else {
            u32::from_le_bytes(raw)
        })
    }

    fn u64(self, bytes: &[u8], at: usize) -> Option<u64> {
        let raw = bytes.get(at..at + 8)?.try_into().ok()?;
        Some(if self.big {
            u64::from_be_bytes(raw)
        } else {
            u64::from_le_bytes(raw)
        })
    }
}

/// `None`: corrupt. `Some(None)`: no build ID.
fn notes(read: &impl Fn(u64, &mut [u8]) -> bool, ident: [u8; 16]) -> Option<Option<Box<[u8]>>> {
    let wide = match ident[4] {
        1 => false,
        2 => true,
        _ => return None,
    };
    let order = ByteOrder {
        big: match ident[5] {
            1 => false,
            2 => true,
            _ => return None,
        },
    };
    let mut header = [0; 64];
    let header = &mut header[..if wide { 64 } else { 52 }];
    if !read(0, header) {
        return None;
    }
    let (table_at, entry_bytes, count) = if wide {
        (
            order.u64(header, 32)?,
            order.u16(header, 54)?,
            order.u16(header, 56)?,
        )
    } else {
        (
            u64::from(order.u32(header, 28)?),
            order.u16(header, 42)?,
            order.u16(header, 44)?,
        )
    };
    if count > 0 && usize::from(entry_bytes) != if wide { 56 } else { 32 } {
        return None;
    }
    let count = usize::from(count).min(MAX_HEADERS);
    let mut table = vec![0; count * usize::from(entry_bytes)];
    if !read(table_at, &mut table) {
        return None;
    }
    let mut left_bytes = MAX_NOTE_BYTES;
    for entry in table.chunks_exact(usize::from(entry_bytes).max(1)) {
        if left_bytes == 0 {
            break;
        }
        if order.u32(entry, 0)? != PT_NOTE {
            continue;
        }
        let (at, bytes, align) = if wide {
            (
                order.u64(entry, 8)?,
                order.u64(entry, 32)?,
                order.u64(entry, 48)?,
            )
        } else {
            let [at, bytes, align] = [4, 16, 28].map(|field| order.u32(entry, field));
            (u64::from(at?), u64::from(bytes?), u64::from(align?))
        };
        let bytes = usize::try_from(bytes).unwrap_or(usize::MAX).min(left_bytes);
        left_bytes -= bytes;
        let mut segment = vec![0; bytes];
        if !read(at, &mut segment) {
            return None;
        }
        let align = if align == 8 { 8 } else { 4 };
        if let Some(id) = build_id_note(order, &segment, align) {
            return Some(Some(id));
        }
    }
    Some(None)
}

/// Looks through the notes of one segment; stops at the first that does not fit.
fn build_id_note(order: ByteOrder, mut segment: &[u8], align: usize) -> Option<Box<[u8]>> {
    loop {
        let name_bytes = usize::try_from(order.u32(segment, 0)?).ok()?;
        let value_bytes = usize::try_from(order.u32(segment, 4)?).ok()?;
        let kind = order.u32(segment, 8)?;
        let name = segment.get(12..12_usize.checked_add(name_bytes)?)?;
        let value_at = (12 + name_bytes).next_multiple_of(align);
        let value_end = value_at.checked_add(value_bytes)?;
        let value = segment.get(value_at..value_end)?;
        let usable = BUILD_ID_BYTES.contains(&value.len()) && value.iter().any(|byte| *byte != 0);
        if kind == NT_GNU_BUILD_ID && name == b"GNU\0" && usable {
            return Some(value.into());
        }
        segment = segment.get(value_end.checked_next_multiple_of(align)?..)?;
    }
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
        assert_eq!(
            of_bytes(&image(&id, &other)),
            ElfIdentity::BuildId(id.clone().into())
        );
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
            if let ElfIdentity::BuildId(id) = of_bytes(&image) {
                prop_assert!(BUILD_ID_BYTES.contains(&id.len()));
            }
        }
    }
}
