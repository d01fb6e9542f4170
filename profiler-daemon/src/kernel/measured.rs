//! Functions that are measured: their probes, attached and detached while the programs run, and
//! what was counted of them.

use std::fs::File;
use std::sync::Arc;

use aya::Pod;
use aya::maps::{Array, HashMap, MapData, MapError};
use profiler_common::limits::{MAX_MEASURED_CALLERS, MAX_MEASURED_ROWS, MAX_MEASURED_THREADS};
use profiler_common::measured::{
    CALIBRATION, CallCosts, CallerKey, CallerRow, Cookie, Goroutine, MeasuredKey, MeasuredRow,
    MeasuredThread, ShadowStack,
};
use tracing::warn;

use super::batch;
use super::maps::{Maps, SharedMap, preallocated};
use super::measure_error::MeasureError;
use super::probe_program::Probe;
use super::probes::{self, Interrupted, Probeable, Probes};
use super::probing::{self, Probing};
use super::refusal::StartError;
use super::targets::TargetControl;
use super::variant::Variant;
use crate::units::FileOffset;

/// The name of the program.
const PROGRAM: &str = "measure";
/// That of the one for functions of Go.
const GOROUTINES_PROGRAM: &str = "goroutine";
/// The map of open calls.
const FRAMES: &str = "MEASURED_FRAMES";
/// The map of what was counted.
const ROWS: &str = "MEASURED_ROWS";
/// The map of where calls were made from.
const CALLERS: &str = "MEASURED_CALLERS";
/// How often a row is read that is being changed meanwhile.
const TRIES: usize = 4;

/// A probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePoint {
    /// Where, from the start of the file, bytes.
    pub offset: FileOffset,
    /// What it is.
    pub cookie: Cookie,
}

impl Probeable for ProbePoint {
    fn probe(&self) -> Probe {
        Probe {
            offset: self.offset,
            cookie: self.cookie.to_bits(),
            counter: None,
        }
    }

    fn instrumentation(&self) -> u8 {
        self.cookie.instrumentation
    }

    fn owner(&self) -> u32 {
        match self.cookie.instrumentation {
            // All at once: some kernels take a second to detach.
            CALIBRATION => 0,
            _ => self.cookie.function,
        }
    }
}

/// The probes, and the maps of what they count.
pub struct FunctionProbes {
    /// First: probes go before what they use.
    probes: Probes<ProbePoint>,
    /// Those of functions of Go.
    goroutines: Probes<ProbePoint>,
    open_goroutines: HashMap<MapData, Goroutine, ShadowStack>,
    frames: HashMap<MapData, MeasuredThread, ShadowStack>,
    rows: HashMap<MapData, MeasuredKey, MeasuredRow>,
    callers: HashMap<MapData, CallerKey, CallerRow>,
    pids: HashMap<MapData, u32, u32>,
    costs: Array<MapData, CallCosts>,
}

impl FunctionProbes {
    /// Nothing is measured yet. `shared`: all maps, before any was taken.
    ///
    /// # Errors
    /// [`StartError::Map`] if a map is missing.
    pub(super) fn new(
        maps: &mut Maps<'_>,
        shared: &Arc<[SharedMap]>,
        variant: Variant,
    ) -> Result<Self, StartError> {
        Ok(Self {
            probes: Probes::new(PROGRAM, variant.object(), shared),
            goroutines: Probes::new(GOROUTINES_PROGRAM, variant.object(), shared),
            open_goroutines: maps.typed("GOROUTINE_FRAMES")?,
            frames: maps.typed(FRAMES)?,
            rows: maps.typed(ROWS)?,
            callers: maps.typed(CALLERS)?,
            pids: maps.typed("MEASURED_PIDS")?,
            costs: maps.typed("PROBE_COSTS")?,
        })
    }

    /// Whether links of many probes can be of one process alone.
    #[must_use]
    pub fn tells_processes() -> bool {
        Probing::of_this_kernel() == Probing::Many { of_processes: true }
    }

