//! Gathers what one scrape of the metrics tells.

use profiler_common::counter::CounterKind;
use profiler_common::limits::CALLS_PER_THREAD;
use profiler_common::unwind::UnwindFailure;
use profiler_common::{Counter, StackEnd};

use crate::collect::{CollectorState, OutsideCounts};
use crate::kernel::UnwindFill;
use crate::metrics::{
    DrainInput, GroupInput, LineInput, MapInput, MeasuringInput, MetricsInput, OutsideInput,
    OwnInput, ProgramInput, StackInput, SymbolCacheInput, UnwindInput,
};
use crate::profile::snapshot::Snapshot;
use crate::symbols::lines::NoLine;
use crate::symbols::lines::finder::LineCounts;
use crate::symbols::names::Unnamed;
use crate::symbols::symbolizer::SymbolCounts;
use crate::sys::clock::monotonic_ns;
use crate::sys::heartbeat::Pulse;
use crate::sys::own_cost::{self, OwnCost};
use crate::unwind::NoTable;

use super::facts::Facts;
use super::live::Live;
use super::spending;

/// All of it. Without a state or a snapshot (nothing was counted yet) their parts are empty.
pub(super) fn input(
    live: &Live,
    facts: &Facts,
    pulses: &[Pulse],
    state: Option<&CollectorState>,
    snapshot: Option<&Snapshot>,
    symbols: SymbolCounts,
    lines: LineCounts,
) -> MetricsInput {
    let mut input = MetricsInput {
        version: facts.version.clone(),
        kernel_release: facts.kernel_release.clone(),
        degraded_features: facts.degraded_now(state, monotonic_ns()).len()
            + pulses
                .iter()
                .filter(|pulse| pulse.trouble.is_some())
                .count(),
        heartbeat_ages_ns: pulses
            .iter()
            .map(|pulse| (pulse.thread, pulse.age_ns))
            .collect(),
        frequency_hz: live.config.frequency_hz,
        profile_stack_max_bytes: live.config.limits.profile_stack_bytes as u64,
        recent_past_max_bytes: live.config.limits.recent_past_bytes as u64,
        groups_limit: live.config.metrics.max_groups,
        symbol_cache: SymbolCacheInput {
            requests_total: symbols.requests,
            hits_total: symbols.hits,
            unknown_total: Unnamed::ALL
                .map(|why| (why.name(), symbols.unnamed[why as usize]))
                .into(),
            evictions_total: symbols.evictions,
            perf_maps_cut_total: symbols.perf_maps_cut,
            bytes: symbols.cache_bytes,
            max_bytes: live.config.limits.symbol_cache_bytes as u64,
        },
        lines: line_input(&lines),
        own: own(facts),
        memory_bytes: live.memory(state, OwnCost::now()),
        http_requests_total: live.requests.totals(),
        http_connections_given_up_total: live.requests.given_up(),
        http_streams: live.requests.streams.totals(),
        ..MetricsInput::default()
    };
    if let Some(state) = state {
        of_state(state, &mut input);
    }
    if let Some(snapshot) = snapshot {
        of_snapshot(snapshot, &mut input);
    }
    input
}

fn line_input(counts: &LineCounts) -> LineInput {
    let by_reason = |counts: &[u64; NoLine::ALL.len()]| {
        let all = NoLine::ALL.iter().zip(counts);
        all.map(|(why, count)| (why.name(), *count)).collect()
    };
    LineInput {
        requests_total: counts.requests,
        hits_total: counts.hits,
        unknown_total: by_reason(&counts.unknown),
        workers_total: counts.workers,
        failures_total: by_reason(&counts.failures),
        worker_processor_ns_total: counts.worker_processor_ns,
        worker_peak_bytes: counts.worker_peak_bytes,
        cache_bytes: counts.cache_bytes,
    }
}

fn of_state(state: &CollectorState, input: &mut MetricsInput) {
    input.recent_past_bytes = state.recent_past_bytes;
    let counter = |counter: Counter| state.counters.get(counter as usize).copied().unwrap_or(0);
    input.degraded_features += state.without_ticks.len();
    input.ready = state.passes > 0;
    input.samples_total = counter(Counter::Samples);
    input.threads = state.threads;
    input.tables = state
        .tables
        .iter()
        .map(|fill| (fill.table, fill.used, fill.limit))
        .collect();
    input.drain = DrainInput {
        passes_total: state.passes,
        failures_total: state.failures,
        busy_ns_total: state.busy_ns,
    };
    let ended = |end: StackEnd| {
        state
            .walk_ends
            .get(end.to_u32() as usize)
            .copied()
            .unwrap_or(0)
    };
    input.stacks = StackInput {
        complete_total: ended(StackEnd::Complete),
        truncated_total: counter(Counter::WalksTruncated),
        failed_total: counter(Counter::WalksFailed),
    };
    input.unwind = unwind(state, ended);
    input.outside = outside(&state.outside);
    input.spending = spending::metrics(&state.spending, &state.counters);
    let missed = [
        Counter::ProbesNotObserved,
        Counter::ProbesNoTimes,
        Counter::ProbesNoFrames,
        Counter::ProbesNoRow,
    ];
    input.measuring = MeasuringInput {
        running: state.measuring.running,
        points: state.measuring.points,
        given_up_total: state.measuring.given_up,
        hits_total: counter(Counter::ProbeHits),
        missed_total: missed.map(|why| (why.name(), counter(why))).to_vec(),
    };
    let kinds = |wanted: CounterKind| {
        let counters = Counter::ALL
            .iter()
            .filter(move |known| known.kind() == wanted);
        counters.map(|known| (known.name().to_owned(), counter(*known)))
    };
    input.discarded_total = kinds(CounterKind::Discarded).collect();
    let chunks = |map: &str| match (&state.unwinding, map) {
        (Some(unwinding), "ROW_CHUNKS") => unwinding.fill.allocated_bytes,
        _ => 0,
    };
    input.maps = state
        .maps
        .iter()
        .map(|map| MapInput {
            name: map.name.clone(),
            entries: entries(state, &map.name),
            max_entries: u64::from(map.max_entries),
            memory_bytes: Some(map.bytes + chunks(&map.name)),
        })
        .collect();
    input.programs = state
        .programs
        .iter()
        .map(|(name, cost)| ProgramInput {
            name: name.clone(),
            run_ns_total: cost.run_ns,
            runs_total: cost.runs,
        })
        .collect();
}

