//! Every process there is or just was: kept current by the side-band, asked by (pid, start time).
//!
//! Records know a pid and a time; the kernel side knows a pid and a start time. An instance is one
//! process between its fork and its end; [`Processes::link`] ties the kernel's key to it. It would
//! break if side-band times came from another clock than `CLOCK_MONOTONIC`. Housekeeping (ends,
//! lost records, unknown addresses) is in `upkeep`.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    files::{FileCounts, Files},
    ids::{ProcessKey, start_of},
    instance::{Facts, Instance, ProcessDescription},
    leaderless::Leaderless,
    mappings::{Added, MAX_MAPPINGS, Mapping, Mappings, Place},
    module::{ModuleId, ModuleTable},
    opening::Mappers,
    row_budget::RowBudget,
    shares::Shares,
    source::{Mapped, ProcessSource},
};
use crate::sys::{
    clock::ClockOffsets,
    perf_record::{Event, MmapEvent},
    proc_stat::ProcStat,
};
use crate::units::{BootNs, MonoNs, VirtualAddress};

/// Most processes known at a time, ended ones included.
pub const MAX_PROCESSES: usize = 100_000;

/// Most programs described on exec in one pass (some 40 us each); those beyond are described when
/// first asked for, if they still live.
pub(super) const MAX_GATHERS: u32 = 256;
/// How often in one pass files are opened again through processes that have them (some 20 us each),
/// by share.
pub(super) const MAX_REOPENINGS: usize = 256;

/// How to follow processes.
#[derive(Clone, Copy, Debug)]
pub struct ProcessOptions {
    /// Whether to read command lines (they may hold secrets).
    pub cmdline: bool,
    /// Most module files kept open.
    pub open_files: usize,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ProcessCounts {
    /// Processes not followed because too many were known.
    pub refused: u64,
    /// Processes that ended before anything about them could be read.
    pub vanished: u64,
    /// Mappings without room.
    pub mappings_full: u64,
    /// Side-band records that were lost.
    pub records_lost: u64,
    /// Times mappings were read again.
    pub reread: u64,
    /// Addresses that were in no mapping.
    pub unmapped: u64,
}

/// All processes.
pub struct Processes {
    pub(super) source: Box<dyn ProcessSource>,
    pub(super) options: ProcessOptions,
    pub(super) table: ModuleTable,
    pub(super) files: Files,
    pub(super) instances: HashMap<u64, Instance>,
    /// Instances of each number, by start.
    pub(super) by_pid: HashMap<u32, Vec<u64>>,
    pub(super) by_key: HashMap<ProcessKey, u64>,
    /// Which process makes the code of a module.
    pub(super) jits: HashMap<ModuleId, u64>,
    next_id: u64,
    /// As of the last pass, less what came since.
    pub(super) rows: RowBudget,
    pub(super) clocks: ClockOffsets,
    pub(super) lost_since_ns: Option<MonoNs>,
    pub(super) leaderless: Leaderless,
    /// Processes that executed a program and are to be described, no more than `gathers_left`.
    undescribed: Vec<u64>,
    /// How many more programs may be described on exec before the next sweep.
    pub(super) gathers_left: u32,
    /// How often files may be opened again through processes before the next sweep.
    pub(super) reopenings: Shares,
    /// Through whom, as of the first time that was asked.
    pub(super) mappers: Option<Mappers>,
    /// Numbers of processes whose mappings changed, or that came or went.
    pub(super) changed: HashSet<u32>,
    pub(super) counts: ProcessCounts,
}

impl Processes {
    /// Knows nobody yet. `clocks` leads from starts since boot to monotonic times.
    #[must_use]
    pub fn new(
        source: Box<dyn ProcessSource>,
        options: ProcessOptions,
        clocks: ClockOffsets,
    ) -> Self {
        Self {
            source,
            options,
            table: ModuleTable::new(),
            files: Files::new(options.open_files),
            instances: HashMap::new(),
            by_pid: HashMap::new(),
            by_key: HashMap::new(),
            jits: HashMap::new(),
            next_id: 0,
            rows: RowBudget::default(),
            clocks,
            lost_since_ns: None,
            leaderless: Leaderless::default(),
            undescribed: Vec::new(),
            gathers_left: MAX_GATHERS,
            reopenings: Shares::new(MAX_REOPENINGS),
            mappers: None,
            changed: HashSet::new(),
            counts: ProcessCounts::default(),
        }
    }

