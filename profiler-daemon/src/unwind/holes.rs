//! Rules for code that no unwind information covers: signal trampolines and a program's first
//! instructions are known by their shape, the rest is read (`code`). Bounded in bytes per file.

use std::ops::Range;

use super::{
    NoTable,
    code::{CodeReader, MAX_FUNCTION_BYTES, call_targets},
    elf::{Elf, ReadAt},
    frames::FunctionSpan,
    limits::{BuildLimits, PADDING_BYTES},
    rule::Rule,
    table::BuildStats,
};
use crate::units::ModuleAddress;

/// Code at the program's entry is taken for its first instructions, up to this many bytes or the
/// next function.
const ENTRY_BYTES: u64 = 64;
/// `mov $15, %rax; syscall`: how a signal handler returns.
pub(super) const TRAMPOLINE: [u8; 9] = [0x48, 0xc7, 0xc0, 0x0f, 0x00, 0x00, 0x00, 0x0f, 0x05];
/// Most trampolines taken from one file.
const MAX_TRAMPOLINES: u64 = 64;
/// Code is looked through in pieces of this many bytes.
const PIECE_BYTES: usize = 64 << 10;
/// Bytes at the end of a piece that the next one begins with, at least: an instruction and a
/// trampoline, so that none is cut in two.
const KEPT_BYTES: usize = 15 + TRAMPOLINE.len();

/// Code without unwind information whose rule is known all the same.
#[derive(Clone, Copy, Debug)]
struct Shape {
    start: ModuleAddress,
    end: ModuleAddress,
    rule: Rule,
}

/// Holes after which it is asked whether to go on.
const ASK_HOLES: usize = 1024;

/// What it takes to look through a file's code.
struct HoleSearch<'a, File: ?Sized> {
    elf: &'a Elf,
    file: &'a File,
    limits: &'a BuildLimits,
    /// Bytes that may still be read.
    left: u64,
    keep_going: &'a mut dyn FnMut() -> bool,
    stats: &'a mut BuildStats,
    /// The rule of what could not be read.
    gap: Rule,
}

/// The rules that hold in the holes between functions, from the address they are given with to the
/// next, by rising address. After each hole `gap` follows.
pub(super) fn fill(
    elf: &Elf,
    file: &(impl ReadAt + ?Sized),
    spans: &[FunctionSpan],
    gap: Rule,
    limits: &BuildLimits,
    keep_going: &mut dyn FnMut() -> bool,
    stats: &mut BuildStats,
) -> Result<Vec<(ModuleAddress, Rule)>, NoTable> {
    let mut search = HoleSearch {
        elf,
        file,
        limits,
        left: limits.max_scan_bytes,
        keep_going,
        stats,
        gap,
    };
    let holes = holes(elf, spans);
    let mut starts =
        elf.function_starts(file, limits.max_functions, |address| is_in(&holes, address));
    let mut trampolines = Vec::new();
    for (index, hole) in holes.iter().enumerate() {
        search.ask(index)?;
        search.scan(hole, &mut starts, &mut trampolines)?;
    }
    starts.sort_unstable();
    starts.dedup();
    let mut filling = Vec::new();
    let mut reader = CodeReader::new();
    for (index, hole) in holes.iter().enumerate() {
        search.ask(index)?;
        let mut at = hole.start;
        for shape in shapes(elf, hole, &starts, &trampolines) {
            search.read(&mut reader, at..shape.start, &starts, &mut filling)?;
            filling.push((shape.start, shape.rule));
            filling.push((shape.end, gap));
            at = shape.end;
        }
        search.read(&mut reader, at..hole.end, &starts, &mut filling)?;
        filling.push((hole.end, gap));
    }
    Ok(filling)
}

