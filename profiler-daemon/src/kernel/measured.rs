//! Functions that are measured: their probes, attached and detached while the programs run, and
//! what was counted of them.

use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};
use std::sync::Arc;
use std::{fs::File, io};

use aya::maps::{HashMap, MapData, MapError};
use aya::util::KernelVersion;
use profiler_common::limits::MAX_MEASURED_ROWS;
use profiler_common::measured::{
    CALIBRATION, Cookie, Frames, MeasuredKey, MeasuredRow, MeasuredThread,
};
use thiserror::Error;
use tracing::warn;

use super::batch;
use super::calibration::{self, ProbeCosts};
use super::maps::{Maps, SharedMap};
use super::refusal::StartError;
use super::targets::Targets;
use super::uprobe_multi::{self, Probes};
use super::variant::Variant;

/// The name of the program.
const PROGRAM: &str = "measure";
/// The map of what was counted.
const ROWS: &str = "MEASURED_ROWS";
/// The first kernel with links of many probes.
const SINCE: KernelVersion = KernelVersion::new(6, 6, 0);
/// The first kernel on which the process of such a link is one, not a thread.
const PROCESSES_SINCE: KernelVersion = KernelVersion::new(6, 10, 0);
/// Probes of one link.
const POINTS_PER_LINK: usize = 64;
/// How often a row is read that is being changed meanwhile.
const TRIES: usize = 4;

/// Why functions are not measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// The kernel is too old.
    #[error(
        "functions cannot be measured on this kernel: probes of many points are needed, which Linux 6.6 has"
    )]
    TooOld,
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
    pub offset: u64,
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
    _link: OwnedFd,
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
    shared: Arc<[SharedMap]>,
    frames: HashMap<MapData, MeasuredThread, Frames>,
    rows: HashMap<MapData, MeasuredKey, MeasuredRow>,
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
                frames: maps.typed("MEASURED_FRAMES")?,
                rows: maps.typed(ROWS)?,
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

    /// Whether probes can be of one process alone.
    #[must_use]
    pub fn tells_processes() -> bool {
        KernelVersion::current().is_ok_and(|version| version >= PROCESSES_SINCE)
    }

    /// Can this kernel measure functions?
    ///
    /// # Errors
    /// [`MeasureError::TooOld`].
    pub fn supported() -> Result<(), MeasureError> {
        match KernelVersion::current() {
            Ok(version) if version < SINCE => Err(MeasureError::TooOld),
            _ => Ok(()),
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
        let maps = self.maps.as_mut().ok_or(MeasureError::TooOld)?;
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
        Self::supported()?;
        let maps = self.maps.as_ref().ok_or(MeasureError::TooOld)?;
        let program = match &mut self.program {
            Some(program) => program,
            none => {
                let loaded = uprobe_multi::load(self.object, PROGRAM, &maps.shared);
                none.insert(loaded.map_err(MeasureError::Program)?)
            }
        };
        let pid = pid.filter(|_| Self::tells_processes());
        let path = format!("/proc/self/fd/{}", file.as_raw_fd());
        let mut made = Vec::new();
        for points in points.chunks(POINTS_PER_LINK) {
            let offsets: Vec<u64> = points.iter().map(|point| point.offset).collect();
            let cookies: Vec<u64> = points.iter().map(|point| point.cookie.to_bits()).collect();
            let probes = Probes {
                path: &path,
                offsets: &offsets,
                cookies: &cookies,
                counters: &[],
                pid,
            };
            let link = uprobe_multi::attach(program.as_fd(), &probes);
            made.push(Attached {
                file: Arc::clone(file),
                module: module.into(),
                points: points.to_vec(),
                pid,
                _link: link.map_err(|reason| MeasureError::Probes {
                    module: module.to_owned(),
                    reason,
                })?,
            });
        }
        self.links.append(&mut made);
        Ok(())
    }

    /// What each kind of probed call costs here, measured in about a tenth of a second on functions
    /// of this program.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub fn calibrate(&mut self, targets: &mut Targets) -> Result<ProbeCosts, MeasureError> {
        let costs = calibration::measure(self, targets);
        self.detach(CALIBRATION, targets)?;
        self.remove(|_| false, |function| function <= calibration::FUNCTIONS);
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
        self.links
            .retain(|attached| attached.pid != Some(pid) || !attached.is_of(instrumentation));
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
        let others = found.into_iter().map(|attached| {
            let mut points = attached.points;
            points.retain(|point| !is_over(point.cookie.function));
            (attached.file, attached.module, points, attached.pid)
        });
        // First all are detached.
        let others: Vec<_> = others.collect();
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
        self.links
            .retain(|attached| !attached.is_of(instrumentation));
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
        let Some(maps) = self.maps.as_ref().filter(|_| self.program.is_some()) else {
            return Vec::new();
        };
        let Some(shared) = maps.shared.iter().find(|map| map.name == ROWS) else {
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
        let Some(maps) = &mut self.maps else { return };
        if self.program.is_none() {
            return;
        }
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
