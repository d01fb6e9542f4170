//! Tests of the exposition, by reading it and by asking promtool.

use std::io::Write as _;
use std::process::{Command, Stdio};

use super::input::{
    DrainInput, GroupInput, LineInput, MapInput, MeasuringInput, MetricsInput, OutsideInput,
    OwnInput, ProgramInput, SpendingInput, StackInput, SymbolCacheInput, UnwindInput,
};
use super::table::{FAMILIES, Kind};
use super::{MAX_LABEL_BYTES, RequestCounts, StreamTotals, exposition};

/// An input in which every metric has a series.
fn full() -> MetricsInput {
    MetricsInput {
        version: "1.2.3".to_owned(),
        kernel_release: "6.1.0".to_owned(),
        ready: true,
        degraded_features: 1,
        heartbeat_ages_ns: vec![("symbols", 1_500_000_000), ("unwind", 0)],
        frequency_hz: 99,
        samples_total: 1_000,
        discarded_total: vec![("idle".to_owned(), 5)],
        losses_total: vec![("map_full".to_owned(), 0)],
        stacks: StackInput {
            complete_total: 10,
            truncated_total: 2,
            failed_total: 1,
        },
        groups: vec![
            GroupInput {
                name: "ssh.service".to_owned(),
                samples_total: 3,
                classes_ns: [1_500_000_000, 2, 3_000_000_000, 0, 0],
            },
            GroupInput {
                name: "other".to_owned(),
                ..GroupInput::default()
            },
        ],
        groups_limit: 100,
        groups_overflow_samples_total: 7,
        processes: 50,
        processes_exited: 4,
        threads: 80,
        tables: vec![("frames", 900, 1_000)],
        profile_stack_bytes: 1,
        profile_stack_max_bytes: 2,
        recent_past_bytes: 3,
        recent_past_max_bytes: 4,
        drain: DrainInput {
            passes_total: 60,
            failures_total: 0,
            busy_ns_total: 12_000_000,
        },
        maps: vec![MapInput {
            name: "THREADS".to_owned(),
            entries: 80,
            max_entries: 16_384,
            memory_bytes: Some(9),
        }],
        programs: vec![ProgramInput {
            name: "tick".to_owned(),
            run_ns_total: 2_000_000_000,
            runs_total: 3,
        }],
        unwind: UnwindInput {
            failures_total: vec![("no_table", 3)],
            none_total: vec![("not_elf", 1)],
            troubles_total: vec![("evicted", 0)],
            ..UnwindInput::default()
        },
        outside: OutsideInput {
            looks_total: vec![("kept", 5)],
            readers_total: vec![("started", 2)],
            ..OutsideInput::default()
        },
        symbol_cache: SymbolCacheInput {
            requests_total: 9,
            hits_total: 8,
            unknown_total: vec![("too_slow", 2), ("pending", 7)],
            evictions_total: 0,
            perf_maps_cut_total: 4,
            bytes: 1,
            max_bytes: 2,
        },
        lines: LineInput {
            unknown_total: vec![("no_file", 3)],
            failures_total: vec![("worker_time", 1)],
            ..LineInput::default()
        },
        spending: SpendingInput {
            programs_ns_total: 5,
            walks_ns_total: 3,
            late_ratio: Some(0.004),
            budget_ratio: Some(0.01),
            all_calls: false,
            gave_way_total: 3,
            came_back_total: 2,
            samples_total: 12,
            walks_over_budget_total: 400,
            ticks_over_budget_total: 30,
            untraced_ns_total: 7_000_000_000,
        },
        own: OwnInput {
            cpu_seconds_total: 1.5,
            resident_bytes: 1 << 20,
            open_files: 9,
            ..OwnInput::default()
        },
        measuring: MeasuringInput {
            running: 1,
            points: 12,
            given_up_total: 2,
            hits_total: 1_000,
            missed_total: vec![("probes_no_row", 5)],
        },
        http_requests_total: vec![("functions", 200, 3), ("functions", 400, 1)],
        http_connections_given_up_total: 3,
        memory_bytes: vec![("frames", 300)],
        http_streams: StreamTotals {
            open: 2,
            sent_total: 5,
            ended_total: vec![("client", 1), ("slow", 4)],
        },
    }
}

