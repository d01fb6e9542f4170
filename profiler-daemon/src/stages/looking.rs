//! Looks through what processes have mapped for what is to be measured and followed: through that
//! of each process again once it has mapped something else. It reads files of others, which takes a
//! while: not for a thread that serves.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;

use super::choosing::{Chooser, CodeFile, Exits, NotChosen, mapped};
use super::spanning::{Followed, SpanChooser};
use crate::collect::{MoreFunctions, RefusedFunction};
use crate::symbols::chosen::Pattern;
use crate::sys::code_file::CodeFileIdentity;
use crate::sys::proc_fs;

/// Refused functions and files that are told of one look.
const MAX_REFUSED: usize = 256;

/// See the module.
#[derive(Default)]
pub struct Looking {
    functions: Chooser,
    spans: SpanChooser,
    /// Processor time of one look for functions, and of one for USDT points and spans, nanoseconds.
    budget_ns: u64,
    /// Processes that were examined, each with what it had mapped then.
    examined: HashMap<u32, u64>,
    is_put_off: bool,
}

impl Looking {
    /// Nothing was looked at yet. A look may take `budget_ns` of its thread's processor time for
    /// functions, and as much for USDT points and spans.
    #[must_use]
    pub fn new(patterns: Vec<Pattern>, exits: Exits, followed: Followed, budget_ns: u64) -> Self {
        Self {
            functions: Chooser::new(patterns, exits, budget_ns),
            spans: SpanChooser::new(followed, budget_ns),
            budget_ns,
            ..Self::default()
        }
    }

    /// What is known of the functions.
    #[must_use]
    pub const fn functions(&self) -> &Chooser {
        &self.functions
    }

    /// What is known of the USDT points and spans.
    #[must_use]
    pub const fn spans(&self) -> &SpanChooser {
        &self.spans
    }

    /// What was found nowhere yet, by the field that it stands in.
    #[must_use]
    pub fn missing(&self) -> Vec<String> {
        let functions = self.functions.missing().into_iter();
        let functions = functions.map(|pattern| format!("functions: {}", pattern.text()));
        let spans = self.spans.missing().map(|missing| missing.text());
        functions.chain(spans).collect()
    }

    /// See [`Chooser::take_failure`].
    pub fn take_failure(&mut self) -> Option<NotChosen> {
        let failure = self.functions.take_failure();
        failure.or_else(|| self.spans.take_failure())
    }

    /// Whether the last look ended before everything was looked through: what is left is new still.
    #[must_use]
    pub const fn is_put_off(&self) -> bool {
        self.is_put_off
    }

    /// Has any of these processes, each with a number that changes as it maps files, mapped
    /// something since it was examined?
    #[must_use]
    pub fn is_new(&self, processes: &[(u32, u64)]) -> bool {
        let mut processes = processes.iter();
        processes.any(|(pid, changes)| self.examined.get(pid) != Some(changes))
    }

    /// What is meant of these files, each in the time of a look.
    pub fn files(&mut self, files: &[CodeFile]) -> MoreFunctions {
        let mut more = MoreFunctions::default();
        for file in files {
            self.allow();
            self.is_put_off |= !self.file(file, &mut more);
        }
        self.told(more)
    }

    /// What is meant of what these processes, at most so many, have mapped since they were
    /// examined. What another process runs too is told as such: its breakpoints are that one's as
    /// well.
    pub fn processes(&mut self, processes: &[(u32, u64)], most: usize) -> MoreFunctions {
        let pids: HashSet<u32> = processes.iter().map(|(pid, _)| *pid).collect();
        self.examined.retain(|pid, _| pids.contains(pid));
        self.allow();
        let changed = processes
            .iter()
            .filter(|(pid, changes)| self.examined.get(pid) != Some(changes));
        let changed: Vec<(u32, u64)> = changed.take(most).copied().collect();
        let mut more = MoreFunctions::default();
        for (pid, changes) in changed {
            // One process at a time: so its files alone are open.
            let is_meant = |path: &str| self.functions.is_meant(path) || self.spans.is_meant(path);
            for file in mapped(pid, is_meant) {
                self.is_put_off |= !self.file(&file, &mut more);
            }
            if self.is_put_off {
                break;
            }
            self.examined.insert(pid, changes);
        }
        let mut programs: Vec<(CodeFileIdentity, bool)> = Vec::new();
        let mut is_shared = |file: &File| {
            CodeFileIdentity::of(file).map_or(true, |file| {
                let known = programs.iter().find(|(known, _)| known.is_same(&file));
                let is_known_shared = known.map(|(_, is_shared)| *is_shared);
                is_known_shared.unwrap_or_else(|| {
                    let is_shared = is_run_by_others(&file, &pids);
                    programs.push((file, is_shared));
                    is_shared
                })
            })
        };
        for function in more.functions.iter_mut().filter(|one| !one.shared) {
            function.shared = is_shared(&function.file);
        }
        let places = more.items.iter_mut().flat_map(|item| &mut item.places);
        for place in places.filter(|place| !place.shared) {
            place.shared = is_shared(&place.file);
        }
        self.told(more)
    }

