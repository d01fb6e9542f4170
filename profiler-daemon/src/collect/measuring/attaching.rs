//! Attaches the probes of functions, and those of processes that come later.

use std::collections::HashSet;
use std::sync::Arc;

use profiler_common::measured::{Condition, Cookie};
use tracing::warn;

use super::plan::PlannedFunction;
use super::{Measuring, point_limits};
use crate::kernel::{FunctionProbes, Kernel, MeasureError, ProbePoint};
use crate::processes::live::Processes;
use crate::sys::clock::monotonic_ns;

impl Measuring {
    /// Processes that have come, or gone.
    pub(super) fn follow(&mut self, kernel: &mut Kernel, processes: &Processes) {
        let running = self.running().map(|(id, _)| id);
        for id in running.collect::<Vec<_>>() {
            let Some(one) = self.instrumentations.get_mut(&id) else {
                continue;
            };
            let (new, gone) = one.follow(kernel, processes);
            let slot = one.slot;
            for pid in gone {
                kernel.measured.detach_process(slot, pid);
            }
            if new.is_empty() || !FunctionProbes::tells_processes() {
                continue;
            }
            let functions = self.functions.iter();
            let functions = functions.filter(|(_, one)| one.of == id && one.gave_up.is_none());
            let functions = functions.map(|(number, one)| (*number, Arc::clone(&one.plan)));
            let tried = self.trials.iter().filter(|(_, tried)| tried.of == id);
            let tried = tried.map(|(number, tried)| (*number, tried.probed()));
            let shared = functions.chain(tried).filter(|(_, plan)| plan.shared);
            let shared: Vec<(u32, Arc<PlannedFunction>)> = shared.collect();
            if let Err(error) = self.attach(kernel, id, &shared, &new) {
                warn!("functions are not measured in processes {new:?}: {error}");
                if let Some(one) = self.instrumentations.get_mut(&id) {
                    one.trouble = Some(format!(
                        "functions are not measured in {} new processes: {error}",
                        new.len()
                    ));
                }
            }
        }
    }

    /// Attaches the probes of functions in all processes of their instrumentation.
    pub(super) fn attach_all(
        &self,
        kernel: &mut Kernel,
        id: u32,
        numbers: &[u32],
    ) -> Result<(), MeasureError> {
        let functions = numbers.iter().filter_map(|number| {
            let measured = self.functions.get(number);
            let measured = measured.map(|function| Arc::clone(&function.plan));
            let probed = measured.or_else(|| Some(self.trials.get(number)?.probed()));
            Some((*number, probed?))
        });
        let functions: Vec<(u32, Arc<PlannedFunction>)> = functions.collect();
        let Some(one) = self.instrumentations.get(&id) else {
            return Ok(());
        };
        let pids: Vec<u32> = one.processes.iter().copied().collect();
        self.attach(kernel, id, &functions, &pids)
    }

    /// Attaches the probes of these functions: in all memory that has their file, or in that of
    /// these processes.
    fn attach(
        &self,
        kernel: &mut Kernel,
        id: u32,
        functions: &[(u32, Arc<PlannedFunction>)],
        pids: &[u32],
    ) -> Result<(), MeasureError> {
        let Some(one) = self.instrumentations.get(&id) else {
            return Ok(());
        };
        for of_file in functions.chunk_by(|(_, a), (_, b)| Arc::ptr_eq(&a.file, &b.file)) {
            let points = of_file
                .iter()
                .flat_map(|(number, plan)| points_of(*number, one.slot, plan));
            let points: Vec<ProbePoint> = points.collect();
            let plan = &of_file[0].1;
            let places: Vec<Option<u32>> = if one.is_by_process(plan.shared) {
                pids.iter().copied().map(Some).collect()
            } else {
                vec![None]
            };
            point_limits::check(kernel, one.slot, points.len() * places.len())?;
            for pid in places {
                match kernel
                    .measured
                    .attach(&plan.file, &plan.module, &points, pid)
                {
                    // It has exited meanwhile.
                    Err(error) if error.is_no_process() && pid.is_some() => {}
                    attached => attached?,
                }
            }
        }
        Ok(())
    }

    /// Detaches functions, and forgets what the kernel side has of them.
    pub(super) fn drop_probes(&mut self, kernel: &mut Kernel, numbers: &HashSet<u32>) {
        let is_over = |function: u32| numbers.contains(&function);
        let interrupted = kernel.measured.detach_functions(is_over);
        self.interrupted(&interrupted, monotonic_ns());
        kernel
            .measured
            .remove(|_| false, |key| is_over(key.function));
        self.living.retain(|key, _| !is_over(key.function));
    }
}

/// The points of a function, as they are told to the kernel.
pub(super) fn points_of(
    number: u32,
    instrumentation: u8,
    plan: &PlannedFunction,
) -> Vec<ProbePoint> {
    let entry = Cookie {
        function: number,
        instrumentation,
        exit: false,
        stepped: plan.entry.stepped,
        entry_stepped: plan.entry.stepped,
        counted_only: plan.exits.is_err(),
        goroutines: plan.goroutines,
        loops: plan.loops,
        condition: Condition::ALWAYS,
    };
    let exits = plan.exits.iter().flatten().map(|exit| ProbePoint {
        offset: exit.offset,
        cookie: Cookie {
            exit: true,
            stepped: exit.stepped,
            condition: exit.condition,
            ..entry
        },
    });
    let entry = ProbePoint {
        offset: plan.entry.offset,
        cookie: entry,
    };
    std::iter::once(entry).chain(exits).collect()
}
