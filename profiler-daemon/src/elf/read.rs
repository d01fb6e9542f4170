//! Reads entries of tables out of a file, in the layout that they have there. Nothing is mapped: a
//! file that shrinks meanwhile reads short, and a gigabyte of debug information costs nothing.

use std::{fs::File, os::unix::fs::FileExt as _};

use object::pod::{self, Pod};

use crate::units::FileOffset;

/// Entries of a long table read at a time.
const PIECE_ENTRIES: u64 = 1024;

/// Reads parts of a file.
pub trait ReadAt {
    /// Fills `into` from that offset on, or answers false.
    fn read_at(&self, offset: FileOffset, into: &mut [u8]) -> bool;
}

impl ReadAt for File {
    fn read_at(&self, offset: FileOffset, into: &mut [u8]) -> bool {
        self.read_exact_at(into, offset.get()).is_ok()
    }
}

impl ReadAt for [u8] {
    fn read_at(&self, offset: FileOffset, into: &mut [u8]) -> bool {
        let range = usize::try_from(offset.get())
            .ok()
            .and_then(|from| self.get(from..from.checked_add(into.len())?));
        range.is_some_and(|range| {
            into.copy_from_slice(range);
            true
        })
    }
}

/// What stands at an offset.
pub fn entry<T: Pod>(file: &(impl ReadAt + ?Sized), offset: FileOffset) -> Option<T> {
    let mut entry = zeros::<T>();
    file.read_at(offset, pod::bytes_of_mut(&mut entry))
        .then_some(entry)
}

/// So many of them, one after the other.
pub(super) fn entries<T: Pod>(
    file: &(impl ReadAt + ?Sized),
    offset: FileOffset,
    count: usize,
) -> Option<Vec<T>> {
    let mut entries = vec![zeros::<T>(); count];
    file.read_at(offset, pod::bytes_of_slice_mut(&mut entries))
        .then_some(entries)
}

/// What is to be filled.
pub(super) fn zeros<T: Pod>() -> T {
    let (zeros, _) = pod::from_bytes(&[0; 64]).expect("no header is longer");
    *zeros
}

/// A part of the file.
#[derive(Clone, Copy, Debug, Default)]
pub struct FileRange {
    /// Where it begins.
    pub offset: FileOffset,
    /// How long it is.
    pub size_bytes: u64,
}

impl FileRange {
    /// All of them, or as many as there may be.
    pub fn read(self, file: &(impl ReadAt + ?Sized), at_most: usize) -> Option<Vec<u8>> {
        let size_bytes = usize::try_from(self.size_bytes).unwrap_or(usize::MAX);
        entries(file, self.offset, size_bytes.min(at_most))
    }

    /// How many entries there are in this table.
    #[must_use]
    pub const fn count<T: Pod>(self) -> u64 {
        self.size_bytes / size_of::<T>() as u64
    }

    /// Some entries of this table, from that one on; none behind the last one, and where they
    /// cannot be read.
    pub fn piece<T: Pod>(self, file: &(impl ReadAt + ?Sized), first: u64) -> Vec<T> {
        let count = self.count::<T>().saturating_sub(first).min(PIECE_ENTRIES);
        let offset = self.offset.checked_add(first * size_of::<T>() as u64);
        offset
            .and_then(|offset| entries(file, offset, count as usize))
            .unwrap_or_default()
    }
}
