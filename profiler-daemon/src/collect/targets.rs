//! Which processes targets mean at this moment. Telling the kernel side is the collector's.

use crate::config::targets::Targets;
use crate::kernel::NamedTargets;
use crate::sys::proc_fs;

/// The processes that run: each number, and its parent's.
pub(super) struct Running(Vec<(u32, u32)>);

impl Running {
    /// Lists them.
    ///
    /// # Errors
    /// A sentence: `/proc` cannot be read.
    pub(super) fn list() -> Result<Self, String> {
        let pids = proc_fs::pids().map_err(|error| format!("cannot list processes: {error}"))?;
        let known = pids
            .into_iter()
            .filter_map(|pid| Some((pid, proc_fs::stat(pid)?.ppid)));
        Ok(Self(known.collect()))
    }

    /// A process that is named by number and does not run, if there is one.
    pub(super) fn missing(&self, targets: &Targets) -> Option<u32> {
        let mut pids = targets.pids.iter().copied();
        pids.find(|pid| !self.0.iter().any(|(known, _)| known == pid))
    }

    /// Targets as the kernel stage takes them: with the living descendants of named processes, where children count.
    pub(super) fn named(&self, targets: &Targets) -> NamedTargets {
        let mut pids = targets.pids.clone();
        let mut at = 0;
        while let Some(parent) = pids.get(at).copied().filter(|_| targets.children) {
            at += 1;
            let children = self.0.iter().filter(|(_, ppid)| *ppid == parent);
            let new: Vec<u32> = children
                .map(|(pid, _)| *pid)
                .filter(|pid| !pids.contains(pid))
                .collect();
            pids.extend(new);
        }
        let comms = targets.comms.iter();
        NamedTargets {
            all: targets.all,
            children: targets.children,
            pids,
            comms: comms.map(|comm| comm.clone().into_bytes()).collect(),
            cgroups: targets.cgroups.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Running;
    use crate::config::targets::Targets;

    // Check that living descendants belong to a named process only where children count, and that one that is missing is named.
    #[test]
    fn descendants() {
        let running = Running(vec![(1, 0), (10, 1), (12, 11), (11, 10), (20, 1)]);
        let named = |children| {
            let targets = Targets::only(vec![10], vec!["a".to_owned()], children).unwrap();
            running.named(&targets)
        };
        assert_eq!(named(false).pids, [10]);
        assert_eq!(named(true).pids, [10, 11, 12]);
        assert_eq!(named(true).comms, [b"a"]);
        let missing = |pids| running.missing(&Targets::only(pids, Vec::new(), true).unwrap());
        assert_eq!(
            (missing(vec![10, 20]), missing(vec![10, 21])),
            (None, Some(21))
        );
    }
}
