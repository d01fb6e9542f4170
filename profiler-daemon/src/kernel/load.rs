//! Loads the programs: settings frozen, maps sized, each program verified. (What a refusal means says `refusal`.)

use std::fs;
use std::io::{self, Read as _};

use aya::maps::{HashMap, Map, MapData, PerCpuArray, RingBuf, Stack};
use aya::programs::{BtfTracePoint, Iter, PerfEvent, ProgramError};
use aya::{Btf, Ebpf, EbpfLoader};
use profiler_common::limits::{CALLS_PER_THREAD, MAX_PAGES};
use profiler_common::outside::OutsideStack;
use profiler_common::records::{
    Control, FIRST_GENERATION, Reserve, SyscallKey, SyscallRow, ThreadRecord, scanning,
    system_calls,
};
use profiler_common::unwind::{MAX_TABLES, WALK_ENDS};
use profiler_common::walk_budget::max_tick_shift;
use tracing::{debug, warn};

use super::attach::{self, Attached};
use super::batch;
use super::btf;
use super::calls::{self, CallHooks};
use super::cost::{self, MapCost, ProgramCost, Statistics};
use super::log::ProgramLog;
use super::offsets;
use super::records::Records;
use super::refusal::{StartError, program_refused, refused};
use super::targets::TargetMaps;
use super::ticks::{Current, Ticks};
use super::unwind_maps::UnwindMaps;
use super::variant::{self, Variant};
use crate::sys::proc_fs;

/// Which threads' system calls are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SystemCalls {
    /// Those of every target.
    All,
    /// Those of targets named by number, name or control group of their process.
    Named,
    /// None: the hooks are not attached.
    Off,
}

/// What is fixed before the programs are loaded.
#[derive(Clone, Debug)]
pub struct KernelSettings {
    /// Timer ticks per second and processor.
    pub frequency_hz: u32,
    /// The mean gap between two marks, nanoseconds; 0 = all that can be walked is.
    pub min_interval_ns: u64,
    /// Which threads' system calls are traced.
    pub system_calls: SystemCalls,
    /// Thread records.
    pub max_threads: u32,
    /// Rows of time per stack in one drain period.
    pub stacks_per_drain: u32,
    /// Bytes of the ring of stacks; a power of two of at least a page.
    pub ring_bytes: u32,
    /// User frames of one walk.
    pub user_frames: u32,
    /// Mapping rows of all processes.
    pub mappings: u32,
    /// Megabytes of unwind rows.
    pub unwind_chunks: u32,
}

/// The loaded programs and their maps.
pub struct Kernel {
    pub(super) ebpf: Ebpf,
    pub(super) settings: KernelSettings,
    pub(super) control: aya::maps::Array<MapData, Control>,
    pub(super) control_value: Control,
    pub(super) threads: Records<ThreadRecord>,
    pub(super) reserves: Records<Reserve>,
    pub(super) rows: Records<SyscallRow>,
    pub(super) outside: Records<OutsideStack>,
    pub(super) row_index: HashMap<MapData, SyscallKey, u32>,
    pub(super) free_slots: Stack<MapData, u32>,
    pub(super) free_rows: Stack<MapData, u32>,
    pub(super) sums: [MapData; 2],
    pub(super) stacks: RingBuf<MapData>,
    pub(super) counts: PerCpuArray<MapData, u64>,
    pub(super) current: PerCpuArray<MapData, Current>,
    pub(super) targets: TargetMaps,
    pub(super) state: super::drain::DrainState,
    /// `None`: this kernel cannot unwind by tables.
    pub(super) unwind: Option<UnwindMaps>,
    pub(super) ticks: Ticks,
    /// The processors that there can be, ascending: the order of the values of a map by processor.
    pub(super) possible: Vec<u32>,
    variant: Variant,
    creates_at_switch: bool,
    /// Why the kernel refused the newer build of the programs, where the older one runs for that reason.
    newer_refused: Option<String>,
    walk_ends: PerCpuArray<MapData, u64>,
    pub(super) tracepoints: Vec<&'static str>,
    pub(super) call_hooks: CallHooks,
    log: ProgramLog,
    statistics: Option<Statistics>,
    /// The maps taken out of the object, for their cost: name and where the kernel describes them.
    sizes: Vec<MapCost>,
}

