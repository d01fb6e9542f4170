//! Every metric, declared once: name, type, unit, labels, meaning, and which numbers it shows.

use profiler_common::Counter;
use profiler_common::clock::Class;
use profiler_common::counter::CounterKind;
use profiler_common::unwind::{StackEnd, UnwindFailure};

use super::exposition::Series;
use super::input::MetricsInput;
use crate::profile::{groups::GroupCounters, snapshot::Snapshot};
use crate::symbols::{lines::NoLine, names::Unnamed};
use crate::unwind::NoTable;

/// Whether a metric only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum MetricKind {
    /// It only grows while the daemon runs.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A metric.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: MetricKind,
    /// The unit of its value; empty for what only says that something is so.
    pub(super) unit: &'static str,
    pub(super) labels: &'static [&'static str],
    /// What it means, as a sentence.
    pub(super) help: &'static str,
    /// Which numbers it shows.
    pub(super) read: fn(&MetricsInput<'_>, &mut Series),
}

/// One metric of the table.
macro_rules! family {
    ($kind:ident $name:literal, $unit:literal, [$($label:literal),*], $help:literal, $read:expr) => {
        Family { name: $name, kind: MetricKind::$kind, unit: $unit, labels: &[$($label),*], help: $help, read: $read }
    };
}

#[expect(
    clippy::cast_precision_loss,
    reason = "Prometheus holds 53 bits; beyond that the last digits do not matter"
)]
fn count(number: u64) -> f64 {
    number as f64
}

fn size(number: usize) -> f64 {
    count(u64::try_from(number).unwrap_or(u64::MAX))
}

fn flag(is_so: bool) -> f64 {
    f64::from(u8::from(is_so))
}

fn seconds(duration_ns: u64) -> f64 {
    count(duration_ns) / 1e9
}

/// How names of losses that are nanoseconds end.
const NANOSECONDS: &str = "_ns";

/// Series of one label, each with its count.
fn each<'n>(series: &mut Series, counts: impl IntoIterator<Item = (&'n str, u64)>) {
    for (name, number) in counts {
        series.add(&[name], count(number));
    }
}

fn each_group(input: &MetricsInput<'_>, series: &mut Series, value: fn(&GroupCounters) -> f64) {
    for (name, counters) in input.groups.iter().flat_map(|view| &view.groups) {
        series.add(&[name], value(counters));
    }
}

