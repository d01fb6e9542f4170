//! Names of code made at run time, from the file that its engine writes: `/tmp/perf-PID.map`, a
//! line for each function, as the kernel's perf documents it
//! (tools/perf/Documentation/jit-interface.txt). `START SIZE NAME`, numbers in hexadecimal.
//!
//! Whoever runs the process writes the file, so: every size and number is bounded, what makes no
//! sense is passed over, and the work grows with the number of lines whatever they say. Engines
//! append and never take back, so of two functions at one address the later line holds: names that
//! were found before it was written are to be forgotten ([`PerfMaps::look_again`]).

use std::{
    collections::HashMap,
    fs::File,
    os::unix::fs::{FileExt as _, MetadataExt as _},
    sync::Arc,
};

use super::names::{FunctionKind, FunctionName, Unnamed};
use crate::processes::{files::ModuleFile, module::ModuleId};
use crate::units::{ModuleAddress, MonoNs, VirtualAddress};

/// Most bytes read of one file. Beyond that, what was written first is left out.
const MAX_FILE_BYTES: u64 = 32 << 20;
/// Most functions of one file, some 48 bytes each with the places they begin and end at. Beyond
/// that, what was written first is left out.
const MAX_FUNCTIONS: usize = 1 << 19;
/// Longest name kept, bytes.
const MAX_NAME_BYTES: usize = 512;
/// Largest function believed, bytes.
const MAX_FUNCTION_BYTES: u64 = 64 << 20;
/// Files kept in memory.
const MAX_LOADED: usize = 4;
/// Most bytes that they take together, unless the one used last takes more.
const MAX_LOADED_BYTES: usize = 64 << 20;
/// Files of which it is known how they were when names were found in them. The names of others are
/// found anew at each question.
const MAX_KNOWN: usize = 4096;
/// A file that has changed is read again at most this often, nanoseconds.
const AGAIN_NS: u64 = 2_000_000_000;
/// A file that nobody asked for is dropped after this time, nanoseconds.
const KEEP_NS: u64 = 60_000_000_000;

/// No function.
const NOBODY: u32 = u32::MAX;

/// Functions by address, none overlapping.
#[derive(Debug, Default)]
struct Map {
    text: Box<[u8]>,
    functions: Vec<MapEntry>,
    /// Where functions begin and end, in order, none twice.
    bounds: Vec<VirtualAddress>,
    /// For each of these, whose addresses follow up to the next one: an index of `functions`, or
    /// [`NOBODY`].
    owners: Vec<u32>,
    /// Whether it lacks functions that were written first.
    cut: bool,
}

#[derive(Clone, Copy, Debug)]
struct MapEntry {
    start: VirtualAddress,
    end: VirtualAddress,
    name: (u32, u32),
}

impl Map {
    fn parse(text: Vec<u8>) -> Self {
        let mut functions = Vec::new();
        // The last line first: what it covers is taken.
        let mut end = text.len();
        while end > 0 && functions.len() < MAX_FUNCTIONS {
            let start = text[..end - 1]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |newline| newline + 1);
            functions.extend(parse_line(&text, start, end));
            end = start;
        }
        let bounds = functions.iter().flat_map(|each| [each.start, each.end]);
        let mut bounds: Vec<VirtualAddress> = bounds.collect();
        bounds.sort_unstable();
        bounds.dedup();
        bounds.shrink_to_fit();
        functions.shrink_to_fit();
        Self {
            owners: owners(&functions, &bounds),
            text: text.into(),
            functions,
            bounds,
            cut: end > 0,
        }
    }

    /// Memory held, bytes.
    fn held_bytes(&self) -> usize {
        self.text.len()
            + self.functions.capacity() * size_of::<MapEntry>()
            + self.bounds.capacity() * size_of::<VirtualAddress>()
            + self.owners.capacity() * size_of::<u32>()
    }

    fn find(&self, address: VirtualAddress) -> Option<FunctionName> {
        let behind = self.bounds.partition_point(|bound| *bound <= address);
        let owner = *self.owners.get(behind.checked_sub(1)?)?;
        let function = self.functions.get(owner as usize)?;
        let (from, to) = function.name;
        let name = self.text.get(from as usize..to as usize)?;
        Some(FunctionName {
            name: String::from_utf8_lossy(name)
                .chars()
                .map(|c| {
                    if c.is_control() {
                        char::REPLACEMENT_CHARACTER
                    } else {
                        c
                    }
                })
                .collect(),
            address: Some(ModuleAddress::of_address(function.start)),
            kind: FunctionKind::Jit,
            known: true,
        })
    }
}