    fn allow(&mut self) {
        self.is_put_off = false;
        self.functions.allow(self.budget_ns);
        self.spans.allow(self.budget_ns);
    }

    /// False: it was put off.
    fn file(&mut self, file: &CodeFile, more: &mut MoreFunctions) -> bool {
        let spans = self.spans.choose(file, more);
        let functions = self.functions.choose(file, more);
        spans.and(functions).is_ok()
    }

    /// With what is missing, and no more rows of what is refused than are told.
    fn told(&self, mut more: MoreFunctions) -> MoreFunctions {
        let beyond = more.refused.len().saturating_sub(MAX_REFUSED - 1);
        if beyond > 1 {
            more.refused.truncate(MAX_REFUSED - 1);
            more.refused.push(RefusedFunction {
                name: "*".to_owned(),
                module: "*".to_owned(),
                why: format!("{beyond} further functions and files are refused"),
            });
        }
        more.missing = self.missing();
        more
    }
}

/// Does any other process run this program?
fn is_run_by_others(file: &CodeFileIdentity, pids: &HashSet<u32>) -> bool {
    let all = proc_fs::pids().unwrap_or_default().into_iter();
    let mut others = all.filter(|pid| !pids.contains(pid));
    others.any(|pid| {
        let exe = CodeFileIdentity::at(Path::new(&format!("/proc/{pid}/exe")));
        exe.is_ok_and(|exe| exe.is_same(file))
    })
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::sync::Arc;

    use super::*;
    use crate::sys::memory_file::memory_file;

    // Check that a process is examined again once it has mapped something else, and not before, and
    // that it is forgotten once it is gone.
    #[test]
    fn processes_are_examined_when_they_have_changed() {
        let path = fs::read_link("/proc/self/exe").unwrap();
        let pattern = format!("{}:*sought_by_tests", path.to_str().unwrap());
        let patterns = vec![pattern.parse().unwrap()];
        let mut looking = Looking::new(patterns, Exits::None, Followed::default(), u64::MAX);
        let pid = proc_fs::own_pid(std::process::id()).unwrap();
        assert!(looking.is_new(&[(pid, 7)]));
        let more = looking.processes(&[(pid, 7)], 1);
        assert!(!more.functions.is_empty() && more.missing.is_empty());
        assert!(!looking.is_new(&[(pid, 7)]) && looking.is_new(&[(pid, 8)]));
        assert!(looking.processes(&[(pid, 8)], 1).functions.is_empty());
        assert!(!looking.is_new(&[(pid, 8)]));
        drop(looking.processes(&[], 1));
        assert!(looking.is_new(&[(pid, 8)]));
    }

    // Check that a process whose files were not all looked through in the time of a look is new
    // still.
    #[test]
    fn who_is_put_off_is_new() {
        let path = fs::read_link("/proc/self/exe").unwrap();
        let pattern = format!("{}:who_is_put_off_is_new", path.to_str().unwrap());
        let patterns = vec![pattern.parse().unwrap()];
        let mut looking = Looking::new(patterns, Exits::None, Followed::default(), 1);
        let pid = proc_fs::own_pid(std::process::id()).unwrap();
        // The only file had the whole time of a look: it is refused.
        let more = looking.processes(&[(pid, 7)], 1);
        assert_eq!((more.refused.len(), looking.is_put_off()), (1, false));
        assert!(!looking.is_new(&[(pid, 7)]));
    }

    // Check that of very many files that are no program it is told how many there were.
    #[test]
    fn refused_files_are_bounded() {
        let patterns = vec!["x.so:f".parse().unwrap()];
        let mut looking = Looking::new(patterns, Exits::None, Followed::default(), u64::MAX);
        let files = (0..MAX_REFUSED + 2).map(|_| CodeFile {
            path: "/tmp/x.so".to_owned(),
            file: Arc::new(memory_file(b"no program").unwrap()),
            is_program: false,
            is_named: false,
        });
        let more = looking.files(&files.collect::<Vec<_>>());
        assert_eq!(more.refused.len(), MAX_REFUSED);
        let last = &more.refused[MAX_REFUSED - 1];
        assert_eq!(last.why, "3 further functions and files are refused");
        assert_eq!(more.missing, ["functions: x.so:f"]);
    }
}
