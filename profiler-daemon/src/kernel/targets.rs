//! Who is profiled, as the programs read it, and has every thread evaluated by that. Names are
//! turned into what the kernel compares: ids, padded names, group ids.

use std::collections::BTreeSet;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use aya::Pod;
use aya::maps::{HashMap, MapData, MapError};
use profiler_common::Counter;
use profiler_common::limits::{COMM_BYTES, MAX_TARGET_CGROUPS};
use profiler_common::records::{scanning, system_calls};
use profiler_common::walk_budget::{WHOLE_SHARE, WalkShares};
use thiserror::Error;
use tracing::warn;

use super::control::ControlElement;
use super::drain::Pass;
use super::maps::Maps;
use super::process_walks::ProcessWalkTable;
use super::programs::Programs;
use super::readmission::{Readmission, ReadmissionCounts};
use super::refusal::{StartError, errno};
use super::settings::KernelSettings;
use crate::error_chain::ErrorChain;
use crate::sys::cgroup;
use crate::sys::grace_period::GracePeriods;

/// A scan waits no longer for the programs that ran before it.
const LONGEST_GRACE_PERIOD: Duration = Duration::from_secs(5);

/// Why targets cannot be set.
#[derive(Debug, Error)]
pub enum TargetError {
    /// A table of the kernel side is full.
    #[error("too many targets: the kernel side takes no more {kind} ({})", ErrorChain(.cause))]
    Full {
        /// Which table.
        kind: &'static str,
        /// What the kernel says.
        #[source]
        cause: MapError,
    },
    /// A table of the kernel side cannot be read or written.
    #[error("the kernel side's table of {kind}: {}", ErrorChain(.cause))]
    Table {
        /// Which table.
        kind: &'static str,
        /// What the kernel says.
        #[source]
        cause: MapError,
    },
    /// The named groups have more below them than the table takes.
    #[error(
        "too many targets: the kernel side takes no more {GROUPS} ({MAX_TARGET_CGROUPS} is the limit)"
    )]
    TooManyGroups,
    /// No such group.
    #[error("there is no control group {path} of version 2 below {root}")]
    NoGroup {
        /// The path given.
        path: String,
        /// Where version 2 groups are mounted.
        root: String,
    },
    /// All groups are of version 1.
    #[error(
        "control groups cannot be targets here: {0} are no hierarchy of version 2, and the programs know no other; mount one there (mount -t cgroup2 none {1}), or boot with systemd.unified_cgroup_hierarchy=1"
    )]
    NoVersion2(String, String),
    /// The programs cannot be told.
    #[error(transparent)]
    Control(#[from] StartError),
}

impl TargetError {
    /// Why the table of `kind` does not take a target, or does not tell which it has.
    fn table(kind: &'static str, cause: MapError) -> Self {
        if errno(&cause) == Some(libc::E2BIG) {
            Self::Full { kind, cause }
        } else {
            Self::Table { kind, cause }
        }
    }

    /// Did the kernel fail at what could have been set? Else these targets cannot be set.
    #[must_use]
    pub const fn is_kernel_failure(&self) -> bool {
        match self {
            Self::Table { .. } | Self::Control(_) => true,
            Self::Full { .. }
            | Self::TooManyGroups
            | Self::NoGroup { .. }
            | Self::NoVersion2(..) => false,
        }
    }
}

/// Targets by name.
#[derive(Clone, Debug, Default)]
pub struct NamedTargets {
    /// Everything is a target.
    pub all: bool,
    /// Children of the named ones are targets too.
    pub children: bool,
    /// Processes; with `children`, their living descendants are to be in here already.
    pub pids: Vec<u32>,
    /// Names of processes.
    pub comms: Vec<Vec<u8>>,
    /// Paths of version 2 control groups, as in /proc/PID/cgroup.
    pub cgroups: Vec<String>,
}

/// Which parts of the time in which processors are at work walks of stacks may take, 0 to 1.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct WalkParts {
    /// Those at switches and at calls.
    pub others: f64,
    /// Those of ticks, which give way last.
    pub ticks: f64,
}

/// Who is profiled, and how: all that the programs are told.
pub struct TargetControl {
    pub(super) control: ControlElement,
    pids: HashMap<MapData, u32, u8>,
    comms: HashMap<MapData, [u8; COMM_BYTES], u8>,
    cgroups: HashMap<MapData, u64, u8>,
    process_walks: ProcessWalkTable,
    readmission: Readmission,
    /// When every program knows what it is told.
    pub(super) grace: GracePeriods,
    /// Marks have gaps between them, so what is not walked is stood for by what is.
    has_gaps: bool,
}

