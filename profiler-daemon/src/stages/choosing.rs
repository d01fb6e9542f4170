//! Chooses functions to be measured: from patterns and the files that processes have mapped to
//! what is to be attached. It reads files of others, which takes a while: not for a thread that
//! serves.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::Arc;

use thiserror::Error;

use crate::collect::{MoreFunctions, PlannedFunction, PlannedPoint, RefusedFunction};
use crate::kernel::FunctionProbes;
use crate::processes::source::{ProcFs, ProcessSource as _};
use crate::symbols::chosen::{Chosen, FilePoint, MAX_FUNCTIONS, NoChoice, Pattern, choose_within};
use crate::sys::clock::thread_ns;
use crate::sys::code_file::CodeFileIdentity;
use crate::sys::proc_fs;
use crate::units::ModuleAddress;
use crate::unwind::points::NoProbe;

/// Mappings of one process that are looked at.
const MAX_MAPPINGS: usize = 4096;

/// How the ends of calls are found.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Exits {
    /// By the function's own returns and jumps to other functions.
    #[default]
    Sites,
    /// Not at all: calls are counted.
    None,
}

/// A file that a process has mapped as code, or is going to execute.
pub struct CodeFile {
    /// Its path, as that process sees it.
    pub path: String,
    /// The file.
    pub file: Arc<File>,
    /// It is the program itself: what else has it mapped is another run of it.
    pub is_program: bool,
    /// Whoever asks means this file, rather than whatever is called like it.
    pub is_named: bool,
}

/// The time for a look is over before a file was looked through: it is to be looked at again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PutOff;

/// Files with functions of one instrumentation: they are held open as long as it is kept.
const MAX_FILES: usize = 16;

/// Most USDT points of one instrumentation that may be meant, and most spans.
pub const MAX_ITEMS: usize = 256;
/// Files with its USDT points and spans, which are held open as well.
pub(super) const MAX_POINT_FILES: usize = 64;

/// Why nothing was chosen of a file.
#[derive(Debug, Error)]
pub enum NotChosen {
    /// A file cannot be looked at.
    #[error("cannot look at {0}: {1}")]
    Unreadable(String, #[source] std::io::Error),
    /// Its functions cannot be chosen.
    #[error("{0}: {1}")]
    File(String, #[source] NoChoice),
    /// More functions than are measured at a time.
    #[error(
        "{0} functions are meant; at most {MAX_FUNCTIONS} can be measured at a time: name fewer"
    )]
    TooMany(usize),
    /// More files than are held open.
    #[error(
        "functions of more than {MAX_FILES} files are meant: name the file, or fewer processes"
    )]
    TooManyFiles,
    /// More USDT points than are followed at a time.
    #[error("more than {MAX_ITEMS} USDT points are meant: name fewer")]
    TooManyPoints,
    /// More files with USDT points and spans than are held open.
    #[error(
        "USDT points and spans of more than {MAX_POINT_FILES} files are meant: name the file, or fewer processes"
    )]
    TooManyPointFiles,
}

impl NotChosen {
    /// Is more meant than may be, rather than that the file is of no use?
    pub(super) fn is_limit(&self) -> bool {
        match self {
            Self::Unreadable(..) => false,
            Self::File(_, why) => !matches!(why, NoChoice::NoProgram | NoChoice::TooSlow),
            Self::TooMany(_)
            | Self::TooManyFiles
            | Self::TooManyPoints
            | Self::TooManyPointFiles => true,
        }
    }

    /// The row of a file that is left out.
    pub(super) fn row(&self, sought: String, module: &str) -> RefusedFunction {
        RefusedFunction {
            name: sought,
            module: module.to_owned(),
            why: match self {
                Self::File(_, why) => why.to_string(),
                why => why.to_string(),
            },
        }
    }
}

/// Of what was sought, by its place: why the first file that is meant by it was left out.
pub(super) struct Failures<Place>(BTreeMap<Place, (NotChosen, bool)>);

impl<Place> Default for Failures<Place> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<Place: Copy + Ord> Failures<Place> {
    /// A file was left out. `is_named`: it was meant itself, by its path.
    pub(super) fn add(&mut self, place: Place, why: NotChosen, is_named: bool) {
        self.0.entry(place).or_insert((why, is_named));
    }

