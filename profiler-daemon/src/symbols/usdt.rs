//! USDT points of a program file: places that its authors have marked, with a provider, a name, and
//! where the arguments are (notes of SystemTap's format, section `.note.stapsdt`). Hostile bytes:
//! the work has a bound in bytes, in notes and in time.

use std::collections::BTreeMap;
use std::fs::File;
use std::str::FromStr;

use profiler_common::spans::{Argument, Operand};
use thiserror::Error;

use super::chosen::{FilePoint, NoChoice, is_file, matches};
use super::file_tables::{Deadline, FileTables};
use crate::elf::{self, LE};
use crate::units::{FileOffset, ModuleAddress};
use crate::unwind::points::{self, MAX_FUNCTION_BYTES, NoProbe, Point};

/// Most bytes of notes that are read of one file.
const MAX_NOTE_BYTES: usize = 8 << 20;
/// Most notes that are looked at.
const MAX_NOTES: usize = 65_536;
/// Longest provider and longest name, bytes.
const MAX_NAME_BYTES: usize = 128;
/// Longest text of arguments of one place, bytes.
const MAX_ARGUMENT_BYTES: usize = 1024;
/// Arguments of one place; the format has no more.
const MAX_ARGUMENTS: usize = 12;
/// Most places of one file that may be meant at a time.
pub const MAX_PLACES: usize = 1024;
/// Processor time for one file.
const BUDGET_NS: u64 = 10_000_000_000;
/// The longest instruction.
const MAX_INSTRUCTION_BYTES: u64 = 15;
/// `nop`, which marks a place.
const NOP: u8 = 0x90;
/// The type of the notes, and who they are of.
const NOTE_TYPE: u32 = 3;
const NOTE_OWNER: &[u8] = b"stapsdt\0";

/// `PROVIDER:NAME` or `MODULE:PROVIDER:NAME`: in each `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtPattern {
    module: Option<String>,
    provider: String,
    name: String,
}

/// What names no USDT point.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} names no USDT point: give PROVIDER:NAME, as in 'python:function__*', or MODULE:PROVIDER:NAME"
)]
pub struct NotAUsdtPattern(String);

impl FromStr for UsdtPattern {
    type Err = NotAUsdtPattern;

    fn from_str(text: &str) -> Result<Self, NotAUsdtPattern> {
        let refused = || NotAUsdtPattern(text.chars().take(200).collect());
        let (rest, name) = text.rsplit_once(':').ok_or_else(refused)?;
        let (module, provider) = match rest.rsplit_once(':') {
            Some((module, provider)) => (Some(module), provider),
            None => (None, rest),
        };
        if name.is_empty() || provider.is_empty() || module.is_some_and(str::is_empty) {
            return Err(refused());
        }
        let of_module = |module: &str| module.strip_prefix("./").unwrap_or(module).to_owned();
        Ok(Self {
            module: module.map(of_module),
            provider: provider.to_owned(),
            name: name.to_owned(),
        })
    }
}

impl UsdtPattern {
    /// As it was typed.
    #[must_use]
    pub fn text(&self) -> String {
        let module = self.module.iter().map(|module| format!("{module}:"));
        let module: String = module.collect();
        format!("{module}{}:{}", self.provider, self.name)
    }

    /// The path, where it is a whole one without `*`.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        let module = self.module.as_deref()?;
        (module.starts_with('/') && !module.contains('*')).then_some(module)
    }

    /// Does it say in which file?
    #[must_use]
    pub const fn names_module(&self) -> bool {
        self.module.is_some()
    }

    /// Is that file meant, by its path or the last part of it? Without a module each is.
    #[must_use]
    pub fn is_of_module(&self, path: &str) -> bool {
        self.module
            .as_deref()
            .is_none_or(|module| is_file(module, path))
    }

    fn is_of(&self, note: &Note) -> bool {
        matches(&self.provider, &note.provider) && matches(&self.name, &note.name)
    }
}

/// A USDT point that was chosen: all places of it in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenUsdt {
    /// Who made it.
    pub provider: String,
    /// What it is called.
    pub name: String,
    /// Where it is: a compiler copies it with the code around it.
    pub places: Vec<UsdtPlace>,
}

/// A place of a USDT point.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtPlace {
    /// Virtual address.
    pub address: ModuleAddress,
    /// Where to probe it, or why it cannot be.
    pub point: Result<FilePoint, UsdtRefused>,
    /// A counter in the program's memory that says how many probe it, 2 bytes: where it is from the
    /// start of the file. Some programs make the arguments only if it is not 0.
    pub semaphore: Option<FileOffset>,
    /// It has one that cannot be raised: the file is laid out so that the kernel would raise
    /// whatever else is mapped from the same page. A program that looks at it is not followed.
    pub is_unraised: bool,
    /// Where its arguments are. `None`: what is said of it is not understood (a floating-point
    /// number, a symbol).
    pub arguments: Vec<Option<Argument>>,
}

