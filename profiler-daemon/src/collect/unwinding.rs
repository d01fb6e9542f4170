//! Keeps what the walker looks up in step with what processes have mapped: asks for the tables of
//! files, loads them (`room`), and writes each process's mappings.
//!
//! Reading files is the worker's, the order of writes is `kernel::unwind_maps`'s. Processes that
//! share their mappings (a child and its parent, until one of them maps something) share the rows.

mod room;

use std::collections::{HashMap, HashSet};
use std::io;
use std::sync::Arc;

use profiler_common::unwind::MappingRow;
use tracing::{debug, warn};

use crate::kernel::{MappingRange, Published, UnwindMaps};
use crate::processes::changes::{Changed, ChangedImage};
use crate::processes::live::Processes;
use crate::processes::mappings::Mapping;
use crate::processes::module::ModuleId;
use crate::processes::shares::Owner;
use crate::sys::clock::monotonic_ns;
use crate::unwind::NoTable;
use crate::unwind::worker::{TableAnswer, TableWorker};

use super::asking::{Asking, DroppedFile, FileTurn};
use super::files_without::{FileWithout, FilesWithout, FollowedBy};
use super::pass_quota::PassQuota;
use super::retries::Retries;
use super::row_reservations::{Reservation, RowReservations};
use super::table_queue::Waiting;
use super::table_state::{PROBE_TRAMPOLINE, TableState, row};
use super::unwinding_state::UnwindingState;
use super::walked_files::WalkedFiles;
use room::AwaitingRoom;

/// Passes within which a table that was used is not given up for another.
const KEEP_PASSES: u64 = 10;
/// Passes within which the walker is told again of a file that is used: others may have filled what
/// it was told.
const TELL_PASSES: u64 = 60;

/// Rows that one or more processes have.
struct SharedRows {
    mappings: Arc<Vec<Mapping>>,
    range: MappingRange,
    reservation: Reservation,
    pids: HashSet<u32>,
    /// A table came or went: the rows are to be written anew.
    stale: bool,
}

impl SharedRows {
    fn has(&self, module: ModuleId) -> bool {
        let mut mappings = self.mappings.iter();
        mappings.any(|mapping| mapping.module == module)
    }
}

/// Whether a process that the walker knows has it mapped.
fn is_mapped(shared: &HashMap<usize, SharedRows>, module: ModuleId) -> bool {
    shared.values().any(|shared| shared.has(module))
}

/// A process that the walker knows.
struct WalkedProcess {
    image: ChangedImage,
    /// Key in `shared`.
    rows: usize,
}

/// See the module.
pub(super) struct UnwindingControl {
    asking: Asking,
    tables: HashMap<ModuleId, TableState>,
    shared: HashMap<usize, SharedRows>,
    known: HashMap<u32, WalkedProcess>,
    /// Tables that wait for room to become free.
    waiting: Vec<AwaitingRoom>,
    /// Modules whose request found the queue full, and that are asked for again at the next pass.
    unasked: HashSet<ModuleId>,
    /// Modules without a table because their file could not be opened.
    unopened: Retries,
    /// Processes to look at again at the next pass: the programs did not know them, or there was no
    /// room.
    again: HashSet<u32>,
    /// Processes that have had their share of rows, and have others by the next pass.
    later: HashSet<u32>,
    pass_quota: PassQuota,
    reserved: RowReservations,
    /// Processes that have other rows since they were taken last.
    renewed: HashSet<u32>,
    files: WalkedFiles,
    pass: u64,
    state: UnwindingState,
}

impl UnwindingControl {
    /// With this worker, where the walker has room for so many mapping rows.
    pub(super) fn new(worker: TableWorker, mapping_rows: u32) -> Self {
        Self {
            asking: Asking::new(worker),
            tables: HashMap::new(),
            shared: HashMap::new(),
            known: HashMap::new(),
            waiting: Vec::new(),
            unasked: HashSet::new(),
            unopened: Retries::default(),
            again: HashSet::new(),
            later: HashSet::new(),
            pass_quota: PassQuota::new(mapping_rows),
            reserved: RowReservations::new(mapping_rows),
            renewed: HashSet::new(),
            files: WalkedFiles::default(),
            pass: 0,
            state: UnwindingState::default(),
        }
    }