    /// It was found in another file.
    pub(super) fn forget(&mut self, place: Place) {
        self.0.remove(&place);
    }

    /// A failure for which nothing should begin: of what was named, or, where nothing was chosen,
    /// because too much is meant. `is_found`: whether it was found in other files.
    pub(super) fn take_fatal(
        &mut self,
        nothing_chosen: bool,
        is_found: impl Fn(Place) -> bool,
    ) -> Option<NotChosen> {
        let mut all = self.0.iter();
        let fatal = all.find(|(place, (why, is_named))| {
            let is_limit = why.is_limit();
            *is_named && (is_limit || !is_found(**place)) || nothing_chosen && is_limit
        });
        let place = *fatal?.0;
        self.0.remove(&place).map(|(why, _)| why)
    }
}

/// Processor time for looking through files: for all of a look together.
#[derive(Clone, Copy, Default)]
pub(super) struct LookTime {
    /// Of one look, nanoseconds.
    budget_ns: u64,
    left_ns: u64,
}

impl LookTime {
    pub(super) fn of(budget_ns: u64) -> Self {
        let left_ns = budget_ns;
        Self { budget_ns, left_ns }
    }

    /// All of it was taken.
    #[cfg(test)]
    pub(super) fn spent(budget_ns: u64) -> Self {
        let left_ns = 0;
        Self { budget_ns, left_ns }
    }

    /// Nothing of it was taken yet: a file that it is not enough for is too much.
    pub(super) fn is_whole(self) -> bool {
        self.left_ns >= self.budget_ns
    }

    /// Does it within the time that is left, and takes what it took off that.
    pub(super) fn spend<T>(&mut self, work: impl FnOnce(u64) -> T) -> T {
        let began_ns = thread_ns();
        let done = work(self.left_ns);
        let took_ns = thread_ns().saturating_sub(began_ns);
        self.left_ns = self.left_ns.saturating_sub(took_ns);
        done
    }
}

/// A file that was looked through, under one path or several.
struct SeenFile {
    file: CodeFileIdentity,
    /// For these patterns, by their place.
    patterns: HashSet<usize>,
    /// The functions that were chosen of it.
    chosen: HashSet<ModuleAddress>,
}

/// See the module.
#[derive(Default)]
pub struct Chooser {
    patterns: Vec<Pattern>,
    exits: Exits,
    time: LookTime,
    seen: Vec<SeenFile>,
    /// Patterns of which a function was found, by their place.
    found: HashSet<usize>,
    /// Patterns of which a file was looked through.
    looked: HashSet<usize>,
    /// Of patterns, by their place.
    failures: Failures<usize>,
    /// Functions that were chosen so far, and their files.
    chosen: usize,
    files: usize,
}

impl Chooser {
    /// Nothing was looked at yet; all looks together may take this thread, or another, so much of
    /// its processor time.
    #[must_use]
    pub fn new(patterns: Vec<Pattern>, exits: Exits, budget_ns: u64) -> Self {
        Self {
            patterns,
            exits,
            time: LookTime::of(budget_ns),
            ..Self::default()
        }
    }

    /// The patterns.
    #[must_use]
    pub fn patterns(&self) -> &[Pattern] {
        &self.patterns
    }

    /// Patterns of which no function was found yet.
    #[must_use]
    pub fn missing(&self) -> Vec<&Pattern> {
        let all = self.patterns.iter().enumerate();
        all.filter(|(place, _)| !self.found.contains(place))
            .map(|(_, pattern)| pattern)
            .collect()
    }

    /// Those of them whose file was looked through.
    #[must_use]
    pub fn missing_in_their_files(&self) -> Vec<&Pattern> {
        let all = self.patterns.iter().enumerate();
        all.filter(|(place, _)| !self.found.contains(place) && self.looked.contains(place))
            .map(|(_, pattern)| pattern)
            .collect()
    }

    /// Gives it so much processor time for the next look.
    pub fn allow(&mut self, budget_ns: u64) {
        self.time = LookTime::of(budget_ns);
    }

    /// Does any pattern mean that file?
    #[must_use]
    pub fn is_meant(&self, path: &str) -> bool {
        self.patterns.iter().any(|one| one.is_of_module(path))
    }