/// Gives each piece between two bounds to the first function that covers it. Each piece is given
/// once and then stepped over, so this takes about as many steps as there are functions and pieces,
/// however much they overlap.
fn owners(functions: &[MapEntry], bounds: &[VirtualAddress]) -> Vec<u32> {
    let mut owners = vec![NOBODY; bounds.len()];
    // For each piece, one at or behind it before which none is free; for a free one, itself.
    let mut next_free: Vec<u32> = (0..=bounds.len()).map(index).collect();
    for (number, function) in functions.iter().enumerate() {
        let place = |address| bounds.partition_point(|bound| *bound < address);
        let end = place(function.end);
        let mut piece = first_free(&mut next_free, place(function.start));
        while piece < end {
            owners[piece] = index(number);
            next_free[piece] = index(piece + 1);
            piece = first_free(&mut next_free, piece + 1);
        }
    }
    owners
}

/// The first free piece at or behind this one. Halves the way for the next look.
fn first_free(next_free: &mut [u32], mut piece: usize) -> usize {
    while next_free[piece] as usize != piece {
        next_free[piece] = next_free[next_free[piece] as usize];
        piece = next_free[piece] as usize;
    }
    piece
}

fn index(number: usize) -> u32 {
    u32::try_from(number).expect("at most two bounds for each of MAX_FUNCTIONS")
}

/// The function of the line in that range of the text.
fn parse_line(text: &[u8], start: usize, end: usize) -> Option<MapEntry> {
    let line = text.get(start..end)?;
    let number = |from: usize| {
        let rest = line.get(from..)?;
        let rest = rest.strip_prefix(b"0x").unwrap_or(rest);
        let digits = rest
            .iter()
            .take_while(|byte| byte.is_ascii_hexdigit())
            .count();
        let digits = std::str::from_utf8(&rest[..digits]).ok()?;
        let value = u64::from_str_radix(digits, 16).ok()?;
        let behind = line.len() - rest.len() + digits.len();
        (line.get(behind) == Some(&b' ')).then_some((value, behind + 1))
    };
    let (address, at) = number(0)?;
    let address = VirtualAddress::new(address);
    let (size, at) = number(at)?;
    let name = line.get(at..)?.trim_ascii();
    if name.is_empty() || size == 0 || size > MAX_FUNCTION_BYTES {
        return None;
    }
    let name_start = start + at + (line.len() - at - line[at..].trim_ascii_start().len());
    let name_end = name_start + name.len().min(MAX_NAME_BYTES);
    Some(MapEntry {
        start: address,
        end: address.checked_add(size)?,
        name: (
            u32::try_from(name_start).ok()?,
            u32::try_from(name_end).ok()?,
        ),
    })
}

#[derive(Debug)]
struct LoadedMap {
    map: Map,
    used_ns: MonoNs,
}

/// How a file was at a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Version {
    inode: u64,
    size_bytes: u64,
    modified: (i64, i64),
}

impl Version {
    /// Of a file that nobody can look at: an empty one.
    fn of(file: &File) -> Self {
        file.metadata().map_or_else(
            |_| Self::default(),
            |found| Self {
                inode: found.ino(),
                size_bytes: found.size(),
                modified: (found.mtime(), found.mtime_nsec()),
            },
        )
    }
}

#[derive(Clone, Copy, Debug)]
struct KnownVersion {
    version: Version,
    since_ns: MonoNs,
}

/// The files read lately.
#[derive(Debug, Default)]
pub(super) struct PerfMaps {
    loaded: HashMap<ModuleId, LoadedMap>,
    /// What names are found in, also once it is no longer loaded: what was written later is not
    /// read until somebody looks again.
    known: HashMap<ModuleId, KnownVersion>,
    cut: u64,
}

impl PerfMaps {
    /// How many times a file had more functions than are kept, and lost those that were written
    /// first.
    pub(super) fn cut(&self) -> u64 {
        self.cut
    }

    /// Takes the file as it is now, if it has changed and the last look is long enough ago. True if
    /// names that were found in it before may be wrong now.
    pub(super) fn look_again(&mut self, file: &ModuleFile, now_ns: MonoNs) -> bool {
        let module = file.module;
        let known = self.known.get(&module);
        if known.is_some_and(|known| now_ns.saturating_since(known.since_ns) < AGAIN_NS) {
            return false;
        }
        let version = Version::of(&file.file);
        if known.is_some_and(|known| known.version == version) {
            return false;
        }
        if known.is_none() && self.known.len() >= MAX_KNOWN {
            let oldest = self.known.iter().min_by_key(|(_, each)| each.since_ns);
            let oldest = oldest.map(|(module, _)| *module);
            oldest.and_then(|oldest| self.known.remove(&oldest));
        }
        let since_ns = now_ns;
        self.known
            .insert(module, KnownVersion { version, since_ns });
        self.loaded.remove(&module);
        true
    }

