//! Who is profiled, as the programs read it. Names are turned into what the kernel compares: ids, padded names, group ids.

use std::collections::BTreeSet;
use std::ffi::CString;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aya::Pod;
use aya::maps::{HashMap, MapData, MapError};
use profiler_common::limits::{COMM_BYTES, MAX_TARGET_CGROUPS};
use profiler_common::records::scanning;
use thiserror::Error;

use super::load::Kernel;
use super::refusal::StartError;

/// Why targets cannot be set.
#[derive(Debug, Error)]
pub enum TargetError {
    /// A table of the kernel side is full.
    #[error("too many targets: the kernel side takes no more {kind} ({reason})")]
    Full {
        /// Which table.
        kind: &'static str,
        /// What the kernel says.
        reason: String,
    },
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

/// The three tables the programs look names up in.
pub(super) struct TargetMaps {
    pids: HashMap<MapData, u32, u8>,
    comms: HashMap<MapData, [u8; COMM_BYTES], u8>,
    cgroups: HashMap<MapData, u64, u8>,
}

impl TargetMaps {
    pub(super) const fn new(
        pids: HashMap<MapData, u32, u8>,
        comms: HashMap<MapData, [u8; COMM_BYTES], u8>,
        cgroups: HashMap<MapData, u64, u8>,
    ) -> Self {
        Self {
            pids,
            comms,
            cgroups,
        }
    }
}

impl Kernel {
    /// Replaces the targets, and has the programs work from now on: threads that are born are judged by these targets, and so are their
    /// children. [`Kernel::judge_anew`] does the rest: before it, all others are what they were.
    ///
    /// # Errors
    /// [`TargetError`]; the targets are then partly replaced, and setting them again is safe.
    pub fn name_targets(&mut self, targets: &NamedTargets) -> Result<(), TargetError> {
        let groups = groups(&targets.cgroups, Missing::Refused)?;
        replace(
            &mut self.targets.pids,
            targets.pids.iter().copied().collect(),
            PROCESSES,
        )?;
        let comms = targets.comms.iter().map(|comm| padded(comm)).collect();
        replace(&mut self.targets.comms, comms, "names")?;
        replace(&mut self.targets.cgroups, groups, GROUPS)?;
        self.control_value.all = u32::from(targets.all);
        self.control_value.children = u32::from(targets.children);
        self.control_value.enabled = 1;
        self.write_control()?;
        Ok(())
    }

    /// Adds processes to the targets, and says how many of them were none yet: not named, and not added by the programs.
    ///
    /// # Errors
    /// [`TargetError::Full`]; those before it are then added.
    pub fn add_target_processes(&mut self, pids: &[u32]) -> Result<usize, TargetError> {
        let mut added = 0;
        for pid in pids {
            match self.targets.pids.get(pid, 0) {
                Ok(_) => {}
                Err(MapError::KeyNotFound) => {
                    let inserted = self.targets.pids.insert(pid, 0, 0);
                    inserted.map_err(|error| full(PROCESSES, &error))?;
                    added += 1;
                }
                Err(error) => return Err(full(PROCESSES, &error)),
            }
        }
        Ok(added)
    }

    /// Looks at the groups below the named ones again: threads move, and groups are made and removed. A named one that is gone is
    /// a target again when there is one of its name.
    ///
    /// # Errors
    /// [`TargetError`], but not for a group that is gone.
    pub fn refresh_groups(&mut self, paths: &[String]) -> Result<(), TargetError> {
        if paths.is_empty() {
            return Ok(());
        }
        let groups = groups(paths, Missing::LeftOut)?;
        replace(&mut self.targets.cgroups, groups, GROUPS)?;
        self.judge_anew()?;
        Ok(())
    }