    /// Why nothing should be measured, although files that were met by chance are only left out: a
    /// file that was named cannot be looked through, or nothing is chosen because too much is
    /// meant.
    pub fn take_failure(&mut self) -> Option<NotChosen> {
        let found = &self.found;
        let nothing_chosen = self.chosen == 0;
        let is_found = |place| found.contains(&place);
        self.failures.take_fatal(nothing_chosen, is_found)
    }

    /// Adds the functions that are meant of a file by patterns for which it was not looked through
    /// yet. A file of which none can be chosen is a refused row, and so is one with more than may
    /// be.
    ///
    /// # Errors
    /// [`PutOff`]; nothing is then added.
    pub fn choose(&mut self, module: &CodeFile, more: &mut MoreFunctions) -> Result<(), PutOff> {
        let all = self.patterns.iter().enumerate();
        let wanted = all.filter(|(_, pattern)| pattern.is_of_module(&module.path));
        let wanted: Vec<usize> = wanted.map(|(place, _)| place).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let identity = match CodeFileIdentity::of(&module.file) {
            Ok(identity) => identity,
            Err(error) => {
                let why = NotChosen::Unreadable(module.path.clone(), error);
                self.leave_out(wanted[0], module, why, more);
                return Ok(());
            }
        };
        let seen = self
            .seen
            .iter()
            .position(|seen| seen.file.is_same(&identity));
        let is_new = |place: &usize| seen.is_none_or(|at| !self.seen[at].patterns.contains(place));
        let wanted: Vec<usize> = wanted.into_iter().filter(is_new).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let is_whole = self.time.is_whole();
        let mut chosen = Vec::with_capacity(wanted.len());
        for place in wanted.iter().copied() {
            let pattern = &self.patterns[place];
            let within = |left_ns| choose_within(&module.file, &[pattern], left_ns);
            let found = self.time.spend(within);
            if found == Err(NoChoice::TooSlow) && !is_whole {
                return Err(PutOff);
            }
            chosen.push((place, found));
        }
        let seen = seen.unwrap_or(self.seen.len());
        if seen == self.seen.len() {
            self.seen.push(SeenFile {
                file: identity,
                patterns: HashSet::new(),
                chosen: HashSet::new(),
            });
        }
        self.seen[seen].patterns.extend(wanted);
        let mut taken = std::mem::take(&mut self.seen[seen].chosen);
        let is_counted = !taken.is_empty();
        let mut of_file = MoreFunctions::default();
        let mut places = Vec::new();
        for (place, found) in chosen {
            let found = match found {
                Ok(found) => found,
                Err(why) => {
                    let why = NotChosen::File(module.path.clone(), why);
                    self.leave_out(place, module, why, more);
                    continue;
                }
            };
            self.looked.insert(place);
            if !found.is_empty() {
                self.found.insert(place);
                self.failures.forget(place);
                places.push(place);
            }
            for chosen in found {
                if taken.insert(chosen.address) {
                    self.plan(&mut of_file, module, chosen);
                }
            }
        }
        self.seen[seen].chosen = taken;
        more.refused.append(&mut of_file.refused);
        let count = self.chosen + of_file.functions.len();
        let files = self.files + usize::from(!is_counted && !of_file.functions.is_empty());
        let too_much = || {
            (count > MAX_FUNCTIONS)
                .then_some(NotChosen::TooMany(count))
                .or_else(|| (files > MAX_FILES).then_some(NotChosen::TooManyFiles))
        };
        if too_much().is_none() {
            (self.chosen, self.files) = (count, files);
            more.functions.append(&mut of_file.functions);
            return Ok(());
        }
        for place in places {
            if let Some(why) = too_much() {
                self.leave_out(place, module, why, more);
            }
        }
        Ok(())
    }

    /// Of a file nothing is measured that a pattern means. What is no program, and means nobody who
    /// named a file, is not worth a word.
    fn leave_out(
        &mut self,
        place: usize,
        module: &CodeFile,
        why: NotChosen,
        more: &mut MoreFunctions,
    ) {
        let pattern = &self.patterns[place];
        let is_named =
            module.is_named && pattern.names_module() || pattern.path() == Some(&module.path);
        if why.is_limit() {
            self.found.insert(place);
        }
        let is_no_program = matches!(why, NotChosen::File(_, NoChoice::NoProgram));
        if is_named || pattern.names_module() || !is_no_program {
            more.refused.push(why.row(pattern.text(), &module.path));
        }
        self.failures.add(place, why, is_named);
    }