impl TargetControl {
    /// Nobody, and the programs do nothing until [`TargetControl::name`].
    ///
    /// # Errors
    /// [`StartError::Map`] if a map is missing, [`StartError::Thread`].
    pub(super) fn new(maps: &mut Maps<'_>, settings: &KernelSettings) -> Result<Self, StartError> {
        Ok(Self {
            control: ControlElement::new(maps, settings.system_calls)?,
            pids: maps.typed("TARGET_PIDS")?,
            comms: maps.typed("TARGET_COMMS")?,
            cgroups: maps.typed("TARGET_CGROUPS")?,
            process_walks: ProcessWalkTable::new(maps)?,
            readmission: Readmission::default(),
            grace: GracePeriods::start().map_err(StartError::Thread)?,
            has_gaps: settings.min_interval_ns != 0,
        })
    }

    /// Replaces the targets, and has the programs work from now on: threads that are born are
    /// evaluated by these targets, and so are their children. [`TargetControl::evaluate_anew`] does
    /// the rest: before it, all others are what they were.
    ///
    /// # Errors
    /// [`TargetError`]; the targets are then partly replaced, and setting them again is safe.
    pub fn name(&mut self, targets: &NamedTargets) -> Result<(), TargetError> {
        let groups = groups(&targets.cgroups, MissingGroup::Refused)?;
        replace(
            &mut self.pids,
            targets.pids.iter().copied().collect(),
            PROCESSES,
        )?;
        let comms = targets.comms.iter().map(|comm| padded(comm)).collect();
        replace(&mut self.comms, comms, "names")?;
        replace(&mut self.cgroups, groups, GROUPS)?;
        let control = &mut self.control.value;
        control.all = u32::from(targets.all);
        control.children = u32::from(targets.children);
        control.enabled = 1;
        self.control.write()?;
        Ok(())
    }

    /// Adds processes to the targets, and says how many of them were none yet: not named, and not
    /// added by the programs.
    ///
    /// # Errors
    /// [`TargetError::Full`], [`TargetError::Table`]; those before it are then added.
    pub fn add_processes(&mut self, pids: &[u32]) -> Result<usize, TargetError> {
        let refused = |cause| TargetError::table(PROCESSES, cause);
        let mut added = 0;
        for pid in pids {
            match self.pids.get(pid, 0) {
                Ok(_) => {}
                Err(MapError::KeyNotFound) => {
                    let inserted = self.pids.insert(pid, 0, 0);
                    inserted.map_err(refused)?;
                    added += 1;
                }
                Err(error) => return Err(refused(error)),
            }
        }
        Ok(added)
    }

    /// Looks at the groups below the named ones again: threads move, and groups are made and
    /// removed. A named one that is gone is a target again when there is one of its name.
    ///
    /// # Errors
    /// [`TargetError`], but not for a group that is gone.
    pub fn refresh_groups(
        &mut self,
        paths: &[String],
        programs: &mut Programs,
    ) -> Result<(), TargetError> {
        if paths.is_empty() {
            return Ok(());
        }
        let groups = groups(paths, MissingGroup::LeftOut)?;
        replace(&mut self.cgroups, groups, GROUPS)?;
        self.evaluate_anew(programs)?;
        Ok(())
    }

    /// Has every thread evaluated anew: at its next event, and the sleeping ones at once.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses.
    pub fn evaluate_anew(&mut self, programs: &mut Programs) -> Result<(), StartError> {
        self.control.next_generation();
        self.scan_tasks(scanning::ALL, programs)
    }

    /// Has every thread evaluated that has not evaluated itself yet, of those that are meant
    /// (`records::scanning`): also those that never run again. New ones begin in the class they are
    /// in.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses.
    pub(super) fn scan_tasks(
        &mut self,
        which: u32,
        programs: &mut Programs,
    ) -> Result<(), StartError> {
        self.control.value.scanning = which;
        self.control.write()?;
        // Then every event knows that there is a scan, and which targets it is for.
        let scanned = if self.grace.wait(self.grace.begin(), LONGEST_GRACE_PERIOD) {
            // The iteration is the reading; the programs write nothing into it.
            programs.iterate("seed", None, &mut io::sink(), u64::MAX)
        } else {
            Err(StartError::NoGracePeriod(LONGEST_GRACE_PERIOD))
        };
        self.control.value.scanning = scanning::NO;
        self.control.write()?;
        scanned
    }

