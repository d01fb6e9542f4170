//! Functions that are measured: their probes, attached and detached while the programs run, and
//! what was counted of them.

use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;
use std::{fs::File, io};

use aya::Pod;
use aya::maps::{HashMap, MapData, MapError};
use profiler_common::limits::{MAX_MEASURED_CALLERS, MAX_MEASURED_ROWS, MAX_MEASURED_THREADS};
use profiler_common::measured::{
    CALIBRATION, CallerKey, CallerRow, Cookie, Frames, MeasuredKey, MeasuredRow, MeasuredThread,
};
use thiserror::Error;
use tracing::warn;

use super::batch;
use super::calibration::{self, ProbeCosts};
use super::maps::{Maps, SharedMap, preallocated};
use super::probe_program::{self, Probe};
use super::probing::{self, Probing};
use super::refusal::StartError;
use super::targets::Targets;
use super::variant::Variant;
use crate::units::FileOffset;

/// The name of the program.
const PROGRAM: &str = "measure";
/// The map of open calls.
const FRAMES: &str = "MEASURED_FRAMES";
/// The map of what was counted.
const ROWS: &str = "MEASURED_ROWS";
/// The map of where calls were made from.
const CALLERS: &str = "MEASURED_CALLERS";
/// How often a row is read that is being changed meanwhile.
const TRIES: usize = 4;