    /// Takes in every process there is now. Call it once the side-band is open, so that nothing
    /// falls in between.
    pub fn seed_from_proc(&mut self) {
        for pid in self.source.pids() {
            if let Some(stat) = self.source.stat(pid) {
                self.seed(pid, &stat);
            }
        }
    }

    /// Takes in one process as `/proc` shows it, with all its mappings valid since its start.
    pub(super) fn seed(&mut self, pid: u32, stat: &ProcStat) -> Option<u64> {
        let started_ns = self.clocks.monotonic_from_boot(start_of(stat.start_ticks));
        let mut instance = Instance::new(pid, started_ns);
        instance.ppid = stat.ppid;
        instance.start_ticks = Some(stat.start_ticks);
        instance.set_comm(stat.comm.as_bytes());
        instance.kernel_thread = stat.kernel_thread();
        instance.threaded = stat.threads > 1;
        let id = self.insert(instance)?;
        self.gather_facts(id);
        self.read_mappings(id, MonoNs::ZERO, MonoNs::ZERO);
        Some(id)
    }

    pub(super) fn insert(&mut self, instance: Instance) -> Option<u64> {
        if self.instances.len() >= MAX_PROCESSES {
            self.counts.refused += 1;
            return None;
        }
        let id = self.next_id;
        self.next_id += 1;
        let (pid, start_ns) = (instance.pid, instance.start_ns);
        let instances = &self.instances;
        let same_pid = self.by_pid.entry(pid).or_default();
        let at = same_pid.partition_point(|other| instances[other].start_ns <= start_ns);
        same_pid.insert(at, id);
        self.instances.insert(id, instance);
        self.changed.insert(pid);
        Some(id)
    }

    /// The process that had this number at that time: the last to start before.
    fn at(&self, pid: u32, time_ns: MonoNs) -> Option<u64> {
        let ids = self.by_pid.get(&pid)?;
        ids.iter()
            .rev()
            .find(|id| self.instances[*id].start_ns <= time_ns)
            .copied()
    }

    /// The same, or what `/proc` shows now where its fork was missed, or an empty one where that is
    /// gone too.
    fn at_or_found(&mut self, pid: u32, time_ns: MonoNs) -> Option<u64> {
        if let Some(id) = self.at(pid, time_ns) {
            return Some(id);
        }
        if let Some(stat) = self.source.stat(pid) {
            let started_ns = self.clocks.monotonic_from_boot(start_of(stat.start_ticks));
            if started_ns <= time_ns {
                return self.seed(pid, &stat);
            }
        }
        self.counts.vanished += 1;
        self.insert(Instance::new(pid, time_ns))
    }

    /// Takes in one record of the side-band. Records come in order of time. Call
    /// [`Self::describe_new`] soon after.
    pub fn apply(&mut self, event: &Event) {
        match event {
            Event::Fork {
                pid, ppid, time_ns, ..
            } if pid == ppid => {
                if let Some(instance) = self
                    .at(*pid, *time_ns)
                    .and_then(|id| self.instances.get_mut(&id))
                {
                    instance.threaded = true;
                }
            }
            Event::Fork {
                pid, ppid, time_ns, ..
            } => self.fork(*pid, *ppid, *time_ns),
            Event::Comm {
                pid,
                tid,
                comm,
                exec,
                time_ns,
            } => {
                let Some(id) = self.at_or_found(*pid, *time_ns) else {
                    return;
                };
                if *exec {
                    self.exec(id, *time_ns);
                }
                if let Some(instance) = self.instances.get_mut(&id)
                    && (*exec || pid == tid)
                {
                    instance.set_comm(comm);
                }
            }
            Event::Mmap(mmap) => self.mmap(mmap),
            Event::Exit { pid, tid, time_ns } => self.exit(*pid, *tid, *time_ns),
            Event::Lost { records, time_ns } => {
                self.counts.records_lost = self.counts.records_lost.saturating_add(*records);
                let since_ns = self.lost_since_ns.unwrap_or(*time_ns).min(*time_ns);
                self.lost_since_ns = Some(since_ns);
            }
        }
    }

