//! The thread that finds names: asked with places, answers with functions, each place looked up
//! once. Slow work (reading symbol tables) happens here and nowhere else.

use std::{
    collections::HashMap,
    io,
    os::unix::fs::MetadataExt as _,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
        mpsc,
    },
    time::{Duration, Instant},
};

use super::{
    cache::NameCache,
    debug_files::DebugFiles,
    elf::{ElfNames, FilePlaces, NO_ADDRESS, Part},
    kallsyms::Kallsyms,
    names::{FunctionName, Named, Unnamed},
    perf_map::PerfMaps,
    request::Request,
};
use crate::{
    processes::{
        files::ModuleFile,
        module::{ModuleId, ModuleKind},
    },
    sys::{
        clock,
        heartbeat::Heartbeat,
        own_thread::{NotJoined, Questions},
    },
    units::{FileOffset, ModuleAddress, ModuleOffset, MonoNs, VirtualAddress},
};

/// Questions that may wait; one beyond that is told to ask again.
const MAX_WAITING: usize = 64;
/// Longest time that one question may keep the thread, whether somebody waits or not; the file
/// under way is done with first.
const QUESTION_TIME: Duration = Duration::from_secs(20);
/// How often the thread looks whether files can be unloaded while nobody asks.
const IDLE_CHECK: Duration = Duration::from_secs(10);
/// The kernel's table is read again at most this often, when an address was not found in it,
/// nanoseconds.
const KERNEL_AGAIN_NS: u64 = 30_000_000_000;

/// Names of one file's functions are not looked for longer than this unless something is wrong, on
/// a machine that leaves the thread little time, too: it has 23 s of a processor at most.
const LONGEST_PIECE: Duration = Duration::from_secs(60);

/// How to find names.
#[derive(Clone, Copy, Debug)]
pub struct SymbolOptions {
    /// Memory for names already found, bytes.
    pub cache_bytes: usize,
}

impl Default for SymbolOptions {
    fn default() -> Self {
        Self {
            cache_bytes: 16 << 20,
        }
    }
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SymbolCounts {
    /// Places asked for.
    pub requests: u64,
    /// Places answered from memory.
    pub hits: u64,
    /// Places without a function's name, by reason, in the order of [`Unnamed::ALL`]; each place
    /// counts when it is looked up, not when it is remembered, but those that are pending in each
    /// answer.
    pub unnamed: [u64; Unnamed::ALL.len()],
    /// Times the symbolizer broke over a file.
    pub panics: u64,
    /// Files loaded now.
    pub loaded_files: u64,
    /// Memory for names, bytes, estimated.
    pub cache_bytes: u64,
    /// Names dropped for room.
    pub evictions: u64,
    /// Memory for the kernel's names, bytes.
    pub kernel_bytes: u64,
    /// Times that a file that names code made at run time had more functions than are kept.
    pub perf_maps_cut: u64,
}

/// Names that were found together, each with the number of its place in the question.
type FoundNames = Vec<(usize, Named)>;
/// Places, and where their names go as they are found.
type PlacesQuery = (Vec<Request>, mpsc::Sender<FoundNames>);

/// The way to the thread. It ends when the last copy of this is gone, or by [`Symbolizer::end`].
#[derive(Clone, Debug)]
pub struct Symbolizer {
    questions: Questions<PlacesQuery>,
    counts: Arc<Mutex<SymbolCounts>>,
    /// Names that were told to be pending.
    pending: Arc<AtomicU64>,
    heartbeat: Heartbeat,
}

impl Symbolizer {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// No thread could be made.
    pub fn spawn(options: SymbolOptions) -> io::Result<Self> {
        let counts = Arc::new(Mutex::new(SymbolCounts::default()));
        let shared = Arc::clone(&counts);
        let heartbeat = Heartbeat::new("symbols", LONGEST_PIECE);
        let life = heartbeat.clone();
        let work = move |heartbeat, waiting: mpsc::Receiver<PlacesQuery>| {
            let mut worker = NameWorker::new(options, heartbeat);
            loop {
                match waiting.recv_timeout(IDLE_CHECK) {
                    Ok((requests, answer)) => {
                        let until = Instant::now() + QUESTION_TIME;
                        // Where nobody waits any more, the names stay in the cache for the next
                        // time.
                        let tell = &mut |found| {
                            answer.send(found).ok();
                        };
                        worker.resolve(&requests, clock::monotonic_ns(), until, tell);
                    }
                    Err(mpsc::RecvTimeoutError::Timeout) => {}
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                }
                worker.unload(clock::monotonic_ns());
                *shared.lock().unwrap_or_else(PoisonError::into_inner) = worker.counts();
            }
        };
        let questions = Questions::to_thread("symbols", MAX_WAITING, move |waiting| {
            life.live(|| work(life.clone(), waiting));
        })?;
        Ok(Self {
            questions,
            counts,
            pending: Arc::default(),
            heartbeat,
        })
    }

