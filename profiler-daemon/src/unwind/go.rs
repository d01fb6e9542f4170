//! What Go's runtime knows of a program's functions (`.gopclntab`, which every Go program has,
//! stripped or not): where each begins, how far its frame reaches at each instruction, where stacks
//! end, and which functions leave their stack. From Go 1.18 on. Go's `.debug_frame` says less: not
//! where rbp is saved, which the way back from another stack needs.
//!
//! Hostile bytes: what makes no sense, or does not fit the code, is as if it were not there.

use profiler_common::unwind::{FRAME_BELOW_RETURN, FRAME_UNCHANGED, UnwindFailure, kind};

use super::{
    NoTable,
    elf::{Elf, ReadAt, Segment},
    frames::{FunctionSpan, RulesAt},
    holes::TRAMPOLINE,
    limits::BuildLimits,
    rule::Rule,
    section,
    table::BuildStats,
};
use crate::units::ModuleAddress;

/// What tables begin with, by version: from Go 1.18 on, and from Go 1.20 on.
const MAGIC_1_18: u32 = 0xffff_fff0;
const MAGIC_1_20: u32 = 0xffff_fff1;
/// Bytes of the header: the mark, four bytes, and eight words.
const HEADER_BYTES: u64 = 72;
/// Most rows of one function that are read. A real one has a few.
const MAX_ROWS: usize = 16_384;
/// Functions whose code is looked at to learn whether the table fits it.
const MAX_SAMPLES: usize = 64;
/// How far behind the beginning of its section Go's code is looked for, in bytes, and what its
/// address is a multiple of.
const SEARCHED_BYTES: u64 = 64 << 10;
const CODE_ALIGNMENT: usize = 16;
/// Most bytes of code that is looked at.
const CODE_BYTES: usize = TRAMPOLINE.len();

/// Flags of a function.
mod flag {
    /// Stacks end here.
    pub(super) const TOP_FRAME: u8 = 1;
    /// It sets the stack pointer to something that its rows do not say.
    pub(super) const LEAVES_STACK: u8 = 2;
    /// Written by hand.
    pub(super) const ASSEMBLY: u8 = 4;
}

/// The functions of one program.
#[derive(Debug)]
pub(super) struct GoFunctions {
    /// From the rows on.
    bytes: Vec<u8>,
    /// Where in them the functions begin: numbers by address, and what those lead to.
    functions: usize,
    count: u32,
    /// Where in a function its kind is.
    kind_at: usize,
    /// Where the first code is.
    text: ModuleAddress,
}

/// One function.
#[derive(Clone, Copy, Debug)]
struct GoFunction {
    start: ModuleAddress,
    /// Where its rows are.
    rows: usize,
    /// Not 0: one that the runtime knows by name.
    kind: u8,
    flags: u8,
}

impl GoFunctions {
    /// `None` where there are none, or they make no sense.
    pub(super) fn read(
        elf: &Elf,
        file: &(impl ReadAt + ?Sized),
        limits: &BuildLimits,
    ) -> Option<Self> {
        let table = elf
            .go_table
            .as_ref()
            .filter(|table| !table.is_compressed())?;
        let mut header = [0; HEADER_BYTES as usize];
        if table.size_bytes < HEADER_BYTES || !file.read_at(table.offset, &mut header) {
            return None;
        }
        let kind_at = match u32_at(&header, 0)? {
            MAGIC_1_18 => 36,
            MAGIC_1_20 => 40,
            _ => return None,
        };
        let [count, _, text, _, _, _, rows, functions] = {
            let mut words = header[8..].chunks_exact(8);
            [(); 8].map(|()| words.next().and_then(|word| u64_at(word, 0)).unwrap_or(0))
        };
        let size_bytes = table.size_bytes.checked_sub(rows)?;
        let offset = table.offset.checked_add(rows)?;
        let read = section::read(file, offset, size_bytes, limits.max_section_bytes);
        let mut found = Self {
            bytes: read.ok()?,
            functions: usize::try_from(functions.checked_sub(rows)?).ok()?,
            count: u32::try_from(count).ok()?,
            kind_at,
            text: ModuleAddress::ZERO,
        };
        if count > limits.max_functions as u64
            || found.end_of(found.count.checked_sub(1)?).is_none()
        {
            return None;
        }
        // Newer programs do not say where their code begins: where the section does, or, made by
        // C's linker, some way behind.
        let known = [ModuleAddress::new(text), elf.text]
            .into_iter()
            .map(|text| (text, 1));
        let behind = (0..SEARCHED_BYTES).step_by(CODE_ALIGNMENT);
        let searched = behind.map(|behind| (elf.text.saturating_add(behind), MAX_SAMPLES));
        let frames = found.sampled_frames();
        let (text, _) = known.chain(searched).find(|(text, samples)| {
            *text != ModuleAddress::ZERO
                && frames.len() >= *samples
                && fit(&frames, *text, elf, file)
        })?;
        found.text = text;
        Some(found)
    }