    /// How this kernel probes what is measured.
    ///
    /// # Errors
    /// [`MeasureError::NoCookies`].
    pub fn supported() -> Result<Probing, MeasureError> {
        probes::supported()
    }

    /// Whether calls of goroutines are told apart here: older kernels would need their map whole
    /// from the beginning, too.
    #[must_use]
    pub fn follows_goroutines() -> bool {
        !probing::needs_whole_maps()
    }

    /// Loads what functions of Go are measured by, which takes the kernel a fifth of a second, if
    /// that was not done yet.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn follow_goroutines(&mut self) -> Result<(), MeasureError> {
        self.load()?;
        self.goroutines.load(|| Ok(Vec::new()))
    }

    /// Tells the programs what probes cost, by which each call is lessened.
    ///
    /// # Errors
    /// [`MeasureError`] if the kernel does not take it.
    pub(super) fn tell_costs(&mut self, costs: &CallCosts) -> Result<(), MeasureError> {
        let told = self.costs.set(0, costs, 0);
        told.map_err(|error| StartError::map("PROBE_COSTS", error).into())
    }

    /// Whether it was.
    pub(super) const fn has_goroutines(&self) -> bool {
        self.goroutines.is_loaded()
    }

    /// Points that are attached, but for those of calibration.
    #[must_use]
    pub fn points(&self) -> usize {
        let points = self.probes.attached().chain(self.goroutines.attached());
        points
            .filter(|point| point.instrumentation() != CALIBRATION)
            .count()
    }

    /// Those of one instrumentation.
    #[must_use]
    pub fn points_of(&self, instrumentation: u8) -> usize {
        let both = [&self.probes, &self.goroutines];
        both.map(|probes| probes.attached_by(instrumentation))
            .iter()
            .sum()
    }

    /// Has an instrumentation measure these processes, and their children if `children`; `None`:
    /// every process that is profiled.
    ///
    /// # Errors
    /// [`MeasureError`] if the kernel does not take it.
    pub fn choose(
        &mut self,
        instrumentation: u8,
        pids: Option<&[u32]>,
        children: bool,
        targets: &mut TargetControl,
    ) -> Result<(), MeasureError> {
        let bit = 1_u32 << (instrumentation & 31);
        for pid in pids.unwrap_or_default() {
            let mask = self.pids.get(pid, 0).unwrap_or(0);
            self.pids
                .insert(pid, mask | bit, 0)
                .map_err(MeasureError::Map)?;
        }
        targets.measure(bit, pids.is_none(), children)?;
        Ok(())
    }

    /// Has an instrumentation not measure a process any more.
    pub fn leave_out(&mut self, instrumentation: u8, pid: u32) {
        let bit = 1_u32 << (instrumentation & 31);
        if let Err(error) = leave_out(&mut self.pids, bit, pid) {
            warn!("process {pid} is still measured: {error}");
        }
    }

    /// Attaches probes of functions of one file, in the memory of one process alone if `pid` is one
    /// and this kernel can tell.
    ///
    /// # Errors
    /// [`MeasureError`]; none of them is attached then.
    pub fn attach(
        &mut self,
        file: &Arc<File>,
        module: &str,
        points: &[ProbePoint],
        pid: Option<u32>,
    ) -> Result<(), MeasureError> {
        let points = points.iter().copied();
        let (of_goroutines, points): (Vec<ProbePoint>, Vec<ProbePoint>) =
            points.partition(|point| point.cookie.goroutines);
        self.load()?;
        if of_goroutines.is_empty() {
            return self.probes.attach(file, module, &points, pid);
        }
        self.follow_goroutines()?;
        self.goroutines.attach(file, module, &of_goroutines, pid)?;
        let attached = self.probes.attach(file, module, &points, pid);
        if attached.is_err() {
            self.goroutines.detach(|attached| {
                let is_new = |point: &ProbePoint| of_goroutines.contains(point);
                attached.points.iter().all(is_new) && pid.is_none_or(|pid| attached.is_in(pid))
            });
        }
        attached
    }

    /// Loads the program, if that was not done yet.
    fn load(&mut self) -> Result<(), MeasureError> {
        let Self {
            probes,
            frames,
            rows,
            callers,
            ..
        } = self;
        probes.load(|| {
            let (whole_frames, shared_frames) = whole(FRAMES, MAX_MEASURED_THREADS)?;
            let (whole_rows, shared_rows) = whole(ROWS, MAX_MEASURED_ROWS)?;
            let (whole_callers, shared_callers) = whole(CALLERS, MAX_MEASURED_CALLERS)?;
            (*frames, *rows, *callers) = (whole_frames, whole_rows, whole_callers);
            Ok(vec![shared_frames, shared_rows, shared_callers])
        })
    }

    /// The calls that one thread made of one function so far.
    pub(super) fn row(&self, key: &MeasuredKey) -> Option<MeasuredRow> {
        self.rows.get(key, 0).ok()
    }

    /// Detaches the probes of an instrumentation that are of this process alone.
    pub fn detach_process(&mut self, instrumentation: u8, pid: u32) {
        for probes in [&mut self.probes, &mut self.goroutines] {
            probes.detach(|attached| attached.is_in(pid) && attached.is_of(instrumentation));
        }
    }

    /// Detaches the probes of functions. No call of others is missed meanwhile, but for those that
    /// are answered.
    pub fn detach_functions(&mut self, is_over: impl Fn(u32) -> bool) -> Interrupted {
        let mut all = self.probes.detach_owners(&is_over);
        let goroutines = self.goroutines.detach_owners(is_over);
        all.owners.extend(goroutines.owners);
        all.unseen_ns += goroutines.unseen_ns;
        all.failed.extend(goroutines.failed);
        all
    }

    /// Detaches all probes of an instrumentation, which measures nobody any more.
    ///
    /// # Errors
    /// [`MeasureError`] if the programs cannot be told; the probes are detached in any case.
    pub fn detach(
        &mut self,
        instrumentation: u8,
        targets: &mut TargetControl,
    ) -> Result<(), MeasureError> {
        for probes in [&mut self.probes, &mut self.goroutines] {
            probes.detach(|attached| attached.is_of(instrumentation));
        }
        let bit = 1_u32 << (instrumentation & 31);
        targets.measure(bit, false, false)?;
        let chosen: Vec<u32> = self.pids.keys().filter_map(Result::ok).collect();
        for pid in chosen {
            leave_out(&mut self.pids, bit, pid).map_err(MeasureError::Map)?;
        }
        Ok(())
    }

    /// What was counted so far, of threads that live and of those that are gone. Rows that were
    /// being changed at each try are left out this time.
    #[must_use]
    pub fn rows(&self) -> Vec<(MeasuredKey, MeasuredRow)> {
        let Some(shared) = self.probes.map(ROWS) else {
            return Vec::new();
        };
        let mut rows = Vec::new();
        let mut changing = Vec::new();
        let read = batch::read(
            &shared.descriptor,
            MAX_MEASURED_ROWS,
            |key: MeasuredKey, row: MeasuredRow| {
                if row.sequence.is_multiple_of(2) {
                    rows.push((key, row));
                } else {
                    changing.push(key);
                }
            },
        );
        if let Err(error) = read {
            warn!("calls of measured functions cannot be read: {error}");
        }
        rows.extend(changing.into_iter().filter_map(|key| {
            (0..TRIES).find_map(|_| {
                let row = self.rows.get(&key, 0).ok()?;
                row.sequence.is_multiple_of(2).then_some((key, row))
            })
        }));
        rows
    }

    /// The processes that an instrumentation measures, by their ids.
    #[must_use]
    pub fn processes(&self, instrumentation: u8) -> Vec<u32> {
        let bit = 1_u32 << (instrumentation & 31);
        let chosen = self.pids.iter();
        let chosen = chosen.filter_map(Result::ok);
        chosen
            .filter(|(_, mask)| mask & bit != 0)
            .map(|(pid, _)| pid)
            .collect()
    }

    /// Threads for which `is_gone`: their rows and open calls are removed, and rows for which
    /// `is_over`, after they were read for the last time.
    pub fn remove(
        &mut self,
        is_gone: impl Fn(&MeasuredThread) -> bool,
        is_over: impl Fn(&MeasuredKey) -> bool,
    ) {
        if !self.probes.is_loaded() {
            return;
        }
        let threads: Vec<MeasuredThread> = self.frames.keys().filter_map(Result::ok).collect();
        let mut failed = None;
        for thread in threads.iter().filter(|thread| is_gone(thread)) {
            failed = failed.or(self.frames.remove(thread).err());
        }
        let rows: Vec<MeasuredKey> = self.rows.keys().filter_map(Result::ok).collect();
        for key in rows {
            if is_gone(&key.thread) || is_over(&key) {
                failed = failed.or(self.rows.remove(&key).err());
            }
        }
        if let Some(error) = failed {
            warn!("calls of measured functions are kept that are over: {error}");
        }
    }

    /// Forgets the open calls of all threads, once no probe is attached: whoever is measured next
    /// finds room.
    pub fn forget_threads(&mut self) {
        if !self.probes.is_loaded() {
            return;
        }
        let threads: Vec<MeasuredThread> = self.frames.keys().filter_map(Result::ok).collect();
        let failed = threads.iter().filter_map(|of| self.frames.remove(of).err());
        if let Some(error) = failed.last() {
            warn!("open calls of threads are kept though nothing is measured: {error}");
        }
    }

    /// Open calls of goroutines that are over: they are removed.
    pub fn remove_goroutines(&mut self, is_over: impl Fn(&Goroutine) -> bool) {
        if !self.goroutines.is_loaded() {
            return;
        }
        let all: Vec<Goroutine> = self.open_goroutines.keys().filter_map(Result::ok).collect();
        let over = all.iter().filter(|goroutine| is_over(goroutine));
        let failed = over.filter_map(|goroutine| self.open_goroutines.remove(goroutine).err());
        if let Some(error) = failed.last() {
            warn!("calls of goroutines are kept that are over: {error}");
        }
    }

    /// Where calls were made from so far, by process and function.
    #[must_use]
    pub fn callers(&self) -> Vec<(CallerKey, CallerRow)> {
        let mut callers = Vec::new();
        if let Some(map) = self.probes.map(CALLERS) {
            let each = |key: CallerKey, row: CallerRow| callers.push((key, row));
            if let Err(error) = batch::read(&map.descriptor, MAX_MEASURED_CALLERS, each) {
                warn!("callers of measured functions cannot be read: {error}");
            }
        }
        callers
    }

    /// Places in processes that are gone, and those that functions were called from that are not
    /// measured any more: they are removed, after they were read for the last time.
    pub fn remove_callers(&mut self, is_over: impl Fn(&CallerKey) -> bool) {
        if !self.probes.is_loaded() {
            return;
        }
        let keys: Vec<CallerKey> = self.callers.keys().filter_map(Result::ok).collect();
        let over = keys.iter().filter(|key| is_over(key));
        let failed = over.filter_map(|key| self.callers.remove(key).err()).last();
        if let Some(error) = failed {
            warn!("callers of measured functions are kept that are over: {error}");
        }
    }
}

/// A map that is whole from the beginning.
pub(super) fn whole<K: Pod, V: Pod>(
    name: &'static str,
    most: u32,
) -> Result<(HashMap<MapData, K, V>, SharedMap), MeasureError> {
    preallocated(name, most).map_err(MeasureError::NoMaps)
}

/// Takes a bit from a process that is measured.
fn leave_out(pids: &mut HashMap<MapData, u32, u32>, bit: u32, pid: u32) -> Result<(), MapError> {
    let told = match pids.get(&pid, 0).map(|mask| mask & !bit) {
        Ok(0) => pids.remove(&pid),
        Ok(left) => pids.insert(pid, left, 0),
        Err(error) => Err(error),
    };
    match told {
        // It has exited meanwhile.
        Err(MapError::KeyNotFound) => Ok(()),
        told => told,
    }
}
