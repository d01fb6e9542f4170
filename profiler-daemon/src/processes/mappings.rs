//! What one process has mapped for execution, and since when. Pure: an address at a time gives a
//! module and an offset.
//!
//! The kernel reports new mappings but not those that go away, so an old one ends when a new one
//! covers it, or with an exec. What ended is kept some seconds for stacks that were walked before.
//! It would break if times came from another clock than the walks'.

use std::sync::Arc;

use super::module::ModuleId;
use crate::units::{FileOffset, ModuleOffset, MonoNs, VirtualAddress};

/// Most mappings of one process, present ones; JIT engines reach thousands.
pub const MAX_MAPPINGS: usize = 4096;
/// Most ended mappings kept for one process.
pub const MAX_ENDED: usize = 1024;
/// How long ended mappings are kept for stacks that were walked before they ended, nanoseconds.
pub const KEEP_ENDED_NS: u64 = 5_000_000_000;
/// Most programs before the present one that are remembered: `sh` executes `env` executes the
/// program.
const MAX_BEFORE: u32 = 4;

/// Where an address is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Place {
    /// The module.
    pub module: ModuleId,
    /// File offset; the address itself where the module is no file.
    pub offset: ModuleOffset,
}

/// One range of executable addresses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Mapping {
    /// First address.
    pub start: VirtualAddress,
    /// Address behind the last one.
    pub end: VirtualAddress,
    /// What is mapped.
    pub module: ModuleId,
    /// File offset of `start`; `None` where the module is no file and offsets are addresses.
    pub file_offset: Option<FileOffset>,
    /// Since when, monotonic nanoseconds; 0 where it was there before anybody looked.
    pub since_ns: MonoNs,
}

impl Mapping {
    fn contains(&self, address: VirtualAddress) -> bool {
        (self.start..self.end).contains(&address)
    }

    /// The module and offset of an address inside.
    #[must_use]
    pub fn place(&self, address: VirtualAddress) -> Place {
        let offset = match self.file_offset {
            Some(file_offset) => {
                ModuleOffset::of_file(file_offset.wrapping_add(address.wrapping_from(self.start)))
            }
            None => ModuleOffset::of_address(address),
        };
        Place {
            module: self.module,
            offset,
        }
    }

    /// Whether both give every address the same place.
    fn same_places(&self, other: &Self) -> bool {
        self.module == other.module
            && self.file_offset.is_some() == other.file_offset.is_some()
            && self.place(self.start) == other.place(self.start)
    }

    fn cut(&self, start: VirtualAddress, end: VirtualAddress) -> Option<Self> {
        (start < end).then(|| Self {
            start,
            end,
            file_offset: self
                .file_offset
                .map(|offset| offset.wrapping_add(start.wrapping_from(self.start))),
            ..*self
        })
    }
}

/// What became of a new mapping.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Added {
    /// Its addresses were free.
    New,
    /// Nothing changed: all of it was known.
    Known,
    /// It took addresses of others, which end with it.
    Replaced,
    /// There was no room: its addresses, or the remains of what it covered, stay unmapped. Counted
    /// by the caller.
    Full,
}

/// All executable mappings of one process.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mappings {
    /// Present ones: by address, never overlapping. Shared by processes that have the same ones,
    /// whatever has ended in each.
    present: Arc<Vec<Mapping>>,
    /// Ended ones with the time of their end, in order of that time.
    ended: Vec<(MonoNs, Mapping)>,
    generation: u32,
    changes: u32,
    /// What the process had mapped until it executed its present program, and when that was.
    /// Shared, not copied: most often it is the table of the parent.
    before: Option<(MonoNs, Arc<Mappings>)>,
    /// How many programs are remembered.
    depth: u32,
}

impl Mappings {
    /// Grows whenever an address may mean something else than before: a mapping was replaced, or a
    /// program executed.
    #[must_use]
    pub fn generation(&self) -> u32 {
        self.generation
    }

    /// Grows with every change, also when addresses that meant nothing mean something from now on.
    #[must_use]
    pub fn changes(&self) -> u32 {
        self.changes
    }

    /// The present mappings, by address.
    #[must_use]
    pub fn present(&self) -> &[Mapping] {
        &self.present
    }

    /// The same, for whoever keeps them: another `Arc` as soon as they change.
    #[must_use]
    pub const fn present_shared(&self) -> &Arc<Vec<Mapping>> {
        &self.present
    }

