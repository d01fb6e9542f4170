//! The bytes of a section: as they lie in the file, or unpacked where they are compressed, with a
//! header in front as ELF has it or as `.zdebug_` sections had it. zlib only. What a header claims
//! is believed only within bounds: of bytes, of how much a packed byte may stand for, and of time.

use std::io::{self, Read};

use flate2::read::ZlibDecoder;

use super::NoTable;
use crate::elf::{self, CompressionHeader, ELFCOMPRESS_ZLIB, LE, ReadAt, Section};
use crate::units::FileOffset;

/// How a section's bytes lie in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Packing {
    /// As they are, or packed if the section's flags say so.
    AsFlagged,
    /// Packed, in the form that came before that flag: a mark, the size as a big-endian number, a
    /// zlib stream.
    Old,
}

/// The header of a compressed section.
const HEADER_BYTES: u64 = size_of::<CompressionHeader>() as u64;
/// What an old compressed section begins with.
const OLD_MARK: &[u8; 4] = b"ZLIB";
/// The mark and the size.
const OLD_HEADER_BYTES: u64 = 12;
/// Most bytes that a packed byte may stand for. Real unwind information packs to a fifth; zlib
/// could do a thousandth.
const MAX_RATIO: u64 = 100;
/// Bytes unpacked at a time.
const PIECE_BYTES: usize = 1 << 20;

/// The section's bytes, `max_bytes` at most. `keep_going` is asked before each mebibyte that is
/// unpacked.
pub(super) fn contents(
    file: &(impl ReadAt + ?Sized),
    section: &Section,
    packing: Packing,
    max_bytes: u64,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<Vec<u8>, NoTable> {
    let (header_bytes, size_bytes) = match packing {
        Packing::AsFlagged if !section.is_compressed() => {
            return read(file, section.offset, section.size_bytes, max_bytes);
        }
        Packing::AsFlagged => (HEADER_BYTES, claimed_size(file, section)?),
        Packing::Old => (OLD_HEADER_BYTES, claimed_old_size(file, section)?),
    };
    let packed = FilePart {
        file,
        offset: section.offset.saturating_add(header_bytes),
        left: section.size_bytes.saturating_sub(header_bytes),
    };
    unpack(packed, size_bytes, max_bytes, keep_going)
}

/// Bytes of the file as they are.
pub(super) fn read(
    file: &(impl ReadAt + ?Sized),
    offset: FileOffset,
    size_bytes: u64,
    max_bytes: u64,
) -> Result<Vec<u8>, NoTable> {
    if size_bytes > max_bytes {
        return Err(NoTable::SectionTooLarge);
    }
    let mut bytes = vec![0; usize::try_from(size_bytes).map_err(|_| NoTable::SectionTooLarge)?];
    if file.read_at(offset, &mut bytes) {
        Ok(bytes)
    } else {
        Err(NoTable::Unreadable)
    }
}

fn claimed_size(file: &(impl ReadAt + ?Sized), section: &Section) -> Result<u64, NoTable> {
    match elf::entry::<CompressionHeader>(file, section.offset) {
        Some(header) if section.size_bytes >= HEADER_BYTES => {
            if header.ch_type.get(LE) != ELFCOMPRESS_ZLIB {
                return Err(NoTable::Compressed);
            }
            Ok(header.ch_size.get(LE))
        }
        _ => Err(NoTable::CompressionDamaged),
    }
}

fn claimed_old_size(file: &(impl ReadAt + ?Sized), section: &Section) -> Result<u64, NoTable> {
    let mut header = [0; OLD_HEADER_BYTES as usize];
    let is_there =
        section.size_bytes >= OLD_HEADER_BYTES && file.read_at(section.offset, &mut header);
    match header.split_first_chunk::<4>() {
        Some((mark, size_bytes)) if is_there && mark == OLD_MARK => {
            let size_bytes = size_bytes.first_chunk::<8>();
            Ok(u64::from_be_bytes(
                *size_bytes.expect("the header is longer"),
            ))
        }
        _ => Err(NoTable::CompressionDamaged),
    }
}

fn unpack<File: ReadAt + ?Sized>(
    packed: FilePart<'_, File>,
    size_bytes: u64,
    max_bytes: u64,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<Vec<u8>, NoTable> {
    if size_bytes > packed.left.saturating_mul(MAX_RATIO) {
        return Err(NoTable::CompressionRatio);
    }
    if size_bytes > max_bytes {
        return Err(NoTable::SectionTooLarge);
    }
    let size_bytes = usize::try_from(size_bytes).map_err(|_| NoTable::SectionTooLarge)?;
    let mut stream = ZlibDecoder::new(packed);
    // Memory that nothing is written to is not taken.
    let mut bytes = Vec::with_capacity(size_bytes);
    while bytes.len() < size_bytes {
        if !keep_going() {
            return Err(NoTable::TooSlow);
        }
        let piece = (size_bytes - bytes.len()).min(PIECE_BYTES) as u64;
        match stream.by_ref().take(piece).read_to_end(&mut bytes) {
            Ok(1..) => {}
            // It is damaged, or shorter than its header says.
            Ok(0) | Err(_) => return Err(NoTable::CompressionDamaged),
        }
    }
    // Nothing follows; the end of the stream holds the sum over what came before.
    match stream.read(&mut [0]) {
        Ok(0) => Ok(bytes),
        _ => Err(NoTable::CompressionDamaged),
    }
}

/// A part of a file, read from its beginning to its end.
struct FilePart<'a, File: ?Sized> {
    file: &'a File,
    offset: FileOffset,
    left: u64,
}

impl<File: ReadAt + ?Sized> Read for FilePart<'_, File> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let length = usize::try_from(self.left).map_or(into.len(), |left| left.min(into.len()));
        let into = &mut into[..length];
        if !self.file.read_at(self.offset, into) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.offset = self.offset.saturating_add(length as u64);
        self.left -= length as u64;
        Ok(length)
    }
}