    /// One function as it is to be measured, or why it is not.
    fn plan(&self, more: &mut MoreFunctions, module: &CodeFile, chosen: Chosen) {
        let counts = self.exits == Exits::None;
        let points = match chosen.points {
            Ok(points) if points.loops && counts => Err(NoProbe::Loop.into()),
            points => points,
        };
        let points = match points {
            Ok(points) => points,
            Err(why) => {
                more.refused.push(RefusedFunction {
                    name: chosen.name,
                    module: module.path.clone(),
                    why: why.to_string(),
                });
                return;
            }
        };
        let exits = match points.exits {
            Ok(_) if counts => {
                Err("its calls are counted, as was asked".to_owned())
            }
            Ok(_) if points.goroutines && !FunctionProbes::follows_goroutines() => Err(
                "its calls are counted only: it is Go's, whose calls are followed from thread to thread from Linux 6.1 on"
                    .to_owned(),
            ),
            Ok(exits) => Ok(exits.into_iter().map(planned_point).collect()),
            Err(why) => Err(format!("its calls are counted only: {why}")),
        };
        more.functions.push(PlannedFunction {
            name: chosen.name,
            aliases: chosen.aliases,
            module: module.path.as_str().into(),
            address: chosen.address,
            file: Arc::clone(&module.file),
            shared: !module.is_program,
            entry: planned_point(points.entry),
            exits,
            loops: points.loops,
            goroutines: points.goroutines && FunctionProbes::follows_goroutines(),
        });
    }
}

/// The files that a process has mapped as code and that are meant, by their paths; none where it is
/// gone.
#[must_use]
pub fn mapped(pid: u32, is_meant: impl Fn(&str) -> bool) -> Vec<CodeFile> {
    let maps = proc_fs::exec_maps(pid, MAX_MAPPINGS).unwrap_or_default();
    let mut seen = HashSet::new();
    let files = maps.entries.iter().filter(|entry| entry.inode != 0);
    let meant = files.filter_map(|entry| {
        let path = String::from_utf8_lossy(&entry.path);
        let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
        let is_new = is_meant(path) && seen.insert((entry.device, entry.inode));
        is_new.then(|| (path.to_owned(), entry))
    });
    let meant: Vec<_> = meant.collect();
    if meant.is_empty() {
        return Vec::new();
    }
    let program = CodeFileIdentity::at(Path::new(&format!("/proc/{pid}/exe"))).ok();
    let opened = meant.into_iter().filter_map(|(path, entry)| {
        // Through the mapping itself: also what was deleted, or has another root. No device and
        // no pipe is opened.
        let (file, _) = ProcFs.open_mapped(pid, entry.start..entry.end)?;
        let own = CodeFileIdentity::of(&file).ok()?;
        Some(CodeFile {
            path,
            is_program: program.is_some_and(|program| program.is_same(&own)),
            is_named: false,
            file: Arc::new(file),
        })
    });
    opened.collect()
}

fn planned_point(point: FilePoint) -> PlannedPoint {
    PlannedPoint {
        offset: point.offset,
        stepped: point.stepped,
        condition: point.condition,
    }
}

#[cfg(test)]
impl CodeFile {
    /// A program of that path.
    pub(super) fn made_up(path: &str, file: File) -> Self {
        Self {
            path: path.to_owned(),
            file: Arc::new(file),
            is_program: true,
            is_named: false,
        }
    }

    /// This program, as if it had that path. It has a function [`sought_by_tests`].
    pub(super) fn own(path: &str) -> Self {
        sought_by_tests();
        Self::made_up(path, File::open("/proc/self/exe").expect("this program"))
    }
}

/// What tests look for in this program. It has a symbol however it is optimized, which a test
/// itself need not have.
#[cfg(test)]
#[inline(never)]
fn sought_by_tests() {
    std::hint::black_box("sought by tests");
}

#[cfg(test)]
#[path = "choosing_tests.rs"]
mod tests;
