//! The daemon's side of the worker: starts it for one file, takes what it found until it ended, and
//! says why the rest is missing. Nothing of it is believed to make sense.

use std::{
    collections::HashMap,
    fs::File,
    io,
    os::{fd::AsRawFd as _, unix::fs::FileExt as _},
    path::PathBuf,
    sync::Arc,
};

use super::{
    NoLine, SourceLine, Step, Steps,
    protocol::{self, AddressCode, AddressQuery, MAX_LINE_BYTES, exit},
    worker::SUBCOMMAND,
};
use crate::sys::limited_child::{self, ChildEnd, ChildLimits, ChildOutcome};
use crate::units::ModuleAddress;

/// What a worker that was killed because its processor time was over may have had less than its
/// limit.
const PROCESSOR_SLACK_NS: u64 = 100_000_000;

/// How to start workers.
#[derive(Clone, Debug)]
pub struct WorkerOptions {
    /// This program.
    pub program: PathBuf,
    /// What one may take.
    pub limits: ChildLimits,
}

/// What a worker said.
pub(super) struct WorkerAnswer {
    /// For each address, in order; fewer than were asked for if it ended before.
    pub(super) found: Vec<Result<Steps, NoLine>>,
    /// Why there are no more, if it ended before.
    pub(super) rest: Option<NoLine>,
    /// Most memory it had, mapped files included, bytes.
    pub(super) peak_bytes: u64,
    /// Processor time it took, nanoseconds.
    pub(super) processor_ns: u64,
}

/// Asks a worker about addresses of `file`, whose debug information may refer to `supplementary`.
pub(super) fn ask(
    options: &WorkerOptions,
    file: &File,
    supplementary: Option<&File>,
    addresses: Vec<ModuleAddress>,
) -> WorkerAnswer {
    let asked = addresses.len();
    let files: Vec<&File> = std::iter::once(file).chain(supplementary).collect();
    let arguments = std::iter::once(SUBCOMMAND.to_owned())
        .chain(files.iter().map(|file| file.as_raw_fd().to_string()));
    let arguments: Vec<String> = arguments.collect();
    let question = serde_json::to_vec(&AddressQuery { addresses }).map_err(io::Error::other);
    let outcome = question.and_then(|question| {
        limited_child::run(
            &options.program,
            &arguments,
            &files,
            &question,
            options.limits,
        )
    });
    let outcome = match outcome {
        Ok(outcome) => outcome,
        Err(error) => {
            tracing::warn!("the worker that reads lines cannot be started: {error}");
            return WorkerAnswer {
                found: Vec::new(),
                rest: Some(NoLine::WorkerDied),
                peak_bytes: 0,
                processor_ns: 0,
            };
        }
    };
    let mut found = read(&outcome.output, options.limits.output_bytes);
    found.truncate(asked);
    let rest = (found.len() < asked).then(|| reason(&outcome, options.limits));
    WorkerAnswer {
        found,
        rest,
        peak_bytes: outcome.peak_bytes,
        processor_ns: outcome.processor_ns,
    }
}

/// Why a worker ended before it had answered.
fn reason(outcome: &ChildOutcome, limits: ChildLimits) -> NoLine {
    let code = |code: u8| i32::from(code);
    let had_its_time =
        outcome.processor_ns + PROCESSOR_SLACK_NS >= limits.processor_s * 1_000_000_000;
    match outcome.ended {
        ChildEnd::Late => NoLine::WorkerTime,
        ChildEnd::Killed(libc::SIGKILL | libc::SIGXCPU) if had_its_time => NoLine::WorkerTime,
        // An allocation that fails aborts; a machine without memory kills.
        ChildEnd::Killed(libc::SIGABRT | libc::SIGKILL) => NoLine::WorkerMemory,
        ChildEnd::Exited(ended) if ended == code(exit::NO_MEMORY) => NoLine::WorkerMemory,
        ChildEnd::Exited(ended) if ended == code(exit::UNREADABLE) => NoLine::Unreadable,
        // The file shrank while it was read.
        ChildEnd::Killed(libc::SIGBUS) => NoLine::NoFile,
        // It has written as much as it may: what is left comes next time.
        ChildEnd::Killed(libc::SIGXFSZ) => NoLine::Pending,
        ChildEnd::Exited(_) | ChildEnd::Killed(_) => NoLine::WorkerDied,
    }
}

