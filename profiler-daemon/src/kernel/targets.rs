//! Who is profiled, as the programs read it. Names are turned into what the kernel compares: ids, padded names, group ids.

use std::collections::BTreeSet;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use aya::Pod;
use aya::maps::{HashMap, MapData, MapError};
use profiler_common::limits::{COMM_BYTES, MAX_TARGET_CGROUPS};
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
    #[error("there is no control group {path} below {root}")]
    NoGroup {
        /// The path given.
        path: String,
        /// Where version 2 groups are mounted.
        root: String,
    },
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
    /// Replaces the targets, and judges every thread anew: at its next event, and the sleeping ones at once.
    ///
    /// # Errors
    /// [`TargetError`]; the targets are then partly replaced, and setting them again is safe.
    pub fn set_targets(&mut self, targets: &NamedTargets) -> Result<(), TargetError> {
        let groups = group_ids(&targets.cgroups)?;
        replace(
            &mut self.targets.pids,
            targets.pids.iter().copied().collect(),
            "processes",
        )?;
        let comms = targets.comms.iter().map(|comm| padded(comm)).collect();
        replace(&mut self.targets.comms, comms, "names")?;
        replace(&mut self.targets.cgroups, groups, "control groups")?;
        self.control_value.all = u32::from(targets.all);
        self.control_value.children = u32::from(targets.children);
        self.judge_anew()?;
        Ok(())
    }

    /// Looks at the groups below the named ones again: threads move, and groups are made. True if anything changed.
    ///
    /// # Errors
    /// As [`Kernel::set_targets`].
    pub fn refresh_groups(&mut self, paths: &[String]) -> Result<bool, TargetError> {
        if paths.is_empty() {
            return Ok(false);
        }
        replace(
            &mut self.targets.cgroups,
            group_ids(paths)?,
            "control groups",
        )?;
        self.judge_anew()?;
        Ok(true)
    }

    /// Has every thread judged anew.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses.
    pub fn judge_anew(&mut self) -> Result<(), StartError> {
        self.control_value.generation = self.control_value.generation.wrapping_add(1).max(1);
        if self.control_value.enabled != 0 {
            self.scan_tasks()
        } else {
            self.write_control()
        }
    }
}

fn replace<K: Pod + Ord>(
    map: &mut HashMap<MapData, K, u8>,
    wanted: BTreeSet<K>,
    kind: &'static str,
) -> Result<(), TargetError> {
    let full = |error: MapError| TargetError::Full {
        kind,
        reason: super::refusal::chain(&error),
    };
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

/// The ids of the named groups and of all below them: a group's id is the inode of its directory.
fn group_ids(paths: &[String]) -> Result<BTreeSet<u64>, TargetError> {
    let mut ids = BTreeSet::new();
    if paths.is_empty() {
        return Ok(ids);
    }
    let root = group_root();
    for path in paths {
        let missing = || TargetError::NoGroup {
            path: path.clone(),
            root: root.display().to_string(),
        };
        // Nothing outside the group file system, whatever the path says.
        if path.split('/').any(|part| part == "..") {
            return Err(missing());
        }
        let mut waiting = vec![root.join(path.trim_start_matches('/'))];
        let mut first = true;
        while let Some(directory) = waiting.pop() {
            match fs::symlink_metadata(&directory) {
                Ok(metadata) if metadata.is_dir() => {
                    ids.insert(metadata.ino());
                }
                _ if first => return Err(missing()),
                _ => continue,
            }
            first = false;
            if ids.len() >= MAX_TARGET_CGROUPS as usize {
                return Err(TargetError::Full {
                    kind: "control groups",
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

/// Where version 2 groups are mounted: alone, or beside version 1.
fn group_root() -> PathBuf {
    let unified = Path::new("/sys/fs/cgroup/unified");
    if unified.join("cgroup.procs").exists() {
        unified.to_path_buf()
    } else {
        PathBuf::from("/sys/fs/cgroup")
    }
}