#[test]
fn every_metric_is_exposed_with_its_numbers() {
    // Check that every declared metric has a series, and that durations arrive in seconds.
    let text = exposition(&full()).unwrap();
    for family in FAMILIES {
        assert!(
            text.contains(&format!("# HELP {} ", family.name)),
            "{} is missing",
            family.name
        );
        assert!(
            family.help.ends_with('.'),
            "the help of {} is no sentence",
            family.name
        );
    }
    for line in [
        "profiler_group_elapsed_seconds_total{group=\"ssh.service\"} 4.500000002",
        "profiler_group_application_seconds_total{group=\"ssh.service\"} 1.5",
        "profiler_group_class_seconds_total{group=\"ssh.service\",class=\"blocked\"} 3",
        "profiler_program_run_seconds_total{program=\"tick\"} 2",
        "profiler_http_requests_total{handler=\"functions\",code=\"400\"} 1",
        "profiler_memory_bytes{part=\"frames\"} 300",
        "profiler_http_connections_given_up_total 3",
        "profiler_table_used_ratio{table=\"frames\"} 0.9",
        "profiler_http_streams 2",
        "profiler_http_streams_ended_total{reason=\"slow\"} 4",
        "profiler_losses_total{cause=\"map_full\"} 0",
        "process_cpu_seconds_total 1.5",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing from\n{text}"
        );
    }
}

#[test]
fn names_follow_the_rules() {
    // Check the prefix, that exactly the counters end in _total, that units are in the name and no
    // name repeats.
    let mut names: Vec<_> = FAMILIES.iter().map(|family| family.name).collect();
    for family in FAMILIES {
        assert!(
            family.name.starts_with("profiler_") || family.name.starts_with("process_"),
            "{}",
            family.name
        );
        assert_eq!(
            family.kind == Kind::Counter,
            family.name.ends_with("_total"),
            "{}",
            family.name
        );
        if matches!(family.unit, "seconds" | "bytes" | "hertz") {
            assert!(
                family
                    .name
                    .trim_end_matches("_total")
                    .ends_with(family.unit),
                "{}",
                family.name
            );
        }
    }
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
}

#[test]
fn hostile_labels_cannot_break_the_text() {
    // Check that quotes, line breaks, control characters and long names neither forge a series nor
    // grow without bound.
    let mut input = full();
    let long = "é".repeat(1_000);
    input.groups = vec![
        GroupInput {
            name: "a\"} 1\nprofiler_fake 1".to_owned(),
            samples_total: 1,
            ..GroupInput::default()
        },
        GroupInput {
            name: long.clone() + "1",
            samples_total: 2,
            ..GroupInput::default()
        },
        GroupInput {
            name: long.clone() + "2",
            samples_total: 3,
            ..GroupInput::default()
        },
    ];
    let text = exposition(&input).unwrap();
    assert!(
        !text.lines().any(|line| line.starts_with("profiler_fake")),
        "{text}"
    );
    assert!(
        text.contains("group=\"a\\\"} 1\u{fffd}profiler_fake 1\"} 1"),
        "{text}"
    );
    // Cut to the same text, two groups are one series with the sum.
    let cut = "é".repeat(MAX_LABEL_BYTES / 2);
    assert!(
        text.contains(&format!(
            "profiler_group_samples_total{{group=\"{cut}\"}} 5\n"
        )),
        "{text}"
    );
}

#[test]
fn requests_are_counted_by_handler_and_code() {
    // Check that equal pairs add up and different ones stay apart.
    let counts = RequestCounts::default();
    counts.count("functions", 200);
    counts.count("functions", 200);
    counts.count("functions", 404);
    assert_eq!(
        counts.totals(),
        [("functions", 200, 2), ("functions", 404, 1)]
    );
}

#[test]
fn promtool_finds_no_fault() {
    // Check that Prometheus's own checker accepts a full and an empty exposition. Needs promtool.
    if Command::new("promtool").arg("--version").output().is_err() {
        let sentence = "skipped: promtool is not installed, so it did not check the exposition";
        // Past the harness, which would keep it to itself.
        writeln!(std::io::stderr(), "{sentence}").unwrap();
        return;
    }
    for input in [full(), MetricsInput::default()] {
        let mut child = Command::new("promtool")
            .args(["check", "metrics"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        child
            .stdin
            .take()
            .unwrap()
            .write_all(exposition(&input).unwrap().as_bytes())
            .unwrap();
        let output = child.wait_with_output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }
}