    fn fork(&mut self, pid: u32, ppid: u32, time_ns: MonoNs) {
        let clocks = self.clocks;
        let parent = self
            .at(ppid, time_ns)
            .and_then(|id| self.instances.get(&id))
            .cloned();
        let ids = self.by_pid.get(&pid).cloned().unwrap_or_default();
        // Linked or found in /proc before its record was read.
        let known = ids
            .iter()
            .rev()
            .find(|id| self.instances[*id].born_by(time_ns, clocks))
            .copied();
        if let Some(instance) = known.and_then(|id| self.instances.get_mut(&id)) {
            instance.set_forked(time_ns, clocks);
            self.changed.insert(pid);
            if let Some(parent) = parent
                && instance.mappings.present().is_empty()
            {
                instance.inherit(&parent);
            }
            return;
        }
        // Whoever had the number before is gone, even if its end was not heard.
        for id in ids {
            if let Some(before) = self.instances.get_mut(&id)
                && before.exited_ns.is_none()
                && before.start_ns < time_ns
            {
                before.exited_ns = Some(time_ns);
            }
        }
        let mut instance = Instance::new(pid, time_ns);
        instance.set_forked(time_ns, clocks);
        instance.ppid = ppid;
        match parent {
            Some(parent) => instance.inherit(&parent),
            None => instance.incomplete_since_ns = Some(time_ns),
        }
        self.insert(instance);
    }

    fn exec(&mut self, id: u64, time_ns: MonoNs) {
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        instance.execs = instance.execs.wrapping_add(1);
        instance.exec_ns = time_ns;
        instance.jit = ModuleId::JIT;
        instance.jit_has_names = false;
        instance.jit_looked_ns = MonoNs::ZERO;
        self.changed.insert(instance.pid);
        instance.executes = true;
        instance.exited_ns = None;
        instance.leader_gone = false;
        instance.kernel_thread = false;
        instance.incomplete_since_ns = None;
        instance.threaded = false;
        Mappings::exec(&mut instance.mappings, time_ns);
        // Unless it is read below, the program is the first file mapped from here on.
        let facts = Arc::make_mut(&mut instance.facts);
        (facts.exe, facts.image) = (None, None);
        instance.facts_own = false;
        if self.undescribed.len() < self.gathers_left as usize {
            self.undescribed.push(id);
        }
    }

    /// Reads what the programs are that were executed lately. To be called while they may still
    /// live, but after whoever waits for their mappings has got these: it takes longer than taking
    /// in records.
    pub fn describe_new(&mut self) {
        for id in std::mem::take(&mut self.undescribed) {
            let instance = self.instances.get(&id);
            if instance.is_some_and(|instance| !instance.facts_own) {
                self.gathers_left = self.gathers_left.saturating_sub(1);
                self.gather_facts(id);
            }
        }
    }

    /// Reads program, user and groups of a process that still is the one listed under its number.
    pub(super) fn gather_facts(&mut self, id: u64) {
        let Some(instance) = self.instances.get(&id) else {
            return;
        };
        let pid = instance.pid;
        let stat = self
            .source
            .stat(pid)
            .filter(|stat| instance.is_listed(stat.start_ticks));
        let read = stat
            .as_ref()
            .map(|_| self.source.describe(pid, self.options.cmdline));
        if let (Some(instance), Some(read)) = (self.instances.get_mut(&id), read) {
            instance.facts = Arc::new(Facts::gather(read, &instance.facts));
            instance.facts_own = true;
            instance.ppid = stat.map_or(instance.ppid, |stat| stat.ppid);
        }
    }

