//! Names of functions in files and in the debug files beside them: symbol tables only, no debug
//! information. blazesym finds the symbol, the file's own tables say which of its names is the best
//! known one (`aliases`), and what has no symbol (`jumps`). Not `Send`: lives on one thread.
//!
//! Each file is read through `/proc/self/fd/N` of the descriptor its module keeps, so that deleted
//! files and those of other mount namespaces work, and one file has one path for as long as it is
//! loaded. A loaded file costs its index (8 bytes a symbol) and the pages of its symbol table; both
//! go when it was idle or too many are loaded. It would break if a file shrank while it is read
//! (the reader maps it): see `sys::bus_guard`.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::File,
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    rc::Rc,
    sync::Arc,
};

use blazesym::symbolize::{
    Input, Reason, Symbolized, Symbolizer,
    evict::{self, Evict},
    source::{self, Source},
};

use super::{
    aliases::{self, NamedSymbol, without_version},
    debug_files::DebugFile,
    demangle::{MAX_NAME_BYTES, demangle},
    file_tables::{Deadline, FileTables, TooSlow},
    jumps::{Jumps, Target},
    names::Unnamed,
};
use crate::{
    elf::symbol_tables,
    processes::{files::ModuleFile, module::ModuleId},
    sys::{bus_guard, clock::thread_ns, heap},
    units::FileOffset,
    units::ModuleAddress,
    units::MonoNs,
};

/// Most files loaded at a time.
const MAX_LOADED: usize = 32;
/// Most bytes of their symbol tables together, beyond the module that is being named: with the
/// strings about twice as much is resident. A file that alone has more is loaded for each answer
/// anew; names that were found are remembered elsewhere.
const MAX_LOADED_BYTES: u64 = 16 << 20;
/// A file not asked for this long is unloaded, nanoseconds.
const IDLE_NS: u64 = 30_000_000_000;
/// Most files remembered as having broken the symbolizer.
const MAX_BROKEN: usize = 1024;
/// Processor time for the symbols of one file at a time, and what is added for each byte of its
/// symbol tables; for the best of their names there is half of it besides. One that takes longer is
/// given up.
const BUDGET_NS: u64 = 2_000_000_000;
const BUDGET_NS_PER_BYTE: u64 = 20;
/// A file that had so many names made in its time is not slow: it was asked for many.
const MANY_NAMES: usize = 1000;
/// Most places named between two looks at the time, and how long such a piece may take to grow.
const MAX_PIECE: usize = 256;
const PIECE_NS: u64 = 20_000_000;

/// A function found in a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct FoundFunction {
    /// Readable name.
    pub(super) name: Box<str>,
    /// Where it begins.
    pub(super) address: ModuleAddress,
}

/// The address of what is in no segment: no function is there.
pub(super) const NO_ADDRESS: ModuleAddress = ModuleAddress::new(u64::MAX);

/// Places in a file.
#[derive(Clone, Copy, Debug)]
pub(super) enum FilePlaces<'a> {
    /// In the file itself: of one that is mapped.
    Offsets(&'a [FileOffset]),
    /// Where the file, or the one that it was taken out of, is loaded.
    Addresses(&'a [ModuleAddress]),
}

impl FilePlaces<'_> {
    pub(super) const fn len(self) -> usize {
        match self {
            Self::Offsets(offsets) => offsets.len(),
            Self::Addresses(addresses) => addresses.len(),
        }
    }
}

/// A file that belongs to a module.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// The one that is mapped.
    Own(Arc<ModuleFile>),
    /// The one with what was taken out of it: places in it are addresses.
    Debug(ModuleId, Arc<DebugFile>),
}

/// The name of a part.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
struct PartId {
    module: ModuleId,
    debug: bool,
}

impl Part {
    fn id(&self) -> PartId {
        match self {
            Self::Own(file) => PartId {
                module: file.module,
                debug: false,
            },
            Self::Debug(module, _) => PartId {
                module: *module,
                debug: true,
            },
        }
    }

    fn file(&self) -> &File {
        match self {
            Self::Own(file) => &file.file,
            Self::Debug(_, debug) => &debug.file,
        }
    }

    /// A file that shrank is not the one that was opened.
    fn has_shrunk(&self) -> bool {
        let opened_bytes = match self {
            Self::Own(file) => file.identity.size_bytes,
            Self::Debug(_, debug) => debug.size_bytes,
        };
        let metadata = self.file().metadata();
        metadata.map_or(0, |metadata| metadata.size()) < opened_bytes
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file().as_raw_fd()))
    }
}

