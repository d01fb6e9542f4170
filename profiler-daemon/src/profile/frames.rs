//! Frames under small numbers: a place in a module is stored once, whatever number of stacks it is
//! on.
//!
//! The table is bounded, and so is what one process or user may have of it ([`Shares`]); what finds
//! no room is `[unknown]` and counted. Frames that nothing names leave ([`FrameTable::sweep`]):
//! whoever has numbers of frames says which, the rest is free for others. A number means one frame
//! as long as anything names it, and may mean another one later.
//!
//! Copies share full chunks, so a snapshot costs one reference count per chunk and a writer copies
//! a chunk at most once for it. **A number belongs to the copy that it was read from**: what a
//! number means in a snapshot never changes, but two snapshots may mean different frames by it
//! (`FrameList::same_numbers`, `FrameList::adopt`).

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::processes::{
    module::{ModuleId, ModuleMarks},
    shares::{HolderId, Owner, RefusedCounts, Shares},
};
use crate::units::ModuleOffset;

/// Frames per shared chunk.
const CHUNK: usize = if cfg!(test) { 16 } else { 4096 };
/// The table is swept when it has grown by this part of its limit, whatever it held.
const LEAST_GROWTH: usize = 16;

/// A place in a module.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct Frame {
    /// The module.
    pub module: ModuleId,
    /// File offset in an ELF file; the address itself for `[kernel]`, `[jit]` and `[unknown]`.
    pub offset: ModuleOffset,
}

/// The number of a [`Frame`].
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct FrameId(pub u32);

impl FrameId {
    /// `[unknown]`: module `[unknown]`, offset 0.
    pub const UNKNOWN: Self = Self(0);
}

/// All frames by number: what a snapshot keeps. Numbers of frames that left read as `[unknown]`.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FrameList {
    chunks: Vec<Arc<Vec<Frame>>>,
    len: usize,
    /// Grows whenever a number may mean another frame than before.
    #[serde(skip)]
    sweeps: u64,
}

impl FrameList {
    /// The frame of this number; `[unknown]` for a number this copy has not seen.
    #[must_use]
    pub fn get(&self, id: FrameId) -> Frame {
        let index = id.0 as usize;
        self.chunks
            .get(index / CHUNK)
            .and_then(|chunk| chunk.get(index % CHUNK))
            .copied()
            .unwrap_or_default()
    }

    /// Whether a frame may have this number.
    pub(super) fn holds(&self, id: FrameId) -> bool {
        (id.0 as usize) < self.len
    }

    /// Whether all chunks but the last are full, and the first frame is the reserved one.
    pub(super) fn is_whole(&self) -> bool {
        let held: usize = self.chunks.iter().map(|chunk| chunk.len()).sum();
        let full = self.chunks.iter().rev().skip(1);
        held == self.len
            && full.clone().all(|chunk| chunk.len() == CHUNK)
            && self.chunks.last().is_none_or(|last| last.len() <= CHUNK)
            && self.get(FrameId::UNKNOWN) == Frame::default()
    }

    /// Whether numbers of either copy mean the same in the other, as far as both have them.
    pub(super) const fn same_numbers(&self, other: &Self) -> bool {
        self.sweeps == other.sweeps
    }

    /// A number for a frame of an older copy, beyond all that this one has.
    pub(super) fn adopt(&mut self, frame: Frame) -> FrameId {
        let id = FrameId(u32::try_from(self.len).unwrap_or(FrameId::UNKNOWN.0));
        if id != FrameId::UNKNOWN {
            self.push(frame);
        }
        id
    }

    fn push(&mut self, frame: Frame) {
        if self.len.is_multiple_of(CHUNK) {
            self.chunks.push(Arc::new(Vec::with_capacity(CHUNK)));
        }
        let last = self.chunks.last_mut().expect("pushed above");
        Arc::make_mut(last).push(frame);
        self.len += 1;
    }

    /// A chunk in which no number has a frame, behind all others; those left over in the chunk
    /// before it are added to `free`.
    fn push_chunk(&mut self, vacant: &Arc<Vec<Frame>>, free: &mut Vec<u32>) -> u32 {
        let first = self.len;
        while !self.len.is_multiple_of(CHUNK) {
            self.push(Frame::default());
        }
        free.extend((first..self.len).rev().map(|number| number as u32));
        let index = self.chunks.len() as u32;
        self.chunks.push(Arc::clone(vacant));
        self.len += CHUNK;
        index
    }

    /// Memory of all chunks but those that are `vacant`, which is one for all.
    fn held_bytes(&self, vacant: &Arc<Vec<Frame>>) -> usize {
        let own = self
            .chunks
            .iter()
            .filter(|chunk| !Arc::ptr_eq(chunk, vacant));
        own.count() * CHUNK * size_of::<Frame>()
    }

