//! Every setting, declared once: name, type, default, bounds, unit and what it decides.
//!
//! The doc comments below are what the sample file and the documentation print.

use std::net::SocketAddr;
use std::path::PathBuf;

use profiler_common::limits::{DEFAULT_RING_BYTES, MAX_RING_BYTES, MIN_RING_BYTES};

use super::kinds::{
    Address, ByteSize, Choice, Flag, Folder, ListOf, OptionalFlag, Percent, Time, WholeNumber,
    WholeNumberOrAuto,
};
use super::section::section;
use super::targets::{self, Targets};

/// Whose system calls are events.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SystemCalls {
    /// Those of every profiled thread, or samples of them where all would cost more than the
    /// budget.
    Auto,
    /// Those of every profiled thread.
    All,
    /// Those of processes that the targets name by pid, comm or cgroup; none where the targets name
    /// nobody.
    Targets,
    /// Nobody's: the hooks are not attached.
    Off,
}

impl SystemCalls {
    /// The word in the configuration file.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::All => "all",
            Self::Targets => "targets",
            Self::Off => "off",
        }
    }
}

/// The bounds of `frequency_hz`, also for the command line.
pub(super) const FREQUENCY: WholeNumber = WholeNumber {
    default: 99,
    min: 1,
    max: 10_000,
    unit: "samples per second and processor",
};

/// What `listen` may be, also for the command line.
pub(super) const LISTEN: Address = Address {
    default: "127.0.0.1:9797",
};

/// The bounds of `min_interval`, also for the command line.
pub(super) const MIN_INTERVAL: Time = Time {
    default_ns: 1_000_000,
    min_ns: 1_000,
    max_ns: 10_000_000_000,
    zero: Some("each nanosecond of a call or wait is its stack's"),
};

/// The most that `limits.sessions` allows, also for a saved profile.
pub const MAX_SESSIONS: usize = 1_000;

/// The most that `limits.session_spans` allows, also for a saved profile.
pub const MAX_SESSION_SPANS: usize = 10_000;

const HOUR_NS: u64 = 3_600_000_000_000;
const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
const GIB: u64 = 1 << 30;

section! {
    /// What the daemon was told to do. Every value is within its bounds.
    pub struct Config, ConfigWritten in "" with
        targets: TargetsWritten => Targets,
        limits: LimitsWritten => LimitSettings,
        metrics: MetricsWritten => Metrics,
        http: HttpWritten => Http,
        instrumentation: InstrumentationWritten => InstrumentationSettings;

    /// How often each processor is sampled. More samples show rarer functions and cost more.
    frequency_hz as frequency_hz: u32 = FREQUENCY;

    /// How far apart, on average, the marks lie that divide a thread's time in system calls among
    /// its stacks, and how often a wait is walked. Totals are exact whatever it is; less is finer
    /// and costs more.
    min_interval as min_interval_ns: u64 = MIN_INTERVAL;

    /// What profiling may cost, as a share of the time in which processors are at work: kernel
    /// programs, hooks and the daemon together. What would break it gives way, and reports say so:
    /// tracing of all system calls first, walks of stacks at switches next, those of ticks last;
    /// what is not walked others stand for. Totals are exact whatever it is. "off": anything.
    budget as budget_millionths: Option<u32> = Percent { default: "1%", min: 0.1, max: 100.0 };

    /// The same of the running time of any process that uses more than a twentieth of a processor.
    budget_process as budget_process_millionths: Option<u32> = Percent { default: "3%", min: 0.1, max: 100.0 };

    /// Whose system calls are measured one by one. "auto": those of every profiled thread, or only
    /// samples of them while all would cost more than the budget. "all": those of every profiled
    /// thread, whatever it costs. "targets": only those of processes that the table targets names
    /// by pid, comm or cgroup, so nobody's while it names none. "off": the hooks are not attached.
    /// Where calls are not measured, running time is divided into user mode and system calls by
    /// samples; blocked and runnable time stay exact, by call.
    system_calls as system_calls: SystemCalls = Choice {
        default: "auto",
        words: &[("auto", SystemCalls::Auto), ("all", SystemCalls::All), ("targets", SystemCalls::Targets), ("off", SystemCalls::Off)],
    };

    /// Where to serve. There is no encryption and no password: whoever reaches this address reads
    /// every report and may change the targets.
    listen as listen: SocketAddr = LISTEN;

    /// Names, besides localhost and the address above, under which the daemon may be asked.
    /// Requests for other names are refused, so that no web page can read reports by pointing its
    /// own name at this machine.
    allowed_hosts as allowed_hosts: Vec<String> = ListOf { max_count: 64, what: "host names without a port", item: host_name };

    /// A folder of the daemon's own for what it would otherwise have to make again after each
    /// start.
    state_directory as state_directory: PathBuf = Folder { default: "/var/lib/profiler-daemon" };

    /// Whether reports show command lines. They can hold passwords.
    show_command_lines as show_command_lines: bool = Flag { default: false };
}

