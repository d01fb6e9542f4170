//! Every command a contributor runs, one module each: `cargo xtask --help`.
#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a program for a terminal"
)]

mod accuracy;
mod bench;
mod build;
mod fuzz;
mod kernels;
mod lint;
mod names;
mod packages;
mod run;
mod shell;
mod test;
mod tidy;
mod toolchain;
mod vendor;
mod workspace;

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use workspace::Workspace;

#[derive(Parser)]
#[command(
    name = "cargo xtask",
    about = "Build, run, test and measure the profiler"
)]
struct Arguments {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Build everything, installing what the kernel programs need if it is missing
    Build {
        /// Build optimized, into target/release
        #[arg(long)]
        release: bool,
    },
    /// Build and start the daemon; what follows `--` is passed to it
    Run {
        /// Arguments of profiler-daemon
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
    /// Run all tests, those on the running kernel included (these need root)
    Test {
        /// Also run the tests that take long
        #[arg(long)]
        full: bool,
    },
    /// Run the kernel's tests on other kernels, under emulation: 5.10 to 7.2
    TestKernel {
        /// The kernels, as in 6.1; all that Debian has where none is named
        versions: Vec<String>,
        /// The file of the one kernel that is named (a `vmlinuz`), in place of Debian's: for 5.15
        /// and 5.17, which no release of Debian has
        #[arg(long)]
        image: Option<PathBuf>,
    },
    /// Measure what the profiler costs; what follows `--` is passed to the measurement
    Bench {
        /// Arguments of the measurement
        #[arg(last = true)]
        arguments: Vec<OsString>,
    },
    /// Hold programs that time their own functions against what the profiler reports of them, and
    /// write the tables
    Accuracy {
        /// Only the programs whose command line contains this, and no real ones
        only: Option<OsString>,
    },
    /// Compare the names of functions of real programs with those that perf gives them
    Names,
    /// Give each reader of bytes from outside inputs that a fuzzer makes up
    Fuzz {
        /// The targets; all where none is named
        targets: Vec<String>,
        /// How long each
        #[arg(long, default_value_t = 60)]
        seconds: u32,
        /// Where there is no nightly Rust, say so and succeed
        #[arg(long)]
        or_skip: bool,
    },
    /// Check formatting, lints (host and kernel programs), links in comments and tidiness
    Lint,
    /// Check who imports whom, where unsafe stands, and the sizes of files
    Tidy,
    /// Install what the kernel programs need to compile, if it is missing
    Toolchain,
    /// Take the files of speedscope that the daemon serves from npm, checked by their hash
    VendorSpeedscope {
        /// Another version than the one that is there
        version: Option<String>,
    },
    /// Wait until the daemon answers, then say where
    #[command(hide = true)]
    Announce {
        /// The process whose end ends the wait
        #[arg(long)]
        pid: u32,
        /// Where the daemon listens
        #[arg(long)]
        listen: String,
        /// Wait in another process
        #[arg(long)]
        detach: bool,
    },
}

fn main() -> ExitCode {
    let arguments = Arguments::parse();
    match perform(arguments.command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("xtask: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn perform(task: Task) -> anyhow::Result<()> {
    let workspace = Workspace::find()?;
    match task {
        Task::Build { release } => build::build(&workspace, release),
        Task::Run { arguments } => run::run(&workspace, &arguments),
        Task::Test { full } => test::test(&workspace, full),
        Task::TestKernel { versions, image } => {
            kernels::test_kernels(&workspace, &versions, image.as_deref())
        }
        Task::Bench { arguments } => bench::bench(&workspace, &arguments),
        Task::Accuracy { only } => accuracy::accuracy(&workspace, only.as_ref()),
        Task::Names => names::names(&workspace),
        Task::Fuzz {
            targets,
            seconds,
            or_skip,
        } => fuzz::fuzz(&workspace, &targets, seconds, or_skip),
        Task::Lint => lint::lint(&workspace),
        Task::Tidy => tidy::tidy(&workspace),
        Task::Toolchain => toolchain::ensure(&workspace).map(drop),
        Task::VendorSpeedscope { version } => vendor::speedscope(&workspace, version.as_deref()),
        Task::Announce {
            pid,
            listen,
            detach: true,
        } => run::announce_detached(pid, &listen),
        Task::Announce {
            pid,
            listen,
            detach: false,
        } => {
            run::announce(pid, &listen);
            Ok(())
        }
    }
}