/// All metrics, in the order in which they are exposed.
pub(super) const FAMILIES: &[Family] = &[
    family!(Gauge "profiler_build_info", "", ["version", "kernel_release"],
        "Always 1; the labels tell the version of the daemon and of the kernel.",
        |input, series| series.add(&[input.version, input.kernel_release], 1.0)),
    family!(Gauge "profiler_ready", "", [],
        "1 when every program is attached and the kernel's maps have been read, else 0.",
        |input, series| series.add(&[], flag(input.state(|state| state.passes > 0)))),
    family!(Gauge "profiler_degraded_features", "features", [],
        "Features that work less well than they should; /api/v1/status says which and why.",
        |input, series| series.add(&[], size(input.degraded_features))),
    family!(Gauge "profiler_thread_heartbeat_age_seconds", "seconds", ["thread"],
        "How long a thread that reports need has been at its present piece of work; 0 for one that waits for work. One that is stuck is among the degraded features.",
        |input, series| for pulse in input.pulses {
        series.add(&[pulse.thread], seconds(pulse.age_ns));
    }),
    family!(Gauge "profiler_sampling_frequency_hertz", "hertz", [],
        "Samples per second and processor that were asked for.",
        |input, series| series.add(&[], f64::from(input.config.frequency_hz))),
    family!(Counter "profiler_samples_total", "samples", [],
        "Samples of profiled threads whose stacks were walked; the others of profiler_walks_over_budget_total are stood for.",
        |input, series| series.add(&[], count(input.counter(Counter::Samples)))),
    family!(Counter "profiler_discarded_samples_total", "samples", ["reason"],
        "Samples that belong to nothing that is profiled, by reason.",
        |input, series| if let Some(state) = input.state {
        let all = Counter::ALL.into_iter();
        let discarded = all.filter(|counter| counter.kind() == CounterKind::Discarded);
        each(series, discarded.map(|counter| (counter.name(), state.counter(counter))));
    }),
    family!(Counter "profiler_losses_total", "events", ["cause"],
        "What could not be collected, by cause, and races that were noticed and decided: see docs/counters.md.",
        |input, series| if let Some(snapshot) = input.snapshot {
        let events = snapshot.losses().iter().filter(|(cause, _)| !cause.ends_with(NANOSECONDS));
        each(series, events.map(|(cause, n)| (&**cause, *n)));
    }),
    family!(Counter "profiler_losses_seconds_total", "seconds", ["cause"],
        "Time of which less is known than there is to know, by cause: see docs/counters.md.",
        |input, series| if let Some(snapshot) = input.snapshot {
        for (cause, lost_ns) in snapshot.losses() {
            if let Some(cause) = cause.strip_suffix(NANOSECONDS) {
                series.add(&[cause], seconds(*lost_ns));
            }
        }
    }),
    family!(Counter "profiler_stack_walks_total", "walks", ["end"],
    "Walks of user stacks by how they ended: complete, truncated at the depth limit, or failed on the way.",
    |input, series| {
        let complete = input.state(|state| state.walks_ended(StackEnd::Complete));
        series.add(&["complete"], count(complete));
        series.add(&["truncated"], count(input.counter(Counter::WalksTruncated)));
        series.add(&["failed"], count(input.counter(Counter::WalksFailed)));
    }),
    family!(Counter "profiler_stack_walk_failures_total", "walks", ["reason"],
        "Walks of user stacks that did not reach the outermost frame, by reason: see docs/counters.md.",
        |input, series| if let Some(state) = input.state {
        for failure in UnwindFailure::ALL {
            let ended = state.walks_ended(StackEnd::Incomplete(failure));
            series.add(&[failure.name()], count(ended));
        }
    }),
    family!(Gauge "profiler_unwind_tables", "tables", [],
        "Files whose unwind tables the kernel side has.",
        |input, series| series.add(&[], f64::from(input.unwinding().fill.tables))),
    family!(Gauge "profiler_unwind_table_bytes", "bytes", [],
        "Kernel memory that unwind tables use.",
        |input, series| series.add(&[], count(input.unwinding().fill.row_bytes))),
    family!(Gauge "profiler_unwind_memory_bytes", "bytes", [],
        "Kernel memory that was taken for unwind tables; it grows as it is needed.",
        |input, series| series.add(&[], count(input.unwinding().fill.allocated_bytes))),
    family!(Gauge "profiler_unwind_max_memory_bytes", "bytes", [],
        "Kernel memory that unwind tables may take.",
        |input, series| {
        let bytes = input.state(|state| u64::from(state.settings.unwind_chunks) << 20);
        series.add(&[], count(bytes));
    }),
    family!(Counter "profiler_unwind_tables_total", "tables", ["from"],
    "Unwind tables that became available: made from a file, or found on disk.",
    |input, series| {
        series.add(&["file"], count(input.unwinding().worker.built));
        series.add(&["disk"], count(input.unwinding().worker.from_disk));
    }),
    family!(Counter "profiler_unwind_tables_none_total", "files", ["reason"],
        "Files whose unwind information could not be used, by reason.",
        |input, series| if input.state.is_some() {
        let none = input.unwinding().worker.none;
        each(series, NoTable::ALL.into_iter().map(|why| (why.name(), none[why as usize])));
    }),
    family!(Counter "profiler_unwind_troubles_total", "events", ["what"],
        "Unwind tables and mappings that gave way, found no room or were damaged on disk, by what happened.",
        |input, series| if input.state.is_some() {
        let unwinding = input.unwinding();
        let (worker, disk) = (&unwinding.worker, &unwinding.worker.disk);
        each(series, [
            ("evicted", unwinding.evicted),
            ("tables_full", unwinding.refused),
            ("mappings_full", unwinding.mappings_full),
            ("refused_by_kernel", unwinding.failures),
            ("queue_full", worker.refused),
            ("disk_corrupt", disk.corrupt),
            ("disk_foreign", disk.foreign),
            ("disk_not_written", disk.not_written),
            ("disk_evicted", disk.evicted),
        ]);
    }),
    family!(Counter "profiler_unwind_busy_seconds_total", "seconds", [],
        "Time spent making and finding unwind tables.",
        |input, series| series.add(&[], seconds(input.unwinding().worker.busy_ns))),
    family!(Counter "profiler_outside_looks_total", "threads", ["what"],
        "Threads in long waits without a stack of their own that were looked at from outside: tried, and what became of it: kept, torn (the thread ran meanwhile), late (memory that keeps readers waiting) or unreadable.",
        |input, series| if let Some(state) = input.state {
        let counts = &state.outside;
        each(series, [
            ("tried", counts.tried),
            ("kept", counts.kept),
            ("torn", counts.torn),
            ("late", counts.late),
            ("unreadable", counts.unreadable),
        ]);
    }),
    family!(Counter "profiler_outside_readers_total", "processes", ["what"],
        "Processes that read memory of threads in such waits: started, killed because they were late, and those that died otherwise.",
        |input, series| if let Some(state) = input.state {
        let reader = &state.outside.reader;
        each(series, [("started", reader.started), ("late", reader.late), ("died", reader.died)]);
    }),
    family!(Counter "profiler_outside_busy_seconds_total", "seconds", [],
        "Time spent looking at threads from outside.",
        |input, series| series.add(&[], seconds(input.state(|state| state.outside.busy_ns)))),
    family!(Counter "profiler_group_elapsed_seconds_total", "seconds", ["group"],
        "Time of the group's threads, on and off the processors.",
        |input, series| each_group(input, series, |group| seconds(group.elapsed_ns))),
    family!(Counter "profiler_group_application_seconds_total", "seconds", ["group"],
        "Time that the group's threads ran in user mode, outside any system call and page fault. Ticks tell the faults: counted once one has.",
        |input, series| each_group(input, series, |group| seconds(group.application_ns))),
    family!(Counter "profiler_group_class_seconds_total", "seconds", ["group", "class"],
    "Time of the group's threads by class: user, syscall, blocked, runnable or kernel. Where system calls are not traced, ticks tell what of the running time was in them: counted once one has.",
    |input, series| for (name, group) in input.groups.iter().flat_map(|view| &view.groups) {
        for (class, class_ns) in Class::ALL.into_iter().zip(group.classes) {
            series.add(&[name, class.name()], seconds(class_ns));
        }
    }),
    family!(Counter "profiler_group_samples_total", "samples", ["group"],
        "Samples of the group's threads.",
        |input, series| each_group(input, series, |group| count(group.samples))),
    family!(Gauge "profiler_group_series", "groups", [],
        "Groups that have series of their own, the one named other included.",
        |input, series| series.add(&[], size(input.groups(|view| view.groups.len())))),
    family!(Gauge "profiler_group_series_limit", "groups", [],
        "Groups that may have series of their own.",
        |input, series| series.add(&[], size(input.config.metrics.max_groups))),
    family!(Counter "profiler_group_overflow_samples_total", "samples", [],
        "Samples that went to the group other because no series was free.",
        |input, series| series.add(&[], count(input.groups(|view| view.overflow_samples)))),
    family!(Gauge "profiler_processes", "processes", ["state"],
    "Processes in the reports: running, or exited and not yet dropped.",
    |input, series| {
        let (running, exited) = input.processes();
        series.add(&["running"], size(running));
        series.add(&["exited"], size(exited));
    }),
    family!(Gauge "profiler_threads", "threads", [],
        "Threads that run and are followed.",
        |input, series| series.add(&[], size(input.state(|state| state.threads)))),
    family!(Gauge "profiler_profile_stack_bytes", "bytes", [],
        "Memory that the stacks of the profile take.",
        |input, series| series.add(&[], count(input.snapshot(Snapshot::stack_bytes)))),
    family!(Gauge "profiler_profile_stack_max_bytes", "bytes", [],
        "Memory that the stacks of the profile may take.",
        |input, series| series.add(&[], size(input.config.limits.profile_stack_bytes))),
    family!(Gauge "profiler_recent_past_bytes", "bytes", [],
        "Memory that the recent past takes, with what named sessions need of it.",
        |input, series| series.add(&[], count(input.state(|state| state.recent_past_bytes)))),
    family!(Gauge "profiler_recent_past_max_bytes", "bytes", [],
        "Memory that it may take.",
        |input, series| series.add(&[], size(input.config.limits.recent_past_bytes))),
    family!(Counter "profiler_drain_passes_total", "passes", [],
        "Reads of the kernel's maps that ended.",
        |input, series| series.add(&[], count(input.state(|state| state.passes)))),
    family!(Counter "profiler_drain_failures_total", "passes", [],
        "Reads of the kernel's maps that failed.",
        |input, series| series.add(&[], count(input.state(|state| state.failures)))),
    family!(Counter "profiler_drain_seconds_total", "seconds", [],
        "Time spent reading the kernel's maps.",
        |input, series| series.add(&[], seconds(input.state(|state| state.busy_ns)))),
    family!(Gauge "profiler_table_used_ratio", "ratio", ["table"],
    "Part of a table that all processes share which is in use at the last read, from 0 to 1; from 0.9 on /api/v1/status tells of it.",
    |input, series| for fill in input.state.iter().flat_map(|state| &state.tables) {
        series.add(&[fill.table], count(fill.used) / count(fill.limit.max(1)));
    }),
    family!(Gauge "profiler_map_entries", "entries", ["map"],
        "Entries in use in a map of the kernel at the last read.",
        |input, series| if let Some(state) = input.state {
        each(series, state.maps.iter().map(|map| (&*map.name, state.map_entries(map))));
    }),
    family!(Gauge "profiler_map_max_entries", "entries", ["map"],
        "Entries that a map of the kernel has room for.",
        |input, series| if let Some(state) = input.state {
        each(series, state.maps.iter().map(|map| (&*map.name, u64::from(map.max_entries))));
    }),
    family!(Gauge "profiler_map_memory_bytes", "bytes", ["map"],
    "Kernel memory that a map takes.",
    |input, series| if let Some(state) = input.state {
        each(series, state.maps.iter().map(|map| (&*map.name, state.map_bytes(map))));
    }),
    family!(Counter "profiler_program_run_seconds_total", "seconds", ["program"],
    "Time that a kernel program of the daemon ran: an estimate, measured in 200 ms of each 10 s and scaled up; 0 where the kernel lets it measure nothing.",
    |input, series| for (name, cost) in input.state.iter().flat_map(|state| &state.programs) {
        series.add(&[name], seconds(cost.run_ns));
    }),
    family!(Counter "profiler_programs_cost_seconds_total", "seconds", [],
        "What kernel programs and hooks have cost all that runs, by calibrated prices.",
        |input, series| series.add(&[], seconds(input.state(|state| state.spending.programs_ns)))),
    family!(Counter "profiler_walks_cost_seconds_total", "seconds", [],
        "What walks of stacks have cost, a part of profiler_programs_cost_seconds_total.",
        |input, series| series.add(&[], seconds(input.state(|state| state.spending.walks_ns)))),
    family!(Gauge "profiler_cost_ratio", "ratio", [],
        "What profiling cost over the last ten seconds, as a share of the time in which processors were at work.",
        |input, series| if let Some(ratio) = input.state(|state| state.spending.late_share) {
        series.add(&[], ratio);
    }),
    family!(Gauge "profiler_budget_ratio", "ratio", [],
        "What it may cost, as set; absent where that is anything.",
        |input, series| if let Some(ratio) = input.state(|state| state.spending.machine_budget()) {
        series.add(&[], ratio);
    }),
    family!(Gauge "profiler_walks_budget_ratio", "ratio", [],
        "What walks of stacks may cost now, those of ticks too, as a share of the time in which processors are at work: less where switches and the daemon leave less of the budget; absent where that is anything.",
        |input, series| if let Some(ratio) = input.state(|state| state.spending.walks_budget) {
        series.add(&[], ratio);
    }),
    family!(Gauge "profiler_all_system_calls_traced", "", [],
        "1 while all system calls are traced that the settings name, 0 while only samples are because all would cost more than the budget.",
        |input, series| series.add(&[], flag(input.state(|state| !state.spending.only_samples())))),
    family!(Counter "profiler_budget_steps_total", "steps", ["step"],
    "Times that tracing of all system calls gave way to samples of them, and came back.",
    |input, series| {
        series.add(&["gave_way"], count(input.state(|state| state.spending.gave_way)));
        series.add(&["came_back"], count(input.state(|state| state.spending.came_back)));
    }),
    family!(Counter "profiler_walks_over_budget_total", "walks", ["moment"],
    "Stacks that were not walked because walks would have cost more than their part of the budget: others stand for them.",
    |input, series| {
        series.add(&["switch"], count(input.counter(Counter::WalksOverBudget)));
        series.add(&["tick"], count(input.counter(Counter::TicksOverBudget)));
    }),
    family!(Counter "profiler_system_call_samples_total", "samples", [],
        "Samples of system calls, of a tenth of a second or less.",
        |input, series| series.add(&[], count(input.state(|state| state.spending.looks)))),
    family!(Counter "profiler_untraced_seconds_total", "seconds", [],
        "Time in which only samples of system calls were due and none was under way.",
        |input, series| series.add(&[], seconds(input.state(|state| state.spending.untraced_ns)))),
    family!(Counter "profiler_program_runs_total", "runs", ["program"],
    "How often a kernel program of the daemon ran: an estimate, measured in 200 ms of each 10 s and scaled up; 0 where the kernel lets it measure nothing.",
    |input, series| for (name, cost) in input.state.iter().flat_map(|state| &state.programs) {
        series.add(&[name], count(cost.runs));
    }),
    family!(Counter "profiler_symbol_cache_requests_total", "requests", [],
        "Names of functions that were asked for.",
        |input, series| series.add(&[], count(input.symbols.requests))),
    family!(Counter "profiler_symbol_cache_hits_total", "requests", [],
        "Names of functions that were asked for and known already.",
        |input, series| series.add(&[], count(input.symbols.hits))),
    family!(Counter "profiler_names_unknown_total", "places", ["reason"],
        "Places of code that were looked up and have no function's name, by reason: see docs/counters.md.",
        |input, series| for why in Unnamed::ALL {
        series.add(&[why.name()], count(input.symbols.unnamed[why as usize]));
    }),
    family!(Counter "profiler_symbol_cache_evictions_total", "names", [],
        "Names of functions that were dropped for room.",
        |input, series| series.add(&[], count(input.symbols.evictions))),
    family!(Counter "profiler_perf_maps_cut_total", "files", [],
        "Times that a file in which a process names the code that it makes at run time was read and had more functions than are kept: those that it names first have no names.",
        |input, series| series.add(&[], count(input.symbols.perf_maps_cut))),
    family!(Gauge "profiler_symbol_cache_bytes", "bytes", [],
        "Memory that names of functions take.",
        |input, series| series.add(&[], count(input.symbols.cache_bytes))),
    family!(Gauge "profiler_symbol_cache_max_bytes", "bytes", [],
        "Memory that names of functions may take.",
        |input, series| series.add(&[], size(input.config.limits.symbol_cache_bytes))),
    family!(Counter "profiler_line_requests_total", "places", [],
        "Places of code whose line of source was asked for.",
        |input, series| series.add(&[], count(input.lines.requests))),
    family!(Counter "profiler_line_hits_total", "places", [],
        "Places of code whose line of source was asked for and known already.",
        |input, series| series.add(&[], count(input.lines.hits))),
    family!(Counter "profiler_lines_unknown_total", "places", ["reason"],
        "Places of code that were looked up and have no line of source, by reason: see docs/counters.md.",
        |input, series| for why in NoLine::ALL {
        series.add(&[why.name()], count(input.lines.unknown[why as usize]));
    }),
    family!(Gauge "profiler_line_cache_bytes", "bytes", [],
        "Memory that lines of source already found take.",
        |input, series| series.add(&[], count(input.lines.cache_bytes))),
    family!(Counter "profiler_line_workers_total", "processes", [],
        "Processes that were started to read debug information.",
        |input, series| series.add(&[], count(input.lines.workers))),
    family!(Counter "profiler_line_worker_failures_total", "processes", ["reason"],
        "Processes that read debug information and ended before they had answered, by reason: see docs/counters.md.",
        |input, series| for why in NoLine::ALL {
        series.add(&[why.name()], count(input.lines.failures[why as usize]));
    }),
    family!(Counter "profiler_line_worker_cpu_seconds_total", "seconds", [],
        "Processor time of the processes that read debug information.",
        |input, series| series.add(&[], seconds(input.lines.worker_processor_ns))),
    family!(Gauge "profiler_line_worker_peak_bytes", "bytes", [],
        "Most memory that a process that reads debug information has had, the file that it read included.",
        |input, series| series.add(&[], count(input.lines.worker_peak_bytes))),
    family!(Gauge "profiler_instrumentations", "instrumentations", [],
        "Instrumentations that run: functions whose every call is measured.",
        |input, series| series.add(&[], size(input.state(|state| state.measuring.running)))),
    family!(Gauge "profiler_instrumented_points", "points", [],
        "Entries and exits of functions at which probes are attached.",
        |input, series| series.add(&[], size(input.state(|state| state.measuring.points)))),
    family!(Counter "profiler_instrumented_functions_given_up_total", "functions", [],
        "Functions, USDT points and spans whose probes were detached, or not attached after a trial, because they cost more than they may.",
        |input, series| series.add(&[], count(input.state(|state| state.measuring.given_up)))),
    family!(Counter "profiler_probe_hits_total", "hits", [],
        "Entries and exits of measured functions.",
        |input, series| series.add(&[], count(input.counter(Counter::ProbeHits)))),
    family!(Counter "profiler_probe_misses_total", "hits", ["reason"],
        "Entries and exits of measured functions that were not measured, by reason: see docs/counters.md.",
        |input, series| if let Some(state) = input.state {
        let missed = [
            Counter::ProbesNotObserved,
            Counter::ProbesNoTimes,
            Counter::ProbesNoFrames,
            Counter::ProbesNoRow,
        ];
        each(series, missed.map(|why| (why.name(), state.counter(why))));
    }),
    family!(Counter "profiler_http_requests_total", "requests", ["handler", "code"],
    "Requests answered, by handler and status code.",
    |input, series| for (handler, code, n) in input.requests.totals() {
        series.add(&[handler, &code.to_string()], count(n));
    }),
    family!(Counter "profiler_http_connections_given_up_total", "connections", [],
        "Connections whose client was silent longest, closed for a new one when setting http.max_connections was reached.",
        |input, series| series.add(&[], count(input.requests.given_up()))),
    family!(Gauge "profiler_http_answers_held_bytes", "bytes", [],
        "Memory of answers that their clients have not taken yet; metrics and files of the page are not among them.",
        |input, series| series.add(&[], count(input.requests.answers.held_bytes()))),
    family!(Counter "profiler_http_answers_refused_total", "answers", [],
        "Answers refused with 503 because answers that their clients have not taken yet left no room for them.",
        |input, series| series.add(&[], count(input.requests.answers_refused()))),
    family!(Gauge "profiler_http_streams", "streams", [],
        "Streams of events that are open.",
        |input, series| series.add(&[], count(input.requests.streams.totals().open))),
    family!(Counter "profiler_http_events_total", "events", [],
        "Events that were sent on streams.",
        |input, series| series.add(&[], count(input.requests.streams.totals().sent_total))),
    family!(Counter "profiler_http_streams_ended_total", "streams", ["reason"],
        "Streams of events that ended: the client left, was too slow and took nothing, the answer failed, the server stopped, or an hour was over.",
        |input, series| each(series, input.requests.streams.totals().ended_total)),
    family!(Counter "process_cpu_seconds_total", "seconds", [],
        "Processor time of the daemon itself, kernel programs not included.",
        |input, series| series.add(&[], seconds(input.own.user_ns + input.own.system_ns))),
    family!(Gauge "process_resident_memory_bytes", "bytes", [],
        "Resident memory of the daemon itself.",
        |input, series| series.add(&[], count(input.own.resident_bytes))),
    family!(Gauge "profiler_memory_bytes", "bytes", ["part"],
        "Where the daemon's resident memory is, estimated: what its parts hold, other that is in use, free that the heap has not given back, outside_heap as stacks of threads, mapped as the program and memory shared with the kernel.",
        |input, series| each(series, input.memory.iter().copied())),
    family!(Gauge "process_virtual_memory_bytes", "bytes", [],
        "Virtual memory of the daemon itself.",
        |input, series| series.add(&[], count(input.own.virtual_bytes))),
    family!(Gauge "process_open_fds", "files", [],
        "Files that the daemon itself holds open.",
        |input, series| series.add(&[], count(input.open_files.0))),
    family!(Gauge "process_max_fds", "files", [],
        "Files that the daemon itself may hold open.",
        |input, series| series.add(&[], count(input.open_files.1))),
    family!(Gauge "process_start_time_seconds", "seconds", [],
        "When the daemon started, in seconds since 1970.",
        |input, series| series.add(&[], seconds(input.started_unix_ns.ns()))),
];