impl Kernel {
    /// Loads and attaches the programs; they do nothing until [`Kernel::name_targets`]. Where the kernel refuses the newer build of them, the
    /// older one is tried.
    ///
    /// # Errors
    /// [`StartError`], each a sentence that says what is missing: of the newer build, where both are refused.
    pub fn start(settings: KernelSettings) -> Result<Self, StartError> {
        let first = Variant::of_this_kernel()?;
        let (mut kernel, refused) =
            first.start_or_older(|variant| Self::start_with(settings.clone(), variant))?;
        if let Some(refused) = refused {
            warn!("the older programs run instead of the newer ones: {refused}");
            kernel.newer_refused = Some(refused.to_string());
        }
        Ok(kernel)
    }

    /// The same with one build of the programs.
    fn start_with(settings: KernelSettings, variant: Variant) -> Result<Self, StartError> {
        let bytes = fs::read("/sys/kernel/btf/vmlinux").map_err(StartError::NoBtf)?;
        let types = btf::Btf::parse(&bytes)?;
        let fields = offsets::find(&types, variant)?;
        let creates_at_switch = variant.creates_at_switch(&types);
        drop(bytes);
        let create_at_switch = u32::from(creates_at_switch);
        let kernel_types = Btf::from_sys_fs().map_err(|error| StartError::Map {
            map: "BTF",
            reason: error.to_string(),
        })?;
        let rows = settings.max_threads.saturating_mul(CALLS_PER_THREAD);
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
            .map_max_entries("CALL_ROWS_BY_INDEX", rows)
            .map_max_entries("CALL_ROW_INDEX", rows)
            .map_max_entries("FREE_CALL_ROWS", rows)
            .map_max_entries("SUMS_0", settings.stacks_per_drain)
            .map_max_entries("SUMS_1", settings.stacks_per_drain)
            .map_max_entries("STACKS", settings.ring_bytes);
        for (name, offset) in &fields {
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
        let tracepoints = tracepoints(variant);
        let calls: &[&'static str] = match settings.system_calls {
            SystemCalls::Off => &[],
            _ => &calls::TRACEPOINTS,
        };
        load_programs(
            &mut ebpf,
            &kernel_types,
            &[&tracepoints[..], calls].concat(),
        )?;
        let sizes = ebpf
            .maps()
            .filter_map(|(name, map)| MapCost::of(name, map))
            .collect();
        let mut take = |name: &'static str| {
            ebpf.take_map(name).ok_or(StartError::Map {
                map: name,
                reason: "it is not in the object".into(),
            })
        };
        let (control, threads, rows_map, outside) = (
            take("CONTROL")?,
            take("THREADS")?,
            take("CALL_ROWS_BY_INDEX")?,
            take("OUTSIDE")?,
        );
        let unwind = (variant == Variant::Since517)
            .then(|| {
                let (mappings, tables, pages) =
                    (take("MAPPINGS")?, take("TABLES")?, take("PAGES")?);
                Ok::<_, StartError>(UnwindMaps::new(
                    typed("PROCESSES", take("PROCESSES")?)?,
                    mapped("MAPPINGS", &mappings, settings.mappings)?,
                    mapped("TABLES", &tables, MAX_TABLES)?,
                    mapped("PAGES", &pages, MAX_PAGES)?,
                    typed("ROW_CHUNKS", take("ROW_CHUNKS")?)?,
                    settings.unwind_chunks,
                ))
            })
            .transpose()?;
        let mut kernel = Self {
            unwind,
            variant,
            creates_at_switch,
            newer_refused: None,
            walk_ends: typed("WALK_ENDS", take("WALK_ENDS")?)?,
            control: typed("CONTROL", control)?,
            control_value: Control {
                generation: FIRST_GENERATION,
                system_calls: match settings.system_calls {
                    SystemCalls::All => system_calls::ALL,
                    SystemCalls::Named => system_calls::NAMED,
                    SystemCalls::Off => system_calls::OFF,
                },
                ..Control::default()
            },
            call_hooks: CallHooks::default(),
            threads: mapped("THREADS", &threads, settings.max_threads)?,
            reserves: mapped("RESERVES", &take("RESERVES")?, settings.max_threads)?,
            rows: mapped("CALL_ROWS_BY_INDEX", &rows_map, rows)?,
            outside: mapped("OUTSIDE", &outside, settings.max_threads)?,
            row_index: typed("CALL_ROW_INDEX", take("CALL_ROW_INDEX")?)?,
            free_slots: typed("FREE_SLOTS", take("FREE_SLOTS")?)?,
            free_rows: typed("FREE_CALL_ROWS", take("FREE_CALL_ROWS")?)?,
            sums: [
                hash_data("SUMS_0", take("SUMS_0")?)?,
                hash_data("SUMS_1", take("SUMS_1")?)?,
            ],
            stacks: typed("STACKS", take("STACKS")?)?,
            counts: typed("COUNTS", take("COUNTS")?)?,
            current: typed("CURRENT", take("CURRENT")?)?,
            targets: TargetMaps::new(
                typed("TARGET_PIDS", take("TARGET_PIDS")?)?,
                typed("TARGET_COMMS", take("TARGET_COMMS")?)?,
                typed("TARGET_CGROUPS", take("TARGET_CGROUPS")?)?,
            ),
            state: super::drain::DrainState::default(),
            ticks: attach::ticks(&mut ebpf, settings.frequency_hz)?,
            possible: proc_fs::possible_cpus().map_err(|error| attach::tick_refused(&error))?,
            tracepoints,
            log,
            statistics: None,
            sizes,
            settings,
            ebpf,
        };
        kernel.fill_free_lists()?;
        kernel.start_call_hooks()?;
        attach::attach(&mut kernel.ebpf, &kernel.tracepoints)?;
        let started = kernel.ticks.start();
        started.map_err(|error| attach::tick_refused(&error))?;
        Ok(kernel)
    }