    /// The modules of all mappings, of those that ended and of programs before the present one too.
    pub fn modules(&self) -> impl Iterator<Item = ModuleId> {
        std::iter::successors(Some(self), |of| {
            of.before.as_ref().map(|(_, before)| &**before)
        })
        .flat_map(|of| {
            let ended = of.ended.iter().map(|(_, mapping)| mapping);
            of.present.iter().chain(ended).map(|mapping| mapping.module)
        })
    }

    /// Memory held for what has ended, bytes.
    #[must_use]
    pub const fn ended_bytes(&self) -> usize {
        self.ended.capacity() * size_of::<(MonoNs, Mapping)>()
    }

    /// Where this address was at that time. Also answers for ended mappings, as long as they are
    /// kept.
    #[must_use]
    pub fn place(&self, address: VirtualAddress, time_ns: MonoNs) -> Option<Place> {
        if let Some((exec_ns, before)) = &self.before
            && time_ns < *exec_ns
        {
            return before.place(address, time_ns);
        }
        // The first to end after that time is the one that was there. Asked first: the beginning of
        // a present one can be a guess, the end of another is not.
        let after = self.ended.partition_point(|(end_ns, _)| *end_ns <= time_ns);
        let mut ended = self.ended[after..].iter().map(|(_, mapping)| mapping);
        if let Some(mapping) =
            ended.find(|mapping| mapping.since_ns <= time_ns && mapping.contains(address))
        {
            return Some(mapping.place(address));
        }
        let at = self
            .present
            .partition_point(|mapping| mapping.end <= address);
        let present = self.present.get(at);
        let present =
            present.filter(|mapping| mapping.contains(address) && mapping.since_ns <= time_ns);
        present.map(|mapping| mapping.place(address))
    }

    /// Adds a mapping that became executable at its `since_ns`; whatever it covers ends then.
    pub fn add(&mut self, new: Mapping) -> Added {
        if new.start >= new.end {
            return Added::Known;
        }
        let first = self
            .present
            .partition_point(|mapping| mapping.end <= new.start);
        let behind = self
            .present
            .partition_point(|mapping| mapping.start < new.end);
        let covered = &self.present[first..behind];
        if let [only] = covered
            && only.same_places(&new)
            && only.start <= new.start
            && only.end >= new.end
        {
            return Added::Known;
        }
        if covered.iter().all(|mapping| mapping.same_places(&new)) {
            return self.join(first, behind, new);
        }
        // Without room for the remains of what it covers, the remains go too: a wrong place is
        // worse than none.
        let full = self.present.len() + 3 - covered.len() > MAX_MAPPINGS;
        let mut kept = Vec::with_capacity(3);
        let mut ended = Vec::with_capacity(covered.len());
        for mapping in covered {
            if full {
                ended.push(*mapping);
                continue;
            }
            kept.extend(mapping.cut(mapping.start, mapping.end.min(new.start)));
            ended.extend(mapping.cut(mapping.start.max(new.start), mapping.end.min(new.end)));
        }
        let before = kept.len();
        if !full {
            kept.extend(
                covered
                    .iter()
                    .filter_map(|mapping| mapping.cut(mapping.start.max(new.end), mapping.end)),
            );
        }
        kept.insert(before, new);
        Arc::make_mut(&mut self.present).splice(first..behind, kept);
        for mapping in ended {
            self.end(mapping, new.since_ns);
        }
        self.count_generation();
        if full { Added::Full } else { Added::Replaced }
    }

    /// Several pieces that give the same places as the new one become one with it: no address
    /// changes its meaning.
    fn join(&mut self, first: usize, behind: usize, new: Mapping) -> Added {
        let covered = &self.present[first..behind];
        if covered.is_empty() && self.present.len() >= MAX_MAPPINGS {
            return Added::Full;
        }
        let start = covered
            .first()
            .map_or(new.start, |mapping| mapping.start.min(new.start));
        let end = covered
            .last()
            .map_or(new.end, |mapping| mapping.end.max(new.end));
        let since_ns = covered
            .iter()
            .map(|mapping| mapping.since_ns)
            .fold(new.since_ns, MonoNs::min);
        let file_offset = new
            .file_offset
            .map(|offset| offset.wrapping_sub(new.start.wrapping_from(start)));
        let joined = Mapping {
            start,
            end,
            file_offset,
            since_ns,
            module: new.module,
        };
        Arc::make_mut(&mut self.present).splice(first..behind, [joined]);
        self.changes = self.changes.wrapping_add(1);
        Added::New
    }

