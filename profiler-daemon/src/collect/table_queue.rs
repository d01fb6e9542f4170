//! Whose unwind table is made next. The thread that makes them is shared fairly among the owners of
//! files, by the time that their tables take and not by their number: whoever maps files without
//! end waits behind his own. Within one owner the smallest file is next, and counts half as large
//! with each second that it waits. Pure: files are numbers here, none is open.

use std::collections::BTreeMap;

use crate::processes::module::ModuleId;
use crate::units::MonoNs;

/// Most files of one owner that wait.
const MAX_OF_OWNER: usize = 512;
/// Most files that wait.
const MAX_WAITING: usize = 4096;
/// The user whose files always find room within his own bound.
const ROOT: u32 = 0;
/// The time in which a file that waits comes to count half as large, nanoseconds.
const HALVED_NS: u64 = 1_000_000_000;

/// A file that waits for its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Waiting {
    /// Its module.
    pub(super) module: ModuleId,
    /// Who owns it: the kernel's number of a user, whatever namespaces say.
    pub(super) owner: u32,
    /// Its size, bytes.
    pub(super) size_bytes: u64,
}

#[derive(Debug, Default)]
struct QueueOwner {
    /// What its tables took, nanoseconds; beginning with what others had had when it came.
    charged_ns: u64,
    /// Its files, and since when they wait.
    waiting: Vec<(Waiting, MonoNs)>,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct TableQueue {
    owners: BTreeMap<u32, QueueOwner>,
    length: usize,
    /// What the owner whose turn was last had been charged before it.
    turn_ns: u64,
}

impl TableQueue {
    /// Adds a file. False if too many wait: ask again later.
    #[must_use]
    pub(super) fn push(&mut self, file: Waiting, now_ns: MonoNs) -> bool {
        let turn_ns = self.turn_ns;
        // There may be many users, of whom one can have made the files of all; there is one root.
        if self.length >= MAX_WAITING && file.owner != ROOT {
            return false;
        }
        let owner = self.owners.entry(file.owner).or_default();
        if owner.waiting.len() >= MAX_OF_OWNER {
            return false;
        }
        if owner.waiting.is_empty() {
            // Who asked for nothing saves nothing up.
            owner.charged_ns = owner.charged_ns.max(turn_ns);
        }
        owner.waiting.push((file, now_ns));
        self.length += 1;
        true
    }

    /// The next file. It is the turn of the owner that was charged least; among those alike, of the
    /// one whose file waits longest.
    pub(super) fn next(&mut self, now_ns: MonoNs) -> Option<Waiting> {
        let with_files = self.owners.values_mut();
        let owner = with_files
            .filter(|owner| !owner.waiting.is_empty())
            .min_by_key(|owner| (owner.charged_ns, owner.waiting.first().map(|file| file.1)))?;
        self.turn_ns = self.turn_ns.max(owner.charged_ns);
        let counts = |at: &usize| {
            let (file, since_ns) = owner.waiting[*at];
            let halved = now_ns.saturating_since(since_ns) / HALVED_NS;
            file.size_bytes
                .checked_shr(u32::try_from(halved).unwrap_or(u32::MAX))
                .unwrap_or(0)
        };
        let at = (0..owner.waiting.len()).min_by_key(counts)?;
        self.length -= 1;
        Some(owner.waiting.remove(at).0)
    }

    /// A table of that owner took so long.
    pub(super) fn charge(&mut self, owner: u32, took_ns: u64) {
        if self.length == 0 {
            // Nobody waits: all begin alike.
            self.owners.clear();
            self.turn_ns = 0;
            return;
        }
        let owner = self.owners.entry(owner).or_default();
        owner.charged_ns = owner.charged_ns.max(self.turn_ns).saturating_add(took_ns);
        let turn_ns = self.turn_ns;
        self.owners
            .retain(|_, owner| !owner.waiting.is_empty() || owner.charged_ns > turn_ns);
    }