/// What is to be known of a place with a semaphore that cannot be raised.
pub const UNRAISED: &str = "its semaphore is not raised, because the file has it on a page of two segments, where the kernel would raise something else: a program that looks at the semaphore passes it by";

/// Why a place cannot be followed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum UsdtRefused {
    /// It is not in the part of the file that is mapped as code.
    #[error("it lies outside the code of the file")]
    NoCode,
    /// Its counter is not in a part of the file that is mapped, or the kernel takes none there.
    #[error("its semaphore lies outside what is loaded of the file, or at an odd place")]
    Semaphore,
    /// No symbol says where the code around it begins.
    #[error(
        "no symbol says where its function begins, and it is no nop: it may be within an instruction"
    )]
    NoFunction,
    /// The argument that is asked for is not understood.
    #[error("its arg{0} is no integer in a register or in memory")]
    NoInteger(u8),
    /// It has no such argument.
    #[error("it has {count} arguments, no arg{number}")]
    NoArgument {
        /// How many it has.
        count: usize,
        /// The number that is asked for.
        number: u8,
    },
    /// It cannot be probed.
    #[error(transparent)]
    NoProbe(#[from] NoProbe),
}

/// One note, its addresses already moved to where the linker has put them.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Note {
    location: ModuleAddress,
    /// Address 0: none.
    semaphore: ModuleAddress,
    provider: String,
    name: String,
    arguments: String,
}

/// The USDT points of the file that any of these patterns means, by provider and name.
///
/// # Errors
/// [`NoChoice`].
pub fn choose(file: &File, patterns: &[&UsdtPattern]) -> Result<Vec<ChosenUsdt>, NoChoice> {
    choose_within(file, patterns, BUDGET_NS)
}

/// The same within less processor time, nanoseconds.
///
/// # Errors
/// [`NoChoice`].
pub fn choose_within(
    file: &File,
    patterns: &[&UsdtPattern],
    budget_ns: u64,
) -> Result<Vec<ChosenUsdt>, NoChoice> {
    let tables = FileTables::read(file).ok_or(NoChoice::NoProgram)?;
    let Some((bytes, base)) = tables.usdt_notes(file, MAX_NOTE_BYTES) else {
        return Ok(Vec::new());
    };
    let is_meant = |note: &Note| patterns.iter().any(|pattern| pattern.is_of(note));
    let meant: Vec<Note> = notes(&bytes, base).filter(is_meant).collect();
    if meant.len() > MAX_PLACES {
        return Err(NoChoice::TooManyPlaces(meant.len()));
    }
    let deadline = Deadline::after(budget_ns.min(BUDGET_NS));
    let around = functions_around(file, &tables, deadline, &meant)?;
    let mut points: BTreeMap<(String, String), Vec<UsdtPlace>> = BTreeMap::new();
    for note in meant {
        deadline.check().map_err(|_| NoChoice::TooSlow)?;
        let place = place(file, &tables, around.get(&note.location).copied(), &note);
        let of = points.entry((note.provider, note.name)).or_default();
        // The same one, said twice, would be counted twice.
        if of.iter().all(|other| other.address != place.address) {
            of.push(place);
        }
    }
    let points = points.into_iter();
    Ok(points
        .map(|((provider, name), places)| ChosenUsdt {
            provider,
            name,
            places,
        })
        .collect())
}

/// For each note the address at which the function begins that it is in, as far as symbols say: of
/// several the last.
fn functions_around(
    file: &File,
    tables: &FileTables,
    deadline: Deadline,
    notes: &[Note],
) -> Result<BTreeMap<ModuleAddress, ModuleAddress>, NoChoice> {
    let mut locations: Vec<ModuleAddress> = notes.iter().map(|note| note.location).collect();
    locations.sort_unstable();
    locations.dedup();
    let mut around = BTreeMap::new();
    let looked = tables.each_symbol(file, deadline, |symbol| {
        if !symbol.is_function {
            return;
        }
        let from = locations.partition_point(|location| *location < symbol.address);
        let inside = locations[from..].iter();
        for location in inside.take_while(|location| **location < symbol.end()) {
            let start = around.entry(*location).or_insert(symbol.address);
            *start = symbol.address.max(*start);
        }
    });
    looked.map_err(|_| NoChoice::TooSlow)?;
    Ok(around)
}

