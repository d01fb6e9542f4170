//! What the programs and maps cost, by the kernel's own account.

use std::fs;
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use aya::Ebpf;
use aya::maps::{Map, MapData};

/// Run-time statistics of one program.
#[derive(Clone, Debug)]
pub struct ProgramStats {
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
    fn of(name: &str, map: &Map) -> Option<Self> {
        let data: &MapData = match map {
            Map::Array(data)
            | Map::HashMap(data)
            | Map::LruHashMap(data)
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

/// What is measured.
pub struct Costs {
    statistics: Option<Statistics>,
    maps: Vec<MapCost>,
}

impl Costs {
    /// Of an object whose maps are all in it still. Run-time statistics are off.
    pub(super) fn of(ebpf: &Ebpf) -> Self {
        let maps = ebpf.maps();
        Self {
            statistics: None,
            maps: maps
                .filter_map(|(name, map)| MapCost::of(name, map))
                .collect(),
        }
    }

    /// The maps and their kernel memory, as they were loaded.
    #[must_use]
    pub fn maps(&self) -> &[MapCost] {
        &self.maps
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
}

/// Keeps run-time statistics switched on while it lives (`BPF_ENABLE_STATS`; asks for
/// CAP_SYS_ADMIN).
struct Statistics(
    #[expect(dead_code, reason = "held open: the kernel measures as long as it is")] OwnedFd,
);

impl Statistics {
    fn enable() -> io::Result<Self> {
        aya::sys::enable_stats(aya::sys::Stats::RunTime)
            .map(Self)
            .map_err(|error| error.io_error)
    }
}
