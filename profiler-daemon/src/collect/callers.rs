//! Where measured functions were called from: the places of return addresses, found while the
//! processes are known.

use std::collections::{BTreeMap, HashMap, HashSet};

use profiler_common::Phase;
use profiler_common::measured::{CallerKey, CallerRow, MAX_CALLERS, OTHER_CALLERS};

use crate::kernel::{FunctionProbes, Pass};
use crate::processes::ids::ProcessKey;
use crate::processes::live::Processes;
use crate::processes::module::ModuleId;
use crate::profile::frames::{Frame, FrameId, FrameTable, LiveFrames};
use crate::sys::proc_fs;
use crate::units::{BootNs, ModuleOffset, MonoNs, VirtualAddress};

/// Calls of one function by where they were made from; `None`: from further places.
pub type Callers = HashMap<Option<FrameId>, CallerRow>;

/// See the module.
#[derive(Default)]
pub(super) struct CallersOf {
    /// Of processes that live, as read last.
    living: HashMap<CallerKey, (Option<FrameId>, CallerRow)>,
    /// Of processes that are gone, by function.
    ended: HashMap<u32, Callers>,
    /// Processes of which a thread has ended: they may be gone.
    ending: HashSet<ProcessKey>,
}

impl CallersOf {
    /// Reads what was counted up to a pass whose processes are known. Functions that are not
    /// measured any more are forgotten. Returns processes that are gone.
    pub(super) fn pass(
        &mut self,
        measured: &mut FunctionProbes,
        pass: &Pass,
        is_measured: impl Fn(u32) -> bool,
        (processes, frames): (&mut Processes, &mut FrameTable),
    ) -> HashSet<ProcessKey> {
        // First: who is gone now is not heard of any more.
        let exited = pass.threads.iter();
        let exited = exited.filter(|thread| thread.phase == Phase::Exited);
        self.ending.extend(exited.map(|thread| ProcessKey {
            pid: thread.pid,
            start_ns: thread.process_start_boot_ns,
        }));
        let gone = self.ending.extract_if(|key| is_gone(*key));
        let gone: HashSet<ProcessKey> = gone.collect();
        for (key, row) in measured.callers() {
            let known = self.living.entry(key).or_default();
            known.1 = row;
            if known.0.is_none() && key.return_address != OTHER_CALLERS && row.first_ns != 0 {
                known.0 = Some(place(&key, MonoNs::new(row.first_ns), processes, frames));
            }
        }
        self.ended.retain(|function, _| is_measured(*function));
        let is_over =
            |key: &CallerKey| gone.contains(&process_of(key)) || !is_measured(key.function);
        let mut any = false;
        for (key, (frame, row)) in self.living.extract_if(|key, _| is_over(key)) {
            any = true;
            if is_measured(key.function) {
                add(self.ended.entry(key.function).or_default(), frame, &row);
            }
        }
        if any {
            measured.remove_callers(is_over);
        }
        gone
    }

    /// Each function's callers, of all processes: those with most calls, and all others together.
    pub(super) fn of_functions(&self) -> HashMap<u32, Callers> {
        let mut all = self.ended.clone();
        for (key, (frame, row)) in &self.living {
            add(all.entry(key.function).or_default(), *frame, row);
        }
        for callers in all.values_mut() {
            if callers.len() > MAX_CALLERS as usize {
                let by_calls: BTreeMap<(u64, FrameId), ()> = callers
                    .iter()
                    .filter_map(|(frame, row)| Some(((row.calls, (*frame)?), ())))
                    .collect();
                let rest = by_calls.into_keys().rev().skip(MAX_CALLERS as usize);
                for (_, frame) in rest {
                    if let Some(row) = callers.remove(&Some(frame)) {
                        add(callers, None, &row);
                    }
                }
            }
        }
        all
    }

    /// Marks the frames of all callers.
    pub(super) fn mark(&self, marks: &mut LiveFrames) {
        let living = self.living.values().filter_map(|(frame, _)| *frame);
        let ended = self.ended.values().flat_map(HashMap::keys).copied();
        living
            .chain(ended.flatten())
            .for_each(|frame| marks.keep(frame));
    }
}

fn add(callers: &mut Callers, frame: Option<FrameId>, row: &CallerRow) {
    callers.entry(frame).or_default().merge(row);
}

/// Where a call was made, by what was mapped at the first one.
fn place(
    key: &CallerKey,
    time_ns: MonoNs,
    processes: &mut Processes,
    frames: &mut FrameTable,
) -> FrameId {
    let process = process_of(key);
    // One less lies inside the call.
    let address = VirtualAddress::new(key.return_address.wrapping_sub(1));
    let frame = match processes.resolve(process, time_ns, address) {
        Some(place) => Frame {
            module: place.module,
            offset: place.offset,
        },
        None => Frame {
            module: ModuleId::UNKNOWN,
            offset: ModuleOffset::of_address(address),
        },
    };
    frames.intern_for(processes.owner(process), frame)
}

/// Is there no such process any more, not even one that waits for its parent?
fn is_gone(key: ProcessKey) -> bool {
    proc_fs::stat(key.pid).is_none_or(|stat| stat.start_ticks != key.start_ticks())
}

fn process_of(key: &CallerKey) -> ProcessKey {
    ProcessKey {
        pid: key.pid,
        start_ns: BootNs::new(key.process_start_boot_ns),
    }
}