fn place(
    file: &File,
    tables: &FileTables,
    function: Option<ModuleAddress>,
    note: &Note,
) -> UsdtPlace {
    let mut is_unraised = false;
    let semaphore = match note.semaphore {
        ModuleAddress::ZERO => Ok(None),
        address => match tables.data_offset(address, 2) {
            Some((offset, is_alone)) if offset.get().is_multiple_of(2) => {
                is_unraised = !is_alone;
                Ok(is_alone.then_some(offset))
            }
            _ => Err(UsdtRefused::Semaphore),
        },
    };
    let point = point(file, tables, function, note.location);
    UsdtPlace {
        address: note.location,
        point: semaphore.clone().and(point),
        semaphore: semaphore.unwrap_or_default(),
        is_unraised,
        arguments: arguments(&note.arguments),
    }
}

/// The instruction at a place, if it is the beginning of one.
fn point(
    file: &File,
    tables: &FileTables,
    function: Option<ModuleAddress>,
    location: ModuleAddress,
) -> Result<FilePoint, UsdtRefused> {
    // Near the end of the code there may be fewer bytes than the longest instruction has.
    let read = |address: ModuleAddress| {
        location.checked_add(MAX_INSTRUCTION_BYTES)?;
        let ends = (1..=MAX_INSTRUCTION_BYTES)
            .rev()
            .map(|bytes| location + bytes);
        ends.map(|end| usize::try_from(end - address).unwrap_or(usize::MAX))
            .filter(|size| *size <= MAX_FUNCTION_BYTES)
            .find_map(|size| tables.code_bytes(file, address, size))
    };
    let (here, offset) = read(location).ok_or(UsdtRefused::NoCode)?;
    let in_file = |point: Point| FilePoint {
        offset,
        stepped: point.stepped,
        condition: point.condition,
    };
    let Some(start) = function else {
        return if here.first() == Some(&NOP) {
            Ok(in_file(points::at(&here, location, location)?))
        } else {
            // Its own sentence for the one nop that damages programs.
            points::at(&here, location, location)?;
            Err(UsdtRefused::NoFunction)
        };
    };
    let distance = usize::try_from(location - start).unwrap_or(usize::MAX);
    if distance > MAX_FUNCTION_BYTES - MAX_INSTRUCTION_BYTES as usize {
        return Err(NoProbe::TooLong(distance).into());
    }
    let (code, _) = read(start).ok_or(UsdtRefused::NoCode)?;
    Ok(in_file(points::at(&code, start, location)?))
}

/// The notes of a section; `base`: where the section `.stapsdt.base` is now, if there is one. Ends
/// where the bytes make no sense.
fn notes(bytes: &[u8], base: Option<ModuleAddress>) -> impl Iterator<Item = Note> {
    let notes = elf::notes(bytes).take(MAX_NOTES);
    let ours = notes.filter(|note| note.name_bytes() == NOTE_OWNER && note.n_type(LE) == NOTE_TYPE);
    ours.filter_map(move |ours| note(ours.desc(), base))
}

/// What a description says. `None` if that is nothing.
fn note(description: &[u8], base: Option<ModuleAddress>) -> Option<Note> {
    let (addresses, texts) = description.split_first_chunk::<24>()?;
    let address = |at: usize| -> Option<ModuleAddress> {
        let bytes = addresses.get(at..at + 8)?.try_into().ok()?;
        Some(ModuleAddress::new(u64::from_le_bytes(bytes)))
    };
    let mut texts = texts.split(|byte| *byte == 0);
    let mut text = |most: usize| {
        let bytes = texts.next().filter(|bytes| bytes.len() <= most)?;
        let text = std::str::from_utf8(bytes).ok()?;
        (!text.contains(char::is_control)).then(|| text.to_owned())
    };
    let (provider, name) = (text(MAX_NAME_BYTES)?, text(MAX_NAME_BYTES)?);
    let arguments = text(MAX_ARGUMENT_BYTES).unwrap_or_default();
    if provider.is_empty() || name.is_empty() {
        return None;
    }
    // What moved that section after the note was written (prelink) moved all.
    let moved = base.map_or(0, |base| base.wrapping_from(address(8).unwrap_or(base)));
    let semaphore = match address(16)? {
        ModuleAddress::ZERO => ModuleAddress::ZERO,
        semaphore => semaphore.wrapping_add(moved),
    };
    Some(Note {
        location: address(0)?.wrapping_add(moved),
        semaphore,
        provider,
        name,
        arguments,
    })
}

/// Each argument that is described, as far as that is understood.
fn arguments(text: &str) -> Vec<Option<Argument>> {
    let all = text.split_ascii_whitespace().take(MAX_ARGUMENTS);
    all.map(argument).collect()
}

