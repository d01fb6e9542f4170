//! The functions that a section of unwind information describes, by address, and the rules of each.
//! The section is walked by its lengths, so one entry that makes no sense costs itself only.

use std::collections::HashMap;

use gimli::{
    BaseAddresses, CommonInformationEntry, FrameDescriptionEntry, LittleEndian, Register,
    RegisterRule, UnwindContext, UnwindContextStorage, UnwindOffset, UnwindSection, UnwindTableRow,
};
use profiler_common::unwind::UnwindFailure;

use super::{
    NoTable,
    elf::Segment,
    limits::BuildLimits,
    rule::{FrameReader, FunctionRules, Rule, rule},
    table::BuildStats,
};
use crate::units::ModuleAddress;

/// Most bytes of one entry. The largest real ones are some ten kilobytes.
const MAX_ENTRY_BYTES: usize = 1 << 20;
/// Most bytes of an entry that functions share: each function runs its instructions again. Real
/// ones are below a hundred.
const MAX_SHARED_BYTES: usize = 512;
/// Most shared entries kept.
const MAX_SHARED: usize = 65_536;

/// Room for the rules that real files need: registers at a time, remembered rows.
pub(super) struct Storage;

impl UnwindContextStorage<usize> for Storage {
    type Rules = [(Register, RegisterRule<usize>); 40];
    type Stack = Box<[UnwindTableRow<usize, Self>; 8]>;
}

/// One function.
#[derive(Clone, Copy, Debug)]
pub(super) struct FunctionSpan {
    pub(super) start: ModuleAddress,
    pub(super) end: ModuleAddress,
    pub(super) described: RulesAt,
}

/// Where a function's rules are.
#[derive(Clone, Copy, Debug)]
pub(super) enum RulesAt {
    /// In the section, at this offset.
    Frames(u32),
    /// In Go's table, under this number.
    Go(u32),
}

/// Puts functions in the order of their addresses, so that none overlaps another.
pub(super) fn put_in_order(spans: &mut Vec<FunctionSpan>, stats: &mut BuildStats) {
    spans.sort_by_key(|span| span.start);
    let before = spans.len();
    spans.dedup_by_key(|span| span.start);
    stats.functions_overlapping += (before - spans.len()) as u64;
    for index in 1..spans.len() {
        if spans[index - 1].end > spans[index].start {
            spans[index - 1].end = spans[index].start;
            stats.functions_overlapping += 1;
        }
    }
    stats.functions = spans.len() as u64;
}

/// A section and what has been found in it.
pub(super) struct FrameEntries<'a, Section> {
    section: Section,
    bytes: &'a [u8],
    debug_frame: bool,
    bases: BaseAddresses,
    shared: HashMap<usize, CommonInformationEntry<FrameReader<'a>>>,
    context: UnwindContext<usize, Storage>,
}

