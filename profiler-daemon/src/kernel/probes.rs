//! The probes of one program, attached and detached while the programs that they are in run. The
//! program is loaded when it is first asked for: a kernel that refuses it profiles all the same.

use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use super::maps::SharedMap;
use super::measure_error::MeasureError;
use super::probe_program::{self, Probe};
use super::probing::{self, Probing};
use crate::sys::clock::monotonic_ns;

/// A point to be probed, in a file that goes without saying.
pub(super) trait Probeable: Copy {
    /// Its probe.
    fn probe(&self) -> Probe;

    /// The instrumentation that it is of.
    fn instrumentation(&self) -> u8;

    /// What it is detached with: the function, USDT point or span that it is of.
    fn owner(&self) -> u32;
}

/// Links of one instrumentation, each with points of one owner alone, so that giving that up takes
/// nothing of others with it. The kernel takes its time to close each: owners beyond share links.
const MAX_APART: usize = 256;

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

/// What detaching some has meant for others that shared links with them.
#[derive(Debug, Default)]
pub struct Interrupted {
    /// Those whose hits were not seen for a while in some process.
    pub owners: BTreeSet<u32>,
    /// How long, nanoseconds.
    pub unseen_ns: u64,
    /// Those that the kernel did not attach again, which are detached everywhere: why.
    pub failed: BTreeMap<u32, String>,
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
    /// and this kernel can tell. Those of one owner follow each other. [`Probes::load`] comes
    /// first.
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
        let instrumentation = points.first().map(P::instrumentation);
        let its = |attached: &&ProbeLink<P>| instrumentation.is_some_and(|of| attached.is_of(of));
        let apart = MAX_APART.saturating_sub(self.links.iter().filter(its).count());
        let module: Arc<str> = module.into();
        let mut made = Vec::new();
        for points in divided(points, apart, probing.per_link()) {
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

    /// Detaches all points of owners. Others go on, but for those that share links with them: these
    /// are attached again, and what hits them in between is not seen.
    pub(super) fn detach_owners(&mut self, is_over: impl Fn(u32) -> bool) -> Interrupted {
        let mut interrupted = Interrupted::default();
        loop {
            let failed = interrupted.failed.len();
            let known = interrupted.failed.clone();
            let is_over = |owner| is_over(owner) || known.contains_key(&owner);
            self.detach_once(is_over, &mut interrupted);
            // Those that failed are in other links, of other processes, too.
            if interrupted.failed.len() == failed {
                return interrupted;
            }
        }
    }

    fn detach_once(&mut self, is_over: impl Fn(u32) -> bool, interrupted: &mut Interrupted) {
        let has_any = |attached: &mut ProbeLink<P>| {
            let mut points = attached.points.iter();
            points.any(|point| is_over(point.owner()))
        };
        let found: Vec<ProbeLink<P>> = self.links.extract_if(.., has_any).collect();
        let others = found.iter().map(|attached| {
            let left = attached.points.iter().filter(|one| !is_over(one.owner()));
            let left: Vec<P> = left.copied().collect();
            let (file, module) = (Arc::clone(&attached.file), Arc::clone(&attached.module));
            (file, module, left, attached.pid)
        });
        let mut others: Vec<_> = others.collect();
        others.retain(|(_, _, left, _)| !left.is_empty());
        let closed_ns = monotonic_ns();
        close(found);
        for (file, module, left, pid) in &others {
            let owners = left.iter().map(P::owner);
            match self.attach(file, module, left, *pid) {
                // It has exited meanwhile.
                Err(error) if error.is_no_process() && pid.is_some() => {}
                Err(error) => {
                    let why = format!("not measured any more: {error}");
                    let failed = owners.map(|owner| (owner, why.clone()));
                    interrupted.failed.extend(failed);
                }
                Ok(()) => interrupted.owners.extend(owners),
            }
        }
        if !others.is_empty() {
            interrupted.unseen_ns += monotonic_ns().saturating_since(closed_ns);
        }
    }
}

/// The points of each link: those of one owner, where there are no more owners than `apart`, else
/// of as many as it takes; no more than `per_link`.
fn divided<P: Probeable>(points: &[P], apart: usize, per_link: usize) -> Vec<&[P]> {
    let owners = || {
        points
            .chunk_by(|a, b| a.owner() == b.owner())
            .map(<[P]>::len)
    };
    let together = owners().count().div_ceil(apart.max(1)).max(1);
    let lengths: Vec<usize> = owners().collect();
    let mut rest = points;
    let mut links = Vec::new();
    for lengths in lengths.chunks(together) {
        let (these, others) = rest.split_at(lengths.iter().sum());
        links.extend(these.chunks(per_link));
        rest = others;
    }
    links
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::FileOffset;

    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Point(u32);

    impl Probeable for Point {
        fn probe(&self) -> Probe {
            Probe {
                offset: FileOffset::ZERO,
                cookie: 0,
                counter: None,
            }
        }

        fn instrumentation(&self) -> u8 {
            0
        }

        fn owner(&self) -> u32 {
            self.0
        }
    }

    // Check that owners have links of their own as long as there may be so many, and that beyond no
    // more links are made than that, each with no more points than it may have; that no point is
    // lost, and that owners share no link where there is room.
    #[test]
    fn owners_have_links_of_their_own() {
        let points: Vec<Point> = (0..40).flat_map(|owner| [Point(owner); 3]).collect();
        for (apart, per_link, most) in [(40, 64, 40), (256, 64, 40), (10, 64, 10), (0, 64, 2)] {
            let links = divided(&points, apart, per_link);
            assert!(links.len() <= most, "{apart}: {}", links.len());
            assert_eq!(links.concat(), points);
            assert!(links.iter().all(|link| link.len() <= per_link));
            let of_one = |link: &&[Point]| link.iter().all(|point| *point == link[0]);
            assert_eq!(links.iter().all(of_one), apart >= 40, "{apart}");
        }
        assert_eq!(divided(&points, 256, 1).len(), points.len());
        assert!(divided::<Point>(&[], 0, 64).is_empty());
    }
}
