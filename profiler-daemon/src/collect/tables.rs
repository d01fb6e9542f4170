//! How full the tables are that all processes share, and when that is told: from nine tenths on
//! until they are down to eight, and for a minute after something found no room.

use std::collections::BTreeMap;

use tracing::{info, warn};

use crate::units::MonoNs;

/// A table is nearly full from this part on, percent.
const FULL_PERCENT: u64 = 90;
/// It no longer is below this part, percent.
const RELIEVED_PERCENT: u64 = 80;
/// How long it is told that something found no room, nanoseconds.
const TOLD_NS: u64 = 60_000_000_000;

/// How full a table is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableFill {
    /// Its name in metrics.
    pub table: &'static str,
    /// What it has room for, as words.
    pub holds: &'static str,
    /// What is in use, in entries (of text: bytes).
    pub used: u64,
    /// What there is room for, likewise.
    pub limit: u64,
    /// How many times something found no room in it since the start.
    pub refused: u64,
    /// What happens to that, and which counters tell how often.
    pub consequence: &'static str,
}

impl TableFill {
    /// The part that is in use, percent.
    #[must_use]
    pub fn percent(&self) -> u64 {
        self.used.saturating_mul(100) / self.limit.max(1)
    }
}

/// Why a table is told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TableReported {
    /// The table.
    pub fill: TableFill,
    /// How many times something found no room since it is told.
    pub refused: u64,
}

impl std::fmt::Display for TableReported {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let (fill, refused) = (&self.fill, self.refused);
        write!(
            f,
            "{} of {} are in use ({} %), and {refused} found no room of late: {}",
            fill.used,
            fill.limit,
            fill.percent(),
            fill.consequence
        )
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct SeenTable {
    is_full: bool,
    /// What had been refused at the last reading.
    refused: u64,
    /// When something was refused last, monotonic nanoseconds; `None`: not of late.
    refused_at_ns: Option<MonoNs>,
    /// What had been refused when it began to be told; `None` while it is not.
    reported_since: Option<u64>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Tables {
    fills: Vec<TableFill>,
    seen: BTreeMap<&'static str, SeenTable>,
}

impl Tables {
    /// Takes in how full they are now, and logs what begins or ends to be told.
    pub(super) fn read(&mut self, now_ns: MonoNs, fills: Vec<TableFill>) {
        for fill in &fills {
            let seen = self.seen.entry(fill.table).or_default();
            let before = seen.refused;
            seen.is_full = fill.percent()
                >= if seen.is_full {
                    RELIEVED_PERCENT
                } else {
                    FULL_PERCENT
                };
            if fill.refused > before {
                seen.refused_at_ns = Some(now_ns);
            }
            seen.refused = fill.refused;
            let is_late = |at_ns: &MonoNs| now_ns.saturating_since(*at_ns) < TOLD_NS;
            seen.refused_at_ns = seen.refused_at_ns.filter(is_late);
            let is_told = seen.is_full || seen.refused_at_ns.is_some();
            match (is_told, seen.reported_since) {
                (true, None) => {
                    seen.reported_since = Some(before);
                    let refused = fill.refused - before;
                    let fill = *fill;
                    warn!(
                        "room for {}: {}",
                        fill.holds,
                        TableReported { fill, refused }
                    );
                }
                (false, Some(_)) => {
                    seen.reported_since = None;
                    info!("there is room for {} again", fill.holds);
                }
                (true, Some(_)) | (false, None) => {}
            }
        }
        self.fills = fills;
    }

    /// How full each is.
    pub(super) fn fills(&self) -> &[TableFill] {
        &self.fills
    }

    /// Those that are nearly full, or had no room for something of late.
    pub(super) fn told(&self) -> Vec<TableReported> {
        let told = self.fills.iter().filter_map(|fill| {
            let since = self.seen.get(fill.table)?.reported_since?;
            Some(TableReported {
                fill: *fill,
                refused: fill.refused.saturating_sub(since),
            })
        });
        told.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    /// What is told after a reading.
    fn told(tables: &mut Tables, second: u64, used: u64, refused: u64) -> Option<String> {
        let fill = TableFill {
            table: "frames",
            holds: "frames",
            used,
            limit: 1000,
            refused,
            consequence: "what finds none is [unknown] (frames_full)",
        };
        tables.read(MonoNs::new(second * SECOND_NS), vec![fill]);
        assert_eq!(tables.fills().len(), 1);
        let told = tables.told();
        told.first().map(ToString::to_string)
    }

    // Check that a table is told of from nine tenths on and until it is below eight, and not in
    // between on its way up.
    #[test]
    fn nine_tenths() {
        let mut tables = Tables::default();
        let fills = [
            (899, false),
            (900, true),
            (850, true),
            (799, false),
            (850, false),
        ];
        for (second, (used, is_told)) in (1..).zip(fills) {
            let told = told(&mut tables, second, used, 0);
            assert_eq!(told.is_some(), is_told, "at {used}");
        }
        let sentence = told(&mut tables, 9, 1000, 0).unwrap();
        assert!(sentence.starts_with("1000 of 1000 are in use (100 %), and 0 "));
    }

    // Check that what found no room is told for a minute after the last time, with how many since
    // it began, however empty the table is.
    #[test]
    fn what_found_no_room_is_told_for_a_minute() {
        let mut tables = Tables::default();
        assert_eq!(told(&mut tables, 1, 5, 0), None);
        let sentence = told(&mut tables, 2, 500, 7).unwrap();
        assert!(sentence.contains("7 found no room of late: what finds none is"));
        assert!(told(&mut tables, 60, 500, 9).unwrap().contains("9 found"));
        assert!(told(&mut tables, 119, 5, 9).is_some());
        assert_eq!(told(&mut tables, 120, 5, 9), None);
        assert!(told(&mut tables, 121, 5, 10).unwrap().contains("1 found"));
    }
}