impl<File: ReadAt + ?Sized> HoleSearch<'_, File> {
    /// Asks whether to go on, now and then.
    fn ask(&mut self, hole: usize) -> Result<(), NoTable> {
        if hole % ASK_HOLES == ASK_HOLES - 1 && !(self.keep_going)() {
            return Err(NoTable::TooSlow);
        }
        Ok(())
    }

    /// Looks through a hole once: adds where direct calls lead to within it, and the trampolines.
    fn scan(
        &mut self,
        hole: &Range<ModuleAddress>,
        starts: &mut Vec<ModuleAddress>,
        trampolines: &mut Vec<ModuleAddress>,
    ) -> Result<(), NoTable> {
        let mut piece = vec![0; PIECE_BYTES.min((hole.end - hole.start) as usize)];
        let mut at = hole.start;
        while at < hole.end && self.left > 0 {
            let length = (hole.end - at).min(PIECE_BYTES as u64);
            let code = &mut piece[..length as usize];
            if !self.elf.read_code(self.file, at, code) {
                break;
            }
            self.left = self.left.saturating_sub(length);
            let is_last = length == hole.end - at;
            let room = self.limits.max_functions.saturating_sub(starts.len());
            let keep_bytes = if is_last { 0 } else { KEPT_BYTES };
            let targets = call_targets(code, at, keep_bytes);
            let within = targets
                .found
                .into_iter()
                .filter(|target| hole.contains(target));
            starts.extend(within.take(room));
            for (position, bytes) in code.windows(TRAMPOLINE.len()).enumerate() {
                let is_new = is_last || position < targets.read_bytes;
                if is_new && bytes == TRAMPOLINE && self.stats.trampolines < MAX_TRAMPOLINES {
                    self.stats.trampolines += 1;
                    trampolines.push(at + position as u64);
                }
            }
            if is_last {
                break;
            }
            at += targets.read_bytes as u64;
            if !(self.keep_going)() {
                return Err(NoTable::TooSlow);
            }
        }
        Ok(())
    }

    /// Reads the code of a hole, or of a part of one, function by function.
    fn read(
        &mut self,
        reader: &mut CodeReader,
        part: Range<ModuleAddress>,
        starts: &[ModuleAddress],
        filling: &mut Vec<(ModuleAddress, Rule)>,
    ) -> Result<(), NoTable> {
        let mut code = Vec::new();
        let Range { start: mut at, end } = part;
        while at < end {
            let next = starts.partition_point(|start| *start <= at);
            let next = starts.get(next).map_or(end, |next| (*next).min(end));
            let length = (next - at).min(MAX_FUNCTION_BYTES as u64);
            if length > self.left {
                break;
            }
            self.left -= length;
            code.resize(length as usize, 0);
            if !self.elf.read_code(self.file, at, &mut code) {
                break;
            }
            self.stats.functions_read += 1;
            reader.rules(&code, at, |address, rule| {
                if filling.last().is_none_or(|(_, last)| *last != rule) {
                    filling.push((address, rule));
                }
            });
            if filling.len() > self.limits.max_rows {
                return Err(NoTable::TooManyRows);
            }
            if length < next - at {
                filling.push((at + length, self.gap));
            }
            at = next;
            if !(self.keep_going)() {
                return Err(NoTable::TooSlow);
            }
        }
        Ok(())
    }
}

/// The known shapes in a hole, by address, none overlapping. `starts` of functions and
/// `trampolines` rise.
fn shapes(
    elf: &Elf,
    hole: &Range<ModuleAddress>,
    starts: &[ModuleAddress],
    trampolines: &[ModuleAddress],
) -> Vec<Shape> {
    let mut shapes = Vec::new();
    if hole.contains(&elf.entry) {
        let next = starts.partition_point(|start| *start <= elf.entry);
        let next = starts
            .get(next)
            .map_or(ModuleAddress::new(u64::MAX), |next| *next);
        shapes.push(Shape {
            start: elf.entry,
            end: elf
                .entry
                .saturating_add(ENTRY_BYTES)
                .min(next)
                .min(hole.end),
            rule: Rule::STOP,
        });
    }
    for found in trampolines.iter().filter(|found| hole.contains(found)) {
        shapes.push(Shape {
            // A handler returns to its first byte, and callers are looked up one byte before where
            // they go on.
            start: found.saturating_sub(1).max(hole.start),
            end: *found + TRAMPOLINE.len() as u64,
            rule: Rule::SIGNAL,
        });
    }
    shapes.sort_by_key(|shape| shape.start);
    for index in 1..shapes.len() {
        shapes[index - 1].end = shapes[index - 1].end.min(shapes[index].start);
    }
    shapes
}

/// Code that no function covers and that is no padding, by address.
fn holes(elf: &Elf, spans: &[FunctionSpan]) -> Vec<Range<ModuleAddress>> {
    let mut holes = Vec::new();
    for segment in &elf.segments {
        let from = spans.partition_point(|span| span.start < segment.address);
        let to = spans.partition_point(|span| span.start < segment.end());
        let mut at = segment.address;
        for span in spans.get(from..to).unwrap_or_default() {
            if span.start.checked_from(at).unwrap_or(0) >= PADDING_BYTES {
                holes.push(at..span.start);
            }
            at = at.max(span.end);
        }
        if segment.end().checked_from(at).unwrap_or(0) >= PADDING_BYTES {
            holes.push(at..segment.end());
        }
    }
    holes
}

fn is_in(holes: &[Range<ModuleAddress>], address: ModuleAddress) -> bool {
    let after = holes.partition_point(|hole| hole.start <= address);
    after
        .checked_sub(1)
        .is_some_and(|index| holes[index].contains(&address))
}