    /// A pass is over, which has given back `freed` records. Threads that were turned away for want
    /// of one get another chance once there are some again, those that are not known are made
    /// known, and those whose process has another name now are evaluated by it. Where that fails it
    /// is tried again at a later pass: what this one has taken out of the maps is not lost.
    pub(super) fn readmit(&mut self, pass: &Pass, freed: usize, programs: &mut Programs) {
        let count = |counter: Counter| pass.counters.get(counter as usize).copied().unwrap_or(0);
        let counted = ReadmissionCounts {
            turned_away: count(Counter::ThreadsNoRecord),
            late: count(Counter::ThreadsLate),
            renamed: count(Counter::LeadersRenamed),
        };
        if self.readmission.pass(pass.at_ns, counted, freed)
            && let Err(error) = self.evaluate_anew(programs)
        {
            warn!("threads cannot be evaluated anew, and are in a second: {error}");
            self.readmission.again();
        }
    }

    /// Are system calls traced now, for those threads for which they may be?
    #[must_use]
    pub const fn calls_are_traced(&self) -> bool {
        self.control.value.system_calls != system_calls::OFF
    }

    /// Has system calls traced from now on, whose says a number of [`system_calls`], by each thread
    /// when it comes: every thread that finds the new generation finds whose calls are traced.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses.
    pub(super) fn trace_calls(&mut self, whose: u32) -> Result<(), StartError> {
        self.control.value.system_calls = whose;
        self.control.write()?;
        self.control.next_generation();
        self.control.write()
    }

    /// Bounds what walks may cost; `None`: they are not bounded.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses.
    pub fn bound_walks(&mut self, parts: Option<WalkParts>) -> Result<(), StartError> {
        let units = |part: f64| ((part.clamp(0.0, 1.0) * WHOLE_SHARE as f64) as u32).max(1);
        // Without gaps, every nanosecond is its stack's: there is nothing that other walks could
        // stand for.
        let bound = parts.filter(|_| self.has_gaps);
        self.control.value.walks = bound.map_or_else(WalkShares::default, |parts| WalkShares {
            others: units(parts.others),
            ticks: units(parts.ticks),
        });
        self.control.write()
    }

    /// What may be spent on walks of processes, which the programs keep to; `None` where there is
    /// nothing that other walks could stand for.
    pub fn process_walks(&mut self) -> Option<&mut ProcessWalkTable> {
        self.has_gaps.then_some(&mut self.process_walks)
    }

    /// Whether the instrumentation of this bit measures all processes, and the children of those
    /// that it measures.
    ///
    /// # Errors
    /// [`StartError::Map`] if the kernel refuses.
    pub(super) fn measure(
        &mut self,
        bit: u32,
        all: bool,
        children: bool,
    ) -> Result<(), StartError> {
        let with = |mask: u32, on: bool| if on { mask | bit } else { mask & !bit };
        let control = &mut self.control.value;
        control.measured_all = with(control.measured_all, all);
        control.measured_children = with(control.measured_children, children);
        self.control.write()
    }
}

/// What [`TargetError`] calls the tables.
const PROCESSES: &str = "processes";
const GROUPS: &str = "control groups";

fn replace<K: Pod + Ord>(
    map: &mut HashMap<MapData, K, u8>,
    wanted: BTreeSet<K>,
    kind: &'static str,
) -> Result<(), TargetError> {
    let refused = |cause| TargetError::table(kind, cause);
    let present: Vec<K> = map.keys().collect::<Result<_, _>>().map_err(refused)?;
    for key in present.iter().filter(|key| !wanted.contains(key)) {
        // A program may have removed it meanwhile (a process that exited).
        match map.remove(key) {
            Ok(()) | Err(MapError::KeyNotFound) => {}
            Err(error) => return Err(refused(error)),
        }
    }
    for key in wanted {
        map.insert(key, 0, 0).map_err(refused)?;
    }
    Ok(())
}

fn padded(comm: &[u8]) -> [u8; COMM_BYTES] {
    let mut padded = [0; COMM_BYTES];
    let len = comm.len().min(COMM_BYTES - 1);
    padded[..len].copy_from_slice(&comm[..len]);
    padded
}

/// What a named group that does not exist is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MissingGroup {
    /// A mistake.
    Refused,
    /// One without members.
    LeftOut,
}

/// The ids of the named groups of this machine and of all below them.
fn groups(paths: &[String], missing: MissingGroup) -> Result<BTreeSet<u64>, TargetError> {
    if paths.is_empty() {
        return Ok(BTreeSet::new());
    }
    group_ids(&group_root(&GROUP_ROOTS)?, paths, missing)
}