    fn set(&mut self, id: FrameId, frame: Frame) {
        let index = id.0 as usize;
        if let Some(chunk) = self.chunks.get_mut(index / CHUNK) {
            Arc::make_mut(chunk)[index % CHUNK] = frame;
        }
    }
}

/// Which frames something names.
#[derive(Debug)]
pub struct LiveFrames(Vec<u64>);

impl LiveFrames {
    fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    /// This one stays.
    pub fn keep(&mut self, id: FrameId) {
        let index = id.0 as usize;
        if let Some(word) = self.0.get_mut(index / 64) {
            *word |= 1 << (index % 64);
        }
    }

    fn has(&self, index: usize) -> bool {
        self.0[index / 64] >> (index % 64) & 1 == 1
    }
}

/// A frame's number, and whose room it takes.
#[derive(Clone, Copy, Debug)]
struct Held {
    id: FrameId,
    by: HolderId,
}

/// Frames and their numbers.
#[derive(Debug)]
pub struct FrameTable {
    held: HashMap<Frame, Held>,
    list: FrameList,
    /// Numbers that no frame has, highest first, but those of chunks that have none.
    free: Vec<u32>,
    /// Chunks that have no frame.
    free_chunks: Vec<u32>,
    /// Numbers of chunks that only this holder's frames take, highest first. Who brings many leaves
    /// whole chunks behind that can be freed, and not places between those of others.
    own: HashMap<HolderId, Vec<u32>>,
    shares: Shares,
    refused: RefusedCounts,
    /// What the last sweep left, and what had been refused by then.
    swept: (usize, u64),
    /// A chunk of numbers that no frame has.
    vacant: Arc<Vec<Frame>>,
}

