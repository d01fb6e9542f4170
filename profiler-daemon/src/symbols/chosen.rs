//! Functions of a file that are chosen by name, with the places at which their calls are measured.
//! Hostile bytes: the work has a bound in time and in functions.

use std::{collections::BTreeMap, fs::File, str::FromStr};

use profiler_common::measured::Condition;
use thiserror::Error;

use super::{
    aliases::{MAX_NAMES, without_version},
    demangle::demangle,
    file_tables::{Binding, Deadline, FileTables, SymbolEntry, TooSlow},
    parts::{Named, Parts, part_of, parts_of},
    usdt::MAX_PLACES,
};
use crate::units::{FileOffset, ModuleAddress};
use crate::unwind::points::{
    self, MAX_FUNCTION_BYTES, NoExits, NoProbe, Piece, Point, Surroundings,
};

pub use super::parts::MAX_FUNCTIONS;

/// Processor time for one file, nanoseconds.
pub const BUDGET_NS: u64 = 10_000_000_000;
/// What compilers append to the name of a copy that they have specialized.
const CLONES: [&str; 5] = [".constprop.", ".isra.", ".part.", ".lto_priv.", ".llvm."];

/// `MODULE:FUNCTION`: in both `*` stands for any text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    module: String,
    function: String,
}

/// What is no pattern.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error(
    "{0:?} names no function: give MODULE:FUNCTION, as in 'libpq.so*:PQexec*' or /usr/bin/app:handle_request, or MODULE:+0x1234 for an address"
)]
pub struct NotAPattern(String);

impl FromStr for Pattern {
    type Err = NotAPattern;

    fn from_str(text: &str) -> Result<Self, NotAPattern> {
        let bytes = text.as_bytes();
        // The first colon that is alone: those of namespaces are two.
        let alone = (0..bytes.len()).find(|at| {
            let is = |at: Option<usize>| at.and_then(|at| bytes.get(at)) == Some(&b':');
            bytes[*at] == b':' && !is(at.checked_sub(1)) && !is(Some(at + 1))
        });
        let parts = alone.map(|at| (&text[..at], &text[at + 1..]));
        match parts {
            Some((module, function)) if !module.is_empty() && !function.is_empty() => Ok(Self {
                // Of a program as it is started here, the last part tells.
                module: module.strip_prefix("./").unwrap_or(module).to_owned(),
                function: function.to_owned(),
            }),
            _ => Err(NotAPattern(text.chars().take(200).collect())),
        }
    }
}

impl Pattern {
    /// As it was typed.
    #[must_use]
    pub fn text(&self) -> String {
        format!("{}:{}", self.module, self.function)
    }

    /// The path, where it is a whole one without `*`.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        (self.module.starts_with('/') && !self.module.contains('*')).then_some(&self.module)
    }

    /// Does it say in which file?
    #[must_use]
    pub fn names_module(&self) -> bool {
        self.module.bytes().any(|byte| byte != b'*')
    }

    /// Is that file meant, by its path or the last part of it?
    #[must_use]
    pub fn is_of_module(&self, path: &str) -> bool {
        is_file(&self.module, path)
    }

    /// Is a function of that name meant, at that address?
    fn is_of_function(&self, raw: &str, readable: &str, address: ModuleAddress) -> bool {
        if let Some(wanted) = self.function.strip_prefix("+0x") {
            return u64::from_str_radix(wanted, 16) == Ok(address.get());
        }
        let plain = without_version(raw);
        let is = |name: &str| matches(&self.function, name);
        is(plain) || is(original(plain)) || is(readable) || is(without_parameters(readable))
    }
}

/// Is that file meant, by its path or the last part of it?
pub(super) fn is_file(pattern: &str, path: &str) -> bool {
    let last = path.rsplit('/').next().unwrap_or(path);
    matches(pattern, path) || matches(pattern, last)
}

/// `*` in `pattern` stands for any text.
pub(super) fn matches(pattern: &str, text: &str) -> bool {
    let mut parts = pattern.split('*');
    let first = parts.next().unwrap_or_default();
    let Some(mut rest) = text.strip_prefix(first) else {
        return false;
    };
    let mut last = None;
    for part in parts {
        if let Some(part) = last.replace(part) {
            match rest.find(part) {
                Some(at) => rest = &rest[at + part.len()..],
                None => return false,
            }
        }
    }
    last.map_or(rest.is_empty(), |last| rest.ends_with(last))
}

/// The name of the function that a compiler made this copy of.
fn original(name: &str) -> &str {
    let ends = CLONES.iter().filter_map(|clone| name.find(clone));
    ends.min().map_or(name, |at| &name[..at])
}