    /// Asks for names, and waits for them no longer than `patience`; one for each place. What is
    /// not found by then says that it is pending, and is there when it is asked for again. Not to
    /// be called on a thread that runs async tasks.
    #[must_use]
    pub fn names(&self, requests: Vec<Request>, patience: Duration) -> Vec<Named> {
        let deadline = Instant::now() + patience;
        let mut names: Vec<Option<Named>> = vec![None; requests.len()];
        // A question keeps the thread for a time only, so that others have their turn: what is left
        // of it is asked again.
        loop {
            let left: Vec<usize> = (0..names.len())
                .filter(|index| names[*index].is_none())
                .collect();
            let asked = left.iter().map(|index| requests[*index].clone()).collect();
            let (answer, answers) = mpsc::channel();
            if left.is_empty() || !self.questions.ask((asked, answer)) {
                break;
            }
            let mut found = 0;
            // The other end is gone once all are answered, or the time of the question is over.
            while let Ok(several) =
                answers.recv_timeout(deadline.saturating_duration_since(Instant::now()))
            {
                for (index, named) in several {
                    if named.reason != Some(Unnamed::Pending) {
                        names[left[index]] = Some(named);
                        found += 1;
                    }
                }
            }
            if found == 0 || Instant::now() >= deadline {
                break;
            }
        }
        let pending = names.iter().filter(|named| named.is_none()).count();
        self.pending.fetch_add(pending as u64, Ordering::Relaxed);
        let named = |(request, named): (Request, Option<Named>)| {
            let pending = || Named::unnamed(request.place, &request.module, Unnamed::Pending);
            named.unwrap_or_else(pending)
        };
        requests.into_iter().zip(names).map(named).collect()
    }

    /// Takes no more questions, and waits for the thread's end no longer than that.
    ///
    /// # Errors
    /// [`NotJoined`].
    pub async fn end(&self, within: Duration) -> Result<(), NotJoined> {
        self.questions.end(within).await
    }

    /// Whether the thread moves.
    #[must_use]
    pub fn heartbeat(&self) -> Heartbeat {
        self.heartbeat.clone()
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> SymbolCounts {
        let mut counts = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.unnamed[Unnamed::Pending as usize] = self.pending.load(Ordering::Relaxed);
        counts
    }
}

struct NameWorker {
    elf: ElfNames,
    debug_files: DebugFiles,
    perf_maps: PerfMaps,
    cache: NameCache,
    kernel: Option<Kallsyms>,
    kernel_read_ns: MonoNs,
    counts: SymbolCounts,
    heartbeat: Heartbeat,
}

impl NameWorker {
    fn new(options: SymbolOptions, heartbeat: Heartbeat) -> Self {
        Self {
            elf: ElfNames::new(),
            debug_files: DebugFiles::default(),
            perf_maps: PerfMaps::default(),
            cache: NameCache::new(options.cache_bytes),
            kernel: None,
            kernel_read_ns: MonoNs::ZERO,
            counts: SymbolCounts::default(),
            heartbeat,
        }
    }

    /// Gives up what was not used for long.
    fn unload(&mut self, now_ns: MonoNs) {
        let _piece = self.heartbeat.begin("unloading symbol tables");
        self.elf.unload(now_ns);
        self.perf_maps.unload(now_ns);
    }

    fn counts(&self) -> SymbolCounts {
        SymbolCounts {
            panics: self.elf.panics(),
            loaded_files: self.elf.loaded() as u64,
            cache_bytes: self.cache.held_bytes() as u64,
            evictions: self.cache.evicted(),
            perf_maps_cut: self.perf_maps.cut(),
            kernel_bytes: self
                .kernel
                .as_ref()
                .map_or(0, |kernel| kernel.held_bytes() as u64),
            ..self.counts
        }
    }