    fn count_generation(&mut self) {
        self.generation = self.generation.wrapping_add(1);
        self.changes = self.changes.wrapping_add(1);
    }

    fn end(&mut self, mapping: Mapping, time_ns: MonoNs) {
        if self.ended.len() >= MAX_ENDED {
            self.ended.drain(..MAX_ENDED / 4);
        }
        let at = self.ended.partition_point(|(end_ns, _)| *end_ns <= time_ns);
        self.ended.insert(at, (time_ns, mapping));
    }

    /// The process became another program: nothing is mapped any more. What was is remembered for
    /// older stacks.
    pub fn exec(this: &mut Arc<Self>, time_ns: MonoNs) {
        let depth = this.depth + 1;
        let mut before = Arc::clone(this);
        if depth > MAX_BEFORE {
            Arc::make_mut(&mut before).before = None;
        }
        *this = Arc::new(Self {
            generation: this.generation.wrapping_add(1),
            changes: this.changes.wrapping_add(1),
            before: Some((time_ns, before)),
            depth: if depth > MAX_BEFORE { 1 } else { depth },
            ..Self::default()
        });
    }

    /// Takes over what `/proc/PID/maps` says now, after something was missed: mappings not in
    /// `listed` end now, new ones that take the place of others count from `since_ns` on, those at
    /// free addresses always. Answers how many had no room.
    pub fn replace_all(&mut self, listed: &[Mapping], since_ns: MonoNs, now_ns: MonoNs) -> u64 {
        let stays = |old: &Mapping| {
            // Both lists are in order of address.
            let at = listed.partition_point(|new| new.end <= old.start);
            listed.get(at).is_some_and(|new| new.start < old.end)
        };
        let gone = self.present.iter().filter(|old| !stays(old));
        let gone: Vec<Mapping> = gone.copied().collect();
        if !gone.is_empty() {
            Arc::make_mut(&mut self.present).retain(stays);
            self.count_generation();
        }
        for mapping in gone {
            self.end(mapping, now_ns);
        }
        let mut full = 0;
        for new in listed {
            let at = self.present.partition_point(|old| old.end <= new.start);
            let free = self.present.get(at).is_none_or(|old| old.start >= new.end);
            let since_ns = if free { MonoNs::ZERO } else { since_ns };
            full += u64::from(self.add(Mapping { since_ns, ..*new }) == Added::Full);
        }
        full
    }

    /// Forgets mappings that ended more than [`KEEP_ENDED_NS`] ago.
    pub fn forget_old(&mut self, now_ns: MonoNs) {
        let limit_ns = now_ns.saturating_sub(KEEP_ENDED_NS);
        let old = self.ended.partition_point(|(end_ns, _)| *end_ns < limit_ns);
        self.ended.drain(..old);
        if self.ended.is_empty() {
            self.ended.shrink_to_fit();
        }
        if self
            .before
            .as_ref()
            .is_some_and(|(exec_ns, _)| *exec_ns < limit_ns)
        {
            self.before = None;
            self.depth = 0;
        }
    }