/// The whole lines of an answer, up to the first that makes no sense.
pub(super) fn read(output: &File, max_bytes: u64) -> Vec<Result<Steps, NoLine>> {
    let length = output.metadata().map_or(0, |metadata| metadata.len());
    let length = usize::try_from(length.min(max_bytes)).unwrap_or(0);
    let mut text = vec![0; length];
    if output.read_exact_at(&mut text, 0).is_err() {
        return Vec::new();
    }
    let mut texts = TextTable::default();
    text.split_inclusive(|byte| *byte == b'\n')
        .map_while(|line| {
            let line = line.strip_suffix(b"\n")?;
            let found = (line.len() <= MAX_LINE_BYTES)
                .then(|| serde_json::from_slice(line).ok())
                .flatten()?;
            Some(texts.steps(found))
        })
        .collect()
}

/// Texts of one answer: most files and functions are named many times.
#[derive(Default)]
struct TextTable(HashMap<String, Arc<str>>);

impl TextTable {
    fn share(&mut self, text: String) -> Arc<str> {
        match self.0.get(&text) {
            Some(shared) => Arc::clone(shared),
            None => {
                let shared: Arc<str> = text.as_str().into();
                self.0.insert(text, Arc::clone(&shared));
                shared
            }
        }
    }

    fn steps(&mut self, found: AddressCode) -> Result<Steps, NoLine> {
        let steps = match found {
            AddressCode::Unreadable => return Err(NoLine::Unreadable),
            AddressCode::Steps(steps) => steps,
        };
        if steps.is_empty() || steps.len() > protocol::MAX_STEPS {
            return Err(NoLine::NoLineThere);
        }
        let steps: Vec<Step> = steps
            .into_iter()
            .map(|step| Step {
                function: step.function.map(|name| self.share(name)),
                source: step.file.map(|file| SourceLine {
                    file: self.share(file),
                    line: step.line,
                }),
            })
            .collect();
        // A function without any line is as good as none: its name is known from the symbols.
        if steps.len() == 1 && steps[0].source.is_none() {
            return Err(NoLine::NoLineThere);
        }
        Ok(steps.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory_file::memory_file;
    use std::time::Duration;

    fn said(text: &str) -> Vec<Result<Steps, NoLine>> {
        read(&memory_file(text.as_bytes()).unwrap(), 1 << 20)
    }

    // Check that whole lines are taken until one makes no sense or is not finished, and what each
    // means.
    #[test]
    fn answers() {
        let known = r#"{"s":[{"n":"f","f":"a.c","l":3},{"n":"g","f":"a.c"}]}"#;
        let found = said(&format!("{known}\n\"x\"\n{{\"s\":[]}}\n{known}"));
        assert_eq!(found.len(), 3, "the last line is not finished");
        let steps = found[0].clone().unwrap();
        assert_eq!(steps[0].function.as_deref(), Some("f"));
        let sources: Vec<_> = steps
            .iter()
            .map(|step| step.source.clone().unwrap())
            .collect();
        assert_eq!((sources[0].line, sources[1].line), (Some(3), None));
        assert!(Arc::ptr_eq(&sources[0].file, &sources[1].file));
        assert_eq!(found[1], Err(NoLine::Unreadable));
        assert_eq!(found[2], Err(NoLine::NoLineThere));
        assert_eq!(said(&format!("{known}\nnonsense\n{known}\n")).len(), 1);
        assert!(said("").is_empty());
        let many = vec!["{}"; protocol::MAX_STEPS + 1].join(",");
        assert_eq!(
            said(&format!("{{\"s\":[{many}]}}\n")),
            [Err(NoLine::NoLineThere)]
        );
    }

    // Check that each way to end before the answer is told as what it was.
    #[test]
    fn ends() {
        let limits = ChildLimits {
            memory_bytes: 0,
            processor_s: 5,
            time: Duration::ZERO,
            output_bytes: 0,
        };
        let why = |ended, processor_ns| {
            let outcome = ChildOutcome {
                ended,
                output: memory_file(b"").unwrap(),
                peak_bytes: 0,
                processor_ns,
            };
            reason(&outcome, limits)
        };
        assert_eq!(why(ChildEnd::Late, 0), NoLine::WorkerTime);
        assert_eq!(
            why(ChildEnd::Killed(libc::SIGKILL), 4_990_000_000),
            NoLine::WorkerTime
        );
        assert_eq!(
            why(ChildEnd::Killed(libc::SIGKILL), 1),
            NoLine::WorkerMemory
        );
        assert_eq!(
            why(ChildEnd::Killed(libc::SIGABRT), 1),
            NoLine::WorkerMemory
        );
        assert_eq!(why(ChildEnd::Killed(libc::SIGBUS), 1), NoLine::NoFile);
        assert_eq!(why(ChildEnd::Killed(libc::SIGSEGV), 1), NoLine::WorkerDied);
        assert_eq!(why(ChildEnd::Exited(101), 1), NoLine::WorkerDied);
    }
}