    /// How many files wait.
    pub(super) const fn len(&self) -> usize {
        self.length
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const MS_NS: u64 = 1_000_000;
    const HOSTILE: u32 = 1000;
    const OTHER: u32 = 1001;

    fn file(module: u64, owner: u32, size_bytes: u64) -> Waiting {
        Waiting {
            module: ModuleId(module),
            owner,
            size_bytes,
        }
    }

    // Check that of one owner's files the smallest is next, of those as large the one that came
    // first, and that a large file comes to its turn although smaller ones come without end.
    #[test]
    fn small_files_first_with_age() {
        let mut queue = TableQueue::default();
        for (module, size_bytes) in [(0, 500), (1, 20), (2, 3), (3, 20)] {
            assert!(queue.push(file(module, ROOT, size_bytes), MonoNs::ZERO));
        }
        let order: Vec<u64> = (0..4)
            .map(|_| queue.next(MonoNs::ZERO).unwrap().module.0)
            .collect();
        assert_eq!(order, [2, 1, 3, 0]);
        assert!(queue.push(file(9, ROOT, 100 << 20), MonoNs::ZERO));
        let turn_ms = (0..).find(|ms| {
            assert!(queue.push(file(8, ROOT, 1000), MonoNs::new(ms * MS_NS)));
            queue.next(MonoNs::new(ms * MS_NS)).unwrap().module.0 == 9
        });
        assert!(turn_ms.unwrap() <= 20_000, "{turn_ms:?}");
    }

    // Check that a user whose files come every 20 ms and take 150 ms each, smaller than all others,
    // does not keep a program with twenty files of root's and one of another user's waiting for
    // longer than they and one of his take.
    #[test]
    fn a_stream_of_files_beside_others() {
        let mut queue = TableQueue::default();
        let (mut now_ms, mut pushed_ms) = (0, 0);
        let mut in_work: Option<(Waiting, u64)> = None;
        let mut done_ms: HashMap<u64, u64> = HashMap::new();
        let begin_ms = 10_000;
        while now_ms < 20_000 {
            let now_ns = now_ms * MS_NS;
            while pushed_ms <= now_ms {
                // Beyond his share he is refused, and asks again.
                let _taken = queue.push(file(100_000, HOSTILE, 800), MonoNs::new(now_ns));
                pushed_ms += 20;
            }
            if now_ms == begin_ms {
                for module in 0..20 {
                    assert!(queue.push(file(module, ROOT, 6 << 20), MonoNs::new(now_ns)));
                }
                assert!(queue.push(file(20, OTHER, 6 << 20), MonoNs::new(now_ns)));
            }
            if let Some((file, end_ms)) = in_work
                && end_ms <= now_ms
            {
                in_work = None;
                let cost_ms = if file.owner == HOSTILE { 150 } else { 10 };
                queue.charge(file.owner, cost_ms * MS_NS);
                done_ms.insert(file.module.0, now_ms);
            }
            if in_work.is_none()
                && let Some(file) = queue.next(MonoNs::new(now_ns))
            {
                let cost_ms = if file.owner == HOSTILE { 150 } else { 10 };
                in_work = Some((file, now_ms + cost_ms));
            }
            now_ms += 1;
        }
        let last_ms = (0..=20).map(|module| done_ms[&module]).max().unwrap();
        let alone_ms = 21 * 10;
        assert!(last_ms - begin_ms <= alone_ms + 2 * 150 + 30, "{last_ms}");
        assert!(
            done_ms[&100_000] > 19_000,
            "he has the time that nobody needs"
        );
    }

    // Check that owners who always have files share the time alike, whatever their number and what
    // each takes.
    #[test]
    fn time_is_shared_and_not_turns() {
        let mut queue = TableQueue::default();
        let mut had_ns: HashMap<u32, u64> = HashMap::new();
        for round in 0..3000 {
            for _ in 0..10 {
                let _taken = queue.push(file(1, HOSTILE, 10), MonoNs::new(round));
            }
            let _taken = queue.push(file(2, OTHER, 1 << 20), MonoNs::new(round));
            let _taken = queue.push(file(3, ROOT, 1 << 20), MonoNs::new(round));
            let next = queue.next(MonoNs::new(round)).unwrap();
            let cost_ns = [7, 100, 1][next.module.0 as usize - 1] * MS_NS;
            queue.charge(next.owner, cost_ns);
            *had_ns.entry(next.owner).or_default() += cost_ns;
        }
        let (least, most) = (
            had_ns.values().min().unwrap(),
            had_ns.values().max().unwrap(),
        );
        assert!(most - least <= 100 * MS_NS, "{had_ns:?}");
    }

    // Check that the files of one owner and of all are bounded, that one owner's bound leaves room
    // for others, and that an owner of whom nothing waits is forgotten.
    #[test]
    fn bounded() {
        let mut queue = TableQueue::default();
        let taken = (0..100_000).filter(|n| queue.push(file(*n, HOSTILE, 1), MonoNs::ZERO));
        assert_eq!(taken.count(), MAX_OF_OWNER);
        assert!(queue.push(file(1, ROOT, 1), MonoNs::ZERO));
        for owner in 1..100_000 {
            let _taken = queue.push(file(1, owner, 1), MonoNs::ZERO);
        }
        assert_eq!(queue.len(), MAX_WAITING);
        assert!(queue.push(file(2, ROOT, 1), MonoNs::ZERO));
        while let Some(next) = queue.next(MonoNs::ZERO) {
            queue.charge(next.owner, MS_NS);
        }
        assert!(queue.owners.is_empty());
    }
}
