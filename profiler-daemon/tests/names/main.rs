//! Names of functions against perf's: programs run under `perf record`, and each address that perf
//! names is asked of the symbolizer. The addresses are the same for both, so what differs is a
//! name. Names of one address are aliases, and no difference.
//!
//! perf takes samples of own children only, which needs no privileges on most machines. Where it
//! may not, that is told as skipped.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod aliases;
mod perf;
mod programs;

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    fs::File,
    io::Write as _,
    os::unix::fs::MetadataExt as _,
    sync::Arc,
    time::Duration,
};

use profiler_daemon::{
    elf::build_id::{self, ElfIdentity},
    processes::{
        files::ModuleFile,
        mappings::Place,
        module::{FileIdentity, Module, ModuleId, ModuleKind},
    },
    symbols::{
        names::Named,
        request::Request,
        symbolizer::{SymbolOptions, Symbolizer},
    },
    units::ModuleOffset,
};

use aliases::Aliases;
use perf::Sample;
use programs::Program;

/// Share of the samples that perf names which must have the same function here.
const LEAST_SHARE: f64 = 0.99;
/// Fewer named samples say nothing: the machine had no time for the program.
const LEAST_SAMPLES: u64 = 200;
const PATIENCE: Duration = Duration::from_secs(60);

fn say(sentence: &str) {
    writeln!(std::io::stderr(), "{sentence}").expect("standard error takes text");
}

// Check that the functions of an interpreter and of a compiler are those that perf names, where
// there are these programs.
#[test]
fn functions_are_those_of_perf() {
    compare(&["python3", "cc1"], 1, false);
}

// Check the same of programs of many sorts, all of which must be there: `cargo xtask names` sees to
// that.
#[test]
#[ignore = "takes a minute, and needs packages: cargo xtask names"]
fn functions_of_many_programs_are_those_of_perf() {
    compare(&programs::ALL, 4, true);
}

fn compare(names: &[&'static str], seconds: u32, all: bool) {
    let folder = tempfile::tempdir().unwrap();
    let symbolizer = Symbolizer::spawn(SymbolOptions::default()).unwrap();
    let mut wrong = String::new();
    for name in names {
        let samples = Program::prepare(name, folder.path())
            .and_then(|program| perf::record(&program, seconds, folder.path()));
        match samples {
            Ok(samples) => {
                let result = Compared::new(&symbolizer, &samples);
                say(&format!("{name}: {}", result.sentence()));
                if result.named() < LEAST_SAMPLES && !all {
                    say(&format!(
                        "skipped: names of {name} beside perf's: too few samples"
                    ));
                } else if !result.holds() {
                    write!(wrong, "{name}: {}\n{}", result.sentence(), result.list()).unwrap();
                }
            }
            Err(why) if all => writeln!(wrong, "{name} was not run: {why}").unwrap(),
            Err(why) => say(&format!("skipped: names of {name} beside perf's: {why}")),
        }
    }
    assert!(wrong.is_empty(), "{wrong}");
}

/// What the two say of one program.
#[derive(Default)]
struct Compared {
    /// Samples that both name alike.
    same: u64,
    /// Samples that perf names, and of which the name here is another: by file, perf's name and
    /// this one.
    differing: BTreeMap<(String, String, String), u64>,
    /// Samples that perf does not name.
    nameless: u64,
    /// How many of them have a name here.
    named_here: u64,
}

impl Compared {
    fn new(symbolizer: &Symbolizer, samples: &[Sample]) -> Self {
        let mut compared = Self::default();
        let mut files: HashMap<&str, Vec<&Sample>> = HashMap::new();
        for sample in samples {
            files.entry(&sample.path).or_default().push(sample);
        }
        for (path, samples) in files {
            let Some(file) = module(path) else {
                continue;
            };
            let aliases = Aliases::read(path);
            let mut offsets: Vec<u64> = samples.iter().map(|sample| sample.offset).collect();
            offsets.sort_unstable();
            offsets.dedup();
            let request = |offset| Request {
                place: Place {
                    module: file.1.module,
                    offset: ModuleOffset::new(offset),
                },
                module: Arc::clone(&file.0),
                file: Some(Arc::clone(&file.1)),
                seen: None,
            };
            let requests = offsets.iter().copied().map(request).collect();
            let names = symbolizer.names(requests, PATIENCE);
            let names: HashMap<u64, Named> = offsets.into_iter().zip(names).collect();
            for sample in samples {
                let function = &names[&sample.offset].function;
                let Some(theirs) = &sample.name else {
                    compared.nameless += 1;
                    compared.named_here += u64::from(function.known);
                    continue;
                };
                if function.known && aliases.are_one(theirs, &function.name) {
                    compared.same += 1;
                } else {
                    let key = (path.to_owned(), theirs.clone(), function.name.to_string());
                    *compared.differing.entry(key).or_default() += 1;
                }
            }
        }
        compared
    }

    fn named(&self) -> u64 {
        self.same + self.differing.values().sum::<u64>()
    }

    fn share(&self) -> f64 {
        self.same as f64 / self.named() as f64
    }

    fn holds(&self) -> bool {
        self.named() >= LEAST_SAMPLES && self.share() >= LEAST_SHARE
    }

    fn sentence(&self) -> String {
        format!(
            "{:.2} % of {} samples that perf names have the same function here; of {} others {} have one",
            100.0 * self.share(),
            self.named(),
            self.nameless,
            self.named_here
        )
    }

    /// What differs, the most frequent first.
    fn list(&self) -> String {
        let mut rows: Vec<_> = self.differing.iter().collect();
        rows.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
        let rows = rows.into_iter().take(40);
        rows.map(|((path, theirs, ours), count)| {
            format!("  {count:6}  perf: {theirs}  here: {ours}  ({path})\n")
        })
        .collect()
    }
}

/// A file as the daemon has it; `None` for what is no file.
fn module(path: &str) -> Option<(Arc<Module>, Arc<ModuleFile>)> {
    let file = File::open(path).ok().filter(|_| path.starts_with('/'))?;
    let metadata = file.metadata().ok()?;
    let mut module = Module::named(path, ModuleKind::User);
    if let ElfIdentity::BuildId(build) = build_id::of_file(&file) {
        module.build_id = Some(build.id);
    }
    let identity = FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        size_bytes: metadata.size(),
        modified_unix_ns: 0,
    };
    let file = ModuleFile {
        // The symbolizer remembers names by it.
        module: ModuleId(metadata.ino() + 10),
        file,
        identity,
    };
    Some((Arc::new(module), Arc::new(file)))
}
