//! Names of code made at run time, from the file that its engine writes: `/tmp/perf-PID.map`, a line for each function, as
//! the kernel's perf documents it (tools/perf/Documentation/jit-interface.txt). `START SIZE NAME`, numbers in hexadecimal.
//!
//! Whoever runs the process writes the file, so: every size is bounded, and what makes no sense is passed over. Engines append
//! and never take back, so of two functions at one address the later line holds.

use std::{
    collections::{BTreeMap, HashMap},
    fs::File,
    os::unix::fs::FileExt as _,
    sync::Arc,
};

use super::names::{FunctionKind, FunctionName, Unnamed};
use crate::processes::{files::ModuleFile, module::ModuleId};

/// Most bytes read of one file: some 500 000 functions. Beyond that, what was written first is left out.
const MAX_FILE_BYTES: u64 = 32 << 20;
/// Longest name kept, bytes.
const MAX_NAME_BYTES: usize = 512;
/// Largest function believed, bytes.
const MAX_FUNCTION_BYTES: u64 = 64 << 20;
/// Files kept in memory.
const MAX_LOADED: usize = 4;
/// A file that has grown is read again at most this often, nanoseconds.
const AGAIN_NS: u64 = 2_000_000_000;
/// A file that nobody asked for is dropped after this time, nanoseconds.
const KEEP_NS: u64 = 60_000_000_000;

/// Functions by address, none overlapping.
#[derive(Debug, Default)]
struct Map {
    text: Box<[u8]>,
    /// First address -> address behind, start of the function, place of its name in the text.
    functions: BTreeMap<u64, Function>,
}

#[derive(Clone, Copy, Debug)]
struct Function {
    end: u64,
    start: u64,
    name: (u32, u32),
}

impl Map {
    fn parse(text: Vec<u8>) -> Self {
        let mut functions = BTreeMap::new();
        // The last line first: what it covers is taken.
        let mut end = text.len();
        while end > 0 {
            let start = text[..end - 1]
                .iter()
                .rposition(|byte| *byte == b'\n')
                .map_or(0, |newline| newline + 1);
            if let Some(function) = parse_line(&text, start, end) {
                claim(&mut functions, function);
            }
            end = start;
        }
        Self {
            text: text.into(),
            functions,
        }
    }

    fn find(&self, address: u64) -> Option<FunctionName> {
        let (_, function) = self.functions.range(..=address).next_back()?;
        if address >= function.end {
            return None;
        }
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
            address: Some(function.start),
            kind: FunctionKind::Jit,
            known: true,
        })
    }
}

/// The function of the line in that range of the text.
fn parse_line(text: &[u8], start: usize, end: usize) -> Option<Function> {
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
    let (size, at) = number(at)?;
    let name = line.get(at..)?.trim_ascii();
    if name.is_empty() || size == 0 || size > MAX_FUNCTION_BYTES {
        return None;
    }
    let name_start = start + at + (line.len() - at - line[at..].trim_ascii_start().len());
    let name_end = name_start + name.len().min(MAX_NAME_BYTES);
    Some(Function {
        start: address,
        end: address.checked_add(size)?,
        name: (
            u32::try_from(name_start).ok()?,
            u32::try_from(name_end).ok()?,
        ),
    })
}

/// Gives a function those of its addresses that are free.
fn claim(functions: &mut BTreeMap<u64, Function>, function: Function) {
    let mut at = function.start;
    let before = functions.range(..=at).next_back();
    if let Some((_, before)) = before {
        at = at.max(before.end);
    }
    while at < function.end {
        let next = functions.range(at..).next();
        let (next_start, next_end) =
            next.map_or((u64::MAX, u64::MAX), |(start, next)| (*start, next.end));
        let end = function.end.min(next_start);
        if at < end {
            functions.insert(at, Function { end, ..function });
        }
        at = next_end.max(end);
    }
}

#[derive(Debug)]
struct Loaded {
    map: Map,
    size_bytes: u64,
    read_ns: u64,
    used_ns: u64,
}

