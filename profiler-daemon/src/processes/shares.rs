//! Room that all processes share, and how much of it each may have.
//!
//! The rule: what a process holds is no more than half of what is free, and what all processes of
//! one user hold together is no more than what is free. So a process that takes whatever it can get
//! has a third of the room at most, and its user half; the more there are who do that, the less
//! each of them gets; and whoever holds little finds room all the time. Root's processes are
//! bounded one by one only, and what the system itself needs by the room alone.

use std::collections::HashMap;

/// Root, whose processes are not bounded together.
const ROOT: u32 = 0;

/// Who something is kept for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Owner {
    /// The machine: the kernel's own code, and what nobody in particular brought.
    System,
    /// A process.
    Process {
        /// Tells it apart from all others, those that ended included.
        number: u64,
        /// Its real user; those of whom it is not known are one.
        user: Option<u32>,
    },
}

impl Owner {
    /// Whose process it is, the machine being root's; `None` where that is not known.
    #[must_use]
    pub const fn user(self) -> Option<u32> {
        match self {
            Self::System => Some(ROOT),
            Self::Process { user, .. } => user,
        }
    }
}

/// An [`Owner`] that holds something: small, because there is one beside each thing that is held.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct HolderId(u32);

impl HolderId {
    /// As an index into a list of what is to be given back: below 2^32, and small as long as few
    /// hold anything.
    #[must_use]
    pub const fn index(self) -> usize {
        self.0 as usize
    }

    /// The other way round.
    #[must_use]
    pub fn of_index(index: usize) -> Option<Self> {
        u32::try_from(index).ok().map(Self)
    }
}

/// Why there is no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CapacityError {
    /// All of it is taken.
    Full,
    /// There is some, but the owner, or its user, has as much already.
    OverShare,
}

/// What found no room so far, by why.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RefusedCounts {
    /// Because all was taken.
    pub full: u64,
    /// Because the owner, or its user, had its share.
    pub over_share: u64,
}

impl RefusedCounts {
    /// Counts one.
    pub fn count(&mut self, why: CapacityError) {
        match why {
            CapacityError::Full => self.full += 1,
            CapacityError::OverShare => self.over_share += 1,
        }
    }

    /// All of it.
    #[must_use]
    pub const fn total(self) -> u64 {
        self.full.saturating_add(self.over_share)
    }
}

#[derive(Clone, Debug)]
struct HolderShare {
    owner: Owner,
    held: usize,
}

/// See the module. Amounts are in whatever unit the room has, and are never 0.
#[derive(Clone, Debug)]
pub struct Shares {
    limit: usize,
    used: usize,
    holders: Vec<HolderShare>,
    /// Places in `holders` that are free.
    free: Vec<u32>,
    ids: HashMap<Owner, HolderId>,
    of_process: HashMap<u64, usize>,
    of_user: HashMap<Option<u32>, usize>,
}

impl Shares {
    /// So much room.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        Self {
            limit,
            used: 0,
            holders: Vec::new(),
            free: Vec::new(),
            ids: HashMap::new(),
            of_process: HashMap::new(),
            of_user: HashMap::new(),
        }
    }

    /// How much there is.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.limit
    }

    /// How much of it is taken.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    /// Takes room. What comes back is what gives it back.
    ///
    /// # Errors
    /// There is none for this owner; nothing changes.
    pub fn take(&mut self, owner: Owner, amount: usize) -> Result<HolderId, CapacityError> {
        self.check(owner, amount)?;
        let id = self.holder(owner);
        self.charge(id, amount);
        Ok(id)
    }

    /// Who that is.
    #[must_use]
    pub fn owner(&self, id: HolderId) -> Owner {
        self.holders[id.0 as usize].owner
    }

    /// How much this holder has.
    #[must_use]
    pub fn held(&self, id: HolderId) -> usize {
        self.holders[id.0 as usize].held
    }

    /// Gives room back that a holder took, and takes some for this owner.
    ///
    /// # Errors
    /// There is none for this owner; the holder keeps what it had.
    pub fn exchange(
        &mut self,
        (id, before): (HolderId, usize),
        owner: Owner,
        amount: usize,
    ) -> Result<HolderId, CapacityError> {
        let owner_before = self.owner(id);
        self.give_back(id, before);
        self.take(owner, amount).inspect_err(|_| {
            let same = self.holder(owner_before);
            debug_assert_eq!(same, id, "places are given out again last in, first out");
            self.charge(same, before);
        })
    }

    /// Gives room back that this holder took.
    pub fn give_back(&mut self, id: HolderId, amount: usize) {
        let holder = &mut self.holders[id.0 as usize];
        debug_assert!(holder.held >= amount, "more is given back than was taken");
        let amount = amount.min(holder.held);
        holder.held -= amount;
        self.used -= amount;
        let (owner, is_done) = (holder.owner, holder.held == 0);
        if let Owner::Process { number, user } = owner {
            reduce(&mut self.of_process, number, amount);
            reduce(&mut self.of_user, user, amount);
        }
        if is_done {
            self.ids.remove(&owner);
            self.free.push(id.0);
        }
    }

    fn check(&self, owner: Owner, amount: usize) -> Result<(), CapacityError> {
        let free = self.limit.saturating_sub(self.used);
        let left = free.checked_sub(amount).ok_or(CapacityError::Full)?;
        let Owner::Process { number, user } = owner else {
            return Ok(());
        };
        let of_process = self.of_process.get(&number).copied().unwrap_or_default();
        let of_user = self.of_user.get(&user).copied().unwrap_or_default();
        // The first thing of each fits wherever there is room at all.
        let fits = |held: usize, part: usize| held == 0 || (held + amount) <= left / part;
        if fits(of_process, 2) && (user == Some(ROOT) || fits(of_user, 1)) {
            Ok(())
        } else {
            Err(CapacityError::OverShare)
        }
    }

    fn holder(&mut self, owner: Owner) -> HolderId {
        if let Some(id) = self.ids.get(&owner) {
            return *id;
        }
        let holder = HolderShare { owner, held: 0 };
        let id = match self.free.pop() {
            Some(place) => {
                self.holders[place as usize] = holder;
                HolderId(place)
            }
            None => {
                self.holders.push(holder);
                let last = self.holders.len() - 1;
                HolderId(u32::try_from(last).expect("no more holders than things that are held"))
            }
        };
        self.ids.insert(owner, id);
        id
    }

    fn charge(&mut self, id: HolderId, amount: usize) {
        let holder = &mut self.holders[id.0 as usize];
        holder.held += amount;
        self.used += amount;
        if let Owner::Process { number, user } = holder.owner {
            *self.of_process.entry(number).or_default() += amount;
            *self.of_user.entry(user).or_default() += amount;
        }
    }
}

