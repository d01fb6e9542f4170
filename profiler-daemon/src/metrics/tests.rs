//! Tests of the exposition, by reading it and by asking promtool.

use std::io::Write as _;
use std::process::{Command, Stdio};

use std::collections::BTreeMap;

use profiler_common::unwind::{StackEnd, UnwindFailure};

use super::table::{FAMILIES, MetricKind};
use super::{MAX_LABEL_BYTES, MetricsInput, RequestCounts, StreamEnd, exposition};
use crate::collect::{Budget, CollectorState, EstimatedCost, SpendingState, TableFill};
use crate::config::Config;
use crate::kernel::MapCost;
use crate::profile::groups::{GroupCounters, GroupsView};
use crate::profile::input::DrainPass;
use crate::profile::snapshot::Snapshot;
use crate::profile::{Profile, limits::Limits};
use crate::symbols::{lines::finder::LineCounts, symbolizer::SymbolCounts};
use crate::sys::heartbeat::Pulse;
use crate::sys::own_cost::ResourceUsage;
use crate::units::{MonoNs, UnixNs};

const SECOND_NS: u64 = 1_000_000_000;

/// What the parts of a daemon say of themselves.
struct Daemon {
    config: Config,
    state: CollectorState,
    snapshot: Snapshot,
    groups: GroupsView,
    requests: RequestCounts,
}

impl Daemon {
    /// One of which every metric has a series.
    fn new() -> Self {
        let mut walk_ends = vec![0; 64];
        walk_ends[StackEnd::Complete.to_u32() as usize] = 10;
        walk_ends[StackEnd::Incomplete(UnwindFailure::ALL[0]).to_u32() as usize] = 3;
        let cost = EstimatedCost {
            runs: 3,
            run_ns: 2 * SECOND_NS,
        };
        let map = |name: &str| MapCost {
            name: name.to_owned(),
            max_entries: 16_384,
            bytes: 9,
        };
        let mut state = CollectorState::made_up(60);
        state.settings.max_threads = 100;
        state.fill = vec![("threads", 80), ("stacks_per_drain", 5)];
        state.maps = ["THREADS", "FREE_SLOTS", "SUMS_1"].map(map).into();
        state.programs = BTreeMap::from([("tick".to_owned(), cost)]);
        state.tables = vec![TableFill {
            table: "frames",
            holds: "frames",
            used: 900,
            limit: 1_000,
            refused: 0,
            consequence: "",
        }];
        state.walk_ends = walk_ends;
        state.spending = SpendingState {
            budget: Some(Budget {
                machine: 0.01,
                process: 0.05,
            }),
            late_share: Some(0.004),
            walks_budget: Some(0.002),
            ..SpendingState::default()
        };
        let mut profile = Profile::new(Limits::default(), MonoNs::ZERO, UnixNs::ZERO);
        profile.apply(DrainPass {
            losses: [("map_full".into(), 0)].into(),
            ..DrainPass::default()
        });
        let requests = RequestCounts::default();
        for code in [200, 200, 200, 400] {
            requests.count("functions", code);
        }
        requests.count_given_up();
        requests.count_answer_refused();
        requests.answers.hold(5);
        requests.answers.let_go(2);
        for end in [StreamEnd::Client, StreamEnd::Slow, StreamEnd::Slow] {
            requests.streams.opened();
            requests.streams.ended(end);
        }
        requests.streams.opened();
        let counters = GroupCounters {
            samples: 3,
            elapsed_ns: 4_500_000_002,
            application_ns: 1_500_000_000,
            classes: [1_500_000_000, 2, 3_000_000_000, 0, 0],
        };
        Self {
            config: Config::default(),
            state,
            snapshot: profile.snapshot(),
            groups: groups([
                ("ssh.service", counters),
                ("other", GroupCounters::default()),
            ]),
            requests,
        }
    }