    /// Has every thread judged that has not judged itself yet, of those that are meant (`records::scanning`): also those that never
    /// run again. New ones begin in the class they are in.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses.
    pub(super) fn scan_tasks(&mut self, which: u32) -> Result<(), StartError> {
        self.control_value.scanning = which;
        self.write_control()?;
        // From here on every event knows that there is a scan, and which targets it is for.
        batch::wait_for_programs();
        let scanned = self.run_scan();
        self.control_value.scanning = scanning::NO;
        self.write_control()?;
        scanned
    }

    fn run_scan(&mut self) -> Result<(), StartError> {
        // The iteration is the reading; the programs write nothing into it.
        self.iterate("seed", &mut io::sink(), u64::MAX)
    }

    /// Runs a program once for each task, and takes what it writes, not more than `max_bytes`.
    pub(super) fn iterate(
        &mut self,
        name: &'static str,
        to: &mut dyn io::Write,
        max_bytes: u64,
    ) -> Result<(), StartError> {
        let fail = |reason: String| StartError::Program {
            program: name,
            reason,
        };
        let program: &mut Iter = program_of(&mut self.ebpf, name)?;
        let link = program.attach().map_err(|error| fail(error.to_string()))?;
        let link = program
            .take_link(link)
            .map_err(|error| fail(error.to_string()))?;
        let file = link.into_file().map_err(|error| fail(error.to_string()))?;
        io::copy(&mut file.take(max_bytes), to).map_err(|error| fail(error.to_string()))?;
        Ok(())
    }

    /// How walks of user stacks have ended so far, by the number of a `StackEnd`.
    #[must_use]
    pub fn walk_ends(&self) -> Vec<u64> {
        let ends = 0..WALK_ENDS;
        ends.map(|end| match self.walk_ends.get(&end, 0) {
            Ok(values) => values.iter().sum(),
            Err(error) => {
                warn!("the count of walks that ended as {end} cannot be read: {error}");
                0
            }
        })
        .collect()
    }

    /// What this kernel lacks, and what that costs.
    #[must_use]
    pub fn lacks(&self) -> Vec<(&'static str, String)> {
        self.variant.lacks(
            self.settings.max_threads,
            self.creates_at_switch,
            self.newer_refused.as_deref(),
        )
    }

    /// What is attached.
    #[must_use]
    pub fn attached(&self) -> Attached {
        Attached {
            tracepoints: self.attached_tracepoints().collect(),
            processors: self.ticks.processors().collect(),
        }
    }

    /// How many processors have ticks.
    #[must_use]
    pub fn processors(&self) -> u32 {
        u32::try_from(self.ticks.processors().count()).unwrap_or(u32::MAX)
    }

