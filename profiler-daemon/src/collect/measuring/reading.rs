//! Reads what the programs have counted, and keeps what threads have left that are gone.

use profiler_common::measured::{MeasuredKey, MeasuredRow};

use super::departed::Departed;
use super::{AttachedFunction, FIRST_NUMBER, MAX_ENDED_ROWS, Measuring, OTHERS, process_of};
use crate::kernel::Kernel;

impl Measuring {
    /// Keeps what a thread, or a function's probes, counted to the end.
    pub(super) fn keep_ended(&mut self, key: &MeasuredKey, row: &MeasuredRow) {
        let process = process_of(key);
        let kept: usize = self.functions.values().map(|one| one.ended.len()).sum();
        let Some(function) = self.functions.get_mut(&key.function) else {
            return;
        };
        let has_room = kept < MAX_ENDED_ROWS || function.ended.contains_key(&process);
        let place = if has_room { process } else { OTHERS };
        self.changed.insert((key.function, process));
        self.changed.insert((key.function, place));
        let ended = function.ended.entry(place);
        ended.or_insert(MeasuredRow::EMPTY).merge(row);
    }

    /// Reads what was counted of the USDT points and spans of one that runs.
    pub(super) fn read_spans(&mut self, kernel: &mut Kernel, id: u32) {
        if let Some(one) = self.instrumentations.get_mut(&id).filter(|one| one.runs()) {
            one.spanning.pass(kernel, one.slot, &Departed::default());
        }
    }

    /// Reads what was counted, and adds to what the probes have cost since the budget was looked
    /// at: also those of calls that are only counted, or have no end, and of threads that are gone
    /// since.
    pub(super) fn read(&mut self, kernel: &mut Kernel) {
        let mut is_unknown = false;
        for (key, row) in kernel.measured.rows() {
            if key.function < FIRST_NUMBER {
                continue;
            }
            let function = self.functions.get(&key.function);
            let is_measured = function.is_some_and(|function| !function.is_over);
            if !is_measured && !self.trials.contains_key(&key.function) {
                // A call of it was open when it was detached.
                is_unknown = true;
                continue;
            }
            let has_exits = function.is_some_and(|function| function.plan.exits.is_ok());
            let hits = |row: &MeasuredRow| row.hits(has_exits);
            let before = self.living.insert(key, row);
            if is_measured && before != Some(row) {
                self.changed.insert((key.function, process_of(&key)));
            }
            let more = hits(&row).saturating_sub(before.as_ref().map_or(0, hits));
            if more > 0 && is_measured {
                *self
                    .spent
                    .entry((key.thread.pid, key.function))
                    .or_default() += more;
            }
        }
        if is_unknown {
            let (functions, trials) = (&self.functions, &self.trials);
            let is_over = |number| {
                let function: Option<&AttachedFunction> = functions.get(&number);
                function.is_none_or(|function| function.is_over) && !trials.contains_key(&number)
            };
            kernel
                .measured
                .remove(|_| false, |key| is_over(key.function));
        }
    }
}
