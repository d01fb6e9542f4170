//! The thread that finds lines: asked with places, those that matter most first. It decides which
//! file has their debug information, has one worker at a time read it, and remembers what was
//! found. Whoever asks waits for a time and takes what is there; the rest is there when it is asked
//! for again.

use std::{
    collections::{HashMap, VecDeque},
    io, iter,
    sync::{Arc, Mutex, MutexGuard, PoisonError, mpsc},
    time::{Duration, Instant},
};

pub use super::launch::WorkerOptions;
use super::{Code, LineTable, NoLine, Steps, cache::LineCache, launch};
use crate::{
    processes::{files::ModuleFile, mappings::Place, module::ModuleId},
    symbols::{
        debug_files::{DebugFiles, ProgramFacts, supplementary},
        request::Request,
    },
    sys::{
        clock,
        heartbeat::Heartbeat,
        own_thread::{NotJoined, Questions},
    },
    units::ModuleAddress,
    units::MonoNs,
};

/// Questions that may wait; one beyond that is told to ask again.
const MAX_WAITING: usize = 8;
/// Most places looked up for one question.
const MAX_PLACES: usize = 32_768;
/// Longest time that one question may keep the thread.
const QUESTION_TIME: Duration = Duration::from_secs(60);
/// One file, and one process that reads it, do not take longer than this unless something is wrong:
/// such a process has 30 s.
const LONGEST_PIECE: Duration = Duration::from_secs(90);
/// What could not be found is tried again after this time, nanoseconds.
const AGAIN_NS: u64 = 60_000_000_000;

/// How to find lines.
#[derive(Clone, Debug)]
pub struct LineOptions {
    /// Memory for lines already found, bytes.
    pub cache_bytes: usize,
    /// How to start workers.
    pub worker: WorkerOptions,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// Places asked for.
    pub requests: u64,
    /// Places answered from memory.
    pub hits: u64,
    /// Places without a line, by reason, in the order of [`NoLine::ALL`]; each counts when it is
    /// looked up, not when it is remembered.
    pub unknown: [u64; NoLine::ALL.len()],
    /// Workers started.
    pub workers: u64,
    /// Workers that ended before they had answered, by reason, in the order of [`NoLine::ALL`].
    pub failures: [u64; NoLine::ALL.len()],
    /// Most memory that a worker has had, mapped files included, bytes.
    pub worker_peak_bytes: u64,
    /// Processor time of all workers, nanoseconds.
    pub worker_processor_ns: u64,
    /// Memory for lines, bytes, estimated.
    pub cache_bytes: u64,
}

/// What the thread and those who ask share.
#[derive(Debug)]
struct FinderState {
    cache: LineCache,
    counts: LineCounts,
}

type LineQuery = (Vec<Request>, mpsc::SyncSender<Vec<Code>>);

/// The way to the thread. It ends when the last copy of this is gone, or by [`LineFinder::end`].
#[derive(Clone, Debug)]
pub struct LineFinder {
    questions: Questions<LineQuery>,
    shared: Arc<Mutex<FinderState>>,
    heartbeat: Heartbeat,
}

impl LineFinder {
    /// Starts the thread.
    ///
    /// # Errors
    ///
    /// No thread could be made.
    pub fn spawn(options: LineOptions) -> io::Result<Self> {
        let shared = Arc::new(Mutex::new(FinderState {
            cache: LineCache::new(options.cache_bytes),
            counts: LineCounts::default(),
        }));
        let heartbeat = Heartbeat::new("lines", LONGEST_PIECE);
        let mut finder = Finder {
            heartbeat: heartbeat.clone(),
            options: options.worker,
            debug_files: DebugFiles::default(),
            shared: Arc::clone(&shared),
        };
        let life = heartbeat.clone();
        let mut work = move |waiting: mpsc::Receiver<LineQuery>| {
            for (requests, answer) in waiting {
                // Whoever asked may not wait any more: then it is for the next time.
                answer.send(finder.answer(&requests)).ok();
            }
        };
        let questions = Questions::to_thread("lines", MAX_WAITING, move |waiting| {
            life.live(move || work(waiting));
        })?;
        Ok(Self {
            questions,
            shared,
            heartbeat,
        })
    }

