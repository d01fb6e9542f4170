//! Housekeeping of `live`: ends that were not heard, mappings that must be read again, what may be
//! forgotten. Called once a pass with the time; asks `/proc` for a bounded number of processes each
//! time.

use std::{collections::HashSet, sync::Arc};

use super::{
    live::{MAX_GATHERS, MAX_REOPENINGS, Processes},
    mappings::KEEP_ENDED_NS,
    opening::Mappers,
    row_budget::RowBudget,
    shares::Shares,
};
use crate::sys::clock::{ClockOffsets, monotonic_ns};
use crate::units::MonoNs;

/// How long an ended process is kept for stacks walked before its end, nanoseconds.
const KEEP_EXITED_NS: u64 = KEEP_ENDED_NS;
/// How long an ended process is kept that the kernel side never retires, nanoseconds.
const KEEP_UNRETIRED_NS: u64 = 600_000_000_000;
/// Most processes whose mappings are read again in one pass.
const MAX_REREADS: usize = 32;
/// Time after which no other process is read again in this pass, nanoseconds.
const REREAD_NS: u64 = 100_000_000;
/// Shortest and longest wait between two such readings of one process, nanoseconds; it doubles each
/// time.
const REREAD_WAIT_NS: (u64, u64) = (1_000_000_000, 64_000_000_000);
/// Records lost were lost at most this long before the loss was noticed.
const LOSS_SPAN_NS: u64 = 1_000_000_000;

impl Processes {
    /// Reads again what may be incomplete, notices ends that were not heard, forgets what is long
    /// over. `clocks` are as they stand now: they part while the machine sleeps.
    pub fn sweep(&mut self, now_ns: MonoNs, clocks: ClockOffsets) {
        self.clocks = clocks;
        if let Some(since_ns) = self.lost_since_ns.take() {
            self.after_loss(since_ns.saturating_sub(LOSS_SPAN_NS), now_ns);
        }
        self.gathers_left = MAX_GATHERS;
        self.reopenings = Shares::new(MAX_REOPENINGS);
        self.mappers = self.mappers.take().and_then(Mappers::swept);
        self.look_at_leaderless(now_ns);
        self.reread(now_ns);
        self.forget(now_ns);
    }

    /// Records were lost: every process may have ended or mapped something, and new ones may be
    /// unknown.
    fn after_loss(&mut self, since_ns: MonoNs, now_ns: MonoNs) {
        let pids = self.source.pids();
        let listed: HashSet<u32> = pids.iter().copied().collect();
        for instance in self.instances.values_mut() {
            if instance.exited_ns.is_some() {
                // A lost exec by another thread than the first looks like the end of the process.
                let stat = listed
                    .contains(&instance.pid)
                    .then(|| self.source.stat(instance.pid))
                    .flatten();
                if stat.is_some_and(|stat| instance.is_listed(stat.start_ticks) && !stat.dead()) {
                    instance.exited_ns = None;
                    instance.leader_gone = false;
                    self.changed.insert(instance.pid);
                }
            }
            if instance.exited_ns.is_none() && listed.contains(&instance.pid) {
                instance.incomplete_since_ns = Some(
                    instance
                        .incomplete_since_ns
                        .unwrap_or(since_ns)
                        .min(since_ns),
                );
                instance.threaded = true;
                instance.reread_wait_ns = 0;
            } else if instance.exited_ns.is_none() {
                instance.exited_ns = Some(now_ns);
                self.changed.insert(instance.pid);
            }
        }
        for pid in pids {
            let known = self.by_pid.get(&pid).and_then(|ids| ids.last()).copied();
            if known.is_some_and(|id| self.instances[&id].exited_ns.is_none()) {
                continue;
            }
            if let Some(stat) = self.source.stat(pid) {
                self.seed(pid, &stat);
            }
        }
    }

