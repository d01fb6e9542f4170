//! Room for the rows of all tables of mappings together: one process can have thousands, and fork
//! as often as it likes.

/// Rows, those that processes share counted once, beyond which tables of more than [`FEW`] do not
/// grow: 48 MiB.
const MAX_ROWS: usize = 1 << 20;
/// As many rows as nearly all programs have.
const FEW: usize = 64;

/// See the module.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct RowBudget {
    rows: usize,
}

impl RowBudget {
    /// As many as there are, as of now.
    pub(super) const fn of(rows: usize) -> Self {
        Self { rows }
    }

    /// As many as there are, and were made since.
    pub(super) const fn rows(self) -> usize {
        self.rows
    }

    /// Takes room for so many rows of one table; answers whether there is any.
    pub(super) const fn take(&mut self, rows: usize) -> bool {
        let has_room = self.rows <= MAX_ROWS || rows <= FEW;
        if has_room {
            self.rows += rows;
        }
        has_room
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that large tables find no room once there is none, that small ones do, and that it is
    // there again afterwards.
    #[test]
    fn large_tables_find_no_room() {
        let mut room = RowBudget::default();
        let taken = (0..10_000).filter(|_| room.take(4096)).count();
        assert_eq!(taken, MAX_ROWS / 4096 + 1);
        assert!(room.take(FEW) && !room.take(FEW + 1));
        assert!(RowBudget::of(MAX_ROWS).take(4096));
    }
}