impl<'a, Section> FrameEntries<'a, Section>
where
    Section: UnwindSection<FrameReader<'a>>,
    Section::Offset: UnwindOffset<usize>,
{
    /// `section` reads `bytes`, which lie at `address`; `debug_frame` says in which form.
    pub(super) fn new(
        section: Section,
        bytes: &'a [u8],
        address: ModuleAddress,
        debug_frame: bool,
    ) -> Self {
        Self {
            section,
            bytes,
            debug_frame,
            bases: BaseAddresses::default().set_eh_frame(address.get()),
            shared: HashMap::new(),
            context: UnwindContext::new_in(),
        }
    }

    /// All functions within code, by address, none overlapping. An entry of length zero ends the
    /// section if `to_terminator`.
    pub(super) fn spans(
        &mut self,
        segments: &[Segment],
        to_terminator: bool,
        limits: &BuildLimits,
        keep_going: &mut dyn FnMut() -> bool,
        stats: &mut BuildStats,
    ) -> Result<Vec<FunctionSpan>, NoTable> {
        let mut spans = Vec::new();
        let mut at = 0;
        let mut entries = 0_u32;
        while let Some(entry) = entry_at(self.bytes, at) {
            let offset = at;
            at = entry.end;
            if entry.end - offset <= 4 {
                if to_terminator {
                    break;
                }
                continue;
            }
            entries = entries.wrapping_add(1);
            if entries.is_multiple_of(1024) && !keep_going() {
                return Err(NoTable::TooSlow);
            }
            if entry.end - offset > MAX_ENTRY_BYTES {
                stats.entries_refused += 1;
                continue;
            }
            if entry.is_shared(self.debug_frame) {
                continue;
            }
            let Some(function) = self.function(offset) else {
                stats.entries_refused += 1;
                continue;
            };
            let start = ModuleAddress::new(function.initial_address());
            let end = ModuleAddress::new(function.end_address());
            if end <= start {
                stats.functions_outside += 1;
                continue;
            }
            let inside = |segment: &&Segment| start >= segment.address && start < segment.end();
            let Some(segment) = segments.iter().find(inside) else {
                stats.functions_outside += 1;
                continue;
            };
            if spans.len() >= limits.max_functions {
                return Err(NoTable::TooManyFunctions);
            }
            spans.push(FunctionSpan {
                start,
                end: end.min(segment.end()),
                described: RulesAt::Frames(
                    u32::try_from(offset).map_err(|_| NoTable::SectionTooLarge)?,
                ),
            });
        }
        put_in_order(&mut spans, stats);
        Ok(spans)
    }

    /// Gives the rules of the function whose entry is at `offset` to `row`, by rising address. What
    /// makes no sense is unsupported from there to the end.
    pub(super) fn rules(
        &mut self,
        span: FunctionSpan,
        offset: u32,
        stats: &mut BuildStats,
        mut row: impl FnMut(ModuleAddress, Rule) -> Result<(), NoTable>,
    ) -> Result<(), NoTable> {
        let corrupt = Rule::unsupported(UnwindFailure::UnsupportedCorrupt);
        let Some(entry) = self.function(offset as usize) else {
            stats.functions_corrupt += 1;
            return row(span.start, corrupt);
        };
        let function = FunctionRules {
            signal: entry.is_signal_trampoline(),
            return_register: entry.cie().return_address_register(),
            encoding: entry.cie().encoding(),
        };
        let Ok(mut table) = entry.rows(&self.section, &self.bases, &mut self.context) else {
            stats.functions_corrupt += 1;
            return row(span.start, corrupt);
        };
        let mut reached = span.start;
        loop {
            match table.next_row() {
                Ok(Some(found)) => {
                    let start = ModuleAddress::new(found.start_address());
                    let end = ModuleAddress::new(found.end_address());
                    if start >= span.end {
                        return Ok(());
                    }
                    stats.rows_read += 1;
                    row(start, rule(&self.section, function, found))?;
                    reached = end.clamp(reached, span.end);
                }
                Ok(None) => return Ok(()),
                Err(_) => {
                    stats.functions_corrupt += 1;
                    return row(reached, corrupt);
                }
            }
        }
    }

    /// Bytes of the entry at `offset`.
    pub(super) fn entry_bytes(&self, offset: u32) -> usize {
        let offset = offset as usize;
        entry_at(self.bytes, offset).map_or(0, |entry| entry.end - offset)
    }

    fn function(&mut self, offset: usize) -> Option<FrameDescriptionEntry<FrameReader<'a>>> {
        let shared = &mut self.shared;
        let bytes = self.bytes;
        self.section
            .fde_from_offset(&self.bases, offset.into(), |section, bases, offset| {
                let key: usize = UnwindOffset::into(offset);
                if let Some(known) = shared.get(&key) {
                    return Ok(known.clone());
                }
                if entry_at(bytes, key).is_none_or(|entry| entry.end - key > MAX_SHARED_BYTES) {
                    return Err(gimli::Error::NoUnwindInfoForAddress);
                }
                let found = section.cie_from_offset(bases, offset)?;
                if shared.len() < MAX_SHARED {
                    shared.insert(key, found.clone());
                }
                Ok(found)
            })
            .ok()
    }
}

/// Where an entry ends, and whom it belongs to.
struct FrameEntry {
    end: usize,
    id: u64,
    wide: bool,
}

impl FrameEntry {
    /// Whether functions share it, as opposed to being one.
    const fn is_shared(&self, debug_frame: bool) -> bool {
        if !debug_frame {
            self.id == 0
        } else if self.wide {
            self.id == u64::MAX
        } else {
            self.id == u32::MAX as u64
        }
    }
}

/// The entry at an offset; nothing at the end, and where a length leads out of the section.
fn entry_at(bytes: &[u8], at: usize) -> Option<FrameEntry> {
    let word = |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
    let long = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
    let length = word(at)?;
    if length == 0 {
        return Some(FrameEntry {
            end: at + 4,
            id: 0,
            wide: false,
        });
    }
    let wide = length == u32::MAX;
    let (body, length) = if wide {
        (at + 12, usize::try_from(long(at + 4)?).ok()?)
    } else {
        (at + 4, length as usize)
    };
    let end = body.checked_add(length).filter(|end| *end <= bytes.len())?;
    // `.eh_frame` has a 32-bit id also in wide entries; `.debug_frame` then has 64 bits.
    let id = match (wide, word(body)?) {
        (true, u32::MAX) => long(body)?,
        (_, id) => u64::from(id),
    };
    Some(FrameEntry { end, id, wide })
}

/// A view of the bytes as gimli wants them.
pub(super) fn bytes(section: &[u8]) -> FrameReader<'_> {
    FrameReader::new(section, LittleEndian)
}
