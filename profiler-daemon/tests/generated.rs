//! Files that are made from declarations in the code: they must say what the code says.
//!
//! `UPDATE_GENERATED=1 cargo test --test generated` writes them anew.

use std::path::Path;

use profiler_common::Counter;
use profiler_common::counter::CounterKind;
use profiler_common::unwind::UnwindFailure;
use profiler_daemon::collect::COLLECTOR_LOSSES;
use profiler_daemon::profile::losses::OWN_LOSSES;
use profiler_daemon::symbols::lines::NoLine;
use profiler_daemon::symbols::names::Unnamed;
use profiler_daemon::unwind::NoTable;
use profiler_daemon::{api, config, metrics};

fn check(file: &str, generated: &str) {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(file);
    if std::env::var_os("UPDATE_GENERATED").is_some() {
        std::fs::write(&path, generated).expect("the file can be written");
    }
    let kept = std::fs::read_to_string(&path).unwrap_or_default();
    for (number, (kept, generated)) in kept.lines().zip(generated.lines()).enumerate() {
        assert_eq!(
            kept,
            generated,
            "line {} of {file} is out of date",
            number + 1
        );
    }
    assert_eq!(
        kept, generated,
        "{file} is out of date: set UPDATE_GENERATED=1 to write it"
    );
}

#[test]
fn the_sample_configuration_is_current() {
    // Check that the sample file that ships lists the settings the code declares.
    check("deploy/profiler.toml", &config::sample());
}

#[test]
fn the_page_of_settings_is_current() {
    // Check that the page of settings lists the settings the code declares.
    check("docs/configuration.md", &config::documentation());
}

#[test]
fn the_page_of_metrics_is_current() {
    // Check that the page of metrics lists the metrics the code declares.
    check("docs/metrics.md", &metrics::documentation());
}

#[test]
fn the_page_of_counters_is_current() {
    // Check that the page of counters lists what the kernel programs count, under the names they
    // have in the code.
    check("docs/counters.md", &counters());
}

#[test]
fn the_description_of_the_interface_is_current() {
    // Check that the kept OpenAPI document is the one that is served.
    check("docs/openapi.json", &api::openapi_document());
}

/// The page of counters.
fn counters() -> String {
    let mut page = String::from(
        "# Counters\n\n\
        Generated from the code. What the kernel programs count, since the daemon started. Those of kind *sample lost*,\n\
        *loss* and *race* are the `causes` of a report's `completeness` (zeros are left out there) and\n\
        `profiler_losses_total` in the metrics; those of kind *discarded* are `discarded` in the session's report and\n\
        `profiler_discarded_samples_total`. Numbers are never reused.\n\n\
        | number | name | kind | what is counted |\n|---|---|---|---|\n",
    );
    for counter in Counter::ALL {
        page.push_str(&format!(
            "| {} | `{}` | {} | {} |\n",
            counter as u32,
            counter.name(),
            kind(counter.kind()).0,
            counter.help()
        ));
    }
    page.push_str("\n| kind | what it means for the answers |\n|---|---|\n");
    for counted in [
        CounterKind::Event,
        CounterKind::Discarded,
        CounterKind::SampleLost,
        CounterKind::Loss,
        CounterKind::Race,
    ] {
        let (name, meaning) = kind(counted);
        page.push_str(&format!("| {name} | {meaning} |\n"));
    }
    page.push_str(
        "\n## What the profile counts\n\n\
        `causes` of the session's `completeness`, `profiler_losses_total` in the metrics (nanoseconds as seconds, in\n\
        `profiler_losses_seconds_total`, without `_ns`), and `profile.losses` of\n\
        `/api/v1/status`. Beside them, `folded_ns` among the `causes` of any report is how much of *its own* time was folded,\n\
        and `callers_folded_ns` how much more is of functions some of whose callers were (semantics.md section 7, Room). `dropped_processes` and `dropped_ns`, in what `record --connect` writes alone, are processes that\n\
        ended and that the daemon no longer kept (`limits.exited_processes`) when a command, names or children were recorded, and what\n\
        they have of that time: some may have been wanted.\n\n\
        | name | what is counted |\n|---|---|\n",
    );
    for loss in OWN_LOSSES {
        page.push_str(&format!("| `{}` | {} |\n", loss.name, loss.help));
    }
    page.push_str(
        "\n## What the collector counts\n\n\
        `causes` of the session's `completeness` and `profiler_losses_total` in the metrics (nanoseconds\n\
        as seconds, in `profiler_losses_seconds_total`).\n\n\
        | name | what is counted |\n|---|---|\n",
    );
    for loss in COLLECTOR_LOSSES {
        page.push_str(&format!("| `{}` | {} |\n", loss.name, loss.help));
    }
    page.push_str(
        "\n## Walks that end early\n\n\
        `profiler_stack_walk_failures_total` in the metrics, `unwinding.failures` of `/api/v1/status`; in reports\n\
        `[incomplete: reason]` stands for the callers that are not known.\n\n\
        | number | reason | what happened |\n|---|---|---|\n",
    );
    for failure in UnwindFailure::ALL {
        let (number, name, help) = (failure as u32, failure.name(), failure.help());
        page.push_str(&format!("| {number} | `{name}` | {help} |\n"));
    }
    page.push_str(
        "\n## Files without usable unwind information\n\n\
        `profiler_unwind_tables_none_total` in the metrics, `unwinding.without_information` of `/api/v1/status`, which names the\n\
        files too. Where there is no unwind information or it could not be read, code is followed by rules read off it; else by frame\n\
        pointers.\n\n\
        | reason | what happened |\n|---|---|\n",
    );
    for why in NoTable::ALL {
        page.push_str(&format!("| `{}` | {} |\n", why.name(), why.help()));
    }
    page.push_str(
        "\n## Places without a name\n\n\
        `frames_unknown` of the `completeness` of reports, and `profiler_names_unknown_total` in the metrics. Reports also know `no_frame`\n\
        (of rows such as `[folded]` and `[unknown: reason]`: what was on the stack is not known) and `not_looked_up`.\n\n\
        | reason | what happened |\n|---|---|\n",
    );
    for why in Unnamed::ALL {
        page.push_str(&format!("| `{}` | {} |\n", why.name(), why.help()));
    }
    page.push_str(
        "\n## Places without a line\n\n\
        `line_unknown` of rows of lines and instructions, `lines_unknown` of their `completeness`, and `profiler_lines_unknown_total` and\n\
        `profiler_line_worker_failures_total` in the metrics.\n\n\
        | reason | what happened |\n|---|---|\n",
    );
    for why in NoLine::ALL {
        page.push_str(&format!("| `{}` | {} |\n", why.name(), why.help()));
    }
    page
}

/// A kind's name and what it means.
fn kind(kind: CounterKind) -> (&'static str, &'static str) {
    match kind {
        CounterKind::Event => ("event", "Work done. Nothing is wrong."),
        CounterKind::Discarded => (
            "discarded",
            "A timer tick that was no sample of a target (semantics.md section 2). Nothing is wrong.",
        ),
        CounterKind::SampleLost => (
            "sample lost",
            "A sample of a target that could not be kept. The thread's time is exact all the same.",
        ),
        CounterKind::Loss => ("loss", "Something that could not be seen or kept."),
        CounterKind::Race => (
            "race",
            "Two things that happened at once: it was noticed, and decided as the sentence says.",
        ),
    }
}