    /// The functions within code, by address.
    pub(super) fn spans(
        &self,
        segments: &[Segment],
        stats: &mut BuildStats,
    ) -> impl Iterator<Item = FunctionSpan> {
        (0..self.count).filter_map(move |number| {
            let (start, end) = (self.start_of(number)?, self.end_of(number)?);
            let inside = |segment: &&Segment| start >= segment.address && start < segment.end();
            let segment = segments.iter().find(inside);
            if segment.is_none() || end <= start {
                stats.functions_outside += 1;
            }
            Some(FunctionSpan {
                start,
                end: end.min(segment?.end()),
                described: RulesAt::Go(number),
            })
            .filter(|span| span.end > span.start)
        })
    }

    /// Gives the rules of a function to `row`, by rising address. What makes no sense is
    /// unsupported from there to the end.
    pub(super) fn rules(
        &self,
        span: FunctionSpan,
        number: u32,
        read_code: impl Fn(ModuleAddress, &mut [u8]) -> bool,
        stats: &mut BuildStats,
        mut row: impl FnMut(ModuleAddress, Rule) -> Result<(), NoTable>,
    ) -> Result<(), NoTable> {
        let corrupt = Rule::unsupported(UnwindFailure::UnsupportedCorrupt);
        let Some(function) = self.function(number) else {
            stats.functions_corrupt += 1;
            return row(span.start, corrupt);
        };
        let is_assembly = function.flags & flag::ASSEMBLY != 0;
        // The handler of signals is a top frame too, but what it interrupted is known.
        if function.flags & flag::TOP_FRAME != 0 && function.kind != 0 {
            return row(span.start, Rule::STOP);
        }
        let mut code = [0; CODE_BYTES];
        if is_assembly && read_code(span.start, &mut code) && code == TRAMPOLINE {
            stats.trampolines += 1;
            // Handlers return to its first byte, and callers are looked up one byte before where
            // they go on.
            return row(span.start.saturating_sub(1), Rule::SIGNAL);
        }
        let first = self.first_frame(function);
        let has_frame = first.is_some();
        let frame = match first {
            Some((at, _)) if is_assembly && !saves_frame_pointer(at, read_code) => FRAME_UNCHANGED,
            _ => FRAME_BELOW_RETURN,
        };
        for (index, (address, frame_bytes)) in self.rows(function).enumerate() {
            if address >= span.end {
                break;
            }
            let param = frame_bytes.checked_add(8).filter(|_| index < MAX_ROWS);
            let Some(param) = param.filter(|param| *param >= 8) else {
                stats.functions_corrupt += 1;
                return row(address, corrupt);
            };
            stats.rows_read += 1;
            let leaves_stack = function.flags & flag::LEAVES_STACK != 0;
            let rule = if leaves_stack && (frame_bytes > 0 || !has_frame) {
                // Where it lies is not known; rbp is kept, or cleared where the stack has nothing
                // to do with its caller's.
                Rule::OTHER_STACK
            } else {
                Rule {
                    kind: kind::CFA_RSP,
                    frame: if frame_bytes > 0 {
                        frame
                    } else {
                        FRAME_UNCHANGED
                    },
                    param,
                }
            };
            row(address, rule)?;
        }
        Ok(())
    }

    /// Where frames of compiled functions begin, of some functions from all over the table. Before
    /// `text` is known: by addresses from 0 on.
    fn sampled_frames(&self) -> Vec<GoFrame> {
        let step = (self.count as usize / (4 * MAX_SAMPLES)).max(1);
        let compiled = (0..self.count).step_by(step).filter_map(|number| {
            let function = self.function(number)?;
            let (address, frame_bytes) = self.first_frame(function)?;
            let is_compiled = function.flags & flag::ASSEMBLY == 0;
            is_compiled.then_some(GoFrame {
                from_text: address - ModuleAddress::ZERO,
                code_bytes: address - function.start,
                frame_bytes,
            })
        });
        compiled.take(MAX_SAMPLES).collect()
    }

    /// From which address on a function has a frame, and of how many bytes at first.
    fn first_frame(&self, function: GoFunction) -> Option<(ModuleAddress, i32)> {
        self.rows(function)
            .take(MAX_ROWS)
            .find(|(_, frame_bytes)| *frame_bytes > 0)
    }

    /// The address of a function.
    fn start_of(&self, number: u32) -> Option<ModuleAddress> {
        let at = self.functions.checked_add(number as usize * 8)?;
        self.text.checked_add(u64::from(u32_at(&self.bytes, at)?))
    }