/// The ids of the named groups below `root` and of all below them: a group's id is the inode of its
/// directory.
fn group_ids(
    root: &Path,
    paths: &[String],
    missing: MissingGroup,
) -> Result<BTreeSet<u64>, TargetError> {
    let mut ids = BTreeSet::new();
    for path in paths {
        let no_group = || TargetError::NoGroup {
            path: path.clone(),
            root: root.display().to_string(),
        };
        // Nothing outside the group file system, whatever the path says.
        if path.split('/').any(|part| part == "..") {
            return Err(no_group());
        }
        let named = root.join(path.trim_start_matches('/'));
        let mut waiting = vec![named.clone()];
        while let Some(directory) = waiting.pop() {
            match fs::symlink_metadata(&directory) {
                Ok(metadata) if metadata.is_dir() => {
                    ids.insert(metadata.ino());
                }
                _ if directory == named && missing == MissingGroup::Refused => {
                    return Err(no_group());
                }
                _ => continue,
            }
            if ids.len() >= MAX_TARGET_CGROUPS as usize {
                return Err(TargetError::TooManyGroups);
            }
            // A group that vanishes while it is read has no members.
            for entry in fs::read_dir(&directory).into_iter().flatten().flatten() {
                if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                    waiting.push(entry.path());
                }
            }
        }
    }
    Ok(ids)
}

/// Where groups of version 2 are mounted: alone, or beside those of version 1.
const GROUP_ROOTS: [&str; 2] = ["/sys/fs/cgroup", "/sys/fs/cgroup/unified"];

/// The first of these folders that holds groups of version 2. Those of version 1 have numbers of
/// their own, which would be those of other groups of version 2.
fn group_root(roots: &[&str]) -> Result<PathBuf, TargetError> {
    let root = roots
        .iter()
        .map(Path::new)
        .find(|root| cgroup::is_version_2(root));
    root.map(Path::to_path_buf).ok_or_else(|| {
        let last = roots.last().copied().unwrap_or_default();
        TargetError::NoVersion2(roots.join(" and "), last.to_owned())
    })
}

/// Where this machine's control groups of version 2 are; `None`: there are none, and groups cannot
/// be targets.
#[must_use]
pub fn control_groups() -> Option<PathBuf> {
    group_root(&GROUP_ROOTS).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_version_1_are_refused_by_name() {
        // Check that folders that hold groups of another version, or none, are no place for groups,
        // that the refusal names them and what to do, that nothing is refused to whoever names no
        // group, and that a real hierarchy of version 2 is found behind them.
        let version_1 = tempfile::tempdir().expect("a temporary directory");
        fs::create_dir(version_1.path().join("memory")).expect("a directory can be made");
        let version_1 = version_1.path().to_str().expect("text").to_owned();
        let roots = [version_1.as_str(), "/nowhere"];
        let refused = group_root(&roots).expect_err("no groups of version 2");
        let sentence = refused.to_string();
        assert!(
            sentence.contains(&format!(
                "{version_1} and /nowhere are no hierarchy of version 2"
            )),
            "{sentence}"
        );
        assert!(groups(&[], MissingGroup::Refused).is_ok_and(|ids| ids.is_empty()));
        if let Some(real) = control_groups() {
            assert!(real.join("cgroup.procs").exists());
            let root = group_root(&[version_1.as_str(), real.to_str().expect("text")]);
            assert_eq!(root.expect("the last one is of version 2"), real);
        }
    }

    #[test]
    fn a_group_that_is_gone_takes_no_other_with_it() {
        // Check that a named group that does not exist is refused when it is named, and later left
        // out: the others, with the groups made below them since, stay targets.
        let root = tempfile::tempdir().expect("a temporary directory");
        let make = |path: &str| {
            let directory = root.path().join(path);
            fs::create_dir_all(&directory).expect("a directory can be made");
            fs::symlink_metadata(&directory).expect("it is there").ino()
        };
        let paths = ["/a".to_owned(), "/b".to_owned()];
        let (a, b) = (make("a"), make("b"));
        let both = group_ids(root.path(), &paths, MissingGroup::Refused).expect("both exist");
        assert_eq!(both, BTreeSet::from([a, b]));
        fs::remove_dir(root.path().join("a")).expect("an empty directory can be removed");
        let new = make("b/new");
        let left = group_ids(root.path(), &paths, MissingGroup::LeftOut)
            .expect("what is gone is left out");
        assert_eq!(left, BTreeSet::from([b, new]));
        let refused = group_ids(root.path(), &paths, MissingGroup::Refused);
        assert!(
            matches!(&refused, Err(TargetError::NoGroup { path, .. }) if path == "/a"),
            "{refused:?}"
        );
        for missing in [MissingGroup::Refused, MissingGroup::LeftOut] {
            let outside = group_ids(root.path(), &["/b/../..".to_owned()], missing);
            assert!(outside.is_err(), "nothing outside the group file system");
        }
    }
}
