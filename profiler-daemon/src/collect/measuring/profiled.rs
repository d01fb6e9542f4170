//! What was measured, as the profile keeps it: functions by module and address, calls by process.

use std::collections::HashMap;
use std::sync::Arc;

use profiler_common::measured::MeasuredRow;

use super::spent::unseen;
use super::{Measuring, process_of};
use crate::processes::ids::ProcessKey;
use crate::processes::live::Processes;
use crate::processes::module::ModuleId;
use crate::profile::measured::{Calls, FunctionState, MeasuredCalls, ProbedFunction};
use crate::profile::sessions::At;
use crate::sys::clock::ClockOffsets;
use crate::units::MonoNs;

impl Measuring {
    /// What was measured up to the last pass. What has not changed since is shared.
    pub(in crate::collect) fn profiled(
        &mut self,
        processes: &mut Processes,
        offsets: ClockOffsets,
    ) -> MeasuredCalls {
        if self.functions.is_empty() {
            return MeasuredCalls::default();
        }
        self.count_again();
        let at = |ns: MonoNs| At {
            ns,
            unix_ns: offsets.unix_from_monotonic(ns),
        };
        let instrumentations = &self.instrumentations;
        let ended = |of: u32| {
            let one = instrumentations.get(&of)?;
            one.until_ns.filter(|_| !one.runs())
        };
        let functions = self.functions.iter_mut().filter_map(|(number, of)| {
            let plan = &of.plan;
            let function = of.profiled.get_or_insert_with(|| {
                Arc::new(ProbedFunction {
                    number: *number,
                    instrumentation: of.of.into(),
                    name: plan.name.as_str().into(),
                    aliases: plan
                        .aliases
                        .iter()
                        .map(|name| name.as_str().into())
                        .collect(),
                    module: processes.module_of_file(&plan.file, &plan.module),
                    address: plan.address,
                    counted_only: plan.exits.as_ref().err().map(|why| why.as_str().into()),
                    goroutines: plan.goroutines,
                    attached: at(of.attached_ns),
                })
            });
            // Where the table of modules has no room for its file, no row can have it.
            (function.module != ModuleId::UNKNOWN).then(|| FunctionState {
                function: Arc::clone(function),
                detached: of.detached_ns.or_else(|| ended(of.of)).map(at),
                gave_up: of
                    .gave_up
                    .clone()
                    .or_else(|| unseen(of.unseen_ns))
                    .map(Into::into),
                borders: (None, None),
            })
        });
        MeasuredCalls {
            functions: Arc::new(functions.collect()),
            costs: self.costs_by_instrumentation(),
            counted: Arc::clone(&self.counted),
        }
    }

    /// Adds up again what has changed since the last time.
    fn count_again(&mut self) {
        if self.changed.is_empty() {
            return;
        }
        let mut sums: HashMap<(u32, ProcessKey), MeasuredRow> = HashMap::new();
        for (key, row) in &self.living {
            let group = (key.function, process_of(key));
            if self.changed.contains(&group) {
                sums.entry(group).or_insert(MeasuredRow::EMPTY).merge(row);
            }
        }
        let counted = Arc::make_mut(&mut self.counted);
        for group in self.changed.drain() {
            let (number, process) = group;
            let Some(function) = self.functions.get(&number) else {
                continue;
            };
            let mut sum = sums.remove(&group);
            if let Some(ended) = function.ended.get(&process) {
                sum.get_or_insert(MeasuredRow::EMPTY).merge(ended);
            }
            // What a process had that finds no room for its own is with the others' now.
            match sum {
                Some(sum) => counted.insert(group, Arc::new(Calls::from(&sum))),
                None => counted.remove(&group),
            };
        }
    }
}
