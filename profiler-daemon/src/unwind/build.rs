//! From a file to its table: rows of its functions by address, what lies between them, and what has no unwind information
//! but a known shape (signal trampolines, the first instructions of a program).
//!
//! Where the information of a function makes no sense, its rows before that are kept and the rest of it is unsupported; a
//! table is refused as a whole only for the reasons of [`NoTable`].

use gimli::{DebugFrame, EhFrame, UnwindOffset, UnwindSection};
use profiler_common::unwind::kind;

use super::{
    NoTable,
    elf::{Elf, FrameForm, ReadAt},
    frames::{Frames, Span, bytes},
    rows::Rows,
    rule::{Bytes, Rule},
    table::{BuildStats, UnwindTable},
};

/// Shorter holes between functions are padding, and continue the function before: the row saved is one in three.
const PADDING_BYTES: u64 = 16;
/// Code at the program's entry that has no unwind information is taken for its first instructions, up to this many bytes.
const ENTRY_BYTES: u64 = 64;
/// `mov $15, %rax; syscall`: how a signal handler returns.
const TRAMPOLINE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
/// Most trampolines taken from one file.
const MAX_TRAMPOLINES: usize = 64;
/// Code is looked through in pieces of this many bytes.
const PIECE_BYTES: u64 = 64 << 10;

/// Bounds on what a table may take to build.
#[derive(Clone, Copy, Debug)]
pub struct BuildLimits {
    /// Most bytes of unwind information; they are held in memory meanwhile.
    pub max_section_bytes: u64,
    /// Most functions; 24 bytes of memory each meanwhile.
    pub max_functions: usize,
    /// Most rows; 8 bytes each.
    pub max_rows: usize,
    /// Most bytes of code without unwind information that is looked through for trampolines.
    pub max_scan_bytes: u64,
}

impl Default for BuildLimits {
    fn default() -> Self {
        Self {
            max_section_bytes: 256 << 20,
            max_functions: 4 << 20,
            max_rows: 8 << 20,
            max_scan_bytes: 64 << 20,
        }
    }
}

