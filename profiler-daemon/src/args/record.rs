//! The command line of `record`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::{Args, ValueEnum};

use super::duration;

/// What to record, for how long, and what to make of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct RecordArgs {
    /// Record this process. May be given more than once.
    #[arg(long = "pid", value_name = "N")]
    pub pids: Vec<u32>,

    /// Record processes of this name (at most 15 bytes, as the kernel keeps it). May be given more than once.
    #[arg(long = "comm", value_name = "NAME")]
    pub comms: Vec<String>,

    /// Record what those processes start, too. What a command starts is always recorded.
    #[arg(long)]
    pub children: bool,

    /// Stop after this time, as in 10s. Without it: when the command or all processes given by --pid have ended, or at Ctrl-C.
    #[arg(long, value_name = "DURATION", value_parser = positive)]
    pub duration: Option<u64>,

    /// What to write. Without it, the ending of the file's name decides; text where there is no file.
    #[arg(long, value_name = "FORMAT", value_enum)]
    pub format: Option<RecordFormat>,

    /// The value that stacks are drawn by and functions sorted by; samples unless said otherwise.
    #[arg(long, value_name = "VALUE", value_enum)]
    pub value: Option<RecordValue>,

    /// Whose functions are shown: those of programs, or the kernel's as well.
    #[arg(long, value_name = "FRAMES", value_enum, default_value_t)]
    pub frames: RecordFrames,

    /// The file to write, whole or not at all. Without it, or as -, standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Record over this daemon instead of alone, as in http://127.0.0.1:9797. Needs no privileges. What the daemon does not
    /// profile is not recorded; the time is rounded up to the pieces that it keeps (about
    /// 1 s for 2 min, longer ones before), but for a command.
    #[arg(long, value_name = "URL", conflicts_with_all = ["frequency_hz", "config"])]
    pub connect: Option<String>,

    /// How often each processor is sampled, per second.
    #[arg(long, value_name = "N")]
    pub frequency_hz: Option<u64>,

    /// Configuration file, for its limits and sampling. What it says of targets and of serving has no meaning here.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// A command to run and record, from its first instruction to its end, with all that it starts. It runs as the user who
    /// runs this program; its exit code is passed on.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pids", "comms"])]
    pub command: Vec<OsString>,
}

/// What a recording is written as.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RecordFormat {
    /// Totals and functions, for people.
    Text,
    /// Totals, processes, functions and system calls, as the daemon answers them.
    Json,
    /// A line per stack.
    Folded,
    /// A flame graph.
    Svg,
    /// For speedscope.
    Speedscope,
    /// For the Firefox Profiler.
    Firefox,
    /// For pprof, compressed.
    Pprof,
    /// Functions, for spreadsheets.
    Csv,
    /// Everything, for profiler-daemon --replay.
    Profile,
}

/// What is measured.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum RecordValue {
    /// Timer samples.
    #[default]
    Samples,
    /// All time.
    Elapsed,
    /// Time running in user mode outside system calls.
    Application,
    /// Time on a processor.
    Running,
    /// Time blocked or waiting for a processor.
    OffProcessor,
    /// Time off the processor until woken.
    Blocked,
    /// Time waiting for a processor.
    Runnable,
    /// Time running in system calls.
    Syscall,
}

/// Whose functions are shown.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum RecordFrames {
    /// Those of programs. Time in the kernel belongs to the function that called it.
    #[default]
    User,
    /// The kernel's as well.
    All,
}

fn positive(text: &str) -> Result<u64, String> {
    match duration::parse(text)? {
        0 => Err("must be longer than 0".to_owned()),
        duration_ns => Ok(duration_ns),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{RecordArgs, RecordFormat, RecordFrames, RecordValue};
    use crate::args::{Args, Command};

    fn read(typed: &[&str]) -> Result<RecordArgs, String> {
        let all = ["profiler-daemon", "record"].iter().chain(typed);
        match Args::try_parse_from(all).map(|args| args.command) {
            Ok(Some(Command::Record(record))) => Ok(*record),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn everything_typed_arrives() {
        // Check that every option is read, that nothing typed leaves all open, and that a command keeps its own options.
        assert_eq!(read(&[]), Ok(RecordArgs::default()));
        let args = read(&[
            "--pid=1",
            "--pid=2",
            "--comm=sh",
            "--children",
            "--duration=10s",
            "--format=pprof",
            "--value=off_processor",
            "--frames=all",
            "-o",
            "a.svg",
            "--frequency-hz=999",
            "--config=c.toml",
        ])
        .unwrap();
        assert_eq!(args.connect, None);
        let over = read(&["--connect=http://127.0.0.1:1", "--", "true"]).unwrap();
        assert_eq!(over.connect.as_deref(), Some("http://127.0.0.1:1"));
        assert_eq!(args.pids, [1, 2]);
        assert_eq!(args.comms, ["sh"]);
        assert!(args.children);
        assert_eq!(args.duration, Some(10_000_000_000));
        assert_eq!(args.format, Some(RecordFormat::Pprof));
        assert_eq!(args.value, Some(RecordValue::OffProcessor));
        assert_eq!(args.frames, RecordFrames::All);
        assert_eq!(args.output, Some("a.svg".into()));
        assert_eq!(args.frequency_hz, Some(999));
        assert_eq!(args.config, Some("c.toml".into()));
        let args = read(&["-o", "x.txt", "--", "gcc", "-O2", "--help", "-o", "y", "--"]).unwrap();
        assert_eq!(args.output, Some("x.txt".into()));
        assert_eq!(args.command, ["gcc", "-O2", "--help", "-o", "y", "--"]);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        // Check that a command beside other targets, a command without --, wrong words and no time at all are refused.
        for typed in [
            &["--pid=1", "--", "true"][..],
            &["--comm=a", "--", "true"],
            &["true"],
            &["--duration=0s"],
            &["--duration=5"],
            &["--format=xml"],
            &["--connect=a:1", "--frequency-hz=9"],
            &["--connect=a:1", "--config=c.toml"],
            &["--value=off-processor"],
            &["--pid=x"],
        ] {
            assert!(read(typed).is_err(), "{typed:?} was accepted");
        }
    }
}
