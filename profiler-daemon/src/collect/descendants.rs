//! Processes that descend from the named targets: those that live already. What a target forks, the
//! programs make a target.

use std::collections::{HashMap, HashSet};

use tracing::warn;

use super::command::TargetsRefused;
use crate::kernel::TargetControl;
use crate::sys::proc_fs;

/// Each reading finds what was forked during the one before; this is far more than that ever takes.
const READINGS: usize = 16;

/// Makes the living descendants of `pids`, which are targets already, targets too.
///
/// A process that is not known as a target yet may fork meanwhile, so the list of processes is read
/// again until it shows nobody new: then all parents in it were targets before it was read, and the
/// programs have seen to what these fork.
pub(super) fn add(targets: &mut TargetControl, pids: &[u32]) -> Result<(), TargetsRefused> {
    for _ in 0..READINGS {
        let parents = parents().map_err(TargetsRefused::Unlisted)?;
        let added = targets.add_processes(&descendants(&parents, pids))?;
        if added == 0 {
            return Ok(());
        }
    }
    warn!("processes fork so fast that some descendants of the targets may not be targets");
    Ok(())
}

/// The living descendants of `pids`, without these; those that are forked meanwhile may be missing.
pub(super) fn of(pids: &[u32]) -> Vec<u32> {
    match parents() {
        Ok(parents) => descendants(&parents, pids),
        Err(error) => {
            warn!("cannot list processes: {error}");
            Vec::new()
        }
    }
}

/// The parent of each process.
fn parents() -> std::io::Result<HashMap<u32, u32>> {
    let pids = proc_fs::pids()?.into_iter();
    Ok(pids
        .filter_map(|pid| Some((pid, proc_fs::stat(pid)?.ppid)))
        .collect())
}

/// Who descends from `pids`, without these: parents before their children.
fn descendants(parents: &HashMap<u32, u32>, pids: &[u32]) -> Vec<u32> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for (pid, parent) in parents {
        children.entry(*parent).or_default().push(*pid);
    }
    let mut known: HashSet<u32> = pids.iter().copied().collect();
    let mut found = pids.to_vec();
    let mut at = 0;
    while let Some(parent) = found.get(at) {
        let new = children.get(parent).into_iter().flatten().copied();
        let new: Vec<u32> = new.filter(|pid| known.insert(*pid)).collect();
        found.extend(new);
        at += 1;
    }
    found.split_off(pids.len())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descendants_are_found_to_the_last() {
        // Check that children and their children are found, each once and after its parent, and
        // nobody else; also where the list, which was not read at one moment, has a circle.
        let parents = HashMap::from([(1, 0), (2, 1), (3, 2), (4, 3), (5, 1), (6, 7), (7, 6)]);
        assert_eq!(descendants(&parents, &[2]), [3, 4]);
        assert_eq!(descendants(&parents, &[3, 2]), [4]);
        assert_eq!(descendants(&parents, &[6]), [7]);
        assert_eq!(descendants(&parents, &[4, 5, 9]), Vec::<u32>::new());
        let mut all = descendants(&parents, &[1]);
        assert!(all.iter().position(|pid| *pid == 3) < all.iter().position(|pid| *pid == 4));
        all.sort_unstable();
        assert_eq!(all, [2, 3, 4, 5]);
    }
}
