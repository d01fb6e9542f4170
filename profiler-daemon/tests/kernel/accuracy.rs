//! Is the time of a function where it was spent? Programs that time their own functions, written to
//! break a division of time, and each of their functions held against its own clock: elapsed and
//! application time, within four standard deviations of the marks that they rest on. The first
//! design (all pending time to the next walk) fails most of these.
//!
//! One program takes some seconds here. The table of `docs/benchmarks.md` comes from longer runs of
//! the same programs: `cargo xtask accuracy`.

use std::fmt::Write as _;

use crate::accuracy_rows::{DEVIATIONS, Row, measured};
use crate::daemon::{self, Daemon, Settings};

/// Times a program is run before a deviation is held for one of the rule. Programs of a strict
/// period meet the ticks of a second in step by chance, which the standard deviation does not know
/// of: a bias is there each time.
const RUNS: usize = 3;

/// Runs a program beside the shared daemon and fails with all functions that are too far from their
/// truth each time.
fn hold(program: &str) {
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let mut said = String::new();
    for _ in 0..RUNS {
        let rows = measured(daemon, 999.0, program);
        let wrong: Vec<_> = rows.iter().filter(|row| !row.holds()).collect();
        if wrong.is_empty() {
            return;
        }
        writeln!(
            said,
            "{}of all:\n{}",
            lines(&wrong),
            lines(&rows.iter().collect::<Vec<_>>())
        )
        .expect("a string takes everything");
    }
    panic!("{program}: more than {DEVIATIONS} standard deviations off, {RUNS} times:\n{said}");
}

fn lines(rows: &[&Row]) -> String {
    rows.iter().fold(String::new(), |mut text, row| {
        writeln!(text, "{row}").expect("a string takes everything");
        text
    })
}