section! {
    /// What is profiled, as written.
    pub struct TargetsMeant, TargetsWritten in "targets";

    /// Whether everything on the machine is profiled. When left out: yes, unless one of the lists
    /// below names something. With true the lists still decide whose system calls are measured (see
    /// system_calls).
    all as all: Option<bool> = OptionalFlag { unsaid: true };

    /// Processes by number.
    pids as pids: Vec<u32> = ListOf { max_count: targets::MAX_PIDS, what: "process numbers", item: targets::read_pid };

    /// Processes by name, as /proc/PID/comm shows it: that of the program's file, cut to 15 bytes,
    /// unless the main thread was given another. Names of other threads do not count.
    comms as comms: Vec<String> =
        ListOf { max_count: targets::MAX_COMMS, what: "names of at most 15 bytes", item: targets::read_comm };

    /// Processes by control group: its path below the root of the hierarchy of version 2, as in
    /// /system.slice/ssh.service.
    cgroups as cgroups: Vec<String> =
        ListOf { max_count: targets::MAX_CGROUPS, what: "paths that begin with /", item: targets::read_cgroup };

    /// Whether the children of the processes named above are profiled too.
    children as children: bool = Flag { default: false };
}

section! {
    /// Sizes that bound what the daemon holds. What does not fit is counted by cause, never
    /// silently left out.
    pub struct LimitSettings, LimitsWritten in "limits";

    /// Threads that are followed at the same time. Each costs the kernel about 1.3 KiB. "auto": one
    /// for each MiB of the machine's memory, at least 16384 and at most 65536.
    max_threads as max_threads: Option<u32> =
        WholeNumberOrAuto { min: 64, max: 1_048_576, unit: "threads" };

    /// Different stacks that the kernel collects between two reads, which are one second apart.
    stack_entries as stack_entries: u32 =
        WholeNumber { default: 16_384, min: 1_024, max: 1_048_576, unit: "stacks" };

    /// User functions of one stack, on kernels from 5.17 on; older ones take 256. What lies further
    /// out is cut off.
    user_frames as user_frames: u32 =
        WholeNumber { default: 512, min: 16, max: 512, unit: "functions" };

    /// Stretches of code that all processes together have mapped. 32 bytes of kernel memory each.
    mappings as mappings: u32 =
        WholeNumber { default: 65_536, min: 4_096, max: 4_194_304, unit: "mappings" };

    /// Kernel memory for the tables by which stacks are unwound, taken as it is needed. When it is
    /// full, the tables that were not used for longest give way.
    unwind_table_bytes as unwind_table_bytes: u32 =
        ByteSize { default: 96 * MIB, min: 4 * MIB, max: GIB, power_of_two: false };

    /// Disk for the same tables, in the state directory.
    unwind_cache_bytes as unwind_cache_bytes: u64 =
        ByteSize { default: 512 * MIB, min: 16 * MIB, max: 64 * GIB, power_of_two: false };

    /// Buffer through which stacks come from the kernel.
    stack_ring_bytes as stack_ring_bytes: u32 =
        ByteSize { default: DEFAULT_RING_BYTES as u64, min: MIN_RING_BYTES as u64, max: MAX_RING_BYTES as u64, power_of_two: true };

    /// Memory for the stacks of the profile. When it is full, the lightest stacks are folded to
    /// make room; totals do not change.
    profile_stack_bytes as profile_stack_bytes: usize =
        ByteSize { default: 128 * MIB, min: MIB, max: 4 * GIB, power_of_two: false };

    /// How long the recent past is kept in buckets, for windows and timelines. The older a bucket,
    /// the longer: 1, 10, 60 seconds.
    recent_past as recent_past_ns: u64 =
        Time { default_ns: 3_600_000_000_000, min_ns: 60_000_000_000, max_ns: 86_400_000_000_000, zero: None };

    /// Memory for that, and for what named sessions need. When it is full, the oldest buckets give
    /// way, then sessions, then the last two minutes.
    recent_past_bytes as recent_past_bytes: usize =
        ByteSize { default: 64 * MIB, min: MIB, max: 4 * GIB, power_of_two: false };

    /// How long the threads of one session may live, all together: beyond that, sums of nanoseconds
    /// would come to the end of their numbers. The daemon then begins anew, as if it had been
    /// started, and says so in its log.
    session_thread_time as session_thread_time_ns: u64 =
        Time { default_ns: 2_000_000 * HOUR_NS, min_ns: HOUR_NS, max_ns: 2_500_000 * HOUR_NS, zero: None };

    /// Named sessions that are kept. Of more, the one that was stopped first is given up.
    sessions as sessions: usize =
        WholeNumber { default: 64, min: 1, max: MAX_SESSIONS as u64, unit: "sessions" };

    /// Spans that all named sessions have together.
    session_spans as session_spans: usize =
        WholeNumber { default: 1_000, min: 1, max: MAX_SESSION_SPANS as u64, unit: "spans" };

    /// Memory for names of functions. Names that do not fit are looked up again when they are
    /// needed.
    symbol_cache_bytes as symbol_cache_bytes: usize =
        ByteSize { default: 64 * MIB, min: MIB, max: 4 * GIB, power_of_two: false };

    /// Memory for the process that reads debug information, for reports with lines of source. There
    /// is one at a time, for as long as it takes; one that needs more is ended, and what it had
    /// found until then is kept.
    line_worker_bytes as line_worker_bytes: u64 =
        ByteSize { default: 256 * MIB, min: 32 * MIB, max: 64 * GIB, power_of_two: false };

    /// Processes that are kept in the reports after they exited, the latest first to stay.
    exited_processes as exited_processes: usize =
        WholeNumber { default: 1_000, min: 0, max: 100_000, unit: "processes" };

    /// Programs by which processes are added up that are no longer kept. The other programs are one
    /// together.
    images as images: usize = WholeNumber { default: 256, min: 1, max: 10_000, unit: "programs" };

    /// Threads of one process that are kept one by one after they exited. Older ones are added up.
    exited_threads_per_process as exited_threads_per_process: usize =
        WholeNumber { default: 256, min: 0, max: 100_000, unit: "threads" };

    /// Program files and libraries that are held open at the same time to read names from.
    open_files as open_files: usize =
        WholeNumber { default: 256, min: 16, max: 65_536, unit: "files" };
}