    fn mmap(&mut self, event: &MmapEvent) {
        let Some(id) = self.at_or_found(event.pid, event.time_ns) else {
            return;
        };
        let Some(instance) = self.instances.get_mut(&id) else {
            return;
        };
        let mapped = Mapped {
            start: event.start,
            end: event.start.saturating_add(event.len_bytes),
            device: event.device,
            inode: event.inode,
            path: event.path.clone(),
        };
        if event.inode != 0 && !instance.kernel_thread {
            instance.note_mapped(&mapped);
        }
        let identified = self.files.identify(
            (&mut self.table, instance.owner(id)),
            &*self.source,
            (event.pid, instance.ppid),
            &mapped,
        );
        if identified.found_no_room() {
            instance.incomplete_since_ns.get_or_insert(event.time_ns);
        }
        let present = instance.mappings.present_shared();
        let sharers = Arc::strong_count(&instance.mappings) + Arc::strong_count(present);
        let copied_rows = if sharers > 2 { present.len() } else { 0 };
        if !self.rows.take(copied_rows + 1) {
            self.counts.mappings_full += 1;
            instance.incomplete_since_ns.get_or_insert(event.time_ns);
            return;
        }
        let added = Arc::make_mut(&mut instance.mappings).add(Mapping {
            start: mapped.start,
            end: mapped.end,
            module: identified.module,
            file_offset: identified.is_file.then_some(event.file_offset),
            since_ns: event.time_ns,
        });
        if added != Added::Known {
            self.changed.insert(event.pid);
        }
        if added == Added::Full {
            self.counts.mappings_full += 1;
            // Most of a full table is usually gone: nobody reports mappings that end.
            instance.incomplete_since_ns.get_or_insert(event.time_ns);
        }
    }

    /// Reads all mappings of a process anew; those not known yet count as there since `since_ns`.
    /// Answers whether the process was still there.
    pub(super) fn read_mappings(&mut self, id: u64, since_ns: MonoNs, now_ns: MonoNs) -> bool {
        let Some(instance) = self.instances.get_mut(&id) else {
            return false;
        };
        if instance.kernel_thread {
            return true;
        }
        let Some(maps) = self.source.exec_maps(instance.pid, MAX_MAPPINGS) else {
            return false;
        };
        let mut listed = Vec::with_capacity(maps.entries.len());
        let mut found_no_room = false;
        for entry in maps.entries {
            let mapped = Mapped {
                start: entry.start,
                end: entry.end,
                device: entry.device,
                inode: entry.inode,
                path: entry.path,
            };
            if entry_is_program(instance, &mapped) {
                instance.note_image(&mapped);
            }
            let identified = self.files.identify(
                (&mut self.table, instance.owner(id)),
                &*self.source,
                (instance.pid, instance.ppid),
                &mapped,
            );
            found_no_room |= identified.found_no_room();
            listed.push(Mapping {
                start: mapped.start,
                end: mapped.end,
                module: identified.module,
                file_offset: identified.is_file.then_some(entry.file_offset),
                since_ns,
            });
        }
        self.changed.insert(instance.pid);
        if !self.rows.take(listed.len()) {
            self.counts.mappings_full += listed.len() as u64;
            instance.incomplete_since_ns.get_or_insert(since_ns);
            return true;
        }
        let full = Arc::make_mut(&mut instance.mappings).replace_all(&listed, since_ns, now_ns);
        self.counts.mappings_full += full + u64::from(maps.truncated);
        if found_no_room {
            instance.incomplete_since_ns.get_or_insert(since_ns);
        }
        true
    }