/// One test for each program, and the list of them all.
macro_rules! programs {
    ($($(#[doc = $claim:literal])* $name:ident: $short:literal, $long:literal;)*) => {
        $($(#[doc = $claim])*
        #[test]
        fn $name() {
            // Check that this program's functions have the time that it measured in them.
            hold($short);
        })*

        /// (what it is, its command line for a table)
        const PROGRAMS: &[(&str, &str)] = &[$((stringify!($name), $long)),*];
    };
}

programs! {
    /// User code before a call of nothing is not the call's.
    calls_of_nothing: "nothing --seconds 4", "nothing --seconds 10";
    /// Nor where 30 ms lie between two calls.
    calls_of_nothing_far_apart: "nothing --count 30000 --seconds 4", "nothing --count 30000 --seconds 10";
    /// Nor that of the one dear call among cheap ones.
    cheap_and_dear_calls: "cheap-and-dear --seconds 4", "cheap-and-dear --seconds 10";
    /// Ticks are no comb: a loop as long as a third of their period.
    plain_user_code: "plain --seconds 5", "plain --seconds 20";
    /// Functions that change places with the clock, at the frequency of the ticks.
    turns_by_the_clock: "turns --seconds 4", "turns --seconds 10";
    /// The same at the other frequency that people ask for.
    slow_turns_by_the_clock: "turns --count 99 --seconds 4", "turns --count 99 --seconds 10";
    /// Deep stacks cost more to walk and stand for no more.
    deep_and_shallow_stacks: "depths --seconds 4", "depths --seconds 10";
    /// Short waits and long ones.
    short_and_long_sleeps: "naps --seconds 4", "naps --seconds 10";
    /// Short waits, then one that lasts.
    a_burst_then_a_long_wait: "burst --seconds 3", "burst --seconds 10";
    /// Waits in a period of exactly the shortest time between two stacks.
    a_period_of_exactly_a_millisecond: "exactly --seconds 4", "exactly --seconds 10";
    /// And of half of it.
    a_period_of_half_a_millisecond: "exactly --count 500 --seconds 3", "exactly --count 500 --seconds 10";
    /// Waits that use up what is allowed before the one that counts.
    a_drained_bucket: "bucket --seconds 4", "bucket --seconds 10";
    /// Work at absolute times.
    sixty_frames_a_second: "frames --count 60 --seconds 5", "frames --count 60 --seconds 20";
    /// The same, at a period that no tick of a comb meets twice.
    ninety_frames_a_second: "frames --count 90 --seconds 5", "frames --count 90 --seconds 20";
    /// Page faults are not the program's own code.
    minor_page_faults: "minor-faults --seconds 4", "minor-faults --seconds 10";
    /// Waits outside any call, thousands a second, are those of the code that faulted.
    page_faults_that_wait: "waiting-faults --seconds 4", "waiting-faults --seconds 10";
    /// Calls of seconds, and of 50 us.
    long_and_short_calls: "long-calls --millis 1000 --seconds 4", "long-calls --millis 4000 --seconds 20";
    /// Threads too short to reach a mark but by the residual law.
    threads_of_a_millisecond: "short-threads --count 1200", "short-threads --count 3000";
    /// Threads that are killed within a call.
    killed_within_a_call: "killed --count 60", "killed --count 200";
    /// Processes too short to be a stratum of their own.
    processes_of_three_milliseconds: "small-processes --count 600", "small-processes --count 2500";
    /// Of two lengths: the short ones count as much.
    processes_of_three_and_twelve_milliseconds:
        "small-processes --kind mixed --count 400", "small-processes --kind mixed --count 2500";
    /// Calls that do not come back: execve and exit_group.
    calls_that_do_not_come_back: "leavers --count 40", "leavers --count 150";
    /// Requests of exponential lengths.
    a_server: "server --seconds 5", "server --seconds 15";
    /// Threads in step on all processors.
    threads_in_lockstep: "lockstep --seconds 4", "lockstep --seconds 10";
    /// A processor given away beside one who takes it.
    a_storm_of_yields: "yields --seconds 3", "yields --seconds 10";
    /// A lock that four threads want.
    a_convoy_at_a_lock: "convoy --seconds 4", "convoy --seconds 10";
    /// Handlers, and the call that ends them and does not return.
    a_storm_of_signals: "sigreturns --seconds 4", "sigreturns --seconds 10";
    /// Calls that are begun again after each signal.
    calls_that_begin_again: "restarts --seconds 4", "restarts --seconds 10";
    /// A process that is stopped, in its code and in its sleep.
    a_process_that_is_stopped: "stops --seconds 4", "stops --seconds 10";
    /// Leaves that are not the program's: memmove and the vDSO's clock.
    leaves_of_other_modules: "leaves --seconds 4", "leaves --seconds 10";
}

/// Runs all programs at one frequency; each function is one line of the table.
fn table(frequency_hz: u32, only: Option<&str>, wrong: &mut String) -> Option<String> {
    let top = match frequency_hz {
        99 => "frequency_hz = 99",
        _ => "frequency_hz = 997",
    };
    let daemon: Daemon = daemon::own(&Settings {
        top,
        limits: "profile_stack_bytes = \"512MiB\"",
        ..Settings::default()
    })?;
    let mut text = format!(
        "At {frequency_hz} Hz, in ms; in brackets the standard deviation, of the marks and of the program's own clock.\n\n\
         | program | function | elapsed, true | reported | application, true | reported |\n|---|---|---|---|---|---|\n"
    );
    for (name, program) in PROGRAMS {
        if only.is_some_and(|only| !program.contains(only)) {
            continue;
        }
        daemon::say(&format!("{frequency_hz} Hz: {program}"));
        for (index, row) in measured(&daemon, f64::from(frequency_hz), program)
            .iter()
            .enumerate()
        {
            let title = name.replace('_', " ");
            let title = if index == 0 { title.as_str() } else { "" };
            writeln!(text, "| {title} | {}", row.columns()).expect("a string takes everything");
            if !row.holds() {
                writeln!(wrong, "{frequency_hz} Hz, {program}: {row}")
                    .expect("a string takes everything");
            }
        }
    }
    Some(text)
}

#[test]
#[ignore = "takes 12 minutes: `cargo xtask accuracy`"]
fn every_program_at_both_frequencies() {
    // Check that every program's functions have the time that it measured in them, in runs long
    // enough for a table, at both frequencies. Writes the table into the file that `ACCURACY_TABLE`
    // names; `ACCURACY_ONLY` chooses programs by a word.
    let only = std::env::var("ACCURACY_ONLY").ok();
    let mut wrong = String::new();
    let tables: Vec<String> = [99, 997]
        .into_iter()
        .filter_map(|frequency_hz| table(frequency_hz, only.as_deref(), &mut wrong))
        .collect();
    if let Some(path) = std::env::var_os("ACCURACY_TABLE") {
        std::fs::write(path, tables.join("\n")).expect("the table can be written");
    }
    assert!(
        wrong.is_empty(),
        "more than {DEVIATIONS} standard deviations off:\n{wrong}"
    );
}
