//! From a file to its table: rows of its functions by address, and between them what `holes` finds out.
//!
//! Where the information of a function makes no sense, its rows before that are kept and the rest of it is unsupported; a
//! table is refused as a whole only for the reasons of [`NoTable`].

use gimli::{DebugFrame, EhFrame, UnwindOffset, UnwindSection};
use profiler_common::unwind::kind;

use super::{
    NoTable,
    elf::{Elf, FrameForm, ReadAt},
    frames::{Frames, bytes},
    holes,
    rows::Rows,
    rule::{Bytes, Rule},
    table::{BuildStats, UnwindTable},
};

/// Shorter holes between functions are padding, and continue the function before: the row saved is one in three.
pub(super) const PADDING_BYTES: u64 = 16;

/// Bounds on what a table may take to build.
#[derive(Clone, Copy, Debug)]
pub struct BuildLimits {
    /// Most bytes of unwind information; they are held in memory meanwhile.
    pub max_section_bytes: u64,
    /// Most functions; 24 bytes of memory each meanwhile.
    pub max_functions: usize,
    /// Most rows; 8 bytes each.
    pub max_rows: usize,
    /// Most bytes of code without unwind information that are read.
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
    let filling = holes::fill(elf, file, &spans, limits, keep_going, &mut stats)?;
    let mut filling = filling.into_iter().peekable();
    let start = elf.segments.first().map_or(0, |segment| segment.address);
    let mut rows = Rows::new(start, limits.max_rows);
    for (index, span) in spans.iter().enumerate() {
        if index % 1024 == 1023 && !keep_going() {
            return Err(NoTable::TooSlow);
        }
        while let Some((address, rule)) = filling.next_if(|(address, _)| *address <= span.start) {
            rows.push(address, rule)?;
        }
        frames.rules(*span, &mut stats, |address, rule| rows.push(address, rule))?;
        let next = spans.get(index + 1).map_or(u64::MAX, |next| next.start);
        if next - span.end >= PADDING_BYTES {
            rows.push(span.end, Rule::GAP)?;
        }
    }
    for (address, rule) in filling {
        rows.push(address, rule)?;
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
