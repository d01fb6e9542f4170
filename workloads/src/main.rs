//! `workload <program> [--key value]…`: small programs whose profile is known by construction.
//!
//! Each program prints one JSON line with its own truth when its work is done: the wall time by its
//! own clock, the processor time the kernel charged to it, the counts and shares that a profiler
//! has to find. With `--wait` it first prints a `ready` line and waits for a line on standard
//! input; with `--hold` it stays alive after the truth, asleep in a read of standard input, until
//! that is closed. It judges nothing: comparing is the reader's business.

mod options;
mod places;
mod programs;
mod sys;
mod truth;
mod work;

use std::process::ExitCode;

use options::Options;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            sys::write_all(2, format!("workload: {error:#}\n").as_bytes());
            ExitCode::FAILURE
        }
    }
}

fn run() -> anyhow::Result<()> {
    let options = Options::parse(std::env::args_os().skip(1))?;
    if options.program == "help" {
        sys::write_all(1, programs::help().as_bytes());
        return Ok(());
    }
    let program = programs::find(&options.program)?;
    if options.nice != 0 {
        sys::renice(options.nice)?;
    }
    if options.wait {
        truth::ready(&options.program, serde_json::json!({}));
        truth::wait_for_line();
    }
    let truth = truth::Truth::start(&options.program);
    let truth = (program.run)(&options, truth)?;
    truth.print();
    if options.hold {
        truth::hold_until_closed();
    }
    Ok(())
}
