//! The program: arguments in, exit code out.

use std::process::ExitCode;

use profiler_daemon::args::{Args, Command, failure_sentence};
use profiler_daemon::config::Config;
use profiler_daemon::{daemon, doctor};
use tracing_subscriber::EnvFilter;

#[expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "the one place that speaks to whoever started it"
)]
fn main() -> ExitCode {
    let args = Args::from_command_line();
    match args.command {
        Some(Command::Doctor { json }) => {
            let diagnosis = doctor::diagnose();
            if json {
                match diagnosis.to_json() {
                    Ok(text) => println!("{text}"),
                    Err(error) => {
                        eprintln!("profiler-daemon: cannot write JSON: {error}");
                        return ExitCode::FAILURE;
                    }
                }
            } else {
                print!("{}", diagnosis.to_text());
            }
            ExitCode::from(diagnosis.exit_code())
        }
        None => {
            let filter = format!("{0},profiler_daemon={0}", args.log.as_str());
            tracing_subscriber::fmt()
                .with_env_filter(EnvFilter::new(filter))
                .with_writer(std::io::stderr)
                .with_target(false)
                .init();
            match Config::resolve(&args)
                .map_err(anyhow::Error::from)
                .and_then(daemon::run)
            {
                Ok(()) => ExitCode::SUCCESS,
                Err(error) => {
                    eprintln!("profiler-daemon: {}", failure_sentence(&error));
                    ExitCode::FAILURE
                }
            }
        }
    }
}