#[derive(Debug)]
struct LoadedFile {
    /// Keeps the descriptor, and with it the path, as it is.
    part: Part,
    used_ns: MonoNs,
    /// Bytes of its symbol tables.
    table_bytes: u64,
    /// `None` for programs of other machines, of which the symbolizer's answers are taken as they
    /// are.
    tables: Option<Rc<FileTables>>,
    /// What it jumps to elsewhere, once that was asked for.
    jumps: Option<Rc<Jumps>>,
}

/// A place that is to be named.
struct NameQuery {
    /// The address that is looked up: of the place itself, or of what chooses the function that is
    /// jumped to from there.
    address: ModuleAddress,
    /// The begin of the jump that the place is in.
    jump: Option<ModuleAddress>,
    answer: Result<NamedSymbol, Unnamed>,
}

/// Finds names in files.
pub(super) struct ElfNames {
    symbolizer: Symbolizer,
    loaded: HashMap<PartId, LoadedFile>,
    broken: Vec<PartId>,
    /// Files that took longer than their time.
    slow: Vec<PartId>,
    budget_ns: u64,
    budget_ns_per_byte: u64,
    panics: u64,
    /// Most bytes of symbol tables that stay loaded.
    max_bytes: u64,
}

impl ElfNames {
    pub(super) fn new() -> Self {
        Self::with_room(MAX_LOADED_BYTES)
    }

    /// One that keeps at most so many bytes of symbol tables loaded.
    pub(super) fn with_room(max_bytes: u64) -> Self {
        Self {
            max_bytes,
            symbolizer: symbolizer(),
            loaded: HashMap::new(),
            broken: Vec::new(),
            slow: Vec::new(),
            budget_ns: BUDGET_NS,
            budget_ns_per_byte: BUDGET_NS_PER_BYTE,
            panics: 0,
        }
    }

    /// Has files of which no name is known yet be given up at once, or have their time again.
    #[cfg(test)]
    pub(super) fn give_no_time(&mut self, none: bool) {
        let budget = if none {
            (0, 0)
        } else {
            (BUDGET_NS, BUDGET_NS_PER_BYTE)
        };
        (self.budget_ns, self.budget_ns_per_byte) = budget;
    }

    /// How many times the symbolizer broke over a file.
    pub(super) fn panics(&self) -> u64 {
        self.panics
    }

    /// How many files are loaded.
    pub(super) fn loaded(&self) -> usize {
        self.loaded.len()
    }

    /// Names the functions at these places, one answer each, in order.
    pub(super) fn names(
        &mut self,
        part: Part,
        places: FilePlaces<'_>,
        now_ns: MonoNs,
    ) -> Vec<Result<FoundFunction, Unnamed>> {
        let id = part.id();
        if self.broken.contains(&id) {
            return vec![Err(Unnamed::Panicked); places.len()];
        }
        if self.slow.contains(&id) {
            return vec![Err(Unnamed::TooSlow); places.len()];
        }
        if part.has_shrunk() {
            return vec![Err(Unnamed::NoFile); places.len()];
        }
        let loaded = match self.loaded.entry(id) {
            Entry::Occupied(loaded) => loaded.into_mut(),
            Entry::Vacant(place) => {
                let Some(table_bytes) = symbol_tables::bytes_of(part.file()) else {
                    return vec![Err(Unnamed::Unreadable); places.len()];
                };
                let tables = FileTables::read(part.file()).map(Rc::new);
                place.insert(LoadedFile {
                    part,
                    used_ns: now_ns,
                    table_bytes,
                    tables,
                    jumps: None,
                })
            }
        };
        loaded.used_ns = now_ns;
        let (part, tables) = (loaded.part.clone(), loaded.tables.clone());
        let allowed_ns = self
            .budget_ns
            .saturating_add(loaded.table_bytes * self.budget_ns_per_byte);
        let found = match tables {
            Some(tables) => self.corrected(&part, &tables, places, allowed_ns),
            None => {
                let symbols = self.looked_up(&part, places, Deadline::after(allowed_ns));
                symbols.map(|symbols| {
                    symbols
                        .into_iter()
                        .map(|found| found.map(FoundFunction::of))
                        .collect()
                })
            }
        };
        found.unwrap_or_else(|why| vec![Err(why); places.len()])
    }