section! {
    /// What Prometheus gets.
    pub struct Metrics, MetricsWritten in "metrics";

    /// Groups of processes that have series of their own; the others share one named other.
    max_groups as max_groups: usize =
        WholeNumber { default: 100, min: 1, max: 1_000, unit: "groups" };
}

section! {
    /// What a client may ask of the server.
    pub struct Http, HttpWritten in "http";

    /// Connections that are open at the same time. More are answered with 503.
    max_connections as max_connections: usize =
        WholeNumber { default: 64, min: 1, max: 4_096, unit: "connections" };

    /// How long a request may take to arrive, and how long its answer may take to be made.
    request_timeout as request_timeout_ns: u64 =
        Time { default_ns: 10_000_000_000, min_ns: 100_000_000, max_ns: 300_000_000_000, zero: None };

    /// The longest body of a request.
    max_body_bytes as max_body_bytes: usize =
        ByteSize { default: 64 * KIB, min: KIB, max: MIB, power_of_two: false };
}

section! {
    /// Measuring functions exactly.
    pub struct InstrumentationSettings, InstrumentationWritten in "instrumentation";

    /// Whether clients may have functions of any process measured (POST /api/v1/instrumentations).
    /// Probes slow what they measure, within a budget: whoever reaches the address above may then
    /// do that to any process. record --trace needs no such setting.
    over_http as over_http: bool = Flag { default: false };
}

impl ConfigWritten {
    /// Where `targets.all` is written, in bytes from the start of the file.
    pub(super) fn targets_all_offset(&self) -> Option<usize> {
        self.targets.all.as_ref().map(|all| all.span().start)
    }
}

/// Reads a host name: letters, digits, dots, hyphens and underscores, or a numeric address; never a
/// port.
fn host_name(written: &toml::Value) -> Result<String, String> {
    let text = written.as_str().unwrap_or_default();
    let plain = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'))
        .unwrap_or(text);
    let is_name = !text.is_empty()
        && text.len() <= 253
        && text
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_'));
    if is_name || plain.parse::<std::net::Ipv6Addr>().is_ok() {
        Ok(plain.to_ascii_lowercase())
    } else {
        Err("must be a host name or a numeric address, without a port".to_owned())
    }
}