    /// Asks for lines, those that matter most first, and waits for them no longer than `patience`.
    /// Not to be called on a thread that runs async tasks.
    #[must_use]
    pub fn table(&self, requests: Vec<Request>, patience: Duration) -> LineTable {
        let mut table: Vec<(Place, Code)> = Vec::with_capacity(requests.len());
        let mut missing = Vec::new();
        {
            let mut shared = lock(&self.shared);
            let now_ns = clock::monotonic_ns();
            shared.counts.requests += requests.len() as u64;
            for request in requests {
                let known = match Code::without_file(request.module.kind, request.place.offset) {
                    Some(code) => Some(code),
                    None => shared.cache.get(request.place, now_ns),
                };
                match known {
                    Some(code) => table.push((request.place, code)),
                    None => missing.push(request),
                }
            }
            shared.counts.hits += table.len() as u64;
        }
        let beyond = missing.split_off(missing.len().min(MAX_PLACES));
        let places: Vec<Place> = missing.iter().map(|request| request.place).collect();
        let answers = self.ask(missing, patience);
        let mut shared = lock(&self.shared);
        match answers {
            Some(answers) => table.extend(places.into_iter().zip(answers)),
            None => {
                let now_ns = clock::monotonic_ns();
                let found = |place| {
                    let known = shared.cache.get(place, now_ns);
                    (place, known.unwrap_or_else(|| none(NoLine::Pending)))
                };
                table.extend(places.into_iter().map(found));
            }
        }
        shared.counts.unknown[NoLine::TooMany as usize] += beyond.len() as u64;
        let too_many = beyond
            .into_iter()
            .map(|request| (request.place, none(NoLine::TooMany)));
        table.extend(too_many);
        table.into_iter().collect()
    }

    /// The answers of the thread; `None` if they take longer, or it has too much to do.
    fn ask(&self, missing: Vec<Request>, patience: Duration) -> Option<Vec<Code>> {
        if missing.is_empty() {
            return Some(Vec::new());
        }
        let (answer, answers) = mpsc::sync_channel(1);
        if !self.questions.ask((missing, answer)) {
            return None;
        }
        answers.recv_timeout(patience).ok()
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
    pub fn counts(&self) -> LineCounts {
        let shared = lock(&self.shared);
        LineCounts {
            cache_bytes: shared.cache.held_bytes() as u64,
            ..shared.counts
        }
    }
}

fn lock(shared: &Mutex<FinderState>) -> MutexGuard<'_, FinderState> {
    shared.lock().unwrap_or_else(PoisonError::into_inner)
}

fn none(why: NoLine) -> Code {
    Code {
        address: None,
        steps: Err(why),
    }
}

struct Finder {
    options: WorkerOptions,
    debug_files: DebugFiles,
    shared: Arc<Mutex<FinderState>>,
    heartbeat: Heartbeat,
}

impl Finder {
    /// What is at each place, in order. All that is found is remembered.
    fn answer(&mut self, requests: &[Request]) -> Vec<Code> {
        let deadline = Instant::now() + QUESTION_TIME;
        let mut answers: Vec<Option<Code>> = vec![None; requests.len()];
        let mut modules: Vec<(ModuleId, Vec<usize>)> = Vec::new();
        let mut at: HashMap<ModuleId, usize> = HashMap::new();
        {
            // Others may have asked for the same meanwhile.
            let mut shared = lock(&self.shared);
            let now_ns = clock::monotonic_ns();
            for (index, request) in requests.iter().enumerate() {
                answers[index] = shared.cache.get(request.place, now_ns);
                if answers[index].is_none() {
                    let module = request.place.module;
                    let at = *at.entry(module).or_insert(modules.len());
                    if at == modules.len() {
                        modules.push((module, Vec::new()));
                    }
                    modules[at].1.push(index);
                }
            }
        }
        for (_, indexes) in modules {
            let of_module: Vec<&Request> = indexes.iter().map(|index| &requests[*index]).collect();
            let found = self.find(&of_module, deadline);
            for (index, code) in indexes.into_iter().zip(found) {
                answers[index] = Some(code);
            }
        }
        let answers = answers.into_iter();
        answers
            .map(|answer| answer.unwrap_or_else(|| none(NoLine::Pending)))
            .collect()
    }