    /// Tells the name of each place by its number, those first that are known, then files of
    /// root's, small ones first. After `until` no other file is looked at.
    fn resolve(
        &mut self,
        requests: &[Request],
        now_ns: MonoNs,
        until: Instant,
        tell: &mut dyn FnMut(FoundNames),
    ) {
        let piece = self.heartbeat.begin("looking for files of symbols");
        self.counts.requests += requests.len() as u64;
        self.look_again(requests, now_ns);
        let mut by_module: HashMap<ModuleId, Vec<usize>> = HashMap::new();
        let mut known = FoundNames::new();
        for (index, request) in requests.iter().enumerate() {
            match self.cache.get(request.place) {
                Some(named) => {
                    self.counts.hits += 1;
                    known.push((index, named));
                }
                None => by_module
                    .entry(request.place.module)
                    .or_default()
                    .push(index),
            }
        }
        tell(known);
        let mut by_module: Vec<Vec<usize>> = by_module.into_values().collect();
        by_module.sort_by_cached_key(|indexes| {
            let file = requests[indexes[0]].file.as_ref()?;
            let is_root = file.file.metadata().is_ok_and(|found| found.uid() == 0);
            Some((!is_root, file.identity.size_bytes))
        });
        for indexes in by_module {
            if Instant::now() >= until {
                return;
            }
            let offsets: Vec<ModuleOffset> = indexes
                .iter()
                .map(|index| requests[*index].place.offset)
                .collect();
            piece.next("names of a file's functions");
            let found = self.find(&requests[indexes[0]], &offsets, now_ns);
            // Before the next one is loaded: a report over the machine asks for all of them.
            self.elf.unload(now_ns);
            let mut several = FoundNames::with_capacity(indexes.len());
            for (index, found) in indexes.into_iter().zip(found) {
                let request = &requests[index];
                let named = match found {
                    Ok(function) => Named {
                        function: Arc::new(function),
                        reason: None,
                    },
                    Err(reason) => {
                        self.counts.unnamed[reason as usize] += 1;
                        Named::unnamed(request.place, &request.module, reason)
                    }
                };
                // A file that could not be opened may be opened for another process later; code
                // made at run time may be named later.
                let passing = matches!(
                    named.reason,
                    Some(Unnamed::NoFile | Unnamed::Jit | Unnamed::Pending)
                );
                let named = if passing {
                    named
                } else {
                    self.cache.insert(request.place, named)
                };
                several.push((index, named));
            }
            tell(several);
        }
    }

    /// The functions at offsets of one module.
    fn find(
        &mut self,
        request: &Request,
        offsets: &[ModuleOffset],
        now_ns: MonoNs,
    ) -> Vec<Result<FunctionName, Unnamed>> {
        let kind = request.module.kind;
        let addresses =
            || -> Vec<VirtualAddress> { offsets.iter().map(|offset| offset.in_memory()).collect() };
        match kind {
            ModuleKind::Unknown => vec![Err(Unnamed::UnknownModule); offsets.len()],
            ModuleKind::Jit => match &request.file {
                Some(file) => self.perf_maps.names(file, &addresses(), now_ns),
                None => vec![Err(Unnamed::Jit); offsets.len()],
            },
            ModuleKind::Kernel | ModuleKind::KernelModule => {
                self.find_in_kernel(kind, &addresses(), now_ns)
            }
            ModuleKind::User | ModuleKind::Vdso => {
                let Some(file) = &request.file else {
                    return vec![Err(Unnamed::NoFile); offsets.len()];
                };
                let offsets: Vec<FileOffset> =
                    offsets.iter().map(|offset| offset.in_file()).collect();
                let found = self.find_in_files(request, file, &offsets, now_ns);
                let function = |found: super::elf::FoundFunction| FunctionName {
                    name: found.name,
                    address: Some(found.address),
                    kind: kind.into(),
                    known: true,
                };
                found.into_iter().map(|found| found.map(function)).collect()
            }
        }
    }

