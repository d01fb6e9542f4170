//! Chooses functions to be measured: from patterns and the files that processes have mapped to
//! what is to be attached. It reads files of others, which takes a while: not for a thread that
//! serves.

use std::collections::HashSet;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use thiserror::Error;

use crate::collect::{MoreFunctions, PlannedFunction, PlannedPoint, RefusedFunction};
use crate::kernel::FunctionProbes;
use crate::processes::source::{ProcFs, ProcessSource as _};
use crate::symbols::chosen::{Chosen, FilePoint, MAX_FUNCTIONS, NoChoice, Pattern, choose_within};
use crate::sys::clock::thread_ns;
use crate::sys::proc_fs;
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
    pub file: File,
    /// It is the program itself: what else has it mapped is another run of it.
    pub is_program: bool,
}

/// Files with functions of one instrumentation: they are held open as long as it is kept.
const MAX_FILES: usize = 16;

/// Most USDT points of one instrumentation that may be meant, and most spans.
pub const MAX_ITEMS: usize = 256;
/// Files with its USDT points and spans, which are held open as well.
pub(super) const MAX_POINT_FILES: usize = 64;

/// Why nothing was chosen.
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

/// See the module.
#[derive(Default)]
pub struct Chooser {
    patterns: Vec<Pattern>,
    exits: Exits,
    /// Processor time that may still be taken, nanoseconds.
    left_ns: u64,
    /// Files that were looked through: device and inode.
    seen: HashSet<(u64, u64)>,
    /// Patterns of which a function was found, by their place.
    found: HashSet<usize>,
    /// Patterns of which a file was looked through.
    looked: HashSet<usize>,
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
            left_ns: budget_ns,
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

    /// Gives it more processor time, up to this.
    pub fn allow(&mut self, budget_ns: u64) {
        self.left_ns = self.left_ns.max(budget_ns);
    }

    /// The files that a process has mapped as code and any pattern means; none where it is gone.
    #[must_use]
    pub fn mapped(&self, pid: u32) -> Vec<CodeFile> {
        mapped(pid, |path| self.is_meant(path))
    }

    /// Does any pattern mean that file?
    #[must_use]
    pub fn is_meant(&self, path: &str) -> bool {
        self.patterns.iter().any(|one| one.is_of_module(path))
    }

    /// The functions that are meant of these files, of those that were not looked through yet.
    ///
    /// # Errors
    /// [`NotChosen`]; what was chosen of files before it is lost.
    pub fn choose(&mut self, modules: Vec<CodeFile>) -> Result<MoreFunctions, NotChosen> {
        let mut more = MoreFunctions::default();
        for module in modules {
            let metadata = module.file.metadata();
            let metadata =
                metadata.map_err(|error| NotChosen::Unreadable(module.path.clone(), error))?;
            let all = self.patterns.iter().enumerate();
            let wanted = all.filter(|(_, pattern)| pattern.is_of_module(&module.path));
            let wanted: Vec<(usize, Pattern)> = wanted
                .map(|(place, pattern)| (place, pattern.clone()))
                .collect();
            if wanted.is_empty() || !self.seen.insert((metadata.dev(), metadata.ino())) {
                continue;
            }
            let file = Arc::new(module.file);
            let mut taken = HashSet::new();
            let before = more.functions.len();
            for (place, pattern) in wanted {
                let began_ns = thread_ns();
                let chosen = choose_within(&file, &[&pattern], self.left_ns);
                let took_ns = thread_ns().saturating_sub(began_ns);
                self.left_ns = self.left_ns.saturating_sub(took_ns);
                let chosen = chosen.map_err(|why| NotChosen::File(module.path.clone(), why))?;
                self.looked.insert(place);
                if !chosen.is_empty() {
                    self.found.insert(place);
                }
                for chosen in chosen {
                    if taken.insert(chosen.address) {
                        self.plan(&mut more, &module.path, (&file, module.is_program), chosen);
                    }
                }
            }
            self.files += usize::from(more.functions.len() > before);
            if self.files > MAX_FILES {
                return Err(NotChosen::TooManyFiles);
            }
        }
        let count = self.chosen + more.functions.len();
        if count > MAX_FUNCTIONS {
            return Err(NotChosen::TooMany(count));
        }
        self.chosen = count;
        Ok(more)
    }

    /// One function as it is to be measured, or why it is not.
    fn plan(
        &self,
        more: &mut MoreFunctions,
        module: &str,
        (file, is_program): (&Arc<File>, bool),
        chosen: Chosen,
    ) {
        let points = match chosen.points {
            Ok(points) => points,
            Err(why) => {
                more.refused.push(RefusedFunction {
                    name: chosen.name,
                    module: module.to_owned(),
                    why: why.to_string(),
                });
                return;
            }
        };
        if points.loops && self.exits == Exits::None {
            more.refused.push(RefusedFunction {
                name: chosen.name,
                module: module.to_owned(),
                why: NoProbe::Loop.to_string(),
            });
            return;
        }
        let exits = match points.exits {
            Ok(_) if self.exits == Exits::None => {
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
            module: module.into(),
            address: chosen.address,
            file: Arc::clone(file),
            shared: !is_program,
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
    let identity = |path: &str| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
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
    let program = identity(&format!("/proc/{pid}/exe"));
    let opened = meant.into_iter().filter_map(|(path, entry)| {
        // Through the mapping itself: also what was deleted, or has another root. No device and
        // no pipe is opened.
        let (file, _) = ProcFs.open_mapped(pid, entry.start..entry.end)?;
        let metadata = file.metadata().ok()?;
        Some(CodeFile {
            path,
            is_program: program == Some((metadata.dev(), metadata.ino())),
            file,
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
mod tests {
    use super::*;

    fn own_program() -> CodeFile {
        CodeFile {
            path: "/usr/bin/app".to_owned(),
            file: File::open("/proc/self/exe").unwrap(),
            is_program: true,
        }
    }

    fn chooser(pattern: &str, budget_ns: u64) -> Chooser {
        Chooser::new(vec![pattern.parse().unwrap()], Exits::None, budget_ns)
    }

    // Check that choosing ends when its processor time is over, and says so with the file.
    #[test]
    fn looking_takes_no_more_than_it_may() {
        let mut chooser = chooser("app:no_such_function", 0);
        let refused = chooser.choose(vec![own_program()]).unwrap_err();
        assert!(
            matches!(refused, NotChosen::File(path, NoChoice::TooSlow) if path == "/usr/bin/app")
        );
    }

    // Check that a function of a mapped file is found once, that its program is told apart from
    // libraries, and that what no pattern means is not opened.
    #[test]
    fn what_this_program_has_mapped() {
        let own = std::fs::read_link("/proc/self/exe").unwrap();
        let path = own.to_str().unwrap();
        let mut chooser = chooser(
            &format!("{path}:*looking_takes_no_more_than_it_may*"),
            u64::MAX,
        );
        let pid = proc_fs::own_pid(std::process::id()).unwrap();
        let modules = chooser.mapped(pid);
        assert_eq!(modules.len(), 1);
        assert!(modules[0].is_program);
        let more = chooser.choose(modules).unwrap();
        assert!(!more.functions.is_empty());
        assert!(
            more.functions
                .iter()
                .all(|one| !one.shared && one.exits.is_err())
        );
        assert!(chooser.missing().is_empty());
        let again = chooser.mapped(pid);
        assert!(chooser.choose(again).unwrap().functions.is_empty());
    }
}