impl FrameTable {
    /// A table of at most `limit` frames, the reserved one included.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let mut table = Self {
            held: HashMap::new(),
            list: FrameList::default(),
            free: Vec::new(),
            free_chunks: Vec::new(),
            own: HashMap::new(),
            shares: Shares::new(limit.clamp(1, u32::MAX as usize)),
            refused: RefusedCounts::default(),
            swept: (1, 0),
            vacant: Arc::new(vec![Frame::default(); CHUNK]),
        };
        table.intern(Frame::default());
        table
    }

    /// The number of a frame that is nobody's in particular; [`FrameId::UNKNOWN`], counted, when
    /// the table is full.
    pub fn intern(&mut self, frame: Frame) -> FrameId {
        self.intern_for(Owner::System, frame)
    }

    /// The number of `frame`, which takes room of `owner` if it is new. [`FrameId::UNKNOWN`],
    /// counted, where there is none.
    pub fn intern_for(&mut self, owner: Owner, frame: Frame) -> FrameId {
        if let Some(held) = self.held.get(&frame) {
            return held.id;
        }
        let by = match self.shares.take(owner, 1) {
            Ok(by) => by,
            Err(why) => {
                self.refused.count(why);
                return FrameId::UNKNOWN;
            }
        };
        let id = match self.free_number(by) {
            Some(number) => {
                let id = FrameId(number);
                self.list.set(id, frame);
                id
            }
            None => {
                let id = FrameId(u32::try_from(self.list.len).expect("the limit fits u32"));
                self.list.push(frame);
                id
            }
        };
        self.held.insert(frame, Held { id, by });
        id
    }

    /// A number below those in use that no frame has, for a frame of this holder; `None`: the next
    /// one.
    fn free_number(&mut self, by: HolderId) -> Option<u32> {
        let has_many = self.shares.held(by) > CHUNK;
        let number = if has_many {
            self.own.get_mut(&by).and_then(Vec::pop)
        } else {
            self.free.pop()
        };
        if number.is_some() {
            return number;
        }
        let chunk = match self.free_chunks.pop() {
            Some(chunk) => chunk,
            None if has_many => self.list.push_chunk(&self.vacant, &mut self.free),
            None => return None,
        };
        let first = chunk * CHUNK as u32;
        let numbers = if has_many {
            self.own.entry(by).or_default()
        } else {
            &mut self.free
        };
        numbers.extend((first + 1..first + CHUNK as u32).rev());
        Some(first)
    }

    /// The frame of this number.
    #[must_use]
    pub fn get(&self, id: FrameId) -> Frame {
        self.list.get(id)
    }

    /// Whether this frame has a number.
    #[must_use]
    pub fn knows(&self, frame: &Frame) -> bool {
        self.held.contains_key(frame)
    }

    /// How many frames there are, the reserved one included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// Memory held, bytes, roughly.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.held.capacity() * (size_of::<(Frame, Held)>() + 1)
            + self.list.held_bytes(&self.vacant)
            + self.free.capacity() * size_of::<u32>()
            + self.own.values().map(Vec::capacity).sum::<usize>() * size_of::<u32>()
    }

    /// Never true: the reserved frame is always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.held.is_empty()
    }

    /// How many there may be.
    #[must_use]
    pub const fn limit(&self) -> usize {
        self.shares.limit()
    }

    /// How many times a frame became `[unknown]`, by why.
    #[must_use]
    pub const fn refused(&self) -> RefusedCounts {
        self.refused
    }

    /// Marks the modules that frames are in.
    pub fn mark_modules(&self, marks: &mut ModuleMarks) {
        self.held.keys().for_each(|frame| marks.keep(frame.module));
    }

    /// A copy that does not see what is added later.
    #[must_use]
    pub fn list(&self) -> FrameList {
        self.list.clone()
    }

    /// Whether a sweep is worth its time: the table has grown by half of what the last one left, or
    /// found no room for something since, or is three quarters full, and has grown by some part in
    /// any case.
    #[must_use]
    pub fn wants_sweep(&self) -> bool {
        let (left, refused) = self.swept;
        let grown = self.len().saturating_sub(left);
        let least = self.limit() / LEAST_GROWTH;
        let is_crowded = self.len() >= self.limit() / 4 * 3;
        self.refused.total() > refused
            || grown >= (left / 2).max(least)
            || (is_crowded && grown >= least / 2)
    }

    /// Whether there are so many that what holds them should not wait for more.
    #[must_use]
    pub fn is_large(&self) -> bool {
        self.len() >= self.limit() / LEAST_GROWTH / 2
    }

    /// Forgets all frames but those that `name` marks: it is to mark every number that anything
    /// still uses with this table. Answers how many left. What copies hold does not change.
    pub fn sweep(&mut self, name: impl FnOnce(&mut LiveFrames)) -> usize {
        let mut marks = LiveFrames::new(self.list.len);
        marks.keep(FrameId::UNKNOWN);
        name(&mut marks);
        let before = self.len();
        let mut given_back: Vec<usize> = Vec::new();
        self.held.retain(|_, held| {
            let stays = marks.has(held.id.0 as usize);
            if !stays {
                let holder = held.by.index();
                if given_back.len() <= holder {
                    given_back.resize(holder + 1, 0);
                }
                given_back[holder] += 1;
            }
            stays
        });
        for (holder, amount) in given_back.into_iter().enumerate() {
            if let Some(holder) = HolderId::of_index(holder).filter(|_| amount > 0) {
                self.shares.give_back(holder, amount);
            }
        }
        let gone = before - self.held.len();
        if gone > 0 {
            if self.held.capacity() / 4 > self.held.len() {
                self.held.shrink_to(self.held.len() * 2);
            }
            self.clear(&marks);
            self.list.sweeps += 1;
        }
        self.swept = (self.len(), self.refused.total());
        gone
    }

    /// Frees the numbers that have no mark, and the memory of chunks and of the end of the list
    /// that have none at all.
    fn clear(&mut self, marks: &LiveFrames) {
        let is_vacant = |chunk: usize, len: usize| {
            (chunk * CHUNK..chunk * CHUNK + len).all(|index| !marks.has(index))
        };
        while let Some(last) = self.list.chunks.last() {
            if !is_vacant(self.list.chunks.len() - 1, last.len()) {
                break;
            }
            self.list.len -= last.len();
            self.list.chunks.pop();
        }
        self.free.clear();
        self.free_chunks.clear();
        self.own = HashMap::new();
        for (index, chunk) in self.list.chunks.iter_mut().enumerate().rev() {
            let first = index * CHUNK;
            let dead = (0..chunk.len()).filter(|place| !marks.has(first + place));
            let dead: Vec<usize> = dead.collect();
            if dead.len() == CHUNK {
                *chunk = Arc::clone(&self.vacant);
                self.free_chunks.push(index as u32);
                continue;
            }
            if dead.iter().any(|place| chunk[*place] != Frame::default()) {
                let chunk = Arc::make_mut(chunk);
                for place in &dead {
                    chunk[*place] = Frame::default();
                }
            }
            let numbers = dead.iter().rev().map(|place| (first + place) as u32);
            self.free.extend(numbers);
        }
        if self.free.capacity() / 4 > self.free.len() {
            self.free.shrink_to(self.free.len() * 2);
        }
    }
}

#[cfg(test)]
#[path = "frames_tests.rs"]
mod tests;
