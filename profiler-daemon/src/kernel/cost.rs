//! What the programs and maps cost, by the kernel's own account.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Map, MapData};
use aya::programs::Program;

/// Run-time statistics of one program.
#[derive(Clone, Debug)]
pub struct ProgramCost {
    /// The program's name.
    pub name: String,
    /// Times it ran while statistics were on.
    pub runs: u64,
    /// Nanoseconds it ran, the cost of measuring included (some 30 ns a run).
    pub run_ns: u64,
}

/// The size of one map.
#[derive(Clone, Debug)]
pub struct MapCost {
    /// The map's name.
    pub name: String,
    /// Elements it can hold.
    pub max_entries: u32,
    /// Kernel memory charged for it, in bytes.
    pub bytes: u64,
}

impl MapCost {
    /// What `/proc/self/fdinfo` says of the map; `None` for a kind of map the programs do not use.
    pub(super) fn of(name: &str, map: &Map) -> Option<Self> {
        let data: &MapData = match map {
            Map::Array(data)
            | Map::HashMap(data)
            | Map::PerCpuArray(data)
            | Map::RingBuf(data)
            | Map::Stack(data)
            | Map::Unsupported(data) => data,
            _ => return None,
        };
        let fd = data.fd().as_fd().as_raw_fd();
        let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
        let field = |name: &str| -> Option<u64> {
            text.lines()
                .find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
        };
        Some(Self {
            name: name.to_owned(),
            max_entries: field("max_entries:")
                .and_then(|entries| u32::try_from(entries).ok())
                .unwrap_or(0),
            bytes: field("memlock:").unwrap_or(0),
        })
    }
}

/// Keeps run-time statistics switched on while it lives (`BPF_ENABLE_STATS`; asks for CAP_SYS_ADMIN).
pub(super) struct Statistics(
    #[expect(dead_code, reason = "held open: the kernel measures as long as it is")] OwnedFd,
);

impl Statistics {
    /// Switches them on.
    pub(super) fn enable() -> io::Result<Self> {
        aya::sys::enable_stats(aya::sys::Stats::RunTime)
            .map(Self)
            .map_err(|error| error.io_error)
    }
}

/// Runs that the kernel left out because the same program was preempted on that processor (from Linux 7.2 on), as
/// `/proc/self/fdinfo` tells.
pub(super) fn skipped_runs(ebpf: &Ebpf) -> u64 {
    let skipped = |program: &Program| {
        let fd = program.fd().ok()?.as_fd().as_raw_fd();
        let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
        let mut lines = text.lines();
        let number = lines.find_map(|line| line.strip_prefix("recursion_misses:"))?;
        number.trim().parse::<u64>().ok()
    };
    ebpf.programs()
        .filter_map(|(_, program)| skipped(program))
        .sum()
}

/// Run-time statistics of the programs of `ebpf`.
pub(super) fn programs(ebpf: &Ebpf) -> Vec<ProgramCost> {
    let mut costs: Vec<ProgramCost> = ebpf
        .programs()
        .filter_map(|(name, program)| {
            let info = program.info().ok()?;
            Some(ProgramCost {
                name: name.to_owned(),
                runs: info.run_count(),
                run_ns: u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX),
            })
        })
        .collect();
    costs.sort_by(|a, b| a.name.cmp(&b.name));
    costs
}
