//! Names of functions in files and in the debug files beside them, by blazesym: symbol tables only, no debug information. Not
//! `Send`: lives on one thread.
//!
//! Each file is read through `/proc/self/fd/N` of the descriptor its module keeps, so that deleted files and those of
//! other mount namespaces work, and one file has one path for as long as it is loaded. A loaded file costs its index
//! (8 bytes a symbol) and the pages of its symbol table; both go when it was idle or too many are loaded.
//! It would break if a file shrank while it is read (the reader maps it): see `sys::bus_guard`.

use std::{
    collections::{HashMap, hash_map::Entry},
    fs::File,
    os::{fd::AsRawFd as _, unix::fs::MetadataExt as _},
    panic::{AssertUnwindSafe, catch_unwind},
    path::PathBuf,
    sync::Arc,
};

use blazesym::symbolize::{
    Input, Reason, Symbolized, Symbolizer,
    evict::{self, Evict},
    source::{self, Source},
};

use super::{debug_files::DebugFile, demangle::demangle, names::Unnamed, tables};
use crate::{
    processes::{files::ModuleFile, module::ModuleId},
    sys::{bus_guard, clock::thread_ns, heap},
};

/// Most files loaded at a time.
const MAX_LOADED: usize = 32;
/// Most bytes of their symbol tables together, beyond the module that is being named: with the strings about twice as much is
/// resident. A file that alone has more is loaded for each answer anew; names that were found are remembered elsewhere.
const MAX_LOADED_BYTES: u64 = 16 << 20;
/// A file not asked for this long is unloaded, nanoseconds.
const IDLE_NS: u64 = 30_000_000_000;
/// Most files remembered as having broken the symbolizer.
const MAX_BROKEN: usize = 1024;
/// Processor time for the names of one file at a time, and what is added for each byte of its symbol tables. One that takes longer is
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
pub(super) struct Found {
    /// Readable name.
    pub(super) name: Box<str>,
    /// Start, virtual address in the file.
    pub(super) address: u64,
}

/// A file that belongs to a module.
#[derive(Clone, Debug)]
pub(super) enum Part {
    /// The one that is mapped. Places in it are file offsets.
    Own(Arc<ModuleFile>),
    /// The one with what was taken out of it. Places in it are virtual addresses.
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

    fn input<'a>(&self, places: &'a [u64]) -> Input<&'a [u64]> {
        match self {
            Self::Own(_) => Input::FileOffset(places),
            Self::Debug(..) => Input::VirtOffset(places),
        }
    }

    fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/self/fd/{}", self.file().as_raw_fd()))
    }
}

#[derive(Debug)]
struct Loaded {
    /// Keeps the descriptor, and with it the path, as it is.
    part: Part,
    used_ns: u64,
    /// Bytes of its symbol tables.
    table_bytes: u64,
}

/// Finds names in files.
pub(super) struct ElfNames {
    symbolizer: Symbolizer,
    loaded: HashMap<PartId, Loaded>,
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
        places: &[u64],
        now_ns: u64,
    ) -> Vec<Result<Found, Unnamed>> {
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
                let Some(table_bytes) = tables::bytes_of(part.file()) else {
                    return vec![Err(Unnamed::Unreadable); places.len()];
                };
                place.insert(Loaded {
                    part,
                    used_ns: now_ns,
                    table_bytes,
                })
            }
        };
        loaded.used_ns = now_ns;
        let mut source = source::Elf::new(loaded.part.path());
        source.debug_syms = false;
        let source = Source::Elf(source);
        let end_ns = self
            .budget_ns
            .saturating_add(loaded.table_bytes * self.budget_ns_per_byte);
        let end_ns = thread_ns().saturating_add(end_ns);
        let symbolizer = &self.symbolizer;
        let mut answers = Vec::with_capacity(places.len());
        let mut piece = 1;
        while answers.len() < places.len() {
            let began_ns = thread_ns();
            if began_ns >= end_ns {
                // Of a file that is asked for very many places, the rest has its turn when it is asked for again.
                let why = if answers.len() < MANY_NAMES {
                    remember(&mut self.slow, id);
                    Unnamed::TooSlow
                } else {
                    Unnamed::Pending
                };
                answers.resize(places.len(), Err(why));
                break;
            }
            let rest = &places[answers.len()..];
            let part = &rest[..piece.min(rest.len())];
            let input = loaded.part.input(part);
            let result = bus_guard::while_guarded(|| {
                catch_unwind(AssertUnwindSafe(|| {
                    symbolizer
                        .symbolize(&source, input)
                        .map(|answers| answers.iter().map(answer).collect::<Vec<_>>())
                }))
            });
            match result {
                Ok(Ok(found)) if found.len() == part.len() => answers.extend(found),
                Ok(_) => return vec![Err(Unnamed::Unreadable); places.len()],
                Err(_) => {
                    self.panics += 1;
                    remember(&mut self.broken, id);
                    // Whatever state it was left in goes with it.
                    self.loaded.clear();
                    self.symbolizer = symbolizer_anew();
                    return vec![Err(Unnamed::Panicked); places.len()];
                }
            }
            piece = if thread_ns().saturating_sub(began_ns) < PIECE_NS {
                (piece * 4).min(MAX_PIECE)
            } else {
                1
            };
        }
        answers
    }

    /// Unloads files that are idle, and the longest idle ones of too many or too large ones. Hands freed memory back to the
    /// system.
    pub(super) fn unload(&mut self, now_ns: u64) {
        let mut by_use: Vec<(u64, u64, PartId)> = self
            .loaded
            .iter()
            .map(|(part, loaded)| (loaded.used_ns, loaded.table_bytes, *part))
            .collect();
        by_use.sort_unstable_by(|a, b| b.cmp(a));
        let mut unloaded = false;
        let mut room_bytes = self.max_bytes;
        for (index, (used_ns, bytes, part)) in by_use.into_iter().enumerate() {
            let fits = index < MAX_LOADED && bytes <= room_bytes;
            if fits && now_ns.saturating_sub(used_ns) <= IDLE_NS {
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

fn answer(symbolized: &Symbolized<'_>) -> Result<Found, Unnamed> {
    match symbolized {
        Symbolized::Sym(symbol) if !symbol.name.is_empty() => Ok(Found {
            name: demangle(&symbol.name),
            address: symbol.addr,
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