    /// The functions at these places, by the symbolizer, which may take so long, and the file's own
    /// tables, half as long.
    fn corrected(
        &mut self,
        part: &Part,
        tables: &FileTables,
        places: FilePlaces<'_>,
        allowed_ns: u64,
    ) -> Result<Vec<Result<FoundFunction, Unnamed>>, Unnamed> {
        let deadline = Deadline::after(allowed_ns);
        let addresses: Vec<ModuleAddress> = match places {
            FilePlaces::Offsets(offsets) => {
                let address = |offset: &FileOffset| tables.address(*offset).unwrap_or(NO_ADDRESS);
                offsets.iter().map(address).collect()
            }
            FilePlaces::Addresses(addresses) => addresses.to_vec(),
        };
        let result = self.questions(part, tables, addresses, deadline);
        let mut questions = self.in_time(part, result)?;
        let is_open = |question: &&mut NameQuery| question.answer == Err(Unnamed::Pending);
        let open = questions.iter_mut().filter(is_open);
        let addresses: Vec<ModuleAddress> = open.map(|question| question.address).collect();
        let mut symbols = self.looked_up(part, FilePlaces::Addresses(&addresses), deadline)?;
        let deadline = Deadline::after(allowed_ns / 2);
        let result = aliases::correct(tables, part.file(), &addresses, &mut symbols, deadline);
        self.in_time(part, result)?;
        for (question, symbol) in questions.iter_mut().filter(is_open).zip(symbols) {
            question.answer = symbol;
        }
        Ok(questions.into_iter().map(NameQuery::answered).collect())
    }

    /// What is to be asked for each address. Jumps to functions of elsewhere are in no symbol of
    /// their own.
    fn questions(
        &mut self,
        part: &Part,
        tables: &FileTables,
        addresses: Vec<ModuleAddress>,
        deadline: Deadline,
    ) -> Result<Vec<NameQuery>, TooSlow> {
        addresses
            .into_iter()
            .map(|address| {
                let is_jump = tables
                    .code_at(address)
                    .is_some_and(|code| code.jumps.is_some());
                if !is_jump {
                    return Ok(NameQuery {
                        address,
                        jump: None,
                        answer: Err(Unnamed::Pending),
                    });
                }
                let jump = self.jumps(part, tables, deadline)?.find(address);
                let (jump, answer, address) = match jump {
                    None => (None, Err(Unnamed::NoSymbolThere), address),
                    Some((start, Target::ChosenBy(chooser))) => {
                        (Some(start), Err(Unnamed::Pending), chooser)
                    }
                    Some((start, Target::Symbol(number))) => {
                        let symbol =
                            tables
                                .loader_name(part.file(), number)
                                .map(|name| NamedSymbol {
                                    name,
                                    address: start,
                                    size_bytes: 0,
                                });
                        (Some(start), symbol.ok_or(Unnamed::NoSymbolThere), address)
                    }
                };
                Ok(NameQuery {
                    address,
                    jump,
                    answer,
                })
            })
            .collect()
    }

    /// What a loaded file jumps to elsewhere. A debug file does not have the code: there, nothing.
    fn jumps(
        &mut self,
        part: &Part,
        tables: &FileTables,
        deadline: Deadline,
    ) -> Result<Rc<Jumps>, TooSlow> {
        let loaded = self.loaded.get_mut(&part.id());
        if let Some(jumps) = loaded.as_ref().and_then(|loaded| loaded.jumps.as_ref()) {
            return Ok(Rc::clone(jumps));
        }
        let jumps = match part {
            Part::Own(file) => Rc::new(Jumps::read(tables, &file.file, deadline)?),
            Part::Debug(..) => Rc::default(),
        };
        if let Some(loaded) = loaded {
            loaded.table_bytes += jumps.held_bytes();
            loaded.jumps = Some(Rc::clone(&jumps));
        }
        Ok(jumps)
    }

    /// Remembers files that took too long.
    fn in_time<T>(&mut self, part: &Part, result: Result<T, TooSlow>) -> Result<T, Unnamed> {
        result.map_err(|TooSlow| {
            remember(&mut self.slow, part.id());
            Unnamed::TooSlow
        })
    }

    /// What the symbolizer knows of these places.
    fn looked_up(
        &mut self,
        part: &Part,
        places: FilePlaces<'_>,
        deadline: Deadline,
    ) -> Result<Vec<Result<NamedSymbol, Unnamed>>, Unnamed> {
        let mut source = source::Elf::new(part.path());
        source.debug_syms = false;
        let source = Source::Elf(source);
        let symbolizer = &self.symbolizer;
        let mut answers = Vec::with_capacity(places.len());
        let mut piece = 1;
        while answers.len() < places.len() {
            let began_ns = thread_ns();
            if deadline.check().is_err() {
                // Of a file that is asked for very many places, the rest has its turn when it is
                // asked for again.
                let why = if answers.len() < MANY_NAMES {
                    remember(&mut self.slow, part.id());
                    Unnamed::TooSlow
                } else {
                    Unnamed::Pending
                };
                answers.resize(places.len(), Err(why));
                break;
            }
            let some = answers.len()..places.len().min(answers.len() + piece);
            let numbers: Vec<u64> = match places {
                FilePlaces::Offsets(offsets) => offsets[some].iter().map(|at| at.get()).collect(),
                FilePlaces::Addresses(addresses) => {
                    addresses[some].iter().map(|at| at.get()).collect()
                }
            };
            let input = match places {
                FilePlaces::Offsets(_) => Input::FileOffset(&*numbers),
                FilePlaces::Addresses(_) => Input::VirtOffset(&*numbers),
            };
            let result = bus_guard::while_guarded(|| {
                catch_unwind(AssertUnwindSafe(|| {
                    symbolizer
                        .symbolize(&source, input)
                        .map(|answers| answers.iter().map(answer).collect::<Vec<_>>())
                }))
            });
            match result {
                Ok(Ok(found)) if found.len() == numbers.len() => answers.extend(found),
                Ok(_) => return Err(Unnamed::Unreadable),
                Err(_) => {
                    self.panics += 1;
                    remember(&mut self.broken, part.id());
                    // Whatever state it was left in goes with it.
                    self.loaded.clear();
                    self.symbolizer = symbolizer_anew();
                    return Err(Unnamed::Panicked);
                }
            }
            piece = if thread_ns().saturating_sub(began_ns) < PIECE_NS {
                (piece * 4).min(MAX_PIECE)
            } else {
                1
            };
        }
        Ok(answers)
    }

