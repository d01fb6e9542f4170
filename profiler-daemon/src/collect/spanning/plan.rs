//! USDT points and spans: the places that are to be probed, and what is told of them.

use std::collections::BTreeMap;
use std::fs::File;
use std::sync::Arc;

use profiler_common::spans::{Argument, SpanRow, UsdtRow};

use crate::processes::ids::ProcessKey;
use crate::units::{FileOffset, MonoNs};

/// What hits are counted of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Traced {
    /// A USDT point of one file.
    Usdt {
        /// Who made it.
        provider: String,
        /// What it is called.
        name: String,
        /// The file's path.
        module: Arc<str>,
        /// Which argument's values are taken, from 0 on.
        argument: Option<u8>,
    },
    /// A span, all as it was asked for.
    Span {
        /// What it is called.
        name: String,
        /// Where it starts.
        start: String,
        /// Where it ends.
        end: String,
        /// What start and end have in common.
        key: String,
    },
}

/// A place to be probed.
#[derive(Clone, Debug)]
pub struct PlannedPlace {
    /// The file's path.
    pub module: Arc<str>,
    /// The file.
    pub file: Arc<File>,
    /// Whether probes are in the memory of measured processes alone: the file is others' too.
    pub shared: bool,
    /// Where, from the start of the file, bytes.
    pub offset: FileOffset,
    /// Whether the kernel executes the instruction out of its line.
    pub stepped: bool,
    /// The counter that is raised while it is probed, from the start of the file.
    pub semaphore: Option<FileOffset>,
    /// What is done there: of [`profiler_common::spans::role`].
    pub roles: u32,
    /// The value, or the key.
    pub argument: Argument,
}

/// A USDT point or a span, and places of it.
#[derive(Clone, Debug)]
pub struct PlannedItem {
    /// Whoever asks numbers what it asks for: more places of the same may follow.
    pub id: u32,
    /// What it is.
    pub what: Arc<Traced>,
    /// Places that are not probed yet.
    pub places: Vec<PlannedPlace>,
    /// Sentences about further ones that cannot be probed, or not well.
    pub said: Vec<String>,
}

/// A place that is probed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TracedPlace {
    /// The file's path.
    pub module: Arc<str>,
    /// Where, from the start of the file, bytes.
    pub offset: FileOffset,
    /// Whether the kernel executes the instruction out of its line.
    pub stepped: bool,
    /// What is done there: of [`profiler_common::spans::role`].
    pub roles: u32,
}

/// One USDT point or span, with all that was counted of it.
#[derive(Clone, Debug)]
pub struct TracedItem {
    /// What it is.
    pub what: Arc<Traced>,
    /// Places that are probed.
    pub places: Vec<TracedPlace>,
    /// Sentences about further ones that cannot be probed, or not well.
    pub said: Vec<String>,
    /// When the last of them were, monotonic nanoseconds.
    pub attached_ns: MonoNs,
    /// Why its probes were detached before the end.
    pub gave_up: Option<String>,
    /// Hits of a USDT point by process.
    pub hits: BTreeMap<ProcessKey, UsdtRow>,
    /// Starts and ends of a span.
    pub spans: SpanRow,
    /// Spans under way.
    pub open: u64,
    /// How long the first of them has been, nanoseconds.
    pub open_longest_ns: u64,
    /// Spans of processes that have exited meanwhile.
    pub left_exit: u64,
}

impl TracedItem {
    /// Does the kernel execute any of its places out of its line?
    #[must_use]
    pub fn is_stepped(&self) -> bool {
        self.places.iter().any(|place| place.stepped)
    }
}

/// What these would be, with nothing counted; several of one number are one.
#[must_use]
pub fn planned(items: &[PlannedItem], now_ns: MonoNs) -> Vec<TracedItem> {
    let mut all: BTreeMap<u32, TracedItem> = BTreeMap::new();
    for item in items {
        let of = all.entry(item.id).or_insert_with(|| TracedItem {
            what: Arc::clone(&item.what),
            places: Vec::new(),
            said: Vec::new(),
            attached_ns: now_ns,
            gave_up: None,
            hits: BTreeMap::new(),
            spans: SpanRow::EMPTY,
            open: 0,
            open_longest_ns: 0,
            left_exit: 0,
        });
        of.places.extend(item.places.iter().map(traced_place));
        of.said.extend(item.said.iter().cloned());
    }
    all.into_values().collect()
}

pub(super) fn traced_place(place: &PlannedPlace) -> TracedPlace {
    TracedPlace {
        module: Arc::clone(&place.module),
        offset: place.offset,
        stepped: place.stepped,
        roles: place.roles,
    }
}
