//! The probes of one program, attached and detached while the programs that they are in run. The
//! program is loaded when it is first asked for: a kernel that refuses it profiles all the same.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use super::maps::SharedMap;
use super::measure_error::MeasureError;
use super::probe_program::{self, Probe};
use super::probing::{self, Probing};

/// A point to be probed, in a file that goes without saying.
pub(super) trait Probeable: Copy {
    /// Its probe.
    fn probe(&self) -> Probe;

    /// The instrumentation that it is of.
    fn instrumentation(&self) -> u8;
}

/// A link: probes of some points of one file, all of one instrumentation.
pub(super) struct ProbeLink<P> {
    file: Arc<File>,
    /// The file's path.
    module: Arc<str>,
    /// The points.
    pub(super) points: Vec<P>,
    /// The process whose memory alone has them.
    pid: Option<u32>,
    /// Closed, it is detached.
    link: OwnedFd,
}

/// See the module.
pub(super) struct Probes<P> {
    /// First: probes go before what they use.
    links: Vec<ProbeLink<P>>,
    program: Option<OwnedFd>,
    /// The program's name.
    name: &'static str,
    object: &'static [u8],
    /// All maps of the running programs.
    shared: Arc<[SharedMap]>,
    /// Those that stand in the place of some of them.
    own: Vec<SharedMap>,
}

impl<P: Probeable> Probes<P> {
    /// Nothing is probed yet. `shared`: all maps, before any was taken.
    pub(super) fn new(
        name: &'static str,
        object: &'static [u8],
        shared: &Arc<[SharedMap]>,
    ) -> Self {
        Self {
            links: Vec::new(),
            program: None,
            name,
            object,
            shared: Arc::clone(shared),
            own: Vec::new(),
        }
    }

    /// Whether there is a program, and so something in its maps.
    pub(super) const fn is_loaded(&self) -> bool {
        self.program.is_some()
    }

    /// Loads the program, if that was not done yet. `whole` makes the maps that it writes, where
    /// they have to be whole from the beginning.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub(super) fn load(
        &mut self,
        whole: impl FnOnce() -> Result<Vec<SharedMap>, MeasureError>,
    ) -> Result<(), MeasureError> {
        if self.is_loaded() {
            return Ok(());
        }
        let probing = supported()?;
        if probing::needs_whole_maps() && self.own.is_empty() {
            self.own = whole()?;
        }
        let maps = || self.own.iter().chain(self.shared.iter());
        let loaded = probe_program::load(self.object, self.name, maps, probing.is_of_many());
        self.program = Some(loaded.map_err(MeasureError::Program)?);
        Ok(())
    }

    /// A map of the program; `None` while it is not loaded.
    pub(super) fn map(&self, name: &str) -> Option<&SharedMap> {
        let mut maps = self.own.iter().chain(self.shared.iter());
        maps.find(|map| self.is_loaded() && map.name == name)
    }

    /// Attaches probes of points of one file, in the memory of one process alone if `pid` is one
    /// and this kernel can tell. [`Probes::load`] comes first.
    ///
    /// # Errors
    /// [`MeasureError`]; none of them is attached then.
    pub(super) fn attach(
        &mut self,
        file: &Arc<File>,
        module: &str,
        points: &[P],
        pid: Option<u32>,
    ) -> Result<(), MeasureError> {
        let probing = supported()?;
        let Some(program) = &self.program else {
            return Err(MeasureError::Program("it is not loaded".into()));
        };
        let module: Arc<str> = module.into();
        let mut made = Vec::new();
        for points in points.chunks(probing.per_link()) {
            let probes: Vec<Probe> = points.iter().map(P::probe).collect();
            match probing.attach(program.as_fd(), file, &probes, pid) {
                Ok(link) => made.push(ProbeLink {
                    file: Arc::clone(file),
                    module: Arc::clone(&module),
                    points: points.to_vec(),
                    pid: pid.filter(|_| probing.is_of_processes()),
                    link,
                }),
                Err(reason) => {
                    close(made);
                    let module = module.to_string();
                    return Err(MeasureError::Probes { module, reason });
                }
            }
        }
        self.links.append(&mut made);
        Ok(())
    }

    /// Points that are attached, one in several processes as often.
    pub(super) fn attached(&self) -> impl Iterator<Item = &P> {
        self.links.iter().flat_map(|attached| &attached.points)
    }

    /// Those of one instrumentation.
    pub(super) fn attached_by(&self, instrumentation: u8) -> usize {
        let points = self.attached();
        points
            .filter(|point| point.instrumentation() == instrumentation)
            .count()
    }

    /// Detaches the links for which `is_over`.
    pub(super) fn detach(&mut self, mut is_over: impl FnMut(&ProbeLink<P>) -> bool) {
        let gone = self.links.extract_if(.., |attached| is_over(attached));
        close(gone.collect());
    }

    /// Detaches points of whichever links. Others in these are attached again: what hits them in
    /// between is not seen.
    ///
    /// # Errors
    /// [`MeasureError`] if the others cannot be attached any more.
    pub(super) fn detach_points(
        &mut self,
        is_over: impl Fn(&P) -> bool,
    ) -> Result<(), MeasureError> {
        let has_any = |attached: &mut ProbeLink<P>| attached.points.iter().any(&is_over);
        let found: Vec<ProbeLink<P>> = self.links.extract_if(.., has_any).collect();
        let mut others = Vec::new();
        for attached in &found {
            let points = attached.points.iter().copied();
            let left: Vec<P> = points.filter(|point| !is_over(point)).collect();
            let (file, module) = (Arc::clone(&attached.file), Arc::clone(&attached.module));
            others.push((file, module, left, attached.pid));
        }
        // First all are detached.
        close(found);
        for (file, module, points, pid) in others {
            match self.attach(&file, &module, &points, pid) {
                // It has exited meanwhile.
                Err(error) if error.is_no_process() && pid.is_some() => {}
                Err(error) => return Err(error),
                Ok(()) => {}
            }
        }
        Ok(())
    }
}

impl<P> Drop for Probes<P> {
    fn drop(&mut self) {
        close(std::mem::take(&mut self.links));
    }
}

impl<P: Probeable> ProbeLink<P> {
    /// Is it of that instrumentation?
    pub(super) fn is_of(&self, instrumentation: u8) -> bool {
        let mut points = self.points.iter();
        points.any(|point| point.instrumentation() == instrumentation)
    }

    /// Is it in the memory of that process alone?
    pub(super) fn is_in(&self, pid: u32) -> bool {
        self.pid == Some(pid)
    }
}

/// How this kernel probes.
///
/// # Errors
/// [`MeasureError::NoCookies`].
pub(super) fn supported() -> Result<Probing, MeasureError> {
    match Probing::of_this_kernel() {
        Probing::Nothing => Err(MeasureError::NoCookies),
        probing => Ok(probing),
    }
}

fn close<P>(attached: Vec<ProbeLink<P>>) {
    probing::close(attached.into_iter().map(|attached| attached.link).collect());
}
