//! Where a measured function was called from.

use std::collections::{BTreeMap, BTreeSet};

use profiler_common::measured::CallerRow;
use serde::Serialize;

use super::{cost, total_ns};
use crate::collect::{MeasuredFunction, MeasuredFunctions};
use crate::kernel::ProbeCosts;
use crate::profile::frames::FrameId;
use crate::profile::snapshot::Snapshot;
use crate::report::names::Names;

/// The name of all callers beyond those that are told apart.
const OTHERS: &str = "[other callers]";

/// Calls of a measured function by one function that calls it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, utoipa::ToSchema)]
pub struct MeasuredCaller {
    /// The name of the calling function; `[other callers]`: of calls beyond the 64 places of a
    /// process that are told apart.
    pub function: String,
    /// Its file; empty for the others.
    pub module: String,
    /// Entries from there.
    pub calls: u64,
    /// Those that are complete, and during which no other call of the function was open in the
    /// thread: what the times are of.
    pub outermost: u64,
    /// From entry to exit, nanoseconds, less what probes took.
    pub elapsed_ns: u64,
    /// The part of it in user mode outside system calls; null of functions of Go.
    #[schema(required)]
    pub application_ns: Option<u64>,
}

/// The frames of callers: whoever reports on them names these first.
#[must_use]
pub fn caller_frames(all: &MeasuredFunctions) -> Vec<FrameId> {
    let frames = all
        .functions
        .iter()
        .flat_map(|function| function.callers.keys());
    let frames: BTreeSet<FrameId> = frames.copied().flatten().collect();
    frames.into_iter().collect()
}

/// The function that a frame is in, and its file.
#[must_use]
pub fn caller_name(snapshot: &Snapshot, names: &dyn Names, frame: FrameId) -> (String, String) {
    let module = snapshot.modules().share(snapshot.frame(frame).module);
    let function = names.function(frame);
    (function.name.to_string(), module.name.to_string())
}

/// Those of a measured function, by calling function, those with most time first.
pub(super) fn callers(
    of: &MeasuredFunction,
    name_of: &impl Fn(FrameId) -> (String, String),
    costs: &ProbeCosts,
) -> Vec<MeasuredCaller> {
    let mut by_function: BTreeMap<(String, String), CallerRow> = BTreeMap::new();
    for (frame, row) in &of.callers {
        let caller = match frame {
            Some(frame) => name_of(*frame),
            None => (OTHERS.to_owned(), String::new()),
        };
        by_function.entry(caller).or_default().merge(row);
    }
    let mut callers: Vec<MeasuredCaller> = by_function
        .into_iter()
        .filter(|(_, row)| row.calls > 0 || row.outermost > 0)
        .map(|((function, module), row)| {
            // They are user time, of which there may be less on a bad day.
            let probes_ns = (probes_ns(&row, costs) as u64).min(row.application_ns);
            MeasuredCaller {
                function,
                module,
                calls: row.calls,
                outermost: row.outermost,
                elapsed_ns: row.elapsed_ns.saturating_sub(probes_ns),
                application_ns: (!of.plan.goroutines).then_some(row.application_ns - probes_ns),
            }
        })
        .collect();
    callers.sort_by_key(|caller| std::cmp::Reverse((caller.elapsed_ns, caller.calls)));
    callers
}

/// What probes took within these calls.
fn probes_ns(row: &CallerRow, costs: &ProbeCosts) -> f64 {
    cost(&row.probes_outermost, |kind| costs[kind].inside_ns)
        + cost(&row.probes_below, |kind| total_ns(costs, kind))
}
