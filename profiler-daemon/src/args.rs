//! The command line: what was typed, and what it means beside the configuration file.
//!
//! What the values may be is `config`'s to say, so that a bound is written once; which formats
//! there are, `api`'s. Also here: how a failure is told to the person who typed.

mod meaning;
mod record;
mod top;

use std::net::SocketAddr;
use std::path::PathBuf;

use clap::{Parser, Subcommand, ValueEnum};

use crate::config::targets::parse_pid;
use crate::config::{duration, parse_frequency, parse_listen};
use crate::error_chain::ErrorChain;
use crate::export::text::name;

pub use record::RecordArgs;
pub use top::{TopArgs, TopSort, TopWindow};

/// A system-wide profiler: exact time per thread, sampled stacks, read over HTTP.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(
    name = "profiler-daemon",
    version,
    about,
    args_conflicts_with_subcommands = true
)]
pub struct Args {
    /// Configuration file. Without it every setting has its default.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Address and port to serve on, as in 127.0.0.1:9797.
    #[arg(long, value_name = "ADDR", value_parser = parse_listen)]
    pub listen: Option<SocketAddr>,

    /// How often each processor is sampled, per second.
    #[arg(long, value_name = "N", value_parser = parse_frequency)]
    pub frequency_hz: Option<u64>,

    /// The shortest time between two stacks of one thread, as in 1ms. 0 walks the stack at every
    /// event.
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    pub min_interval: Option<u64>,

    /// Profile only this process. May be given more than once.
    #[arg(long = "pid", value_name = "N", value_parser = parse_pid)]
    pub pids: Vec<u32>,

    /// Serve a profile that was saved (record --format profile, /api/v1/profile) instead of
    /// profiling. Needs no privileges.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["frequency_hz", "min_interval", "pids"])]
    pub replay: Option<PathBuf>,

    /// How much is logged to standard error.
    #[arg(long, value_name = "LEVEL", value_enum, default_value_t = LogLevel::Info)]
    pub log: LogLevel,

    /// What to do instead of running the daemon.
    #[command(subcommand)]
    pub command: Option<ProgramCommand>,
}

/// What the program does instead of running the daemon.
#[derive(Debug, Clone, PartialEq, Eq, Subcommand)]
pub enum ProgramCommand {
    /// Say what this kernel and these privileges allow, and how to mend what is missing.
    Doctor {
        /// Answer in JSON instead of text.
        #[arg(long)]
        json: bool,
    },
    /// Record a command, processes or the whole machine once, and write one report; no service is
    /// needed.
    Record(Box<RecordArgs>),
    /// Show processes and functions live in the terminal.
    Top(TopArgs),
    /// What the daemon starts to read lines of source: answers about files that it inherits, and
    /// ends.
    #[command(hide = true)]
    ResolveLines {
        /// Descriptors of the file, and of the one that it shares debug information with.
        #[arg(required = true, num_args = 1..=2)]
        files: Vec<i32>,
    },
    /// What the daemon starts to read memory of processes: answers as long as it is asked.
    #[command(hide = true)]
    ReadMemory {
        /// Descriptors of the memory that it shares with the daemon, of the questions and of the
        /// answers.
        #[arg(required = true, num_args = 3)]
        files: Vec<i32>,
    },
}

/// How much is logged.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum LogLevel {
    /// Only what stopped something from working.
    Error,
    /// Also what works less well than it should.
    Warn,
    /// Also what the daemon starts and stops.
    Info,
    /// Also what it decides while it runs.
    Debug,
    /// Everything.
    Trace,
}

impl Args {
    /// What this process was called with. Prints a sentence and ends the process where that is not
    /// understood, and where it asks for help or the version.
    #[must_use]
    pub fn from_command_line() -> Self {
        Self::parse()
    }
}

impl LogLevel {
    /// The level's name, as log filters spell it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Error => "error",
            Self::Warn => "warn",
            Self::Info => "info",
            Self::Debug => "debug",
            Self::Trace => "trace",
        }
    }
}

/// One sentence for a failure and all its causes, outermost first, on one line and without
/// repetition, for a terminal: names of others may be in it.
#[must_use]
pub fn failure_sentence(error: &anyhow::Error) -> String {
    name(&ErrorChain(error.as_ref()).to_string())
}

#[cfg(test)]
mod tests {
    use anyhow::Context as _;
    use clap::{CommandFactory as _, Parser as _};

    use super::{Args, LogLevel, ProgramCommand, failure_sentence};

    #[test]
    fn the_definition_is_consistent() {
        // Check that clap finds no contradiction in the declared arguments.
        Args::command().debug_assert();
    }

    #[test]
    fn nothing_typed_asks_for_nothing() {
        // Check that an empty command line leaves every choice to the configuration.
        let args = Args::try_parse_from(["profiler-daemon"]).unwrap();
        assert_eq!(args.config, None);
        assert_eq!(args.listen, None);
        assert_eq!(args.frequency_hz, None);
        assert_eq!(args.min_interval, None);
        assert_eq!(args.pids, Vec::<u32>::new());
        assert_eq!(args.log, LogLevel::Info);
        assert_eq!(args.command, None);
    }

    #[test]
    fn everything_typed_arrives() {
        // Check that every option is read, that --pid may be repeated, and that doctor is a
        // subcommand.
        let args = Args::try_parse_from([
            "profiler-daemon",
            "--config=a.toml",
            "--listen=[::1]:9000",
            "--frequency-hz=49",
            "--min-interval=500us",
            "--pid=1",
            "--pid=22",
            "--log=debug",
        ])
        .unwrap();
        assert_eq!(args.listen, Some("[::1]:9000".parse().unwrap()));
        assert_eq!(args.frequency_hz, Some(49));
        assert_eq!(args.min_interval, Some(500_000));
        assert_eq!(args.pids, [1, 22]);
        assert_eq!(args.log.as_str(), "debug");
        let args = Args::try_parse_from(["profiler-daemon", "doctor", "--json"]).unwrap();
        assert_eq!(args.command, Some(ProgramCommand::Doctor { json: true }));
    }

    #[test]
    fn bad_values_are_refused_with_the_form() {
        // Check that a wrong duration, address, number and log level are refused, and that the form
        // is told.
        for (typed, form) in [
            ("--min-interval=5", "as in \"1ms\""),
            (
                "--listen=9797",
                "must be a numeric address and a port, like \"127.0.0.1:9797\"",
            ),
            ("--pid=-1", "must be a process number from 1 to"),
            ("--pid=abc", "must be a process number from 1 to"),
            ("--pid=0", "must be a process number from 1 to"),
            ("--frequency-hz=fast", "must be a whole number from 1 to"),
            ("--log=loud", "possible values: error, warn"),
        ] {
            let message = Args::try_parse_from(["profiler-daemon", typed])
                .unwrap_err()
                .to_string();
            assert!(message.contains(form), "{message}");
        }
    }

    #[test]
    fn a_failure_is_one_line() {
        // Check that causes are joined outermost first, that line breaks vanish and repetition is
        // left out.
        let error = Err::<(), _>(anyhow::anyhow!("permission\n denied"))
            .context("cannot open it: permission denied")
            .context("cannot start")
            .unwrap_err();
        assert_eq!(
            failure_sentence(&error),
            "cannot start: cannot open it: permission denied"
        );
    }
}
