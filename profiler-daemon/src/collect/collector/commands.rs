//! What the collector is asked, and answers.

use std::sync::Arc;

use crate::config::targets::Targets;
use crate::processes::files::OpenModule;
use crate::profile::sessions::{SessionChange, SessionChanged};
use crate::profile::snapshot::Snapshot;
use crate::sys::clock::monotonic_ns;
use crate::sys::perf_event::SideBand;

use super::super::command::{Command, SessionUnchanged, TargetsRefused, reply};
use super::super::state::CollectorState;
use super::super::targets;
use super::super::unwinding_state::UnwindingState;
use super::{Collector, LONG_PATIENCE_NS, PATIENCE_NS};

impl Collector {
    pub(super) fn obey(&mut self, command: Command) {
        match command {
            Command::Snapshot { max_age_ns, answer } => reply(answer, || self.snapshot(max_age_ns)),
            Command::Files { modules, answer } => reply(answer, || {
                let processes = &mut self.processes;
                modules
                    .into_iter()
                    .filter_map(|module| {
                        let file = processes.file(module)?;
                        let seen = processes.seen(module);
                        Some((module, OpenModule { file, seen }))
                    })
                    .collect()
            }),
            Command::SetTargets { targets, answer } => {
                reply(answer, || self.set_targets(targets));
                // Threads that sleep are targets now, and have no stack yet.
                self.pass(PATIENCE_NS);
                self.look_from_outside();
            }
            Command::ChangeSession { change, answer } => {
                reply(answer, || self.change_session(change));
            }
            Command::Instrumentation(command) => {
                command.tells_calls().then(|| self.pass(PATIENCE_NS));
                let (kernel, processes) = (&mut self.kernel, &self.processes);
                let begins = self.measuring.obey(kernel, processes, command);
                begins.then(|| self.pass(PATIENCE_NS));
            }
            Command::State { answer } => reply(answer, || self.state()),
            Command::Stop => {} // Handled where the loop can end.
        }
    }

    fn snapshot(&mut self, max_age_ns: u64) -> Arc<Snapshot> {
        let now_ns = monotonic_ns();
        self.asked_at_ns = now_ns;
        let last = self.last_pass.as_ref();
        // Without those that sleep it is no answer.
        let is_whole = last.is_some_and(|pass| !pass.is_partial);
        let is_old = last.is_none_or(|pass| now_ns.saturating_since(pass.at_ns) > max_age_ns);
        if !is_whole || (is_old && max_age_ns == 0) {
            self.pass(LONG_PATIENCE_NS);
        } else if is_old {
            self.pass(PATIENCE_NS);
        }
        let snapshot = &mut self.snapshot;
        Arc::clone(snapshot.get_or_insert_with(|| Arc::new(self.profile.snapshot())))
    }

    fn change_session(
        &mut self,
        change: SessionChange,
    ) -> Result<(SessionChanged, Arc<Snapshot>), SessionUnchanged> {
        self.profile.check_session(&change)?;
        let passes = self.passes;
        self.pass(LONG_PATIENCE_NS);
        if self.passes == passes {
            return Err(SessionUnchanged::NoPass);
        }
        let changed = self.profile.change_session(change)?;
        self.snapshot = None;
        Ok((changed, self.snapshot(u64::MAX)))
    }

    /// Sets targets that exist, all or none of them, and says so to whoever reads what is in force.
    fn set_targets(&mut self, targets: Targets) -> Result<Targets, TargetsRefused> {
        let before = self.targets.borrow().clone();
        targets::replace(&mut self.kernel, &targets, Some(&before))?;
        self.targets.send_replace(targets.clone());
        Ok(targets)
    }

    /// How unwinding stands; `None`: no tables are used.
    pub(super) fn unwinding_state(&self) -> Option<UnwindingState> {
        let maps = self.kernel.unwind.as_ref()?;
        Some(self.unwinding.as_ref()?.state(maps))
    }

    fn state(&self) -> CollectorState {
        let last = self.last_pass.as_ref();
        CollectorState {
            attached: self.kernel.attached(),
            without_ticks: self.kernel.ticks.without(),
            settings: self.kernel.settings().clone(),
            passes: self.passes,
            failures: self.failures,
            pass_waits_since_ns: self.begun_ns,
            busy_ns: self.busy_ns,
            counters: last.map(|pass| pass.counters.clone()).unwrap_or_default(),
            fill: last.map(|pass| pass.fill.to_vec()).unwrap_or_default(),
            maps: self.kernel.costs.maps().to_vec(),
            programs: self.spending.programs().clone(),
            side_band: self.side_band.as_ref().map(SideBand::counts),
            processes: self.processes.counts(),
            files: self.processes.file_counts(),
            threads: last.map_or(0, |pass| pass.threads),
            thread_time_ns: self.thread_time_ns,
            tables: self.tables.fills().to_vec(),
            tables_reported: self.tables.told(),
            memory: self.memory.clone(),
            stack_bytes: self.profile.stack_bytes(),
            recent_past_bytes: self.profile.recent_past_bytes(),
            losses: self.profile.own_losses(),
            unreadable: self.unreadable,
            walk_ends: last.map(|pass| pass.walk_ends.clone()).unwrap_or_default(),
            coverage: self.coverage.list(),
            unwinding: self.unwinding_state(),
            outside: self.outside.counts(),
            spending: self.spending.state(),
            measuring: self.measuring.counts(&self.kernel),
            files_without: self
                .unwinding
                .as_ref()
                .map(|unwinding| unwinding.files_without(&self.processes))
                .unwrap_or_default(),
        }
    }
}
