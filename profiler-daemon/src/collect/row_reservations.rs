//! How many of the walker's mapping rows a process and a user may have, so that nobody takes them
//! all.

use crate::processes::shares::{CapacityError, HolderId, Owner, Shares};

/// Rows that were granted. It is given back by [`RowReservations::release`].
#[derive(Debug)]
pub(super) struct Reservation {
    owner: Owner,
    /// `None`: it was handed on to the reservation that came after it.
    holder: Option<HolderId>,
    rows: usize,
}

/// See the module.
#[derive(Debug)]
pub(super) struct RowReservations(Shares);

impl RowReservations {
    /// Where there is room for so many rows in all.
    pub(super) fn new(rows: u32) -> Self {
        Self(Shares::new(rows as usize))
    }

    /// Grants rows to who will hold them. `before`: what this one takes the place of, which needs
    /// no other room then.
    pub(super) fn reserve(
        &mut self,
        owner: Owner,
        rows: usize,
        before: Option<&mut Reservation>,
    ) -> Result<Reservation, CapacityError> {
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
        Ok(Reservation {
            owner,
            holder,
            rows: rows.max(held),
        })
    }

    /// The rows of a reservation that was granted a moment ago could not be written: what it took
    /// the place of stays.
    pub(super) fn undo(&mut self, reservation: &Reservation, before: Option<&mut Reservation>) {
        match before.filter(|before| before.holder.is_none()) {
            Some(before) => {
                before.holder = reservation.holder;
                if let Some(holder) = reservation.holder
                    && reservation.rows > before.rows
                {
                    self.0.give_back(holder, reservation.rows - before.rows);
                }
            }
            None => self.release(reservation),
        }
    }

    /// The rows are given up.
    pub(super) fn release(&mut self, reservation: &Reservation) {
        if let Some(holder) = reservation.holder {
            self.0.give_back(holder, reservation.rows);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::shares::tests::of;

    // Check that a user with any number of processes leaves room for others, and that what is given
    // up is free again.
    #[test]
    fn a_user_leaves_room_for_others() {
        let mut reservations = RowReservations::new(1000);
        let taken: Vec<Reservation> = (0..)
            .map_while(|number| reservations.reserve(of(number, 7), 40, None).ok())
            .collect();
        assert_eq!(taken.len(), 12);
        assert!(reservations.reserve(of(100, 8), 200, None).is_ok());
        for reservation in &taken {
            reservations.release(reservation);
        }
        assert_eq!(reservations.0.used(), 200);
    }

    // Check that a process that maps one thing after the other holds as many rows as it has,
    // however much room there is, and that neither what came before nor what took its place is
    // given back twice.
    #[test]
    fn what_takes_the_place_of_other_rows_needs_only_the_difference() {
        let mut reservations = RowReservations::new(1000);
        let mut reservation = reservations.reserve(of(1, 7), 200, None).unwrap();
        for rows in [250, 300, 333, 320, 0, 333] {
            let next = reservations
                .reserve(of(1, 7), rows, Some(&mut reservation))
                .unwrap();
            reservations.release(&reservation);
            reservation = next;
        }
        assert_eq!(reservations.0.used(), 333);
        assert_eq!(
            reservations
                .reserve(of(1, 7), 400, Some(&mut reservation))
                .unwrap_err(),
            CapacityError::OverShare
        );
        assert!(
            reservation.holder.is_some(),
            "a reservation that fails takes nothing"
        );
        reservations.release(&reservation);
        let mut reservation = reservations.reserve(of(1, 7), 300, None).unwrap();
        let undone = reservations
            .reserve(of(1, 7), 320, Some(&mut reservation))
            .unwrap();
        reservations.undo(&undone, Some(&mut reservation));
        assert_eq!(reservations.0.used(), 300);
        let more = reservations.reserve(of(1, 7), 50, None).unwrap_err();
        assert_eq!(
            (more, reservations.0.used()),
            (CapacityError::OverShare, 300)
        );
        let other = reservations
            .reserve(of(2, 8), 100, Some(&mut reservation))
            .unwrap();
        assert_eq!(reservations.0.used(), 400);
        reservations.release(&reservation);
        reservations.release(&other);
        assert_eq!(reservations.0.used(), 0);
    }
}
