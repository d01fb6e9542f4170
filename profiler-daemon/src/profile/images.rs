//! Processes that ended and are no longer kept one by one, merged by image: the file that they
//! executed last. The first images have an aggregate each, the others share one, and so do kernel
//! threads.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
};

use serde::{Deserialize, Serialize};

use super::{
    aggregate::{Aggregate, AggregateView, Refusals},
    budget::NodeBudget,
    input::{CommName, Image, ProcessInfo},
    now::Now,
};
use crate::processes::ids::ProcessKey;
use crate::units::MonoNs;

/// The place of all images without an aggregate of their own.
const OTHER: u32 = 0;
/// The place of kernel threads.
const KERNEL: u32 = 1;

/// Processes that ended and are not kept one by one, merged by what they executed last.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ImageView {
    /// What they executed; `None` for kernel threads, which are one image, and for all other images
    /// together.
    pub image: Option<Arc<Image>>,
    /// They had no user mode.
    pub kernel_thread: bool,
    /// How many processes that were.
    pub ended: u64,
    /// The last event of those that are not remembered one by one either, monotonic nanoseconds; 0
    /// = there are none.
    pub(super) forgotten_ns: MonoNs,
    /// What they did.
    pub aggregate: AggregateView,
}

/// What is remembered of a process that is merged with others.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndedProcess {
    /// Its parent's number.
    pub ppid: u32,
    /// Its name.
    pub comm: CommName,
    /// Its last event, monotonic nanoseconds.
    pub last_ns: MonoNs,
    /// Which of the images it is part of.
    pub(super) place: u32,
}

/// The processes of one image.
#[derive(Debug, Default)]
struct Merged {
    image: Option<Arc<Image>>,
    ended: u64,
    forgotten_ns: MonoNs,
    aggregate: Aggregate,
}

/// See the module.
#[derive(Debug)]
pub(super) struct Images {
    /// By place.
    merged: Vec<Merged>,
    places: BTreeMap<Arc<Image>, u32>,
    /// The last processes that ended.
    known: Arc<BTreeMap<ProcessKey, EndedProcess>>,
    order: VecDeque<ProcessKey>,
}

impl Default for Images {
    fn default() -> Self {
        Self {
            merged: vec![Merged::default(), Merged::default()],
            places: BTreeMap::new(),
            known: Arc::default(),
            order: VecDeque::new(),
        }
    }
}

impl Images {
    pub(super) fn contains(&self, key: ProcessKey) -> bool {
        self.known.contains_key(&key)
    }

    pub(super) fn known(&self) -> Arc<BTreeMap<ProcessKey, EndedProcess>> {
        Arc::clone(&self.known)
    }

    pub(super) fn views(&self) -> Vec<ImageView> {
        let view = |(place, merged): (usize, &Merged)| ImageView {
            image: merged.image.clone(),
            kernel_thread: place == KERNEL as usize,
            ended: merged.ended,
            forgotten_ns: merged.forgotten_ns,
            aggregate: merged.aggregate.view(),
        };
        self.merged.iter().enumerate().map(view).collect()
    }

    pub(super) fn aggregates(&self) -> impl Iterator<Item = &Aggregate> {
        self.merged.iter().map(|merged| &merged.aggregate)
    }

    pub(super) fn aggregates_mut(&mut self) -> impl Iterator<Item = &mut Aggregate> {
        self.merged.iter_mut().map(|merged| &mut merged.aggregate)
    }

    /// The aggregate that what still comes of a process belongs to that is not kept.
    pub(super) fn aggregate(&mut self, key: ProcessKey) -> &mut Aggregate {
        let place = self.known.get(&key).map_or(OTHER, |ended| ended.place);
        &mut self.merged[place as usize].aggregate
    }

    pub(super) fn retry(&mut self, now: Now, budget: &mut NodeBudget, refusals: &mut Refusals) {
        for aggregate in self.aggregates_mut() {
            aggregate.retry(now, budget, refusals);
        }
    }

    /// The aggregate that a process becomes part of. At most so many images have their own, and so
    /// many processes are remembered.
    pub(super) fn take_in(
        &mut self,
        info: &ProcessInfo,
        last_ns: MonoNs,
        images: usize,
        remembered: usize,
    ) -> &mut Aggregate {
        let place = self.place(info, images);
        let known = Arc::make_mut(&mut self.known);
        let ended = EndedProcess {
            ppid: info.ppid,
            comm: info.comm,
            last_ns,
            place,
        };
        known.insert(info.key, ended);
        self.order.push_back(info.key);
        while self.order.len() > remembered {
            let oldest = self.order.pop_front();
            if let Some(forgotten) = oldest.and_then(|key| known.remove(&key)) {
                let merged = &mut self.merged[forgotten.place as usize];
                merged.forgotten_ns = merged
                    .forgotten_ns
                    .max(forgotten.last_ns)
                    .max(MonoNs::new(1));
            }
        }
        let merged = &mut self.merged[place as usize];
        merged.ended += 1;
        &mut merged.aggregate
    }

    fn place(&mut self, info: &ProcessInfo, limit: usize) -> u32 {
        if info.kernel_thread {
            return KERNEL;
        }
        let Some(image) = &info.image else {
            return OTHER;
        };
        if let Some(place) = self.places.get(image) {
            return *place;
        }
        if self.places.len() >= limit {
            return OTHER;
        }
        let place = self.merged.len() as u32;
        self.places.insert(Arc::clone(image), place);
        self.merged.push(Merged {
            image: Some(Arc::clone(image)),
            ..Merged::default()
        });
        place
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::units::{BootNs, UnixNs};

    fn process(pid: u32, inode: u64) -> ProcessInfo {
        let key = ProcessKey {
            pid,
            start_ns: BootNs::ZERO,
        };
        let image = Image {
            device: 1,
            inode,
            path: "/bin/true".into(),
        };
        ProcessInfo {
            image: Some(Arc::new(image)),
            ..ProcessInfo::unknown(key, CommName::new("true"), UnixNs::ZERO)
        }
    }

    // Check that images beyond the limit share one aggregate, that kernel threads have theirs, and
    // that of processes which are no longer remembered their image knows when the last one ended.
    #[test]
    fn places() {
        let mut images = Images::default();
        let kernel = ProcessInfo {
            kernel_thread: true,
            ..process(1, 9)
        };
        let unknown = ProcessInfo {
            image: None,
            ..process(2, 9)
        };
        let inodes = [5, 6, 5, 7, 7];
        let ended = inodes
            .iter()
            .zip(3..)
            .map(|(inode, pid)| process(pid, *inode));
        let all: Vec<ProcessInfo> = [kernel, unknown].into_iter().chain(ended).collect();
        for (info, last_ns) in all.iter().zip(10..) {
            images.take_in(info, MonoNs::new(last_ns), 2, 4);
        }
        let views = images.views();
        let shown = |view: &ImageView| {
            let inode = view.image.as_ref().map(|image| image.inode);
            (
                inode,
                view.kernel_thread,
                view.ended,
                view.forgotten_ns.ns(),
            )
        };
        assert_eq!(
            views.iter().map(shown).collect::<Vec<_>>(),
            [
                (None, false, 3, 11),
                (None, true, 1, 10),
                (Some(5), false, 2, 12),
                (Some(6), false, 1, 0)
            ]
        );
        assert!(!images.contains(all[2].key) && images.contains(all[3].key));
    }
}