    /// What happened so far, and how full it is.
    pub(super) fn state(&self, maps: &UnwindMaps) -> UnwindingState {
        UnwindingState {
            worker: self.asking.counts(),
            tables_waiting: self.asking.waiting() + self.unasked.len(),
            fill: maps.fill(),
            processes: self.known.len(),
            ..self.state
        }
    }

    /// Files whose unwind information could not be used.
    pub(super) fn files_without(&self, processes: &Processes) -> FilesWithout {
        let mut met: Vec<(ModuleId, NoTable, FollowedBy)> = self
            .tables
            .iter()
            .filter_map(|(module, table)| match table {
                TableState::Loaded { without, .. } => {
                    Some((*module, (*without)?, FollowedBy::Code))
                }
                TableState::None(why) => Some((*module, *why, FollowedBy::FramePointers)),
                TableState::Asked | TableState::NoSpace { .. } | TableState::ProbeTrampoline => {
                    None
                }
            })
            .collect();
        met.sort_unstable_by_key(|(module, ..)| *module);
        let name = |module| processes.modules().get(module).name.clone();
        FilesWithout::of(met.into_iter().map(|(module, why, by)| FileWithout {
            path: name(module),
            why,
            by,
        }))
    }

    /// Whether a table is being made.
    pub(super) const fn awaits_tables(&self) -> bool {
        self.asking.is_at_work()
    }

    /// Takes in the tables that are ready and the mappings that changed. Cheap when nothing did.
    pub(super) fn sync(&mut self, maps: &mut UnwindMaps, processes: &mut Processes) {
        while let Some(answer) = self.asking.answer() {
            self.take_answer(maps, answer);
        }
        for changed in processes.take_changed() {
            self.set(maps, processes, changed, false);
        }
        self.hand_over(processes);
        self.renew(maps);
        self.tell_files(maps, processes);
    }

    /// Has the walker know the files whose tables came.
    fn tell_files(&mut self, maps: &mut UnwindMaps, processes: &mut Processes) {
        if let Err(error) = self.files.tell(maps, processes, &self.tables) {
            self.failed("tell of files", &error);
        }
    }

    /// Processes for whose code the walker has other rows since the last call.
    pub(super) fn take_renewed(&mut self) -> HashSet<u32> {
        std::mem::take(&mut self.renewed)
    }

    /// A pass is over: what was retired before is free, and what waited may go on. `used`: the
    /// modules on stacks.
    pub(super) fn pass(
        &mut self,
        maps: &mut UnwindMaps,
        processes: &mut Processes,
        used: HashSet<ModuleId>,
        missed: HashSet<ModuleId>,
    ) {
        self.pass += 1;
        self.pass_quota.renew();
        for module in used {
            if let Some(TableState::Loaded { used_pass, .. }) = self.tables.get_mut(&module) {
                if *used_pass / TELL_PASSES != self.pass / TELL_PASSES {
                    self.files.note(module);
                }
                *used_pass = self.pass;
            }
        }
        let mut unasked = std::mem::take(&mut self.unasked);
        let due = self.unopened.due(self.pass);
        unasked.extend(due.filter(|module| !self.is_asked(*module)));
        for module in missed {
            if let Some(TableState::NoSpace { pass }) = self.tables.get(&module)
                && pass + KEEP_PASSES < self.pass
            {
                self.tables.remove(&module);
                self.ask(processes, module);
            }
        }
        if !unasked.is_empty() {
            let mappings = self
                .shared
                .values()
                .flat_map(|shared| shared.mappings.iter());
            let mapped: HashSet<ModuleId> = mappings.map(|mapping| mapping.module).collect();
            for module in unasked {
                if mapped.contains(&module) {
                    self.ask(processes, module);
                } else {
                    // Whoever maps it anew asks anew.
                    self.unopened.forget(module);
                    self.tables.remove(&module);
                }
            }
        }
        self.hand_over(processes);
        self.load_waiting(maps);
        let again = std::mem::take(&mut self.again);
        let later = std::mem::take(&mut self.later);
        for pid in again.union(&later) {
            let changed = processes.look_up(*pid);
            self.set(maps, processes, changed, again.contains(pid));
        }
        self.renew(maps);
        self.withdraw_inherited(maps);
    }

