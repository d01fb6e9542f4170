//! `cost`: what profiling costs, as ratios measured in one run on one machine.
//!
//! Every session under a profiler stands between two sessions under none, and is compared with the
//! mean of those two; one of the profilers is "none again", which shows how much of a ratio is
//! noise. Prints Markdown, writes JSON. It judges nothing, and says which profilers and loads could
//! not be run.

mod hooks;
mod loads;
mod own;
mod postgres;
mod process;
mod profilers;
mod results;
mod servers;
mod shares;

use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::{Context, bail};

use crate::loads::Bench;
use crate::profilers::Profiler;
use crate::results::{Ratios, Results};

/// What was typed.
struct Options {
    rounds: usize,
    quick: bool,
    /// Only compare shares of real programs with perf's.
    shares: bool,
    daemon: PathBuf,
    workload: PathBuf,
    json: Option<PathBuf>,
    markdown: Option<PathBuf>,
    only_loads: Vec<String>,
    only_profilers: Vec<String>,
}

const HELP: &str = "\
cost [--quick] [--rounds n] [--daemon file] [--workload file] [--json file] [--markdown file]
     [--loads a,b,…] [--profilers a,b,…]
cost --shares [--daemon file] [--markdown file]

Build first: cargo build --release. Needs root. About 30 minutes, with --quick about 8.
--shares compares what python3, redis, cc1 and a Go server do, by perf and by the daemon, and measures no cost: 1 minute.
";

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            process::say(&format!("cost: {error:#}"));
            ExitCode::FAILURE
        }
    }
}

fn options() -> anyhow::Result<Option<Options>> {
    let beside = std::env::current_exe()?
        .parent()
        .map(PathBuf::from)
        .context("the executable is in a directory")?;
    let mut options = Options {
        rounds: 0,
        quick: false,
        shares: false,
        daemon: beside.join("profiler-daemon"),
        workload: beside.join("workload"),
        json: None,
        markdown: None,
        only_loads: Vec::new(),
        only_profilers: Vec::new(),
    };
    let mut arguments = std::env::args().skip(1);
    while let Some(key) = arguments.next() {
        match key.as_str() {
            "--help" => return Ok(None),
            "--quick" => options.quick = true,
            "--shares" => options.shares = true,
            _ => {
                let value = arguments
                    .next()
                    .with_context(|| format!("{key} needs a value"))?;
                let list = || value.split(',').map(str::to_owned).collect();
                match key.as_str() {
                    "--rounds" => {
                        options.rounds = value.parse().context("--rounds needs a number")?
                    }
                    "--daemon" => options.daemon = value.into(),
                    "--workload" => options.workload = value.into(),
                    "--json" => options.json = Some(value.into()),
                    "--markdown" => options.markdown = Some(value.into()),
                    "--loads" => options.only_loads = list(),
                    "--profilers" => options.only_profilers = list(),
                    _ => bail!("unknown option {key}; --help lists them"),
                }
            }
        }
    }
    if options.rounds == 0 {
        options.rounds = if options.quick { 2 } else { 5 };
    }
    Ok(Some(options))
}

fn run() -> anyhow::Result<()> {
    let Some(options) = options()? else {
        process::print(HELP);
        return Ok(());
    };
    // SAFETY: no arguments, cannot fail.
    if unsafe { libc::geteuid() } != 0 {
        bail!("profilers need root");
    }
    if options.shares {
        let markdown = shares::measure(&options.daemon)?;
        return write_markdown(&options, &markdown);
    }
    let bench = Bench::prepare(&options.workload, options.quick, &options.only_loads)?;
    let profilers = profilers::available(&options.daemon, &options.only_profilers);
    let mut results = Results::new(options.rounds, &bench.missing, &profilers);
    for round in 1..=options.rounds {
        compare(&bench, &profilers, round, &mut results)?;
    }
    if profilers.iter().any(|profiler| profiler.is_daemon()) {
        // What was measured until then is kept.
        if let Err(error) = own::measure(&bench, &options.daemon, options.quick, &mut results) {
            results.fault("the daemon by itself", &format!("{error:#}"));
        }
    }
    let markdown = results.markdown();
    write_markdown(&options, &markdown)?;
    if let Some(path) = &options.json {
        std::fs::write(path, format!("{:#}\n", results.json()))
            .with_context(|| format!("writing {}", path.display()))?;
    }
    Ok(())
}

fn write_markdown(options: &Options, markdown: &str) -> anyhow::Result<()> {
    process::print(markdown);
    match &options.markdown {
        Some(path) => {
            std::fs::write(path, markdown).with_context(|| format!("writing {}", path.display()))
        }
        None => Ok(()),
    }
}

/// One round: none, profiler, none, profiler, … none.
fn compare(
    bench: &Bench,
    profilers: &[Profiler],
    round: usize,
    results: &mut Results,
) -> anyhow::Result<()> {
    let mut before = bench.session(false)?;
    for profiler in profilers {
        process::say(&format!("round {round}: {}", profiler.name));
        let running = match profiler.start() {
            Ok(running) => running,
            Err(error) => {
                results.fault(&profiler.name, &format!("{error:#}"));
                continue;
            }
        };
        let under = bench.session(profiler.adapts());
        let stopped = running.stop();
        let under = under?;
        if let Err(error) = stopped {
            results.fault(&profiler.name, &format!("{error:#}"));
        }
        let after = bench.session(false)?;
        results.add(&profiler.name, &Ratios::of(&before, &under, &after));
        before = after;
    }
    Ok(())
}