fn reduce<K: std::hash::Hash + Eq>(held: &mut HashMap<K, usize>, key: K, amount: usize) {
    if let Some(sum) = held.get_mut(&key) {
        *sum -= amount;
        if *sum == 0 {
            held.remove(&key);
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A process of a user.
    pub(crate) fn of(number: u64, user: u32) -> Owner {
        Owner::Process {
            number,
            user: Some(user),
        }
    }

    /// Takes until it is refused; how much that was, and why no more.
    fn grab(shares: &mut Shares, owner: Owner) -> (usize, CapacityError) {
        let mut got = 0;
        loop {
            match shares.take(owner, 1) {
                Ok(_) => got += 1,
                Err(why) => return (got, why),
            }
        }
    }

    // Check that one process gets a third, and with another one of its user half, another user's
    // process a third of the rest, root's as much again each, and the system all that is left.
    #[test]
    fn nobody_has_more_than_is_free() {
        let mut shares = Shares::new(1000);
        assert_eq!(grab(&mut shares, of(1, 7)), (333, CapacityError::OverShare));
        assert_eq!(grab(&mut shares, of(2, 7)), (167, CapacityError::OverShare));
        assert_eq!(grab(&mut shares, of(3, 8)), (166, CapacityError::OverShare));
        assert_eq!(grab(&mut shares, of(4, 0)), (111, CapacityError::OverShare));
        assert_eq!(grab(&mut shares, of(5, 0)).0, 74);
        let unknown = Owner::Process {
            number: 6,
            user: None,
        };
        assert_eq!(grab(&mut shares, unknown).0, 49);
        assert_eq!(grab(&mut shares, Owner::System), (100, CapacityError::Full));
        assert_eq!(shares.used(), 1000);
    }

    // Check that what is given back is there for others, that a holder's number is used again, and
    // that larger amounts count as what they are.
    #[test]
    fn room_comes_back() {
        let mut shares = Shares::new(100);
        let first = shares.take(of(1, 7), 20).unwrap();
        assert_eq!(shares.take(of(1, 7), 15), Err(CapacityError::OverShare));
        assert_eq!(shares.take(of(1, 7), 10), Ok(first));
        assert_eq!(shares.take(of(2, 8), 71), Err(CapacityError::Full));
        shares.give_back(first, 30);
        assert_eq!((shares.used(), shares.ids.len()), (0, 0));
        assert_eq!(shares.take(of(2, 8), 50), Ok(first));
        assert!(shares.of_process.len() == 1 && shares.of_user.len() == 1);
    }

    // Check that what one gave up another has, that who has its share gets no more by it, and that
    // nothing changes then.
    #[test]
    fn room_goes_to_another() {
        let mut shares = Shares::new(100);
        let first = shares.take(of(1, 7), 20).unwrap();
        let larger = shares.exchange((first, 20), of(1, 7), 25).unwrap();
        let second = shares.exchange((larger, 25), of(2, 8), 30).unwrap();
        assert_eq!((shares.used(), shares.owner(second)), (30, of(2, 8)));
        assert!(shares.of_process.len() == 1 && shares.of_user.len() == 1);
        let third = shares.take(of(3, 9), 20).unwrap();
        let refused = shares.exchange((second, 30), of(3, 9), 30);
        assert_eq!(refused, Err(CapacityError::OverShare));
        assert_eq!((shares.used(), shares.owner(second)), (50, of(2, 8)));
        shares.give_back(second, 30);
        shares.give_back(third, 20);
        assert_eq!((shares.used(), shares.ids.len()), (0, 0));
    }
}
