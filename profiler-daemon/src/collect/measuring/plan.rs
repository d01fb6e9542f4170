//! What is to be measured: functions with their points, of whom, and within which bounds.

use std::fs::File;
use std::sync::Arc;

use profiler_common::measured::{Condition, probe_kind};

use super::super::spanning::PlannedItem;
use super::attaching::points_of;
use crate::config::targets::Targets;
use crate::kernel::ProbeCosts;
use crate::units::{FileOffset, ModuleAddress};

/// A place to be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlannedPoint {
    /// Where, from the start of the file, bytes.
    pub offset: FileOffset,
    /// Whether the kernel executes the instruction out of its line.
    pub stepped: bool,
    /// When it leaves the function, if it is an exit.
    pub condition: Condition,
}

/// A function to be measured.
#[derive(Clone, Debug)]
pub struct PlannedFunction {
    /// Its name.
    pub name: String,
    /// Other names of the same code.
    pub aliases: Vec<String>,
    /// The file's path.
    pub module: Arc<str>,
    /// Where it begins, a virtual address of the file.
    pub address: ModuleAddress,
    /// The file.
    pub file: Arc<File>,
    /// Whether probes are in the memory of measured processes alone: the file is others' too.
    pub shared: bool,
    /// Where it is entered.
    pub entry: PlannedPoint,
    /// Where it is left; or why its calls are counted only.
    pub exits: Result<Vec<PlannedPoint>, String>,
    /// Whether its code jumps back to its entry, which is then hit without a call.
    pub loops: bool,
    /// Whether its calls are of goroutines, of which elapsed time alone is known: it is a function
    /// of Go.
    pub goroutines: bool,
}

impl PlannedFunction {
    /// How many points it is measured by.
    pub(super) fn points(&self) -> usize {
        1 + self.exits.as_ref().map_or(0, Vec::len)
    }

    /// What the probes of one call cost at most, nanoseconds.
    #[must_use]
    pub fn cost_ns(&self, costs: &ProbeCosts) -> f64 {
        let of_kind = |kind: usize| costs[kind].inside_ns + costs[kind].outside_ns;
        let points = points_of(1, 0, self).into_iter();
        let ends = points.filter(|point| point.cookie.exit || point.cookie.counted_only);
        let ends = ends.map(|point| of_kind(probe_kind(point.cookie)));
        // Without exits its calls never end, and cost what counting them does.
        ends.reduce(f64::max)
            .unwrap_or_else(|| of_kind(usize::from(self.entry.stepped)))
    }
}

/// A function that was meant and is not measured, or a file that was left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RefusedFunction {
    /// Its name; of a file what was meant of it, as it was written.
    pub name: String,
    /// The file's path.
    pub module: String,
    /// Why.
    pub why: String,
}

/// What is to be measured, of whom.
#[derive(Clone, Debug)]
pub struct Plan {
    /// What whoever asks calls it; may be empty.
    pub name: String,
    /// The processes, of those that are profiled.
    pub whom: Targets,
    /// The functions; none yet, where they are to be found later.
    pub functions: Vec<PlannedFunction>,
    /// Those that were meant and cannot be measured.
    pub refused: Vec<RefusedFunction>,
    /// The USDT points and spans.
    pub items: Vec<PlannedItem>,
    /// What was asked for and is in no file that is mapped yet, as it was written.
    pub missing: Vec<String>,
    /// Whether it is told where functions are called from.
    pub callers: bool,
    /// How much of one processor the probes may take from a process; 0 = any.
    pub budget: f64,
    /// When everything is detached by itself, nanoseconds from the beginning; `None`: never.
    pub length_ns: Option<u64>,
    /// Whether functions are first tried: entries alone are counted for a while, and what would
    /// cost too much is not measured. Calls are missed meanwhile.
    pub trial: bool,
}

/// More functions, USDT points and spans for an instrumentation that runs.
#[derive(Clone, Debug, Default)]
pub struct MoreFunctions {
    /// The functions.
    pub functions: Vec<PlannedFunction>,
    /// Those that were meant and cannot be measured.
    pub refused: Vec<RefusedFunction>,
    /// USDT points and spans, or more places of those that there are.
    pub items: Vec<PlannedItem>,
    /// What was asked for and is still in no file that is mapped.
    pub missing: Vec<String>,
}