    /// What is at places of one module.
    fn find(&mut self, requests: &[&Request], deadline: Instant) -> Vec<Code> {
        let Some(request) = requests.first() else {
            return Vec::new();
        };
        let piece = self.heartbeat.begin("looking for a file of lines");
        let now_ns = clock::monotonic_ns();
        let file = request.file.as_deref().filter(|file| !has_shrunk(file));
        let Some(file) = file else {
            return self.refuse(requests, None, NoLine::NoFile);
        };
        self.debug_files.look_again(request, now_ns);
        let Some(facts) = self.debug_files.facts(request, now_ns) else {
            return self.refuse(requests, None, NoLine::Unreadable);
        };
        let source = match &facts.debug {
            _ if facts.has.lines => &file.file,
            Some(debug) if debug.has.lines => &debug.file,
            _ => return self.refuse(requests, Some(&facts), NoLine::NoDebugInformation),
        };
        let shared_with = supplementary(request, source);
        let ask = |addresses| launch::ask(&self.options, source, shared_with.as_ref(), addresses);
        let mut codes: Vec<Option<Code>> = vec![None; requests.len()];
        let mut left: VecDeque<(usize, ModuleAddress)> = VecDeque::with_capacity(requests.len());
        for (index, request) in requests.iter().enumerate() {
            match facts.address(request.place.offset.in_file()) {
                Some(address) => left.push_back((index, address)),
                // It is in nothing that is loaded.
                None => {
                    codes[index] =
                        Some(self.keep(request, None, Err(NoLine::NoLineThere), MonoNs::MAX))
                }
            }
        }
        while !left.is_empty() && Instant::now() < deadline {
            piece.next("lines of a file");
            let answer = ask(left.iter().map(|(_, address)| *address).collect());
            self.count(&answer);
            let found = answer.found.len();
            let blamed = match (found, answer.rest) {
                // The file as a whole may be to blame.
                (0, Some(_)) => left.len(),
                // It had answered all that it may at a time.
                (_, Some(NoLine::Pending) | None) => 0,
                // The first one without an answer is what it ended over.
                (_, Some(_)) => 1,
            };
            let answers = answer.found.into_iter().map(|steps| (steps, MonoNs::MAX));
            let blame = answer.rest.unwrap_or(NoLine::WorkerDied);
            let blames = iter::repeat_n((Err(blame), now_ns + AGAIN_NS), blamed);
            for (steps, until_ns) in answers.chain(blames) {
                let Some((index, address)) = left.pop_front() else {
                    break;
                };
                codes[index] = Some(self.keep(requests[index], Some(address), steps, until_ns));
            }
        }
        for (index, address) in left {
            codes[index] = Some(Code {
                address: Some(address),
                steps: Err(NoLine::Pending),
            });
        }
        codes
            .into_iter()
            .map(|code| code.unwrap_or_else(|| none(NoLine::Pending)))
            .collect()
    }

    /// All of them have no line, for a time.
    fn refuse(
        &self,
        requests: &[&Request],
        facts: Option<&ProgramFacts>,
        why: NoLine,
    ) -> Vec<Code> {
        let until_ns = clock::monotonic_ns() + AGAIN_NS;
        let mut shared = lock(&self.shared);
        shared.counts.unknown[why as usize] += requests.len() as u64;
        let refused = requests.iter().map(|request| {
            let code = Code {
                address: facts.and_then(|facts| facts.address(request.place.offset.in_file())),
                steps: Err(why),
            };
            shared.cache.insert(request.place, code.clone(), until_ns);
            code
        });
        refused.collect()
    }

    fn keep(
        &self,
        request: &Request,
        address: Option<ModuleAddress>,
        steps: Result<Steps, NoLine>,
        until_ns: MonoNs,
    ) -> Code {
        let code = Code { address, steps };
        let mut shared = lock(&self.shared);
        if let Err(why) = code.steps {
            shared.counts.unknown[why as usize] += 1;
        }
        shared.cache.insert(request.place, code.clone(), until_ns);
        code
    }

    fn count(&self, answer: &launch::WorkerAnswer) {
        let counts = &mut lock(&self.shared).counts;
        counts.workers += 1;
        counts.worker_peak_bytes = counts.worker_peak_bytes.max(answer.peak_bytes);
        counts.worker_processor_ns += answer.processor_ns;
        if let Some(why) = answer.rest {
            counts.failures[why as usize] += 1;
        }
    }
}

/// A file that shrank is not the one that was mapped.
fn has_shrunk(file: &ModuleFile) -> bool {
    file.file.metadata().map_or(0, |metadata| metadata.len()) < file.identity.size_bytes
}