/// A demangled name as people type it.
fn without_parameters(name: &str) -> &str {
    // `operator()` is a name.
    let from = name
        .find("operator()")
        .map_or(0, |at| at + "operator()".len());
    name[from..].find('(').map_or(name, |at| &name[..from + at])
}

/// A place for a probe, in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FilePoint {
    /// From the start of the file, bytes.
    pub offset: FileOffset,
    /// The kernel executes the instruction elsewhere.
    pub stepped: bool,
    /// When it leaves the function, if it is an exit.
    pub condition: Condition,
}

/// A function that was chosen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Its best known name.
    pub name: String,
    /// Its other names.
    pub aliases: Vec<String>,
    /// Virtual address.
    pub address: ModuleAddress,
    /// Where it is entered and left, or why it cannot be measured.
    pub points: Result<ChosenPoints, NotMeasurable>,
}

/// See [`points::Points`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChosenPoints {
    /// At its entry.
    pub entry: FilePoint,
    /// At its exits.
    pub exits: Result<Vec<FilePoint>, NoExits>,
    /// Whether its code jumps back to its entry.
    pub loops: bool,
    /// Whether its calls are of goroutines: it is a function of Go.
    pub goroutines: bool,
}

/// Why a function cannot be measured.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotMeasurable {
    /// The loader calls it to choose the function.
    #[error("it is chosen when the program starts (ifunc); name the implementation")]
    ChosenAtStart,
    /// Nobody says where it ends.
    #[error("its symbol has no size: nobody knows where it ends")]
    NoSize,
    /// Another one begins in it.
    #[error("another function begins within it, at +{0:#x}: nobody knows where it ends")]
    Overlaps(u64),
    /// What is decoded from its first byte on need not be what is executed.
    #[error("it begins within another function, at +{0:#x}: its first instruction may be none")]
    Within(u64),
    /// It is not in the part of the file that is mapped as code.
    #[error("it lies outside the code of the file")]
    NoCode,
    /// It cannot be probed.
    #[error(transparent)]
    NoProbe(#[from] NoProbe),
}

/// Why nothing was chosen.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NoChoice {
    /// It is no program.
    #[error("it is no 64-bit program of this machine")]
    NoProgram,
    /// Its tables are too large.
    #[error("looking through its symbols takes too long")]
    TooSlow,
    /// There are more than may be.
    #[error("{0} of its functions are meant; at most {MAX_FUNCTIONS} can be measured")]
    TooMany(usize),
    /// The same of places of USDT points.
    #[error("{0} places of its USDT points are meant; at most {MAX_PLACES} can be probed")]
    TooManyPlaces(usize),
}

/// What the symbols say of the address of a function that is meant.
#[derive(Default)]
struct KnownAddress {
    size_bytes: u64,
    chosen_at_start: bool,
    /// It is Go's.
    is_go: bool,
    /// Readable names, with what they are ranked by: not more than [`MAX_NAMES`].
    names: Vec<(Binding, String)>,
    /// Its code elsewhere.
    apart: Parts,
}

impl KnownAddress {
    fn add_name(&mut self, binding: Binding, name: String) {
        let is_new = self.names.iter().all(|(_, known)| *known != name);
        if is_new && self.names.len() < MAX_NAMES {
            self.names.push((binding, name));
        }
    }
}

/// The functions of the file that any of these patterns means, by address. It takes no more than
/// [`BUDGET_NS`] of processor time.
///
/// # Errors
/// [`NoChoice`].
pub fn choose(file: &File, patterns: &[&Pattern]) -> Result<Vec<Chosen>, NoChoice> {
    choose_within(file, patterns, BUDGET_NS)
}

