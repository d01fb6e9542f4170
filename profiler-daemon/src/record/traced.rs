//! Functions that a recording measures exactly (`--trace`): found in the files of the programs, and
//! handed over to be measured.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use crate::args::RecordArgs;
use crate::backends::Live;
use crate::collect::{Command, Plan, PlannedFunction, PlannedPoint};
use crate::report::{self, Measured};
use crate::symbols::chosen::{Chosen, FilePoint, Pattern, choose};
use crate::sys::clock::monotonic_ns;
use crate::sys::proc_fs;

use super::progress;

/// Time between two looks at what the program has mapped, while something that was chosen is
/// missing.
const LOOK: Duration = Duration::from_millis(5);
/// What probes may take of one processor unless said otherwise, in thousandths.
const BUDGET_PERMILLE: u32 = 50;
/// Mappings of one process that are looked at.
const MAX_MAPPINGS: usize = 4096;

/// See the module.
pub(super) struct Traced {
    patterns: Vec<Pattern>,
    counts_only: bool,
    budget: f64,
    /// Processes whose functions are measured.
    pids: Vec<u32>,
    children: bool,
    /// Files that were looked through: device and inode.
    seen: HashSet<(u64, u64)>,
    /// Patterns of which a function was found, by their place.
    found: HashSet<usize>,
    /// When the recording began, monotonic nanoseconds.
    began_ns: u64,
}

/// A file of a program.
struct Module {
    path: String,
    file: File,
    /// It is the program itself: what else has it mapped is another run of it.
    is_program: bool,
}

impl Traced {
    /// What was typed; `None`: nothing is to be measured.
    ///
    /// # Errors
    /// What is no pattern.
    pub(super) fn read(args: &RecordArgs) -> anyhow::Result<Option<Self>> {
        if args.trace.is_empty() {
            return Ok(None);
        }
        if args.command.is_empty() && args.pids.is_empty() {
            return Err(anyhow!(
                "--trace needs a command (after --) or --pid: functions of every process on the machine are not measured"
            ));
        }
        let patterns = args.trace.iter().map(|text| text.parse());
        let patterns = patterns.collect::<Result<Vec<Pattern>, _>>();
        Ok(Some(Self {
            patterns: patterns.context("--trace")?,
            counts_only: args.trace_counts,
            budget: f64::from(args.trace_budget.unwrap_or(BUDGET_PERMILLE)) / 1000.0,
            pids: args.pids.clone(),
            children: args.children || !args.command.is_empty(),
            seen: HashSet::new(),
            found: HashSet::new(),
            began_ns: 0,
        }))
    }

    /// Before the command runs: measures what can be found by then, of the program itself and of
    /// files with whole paths. Of processes that run, all that they have mapped.
    ///
    /// # Errors
    /// No function is meant by a pattern whose file is known, or none of it can be measured.
    pub(super) async fn begin(
        &mut self,
        live: &Live,
        command: Option<(u32, &OsStr)>,
    ) -> anyhow::Result<()> {
        let mut modules = Vec::new();
        for pattern in &self.patterns {
            if let Some(path) = pattern.path() {
                let file =
                    File::open(path).with_context(|| format!("--trace {}", pattern.text()))?;
                modules.push(Module {
                    path: path.to_owned(),
                    file,
                    is_program: false,
                });
            }
        }
        if let Some((pid, program)) = command {
            self.pids = vec![pid];
            if let Some(path) = find_program(program) {
                let file = File::open(&path);
                let file = file.with_context(|| format!("cannot read {}", path.display()))?;
                modules.insert(
                    0,
                    Module {
                        path: path.to_string_lossy().into_owned(),
                        file,
                        is_program: true,
                    },
                );
            }
        } else {
            for pid in &self.pids {
                modules.extend(mapped(*pid));
            }
        }
        let functions = self.plan(modules).await?;
        // Also where there is none yet: what probes cost is measured by now.
        self.measure(live, functions).await?;
        self.began_ns = monotonic_ns();
        let missing = self.missing();
        let known = |pattern: &&Pattern| command.is_none() || pattern.path().is_some();
        match missing.iter().find(|pattern| known(pattern)) {
            Some(pattern) => Err(anyhow!(
                "--trace {}: there is no such function in the symbols of that file",
                pattern.text()
            )),
            None => Ok(()),
        }
    }

    /// While it runs: measures what comes to be mapped, until everything was found.
    ///
    /// # Errors
    /// What was found cannot be measured.
    pub(super) async fn follow(&mut self, live: &Live) -> anyhow::Result<()> {
        while !self.missing().is_empty() {
            tokio::time::sleep(LOOK).await;
            let modules = self.pids.iter().flat_map(|pid| mapped(*pid)).collect();
            let functions = self.plan(modules).await?;
            if !functions.is_empty() {
                self.measure(live, functions).await?;
            }
        }
        std::future::pending().await
    }

    /// What was measured.
    ///
    /// # Errors
    /// The collector does not answer.
    pub(super) async fn end(&self, live: &Live) -> anyhow::Result<Measured> {
        for pattern in self.missing() {
            progress::say(&format!(
                "--trace {}: no such function was found in what the program had mapped",
                pattern.text()
            ));
        }
        let all = live.access().ask(|answer| Command::Measured { answer });
        Ok(report::measured(&all.await?, self.began_ns))
    }

