//! Frames under small numbers: a place in a module is stored once, whatever number of stacks it is on.
//!
//! The table only grows, up to a bound; what comes beyond is `[unknown]` and counted. Copies share full chunks, so a
//! snapshot costs one reference count per chunk and a writer copies at most one chunk.

use std::{collections::HashMap, sync::Arc};

use serde::{Deserialize, Serialize};

use crate::processes::module::ModuleId;

/// Frames per shared chunk.
const CHUNK: usize = 4096;

/// A place in a module.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Default, Serialize, Deserialize,
)]
pub struct Frame {
    /// The module.
    pub module: ModuleId,
    /// File offset in an ELF file; the address itself for `[kernel]`, `[jit]` and `[unknown]`.
    pub offset: u64,
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

/// All frames by number: what a snapshot keeps.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct FrameList {
    chunks: Vec<Arc<Vec<Frame>>>,
    len: usize,
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

    /// Whether a frame has this number.
    pub(super) fn holds(&self, id: FrameId) -> bool {
        (id.0 as usize) < self.len
    }

    /// Whether all chunks but the last are full, the first frame is the reserved one, and each is in one of `modules`.
    pub(super) fn is_whole(&self, modules: usize) -> bool {
        let held: usize = self.chunks.iter().map(|chunk| chunk.len()).sum();
        let full = self.chunks.iter().rev().skip(1);
        held == self.len
            && full.clone().all(|chunk| chunk.len() == CHUNK)
            && self.chunks.last().is_none_or(|last| last.len() <= CHUNK)
            && self.get(FrameId::UNKNOWN) == Frame::default()
            && self
                .chunks
                .iter()
                .flat_map(|chunk| chunk.iter())
                .all(|frame| (frame.module.0 as usize) < modules)
    }

    fn push(&mut self, frame: Frame) {
        if self.len.is_multiple_of(CHUNK) {
            self.chunks.push(Arc::new(Vec::with_capacity(CHUNK)));
        }
        let last = self.chunks.last_mut().expect("pushed above");
        Arc::make_mut(last).push(frame);
        self.len += 1;
    }
}

/// Frames and their numbers.
#[derive(Debug)]
pub struct FrameTable {
    ids: HashMap<Frame, FrameId>,
    list: FrameList,
    limit: usize,
    refused: u64,
}

impl FrameTable {
    /// A table of at most `limit` frames, the reserved one included.
    #[must_use]
    pub fn new(limit: usize) -> Self {
        let mut table = Self {
            ids: HashMap::new(),
            list: FrameList::default(),
            limit: limit.clamp(1, u32::MAX as usize),
            refused: 0,
        };
        table.intern(Frame::default());
        table
    }

    /// The number of `frame`; [`FrameId::UNKNOWN`], counted, when the table is full.
    pub fn intern(&mut self, frame: Frame) -> FrameId {
        if let Some(id) = self.ids.get(&frame) {
            return *id;
        }
        if self.list.len >= self.limit {
            self.refused += 1;
            return FrameId::UNKNOWN;
        }
        let id = FrameId(u32::try_from(self.list.len).expect("the limit fits u32"));
        self.list.push(frame);
        self.ids.insert(frame, id);
        id
    }

    /// The frame of this number.
    #[must_use]
    pub fn get(&self, id: FrameId) -> Frame {
        self.list.get(id)
    }

    /// How many frames there are, the reserved one included.
    #[must_use]
    pub fn len(&self) -> usize {
        self.list.len
    }

    /// Never true: the reserved frame is always there.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.list.len == 0
    }

    /// How many times a frame became `[unknown]` because the table was full.
    #[must_use]
    pub fn refused(&self) -> u64 {
        self.refused
    }

    /// A copy that does not see what is added later.
    #[must_use]
    pub fn list(&self) -> FrameList {
        self.list.clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(offset: u64) -> Frame {
        Frame {
            module: ModuleId(5),
            offset,
        }
    }

    // Check that a frame keeps its number, that a copy is not changed by later ones, and that number 0 is reserved.
    #[test]
    fn numbers_are_stable() {
        let mut table = FrameTable::new(10_000);
        for offset in 0..5000 {
            assert_eq!(table.intern(frame(offset)).0 as u64, offset + 1);
        }
        let copy = table.list();
        let late = table.intern(frame(9_999));
        assert_eq!(table.get(late), frame(9_999));
        assert_eq!(copy.get(late), Frame::default());
        assert_eq!(copy.get(FrameId(4097)), frame(4096));
        assert_eq!(table.intern(frame(0)), FrameId(1));
        assert_eq!(table.get(FrameId::UNKNOWN), Frame::default());
    }

    // Check that a full table answers "unknown" for new frames only, and counts each.
    #[test]
    fn full_table_counts() {
        let mut table = FrameTable::new(2);
        let known = table.intern(frame(1));
        assert_eq!(table.intern(frame(2)), FrameId::UNKNOWN);
        assert_eq!(table.intern(frame(1)), known);
        assert_eq!(table.refused(), 1);
    }
}