/// The same within less processor time, nanoseconds.
///
/// # Errors
/// [`NoChoice`].
pub fn choose_within(
    file: &File,
    patterns: &[&Pattern],
    budget_ns: u64,
) -> Result<Vec<Chosen>, NoChoice> {
    let tables = FileTables::read(file).ok_or(NoChoice::NoProgram)?;
    let deadline = Deadline::after(budget_ns.min(BUDGET_NS));
    // Where functions begin, and how long they are. Names are kept of those alone that are meant: a
    // file may claim millions, each as long as it likes.
    let mut starts: BTreeMap<ModuleAddress, u64> = BTreeMap::new();
    let mut meant: BTreeMap<ModuleAddress, KnownAddress> = BTreeMap::new();
    let mut count = 0;
    let mut has_parts = false;
    let mut take = |symbol: &SymbolEntry| {
        let Some(raw) = symbol.name(file).filter(|_| symbol.is_function) else {
            return;
        };
        let size_bytes = starts.entry(symbol.address).or_default();
        *size_bytes = symbol.size_bytes.max(*size_bytes);
        if part_of(&raw).is_some() {
            has_parts = true;
            return;
        }
        let readable = demangle(without_version(&raw)).into_string();
        let is_meant = |one: &&Pattern| one.is_of_function(&raw, &readable, symbol.address);
        if !patterns.iter().any(is_meant) {
            return;
        }
        let is_new = !meant.contains_key(&symbol.address);
        count += usize::from(is_new);
        if !is_new || meant.len() <= MAX_FUNCTIONS {
            let known = meant.entry(symbol.address).or_default();
            known.add_name(symbol.binding, readable);
        }
    };
    let looked = tables.each_symbol(file, deadline, &mut take);
    looked.map_err(|_| NoChoice::TooSlow)?;
    if count > MAX_FUNCTIONS {
        return Err(NoChoice::TooMany(count));
    }
    if meant.is_empty() {
        return Ok(Vec::new());
    }
    // Their other names, and then their other parts, which may have any of these names.
    let mut named = Named::default();
    let mut take = |symbol: &SymbolEntry| {
        let Some(known) = meant.get_mut(&symbol.address) else {
            return;
        };
        let Some(raw) = symbol.name(file).filter(|_| symbol.is_function) else {
            return;
        };
        if part_of(&raw).is_none() {
            named.add(&raw, symbol.address);
            known.size_bytes = known.size_bytes.max(symbol.size_bytes);
            known.chosen_at_start |= symbol.is_chosen_at_start;
            // Those of C in the same file have no package.
            known.is_go |= tables.has_go && original(without_version(&raw)).contains('.');
            known.add_name(
                symbol.binding,
                demangle(without_version(&raw)).into_string(),
            );
        }
    };
    let looked = tables.each_symbol(file, deadline, &mut take);
    looked.map_err(|_| NoChoice::TooSlow)?;
    if has_parts {
        let parts = parts_of((file, &tables), named, &starts, deadline);
        for (address, parts) in parts.map_err(|_| NoChoice::TooSlow)? {
            if let Some(known) = meant.get_mut(&address) {
                known.apart = parts;
            }
        }
    }
    let starts = Starts::of(&starts);
    let code = CodeOf {
        file,
        tables: &tables,
        starts: &starts,
        deadline,
    };
    let chosen = meant.iter();
    let chosen = chosen.map(|(address, known)| chosen_one(&code, *address, known));
    let chosen: Result<_, TooSlow> = chosen.collect();
    chosen.map_err(|_| NoChoice::TooSlow)
}

/// Where code is read from, and until when.
#[derive(Clone, Copy)]
struct CodeOf<'a> {
    file: &'a File,
    tables: &'a FileTables,
    starts: &'a Starts,
    deadline: Deadline,
}

/// Where functions begin, in order, each with the one of those before it that reaches furthest:
/// its begin and its end. And the one of all.
struct Starts {
    each: Vec<(ModuleAddress, Option<(ModuleAddress, ModuleAddress)>)>,
    furthest: Option<(ModuleAddress, ModuleAddress)>,
}

impl Starts {
    fn of(sizes: &BTreeMap<ModuleAddress, u64>) -> Self {
        let mut furthest: Option<(ModuleAddress, ModuleAddress)> = None;
        let each = sizes.iter().map(|(start, size_bytes)| {
            let before = furthest;
            let end = start.saturating_add(*size_bytes);
            if furthest.is_none_or(|(_, known)| end > known) {
                furthest = Some((*start, end));
            }
            (*start, before)
        });
        let each = each.collect();
        Self { each, furthest }
    }

    /// The first function that begins between the two.
    fn first_within(&self, address: ModuleAddress, end: ModuleAddress) -> Option<ModuleAddress> {
        let next = self.each.partition_point(|(start, _)| *start <= address);
        let (start, _) = self.each.get(next)?;
        (*start < end).then_some(*start)
    }

    /// Is this an address of a function with a name?
    fn is_of_one(&self, address: ModuleAddress) -> bool {
        let is_start = self
            .each
            .binary_search_by_key(&address, |(start, _)| *start);
        is_start.is_ok() || self.covering(address).is_some()
    }

    /// A function that begins before the address and ends behind it.
    fn covering(&self, address: ModuleAddress) -> Option<ModuleAddress> {
        let at = self.each.partition_point(|(start, _)| *start < address);
        let (start, end) = match self.each.get(at) {
            Some((_, before)) => (*before)?,
            None => self.furthest?,
        };
        (end > address).then_some(start)
    }
}