    /// The settings the programs were loaded with.
    #[must_use]
    pub const fn settings(&self) -> &KernelSettings {
        &self.settings
    }

    /// Switches run-time statistics on or off; each run costs some 30 ns more while they are on.
    ///
    /// # Errors
    /// The kernel refuses to switch them on: it takes `CAP_SYS_ADMIN`.
    pub fn measure(&mut self, on: bool) -> io::Result<()> {
        self.statistics = match (on, self.statistics.take()) {
            (false, _) => None,
            (true, Some(statistics)) => Some(statistics),
            (true, None) => Some(Statistics::enable()?),
        };
        Ok(())
    }

    /// Run-time statistics of the programs, gathered while [`Kernel::measure`] was on.
    #[must_use]
    pub fn program_costs(&self) -> Vec<ProgramCost> {
        cost::programs(&self.ebpf)
    }

    /// Runs of the programs that the kernel left out: what they would have seen is lost.
    #[must_use]
    pub fn skipped_runs(&self) -> u64 {
        cost::skipped_runs(&self.ebpf)
    }

    /// The maps and their kernel memory.
    #[must_use]
    pub fn map_costs(&self) -> &[MapCost] {
        &self.sizes
    }

    /// Passes the programs' own diagnostics on to the log.
    pub fn flush_log(&mut self) {
        self.log.flush();
    }

    /// Writes the control element.
    pub(super) fn write_control(&mut self) -> Result<(), StartError> {
        self.control
            .set(0, self.control_value, 0)
            .map_err(|error| StartError::Map {
                map: "CONTROL",
                reason: error.to_string(),
            })
    }

    /// All slots but 0, which means "none", and all rows; the lowest on top.
    fn fill_free_lists(&mut self) -> Result<(), StartError> {
        let fail = |map, error: aya::maps::MapError| StartError::Map {
            map,
            reason: error.to_string(),
        };
        for slot in (1..self.threads.len() as u32).rev() {
            self.free_slots
                .push(slot, 0)
                .map_err(|error| fail("FREE_SLOTS", error))?;
        }
        for row in (1..self.rows.len() as u32).rev() {
            self.free_rows
                .push(row, 0)
                .map_err(|error| fail("FREE_CALL_ROWS", error))?;
        }
        Ok(())
    }
}

/// The tracepoint programs that this variant has beside those of system calls, by the names of their tracepoints.
pub(super) fn tracepoints(variant: Variant) -> Vec<&'static str> {
    let mut names = vec![
        "sched_switch",
        "sched_waking",
        "sched_wakeup_new",
        "sched_process_fork",
        "sched_process_exec",
        "sched_process_exit",
        "task_rename",
    ];
    if variant == Variant::Before517 {
        names.push("sched_process_free");
    }
    names
}

fn load_programs(
    ebpf: &mut Ebpf,
    kernel_types: &Btf,
    tracepoints: &[&'static str],
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
    for name in ["seed", "look"] {
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

/// A program of the object as the type it is.
pub(super) fn program_of<'a, P>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut P, StartError>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program, Error = ProgramError>,
{
    ebpf.program_mut(name)
        .ok_or_else(|| StartError::Program {
            program: name,
            reason: "it is not in the object".into(),
        })?
        .try_into()
        .map_err(|error: ProgramError| StartError::Program {
            program: name,
            reason: error.to_string(),
        })
}

fn typed<T>(name: &'static str, map: Map) -> Result<T, StartError>
where
    T: TryFrom<Map, Error = aya::maps::MapError>,
{
    T::try_from(map).map_err(|error| StartError::Map {
        map: name,
        reason: error.to_string(),
    })
}

fn hash_data(name: &'static str, map: Map) -> Result<MapData, StartError> {
    match map {
        Map::HashMap(data) => Ok(data),
        _ => Err(StartError::Map {
            map: name,
            reason: "it is no hash map".into(),
        }),
    }
}

fn mapped<T: aya::Pod>(name: &'static str, map: &Map, len: u32) -> Result<Records<T>, StartError> {
    let Map::Array(data) = map else {
        return Err(StartError::Map {
            map: name,
            reason: "it is no array".into(),
        });
    };
    Records::map(data.fd(), len).map_err(|error| StartError::Map {
        map: name,
        reason: error.to_string(),
    })
}