/// Why functions are not measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// A program is not told which probe was hit.
    #[error(
        "this kernel has no attach cookies (Linux 5.15): functions cannot be told apart, so they cannot be measured"
    )]
    NoCookies,
    /// The kernel refuses the program.
    #[error("this kernel refuses the program that measures functions: {0}")]
    Program(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// The kernel refuses the probes.
    #[error("the kernel refuses the probes in {module}: {reason}")]
    Probes {
        /// The file.
        module: String,
        /// What the kernel says.
        #[source]
        reason: io::Error,
    },
    /// More than may be.
    #[error("{wanted} points would be probed; at most {most} can be")]
    TooMany {
        /// How many.
        wanted: usize,
        /// How many may be.
        most: usize,
    },
    /// More than this kernel bears.
    #[error(
        "{wanted} points would be probed at a time; on this kernel, which has no links of many points (Linux 6.6), at most {most} can be{of}: choose fewer functions, or count calls alone (--trace-counts)"
    )]
    TooManySingle {
        /// How many.
        wanted: usize,
        /// How many may be.
        most: usize,
        /// Of what, as it is told.
        of: &'static str,
    },
    /// The build of the programs that this kernel takes has none for it.
    #[error(
        "functions cannot be measured on this kernel: it takes the programs for kernels before 5.17 alone, and those that measure are of the later ones (Linux 5.17)"
    )]
    OlderPrograms,
    /// There is no memory for the maps, where they have to be whole from the beginning.
    #[error("the kernel makes no maps for what is measured: {0}")]
    NoMaps(#[source] MapError),
    /// A map does not take what it is told.
    #[error("the kernel does not take which processes are measured: {0}")]
    Map(#[source] MapError),
    /// The programs cannot be told.
    #[error(transparent)]
    Control(#[from] StartError),
}

impl MeasureError {
    /// Is it that the process is gone?
    #[must_use]
    pub fn is_no_process(&self) -> bool {
        matches!(self, Self::Probes { reason, .. } if reason.raw_os_error() == Some(libc::ESRCH))
    }
}

/// A probe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePoint {
    /// Where, from the start of the file, bytes.
    pub offset: FileOffset,
    /// What it is.
    pub cookie: Cookie,
}

/// A link: probes of some functions of one file, all of one instrumentation.
struct Attached {
    file: Arc<File>,
    /// The file's path.
    module: Arc<str>,
    points: Vec<ProbePoint>,
    /// The process whose memory alone has them.
    pid: Option<u32>,
    /// Closed, it is detached.
    link: OwnedFd,
}

impl Attached {
    fn is_of(&self, instrumentation: u8) -> bool {
        let mut points = self.points.iter();
        points.any(|point| point.cookie.instrumentation == instrumentation)
    }
}

/// The probes, and the maps of what they count. The program is loaded when it is first asked for:
/// a kernel that refuses it profiles all the same.
pub struct Measured {
    /// First: probes go before what they use.
    links: Vec<Attached>,
    program: Option<OwnedFd>,
    object: &'static [u8],
    /// `None`: the older build has no such program.
    maps: Option<MeasuredMaps>,
}

struct MeasuredMaps {
    /// All maps of the running programs.
    shared: Arc<[SharedMap]>,
    /// Those that stand in the place of some of them.
    own: Vec<SharedMap>,
    frames: HashMap<MapData, MeasuredThread, Frames>,
    rows: HashMap<MapData, MeasuredKey, MeasuredRow>,
    callers: HashMap<MapData, CallerKey, CallerRow>,
    pids: HashMap<MapData, u32, u32>,
}

impl Measured {
    /// Nothing is measured yet. `shared`: all maps, before any was taken.
    ///
    /// # Errors
    /// [`StartError::Map`] if a map is missing.
    pub(super) fn new(
        maps: &mut Maps<'_>,
        shared: &Arc<[SharedMap]>,
        variant: Variant,
    ) -> Result<Self, StartError> {
        let maps = match variant {
            Variant::Before517 => None,
            Variant::Since517 => Some(MeasuredMaps {
                shared: Arc::clone(shared),
                own: Vec::new(),
                frames: maps.typed(FRAMES)?,
                rows: maps.typed(ROWS)?,
                callers: maps.typed(CALLERS)?,
                pids: maps.typed("MEASURED_PIDS")?,
            }),
        };
        Ok(Self {
            links: Vec::new(),
            program: None,
            object: variant.object(),
            maps,
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
        match Probing::of_this_kernel() {
            Probing::Nothing => Err(MeasureError::NoCookies),
            probing => Ok(probing),
        }
    }

    /// Points that are attached.
    #[must_use]
    pub fn points(&self) -> usize {
        self.links
            .iter()
            .map(|attached| attached.points.len())
            .sum()
    }

    /// Those of one instrumentation.
    #[must_use]
    pub fn points_of(&self, instrumentation: u8) -> usize {
        let its = self.links.iter();
        its.filter(|attached| attached.is_of(instrumentation))
            .map(|attached| attached.points.len())
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
        targets: &mut Targets,
    ) -> Result<(), MeasureError> {
        let maps = self.maps.as_mut().ok_or(MeasureError::OlderPrograms)?;
        let bit = 1_u32 << (instrumentation & 31);
        for pid in pids.unwrap_or_default() {
            let mask = maps.pids.get(pid, 0).unwrap_or(0);
            maps.pids
                .insert(pid, mask | bit, 0)
                .map_err(MeasureError::Map)?;
        }
        targets.measure(bit, pids.is_none(), children)?;
        Ok(())
    }

    /// Has an instrumentation not measure a process any more.
    pub fn leave_out(&mut self, instrumentation: u8, pid: u32) {
        let Some(maps) = &mut self.maps else { return };
        let bit = 1_u32 << (instrumentation & 31);
        if let Err(error) = leave_out(&mut maps.pids, bit, pid) {
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
        let probing = Self::supported()?;
        let maps = self.maps.as_mut().ok_or(MeasureError::OlderPrograms)?;
        let program = match &mut self.program {
            Some(program) => program,
            none => none.insert(maps.load(self.object, probing)?),
        };
        let mut made = Vec::new();
        for points in points.chunks(probing.per_link()) {
            let probes = points.iter().map(|point| Probe {
                offset: point.offset,
                cookie: point.cookie.to_bits(),
                counter: None,
            });
            let probes: Vec<Probe> = probes.collect();
            match probing.attach(program.as_fd(), file, &probes, pid) {
                Ok(link) => made.push(Attached {
                    file: Arc::clone(file),
                    module: module.into(),
                    points: points.to_vec(),
                    pid: pid.filter(|_| probing.is_of_processes()),
                    link,
                }),
                Err(reason) => {
                    close(made);
                    return Err(MeasureError::Probes {
                        module: module.to_owned(),
                        reason,
                    });
                }
            }
        }
        self.links.append(&mut made);
        Ok(())
    }

    /// The maps, once there is a program that writes them.
    fn written(&self) -> Option<&MeasuredMaps> {
        self.maps.as_ref().filter(|_| self.program.is_some())
    }

    /// What each kind of probed call costs here, measured in about a tenth of a second on functions
    /// of this program.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn calibrate(&mut self, targets: &mut Targets) -> Result<ProbeCosts, MeasureError> {
        let costs = calibration::measure(self, targets);
        self.detach(CALIBRATION, targets)?;
        let is_its = |function| function <= calibration::FUNCTIONS;
        self.remove(|_| false, is_its);
        self.remove_callers(|key| is_its(key.function));
        costs
    }

    /// The calls of one function so far, of all threads.
    pub(super) fn row(&self, function: u32) -> Option<MeasuredRow> {
        let mut rows = self.rows().into_iter();
        rows.find(|(key, _)| key.function == function)
            .map(|(_, row)| row)
    }

    /// Detaches the probes of an instrumentation that are of this process alone.
    pub fn detach_process(&mut self, instrumentation: u8, pid: u32) {
        let is_over =
            |attached: &mut Attached| attached.pid == Some(pid) && attached.is_of(instrumentation);
        close(self.links.extract_if(.., is_over).collect());
    }

    /// Detaches the probes of functions. Others in the same links are attached again: what of them
    /// is called or left in between is not seen.
    ///
    /// # Errors
    /// [`MeasureError`] if the others cannot be attached any more.
    pub fn detach_functions(&mut self, is_over: impl Fn(u32) -> bool) -> Result<(), MeasureError> {
        let has_any = |attached: &mut Attached| {
            let mut points = attached.points.iter();
            points.any(|point| is_over(point.cookie.function))
        };
        let found: Vec<Attached> = self.links.extract_if(.., has_any).collect();
        let others = found.iter().map(|attached| {
            let mut points = attached.points.clone();
            points.retain(|point| !is_over(point.cookie.function));
            let file = Arc::clone(&attached.file);
            (file, Arc::clone(&attached.module), points, attached.pid)
        });
        let others: Vec<_> = others.collect();
        // First all are detached.
        close(found);
        for (file, module, points, pid) in others {
            match self.attach(&file, &module, &points, pid) {
                // It has exited meanwhile.
                Err(error) if error.is_no_process() && pid.is_some() => {}
                attached => attached?,
            }
        }
        Ok(())
    }

    /// Detaches all probes of an instrumentation, which measures nobody any more.
    ///
    /// # Errors
    /// [`MeasureError`] if the programs cannot be told; the probes are detached in any case.
    pub fn detach(
        &mut self,
        instrumentation: u8,
        targets: &mut Targets,
    ) -> Result<(), MeasureError> {
        let is_over = |attached: &mut Attached| attached.is_of(instrumentation);
        close(self.links.extract_if(.., is_over).collect());
        let Some(maps) = &mut self.maps else {
            return Ok(());
        };
        let bit = 1_u32 << (instrumentation & 31);
        targets.measure(bit, false, false)?;
        let chosen: Vec<u32> = maps.pids.keys().filter_map(Result::ok).collect();
        for pid in chosen {
            leave_out(&mut maps.pids, bit, pid).map_err(MeasureError::Map)?;
        }
        Ok(())
    }

    /// What was counted so far, of threads that live and of those that are gone. Rows that were
    /// being changed at each try are left out this time.
    #[must_use]
    pub fn rows(&self) -> Vec<(MeasuredKey, MeasuredRow)> {
        let Some(maps) = self.written() else {
            return Vec::new();
        };
        let Some(shared) = maps.find(ROWS) else {
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
                let row = maps.rows.get(&key, 0).ok()?;
                row.sequence.is_multiple_of(2).then_some((key, row))
            })
        }));
        rows
    }

    /// The processes that an instrumentation measures, by their ids.
    #[must_use]
    pub fn processes(&self, instrumentation: u8) -> Vec<u32> {
        let bit = 1_u32 << (instrumentation & 31);
        let chosen = self.maps.iter().flat_map(|maps| maps.pids.iter());
        let chosen = chosen.filter_map(Result::ok);
        chosen
            .filter(|(_, mask)| mask & bit != 0)
            .map(|(pid, _)| pid)
            .collect()
    }

    /// Threads for which `is_gone`, and functions that are not measured any more: their rows and
    /// open calls are removed, after they were read for the last time.
    pub fn remove(
        &mut self,
        is_gone: impl Fn(&MeasuredThread) -> bool,
        is_over: impl Fn(u32) -> bool,
    ) {
        let Some(maps) = self.maps.as_mut().filter(|_| self.program.is_some()) else {
            return;
        };
        let threads: Vec<MeasuredThread> = maps.frames.keys().filter_map(Result::ok).collect();
        let mut failed = None;
        for thread in threads.iter().filter(|thread| is_gone(thread)) {
            failed = failed.or(maps.frames.remove(thread).err());
        }
        let rows: Vec<MeasuredKey> = maps.rows.keys().filter_map(Result::ok).collect();
        for key in rows {
            if is_gone(&key.thread) || is_over(key.function) {
                failed = failed.or(maps.rows.remove(&key).err());
            }
        }
        if let Some(error) = failed {
            warn!("calls of measured functions are kept that are over: {error}");
        }
    }
    /// Where calls were made from so far, by process and function.
    #[must_use]
    pub fn callers(&self) -> Vec<(CallerKey, CallerRow)> {
        let mut callers = Vec::new();
        if let Some(map) = self.written().and_then(|maps| maps.find(CALLERS)) {
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
        let Some(maps) = self.maps.as_mut().filter(|_| self.program.is_some()) else {
            return;
        };
        let keys: Vec<CallerKey> = maps.callers.keys().filter_map(Result::ok).collect();
        let over = keys.iter().filter(|key| is_over(key));
        let failed = over.filter_map(|key| maps.callers.remove(key).err()).last();
        if let Some(error) = failed {
            warn!("callers of measured functions are kept that are over: {error}");
        }
    }
}