    /// Processes for which there was no room may go on with the rows of their parent, which are
    /// another's once the parent has given them up.
    fn withdraw_inherited(&mut self, maps: &mut UnwindMaps) {
        if self.again.is_empty() && self.later.is_empty() {
            return;
        }
        let shared = self.shared.values();
        let written: HashSet<u32> = shared.filter_map(|shared| shared.range.first()).collect();
        let failures: Vec<io::Error> = self
            .again
            .union(&self.later)
            .filter_map(|pid| {
                maps.withdraw_unless(*pid, |first| written.contains(&first))
                    .err()
            })
            .collect();
        for error in failures {
            self.failed("remove mappings", &error);
        }
    }

    fn ask(&mut self, processes: &mut Processes, module: ModuleId) {
        let Some(file) = processes.file_owner(module) else {
            self.not_opened(processes, module);
            return;
        };
        let file = Waiting {
            module,
            owner: file.uid,
            size_bytes: file.size_bytes,
        };
        if self.asking.ask(file, monotonic_ns()) {
            self.tables.insert(module, TableState::Asked);
        } else {
            self.unasked.insert(module);
        }
    }

    fn is_asked(&self, module: ModuleId) -> bool {
        matches!(self.tables.get(&module), Some(TableState::Asked))
    }

    /// Its file cannot be opened now. What is known by a name only never can: once it is opened, it
    /// is another module.
    fn not_opened(&mut self, processes: &Processes, module: ModuleId) {
        if processes.modules().is_file(module) {
            self.unopened.failed(module, self.pass);
        }
        let none = TableState::None(NoTable::Unreadable);
        let before = self.tables.insert(module, none);
        if !matches!(before, Some(TableState::None(_))) {
            self.mark_stale(module);
        }
    }

    /// Modules have left: nothing has them mapped, so no row of a mapping points to their tables.
    pub(super) fn forget_modules(&mut self, maps: &mut UnwindMaps, gone: &HashSet<ModuleId>) {
        for module in gone {
            if let Some(TableState::Loaded { id, .. }) = self.tables.remove(module) {
                maps.unload(id);
            }
            self.unasked.remove(module);
            self.unopened.forget(*module);
        }
        self.waiting
            .retain(|waiting| !gone.contains(&waiting.module));
    }

    /// Has the worker make the next table.
    fn hand_over(&mut self, processes: &mut Processes) {
        let shared = &self.shared;
        let dropped = self.asking.hand_over(monotonic_ns(), |module| {
            if !is_mapped(shared, module) || !processes.modules().holds(module) {
                return FileTurn::Unneeded;
            }
            processes
                .file(module)
                .map_or(FileTurn::Gone, FileTurn::Open)
        });
        for (module, why) in dropped {
            match why {
                DroppedFile::Gone => self.not_opened(processes, module),
                // Whoever maps it anew asks anew.
                DroppedFile::Unneeded => drop(self.tables.remove(&module)),
            }
        }
    }

