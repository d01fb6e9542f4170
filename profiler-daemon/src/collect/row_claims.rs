//! How many of the walker's mapping rows a process and a user may have, so that nobody takes them
//! all.

use crate::processes::shares::{HolderId, NoRoom, Owner, Shares};

/// Rows that were granted. It is given back by [`RowClaims::release`].
#[derive(Debug)]
pub(super) struct Claim {
    owner: Owner,
    /// `None`: it was handed on to the claim that came after it.
    holder: Option<HolderId>,
    rows: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct RowClaims(Shares);

impl RowClaims {
    /// Where there is room for so many rows in all.
    pub(super) fn new(rows: u32) -> Self {
        Self(Shares::new(rows as usize))
    }

    /// Grants rows to who will hold them. `before`: what this one takes the place of, which needs
    /// no other room then.
    pub(super) fn claim(
        &mut self,
        owner: Owner,
        rows: usize,
        before: Option<&mut Claim>,
    ) -> Result<Claim, NoRoom> {
        // Who has nothing mapped is counted too.
        let rows = rows.max(1);
        let before = before.filter(|before| before.owner == owner && before.holder.is_some());
        let held = before.as_ref().map_or(0, |before| before.rows);
        let mut holder = before.as_ref().and_then(|before| before.holder);
        if rows > held {
            holder = Some(self.0.take(owner, rows - held)?);
        }
        if let Some(before) = before {
            before.holder = None;
        }
        Ok(Claim {
            owner,
            holder,
            rows: rows.max(held),
        })
    }

    /// The rows of a claim that was granted a moment ago could not be written: what it took the
    /// place of stays.
    pub(super) fn undo(&mut self, claim: &Claim, before: Option<&mut Claim>) {
        match before.filter(|before| before.holder.is_none()) {
            Some(before) => {
                before.holder = claim.holder;
                if let Some(holder) = claim.holder
                    && claim.rows > before.rows
                {
                    self.0.give_back(holder, claim.rows - before.rows);
                }
            }
            None => self.release(claim),
        }
    }

    /// The rows are given up.
    pub(super) fn release(&mut self, claim: &Claim) {
        if let Some(holder) = claim.holder {
            self.0.give_back(holder, claim.rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(number: u64, user: u32) -> Owner {
        Owner::Process {
            number,
            user: Some(user),
        }
    }

    // Check that a user with any number of processes leaves room for others, and that what is given
    // up is free again.
    #[test]
    fn a_user_leaves_room_for_others() {
        let mut claims = RowClaims::new(1000);
        let taken: Vec<Claim> = (0..)
            .map_while(|number| claims.claim(of(number, 7), 40, None).ok())
            .collect();
        assert_eq!(taken.len(), 12);
        assert!(claims.claim(of(100, 8), 200, None).is_ok());
        for claim in &taken {
            claims.release(claim);
        }
        assert_eq!(claims.0.used(), 200);
    }

    // Check that a process that maps one thing after the other holds as many rows as it has,
    // however much room there is, and that neither what came before nor what took its place is
    // given back twice.
    #[test]
    fn what_takes_the_place_of_other_rows_needs_only_the_difference() {
        let mut claims = RowClaims::new(1000);
        let mut claim = claims.claim(of(1, 7), 200, None).unwrap();
        for rows in [250, 300, 333, 320, 0, 333] {
            let next = claims.claim(of(1, 7), rows, Some(&mut claim)).unwrap();
            claims.release(&claim);
            claim = next;
        }
        assert_eq!(claims.0.used(), 333);
        assert_eq!(
            claims.claim(of(1, 7), 400, Some(&mut claim)).unwrap_err(),
            NoRoom::OverShare
        );
        assert!(claim.holder.is_some(), "a claim that fails takes nothing");
        claims.release(&claim);
        let mut claim = claims.claim(of(1, 7), 300, None).unwrap();
        let undone = claims.claim(of(1, 7), 320, Some(&mut claim)).unwrap();
        claims.undo(&undone, Some(&mut claim));
        assert_eq!(claims.0.used(), 300);
        let more = claims.claim(of(1, 7), 50, None).unwrap_err();
        assert_eq!((more, claims.0.used()), (NoRoom::OverShare, 300));
        let other = claims.claim(of(2, 8), 100, Some(&mut claim)).unwrap();
        assert_eq!(claims.0.used(), 400);
        claims.release(&claim);
        claims.release(&other);
        assert_eq!(claims.0.used(), 0);
    }
}
