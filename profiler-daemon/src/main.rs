//! The program: arguments in, exit code out.

use std::io::Write as _;
use std::process::ExitCode;

use profiler_daemon::args::{Args, LogLevel, ProgramCommand, failure_sentence};
use profiler_daemon::symbols::lines::worker;
use profiler_daemon::sys::memory_reader;
use profiler_daemon::{daemon, doctor, record, top};
use tracing_subscriber::EnvFilter;

#[expect(
    clippy::print_stdout,
    reason = "the one place that speaks to whoever started it"
)]
fn main() -> ExitCode {
    let args = Args::from_command_line();
    match args.command {
        Some(ProgramCommand::Doctor { json }) => {
            let diagnosis = doctor::diagnose();
            if json {
                match diagnosis.to_json() {
                    Ok(text) => println!("{text}"),
                    Err(error) => {
                        tell(&format!("cannot write JSON: {error}"));
                        return ExitCode::FAILURE;
                    }
                }
            } else {
                print!("{}", diagnosis.to_text());
            }
            ExitCode::from(diagnosis.exit_code())
        }
        Some(ProgramCommand::ResolveLines { files }) => ExitCode::from(worker::run(&files)),
        Some(ProgramCommand::ReadMemory { files }) => ExitCode::from(memory_reader::run(&files)),
        Some(ProgramCommand::Record(args)) => {
            log_from(LogLevel::Warn);
            match record::run(&args) {
                Ok(exit_code) => ExitCode::from(exit_code),
                Err(error) => {
                    tell(&failure_sentence(&error));
                    ExitCode::FAILURE
                }
            }
        }
        Some(ProgramCommand::Top(args)) => {
            // The screen is the program's: what is worth telling is told on it.
            match top::run(&args) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    tell(&failure_sentence(&error));
                    ExitCode::FAILURE
                }
            }
        }
        None => {
            log_from(args.log);
            let serve = |config| match &args.replay {
                Some(file) => daemon::replay(&config, file),
                None => daemon::run(config),
            };
            match args.resolve().map_err(anyhow::Error::from).and_then(serve) {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    tell(&failure_sentence(&error));
                    ExitCode::FAILURE
                }
            }
        }
    }
}

/// Tells why the program ends. Where the terminal is gone there is nobody to tell, which is no
/// reason to break.
fn tell(sentence: &str) {
    writeln!(std::io::stderr(), "profiler-daemon: {sentence}").unwrap_or_default();
}

/// Logs what is at least as grave to standard error.
fn log_from(level: LogLevel) {
    let filter = format!("{0},profiler_daemon={0}", level.as_str());
    tracing_subscriber::fmt()
        .with_env_filter(EnvFilter::new(filter))
        .with_writer(std::io::stderr)
        .with_target(false)
        // They would be told to standard error too, which is broken where the terminal is gone, and
        // to be unable to do that is a panic.
        .log_internal_errors(false)
        .init();
}