fn unwind(state: &CollectorState, ended: impl Fn(StackEnd) -> u64) -> UnwindInput {
    let unwinding = state.unwinding.unwrap_or_default();
    let (worker, disk) = (&unwinding.worker, &unwinding.worker.disk);
    UnwindInput {
        failures_total: UnwindFailure::ALL
            .iter()
            .map(|failure| (failure.name(), ended(StackEnd::Incomplete(*failure))))
            .collect(),
        built_total: worker.built,
        from_disk_total: worker.from_disk,
        none_total: NoTable::ALL
            .iter()
            .map(|why| (why.name(), worker.none[*why as usize]))
            .collect(),
        troubles_total: vec![
            ("evicted", unwinding.evicted),
            ("tables_full", unwinding.refused),
            ("mappings_full", unwinding.mappings_full),
            ("refused_by_kernel", unwinding.failures),
            ("queue_full", worker.refused),
            ("disk_corrupt", disk.corrupt),
            ("disk_foreign", disk.foreign),
            ("disk_not_written", disk.not_written),
            ("disk_evicted", disk.evicted),
        ],
        busy_ns_total: worker.busy_ns,
        tables: u64::from(unwinding.fill.tables),
        row_bytes: unwinding.fill.row_bytes,
        memory_bytes: unwinding.fill.allocated_bytes,
        max_memory_bytes: u64::from(state.settings.unwind_chunks) << 20,
    }
}

fn outside(counts: &OutsideCounts) -> OutsideInput {
    OutsideInput {
        looks_total: vec![
            ("tried", counts.tried),
            ("kept", counts.kept),
            ("torn", counts.torn),
            ("late", counts.late),
            ("unreadable", counts.unreadable),
        ],
        readers_total: vec![
            ("started", counts.reader.started),
            ("late", counts.reader.late),
            ("died", counts.reader.died),
        ],
        busy_ns_total: counts.busy_ns,
    }
}

/// Elements in use at the last pass; maps that nobody counts say 0.
fn entries(state: &CollectorState, map: &str) -> u64 {
    let fill = |what: &str| {
        state
            .fill
            .iter()
            .find(|(name, _)| *name == what)
            .map_or(0, |(_, count)| *count)
    };
    let of_unwinding = |read: fn(&UnwindFill) -> u32| {
        let unwinding = state.unwinding.as_ref();
        unwinding.map_or(0, |unwinding| u64::from(read(&unwinding.fill)))
    };
    match map {
        "THREADS" => fill("threads"),
        "FREE_SLOTS" => u64::from(state.settings.max_threads).saturating_sub(fill("threads") + 1),
        "SUMS_0" | "SUMS_1" => fill("stacks_per_drain"),
        "CALL_ROWS_BY_INDEX" | "CALL_ROW_INDEX" => fill("system_call_rows"),
        "PROCESSES" => state
            .unwinding
            .as_ref()
            .map_or(0, |unwinding| unwinding.processes as u64),
        "MAPPINGS" => of_unwinding(|fill| fill.mappings),
        "PAGES" => of_unwinding(|fill| fill.pages),
        "TABLES" => of_unwinding(|fill| fill.tables),
        "FREE_CALL_ROWS" => u64::from(state.settings.max_threads.saturating_mul(CALLS_PER_THREAD))
            .saturating_sub(fill("system_call_rows") + 1),
        _ => 0,
    }
}

fn of_snapshot(snapshot: &Snapshot, input: &mut MetricsInput) {
    let groups = snapshot.groups();
    input.losses_total = snapshot
        .losses()
        .iter()
        .map(|(cause, count)| (cause.to_string(), *count))
        .collect();
    input.groups = groups
        .groups
        .iter()
        .map(|(name, counters)| GroupInput {
            name: name.to_string(),
            samples_total: counters.samples,
            classes_ns: counters.classes,
        })
        .collect();
    input.groups_overflow_samples_total = groups.overflow_samples;
    let exited = snapshot
        .processes()
        .values()
        .filter(|process| process.info.exited_at_unix_ns.is_some())
        .count();
    input.processes = snapshot.processes().len() - exited;
    input.processes_exited = exited;
    input.profile_stack_bytes = snapshot.stack_bytes();
}

fn own(facts: &Facts) -> OwnInput {
    let cost = OwnCost::now();
    let (open_files, max_open_files) = own_cost::open_files();
    OwnInput {
        cpu_seconds_total: (cost.user_ns + cost.system_ns) as f64 / 1e9,
        resident_bytes: cost.resident_bytes,
        virtual_bytes: cost.virtual_bytes,
        open_files,
        max_open_files,
        start_time_seconds: facts.started_unix_ns.ns() as f64 / 1e9,
    }
}