    /// Whether [`Self::forget_old`] would forget anything.
    #[must_use]
    pub fn has_old(&self, now_ns: MonoNs) -> bool {
        let limit_ns = now_ns.saturating_sub(KEEP_ENDED_NS);
        self.ended
            .first()
            .is_some_and(|(end_ns, _)| *end_ns < limit_ns)
            || self
                .before
                .as_ref()
                .is_some_and(|(exec_ns, _)| *exec_ns < limit_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const A: ModuleId = ModuleId(10);
    const B: ModuleId = ModuleId(11);

    fn file(module: ModuleId, start: u64, end: u64, file_offset: u64, since_ns: u64) -> Mapping {
        Mapping {
            start: VirtualAddress::new(start),
            end: VirtualAddress::new(end),
            module,
            file_offset: Some(FileOffset::new(file_offset)),
            since_ns: MonoNs::new(since_ns),
        }
    }

    fn at(mappings: &Mappings, address: u64, time_ns: u64) -> Option<(ModuleId, u64)> {
        mappings
            .place(VirtualAddress::new(address), MonoNs::new(time_ns))
            .map(|place| (place.module, place.offset.get()))
    }

    // Check the timeline of one address:   A since 10   B since 20   exec at 30
    //                                ----------|AAAAAAAAA|BBBBBBBBBBBB|--------
    #[test]
    fn an_address_over_time() {
        let mut mappings = Arc::new(Mappings::default());
        let table = Arc::make_mut(&mut mappings);
        assert_eq!(table.add(file(A, 0x1000, 0x3000, 0x500, 10)), Added::New);
        assert_eq!(table.generation(), 0);
        assert_eq!(table.add(file(B, 0x1000, 0x3000, 0, 20)), Added::Replaced);
        assert_eq!(table.generation(), 1);
        Mappings::exec(&mut mappings, MonoNs::new(30));
        assert_eq!(mappings.generation(), 2);
        let seen: Vec<_> = [9, 10, 19, 20, 29, 30]
            .map(|time| at(&mappings, 0x1010, time))
            .into();
        let (a, b) = (Some((A, 0x510)), Some((B, 0x10)));
        assert_eq!(seen, [None, a, a, b, b, None]);
    }

    // Check that covering the middle of a mapping leaves its ends in place with their offsets.
    #[test]
    fn covering_the_middle() {
        let mut mappings = Mappings::default();
        mappings.add(file(A, 0x1000, 0x5000, 0, 1));
        assert_eq!(mappings.add(file(B, 0x2000, 0x3000, 0, 2)), Added::Replaced);
        assert_eq!(at(&mappings, 0x1fff, 5), Some((A, 0xfff)));
        assert_eq!(at(&mappings, 0x2000, 5), Some((B, 0)));
        assert_eq!(at(&mappings, 0x3000, 5), Some((A, 0x2000)));
        assert_eq!(at(&mappings, 0x2000, 1), Some((A, 0x1000)));
        assert_eq!(at(&mappings, 0x5000, 5), None);
    }

    // Check that hearing of a mapping again is no change, and that hearing of its neighbouring
    // pieces does not make a new generation: a JIT engine changes protections all the time.
    #[test]
    fn repeats_keep_the_generation() {
        let mut mappings = Mappings::default();
        let jit = |start, end, since_ns| Mapping {
            start: VirtualAddress::new(start),
            end: VirtualAddress::new(end),
            module: ModuleId::JIT,
            file_offset: None,
            since_ns: MonoNs::new(since_ns),
        };
        assert_eq!(mappings.add(jit(0x1000, 0x2000, 1)), Added::New);
        assert_eq!(mappings.add(jit(0x1000, 0x2000, 5)), Added::Known);
        assert_eq!(mappings.changes(), 1);
        assert_eq!(mappings.add(jit(0x1800, 0x3000, 6)), Added::New);
        assert_eq!((mappings.present().len(), mappings.changes()), (1, 2));
        assert_eq!(at(&mappings, 0x2fff, 6), Some((ModuleId::JIT, 0x2fff)));
        assert_eq!(mappings.add(file(A, 0x8000, 0x9000, 0, 1)), Added::New);
        assert_eq!(mappings.add(file(A, 0x8800, 0xa000, 0x800, 7)), Added::New);
        assert_eq!(at(&mappings, 0x9fff, 8), Some((A, 0x1fff)));
        assert_eq!(mappings.generation(), 0);
    }

    // Check that the same file at another offset does end the old mapping.
    #[test]
    fn same_file_other_offset() {
        let mut mappings = Mappings::default();
        mappings.add(file(A, 0x1000, 0x2000, 0, 1));
        assert_eq!(
            mappings.add(file(A, 0x1000, 0x2000, 0x40, 2)),
            Added::Replaced
        );
        assert_eq!(at(&mappings, 0x1000, 3), Some((A, 0x40)));
    }

    // Check that a re-read ends what is gone, keeps what stayed, and finds what was missed.
    #[test]
    fn reading_again() {
        let mut mappings = Mappings::default();
        mappings.add(file(A, 0x1000, 0x2000, 0, 1));
        mappings.add(file(B, 0x5000, 0x6000, 0, 1));
        let listed = [file(A, 0x1000, 0x2000, 0, 0), file(B, 0x8000, 0x9000, 0, 0)];
        assert_eq!(
            mappings.replace_all(&listed, MonoNs::new(50), MonoNs::new(100)),
            0
        );
        assert_eq!(at(&mappings, 0x1000, 60), Some((A, 0)));
        assert_eq!(at(&mappings, 0x5000, 60), Some((B, 0)));
        assert_eq!(at(&mappings, 0x5000, 100), None);
        assert_eq!(at(&mappings, 0x8000, 49), Some((B, 0)));
        assert_eq!(
            mappings.replace_all(
                &[file(B, 0x1000, 0x2000, 0, 0)],
                MonoNs::new(150),
                MonoNs::new(200)
            ),
            0
        );
        let around = [149, 150].map(|time_ns| at(&mappings, 0x1000, time_ns));
        assert_eq!(around, [Some((A, 0)), Some((B, 0))]);
    }

    // Check that the numbers of present and ended mappings are bounded, and that a full table
    // rather forgets a place than keeps a wrong one.
    #[test]
    fn bounds() {
        let mut mappings = Mappings::default();
        for index in 0..MAX_MAPPINGS as u64 {
            assert_eq!(
                mappings.add(file(A, index * 0x2000, index * 0x2000 + 0x1000, 0, 1)),
                Added::New
            );
        }
        assert_eq!(
            mappings.add(file(A, 1 << 40, (1 << 40) + 1, 0, 1)),
            Added::Full
        );
        assert_eq!(mappings.add(file(B, 0x800, 0x900, 0, 2)), Added::Full);
        assert_eq!(
            (at(&mappings, 0x800, 3), at(&mappings, 0x900, 3)),
            (Some((B, 0)), None)
        );
        for time_ns in 3..5000 {
            mappings.add(file(ModuleId(time_ns), 0x800, 0x900, 0, time_ns));
        }
        assert!(mappings.present.len() <= MAX_MAPPINGS && mappings.ended.len() <= MAX_ENDED);
    }

    // Check that what ended, and the program before the present one, is forgotten after its time.
    #[test]
    fn forgets() {
        let mut mappings = Arc::new(Mappings::default());
        let table = Arc::make_mut(&mut mappings);
        table.add(file(A, 0x1000, 0x2000, 0, 1));
        table.add(file(B, 0x1000, 0x2000, 0, 2));
        Mappings::exec(&mut mappings, MonoNs::new(5));
        assert_eq!(
            [1, 4].map(|time_ns| at(&mappings, 0x1000, time_ns)),
            [Some((A, 0)), Some((B, 0))]
        );
        assert!(
            !mappings.has_old(MonoNs::new(5 + KEEP_ENDED_NS))
                && mappings.has_old(MonoNs::new(6 + KEEP_ENDED_NS))
        );
        Arc::make_mut(&mut mappings).forget_old(MonoNs::new(6 + KEEP_ENDED_NS));
        assert_eq!(at(&mappings, 0x1000, 4), None);
        assert!(!mappings.has_old(MonoNs::MAX));
    }

    // Check that a process that executes one program after another without end does not remember
    // them all.
    #[test]
    fn remembers_few_programs() {
        let mut mappings = Arc::new(Mappings::default());
        for time_ns in 1..100 {
            Arc::make_mut(&mut mappings).add(file(A, 0x1000, 0x2000, 0, time_ns));
            Mappings::exec(&mut mappings, MonoNs::new(time_ns));
        }
        let mut remembered = 0;
        let mut next = mappings.before.as_ref();
        while let Some((_, before)) = next {
            remembered += 1;
            next = before.before.as_ref();
        }
        assert!((1..=MAX_BEFORE).contains(&remembered), "{remembered}");
        assert_eq!(mappings.generation(), 99);
    }

    proptest! {
        // Check against a table of single addresses: whatever is added, the last mapping wins at
        // every address, and present ranges never overlap.
        #[test]
        fn last_one_wins(adds in prop::collection::vec((0_u64..60, 1_u64..20, 0_u32..3, 0_u64..4), 1..40)) {
            let mut mappings = Mappings::default();
            let mut model = [None; 80];
            for (index, (start, len, module, offset)) in adds.into_iter().enumerate() {
                let new = file(ModuleId(u64::from(module)), start, start + len, offset, index as u64);
                mappings.add(new);
                for address in start..start + len {
                    let place = new.place(VirtualAddress::new(address));
                    model[usize::try_from(address).unwrap()] = Some(place);
                }
            }
            for (address, expected) in model.iter().enumerate() {
                let address = VirtualAddress::new(address as u64);
                prop_assert_eq!(mappings.place(address, MonoNs::MAX), *expected);
            }
            prop_assert!(mappings.present().windows(2).all(|pair| pair[0].end <= pair[1].start));
        }
    }
}