/// The files read lately.
#[derive(Debug, Default)]
pub(super) struct PerfMaps(HashMap<ModuleId, Loaded>);

impl PerfMaps {
    /// The functions at addresses of one process.
    pub(super) fn names(
        &mut self,
        file: &Arc<ModuleFile>,
        addresses: &[u64],
        now_ns: u64,
    ) -> Vec<Result<FunctionName, Unnamed>> {
        let size_bytes = file.file.metadata().map_or(0, |metadata| metadata.len());
        let current = self.0.get(&file.module).is_some_and(|loaded| {
            loaded.size_bytes == size_bytes || now_ns.saturating_sub(loaded.read_ns) < AGAIN_NS
        });
        if !current {
            if self.0.len() >= MAX_LOADED {
                let oldest = self.0.iter().min_by_key(|(_, loaded)| loaded.used_ns);
                if let Some(oldest) = oldest.map(|(module, _)| *module) {
                    self.0.remove(&oldest);
                }
            }
            self.0.insert(
                file.module,
                Loaded {
                    map: Map::parse(read(&file.file, size_bytes)),
                    size_bytes,
                    read_ns: now_ns,
                    used_ns: now_ns,
                },
            );
        }
        let Some(loaded) = self.0.get_mut(&file.module) else {
            return vec![Err(Unnamed::Jit); addresses.len()];
        };
        loaded.used_ns = now_ns;
        let find = |address: &u64| loaded.map.find(*address).ok_or(Unnamed::Jit);
        addresses.iter().map(find).collect()
    }

    /// Drops what nobody asked for lately.
    pub(super) fn unload(&mut self, now_ns: u64) {
        self.0
            .retain(|_, loaded| now_ns.saturating_sub(loaded.used_ns) < KEEP_NS);
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn name(map: &Map, address: u64) -> Option<String> {
        map.find(address).map(|function| function.name.to_string())
    }

    #[test]
    fn later_lines_hold_and_nonsense_is_passed_over() {
        // Check names with spaces, prefixed numbers, an overlap in the middle, bad lines, and a last line without its end.
        let map = Map::parse(
            b"1000 100 LazyCompile:*outer /app/main.js:1\n\
              not a line\n\
              zz 10 bad\n\
              1040 0 empty\n\
              ffffffffffffffff 10 beyond\n\
              0x1040 0x20 inner\x1b[31m\n\
              3000 10\n\
              2000 10 last"
                .to_vec(),
        );
        assert_eq!(
            name(&map, 0x1000).as_deref(),
            Some("LazyCompile:*outer /app/main.js:1")
        );
        assert_eq!(name(&map, 0x105f).as_deref(), Some("inner\u{fffd}[31m"));
        assert_eq!(
            map.find(0x1060).map(|function| function.address),
            Some(Some(0x1000))
        );
        assert_eq!(name(&map, 0x200f).as_deref(), Some("last"));
        for nowhere in [0xfff, 0x1100, 0x2010, 0x3000, u64::MAX] {
            assert_eq!(name(&map, nowhere), None, "{nowhere:x}");
        }
    }

    proptest! {
        // Check against a linear look from the end, for any overlaps.
        #[test]
        fn as_a_linear_look(lines in prop::collection::vec((0..200_u64, 1..50_u64), 0..40), address in 0..260_u64) {
            let text: String = lines.iter().enumerate().map(|(index, (start, size))| format!("{start:x} {size:x} f{index}\n")).collect();
            let map = Map::parse(text.into_bytes());
            let linear = lines.iter().rposition(|(start, size)| (*start..start + size).contains(&address));
            prop_assert_eq!(name(&map, address), linear.map(|index| format!("f{index}")));
        }

        // Check that no bytes break the reader.
        #[test]
        fn any_bytes(text in prop::collection::vec(any::<u8>(), 0..400), address in any::<u64>()) {
            let map = Map::parse(text);
            prop_assert!(map.find(address).is_none_or(|function| function.name.len() <= 3 * MAX_NAME_BYTES));
        }
    }
}