    /// The address behind a function: where the next one begins.
    fn end_of(&self, number: u32) -> Option<ModuleAddress> {
        self.start_of(number.checked_add(1)?)
    }

    fn function(&self, number: u32) -> Option<GoFunction> {
        let entry = self.functions.checked_add(number as usize * 8)?;
        let at = u32_at(&self.bytes, entry + 4)? as usize;
        let at = self.functions.checked_add(at)?;
        Some(GoFunction {
            start: self.start_of(number)?,
            rows: u32_at(&self.bytes, at.checked_add(16)?)? as usize,
            kind: *self.bytes.get(at + self.kind_at)?,
            flags: *self.bytes.get(at + self.kind_at + 1)?,
        })
    }

    /// From which address on the frame has how many bytes, the return address not among them.
    fn rows(&self, function: GoFunction) -> RowsOf<'_> {
        let bytes = self
            .bytes
            .get(function.rows..)
            .filter(|_| function.rows > 0);
        RowsOf {
            bytes: bytes.unwrap_or_default(),
            address: function.start,
            frame_bytes: -1,
            is_first: true,
        }
    }
}

/// Where a function's first frame begins.
#[derive(Clone, Copy, Debug)]
struct GoFrame {
    /// Bytes from the first code.
    from_text: u64,
    /// Bytes of the function before that.
    code_bytes: u64,
    frame_bytes: i32,
}

/// Whether the code from `text` on is what the table says: all of these frames begin behind
/// instructions that make room for them.
fn fit(frames: &[GoFrame], text: ModuleAddress, elf: &Elf, file: &(impl ReadAt + ?Sized)) -> bool {
    frames.iter().all(|frame| {
        let mut code = [0; 7];
        let length = frame.code_bytes.min(code.len() as u64);
        let before = code.len() - length as usize;
        let start = text.checked_add(frame.from_text - length);
        start.is_some_and(|start| elf.read_code(file, start, &mut code[before..]))
            && makes_room(code, frame.frame_bytes)
    })
}

/// See [`GoFunctions::rows`]. Pairs of how much the frame grows, and for how many bytes of code it
/// stays so.
struct RowsOf<'a> {
    bytes: &'a [u8],
    address: ModuleAddress,
    frame_bytes: i32,
    is_first: bool,
}

impl Iterator for RowsOf<'_> {
    type Item = (ModuleAddress, i32);

    fn next(&mut self) -> Option<(ModuleAddress, i32)> {
        let growth = self.number()?;
        if growth == 0 && !self.is_first {
            return None;
        }
        self.is_first = false;
        // The sign is in the lowest bit.
        let growth = (growth >> 1) as i32 ^ -((growth & 1) as i32);
        self.frame_bytes = self.frame_bytes.wrapping_add(growth);
        let row = (self.address, self.frame_bytes);
        self.address = self.address.checked_add(u64::from(self.number()?))?;
        Some(row)
    }
}

impl RowsOf<'_> {
    /// A number in pieces of seven bits, the lowest first.
    fn number(&mut self) -> Option<u32> {
        let mut number = 0_u32;
        for shift in (0..32).step_by(7) {
            let (byte, rest) = self.bytes.split_first()?;
            self.bytes = rest;
            number |= u32::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Some(number);
            }
        }
        None
    }
}

/// Whether an instruction that ends with this code makes a frame of so many bytes: `push %rbp`,
/// `sub $n, %rsp`, or `add $-128, %rsp`.
fn makes_room(code: [u8; 7], frame_bytes: i32) -> bool {
    let [.., last] = code;
    let by_push = last == 0x55 && frame_bytes == 8;
    let by_byte = code[3..6] == [0x48, 0x83, 0xec] && i32::from(last) == frame_bytes;
    let by_word = code[..3] == [0x48, 0x81, 0xec] && code[3..] == frame_bytes.to_le_bytes();
    let by_128 = code[3..] == [0x48, 0x83, 0xc4, 0x80] && frame_bytes == 128;
    by_push || by_byte || by_word || by_128
}

/// Whether rbp is saved right below the return address by a frame that is there from this address
/// on: pushed before, or stored behind.
fn saves_frame_pointer(
    address: ModuleAddress,
    read_code: impl Fn(ModuleAddress, &mut [u8]) -> bool,
) -> bool {
    const STORES: [&[u8]; 2] = [&[0x48, 0x89, 0x6c, 0x24], &[0x48, 0x89, 0xac, 0x24]];
    let mut code = [0; 5];
    let start = address.saturating_sub(1);
    read_code(start, &mut code) && (code[0] == 0x55 || STORES.contains(&&code[1..]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(at..)?.first_chunk::<4>()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    Some(u64::from_le_bytes(*bytes.get(at..)?.first_chunk::<8>()?))
}