    /// Ties the kernel's task to the process known from records or `/proc`; both starts are
    /// of that one moment, by two clocks. Cheap when it is tied already.
    pub fn link(&mut self, pid: u32, start_monotonic_ns: MonoNs, start_ns: BootNs) -> ProcessKey {
        let key = ProcessKey { pid, start_ns };
        if self.by_key.contains_key(&key) {
            return key;
        }
        let ids = self.by_pid.get(&pid).cloned().unwrap_or_default();
        let known = ids
            .into_iter()
            .filter(|id| self.instances[id].is_task(start_monotonic_ns, key))
            .min_by_key(|id| self.instances[id].start_ns);
        let id = known.or_else(|| {
            let stat = self
                .source
                .stat(pid)
                .filter(|stat| stat.start_ticks == key.start_ticks());
            if let Some(stat) = stat {
                return self.seed(pid, &stat);
            }
            self.counts.vanished += 1;
            self.insert(Instance::new(pid, start_monotonic_ns))
        });
        if let Some(id) = id {
            self.by_key.insert(key, id);
            if let Some(instance) = self.instances.get_mut(&id) {
                instance.key = Some(key);
                if instance.forked_ns.is_none() {
                    instance.start_ns = start_monotonic_ns;
                }
            }
        }
        key
    }

    /// What is mapped in a linked process, and in which generation. The copy stays as it is while
    /// the process goes on.
    #[must_use]
    pub fn mappings(&self, key: ProcessKey) -> Option<Arc<Mappings>> {
        let id = self.by_key.get(&key)?;
        self.instances
            .get(id)
            .map(|instance| Arc::clone(&instance.mappings))
    }

    /// Where an address of a linked process was at that time. `None` is counted, and has the
    /// mappings read again soon.
    pub fn resolve(
        &mut self,
        key: ProcessKey,
        time_ns: MonoNs,
        address: VirtualAddress,
    ) -> Option<Place> {
        let id = *self.by_key.get(&key)?;
        let instance = self.instances.get(&id)?;
        let mut place = instance.mappings.place(address, time_ns);
        if let Some(place) = &mut place
            && place.module == ModuleId::JIT
        {
            place.module = self.jit(key, time_ns);
        }
        if place.is_none() {
            self.counts.unmapped += 1;
            let instance = self.instances.get_mut(&id)?;
            if !instance.kernel_thread && instance.exited_ns.is_none() {
                instance.incomplete_since_ns.get_or_insert(time_ns);
                instance.unresolved = true;
            }
        }
        place
    }

    /// What a linked process is. Read once when it is first asked for after a fork, and again after
    /// each exec.
    pub fn info(&mut self, key: ProcessKey) -> Option<ProcessDescription> {
        let id = *self.by_key.get(&key)?;
        if self
            .instances
            .get(&id)
            .is_some_and(|instance| !instance.facts_own)
        {
            self.gather_facts(id);
            if let Some(instance) = self.instances.get_mut(&id) {
                instance.facts_own = true;
            }
        }
        self.instances.get(&id).map(|instance| instance.info(key))
    }

    /// The modules seen so far.
    #[must_use]
    pub fn modules(&self) -> &ModuleTable {
        &self.table
    }

    /// The modules, to add those that are not mapped files (kernel modules).
    pub fn modules_mut(&mut self) -> &mut ModuleTable {
        &mut self.table
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> ProcessCounts {
        self.counts
    }

    /// How file lookups went so far.
    #[must_use]
    pub fn file_counts(&self) -> FileCounts {
        self.files.counts()
    }

    /// Memory held for processes and what they have mapped, bytes, roughly.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        let instances = self.instances.values();
        let instances = instances.map(|instance| {
            // Forked processes share them.
            let sharers = Arc::strong_count(&instance.mappings);
            size_of::<Instance>() + 256 + instance.mappings.ended_bytes() / sharers
        });
        instances.sum::<usize>() + self.rows.rows() * size_of::<Mapping>()
    }

    /// How many processes are known, ended ones included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.instances.len()
    }

    /// Whether no process is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.instances.is_empty()
    }
}

/// Whether what is mapped is the file of the program that a process runs, as far as paths tell.
fn entry_is_program(instance: &Instance, mapped: &Mapped) -> bool {
    let exe = instance.facts.exe.as_deref();
    mapped.inode != 0 && exe.is_some_and(|exe| exe.as_bytes() == &*mapped.path)
}

#[cfg(test)]
#[path = "live_tests.rs"]
mod tests;