impl MeasuredMaps {
    /// The program, with these maps.
    fn load(&mut self, object: &[u8], probing: Probing) -> Result<OwnedFd, MeasureError> {
        if probing::needs_whole_maps() && self.own.is_empty() {
            let (frames, own_frames) = whole(FRAMES, MAX_MEASURED_THREADS)?;
            let (rows, own_rows) = whole(ROWS, MAX_MEASURED_ROWS)?;
            let (callers, own_callers) = whole(CALLERS, MAX_MEASURED_CALLERS)?;
            (self.frames, self.rows, self.callers) = (frames, rows, callers);
            self.own = vec![own_frames, own_rows, own_callers];
        }
        let maps = || self.own.iter().chain(self.shared.iter());
        let loaded = probe_program::load(object, PROGRAM, maps, probing.is_of_many());
        loaded.map_err(MeasureError::Program)
    }

    fn find(&self, name: &str) -> Option<&SharedMap> {
        let mut maps = self.own.iter().chain(self.shared.iter());
        maps.find(|map| map.name == name)
    }
}

/// A map that is whole from the beginning.
pub(super) fn whole<K: Pod, V: Pod>(
    name: &'static str,
    most: u32,
) -> Result<(HashMap<MapData, K, V>, SharedMap), MeasureError> {
    preallocated(name, most).map_err(MeasureError::NoMaps)
}

impl Drop for Measured {
    fn drop(&mut self) {
        close(std::mem::take(&mut self.links));
    }
}

/// Detaches probes.
fn close(attached: Vec<Attached>) {
    probing::close(attached.into_iter().map(|attached| attached.link).collect());
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
