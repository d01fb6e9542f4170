//! The command line of `top`.

use std::path::PathBuf;

use clap::{Args, ValueEnum};

use crate::config::duration;

/// What to look at, and how often.
#[derive(Debug, Clone, PartialEq, Eq, Args)]
pub struct TopArgs {
    /// Look at this daemon, as in http://127.0.0.1:9797. Needs no privileges. Without it the
    /// profiler starts with this program and ends with it.
    #[arg(long, value_name = "URL", conflicts_with = "config")]
    pub connect: Option<String>,

    /// The time that the numbers are of, to begin with.
    #[arg(long, value_name = "TIME", value_enum, default_value_t)]
    pub window: TopWindow,

    /// What rows are sorted by, to begin with.
    #[arg(long, value_name = "VALUE", value_enum, default_value_t)]
    pub sort: TopSort,

    /// Time between two questions, as in 2s: at least 100ms.
    #[arg(long, value_name = "DURATION", value_parser = period, default_value = "2s")]
    pub every: u64,

    /// Print one screen as text and end; without --connect, of the time --every.
    #[arg(long)]
    pub once: bool,

    /// Configuration file, for the limits, sampling and targets of the profiler that starts with
    /// this program.
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
}

/// The time that numbers are of.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum TopWindow {
    /// The last 30 seconds once the profiler runs for more than 5 minutes, until then all.
    #[default]
    Recent,
    /// All since the profiler began.
    Session,
    /// The last 30 seconds.
    #[value(name = "30s")]
    HalfMinute,
    /// The last 5 minutes.
    #[value(name = "5m")]
    FiveMinutes,
}

/// What rows are sorted by.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, ValueEnum)]
pub enum TopSort {
    /// Timer samples.
    #[default]
    Samples,
    /// All time.
    Elapsed,
    /// Time running in user mode outside system calls.
    Application,
    /// Time running in system calls.
    Syscall,
    /// Time waiting for a processor.
    Runnable,
    /// Time blocked.
    Blocked,
}

/// The shortest time between two questions, nanoseconds.
const SHORTEST_PERIOD_NS: u64 = 100_000_000;

fn period(text: &str) -> Result<u64, String> {
    match duration::parse(text)? {
        too_short if too_short < SHORTEST_PERIOD_NS => Err("must be at least 100ms".to_owned()),
        period_ns => Ok(period_ns),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser as _;

    use super::{TopArgs, TopSort, TopWindow};
    use crate::args::{Args, ProgramCommand};

    fn read(typed: &[&str]) -> Option<TopArgs> {
        let all = ["profiler-daemon", "top"].iter().chain(typed);
        match Args::try_parse_from(all).ok()?.command? {
            ProgramCommand::Top(top) => Some(top),
            _ => None,
        }
    }

    // Check that every option is read, and that what makes no sense is refused.
    #[test]
    fn typed() {
        let top = read(&[]).unwrap();
        assert_eq!(
            (top.window, top.sort),
            (TopWindow::Recent, TopSort::Samples)
        );
        assert_eq!((top.every, top.once), (2_000_000_000, false));
        let top = read(&[
            "--connect=http://127.0.0.1:1",
            "--window=30s",
            "--sort=blocked",
            "--every=500ms",
            "--once",
        ])
        .unwrap();
        assert_eq!(top.connect.as_deref(), Some("http://127.0.0.1:1"));
        assert_eq!(
            (top.window, top.sort),
            (TopWindow::HalfMinute, TopSort::Blocked)
        );
        assert_eq!((top.every, top.once), (500_000_000, true));
        for (typed, sort) in [
            ("--sort=runnable", TopSort::Runnable),
            ("--sort=syscall", TopSort::Syscall),
        ] {
            assert_eq!(read(&[typed]).unwrap().sort, sort);
        }
        for typed in [
            &["--window=1s"][..],
            &["--sort=pid"],
            &["--every=1ms"],
            &["--connect=a:1", "--config=c"],
        ] {
            assert_eq!(read(typed), None, "{typed:?}");
        }
    }
}