    /// Unloads files that are idle, and the longest idle ones of too many or too large ones. Hands
    /// freed memory back to the system.
    pub(super) fn unload(&mut self, now_ns: MonoNs) {
        let mut by_use: Vec<(MonoNs, u64, PartId)> = self
            .loaded
            .iter()
            .map(|(part, loaded)| (loaded.used_ns, loaded.table_bytes, *part))
            .collect();
        by_use.sort_unstable_by(|a, b| b.cmp(a));
        let mut unloaded = false;
        let mut room_bytes = self.max_bytes;
        for (index, (used_ns, bytes, part)) in by_use.into_iter().enumerate() {
            let fits = index < MAX_LOADED && bytes <= room_bytes;
            if fits && now_ns.saturating_since(used_ns) <= IDLE_NS {
                room_bytes -= bytes;
                continue;
            }
            let Some(loaded) = self.loaded.remove(&part) else {
                continue;
            };
            unloaded = true;
            let path = loaded.part.path();
            if self
                .symbolizer
                .evict(&Evict::Elf(evict::Elf::new(path)))
                .is_err()
            {
                // It cannot fail for a loaded file; if it does, everything goes.
                self.loaded.clear();
                self.symbolizer = symbolizer_anew();
                break;
            }
        }
        if unloaded {
            heap::trim();
        }
    }
}

/// Adds a file to those that are left alone, in the place of the oldest where there are many.
fn remember(files: &mut Vec<PartId>, id: PartId) {
    if files.len() >= MAX_BROKEN {
        files.remove(0);
    }
    files.push(id);
}

fn symbolizer() -> Symbolizer {
    Symbolizer::builder()
        .enable_code_info(false)
        .enable_inlined_fns(false)
        // Done by `demangle`, which is bounded.
        .enable_demangling(false)
        .build()
}

/// The same under a name that says why.
fn symbolizer_anew() -> Symbolizer {
    symbolizer()
}

impl NameQuery {
    fn answered(self) -> Result<FoundFunction, Unnamed> {
        let found = FoundFunction::of(self.answer?);
        Ok(match self.jump {
            None => found,
            Some(start) => found.jumped_to_from(start),
        })
    }
}

impl FoundFunction {
    fn of(symbol: NamedSymbol) -> Self {
        Self {
            address: symbol.address,
            name: demangle(without_version(&symbol.name)),
        }
    }

    /// The jump to this function that begins there.
    fn jumped_to_from(self, start: ModuleAddress) -> Self {
        const JUMP: &str = "@plt";
        let mut name = String::from(self.name);
        name.truncate(name.floor_char_boundary(MAX_NAME_BYTES - JUMP.len()));
        name.push_str(JUMP);
        Self {
            name: name.into(),
            address: start,
        }
    }
}

fn answer(symbolized: &Symbolized<'_>) -> Result<NamedSymbol, Unnamed> {
    match symbolized {
        Symbolized::Sym(symbol) if !symbol.name.is_empty() => Ok(NamedSymbol {
            name: (&*symbol.name).into(),
            address: ModuleAddress::new(symbol.addr),
            size_bytes: symbol.size.map_or(0, |bytes| bytes as u64),
        }),
        Symbolized::Sym(_) => Err(Unnamed::NoSymbolThere),
        Symbolized::Unknown(reason) => Err(match reason {
            Reason::MissingSyms => Unnamed::NoSymbols,
            Reason::UnknownAddr | Reason::InvalidFileOffset | Reason::Unmapped => {
                Unnamed::NoSymbolThere
            }
            _ => Unnamed::Unreadable,
        }),
    }
}

#[cfg(test)]
#[path = "elf_tests.rs"]
mod tests;
