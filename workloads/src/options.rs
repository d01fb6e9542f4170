//! What was typed after the program's name. One set of keys for all programs; a program ignores
//! those it has no use for.

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::{Context, bail};

/// The arguments of one run.
#[derive(Debug, Clone)]
pub(crate) struct Options {
    /// Which program.
    pub(crate) program: String,
    /// How long to work, where a program works for a time.
    pub(crate) seconds: f64,
    /// How often, where a program counts (system calls, rounds, children, switches).
    pub(crate) count: u64,
    /// How many threads (or pairs, or children at once).
    pub(crate) threads: usize,
    /// A length in milliseconds: a child's work, a lock's hold time.
    pub(crate) millis: u64,
    /// Recursion depth.
    pub(crate) depth: u32,
    /// Pin to this processor.
    pub(crate) cpu: Option<usize>,
    /// The variant of a program.
    pub(crate) kind: String,
    /// A directory or file to use.
    pub(crate) path: Option<PathBuf>,
    /// Carried by a program to the next one that it executes.
    pub(crate) carry: String,
    /// How much nicer than others; negative, which needs root: others take less of its time.
    pub(crate) nice: i32,
    /// Wait for a line on standard input before starting.
    pub(crate) wait: bool,
    /// Stay alive after the truth until standard input is closed.
    pub(crate) hold: bool,
}

impl Options {
    /// Reads `<program> [--key value]…`; an unknown key or a value that is no number is an error.
    pub(crate) fn parse(mut arguments: impl Iterator<Item = OsString>) -> anyhow::Result<Self> {
        let program = arguments.next().unwrap_or_else(|| "help".into());
        let mut options = Self {
            program: program.to_string_lossy().into_owned(),
            seconds: 2.0,
            count: 0,
            threads: 0,
            millis: 0,
            depth: 0,
            cpu: None,
            kind: String::new(),
            path: None,
            carry: String::new(),
            nice: 0,
            wait: false,
            hold: false,
        };
        while let Some(key) = arguments.next() {
            let key = key.to_string_lossy().into_owned();
            match key.as_str() {
                "--wait" => options.wait = true,
                "--hold" => options.hold = true,
                _ => {
                    let value = arguments
                        .next()
                        .with_context(|| format!("{key} needs a value"))?;
                    options.set(&key, value)?;
                }
            }
        }
        Ok(options)
    }

    fn set(&mut self, key: &str, value: OsString) -> anyhow::Result<()> {
        let text = value.to_string_lossy().into_owned();
        let wrong = || format!("{key}: `{text}` is not a number");
        match key {
            "--seconds" => self.seconds = text.parse().with_context(wrong)?,
            "--count" => self.count = text.parse().with_context(wrong)?,
            "--threads" => self.threads = text.parse().with_context(wrong)?,
            "--millis" => self.millis = text.parse().with_context(wrong)?,
            "--depth" => self.depth = text.parse().with_context(wrong)?,
            "--cpu" => self.cpu = Some(text.parse().with_context(wrong)?),
            "--nice" => self.nice = text.parse().with_context(wrong)?,
            "--kind" => self.kind = text,
            "--carry" => self.carry = text,
            "--path" => self.path = Some(value.into()),
            _ => bail!("unknown option {key}"),
        }
        Ok(())
    }

    /// `--count`, or what the program does without it.
    pub(crate) fn count_or(&self, default: u64) -> u64 {
        if self.count == 0 { default } else { self.count }
    }

    /// `--threads`, or what the program does without it.
    pub(crate) fn threads_or(&self, default: usize) -> usize {
        if self.threads == 0 {
            default
        } else {
            self.threads
        }
    }

    /// `--millis`, or what the program does without it.
    pub(crate) fn millis_or(&self, default: u64) -> u64 {
        if self.millis == 0 {
            default
        } else {
            self.millis
        }
    }

    /// `--seconds` in nanoseconds.
    pub(crate) fn duration_ns(&self) -> u64 {
        (self.seconds * 1e9) as u64
    }
}