    /// Patterns of which no function was found yet.
    fn missing(&self) -> Vec<&Pattern> {
        let all = self.patterns.iter().enumerate();
        all.filter(|(place, _)| !self.found.contains(place))
            .map(|(_, pattern)| pattern)
            .collect()
    }

    /// What is meant of these files.
    async fn plan(&mut self, modules: Vec<Module>) -> anyhow::Result<Vec<PlannedFunction>> {
        let mut functions = Vec::new();
        for module in modules {
            let metadata = module.file.metadata();
            let metadata = metadata.with_context(|| format!("cannot look at {}", module.path))?;
            let wanted = self.patterns.iter().enumerate();
            let wanted: Vec<(usize, Pattern)> = wanted
                .filter(|(_, pattern)| pattern.is_of_module(&module.path))
                .map(|(place, pattern)| (place, pattern.clone()))
                .collect();
            if wanted.is_empty() || !self.seen.insert((metadata.dev(), metadata.ino())) {
                continue;
            }
            // It may take a second: signals are heard meanwhile.
            let file = Arc::new(module.file);
            let of = Arc::clone(&file);
            let chosen = tokio::task::spawn_blocking(move || {
                let each = wanted
                    .iter()
                    .map(|(place, pattern)| choose(&of, &[pattern]).map(|chosen| (*place, chosen)));
                each.collect::<Result<Vec<_>, _>>()
            });
            let chosen = chosen.await.context("looking for functions failed")?;
            let chosen = chosen.with_context(|| format!("--trace: {}", module.path))?;
            let mut taken = HashSet::new();
            for (place, chosen) in chosen {
                if !chosen.is_empty() {
                    self.found.insert(place);
                }
                for chosen in chosen {
                    if taken.insert(chosen.address) {
                        functions.extend(self.planned(
                            &module.path,
                            &file,
                            module.is_program,
                            chosen,
                        ));
                    }
                }
            }
        }
        Ok(functions)
    }

    /// Has functions measured.
    async fn measure(&self, live: &Live, functions: Vec<PlannedFunction>) -> anyhow::Result<()> {
        let plan = Plan {
            pids: self.pids.clone(),
            children: self.children,
            functions,
            budget: self.budget,
        };
        let measured = live
            .access()
            .ask(|answer| Command::Measure { plan, answer });
        measured.await?.context("--trace")
    }

    /// One function as it is to be measured; one that cannot be is told at once.
    fn planned(
        &self,
        module: &str,
        file: &Arc<File>,
        is_program: bool,
        chosen: Chosen,
    ) -> Option<PlannedFunction> {
        let points = match chosen.points {
            Ok(points) => points,
            Err(why) => {
                progress::say(&format!("--trace: {} is not measured: {why}", chosen.name));
                return None;
            }
        };
        let exits = match points.exits {
            Ok(_) if self.counts_only => Err("its calls are counted, as was asked".to_owned()),
            Ok(exits) => Ok(exits.into_iter().map(planned_point).collect()),
            Err(why) => Err(format!("its calls are counted only: {why}")),
        };
        Some(PlannedFunction {
            name: chosen.name,
            aliases: chosen.aliases,
            module: module.into(),
            file: Arc::clone(file),
            shared: !is_program,
            entry: planned_point(points.entry),
            exits,
        })
    }
}

fn planned_point(point: FilePoint) -> PlannedPoint {
    PlannedPoint {
        offset: point.offset,
        stepped: point.stepped,
    }
}

/// The file of a command, as the shell finds it.
fn find_program(program: &OsStr) -> Option<PathBuf> {
    let is_file = |path: &PathBuf| fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    let path = Path::new(program);
    let found = if path.components().count() > 1 {
        Some(path.to_path_buf()).filter(is_file)
    } else {
        let places = std::env::var_os("PATH")?;
        std::env::split_paths(&places)
            .map(|place| place.join(path))
            .find(is_file)
    };
    fs::canonicalize(found?).ok()
}

/// The files that a process has mapped as code; none where it is gone.
fn mapped(pid: u32) -> Vec<Module> {
    let identity = |path: &str| {
        let metadata = fs::metadata(path).ok()?;
        Some((metadata.dev(), metadata.ino()))
    };
    let program = identity(&format!("/proc/{pid}/exe"));
    let maps = proc_fs::exec_maps(pid, MAX_MAPPINGS).unwrap_or_default();
    let mut seen = HashSet::new();
    let files = maps.entries.iter().filter(|entry| entry.inode != 0);
    files
        .filter(|entry| seen.insert((entry.device, entry.inode)))
        .filter_map(|entry| {
            // Through the mapping itself: also what was deleted, or has another root.
            let mapping = format!("/proc/{pid}/map_files/{:x}-{:x}", entry.start, entry.end);
            let file = File::open(&mapping).ok()?;
            let path = String::from_utf8_lossy(&entry.path);
            let path = path.strip_suffix(" (deleted)").unwrap_or(&path);
            Some(Module {
                path: path.to_owned(),
                is_program: program.is_some() && identity(&mapping) == program,
                file,
            })
        })
        .collect()
}