    /// The functions at addresses of one process, as the file was at the last look.
    pub(super) fn names(
        &mut self,
        file: &Arc<ModuleFile>,
        addresses: &[VirtualAddress],
        now_ns: MonoNs,
    ) -> Vec<Result<FunctionName, Unnamed>> {
        let module = file.module;
        if !self.loaded.contains_key(&module) {
            let known = self.known.get(&module);
            let size_bytes = known.map_or(0, |known| known.version.size_bytes);
            let map = Map::parse(read(&file.file, size_bytes));
            self.cut += u64::from(map.cut || size_bytes > MAX_FILE_BYTES);
            self.make_room(map.held_bytes());
            let used_ns = now_ns;
            self.loaded.insert(module, LoadedMap { map, used_ns });
        }
        let Some(loaded) = self.loaded.get_mut(&module) else {
            return vec![Err(Unnamed::Jit); addresses.len()];
        };
        loaded.used_ns = now_ns;
        let find = |address: &VirtualAddress| loaded.map.find(*address).ok_or(Unnamed::Jit);
        addresses.iter().map(find).collect()
    }

    /// Drops those asked for longest ago until another one of this size fits.
    fn make_room(&mut self, bytes: usize) {
        let held = |loaded: &HashMap<ModuleId, LoadedMap>| -> usize {
            loaded.values().map(|each| each.map.held_bytes()).sum()
        };
        while self.loaded.len() >= MAX_LOADED || held(&self.loaded) + bytes > MAX_LOADED_BYTES {
            let oldest = self.loaded.iter().min_by_key(|(_, each)| each.used_ns);
            let Some(oldest) = oldest.map(|(module, _)| *module) else {
                return;
            };
            self.loaded.remove(&oldest);
        }
    }

    /// Drops what nobody asked for lately.
    pub(super) fn unload(&mut self, now_ns: MonoNs) {
        self.loaded
            .retain(|_, loaded| now_ns.saturating_since(loaded.used_ns) < KEEP_NS);
    }
}

/// The last bytes of the file, from the beginning of a line on. What cannot be read is not there.
fn read(file: &File, size_bytes: u64) -> Vec<u8> {
    let from = size_bytes.saturating_sub(MAX_FILE_BYTES);
    let mut text = vec![0; usize::try_from(size_bytes - from).unwrap_or(0)];
    let mut done = 0;
    while done < text.len() {
        match file.read_at(&mut text[done..], from + done as u64) {
            Ok(0) | Err(_) => break,
            Ok(bytes) => done += bytes,
        }
    }
    text.truncate(done);
    if from > 0
        && let Some(newline) = text.iter().position(|byte| *byte == b'\n')
    {
        text.drain(..=newline);
    }
    text
}

/// What reads the file, for `crate::fuzzing`.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing {
    use super::{MAX_NAME_BYTES, Map, ModuleAddress, parse_line};

    /// Finds at each bound what a search through all lines from the last to the first finds.
    pub(in crate::symbols) fn check(text: &[u8]) {
        let map = Map::parse(text.to_vec());
        assert!(map.bounds.is_sorted_by(|a, b| a < b));
        let mut at = 0;
        let lines = text.split_inclusive(|byte| *byte == b'\n').map(|line| {
            at += line.len();
            (at - line.len(), at)
        });
        let lines = lines.filter_map(|(start, end)| parse_line(text, start, end));
        let lines: Vec<_> = lines.collect();
        assert!(map.cut || lines.len() == map.functions.len());
        let bounds = map.bounds.iter().take(100);
        for address in bounds.flat_map(|bound| [bound.wrapping_sub(1), *bound]) {
            let last = lines.iter().rev();
            let expected = last
                .clone()
                .find(|line| line.start <= address && address < line.end);
            let found = map.find(address);
            if !map.cut {
                let start = found.as_ref().and_then(|found| found.address);
                let expected = expected.map(|line| ModuleAddress::of_address(line.start));
                assert_eq!(start, expected, "{address:#x}");
            }
            if let Some(found) = found {
                // Bytes that are no text become three.
                assert!(found.name.len() <= 3 * MAX_NAME_BYTES);
                assert!(!found.name.chars().any(char::is_control));
            }
        }
    }
}

#[cfg(test)]
#[path = "perf_map_tests.rs"]
mod tests;
