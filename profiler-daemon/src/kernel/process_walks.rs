//! The table of what may be spent on walks of processes, which the programs keep to.

use aya::maps::{HashMap, MapData};
use profiler_common::walk_budget::ProcessWalks;
use tracing::debug;

use super::maps::Maps;
use super::refusal::StartError;

/// What may be spent on walks of processes, by process id.
pub trait WalkTable {
    /// What there is of this process.
    fn get(&self, pid: u32) -> Option<ProcessWalks>;

    /// Sets it.
    ///
    /// # Errors
    /// [`StartError::Map`]: there is no room, or the kernel refuses.
    fn set(&mut self, pid: u32, walks: ProcessWalks) -> Result<(), StartError>;

    /// Its walks are bounded no more.
    fn remove(&mut self, pid: u32);
}

/// The kernel's.
pub struct ProcessWalkTable(HashMap<MapData, u32, ProcessWalks>);

const MAP: &str = "PROCESS_WALKS";

impl ProcessWalkTable {
    /// Empty.
    ///
    /// # Errors
    /// [`StartError::Map`] if the map is missing.
    pub(super) fn new(maps: &mut Maps<'_>) -> Result<Self, StartError> {
        Ok(Self(maps.typed(MAP)?))
    }
}

impl WalkTable for ProcessWalkTable {
    fn get(&self, pid: u32) -> Option<ProcessWalks> {
        self.0.get(&pid, 0).ok()
    }

    fn set(&mut self, pid: u32, walks: ProcessWalks) -> Result<(), StartError> {
        self.0
            .insert(pid, walks, 0)
            .map_err(|error| StartError::map(MAP, error))
    }

    fn remove(&mut self, pid: u32) {
        if let Err(error) = self.0.remove(&pid) {
            debug!("walks of process {pid} stay bounded: {error}");
        }
    }
}