    /// Has every thread judged anew: at its next event, and the sleeping ones at once.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses.
    pub fn judge_anew(&mut self) -> Result<(), StartError> {
        self.next_generation();
        self.scan_tasks(scanning::ALL)
    }
}

/// What [`TargetError::Full`] calls the tables.
const PROCESSES: &str = "processes";
const GROUPS: &str = "control groups";

fn full(kind: &'static str, error: &MapError) -> TargetError {
    TargetError::Full {
        kind,
        reason: super::refusal::chain(error),
    }
}

fn replace<K: Pod + Ord>(
    map: &mut HashMap<MapData, K, u8>,
    wanted: BTreeSet<K>,
    kind: &'static str,
) -> Result<(), TargetError> {
    let full = |error: MapError| full(kind, &error);
    let present: Vec<K> = map.keys().collect::<Result<_, _>>().map_err(full)?;
    for key in present.iter().filter(|key| !wanted.contains(key)) {
        // A program may have removed it meanwhile (a process that exited).
        if let Err(error) = map.remove(key)
            && !matches!(error, MapError::KeyNotFound)
        {
            tracing::debug!("a target was gone already: {error}");
        }
    }
    for key in wanted {
        map.insert(key, 0, 0).map_err(full)?;
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
enum Missing {
    /// A mistake.
    Refused,
    /// One without members.
    LeftOut,
}

/// The ids of the named groups of this machine and of all below them.
fn groups(paths: &[String], missing: Missing) -> Result<BTreeSet<u64>, TargetError> {
    if paths.is_empty() {
        return Ok(BTreeSet::new());
    }
    group_ids(&group_root(&GROUP_ROOTS)?, paths, missing)
}

/// The ids of the named groups below `root` and of all below them: a group's id is the inode of its directory.
fn group_ids(
    root: &Path,
    paths: &[String],
    missing: Missing,
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
                _ if directory == named && missing == Missing::Refused => return Err(no_group()),
                _ => continue,
            }
            if ids.len() >= MAX_TARGET_CGROUPS as usize {
                return Err(TargetError::Full {
                    kind: GROUPS,
                    reason: format!("{MAX_TARGET_CGROUPS} is the limit"),
                });
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

/// The first of these folders that holds groups of version 2. Those of version 1 have numbers of their own, which would be those of
/// other groups of version 2.
fn group_root(roots: &[&str]) -> Result<PathBuf, TargetError> {
    let root = roots.iter().map(Path::new).find(|root| is_version_2(root));
    root.map(Path::to_path_buf).ok_or_else(|| {
        let last = roots.last().copied().unwrap_or_default();
        TargetError::NoVersion2(roots.join(" and "), last.to_owned())
    })
}

fn is_version_2(folder: &Path) -> bool {
    let Ok(path) = CString::new(folder.as_os_str().as_bytes()) else {
        return false;
    };
    let mut about = std::mem::MaybeUninit::<libc::statfs>::uninit();
    // SAFETY: a terminated path, and room for the answer.
    let result = unsafe { libc::statfs(path.as_ptr(), about.as_mut_ptr()) };
    // SAFETY: the call has filled it in.
    result == 0 && unsafe { about.assume_init() }.f_type == libc::CGROUP2_SUPER_MAGIC
}

/// Where this machine's control groups of version 2 are; `None`: there are none, and groups cannot be targets.
#[must_use]
pub fn control_groups() -> Option<PathBuf> {
    group_root(&GROUP_ROOTS).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_of_version_1_are_refused_by_name() {
        // Check that folders that hold groups of another version, or none, are no place for groups, that the refusal names them and what to
        // do, that nothing is refused to whoever names no group, and that a real hierarchy of version 2 is found behind them.
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
        assert!(groups(&[], Missing::Refused).is_ok_and(|ids| ids.is_empty()));
        if let Some(real) = control_groups() {
            assert!(real.join("cgroup.procs").exists());
            let root = group_root(&[version_1.as_str(), real.to_str().expect("text")]);
            assert_eq!(root.expect("the last one is of version 2"), real);
        }
    }

    #[test]
    fn a_group_that_is_gone_takes_no_other_with_it() {
        // Check that a named group that does not exist is refused when it is named, and later left out: the others, with the groups
        // made below them since, stay targets.
        let root = tempfile::tempdir().expect("a temporary directory");
        let make = |path: &str| {
            let directory = root.path().join(path);
            fs::create_dir_all(&directory).expect("a directory can be made");
            fs::symlink_metadata(&directory).expect("it is there").ino()
        };
        let paths = ["/a".to_owned(), "/b".to_owned()];
        let (a, b) = (make("a"), make("b"));
        let both = group_ids(root.path(), &paths, Missing::Refused).expect("both exist");
        assert_eq!(both, BTreeSet::from([a, b]));
        fs::remove_dir(root.path().join("a")).expect("an empty directory can be removed");
        let new = make("b/new");
        let left =
            group_ids(root.path(), &paths, Missing::LeftOut).expect("what is gone is left out");
        assert_eq!(left, BTreeSet::from([b, new]));
        let refused = group_ids(root.path(), &paths, Missing::Refused);
        assert!(
            matches!(&refused, Err(TargetError::NoGroup { path, .. }) if path == "/a"),
            "{refused:?}"
        );
        for missing in [Missing::Refused, Missing::LeftOut] {
            let outside = group_ids(root.path(), &["/b/../..".to_owned()], missing);
            assert!(outside.is_err(), "nothing outside the group file system");
        }
    }
}
