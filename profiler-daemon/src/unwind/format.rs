//! A table as bytes, for the disk. Everything read back is checked: bytes on disk can be cut short,
//! old, or another's.

use profiler_common::unwind::{MAX_PAGE_ROWS, UnwindPage, UnwindRow};

use super::{
    NoTable,
    elf::Segment,
    table::{BuildStats, UnwindTable},
};
use crate::units::{FileOffset, ModuleAddress};

/// Opens every file. The number behind it is the version: to be raised whenever rows mean something
/// else.
const MAGIC: [u8; 8] = *b"unwind\0\x04";
/// Most code segments of a table.
const MAX_SEGMENTS: usize = 256;

/// Why bytes are no table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Damage {
    /// Another format or version, or the table of another file.
    Foreign,
    /// Cut short or changed.
    Corrupt,
}

/// The bytes of a table that belongs to `key`.
pub(super) fn encode(key: &[u8], table: &UnwindTable) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(256 + key.len() + table.size_bytes());
    bytes.extend(MAGIC);
    let mut number = |value: u64| bytes.extend(value.to_le_bytes());
    number(key.len() as u64);
    number(table.segments.len() as u64);
    number(table.pages.len() as u64);
    number(table.rows.len() as u64);
    number(table.base_page);
    number(table.without.map_or(0, |why| why as u64 + 1));
    numbers(&table.stats).into_iter().for_each(&mut number);
    for segment in &table.segments {
        number(segment.address.get());
        number(segment.offset.get());
        number(segment.size_bytes);
    }
    for page in &table.pages {
        number(u64::from(page.first) | u64::from(page.count) << 32 | u64::from(page.chunk) << 48);
    }
    for row in &table.rows {
        number(row.to_bits());
    }
    bytes.extend(key);
    let sum = checksum(&bytes);
    bytes.extend(sum.to_le_bytes());
    bytes
}

/// The table of these bytes, if they are the one of `key`.
pub(super) fn decode(key: &[u8], bytes: &[u8]) -> Result<UnwindTable, Damage> {
    if !bytes.starts_with(&MAGIC) {
        return Err(Damage::Foreign);
    }
    let (content, sum) = bytes.split_last_chunk::<8>().ok_or(Damage::Corrupt)?;
    if checksum(content) != u64::from_le_bytes(*sum) {
        return Err(Damage::Corrupt);
    }
    let table = parse(key, &content[MAGIC.len()..]).ok_or(Damage::Corrupt)??;
    let mut next = 0_u32;
    for page in &table.pages {
        let good = page.first == next && (1..=MAX_PAGE_ROWS).contains(&u32::from(page.count));
        if !good {
            return Err(Damage::Corrupt);
        }
        next = next.saturating_add(u32::from(page.count));
    }
    if next as usize != table.rows.len() {
        return Err(Damage::Corrupt);
    }
    Ok(table)
}

fn parse(key: &[u8], content: &[u8]) -> Option<Result<UnwindTable, Damage>> {
    let mut rest = content;
    let mut number = || {
        let (value, behind) = rest.split_first_chunk::<8>()?;
        rest = behind;
        Some(u64::from_le_bytes(*value))
    };
    // No more elements than bytes, so nothing is reserved that is not there.
    let mut count = || {
        usize::try_from(number()?)
            .ok()
            .filter(|count| *count <= content.len() / 8)
    };
    let key_bytes = count()?;
    let segment_count = count().filter(|count| *count <= MAX_SEGMENTS)?;
    let page_count = count()?;
    let row_count = count()?;
    let base_page = number()?;
    let without = match number()?.checked_sub(1) {
        None => None,
        Some(index) => Some(*NoTable::ALL.get(usize::try_from(index).ok()?)?),
    };
    let mut stats = [0; STATS];
    for value in &mut stats {
        *value = number()?;
    }
    let mut segments = Vec::with_capacity(segment_count);
    for _ in 0..segment_count {
        segments.push(Segment {
            address: ModuleAddress::new(number()?),
            offset: FileOffset::new(number()?),
            size_bytes: number()?,
        });
    }
    let mut pages = Vec::with_capacity(page_count);
    for _ in 0..page_count {
        let value = number()?;
        pages.push(UnwindPage {
            first: value as u32,
            count: (value >> 32) as u16,
            chunk: (value >> 48) as u16,
        });
    }
    let mut rows = Vec::with_capacity(row_count);
    for _ in 0..row_count {
        rows.push(UnwindRow::from_bits(number()?));
    }
    if rest.len() != key_bytes || rest != key {
        return Some(Err(Damage::Foreign));
    }
    Some(Ok(UnwindTable {
        base_page,
        pages,
        rows,
        segments,
        without,
        stats: stats_of(stats),
    }))
}

const STATS: usize = 10;

const fn numbers(stats: &BuildStats) -> [u64; STATS] {
    [
        stats.functions,
        stats.rows_read,
        stats.entries_refused,
        stats.functions_outside,
        stats.functions_overlapping,
        stats.functions_corrupt,
        stats.dense_pages,
        stats.unsupported_rows,
        stats.trampolines,
        stats.functions_read,
    ]
}

const fn stats_of(numbers: [u64; STATS]) -> BuildStats {
    let [
        functions,
        rows_read,
        entries_refused,
        functions_outside,
        functions_overlapping,
        functions_corrupt,
        dense_pages,
        unsupported_rows,
        trampolines,
        functions_read,
    ] = numbers;
    BuildStats {
        functions,
        rows_read,
        entries_refused,
        functions_outside,
        functions_overlapping,
        functions_corrupt,
        dense_pages,
        unsupported_rows,
        trampolines,
        functions_read,
    }
}

/// Against accidents, not against malice: the folder is the daemon's own.
pub(super) fn checksum(bytes: &[u8]) -> u64 {
    let mix = |sum: u64, word: u64| {
        let mixed = (sum ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        mixed ^ (mixed >> 32)
    };
    let (words, tail) = bytes.as_chunks::<8>();
    let sum = words.iter().fold(bytes.len() as u64, |sum, word| {
        mix(sum, u64::from_le_bytes(*word))
    });
    tail.iter()
        .fold(sum, |sum, byte| mix(sum, u64::from(*byte)))
}