    fn take_answer(&mut self, maps: &mut UnwindMaps, answer: TableAnswer) {
        if !self.tables.contains_key(&answer.module) {
            debug!("module {} has left", answer.module.0);
            return;
        }
        self.unopened.forget(answer.module);
        match answer.table {
            Ok(table) => self.load(maps, answer.module, &table),
            Err(why) => {
                debug!(
                    "module {} has no unwind table: {}",
                    answer.module.0,
                    why.name()
                );
                self.tables.insert(answer.module, TableState::None(why));
                self.files.note(answer.module);
                self.mark_stale(answer.module);
            }
        }
    }

    /// Rows of processes that have the module mapped are to be written anew.
    fn mark_stale(&mut self, module: ModuleId) {
        for shared in self.shared.values_mut() {
            shared.stale |= shared.has(module);
        }
    }

    /// Has the walker know what a process has mapped now. `again`: it was not known to the programs
    /// when this was tried last.
    fn set(
        &mut self,
        maps: &mut UnwindMaps,
        processes: &mut Processes,
        changed: Changed,
        again: bool,
    ) {
        let pid = changed.pid;
        let Some((image, mappings)) = changed.now else {
            self.forget(maps, pid);
            return;
        };
        let before = self.known.get(&pid);
        let same_image = before.is_some_and(|known| known.image == image);
        if let Some(known) = before.filter(|_| same_image)
            && let Some(shared) = self.shared.get(&known.rows)
            && shared.mappings == mappings
        {
            return;
        }
        let before_has = |this: &Self, module| {
            let rows = this.known.get(&pid).map(|known| known.rows);
            let before = rows.and_then(|rows| this.shared.get(&rows));
            same_image && before.is_some_and(|shared| shared.has(module))
        };
        for mapping in mappings.iter() {
            let module = mapping.module;
            let is_unknown =
                || !self.tables.contains_key(&module) && !self.unasked.contains(&module);
            let is_anew = || {
                self.unopened.may_try(module, self.pass)
                    && !self.is_asked(module)
                    && !before_has(self, module)
            };
            if mapping.file_offset.is_some() && (is_unknown() || is_anew()) {
                self.ask(processes, module);
            } else if mapping.file_offset.is_none()
                && &*processes.modules().get(module).name == PROBE_TRAMPOLINE
            {
                self.tables.insert(module, TableState::ProbeTrampoline);
            }
        }
        let key = Arc::as_ptr(&mappings).addr();
        if !self.shared.contains_key(&key) {
            if !self.pass_quota.take(pid, mappings.len()) {
                self.later.insert(pid);
                return;
            }
            let Some((range, reservation)) =
                self.add(maps, processes.owner_of(image), pid, &mappings)
            else {
                self.state.mappings_full += 1;
                self.again.insert(pid);
                return;
            };
            self.shared.insert(
                key,
                SharedRows {
                    mappings,
                    range,
                    reservation,
                    pids: HashSet::new(),
                    stale: false,
                },
            );
        }
        // After a fork the programs have copied the parent's; if there is nothing, the process has
        // executed or is gone.
        let if_present = !again && (same_image || image.is_forked());
        let published = self
            .shared
            .get(&key)
            .map(|shared| maps.publish(pid, image.exec_ns(), &shared.range, if_present));
        // What it had before may be the same rows, shared with others of its number: they are given
        // up last.
        let before = self.known.remove(&pid).map(|known| known.rows);
        if let Some(shared) = before.and_then(|rows| self.shared.get_mut(&rows)) {
            shared.pids.remove(&pid);
        }
        match published {
            Some(Ok(Published::Yes)) => {
                if let Some(shared) = self.shared.get_mut(&key) {
                    shared.pids.insert(pid);
                }
                self.known.insert(pid, WalkedProcess { image, rows: key });
                self.renewed.insert(pid);
            }
            Some(Ok(Published::Forgotten)) => {
                // All that happened to it by now is heard of at the next pass.
                self.again.insert(pid);
            }
            Some(Ok(Published::Full)) => {
                self.state.mappings_full += 1;
                self.again.insert(pid);
            }
            Some(Err(error)) => self.failed("write mappings", &error),
            None => {}
        }
        for rows in before.into_iter().chain([key]) {
            self.drop_unused(maps, rows);
        }
    }

