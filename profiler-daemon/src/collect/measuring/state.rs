//! What was measured, for whoever asks.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use profiler_common::measured::MeasuredRow;
use serde::{Deserialize, Serialize};

use super::super::callers::Callers;
use super::super::spanning::TracedItem;
use super::instrumentation::{InstrumentationState, Stage};
use super::plan::PlannedFunction;
use super::spent::unseen;
use super::{Measuring, process_of};
use crate::kernel::{Kernel, ProbeCosts};
use crate::processes::ids::ProcessKey;
use crate::processes::live::Processes;
use crate::sys::clock::monotonic_ns;
use crate::units::MonoNs;

/// A measured function, with its calls.
#[derive(Clone, Debug)]
pub struct MeasuredFunction {
    /// What was planned.
    pub plan: Arc<PlannedFunction>,
    /// When its probes were attached, monotonic nanoseconds.
    pub attached_ns: MonoNs,
    /// Why its probes were detached before the end.
    pub gave_up: Option<String>,
    /// That some of its calls were not seen, a sentence.
    pub unseen: Option<String>,
    /// Its calls by process.
    pub calls: BTreeMap<ProcessKey, MeasuredRow>,
    /// Where they were made.
    pub callers: Callers,
}

/// All that is measured.
#[derive(Clone, Debug, Default)]
pub struct MeasuredFunctions {
    /// The functions, in the order in which they were asked for.
    pub functions: Vec<MeasuredFunction>,
    /// USDT points and spans.
    pub items: Vec<TracedItem>,
    /// What probes cost.
    pub costs: ProbeCosts,
}

/// Functions that are measured exactly: `/api/v1/instrumentations` has more.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[schema(as = Measuring)]
pub struct MeasuringCounts {
    /// Instrumentations that run.
    pub running: usize,
    /// Points that are attached.
    pub points: usize,
    /// Functions that were given up because they cost too much, since the daemon started.
    pub given_up: u64,
}

impl Measuring {
    /// An instrumentation, with what was read up to now.
    pub(super) fn state(&self, kernel: &Kernel, id: u32) -> Option<InstrumentationState> {
        let one = self.instrumentations.get(&id)?;
        let mut callers = match one.callers {
            true => self.callers.of_functions(),
            false => HashMap::new(),
        };
        let of = self.functions.iter().filter(|(_, of)| of.of == id);
        let mut functions: BTreeMap<u32, MeasuredFunction> = of
            .map(|(number, function)| {
                let calls = function.ended.iter().map(|(key, row)| (*key, *row));
                let function = MeasuredFunction {
                    plan: Arc::clone(&function.plan),
                    attached_ns: function.attached_ns,
                    gave_up: function.gave_up.clone(),
                    unseen: unseen(function.unseen_ns),
                    calls: calls.collect(),
                    callers: callers.remove(number).unwrap_or_default(),
                };
                (*number, function)
            })
            .collect();
        for (key, row) in &self.living {
            if let Some(function) = functions.get_mut(&key.function) {
                let calls = function.calls.entry(process_of(key));
                calls.or_insert(MeasuredRow::EMPTY).merge(row);
            }
        }
        let tried = self.trials.values().filter(|tried| tried.of == id);
        let tried = tried.map(|tried| (tried.plan.name.clone(), tried.plan.module.to_string()));
        let tried: Vec<(String, String)> = tried.collect();
        let stage = match one.ended {
            Some(why) => Stage::Ended(why),
            None if !tried.is_empty() => Stage::Trial,
            None if functions.is_empty() && !one.spanning.is_probing() => Stage::Waiting,
            None => Stage::Measuring,
        };
        Some(InstrumentationState {
            id,
            name: one.name.clone(),
            whom: one.whom.clone(),
            stage,
            began_ns: one.began_ns,
            began_unix_ns: one.began_unix_ns,
            until_ns: one.until_ns,
            budget: one.budget,
            processes: one.processes.len(),
            points: if one.runs() {
                kernel.measured.points_of(one.slot) + kernel.spans.probed_by(one.slot)
            } else {
                0
            },
            refused: one.refused.clone(),
            missing: one.missing.clone(),
            tried,
            trouble: one.trouble.clone(),
            measured: MeasuredFunctions {
                functions: functions.into_values().collect(),
                items: one.spanning.state(monotonic_ns()),
                costs: one.costs.unwrap_or_else(|| self.costs()),
            },
        })
    }

    /// All instrumentations that are kept.
    pub(super) fn states(&self, kernel: &Kernel) -> Vec<InstrumentationState> {
        let all = self.instrumentations.keys();
        all.filter_map(|id| self.state(kernel, *id)).collect()
    }

    /// How it goes.
    pub(in super::super) fn counts(&self, kernel: &Kernel) -> MeasuringCounts {
        MeasuringCounts {
            running: self.running().count(),
            points: kernel.measured.points() + kernel.spans.probed(),
            given_up: self.given_up,
        }
    }

    /// The processes that an instrumentation measures, with what changes as they map files; `None`:
    /// it does not run.
    pub(super) fn processes(&self, processes: &Processes, id: u32) -> Option<Vec<(u32, u64)>> {
        let one = self.instrumentations.get(&id).filter(|one| one.runs())?;
        let living = processes.living();
        let its = living.filter(|living| one.whom.all || one.processes.contains(&living.pid));
        Some(its.map(|living| (living.pid, living.changes)).collect())
    }
}
