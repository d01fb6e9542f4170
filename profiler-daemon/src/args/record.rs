//! The command line of `record`.

use std::ffi::OsString;
use std::path::PathBuf;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{ArgGroup, Args};

use crate::api::Format;
use crate::config::targets::parse_pid;
use crate::config::{duration, parse_frequency};
use crate::report::{FrameScope, StackValue};

/// What to record, for how long, and what to make of it.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
#[command(group(ArgGroup::new("exact").multiple(true).args(["trace", "trace_usdt", "trace_span"])))]
pub struct RecordArgs {
    /// Record this process. May be given more than once.
    #[arg(long = "pid", value_name = "N", value_parser = parse_pid)]
    pub pids: Vec<u32>,

    /// Record processes of this name (at most 15 bytes, as the kernel keeps it). May be given more
    /// than once.
    #[arg(long = "comm", value_name = "NAME")]
    pub comms: Vec<String>,

    /// Record what those processes start, too. What a command starts is always recorded.
    #[arg(long)]
    pub children: bool,

    /// Stop after this time, as in 10s. Without it: when the command or all processes given by
    /// --pid have ended, or at Ctrl-C.
    #[arg(long, value_name = "DURATION", value_parser = positive)]
    pub duration: Option<u64>,

    /// What to write. Without it, the ending of the file's name decides; text where there is no
    /// file.
    #[arg(long, value_name = "FORMAT", value_parser = one_of(&FORMATS, Format::name))]
    pub format: Option<Format>,

    /// The value that stacks are drawn by (folded, svg, speedscope, firefox), or that functions are
    /// sorted by (text, json, csv: only samples, elapsed or application); samples unless said
    /// otherwise. Pprof and profile have all values.
    #[arg(long, value_name = "VALUE", value_parser = one_of(&VALUES, StackValue::name))]
    pub value: Option<StackValue>,

    /// Whose functions are shown: those of programs, or the kernel's as well.
    #[arg(long, value_name = "FRAMES", value_parser = one_of(&FRAMES, frames_name), default_value = "user")]
    pub frames: FrameScope,

    /// The file to write, whole or not at all. Without it, or as -, standard output.
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,

    /// Record over this daemon instead of alone, as in http://127.0.0.1:9797. Needs no privileges.
    /// What the daemon does not profile is not recorded; the time is rounded up to the pieces that
    /// it keeps (about 1 s for 2 min, longer ones before), but for a command.
    #[arg(long, value_name = "URL", conflicts_with_all = ["frequency_hz", "config"])]
    pub connect: Option<String>,

    /// How often each processor is sampled, per second.
    #[arg(long, value_name = "N", value_parser = parse_frequency)]
    pub frequency_hz: Option<u64>,

    /// Configuration file, for its limits and sampling. What it says of targets and of serving has
    /// no meaning here.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,

    /// Measure each call of these functions exactly, beside the samples: MODULE:FUNCTION, with * as
    /// any text, as in 'libpq.so*:PQexec*' or ./app:handle_request. Of the command, or of the
    /// processes given by --pid. May be given more than once.
    #[arg(long, value_name = "MODULE:FUNCTION", conflicts_with_all = ["connect", "comms"])]
    pub trace: Vec<String>,

    /// Count the hits of these USDT points, marks that a program's authors have put into it, beside
    /// the samples: PROVIDER:NAME, or MODULE:PROVIDER:NAME, with * as any text. With ,argN behind,
    /// as in 'python:gc__done,arg0', the values of that integer argument too. May be given more
    /// than once.
    #[arg(long, value_name = "[MODULE:]PROVIDER:NAME", conflicts_with_all = ["connect", "comms"])]
    pub trace_usdt: Vec<String>,

    /// Take the time from a start to an end, whichever threads they are in: NAME=START,END,KEY.
    /// Both are entries of functions, MODULE:FUNCTION, or USDT points, usdt:MODULE:PROVIDER:NAME;
    /// KEY says which end belongs to a start: that in the same thread, tid, or that with the same
    /// value of an argument, arg0 to arg5. May be given more than once.
    #[arg(long, value_name = "NAME=START,END,KEY", conflicts_with_all = ["connect", "comms"])]
    pub trace_span: Vec<String>,

    /// Count the calls of these functions only, which costs least: no times.
    #[arg(long, requires = "trace")]
    pub trace_counts: bool,

    /// How much of one processor the probes may take from a process: 5% unless said otherwise, 0% =
    /// any. Beyond, the costliest function, USDT point or span is not measured any more, and the
    /// report says so.
    #[arg(long, value_name = "PERCENT", value_parser = permille, requires = "exact")]
    pub trace_budget: Option<u32>,

    /// A command to run and record, from its first instruction to its end, with all that it starts.
    /// It runs as the user who runs this program; its exit code is passed on.
    #[arg(last = true, value_name = "COMMAND", conflicts_with_all = ["pids", "comms"])]
    pub command: Vec<OsString>,
}