    /// Writes the rows of a process that shares them with none. `None`: there is no room, or none
    /// for this owner.
    fn add(
        &mut self,
        maps: &mut UnwindMaps,
        owner: Owner,
        pid: u32,
        mappings: &[Mapping],
    ) -> Option<(MappingRange, Reservation)> {
        let key = self.known.get(&pid).map(|known| known.rows);
        let rows = self.rows(mappings);
        let before = key.and_then(|key| self.shared.get_mut(&key));
        let mut before = before.filter(|shared| shared.pids.len() == 1);
        let replaced = before.as_mut().map(|shared| &mut shared.reservation);
        let reservation = self.reserved.reserve(owner, rows.len(), replaced).ok()?;
        let range = maps.add_mappings(&rows);
        if range.is_none() {
            self.reserved
                .undo(&reservation, before.map(|shared| &mut shared.reservation));
        }
        Some((range?, reservation))
    }

    /// A process is gone, or has other rows now.
    fn forget(&mut self, maps: &mut UnwindMaps, pid: u32) {
        if let Some(known) = self.known.remove(&pid) {
            if let Some(shared) = self.shared.get_mut(&known.rows) {
                shared.pids.remove(&pid);
                if let Err(error) = maps.withdraw(pid, &shared.range) {
                    self.failed("remove mappings", &error);
                }
            }
            self.drop_unused(maps, known.rows);
        }
    }

    fn drop_unused(&mut self, maps: &mut UnwindMaps, key: usize) {
        let unused = |shared: &SharedRows| shared.pids.is_empty();
        if self.shared.get(&key).is_some_and(unused)
            && let Some(shared) = self.shared.remove(&key)
        {
            self.reserved.release(&shared.reservation);
            maps.retire(shared.range);
        }
    }

    /// Writes the rows anew that no longer say what tables there are.
    fn renew(&mut self, maps: &mut UnwindMaps) {
        let stale = self.shared.iter().filter(|(_, shared)| shared.stale);
        let stale: Vec<usize> = stale.map(|(key, _)| *key).collect();
        for key in stale {
            let Some(shared) = self.shared.get(&key) else {
                continue;
            };
            let rows = shared.mappings.len();
            let first = shared.pids.iter().min();
            if first.is_some_and(|pid| !self.pass_quota.take(*pid, rows)) {
                // Stays stale until the next pass.
                continue;
            }
            let Some(range) = maps.add_mappings(&self.rows(&shared.mappings)) else {
                // Stays stale: room comes with the passes.
                self.state.mappings_full += 1;
                continue;
            };
            let mut failures = Vec::new();
            let mut gone = Vec::new();
            for pid in &shared.pids {
                let known = self.known.get(pid);
                let exec_ns = known.map(|known| known.image.exec_ns()).unwrap_or_default();
                match maps.publish(*pid, exec_ns, &range, true) {
                    Ok(Published::Yes) => {
                        self.renewed.insert(*pid);
                    }
                    Ok(Published::Forgotten | Published::Full) => gone.push(*pid),
                    Err(error) => failures.push(error),
                }
            }
            for error in failures {
                self.failed("write mappings", &error);
            }
            if let Some(shared) = self.shared.get_mut(&key) {
                shared.stale = false;
                maps.retire(std::mem::replace(&mut shared.range, range));
            }
            for pid in gone {
                self.forget(maps, pid);
                self.again.insert(pid);
            }
        }
    }

    fn rows(&self, mappings: &[Mapping]) -> Vec<MappingRow> {
        let row = |mapping: &Mapping| row(self.tables.get(&mapping.module), mapping);
        mappings.iter().map(row).collect()
    }

    fn failed(&mut self, what: &str, error: &io::Error) {
        self.state.failures += 1;
        warn!("cannot {what} for the walker: {error}");
    }
}