/// Builds the table of a file. `keep_going` is asked now and then (at least every 1024 functions); once it says no, the file
/// is given up as too slow.
///
/// # Errors
///
/// Why the file can have no table.
pub fn build_file(
    file: &(impl ReadAt + ?Sized),
    limits: &BuildLimits,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<UnwindTable, NoTable> {
    let elf = Elf::read(file, limits.max_section_bytes)?;
    build(&elf, file, limits, keep_going)
}

/// Builds the table of a file whose parts were read. `file` is asked for code only.
///
/// # Errors
///
/// Why the file can have no table.
pub fn build(
    elf: &Elf,
    file: &(impl ReadAt + ?Sized),
    limits: &BuildLimits,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<UnwindTable, NoTable> {
    let section = &*elf.frames.bytes;
    let address = elf.frames.address;
    let debug_frame = elf.frames.form == FrameForm::DebugFrame;
    if debug_frame {
        let mut reader = DebugFrame::from(bytes(section));
        reader.set_address_size(8);
        let frames = Frames::new(reader, section, address, true);
        finish(elf, file, frames, limits, keep_going)
    } else {
        let frames = Frames::new(EhFrame::from(bytes(section)), section, address, false);
        finish(elf, file, frames, limits, keep_going)
    }
}

fn finish<'a, Section>(
    elf: &Elf,
    file: &(impl ReadAt + ?Sized),
    mut frames: Frames<'a, Section>,
    limits: &BuildLimits,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<UnwindTable, NoTable>
where
    Section: UnwindSection<Bytes<'a>>,
    Section::Offset: UnwindOffset<usize>,
{
    let mut stats = BuildStats::default();
    let to_terminator = elf.frames.form == FrameForm::EhFrameToTerminator;
    let spans = frames.spans(&elf.segments, to_terminator, limits, keep_going, &mut stats)?;
    if spans.is_empty() {
        return Err(NoTable::NoUnwindInformation);
    }
    let known = known_shapes(elf, file, &spans, limits, keep_going, &mut stats)?;
    let mut known = known.into_iter().peekable();
    let start = elf.segments.first().map_or(0, |segment| segment.address);
    let mut rows = Rows::new(start, limits.max_rows);
    for (index, span) in spans.iter().enumerate() {
        if index % 1024 == 1023 && !keep_going() {
            return Err(NoTable::TooSlow);
        }
        while let Some(shape) = known.next_if(|shape| shape.start < span.start) {
            rows.push(shape.start, shape.rule)?;
            rows.push(shape.end, Rule::GAP)?;
        }
        frames.rules(*span, &mut stats, |address, rule| rows.push(address, rule))?;
        let next = spans.get(index + 1).map_or(u64::MAX, |next| next.start);
        if next - span.end >= PADDING_BYTES {
            rows.push(span.end, Rule::GAP)?;
        }
    }
    for shape in known {
        rows.push(shape.start, shape.rule)?;
        rows.push(shape.end, Rule::GAP)?;
    }
    let paged = rows.finish();
    stats.dense_pages = paged.dense_pages;
    stats.functions_overlapping += paged.disordered;
    let unsupported = paged
        .rows
        .iter()
        .filter(|row| row.kind == kind::UNSUPPORTED);
    stats.unsupported_rows = unsupported.count() as u64;
    Ok(UnwindTable {
        base_page: paged.base_page,
        pages: paged.pages,
        rows: paged.rows,
        segments: elf.segments.clone(),
        stats,
    })
}

/// Code without unwind information whose rule is known all the same.
#[derive(Clone, Copy, Debug)]
struct Shape {
    start: u64,
    end: u64,
    rule: Rule,
}

/// The known shapes in the holes between functions, by address, none overlapping.
fn known_shapes(
    elf: &Elf,
    file: &(impl ReadAt + ?Sized),
    spans: &[Span],
    limits: &BuildLimits,
    keep_going: &mut dyn FnMut() -> bool,
    stats: &mut BuildStats,
) -> Result<Vec<Shape>, NoTable> {
    let mut shapes = Vec::new();
    let mut left = limits.max_scan_bytes;
    let mut piece = vec![0; (PIECE_BYTES as usize) + TRAMPOLINE.len()];
    for (start, end) in holes(elf, spans) {
        if (start..end).contains(&elf.entry) {
            shapes.push(Shape {
                start: elf.entry,
                end: end.min(elf.entry.saturating_add(ENTRY_BYTES)),
                rule: Rule::STOP,
            });
        }
        let mut at = start;
        while at < end && left > 0 && stats.trampolines < MAX_TRAMPOLINES as u64 {
            // Pieces overlap, so that none is cut in two.
            let length = (end - at).min(piece.len() as u64);
            let Some(code) = piece.get_mut(..length as usize) else {
                break;
            };
            if !elf.read_code(file, at, code) {
                break;
            }
            left = left.saturating_sub(length);
            if let Some(found) = code
                .windows(TRAMPOLINE.len())
                .position(|bytes| bytes == TRAMPOLINE)
            {
                let found = at + found as u64;
                stats.trampolines += 1;
                shapes.push(Shape {
                    // A handler returns to its first byte, and callers are looked up one byte before where they go on.
                    start: found.saturating_sub(1).max(start),
                    end: found + TRAMPOLINE.len() as u64,
                    rule: Rule::SIGNAL,
                });
                at = found + TRAMPOLINE.len() as u64;
            } else if length == end - at {
                break;
            } else {
                at += length - TRAMPOLINE.len() as u64;
            }
            if !keep_going() {
                return Err(NoTable::TooSlow);
            }
        }
    }
    shapes.sort_by_key(|shape| shape.start);
    for index in 1..shapes.len() {
        shapes[index - 1].end = shapes[index - 1].end.min(shapes[index].start);
    }
    Ok(shapes)
}

/// Code that no function covers and that is no padding.
fn holes(elf: &Elf, spans: &[Span]) -> Vec<(u64, u64)> {
    let mut holes = Vec::new();
    for segment in &elf.segments {
        let from = spans.partition_point(|span| span.start < segment.address);
        let to = spans.partition_point(|span| span.start < segment.end());
        let mut at = segment.address;
        for span in spans.get(from..to).unwrap_or_default() {
            if span.start.saturating_sub(at) >= PADDING_BYTES {
                holes.push((at, span.start));
            }
            at = at.max(span.end);
        }
        if segment.end().saturating_sub(at) >= PADDING_BYTES {
            holes.push((at, segment.end()));
        }
    }
    holes
}