/// What a recording is written as: each format with what it has in it.
const FORMATS: [(Format, &str); 9] = [
    (Format::Text, "Totals and functions, for people"),
    (
        Format::Json,
        "Totals, processes, functions and system calls, as the daemon answers them",
    ),
    (Format::Folded, "A line per stack"),
    (Format::Svg, "A flame graph"),
    (Format::Speedscope, "For speedscope"),
    (Format::Firefox, "For the Firefox Profiler"),
    (Format::Pprof, "For pprof, compressed"),
    (Format::Csv, "Functions, for spreadsheets"),
    (Format::Profile, "Everything, for profiler-daemon --replay"),
];

/// What is measured.
const VALUES: [(StackValue, &str); 8] = [
    (StackValue::Samples, "Timer samples"),
    (StackValue::Elapsed, "All time"),
    (
        StackValue::Application,
        "Time running in user mode outside system calls",
    ),
    (StackValue::Running, "Time on a processor"),
    (
        StackValue::OffProcessor,
        "Time blocked or waiting for a processor",
    ),
    (StackValue::Blocked, "Time off the processor until woken"),
    (StackValue::Runnable, "Time waiting for a processor"),
    (StackValue::Syscall, "Time running in system calls"),
];

/// Reads one of a few words, each with what it means.
fn one_of<T: Copy + Send + Sync + 'static>(
    words: &'static [(T, &'static str)],
    name: fn(T) -> &'static str,
) -> impl TypedValueParser<Value = T> {
    let possible = words
        .iter()
        .map(|(word, about)| PossibleValue::new(name(*word)).help(*about));
    PossibleValuesParser::new(possible).map(move |typed| {
        let found = words.iter().find(|(word, _)| name(*word) == typed);
        found.expect("only these words are taken").0
    })
}

fn frames_name(frames: FrameScope) -> &'static str {
    match frames {
        FrameScope::User => "user",
        FrameScope::All => "all",
    }
}

/// Whose functions are shown.
const FRAMES: [(FrameScope, &str); 2] = [
    (
        FrameScope::User,
        "Those of programs. Time in the kernel belongs to the function that called it",
    ),
    (FrameScope::All, "The kernel's as well"),
];

/// Reads a percentage as thousandths; what is less than one of them is one: 0 has a meaning.
fn permille(text: &str) -> Result<u32, String> {
    match text.trim_end_matches('%').parse::<f64>() {
        Ok(percent) if (0.0..=10_000.0).contains(&percent) => Ok((10.0 * percent).ceil() as u32),
        _ => Err("must be a percentage, as in 5%".to_owned()),
    }
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

    use super::RecordArgs;
    use crate::api::Format;
    use crate::args::{Args, ProgramCommand};
    use crate::report::{FrameScope, StackValue};

    fn read(typed: &[&str]) -> Result<RecordArgs, String> {
        let all = ["profiler-daemon", "record"].iter().chain(typed);
        match Args::try_parse_from(all).map(|args| args.command) {
            Ok(Some(ProgramCommand::Record(record))) => Ok(*record),
            Ok(other) => Err(format!("{other:?}")),
            Err(error) => Err(error.to_string()),
        }
    }

    #[test]
    fn everything_typed_arrives() {
        // Check that every option is read, that nothing typed leaves all open, and that a command
        // keeps its own options.
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
        assert_eq!(args.format, Some(Format::Pprof));
        assert_eq!(args.value, Some(StackValue::OffProcessor));
        assert_eq!(args.frames, FrameScope::All);
        assert_eq!(args.output, Some("a.svg".into()));
        assert_eq!(args.frequency_hz, Some(999));
        assert_eq!(args.config, Some("c.toml".into()));
        let args = read(&["-o", "x.txt", "--", "gcc", "-O2", "--help", "-o", "y", "--"]).unwrap();
        assert_eq!(args.output, Some("x.txt".into()));
        assert_eq!(args.command, ["gcc", "-O2", "--help", "-o", "y", "--"]);
    }

    #[test]
    fn functions_to_be_measured_arrive() {
        // Check that patterns and budgets are read, that the least budget is not "any", and that a
        // budget of nothing measured makes no sense.
        let args = read(&["--trace=a:b", "--trace", "c:d*", "--trace-budget=2.5%"]).unwrap();
        assert_eq!(args.trace, ["a:b", "c:d*"]);
        assert_eq!(args.trace_budget, Some(25));
        let budget = |text: &str| read(&["--trace=a:b", text]).map(|args| args.trace_budget);
        assert_eq!(budget("--trace-budget=0"), Ok(Some(0)));
        assert_eq!(budget("--trace-budget=0.001%"), Ok(Some(1)));
        assert!(budget("--trace-budget=-1").is_err());
        assert!(budget("--trace-budget=much").is_err());
        assert!(read(&["--trace-budget=5"]).is_err());
        assert!(read(&["--trace=a:b", "--comm=x"]).is_err());
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        // Check that a command beside other targets, a command without --, wrong words and no time
        // at all are refused.
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