    /// The processes to read again in this pass, and since when they may be incomplete. Those with
    /// addresses that were in no mapping go first, in half of the places; in the rest, those that
    /// were read longest ago, so that all have their turn.
    fn due(&self, now_ns: MonoNs) -> Vec<(u64, MonoNs)> {
        let due = self.instances.iter().filter_map(|(id, instance)| {
            let since_ns = instance.incomplete_since_ns?;
            let waited_ns = now_ns.saturating_since(instance.reread_ns);
            (instance.exited_ns.is_none() && waited_ns >= instance.reread_wait_ns).then_some((
                instance.reread_ns,
                *id,
                since_ns,
                instance.unresolved,
            ))
        });
        let mut due: Vec<_> = due.collect();
        due.sort_unstable();
        let mut places = MAX_REREADS / 2;
        let (first, rest): (Vec<_>, Vec<_>) = due.into_iter().partition(|(.., unresolved)| {
            let is_first = *unresolved && places > 0;
            places -= usize::from(is_first);
            is_first
        });
        let both = first.into_iter().chain(rest).take(MAX_REREADS);
        both.map(|(_, id, since_ns, _)| (id, since_ns)).collect()
    }

    fn reread(&mut self, now_ns: MonoNs) {
        let began_ns = monotonic_ns();
        for (id, since_ns) in self.due(now_ns) {
            if monotonic_ns().saturating_since(began_ns) > REREAD_NS {
                break;
            }
            self.counts.reread += 1;
            let Some(instance) = self.instances.get_mut(&id) else {
                continue;
            };
            instance.incomplete_since_ns = None;
            instance.unresolved = false;
            instance.reread_ns = now_ns;
            instance.reread_wait_ns =
                (instance.reread_wait_ns * 2).clamp(REREAD_WAIT_NS.0, REREAD_WAIT_NS.1);
            let pid = instance.pid;
            let stat = self.source.stat(pid);
            let same = stat.is_some_and(|stat| {
                instance.kernel_thread = stat.kernel_thread();
                instance.is_listed(stat.start_ticks) && !stat.dead()
            });
            // Ended between the two looks: the maps read may be another's, or none.
            if (!same || !self.read_mappings(id, since_ns, now_ns))
                && let Some(instance) = self.instances.get_mut(&id)
            {
                instance.exited_ns = Some(now_ns);
                self.changed.insert(pid);
            }
        }
    }

    fn forget(&mut self, now_ns: MonoNs) {
        let tables = self.instances.values();
        let tables = tables.map(|instance| instance.mappings.present_shared());
        let mut seen = HashSet::new();
        let rows = tables.map(|rows| (Arc::as_ptr(rows), rows.len()));
        let rows = rows.filter(|(address, _)| seen.insert(*address));
        self.rows = RowBudget::of(rows.map(|(_, rows)| rows).sum());
        for instance in self.instances.values_mut() {
            if instance.mappings.has_old(now_ns) {
                Arc::make_mut(&mut instance.mappings).forget_old(now_ns);
            }
        }
        let ended: Vec<u64> = self
            .instances
            .iter()
            .filter(|(_, instance)| {
                let keep_ns = if instance.retired || instance.key.is_none() {
                    KEEP_EXITED_NS
                } else {
                    KEEP_UNRETIRED_NS
                };
                instance
                    .exited_ns
                    .is_some_and(|exited_ns| now_ns.saturating_since(exited_ns) > keep_ns)
            })
            .map(|(id, _)| *id)
            .collect();
        if !ended.is_empty() {
            ended.into_iter().for_each(|id| self.remove(id));
            let instances = &self.instances;
            self.jits.retain(|_, id| instances.contains_key(id));
        }
    }

    fn remove(&mut self, id: u64) {
        let Some(instance) = self.instances.remove(&id) else {
            return;
        };
        if let Some(key) = instance.key {
            self.by_key.remove(&key);
        }
        if let Some(ids) = self.by_pid.get_mut(&instance.pid) {
            ids.retain(|other| *other != id);
            if ids.is_empty() {
                self.by_pid.remove(&instance.pid);
            }
        }
    }
}