    /// Where the file lacks its symbol table and another file has it, that one knows better.
    fn find_in_files(
        &mut self,
        request: &Request,
        file: &Arc<ModuleFile>,
        offsets: &[FileOffset],
        now_ns: MonoNs,
    ) -> Vec<Result<super::elf::FoundFunction, Unnamed>> {
        let own = Part::Own(Arc::clone(file));
        let facts = self.debug_files.facts(request, now_ns);
        let facts = facts.filter(|facts| !facts.has.symbols);
        let debug = facts.as_ref().and_then(|facts| facts.debug.as_ref());
        let (Some(facts), Some(debug)) = (&facts, debug.filter(|debug| debug.has.symbols)) else {
            return self.elf.names(own, FilePlaces::Offsets(offsets), now_ns);
        };
        // What is in no segment is at no address that the other file knows.
        let address = |offset: &FileOffset| facts.address(*offset).unwrap_or(NO_ADDRESS);
        let addresses: Vec<ModuleAddress> = offsets.iter().map(address).collect();
        let part = Part::Debug(request.place.module, Arc::clone(debug));
        let mut found = self
            .elf
            .names(part, FilePlaces::Addresses(&addresses), now_ns);
        let lacking = found.iter().enumerate().filter(|(_, name)| name.is_err());
        let lacking: Vec<usize> = lacking.map(|(index, _)| index).collect();
        if !lacking.is_empty() {
            let left: Vec<FileOffset> = lacking.iter().map(|index| offsets[*index]).collect();
            let names = self.elf.names(own, FilePlaces::Offsets(&left), now_ns);
            for (index, name) in lacking.into_iter().zip(names) {
                found[index] = name;
            }
        }
        found
    }

    /// Forgets the names of modules whose debug file has been installed since they were found, and
    /// of code made at run time whose process has named more since: it may be where other code was.
    fn look_again(&mut self, requests: &[Request], now_ns: MonoNs) {
        let mut looked_at: HashMap<ModuleId, bool> = HashMap::new();
        for request in requests {
            looked_at
                .entry(request.place.module)
                .or_insert_with(|| match &request.file {
                    Some(file) if request.module.kind == ModuleKind::Jit => {
                        self.perf_maps.look_again(file, now_ns)
                    }
                    _ => self.debug_files.look_again(request, now_ns),
                });
        }
        looked_at.retain(|_, found| *found);
        if !looked_at.is_empty() {
            self.cache
                .forget(|place, _| looked_at.contains_key(&place.module));
        }
    }

    fn find_in_kernel(
        &mut self,
        kind: ModuleKind,
        addresses: &[VirtualAddress],
        now_ns: MonoNs,
    ) -> Vec<Result<FunctionName, Unnamed>> {
        let missing = |kernel: &Kallsyms| {
            addresses
                .iter()
                .any(|address| kernel.find(*address).is_none())
        };
        let again = match &self.kernel {
            None => true,
            // A module or kernel program may have been loaded since.
            Some(kernel) => {
                missing(kernel) && now_ns.saturating_since(self.kernel_read_ns) > KERNEL_AGAIN_NS
            }
        };
        if again {
            let first = self.kernel.is_none();
            self.kernel = Some(Kallsyms::load().unwrap_or_default());
            self.kernel_read_ns = now_ns;
            if !first {
                // Only now can those without a name have got one.
                self.cache.forget(|_, named| {
                    let reason = named.reason;
                    reason == Some(Unnamed::Restricted)
                        || (reason == Some(Unnamed::NoSymbolThere)
                            && named.function.kind == super::names::FunctionKind::Kernel)
                });
            }
        }
        let kernel = self.kernel.get_or_insert_default();
        let name = |address: &VirtualAddress| {
            if kernel.restricted() {
                return Err(Unnamed::Restricted);
            }
            if kernel.is_empty() {
                return Err(Unnamed::NoSymbols);
            }
            let function = kernel.find(*address).ok_or(Unnamed::NoSymbolThere)?;
            let name = match function.module {
                // The frame's module does not say it.
                Some(module) if kind == ModuleKind::Kernel => {
                    format!("{} [{module}]", function.name)
                }
                _ => function.name.to_owned(),
            };
            Ok(FunctionName {
                name: super::demangle::demangle(&name),
                address: Some(ModuleAddress::of_address(function.start)),
                kind: kind.into(),
                known: true,
            })
        };
        addresses.iter().map(name).collect()
    }
}

#[cfg(test)]
#[path = "symbolizer_tests.rs"]
mod tests;
