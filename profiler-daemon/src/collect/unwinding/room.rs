//! Loads tables, and gives up those that were not used for longest where there is no room.

use std::sync::Arc;

use crate::kernel::{TableSize, UnwindMaps};
use crate::processes::module::ModuleId;
use crate::unwind::UnwindTable;

use super::super::table_state::TableState;
use super::{KEEP_PASSES, UnwindingControl};

/// Tables that wait for room at most; more are given up and made again when they are needed.
const MAX_WAITING: usize = 8;
/// Passes after which a table whose room was made has it, or never will: what is free lies in
/// pieces.
const WAIT_PASSES: u64 = 4;

/// A table for which others were given up.
pub(super) struct AwaitingRoom {
    pub(super) module: ModuleId,
    table: Arc<UnwindTable>,
    until_pass: u64,
}

/// A loaded table that may be given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Candidate {
    used_pass: u64,
    module: ModuleId,
    id: u32,
    size: TableSize,
}

fn size(table: &UnwindTable) -> TableSize {
    TableSize {
        pages: table.pages.len() as u64,
        rows: table.rows.len() as u64,
    }
}

/// Which of these to give up for a table of that size, those that were used last staying. None
/// where all of them would not do.
fn to_give_up(
    mut candidates: Vec<Candidate>,
    wanted: TableSize,
    mut free: TableSize,
) -> Vec<Candidate> {
    candidates.sort_unstable();
    let mut freed = TableSize::default();
    let mut given_up = 0;
    for candidate in &candidates {
        if given_up > 0 && freed.holds(wanted) {
            break;
        }
        freed.add(candidate.size);
        free.add(candidate.size);
        given_up += 1;
    }
    candidates.truncate(if free.holds(wanted) { given_up } else { 0 });
    candidates
}

impl UnwindingControl {
    /// Loads a table. Where there is no room, others are given up for it once.
    pub(super) fn load(
        &mut self,
        maps: &mut UnwindMaps,
        module: ModuleId,
        table: &Arc<UnwindTable>,
    ) {
        if self.is_loaded(maps, module, table) {
            return;
        }
        if self.waiting.len() < MAX_WAITING && self.make_room(maps, size(table)) {
            self.waiting.push(AwaitingRoom {
                module,
                table: Arc::clone(table),
                until_pass: self.pass + WAIT_PASSES,
            });
        } else {
            self.refuse(module);
        }
    }

    /// Loads what waits, where room has become free.
    pub(super) fn load_waiting(&mut self, maps: &mut UnwindMaps) {
        for waiting in std::mem::take(&mut self.waiting) {
            if self.is_loaded(maps, waiting.module, &waiting.table) {
                continue;
            }
            if self.pass < waiting.until_pass {
                self.waiting.push(waiting);
            } else {
                self.refuse(waiting.module);
            }
        }
    }

    /// Loads a table. False if there is no room.
    fn is_loaded(&mut self, maps: &mut UnwindMaps, module: ModuleId, table: &UnwindTable) -> bool {
        match maps.load(table.base_page, &table.pages, &table.rows) {
            Ok(Some(id)) => {
                let loaded = TableState::Loaded {
                    id,
                    segments: table.segments.clone(),
                    used_pass: self.pass,
                    without: table.without,
                };
                self.tables.insert(module, loaded);
                self.files.note(module);
                self.mark_stale(module);
                true
            }
            Ok(None) => false,
            Err(error) => {
                self.failed("load a table", &error);
                let no_space = TableState::NoSpace { pass: self.pass };
                self.tables.insert(module, no_space);
                true
            }
        }
    }

    fn refuse(&mut self, module: ModuleId) {
        self.state.refused += 1;
        let no_space = TableState::NoSpace { pass: self.pass };
        self.tables.insert(module, no_space);
    }

    /// Gives up tables that were not used for longest, until there is as much room some passes
    /// later. False if all of them together would not do.
    fn make_room(&mut self, maps: &mut UnwindMaps, wanted: TableSize) -> bool {
        let candidates = self
            .tables
            .iter()
            .filter_map(|(module, table)| match table {
                TableState::Loaded { id, used_pass, .. } if used_pass + KEEP_PASSES < self.pass => {
                    Some(Candidate {
                        used_pass: *used_pass,
                        module: *module,
                        id: *id,
                        size: maps.size(*id),
                    })
                }
                _ => None,
            });
        let given_up = to_give_up(candidates.collect(), wanted, maps.free_room());
        for candidate in &given_up {
            maps.unload(candidate.id);
            let no_space = TableState::NoSpace { pass: self.pass };
            self.tables.insert(candidate.module, no_space);
            self.state.evicted += 1;
        }
        !given_up.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn sized(pages: u64, rows: u64) -> TableSize {
        TableSize { pages, rows }
    }

    const fn candidate(used_pass: u64, pages: u64, rows: u64) -> Candidate {
        Candidate {
            used_pass,
            module: ModuleId(used_pass),
            id: used_pass as u32,
            size: sized(pages, rows),
        }
    }

    #[test]
    fn who_gives_way() {
        // Check that those give way that were not used for longest, as many as the new table needs
        // of rows and of pages, one at least, and none where all would not do.
        let candidates = || {
            vec![
                candidate(3, 10, 100),
                candidate(1, 20, 50),
                candidate(2, 1, 500),
            ]
        };
        let given_up = |wanted, free| {
            let of = to_give_up(candidates(), wanted, free);
            of.iter().map(|one| one.used_pass).collect::<Vec<_>>()
        };
        assert_eq!(given_up(sized(1, 50), sized(0, 0)), [1]);
        assert_eq!(given_up(sized(1, 51), sized(0, 0)), [1, 2]);
        assert_eq!(given_up(sized(22, 50), sized(0, 0)), [1, 2, 3]);
        assert_eq!(
            given_up(sized(1, 1), sized(100, 1000)),
            [1],
            "it lies in pieces"
        );
        assert_eq!(given_up(sized(31, 651), sized(0, 0)), [0; 0]);
        assert_eq!(given_up(sized(32, 10), sized(0, 1000)), [0; 0]);
        assert_eq!(given_up(sized(32, 651), sized(1, 1)), [1, 2, 3]);
    }
}
