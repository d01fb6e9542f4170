//! How walks of user stacks ended, by executable: whether the profiler can unwind what runs here.

use std::collections::HashMap;
use std::sync::Arc;

use profiler_common::StackEnd;

use crate::processes::live::Processes;
use crate::profile::input::StackDelta;

/// Executables that are counted on their own; the walks of others are together under [`OTHER`].
const MAX_EXECUTABLES: usize = 512;
/// The rest.
const OTHER: &str = "other";

/// Walks of one executable.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WalkCounts {
    /// All.
    pub walked: u64,
    /// Ended at the thread's outermost frame.
    pub complete: u64,
    /// Ended at the bound on frames.
    pub truncated: u64,
}

/// Walks by executable, since the daemon started.
#[derive(Clone, Debug, Default)]
pub struct WalksByExecutable(HashMap<Arc<str>, WalkCounts>);

impl WalksByExecutable {
    /// Adds the walks of a pass.
    pub(super) fn pass(&mut self, stacks: &[StackDelta], processes: &mut Processes) {
        for stack in stacks {
            let info = processes.info(stack.process);
            let executable = info.as_ref().and_then(|info| info.facts.exe.as_ref());
            self.add(executable, stack.end, stack.primary.walks);
        }
    }

    /// Adds walks that ended so. Kernel threads have no user stack to walk, and are left out.
    fn add(&mut self, executable: Option<&Arc<str>>, end: StackEnd, walks: u64) {
        if end == StackEnd::None || walks == 0 {
            return;
        }
        let known = executable
            .filter(|name| self.0.len() < MAX_EXECUTABLES || self.0.contains_key(name.as_ref()));
        let name = known.cloned().unwrap_or_else(|| Arc::from(OTHER));
        let counts = self.0.entry(name).or_default();
        counts.walked += walks;
        match end {
            StackEnd::Complete => counts.complete += walks,
            StackEnd::TRUNCATED => counts.truncated += walks,
            StackEnd::None | StackEnd::Incomplete(_) => {}
        }
    }

    /// Executables and their walks, most walked first.
    #[must_use]
    pub fn list(&self) -> Vec<(Arc<str>, WalkCounts)> {
        let entries = self.0.iter();
        let mut list: Vec<_> = entries
            .map(|(name, counts)| (Arc::clone(name), *counts))
            .collect();
        list.sort_by(|(name, one), (other, two)| {
            two.walked.cmp(&one.walked).then_with(|| name.cmp(other))
        });
        list
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_common::unwind::UnwindFailure;

    #[test]
    fn walks_are_counted_where_they_belong() {
        // Check that ends are told apart, kernel threads left out, and that a crowd of executables
        // shares one row.
        let mut coverage = WalksByExecutable::default();
        let redis = Arc::from("/usr/bin/redis-server");
        coverage.add(Some(&redis), StackEnd::Complete, 90);
        coverage.add(Some(&redis), StackEnd::TRUNCATED, 7);
        coverage.add(
            Some(&redis),
            StackEnd::Incomplete(UnwindFailure::NoTable),
            3,
        );
        coverage.add(None, StackEnd::None, 5);
        let expected = WalkCounts {
            walked: 100,
            complete: 90,
            truncated: 7,
        };
        assert_eq!(coverage.list(), [(Arc::clone(&redis), expected)]);
        for number in 0..2 * MAX_EXECUTABLES {
            let name = Arc::from(number.to_string());
            coverage.add(Some(&name), StackEnd::Complete, 1);
        }
        coverage.add(Some(&redis), StackEnd::Complete, 1000);
        let list = coverage.list();
        assert_eq!(
            (&*list[0].0, list[0].1.walked),
            ("/usr/bin/redis-server", 1100)
        );
        assert_eq!(&*list[1].0, OTHER);
        assert_eq!(list.len(), MAX_EXECUTABLES + 1);
    }
}