    fn input(&self) -> MetricsInput<'_> {
        MetricsInput {
            state: Some(&self.state),
            snapshot: Some(&self.snapshot),
            groups: Some(&self.groups),
            ..self.begun()
        }
    }

    /// Before anything was counted.
    fn begun(&self) -> MetricsInput<'_> {
        MetricsInput {
            version: "1.2.3",
            kernel_release: "6.1.0",
            config: &self.config,
            degraded_features: 1,
            pulses: &[Pulse {
                thread: "symbols",
                age_ns: 1_500_000_000,
                trouble: None,
            }],
            state: None,
            snapshot: None,
            groups: None,
            symbols: SymbolCounts {
                requests: 9,
                hits: 8,
                ..SymbolCounts::default()
            },
            lines: LineCounts::default(),
            own: ResourceUsage {
                user_ns: SECOND_NS,
                system_ns: SECOND_NS / 2,
                ..ResourceUsage::default()
            },
            open_files: (9, 1024),
            started_unix_ns: UnixNs::new(7 * SECOND_NS),
            memory: &[("frames", 300)],
            requests: &self.requests,
        }
    }
}

fn groups<const N: usize>(groups: [(&str, GroupCounters); N]) -> GroupsView {
    GroupsView {
        groups: groups
            .map(|(name, counters)| (name.into(), counters))
            .into(),
        ..GroupsView::default()
    }
}

#[test]
fn every_metric_is_exposed_with_its_numbers() {
    // Check that every declared metric has a series, and that durations arrive in seconds.
    let daemon = Daemon::new();
    let text = exposition(&daemon.input()).unwrap();
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
        "profiler_http_requests_total{handler=\"functions\",code=\"200\"} 3",
        "profiler_memory_bytes{part=\"frames\"} 300",
        "profiler_http_connections_given_up_total 1",
        "profiler_table_used_ratio{table=\"frames\"} 0.9",
        "profiler_http_answers_held_bytes 3",
        "profiler_http_answers_refused_total 1",
        "profiler_http_streams 1",
        "profiler_http_streams_ended_total{reason=\"slow\"} 2",
        "profiler_losses_total{cause=\"map_full\"} 0",
        "process_cpu_seconds_total 1.5",
        "process_start_time_seconds 7",
        "process_open_fds 9",
        "profiler_ready 1",
        "profiler_samples_total 7",
        "profiler_stack_walks_total{end=\"complete\"} 10",
        "profiler_map_entries{map=\"THREADS\"} 80",
        "profiler_map_entries{map=\"FREE_SLOTS\"} 19",
        "profiler_map_entries{map=\"SUMS_1\"} 5",
        "profiler_map_memory_bytes{map=\"THREADS\"} 9",
        "profiler_cost_ratio 0.004",
        "profiler_budget_ratio 0.01",
        "profiler_all_system_calls_traced 1",
        "profiler_unwind_max_memory_bytes 1048576",
        "profiler_symbol_cache_hits_total 8",
    ] {
        assert!(
            text.lines().any(|found| found == line),
            "{line} is missing from\n{text}"
        );
    }
}

#[test]
fn before_the_first_pass_nothing_is_said_to_be_traced() {
    // Check that what the collector would say is 0 or absent while there is none.
    let daemon = Daemon::new();
    let text = exposition(&daemon.begun()).unwrap();
    for line in [
        "profiler_ready 0",
        "profiler_samples_total 0",
        "profiler_all_system_calls_traced 0",
        "profiler_symbol_cache_hits_total 8",
    ] {
        assert!(text.lines().any(|found| found == line), "{line}\n{text}");
    }
    for absent in [
        "profiler_budget_ratio",
        "profiler_map_entries",
        "profiler_losses_total",
    ] {
        assert!(!text.contains(absent), "{absent}");
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
            family.kind == MetricKind::Counter,
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
    let long = "é".repeat(1_000);
    let of = |samples| GroupCounters {
        samples,
        ..GroupCounters::default()
    };
    let mut daemon = Daemon::new();
    daemon.groups = groups([
        ("a\"} 1\nprofiler_fake 1", of(1)),
        (&(long.clone() + "1"), of(2)),
        (&(long.clone() + "2"), of(3)),
    ]);
    let text = exposition(&daemon.input()).unwrap();
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
    let daemon = Daemon::new();
    for input in [daemon.input(), daemon.begun()] {
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
