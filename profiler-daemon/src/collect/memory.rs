//! How much memory the collector's parts take, estimated from what they hold.

use crate::processes::live::Processes;
use crate::profile::Profile;

use super::stacks::StackCache;

/// A part of the daemon, as it is called in answers and metrics, and its memory in bytes.
pub type MemoryPart = (&'static str, u64);

fn size(bytes: usize) -> u64 {
    u64::try_from(bytes).unwrap_or(u64::MAX)
}

/// All parts as of a pass.
pub(super) fn of_pass(
    profile: &mut Profile,
    stacks: &StackCache,
    processes: &Processes,
) -> Vec<MemoryPart> {
    vec![
        ("call_trees", profile.stack_bytes()),
        ("recent_past", profile.recent_past_bytes()),
        ("process_rows", profile.row_bytes()),
        ("frames", size(profile.frames().held_bytes())),
        ("stacks", size(stacks.held_bytes())),
        ("modules", size(processes.modules().held_bytes())),
        ("mappings", size(processes.held_bytes())),
    ]
}