/// `N@OPERAND`: so many bytes, below 0 with a sign, of an operand as the assembler writes it.
fn argument(text: &str) -> Option<Argument> {
    let (size, operand) = text.split_once('@').unwrap_or(("8", text));
    let size: i8 = size.parse().ok()?;
    let size_bytes = size.unsigned_abs();
    if !matches!(size_bytes, 1 | 2 | 4 | 8) {
        return None;
    }
    let argument = Argument {
        size_bytes,
        is_signed: u8::from(size < 0),
        ..Argument::NONE
    };
    if let Some(number) = operand.strip_prefix('$') {
        return Some(Argument {
            operand: Operand::Constant as u32,
            number: argument.value(self::number(number)?.cast_unsigned()),
            ..argument
        });
    }
    if let Some(name) = operand.strip_prefix('%') {
        return Some(Argument {
            operand: Operand::Register as u32,
            register: register(name)?,
            ..argument
        });
    }
    let (distance, inner) = operand.strip_suffix(')')?.split_once('(')?;
    let number = match distance {
        "" => 0,
        distance => self::number(distance)?,
    };
    let mut parts = inner.split(',');
    let wide = |part: &str| {
        let name = part
            .strip_prefix('%')
            .filter(|name| name.starts_with('r'))?;
        register(name).filter(|_| !name.ends_with(['d', 'w', 'b']))
    };
    let base = wide(parts.next()?)?;
    let index = match parts.next() {
        Some(part) => wide(part)?,
        None => Argument::NO_REGISTER,
    };
    let shift = match parts.next() {
        None | Some("1") => 0,
        Some("2") => 1,
        Some("4") => 2,
        Some("8") => 3,
        Some(_) => return None,
    };
    parts.next().is_none().then_some(Argument {
        operand: Operand::Memory as u32,
        register: base,
        index,
        shift,
        number,
        ..argument
    })
}

/// A number as the assembler writes it.
fn number(text: &str) -> Option<i64> {
    let (is_negative, digits) = match text.strip_prefix('-') {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if !digits.starts_with(|first: char| first.is_ascii_digit()) {
        return None;
    }
    let value = match digits.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16).ok()?,
        None => digits.parse().ok()?,
    };
    let value = value.cast_signed();
    Some(if is_negative {
        value.wrapping_neg()
    } else {
        value
    })
}

/// Where a register is saved, by any of its names; `None` for what is none of the sixteen, and for
/// the second byte of one.
fn register(name: &str) -> Option<u8> {
    let known = |whole: &str| {
        let found = Argument::REGISTERS.iter().find(|(name, _)| *name == whole);
        found.map(|(_, offset)| *offset)
    };
    if let Some(offset) = known(name) {
        return Some(offset);
    }
    // r8d, r8w, r8b.
    let numbered = name
        .strip_prefix('r')
        .filter(|rest| rest.starts_with(|c: char| c.is_ascii_digit()));
    if numbered.is_some() {
        return known(name.strip_suffix(['d', 'w', 'b'])?);
    }
    // eax, ax, al; edi, di, dil.
    let short = name.strip_prefix('e').unwrap_or(name);
    if short.len() == 2 && !short.ends_with(['l', 'h']) {
        return known(&format!("r{short}"));
    }
    let byte = name.strip_suffix('l')?;
    known(&match byte.len() {
        1 => format!("r{byte}x"),
        _ => format!("r{byte}"),
    })
}

/// For `crate::fuzzing`: what may be found in such a section.
#[cfg(any(test, feature = "fuzzing"))]
pub(super) mod fuzzing {
    use super::*;

    /// A section of notes.
    pub(in crate::symbols) fn notes_of(bytes: &[u8]) {
        let mut count = 0;
        for note in notes(bytes, Some(ModuleAddress::new(0x1000))) {
            count += 1;
            assert!((1..=MAX_NAME_BYTES).contains(&note.provider.len()));
            assert!((1..=MAX_NAME_BYTES).contains(&note.name.len()));
            let found = arguments(&note.arguments);
            assert!(found.len() <= MAX_ARGUMENTS);
            for argument in found.into_iter().flatten() {
                let is_saved = |register: u8| {
                    register == Argument::NO_REGISTER
                        || register.is_multiple_of(8) && register <= Argument::LAST_REGISTER
                };
                assert!(is_saved(argument.register) && is_saved(argument.index));
                assert!(argument.shift <= 3);
            }
        }
        assert!(count <= MAX_NOTES);
    }

    /// A program file: every place that may be probed is in it, and no nop of five bytes.
    pub(in crate::symbols) fn places_of(file: &File, bytes: &[u8]) {
        let all = "*:*".parse().expect("a pattern");
        let Ok(chosen) = choose(file, &[&all]) else {
            return;
        };
        let places = chosen.iter().flat_map(|chosen| &chosen.places);
        let mut count = 0;
        for place in places {
            count += 1;
            if let Ok(point) = &place.point {
                let at = usize::try_from(point.offset.get()).expect("it is in the file");
                assert!(at < bytes.len());
                assert!(!bytes[at..].starts_with(&[0x0f, 0x1f, 0x44, 0x00, 0x00]));
            }
        }
        assert!(count <= MAX_PLACES);
    }
}

#[cfg(test)]
#[path = "usdt_tests.rs"]
mod tests;
