//! Loads the programs: settings frozen, maps sized, each program verified. (What a refusal means
//! says `refusal`.)

use std::fs;

use aya::programs::{BtfTracePoint, Iter, PerfEvent};
use aya::{Btf, Ebpf, EbpfLoader};
use profiler_common::walk_budget::max_tick_shift;
use tracing::debug;

use super::btf;
use super::calls;
use super::cost::Costs;
use super::log::ProgramLog;
use super::offsets;
use super::programs::{Programs, program_of};
use super::queues;
use super::refusal::{StartError, program_refused, refused};
use super::settings::{KernelSettings, TracedSystemCalls};
use super::variant::{self, Variant};

/// What was loaded; nothing is attached.
pub(super) struct Loaded {
    pub(super) programs: Programs,
    pub(super) costs: Costs,
    pub(super) log: ProgramLog,
    /// Tasks are made known at their switch, if nothing is known of them.
    pub(super) creates_at_switch: bool,
    /// When threads were woken is read from the scheduler's account of run queues.
    pub(super) reads_queues: bool,
    /// The walker finds what is mapped in the kernel's own account of it.
    pub(super) finds_mappings: bool,
}

/// Loads one build of the programs.
///
/// # Errors
/// [`StartError`], a sentence that says what is missing.
pub(super) fn load(settings: &KernelSettings, variant: Variant) -> Result<Loaded, StartError> {
    let bytes = fs::read("/sys/kernel/btf/vmlinux").map_err(StartError::NoBtf)?;
    let types = btf::Btf::parse(&bytes)?;
    let fields = offsets::find(&types, variant)?;
    let finds_mappings = offsets::has_areas(&fields);
    let queue_fields = queues::fields(&types, variant);
    let reads_queues = !queue_fields.is_empty();
    let creates_at_switch = variant.creates_at_switch(&types);
    drop(bytes);
    let create_at_switch = u32::from(creates_at_switch);
    let kernel_types = Btf::from_sys_fs().map_err(|error| StartError::map("BTF", error))?;
    let max_tick_shift = max_tick_shift(settings.frequency_hz);
    let mut loader = EbpfLoader::new();
    loader
        .btf(Some(&kernel_types))
        .allow_unsupported_maps()
        .override_global("MIN_INTERVAL_NS", &settings.min_interval_ns, true)
        .override_global("MAX_TICK_SHIFT", &max_tick_shift, true)
        .override_global("CREATE_AT_SWITCH", &create_at_switch, true)
        .map_max_entries("THREADS", settings.max_threads)
        .map_max_entries("OUTSIDE", settings.max_threads)
        .map_max_entries("RESERVES", settings.max_threads)
        .map_max_entries("FREE_SLOTS", settings.max_threads)
        .map_max_entries("CALL_ROWS_BY_INDEX", settings.call_rows())
        .map_max_entries("CALL_ROW_INDEX", settings.call_rows())
        .map_max_entries("FREE_CALL_ROWS", settings.call_rows())
        .map_max_entries("SUMS_0", settings.stacks_per_drain)
        .map_max_entries("SUMS_1", settings.stacks_per_drain)
        .map_max_entries("STACKS", settings.ring_bytes);
    for (name, offset) in fields.iter().chain(&queue_fields) {
        loader.override_global(name, offset, true);
    }
    match variant {
        Variant::Since517 => loader
            .override_global("USER_FRAMES", &settings.user_frames, true)
            .map_max_entries("MAPPINGS", settings.mappings),
        Variant::Before517 => {
            loader.map_max_entries("TASKS", variant::max_tasks(settings.max_threads))
        }
    };
    let mut ebpf = loader.load(variant.object()).map_err(refused)?;
    let log = ProgramLog::take(&mut ebpf);
    let tracepoints = tracepoints(variant, reads_queues);
    let calls: &[&'static str] = match settings.system_calls {
        TracedSystemCalls::Off => &[],
        _ => &calls::TRACEPOINTS,
    };
    load_programs(
        &mut ebpf,
        &kernel_types,
        &[&tracepoints[..], calls].concat(),
        if reads_queues {
            &["seed", "look", "queued"]
        } else {
            &["seed", "look"]
        },
    )?;
    Ok(Loaded {
        costs: Costs::of(&ebpf),
        programs: Programs::new(ebpf, tracepoints),
        log,
        creates_at_switch,
        reads_queues,
        finds_mappings,
    })
}

/// The tracepoint programs that this variant has beside those of system calls, by the names of
/// their tracepoints. Where run queues are read, that of wakes has little to do, and that of new
/// threads nothing.
fn tracepoints(variant: Variant, reads_queues: bool) -> Vec<&'static str> {
    let mut names = vec![
        "sched_switch",
        "sched_waking",
        "sched_process_fork",
        "sched_process_exec",
        "sched_process_exit",
        "task_rename",
    ];
    if !reads_queues {
        names.push("sched_wakeup_new");
    }
    if variant == Variant::Before517 {
        names.push("sched_process_free");
    }
    names
}

fn load_programs(
    ebpf: &mut Ebpf,
    kernel_types: &Btf,
    tracepoints: &[&'static str],
    iterators: &[&'static str],
) -> Result<(), StartError> {
    for name in tracepoints {
        let program: &mut BtfTracePoint = program_of(ebpf, name)?;
        program
            .load(name, kernel_types)
            .map_err(|error| program_refused(name, error))?;
    }
    let tick: &mut PerfEvent = program_of(ebpf, "tick")?;
    tick.load()
        .map_err(|error| program_refused("tick", error))?;
    for name in iterators {
        let iteration: &mut Iter = program_of(ebpf, name)?;
        iteration
            .load("task", kernel_types)
            .map_err(|error| program_refused(name, error))?;
    }
    for (name, program) in ebpf.programs() {
        // Told from 5.16 on; the kernel refuses a program of more than a million.
        let verified = program
            .info()
            .ok()
            .and_then(|info| info.verified_instruction_count());
        debug!("loaded program {name}: {verified:?} instructions were verified");
    }
    Ok(())
}
