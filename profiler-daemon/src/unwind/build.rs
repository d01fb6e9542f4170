//! From a file to its table: rows of its functions by address, and between them what `holes` finds
//! out. A file without unwind information is one hole.
//!
//! Where the information of a function makes no sense, its rows before that are kept and the rest
//! of it is unsupported; a table is refused as a whole only for the reasons of [`NoTable`].

use gimli::{DebugFrame, EhFrame, UnwindOffset, UnwindSection};
use profiler_common::unwind::kind;

use super::{
    NoTable,
    elf::{Elf, FrameForm, ReadAt},
    frames::{FrameEntries, RulesAt, bytes, put_in_order},
    go::GoFunctions,
    holes,
    limits::{BuildLimits, PADDING_BYTES},
    rows::RowBuilder,
    rule::{FrameReader, Rule},
    table::{BuildStats, UnwindTable},
};
use crate::units::ModuleAddress;

/// Bytes of unwind information after which it is asked whether to go on. A function counts as
/// [`FUNCTION_BYTES`] more: it runs the instructions that it shares with others, too.
const ASK_BYTES: usize = 1 << 20;
const FUNCTION_BYTES: usize = 1 << 10;

/// Builds the table of a file. `keep_going` is asked now and then (at least every 1024 functions
/// and every mebibyte or two of unwind information); once it says no, the file is given up as too
/// slow.
///
/// # Errors
///
/// Why the file can have no table.
pub fn build_file(
    file: &(impl ReadAt + ?Sized),
    limits: &BuildLimits,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<UnwindTable, NoTable> {
    let elf = Elf::read(file, limits.max_section_bytes, keep_going)?;
    build(&elf, file, limits, keep_going)
}

/// Builds the table of a file whose parts were read. `file` is asked for code and for Go's table
/// only.
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
    let go = GoFunctions::read(elf, file, limits);
    match &elf.frames {
        // What Go writes there lacks where its functions save rbp, and which of them leave their
        // stack.
        Ok(section) if section.form == FrameForm::DebugFrame && go.is_none() => {
            let mut reader = DebugFrame::from(bytes(&section.bytes));
            reader.set_address_size(8);
            let frames = FrameEntries::new(reader, &section.bytes, section.address, true);
            finish(elf, file, frames, go, limits, keep_going)
        }
        frames => {
            let section = frames.as_ref().ok();
            let section = section.filter(|section| section.form != FrameForm::DebugFrame);
            let (address, section) = section.map_or((ModuleAddress::ZERO, &[][..]), |section| {
                (section.address, &section.bytes)
            });
            let frames = FrameEntries::new(EhFrame::from(bytes(section)), section, address, false);
            finish(elf, file, frames, go, limits, keep_going)
        }
    }
}

fn finish<'a, Section>(
    elf: &Elf,
    file: &(impl ReadAt + ?Sized),
    mut frames: FrameEntries<'a, Section>,
    go: Option<GoFunctions>,
    limits: &BuildLimits,
    keep_going: &mut dyn FnMut() -> bool,
) -> Result<UnwindTable, NoTable>
where
    Section: UnwindSection<FrameReader<'a>>,
    Section::Offset: UnwindOffset<usize>,
{
    let mut stats = BuildStats::default();
    let to_terminator = elf
        .frames
        .as_ref()
        .is_ok_and(|section| section.form == FrameForm::EhFrameToTerminator);
    let mut spans = frames.spans(&elf.segments, to_terminator, limits, keep_going, &mut stats)?;
    if let Some(go) = &go {
        spans.extend(go.spans(&elf.segments, &mut stats));
        put_in_order(&mut spans, &mut stats);
    }
    let why = elf.frames.as_ref().err();
    let without = spans
        .is_empty()
        .then(|| why.copied().unwrap_or(NoTable::NoUnwindInformation));
    let gap = match without {
        None => Rule::GAP,
        // Nobody says that such code keeps to any convention.
        Some(_) => Rule::FRAME_POINTER,
    };
    let filling = holes::fill(elf, file, &spans, gap, limits, keep_going, &mut stats)?;
    if let Some(why) = without
        && stats.functions_read == 0
    {
        return Err(why);
    }
    let mut filling = filling.into_iter().peekable();
    let start = elf
        .segments
        .first()
        .map_or(ModuleAddress::ZERO, |segment| segment.address);
    let mut rows = RowBuilder::new(start, limits.max_rows);
    rows.push(start, gap)?;
    let mut unasked_bytes = 0;
    for (index, span) in spans.iter().enumerate() {
        unasked_bytes += FUNCTION_BYTES;
        if let RulesAt::Frames(offset) = span.described {
            unasked_bytes += frames.entry_bytes(offset);
        }
        if unasked_bytes >= ASK_BYTES {
            unasked_bytes = 0;
            if !keep_going() {
                return Err(NoTable::TooSlow);
            }
        }
        while let Some((address, rule)) = filling.next_if(|(address, _)| *address <= span.start) {
            rows.push(address, rule)?;
        }
        let row = |address, rule| rows.push(address, rule);
        match (span.described, &go) {
            (RulesAt::Frames(offset), _) => frames.rules(*span, offset, &mut stats, row)?,
            (RulesAt::Go(number), Some(go)) => {
                let read_code = |address, into: &mut [u8]| elf.read_code(file, address, into);
                go.rules(*span, number, read_code, &mut stats, row)?;
            }
            (RulesAt::Go(_), None) => {}
        }
        let next = spans
            .get(index + 1)
            .map_or(ModuleAddress::new(u64::MAX), |next| next.start);
        if next - span.end >= PADDING_BYTES {
            rows.push(span.end, gap)?;
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
        without,
        stats,
    })
}