fn chosen_one(
    code: &CodeOf<'_>,
    address: ModuleAddress,
    known: &KnownAddress,
) -> Result<Chosen, TooSlow> {
    let mut names = known.names.clone();
    names.sort_by_key(|(binding, name)| {
        let underscores = name.len() - name.trim_start_matches('_').len();
        (underscores, *binding, name.len())
    });
    let mut names = names.into_iter().map(|(_, name)| name);
    Ok(Chosen {
        name: names.next().unwrap_or_default(),
        aliases: names.collect(),
        address,
        points: points_of(code, address, known)?,
    })
}

/// The code of a function, or of a part of one.
fn piece(
    code: &CodeOf<'_>,
    address: ModuleAddress,
    size_bytes: u64,
) -> Result<Piece, NotMeasurable> {
    if size_bytes == 0 {
        return Err(NotMeasurable::NoSize);
    }
    let end = address.checked_add(size_bytes);
    let end = end.ok_or(NotMeasurable::NoCode)?;
    if let Some(other) = code.starts.first_within(address, end) {
        return Err(NotMeasurable::Overlaps(other - address));
    }
    if let Some(other) = code.starts.covering(address) {
        return Err(NotMeasurable::Within(address - other));
    }
    let size = usize::try_from(size_bytes).unwrap_or(usize::MAX);
    if size > MAX_FUNCTION_BYTES {
        return Err(NoProbe::TooLong(size).into());
    }
    let bytes = code.tables.code_bytes(code.file, address, size);
    let (code, _) = bytes.ok_or(NotMeasurable::NoCode)?;
    Ok(Piece { code, address })
}

/// # Errors
/// Within, why it cannot be measured.
fn points_of(
    code: &CodeOf<'_>,
    address: ModuleAddress,
    known: &KnownAddress,
) -> Result<Result<ChosenPoints, NotMeasurable>, TooSlow> {
    code.deadline.check()?;
    if known.chosen_at_start {
        return Ok(Err(NotMeasurable::ChosenAtStart));
    }
    let own = match piece(code, address, known.size_bytes) {
        Ok(own) => own,
        Err(why) => return Ok(Err(why)),
    };
    let mut parts = Vec::new();
    for (start, size_bytes) in &known.apart.known {
        code.deadline.check()?;
        parts.push(piece(code, *start, *size_bytes).ok());
    }
    let parts: Option<Vec<Piece>> = parts.into_iter().collect();
    let parts = parts.filter(|_| !known.apart.too_many);
    let found = points_in(code, &own, parts.as_deref(), known);
    // Code without a name is none any more once the time is over.
    code.deadline.check()?;
    Ok(found)
}

/// The points of a function whose code was read; `parts`: `None` if some could not be.
fn points_in(
    code: &CodeOf<'_>,
    own: &Piece,
    parts: Option<&[Piece]>,
    known: &KnownAddress,
) -> Result<ChosenPoints, NotMeasurable> {
    let found = if known.is_go {
        points::find_go(own, code)?
    } else {
        points::find(own, parts, code)?
    };
    let exits = if known.apart.shared {
        found.exits.and(Err(NoExits::SharedPart))
    } else {
        found.exits
    };
    if found.loops && exits.is_err() {
        return Err(NoProbe::Loop.into());
    }
    let in_file = |point: &Point| {
        let (_, offset) = code.tables.code_bytes(code.file, point.address, 1)?;
        Some(FilePoint {
            offset,
            stepped: point.stepped,
            condition: point.condition,
        })
    };
    let exits = exits.and_then(|exits| {
        let exits: Option<Vec<FilePoint>> = exits.iter().map(in_file).collect();
        exits.ok_or(NoExits::Part)
    });
    Ok(ChosenPoints {
        entry: in_file(&found.entry).ok_or(NotMeasurable::NoCode)?,
        exits,
        loops: found.loops,
        goroutines: known.is_go,
    })
}

impl Surroundings for CodeOf<'_> {
    fn nameless_code(&self, address: ModuleAddress, at_most: usize) -> Option<Vec<u8>> {
        self.deadline.check().ok()?;
        // Jumps to other files have no names, and are no code of anybody's.
        let section = self.tables.code_at(address)?;
        if section.jumps.is_some() || self.starts.is_of_one(address) {
            return None;
        }
        let most = address.saturating_add(at_most as u64).min(section.end);
        let end = self.starts.first_within(address, most).unwrap_or(most);
        let size = usize::try_from(end - address).ok()?;
        let (code, _) = self.tables.code_bytes(self.file, address, size)?;
        Some(code)
    }

    fn constant(&self, address: ModuleAddress, bytes: usize) -> Option<Vec<u8>> {
        self.tables.loaded_bytes(self.file, address, bytes)
    }
}

#[cfg(any(test, feature = "fuzzing"))]
#[path = "chosen_fuzzing.rs"]
pub(super) mod fuzzing;
#[cfg(test)]
#[path = "chosen_tests.rs"]
mod tests;
