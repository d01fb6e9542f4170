//! Every metric, declared once: name, type, unit, labels, meaning, and which numbers it shows.

use super::exposition::Series;
use super::input::{CLASS_NAMES, GroupInput, MetricsInput};

/// Whether a metric only grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// It only grows while the daemon runs.
    Counter,
    /// It goes up and down.
    Gauge,
}

/// A metric.
pub(super) struct Family {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    /// The unit of its value; empty for what only says that something is so.
    pub(super) unit: &'static str,
    pub(super) labels: &'static [&'static str],
    /// What it means, as a sentence.
    pub(super) help: &'static str,
    /// Which numbers it shows.
    pub(super) read: fn(&MetricsInput, &mut Series),
}

/// One metric of the table.
macro_rules! family {
    ($kind:ident $name:literal, $unit:literal, [$($label:literal),*], $help:literal, $read:expr) => {
        Family { name: $name, kind: Kind::$kind, unit: $unit, labels: &[$($label),*], help: $help, read: $read }
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

fn seconds(duration_ns: u64) -> f64 {
    count(duration_ns) / 1e9
}

fn each_group(input: &MetricsInput, series: &mut Series, value: fn(&GroupInput) -> f64) {
    for group in &input.groups {
        series.add(&[&group.name], value(group));
    }
}

/// All metrics, in the order in which they are exposed.
pub(super) const FAMILIES: &[Family] = &[
    family!(Gauge "profiler_build_info", "", ["version", "kernel_release"],
        "Always 1; the labels tell the version of the daemon and of the kernel.",
        |input, series| series.add(&[&input.version, &input.kernel_release], 1.0)),
    family!(Gauge "profiler_ready", "", [],
        "1 when every program is attached and the kernel's maps have been read, else 0.",
        |input, series| series.add(&[], f64::from(u8::from(input.ready)))),
    family!(Gauge "profiler_degraded_features", "features", [],
        "Features that work less well than they should; /api/v1/status says which and why.",
        |input, series| series.add(&[], size(input.degraded_features))),
    family!(Gauge "profiler_thread_heartbeat_age_seconds", "seconds", ["thread"],
        "How long a thread that reports need has been at its present piece of work; 0 for one that waits for work. One that is stuck is among the degraded features.",
        |input, series| input.heartbeat_ages_ns.iter().for_each(|(thread, age_ns)| series.add(&[thread], seconds(*age_ns)))),
    family!(Gauge "profiler_sampling_frequency_hertz", "hertz", [],
        "Samples per second and processor that were asked for.",
        |input, series| series.add(&[], f64::from(input.frequency_hz))),
    family!(Counter "profiler_samples_total", "samples", [],
        "Samples of profiled threads whose stacks were walked; the others of profiler_walks_over_budget_total are stood for.",
        |input, series| series.add(&[], count(input.samples_total))),
    family!(Counter "profiler_discarded_samples_total", "samples", ["reason"],
        "Samples that belong to nothing that is profiled, by reason.",
        |input, series| input.discarded_total.iter().for_each(|(reason, n)| series.add(&[reason], count(*n)))),
    family!(Counter "profiler_losses_total", "events", ["cause"],
        "What could not be collected, by cause; 0 everywhere means that reports are complete.",
        |input, series| input.losses_total.iter().for_each(|(cause, n)| series.add(&[cause], count(*n)))),
    family!(Counter "profiler_stack_walks_total", "walks", ["end"],
    "Walks of user stacks by how they ended: complete, truncated at the depth limit, or failed on the way.",
    |input, series| {
        series.add(&["complete"], count(input.stacks.complete_total));
        series.add(&["truncated"], count(input.stacks.truncated_total));
        series.add(&["failed"], count(input.stacks.failed_total));
    }),
    family!(Counter "profiler_stack_walk_failures_total", "walks", ["reason"],
        "Walks of user stacks that did not reach the outermost frame, by reason: see docs/counters.md.",
        |input, series| input.unwind.failures_total.iter().for_each(|(reason, n)| series.add(&[reason], count(*n)))),
    family!(Gauge "profiler_unwind_tables", "tables", [],
        "Files whose unwind tables the kernel side has.",
        |input, series| series.add(&[], count(input.unwind.tables))),
    family!(Gauge "profiler_unwind_table_bytes", "bytes", [],
        "Kernel memory that unwind tables use.",
        |input, series| series.add(&[], count(input.unwind.row_bytes))),
    family!(Gauge "profiler_unwind_memory_bytes", "bytes", [],
        "Kernel memory that was taken for unwind tables; it grows as it is needed.",
        |input, series| series.add(&[], count(input.unwind.memory_bytes))),
    family!(Gauge "profiler_unwind_max_memory_bytes", "bytes", [],
        "Kernel memory that unwind tables may take.",
        |input, series| series.add(&[], count(input.unwind.max_memory_bytes))),
    family!(Counter "profiler_unwind_tables_total", "tables", ["from"],
    "Unwind tables that became available: made from a file, or found on disk.",
    |input, series| {
        series.add(&["file"], count(input.unwind.built_total));
        series.add(&["disk"], count(input.unwind.from_disk_total));
    }),
    family!(Counter "profiler_unwind_tables_none_total", "files", ["reason"],
        "Files whose unwind information could not be used, by reason.",
        |input, series| input.unwind.none_total.iter().for_each(|(reason, n)| series.add(&[reason], count(*n)))),
    family!(Counter "profiler_unwind_troubles_total", "events", ["what"],
        "Unwind tables and mappings that gave way, found no room or were damaged on disk, by what happened.",
        |input, series| input.unwind.troubles_total.iter().for_each(|(what, n)| series.add(&[what], count(*n)))),
    family!(Counter "profiler_unwind_busy_seconds_total", "seconds", [],
        "Time spent making and finding unwind tables.",
        |input, series| series.add(&[], seconds(input.unwind.busy_ns_total))),
    family!(Counter "profiler_outside_looks_total", "threads", ["what"],
        "Threads in waits without a whole stack that were looked at from outside: tried, and what became of it: kept, torn (the thread ran meanwhile), late (memory that keeps readers waiting) or unreadable.",
        |input, series| input.outside.looks_total.iter().for_each(|(what, n)| series.add(&[what], count(*n)))),
    family!(Counter "profiler_outside_readers_total", "processes", ["what"],
        "Processes that read memory of threads in such waits: started, killed because they were late, and those that died otherwise.",
        |input, series| input.outside.readers_total.iter().for_each(|(what, n)| series.add(&[what], count(*n)))),
    family!(Counter "profiler_outside_busy_seconds_total", "seconds", [],
        "Time spent looking at threads from outside.",
        |input, series| series.add(&[], seconds(input.outside.busy_ns_total))),
    family!(Counter "profiler_group_elapsed_seconds_total", "seconds", ["group"],
    "Time of the group's threads, on and off the processors.",
    |input, series| each_group(input, series, |group| {
        seconds(group.classes_ns.iter().fold(0, |sum, class_ns| sum.saturating_add(*class_ns)))
    })),
    family!(Counter "profiler_group_application_seconds_total", "seconds", ["group"],
        "Time that the group's threads ran in user mode, outside any system call.",
        |input, series| each_group(input, series, |group| seconds(group.classes_ns[0]))),
    family!(Counter "profiler_group_class_seconds_total", "seconds", ["group", "class"],
    "Time of the group's threads by class: user, syscall, blocked, runnable or kernel.",
    |input, series| for group in &input.groups {
        for (class, class_ns) in CLASS_NAMES.iter().zip(group.classes_ns) {
            series.add(&[&group.name, class], seconds(class_ns));
        }
    }),
    family!(Counter "profiler_group_samples_total", "samples", ["group"],
        "Samples of the group's threads.",
        |input, series| each_group(input, series, |group| count(group.samples_total))),
    family!(Gauge "profiler_group_series", "groups", [],
        "Groups that have series of their own, the one named other included.",
        |input, series| series.add(&[], size(input.groups.len()))),
    family!(Gauge "profiler_group_series_limit", "groups", [],
        "Groups that may have series of their own.",
        |input, series| series.add(&[], size(input.groups_limit))),
    family!(Counter "profiler_group_overflow_samples_total", "samples", [],
        "Samples that went to the group other because no series was free.",
        |input, series| series.add(&[], count(input.groups_overflow_samples_total))),
    family!(Gauge "profiler_processes", "processes", ["state"],
    "Processes in the reports: running, or exited and not yet dropped.",
    |input, series| {
        series.add(&["running"], size(input.processes));
        series.add(&["exited"], size(input.processes_exited));
    }),
    family!(Gauge "profiler_threads", "threads", [],
        "Threads that run and are followed.",
        |input, series| series.add(&[], size(input.threads))),
    family!(Gauge "profiler_profile_stack_bytes", "bytes", [],
        "Memory that the stacks of the profile take.",
        |input, series| series.add(&[], count(input.profile_stack_bytes))),
    family!(Gauge "profiler_profile_stack_max_bytes", "bytes", [],
        "Memory that the stacks of the profile may take.",
        |input, series| series.add(&[], count(input.profile_stack_max_bytes))),
    family!(Gauge "profiler_recent_past_bytes", "bytes", [],
        "Memory that the recent past takes, with what named sessions need of it.",
        |input, series| series.add(&[], count(input.recent_past_bytes))),
    family!(Gauge "profiler_recent_past_max_bytes", "bytes", [],
        "Memory that it may take.",
        |input, series| series.add(&[], count(input.recent_past_max_bytes))),
    family!(Counter "profiler_drain_passes_total", "passes", [],
        "Reads of the kernel's maps that ended.",
        |input, series| series.add(&[], count(input.drain.passes_total))),
    family!(Counter "profiler_drain_failures_total", "passes", [],
        "Reads of the kernel's maps that failed.",
        |input, series| series.add(&[], count(input.drain.failures_total))),
    family!(Counter "profiler_drain_seconds_total", "seconds", [],
        "Time spent reading the kernel's maps.",
        |input, series| series.add(&[], seconds(input.drain.busy_ns_total))),
    family!(Gauge "profiler_table_used_ratio", "ratio", ["table"],
    "Part of a table that all processes share which is in use at the last read, from 0 to 1; from 0.9 on /api/v1/status tells of it.",
    |input, series| for (table, used, limit) in &input.tables {
        series.add(&[table], count(*used) / count((*limit).max(1)));
    }),
    family!(Gauge "profiler_map_entries", "entries", ["map"],
        "Entries in use in a map of the kernel at the last read.",
        |input, series| input.maps.iter().for_each(|map| series.add(&[&map.name], count(map.entries)))),
    family!(Gauge "profiler_map_max_entries", "entries", ["map"],
        "Entries that a map of the kernel has room for.",
        |input, series| input.maps.iter().for_each(|map| series.add(&[&map.name], count(map.max_entries)))),
    family!(Gauge "profiler_map_memory_bytes", "bytes", ["map"],
    "Kernel memory that a map takes.",
    |input, series| for map in &input.maps {
        if let Some(memory_bytes) = map.memory_bytes {
            series.add(&[&map.name], count(memory_bytes));
        }
    }),
    family!(Counter "profiler_program_run_seconds_total", "seconds", ["program"],
    "Time that a kernel program of the daemon ran: an estimate, measured in 200 ms of each 10 s and scaled up; 0 where the kernel lets it measure nothing.",
    |input, series| input.programs.iter().for_each(|program| {
        series.add(&[&program.name], seconds(program.run_ns_total));
    })),
    family!(Counter "profiler_programs_cost_seconds_total", "seconds", [],
        "What kernel programs and hooks have cost all that runs, by calibrated prices.",
        |input, series| series.add(&[], seconds(input.spending.programs_ns_total))),
    family!(Counter "profiler_walks_cost_seconds_total", "seconds", [],
        "What walks of stacks have cost, a part of profiler_programs_cost_seconds_total.",
        |input, series| series.add(&[], seconds(input.spending.walks_ns_total))),
    family!(Gauge "profiler_cost_ratio", "ratio", [],
        "What profiling cost over the last ten seconds, as a share of the time in which processors were at work.",
        |input, series| if let Some(ratio) = input.spending.late_ratio { series.add(&[], ratio) }),
    family!(Gauge "profiler_budget_ratio", "ratio", [],
        "What it may cost, as set; absent where that is anything.",
        |input, series| if let Some(ratio) = input.spending.budget_ratio { series.add(&[], ratio) }),
    family!(Gauge "profiler_all_system_calls_traced", "", [],
        "1 while all system calls are traced that the settings name, 0 while only samples are because all would cost more than the budget.",
        |input, series| series.add(&[], f64::from(u8::from(input.spending.all_calls)))),
    family!(Counter "profiler_budget_steps_total", "steps", ["step"],
    "Times that tracing of all system calls gave way to samples of them, and came back.",
    |input, series| {
        series.add(&["gave_way"], count(input.spending.gave_way_total));
        series.add(&["came_back"], count(input.spending.came_back_total));
    }),
    family!(Counter "profiler_walks_over_budget_total", "walks", ["moment"],
    "Stacks that were not walked because walks would have cost more than their part of the budget: others stand for them.",
    |input, series| {
        series.add(&["switch"], count(input.spending.walks_over_budget_total));
        series.add(&["tick"], count(input.spending.ticks_over_budget_total));
    }),
    family!(Counter "profiler_system_call_samples_total", "samples", [],
        "Samples of system calls, of a tenth of a second or less.",
        |input, series| series.add(&[], count(input.spending.samples_total))),
    family!(Counter "profiler_untraced_seconds_total", "seconds", [],
        "Time in which only samples of system calls were due and none was under way.",
        |input, series| series.add(&[], seconds(input.spending.untraced_ns_total))),
    family!(Counter "profiler_program_runs_total", "runs", ["program"],
    "How often a kernel program of the daemon ran: an estimate, measured in 200 ms of each 10 s and scaled up; 0 where the kernel lets it measure nothing.",
    |input, series| input.programs.iter().for_each(|program| {
        series.add(&[&program.name], count(program.runs_total));
    })),
    family!(Counter "profiler_symbol_cache_requests_total", "requests", [],
        "Names of functions that were asked for.",
        |input, series| series.add(&[], count(input.symbol_cache.requests_total))),
    family!(Counter "profiler_symbol_cache_hits_total", "requests", [],
        "Names of functions that were asked for and known already.",
        |input, series| series.add(&[], count(input.symbol_cache.hits_total))),
    family!(Counter "profiler_names_unknown_total", "places", ["reason"],
        "Places of code that were looked up and have no function's name, by reason: see docs/counters.md.",
        |input, series| input.symbol_cache.unknown_total.iter().for_each(|(reason, n)| series.add(&[reason], count(*n)))),
    family!(Counter "profiler_symbol_cache_evictions_total", "names", [],
        "Names of functions that were dropped for room.",
        |input, series| series.add(&[], count(input.symbol_cache.evictions_total))),
    family!(Counter "profiler_perf_maps_cut_total", "files", [],
        "Times that a file in which a process names the code that it makes at run time was read and had more functions than are kept: those that it names first have no names.",
        |input, series| series.add(&[], count(input.symbol_cache.perf_maps_cut_total))),
    family!(Gauge "profiler_symbol_cache_bytes", "bytes", [],
        "Memory that names of functions take.",
        |input, series| series.add(&[], count(input.symbol_cache.bytes))),
    family!(Gauge "profiler_symbol_cache_max_bytes", "bytes", [],
        "Memory that names of functions may take.",
        |input, series| series.add(&[], count(input.symbol_cache.max_bytes))),
    family!(Counter "profiler_line_requests_total", "places", [],
        "Places of code whose line of source was asked for.",
        |input, series| series.add(&[], count(input.lines.requests_total))),
    family!(Counter "profiler_line_hits_total", "places", [],
        "Places of code whose line of source was asked for and known already.",
        |input, series| series.add(&[], count(input.lines.hits_total))),
    family!(Counter "profiler_lines_unknown_total", "places", ["reason"],
        "Places of code that were looked up and have no line of source, by reason: see docs/counters.md.",
        |input, series| input.lines.unknown_total.iter().for_each(|(reason, n)| series.add(&[reason], count(*n)))),
    family!(Gauge "profiler_line_cache_bytes", "bytes", [],
        "Memory that lines of source already found take.",
        |input, series| series.add(&[], count(input.lines.cache_bytes))),
    family!(Counter "profiler_line_workers_total", "processes", [],
        "Processes that were started to read debug information.",
        |input, series| series.add(&[], count(input.lines.workers_total))),
    family!(Counter "profiler_line_worker_failures_total", "processes", ["reason"],
        "Processes that read debug information and ended before they had answered, by reason: see docs/counters.md.",
        |input, series| input.lines.failures_total.iter().for_each(|(reason, n)| series.add(&[reason], count(*n)))),
    family!(Counter "profiler_line_worker_cpu_seconds_total", "seconds", [],
        "Processor time of the processes that read debug information.",
        |input, series| series.add(&[], seconds(input.lines.worker_processor_ns_total))),
    family!(Gauge "profiler_line_worker_peak_bytes", "bytes", [],
        "Most memory that a process that reads debug information has had, the file that it read included.",
        |input, series| series.add(&[], count(input.lines.worker_peak_bytes))),
    family!(Gauge "profiler_instrumentations", "instrumentations", [],
        "Instrumentations that run: functions whose every call is measured.",
        |input, series| series.add(&[], size(input.measuring.running))),
    family!(Gauge "profiler_instrumented_points", "points", [],
        "Entries and exits of functions at which probes are attached.",
        |input, series| series.add(&[], size(input.measuring.points))),
    family!(Counter "profiler_instrumented_functions_given_up_total", "functions", [],
        "Functions, USDT points and spans whose probes were detached, or not attached after a trial, because they cost more than they may.",
        |input, series| series.add(&[], count(input.measuring.given_up_total))),
    family!(Counter "profiler_probe_hits_total", "hits", [],
        "Entries and exits of measured functions.",
        |input, series| series.add(&[], count(input.measuring.hits_total))),
    family!(Counter "profiler_probe_misses_total", "hits", ["reason"],
        "Entries and exits of measured functions that were not measured, by reason: see docs/counters.md.",
        |input, series| input.measuring.missed_total.iter().for_each(|(reason, n)| series.add(&[reason], count(*n)))),
    family!(Counter "profiler_http_requests_total", "requests", ["handler", "code"],
    "Requests answered, by handler and status code.",
    |input, series| input.http_requests_total.iter().for_each(|(handler, code, n)| {
        series.add(&[handler, &code.to_string()], count(*n));
    })),
    family!(Counter "profiler_http_connections_given_up_total", "connections", [],
        "Connections whose client was silent longest, closed for a new one when setting http.max_connections was reached.",
        |input, series| series.add(&[], count(input.http_connections_given_up_total))),
    family!(Gauge "profiler_http_streams", "streams", [],
        "Streams of events that are open.",
        |input, series| series.add(&[], count(input.http_streams.open))),
    family!(Counter "profiler_http_events_total", "events", [],
        "Events that were sent on streams.",
        |input, series| series.add(&[], count(input.http_streams.sent_total))),
    family!(Counter "profiler_http_streams_ended_total", "streams", ["reason"],
        "Streams of events that ended: the client left, was too slow and took nothing, the answer failed, the server stopped, or an hour was over.",
        |input, series| input.http_streams.ended_total.iter().for_each(|(reason, n)| series.add(&[reason], count(*n)))),
    family!(Counter "process_cpu_seconds_total", "seconds", [],
        "Processor time of the daemon itself, kernel programs not included.",
        |input, series| series.add(&[], input.own.cpu_seconds_total)),
    family!(Gauge "process_resident_memory_bytes", "bytes", [],
        "Resident memory of the daemon itself.",
        |input, series| series.add(&[], count(input.own.resident_bytes))),
    family!(Gauge "profiler_memory_bytes", "bytes", ["part"],
        "Where the daemon's resident memory is, estimated: what its parts hold, other that is in use, free that the heap has not given back, outside_heap as stacks of threads, mapped as the program and memory shared with the kernel.",
        |input, series| input.memory_bytes.iter().for_each(|(part, bytes)| series.add(&[part], count(*bytes)))),
    family!(Gauge "process_virtual_memory_bytes", "bytes", [],
        "Virtual memory of the daemon itself.",
        |input, series| series.add(&[], count(input.own.virtual_bytes))),
    family!(Gauge "process_open_fds", "files", [],
        "Files that the daemon itself holds open.",
        |input, series| series.add(&[], count(input.own.open_files))),
    family!(Gauge "process_max_fds", "files", [],
        "Files that the daemon itself may hold open.",
        |input, series| series.add(&[], count(input.own.max_open_files))),
    family!(Gauge "process_start_time_seconds", "seconds", [],
        "When the daemon started, in seconds since 1970.",
        |input, series| series.add(&[], input.own.start_time_seconds)),
];
