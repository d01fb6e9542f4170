//! USDT points and spans: the places at which they are probed, attached and detached while the
//! programs run, and what was counted there.

use std::collections::HashSet;
use std::fs::File;
use std::sync::Arc;

use aya::Pod;
use aya::maps::{HashMap, MapData, MapError};
use profiler_common::limits::{MAX_OPEN_SPANS, MAX_PLACES, MAX_SPAN_ROWS, MAX_USDT_ROWS};
use profiler_common::measured::MeasuredThread;
use profiler_common::spans::{ItemKey, OpenKey, PlaceAction, SpanRow, UsdtRow};
use tracing::warn;

use super::batch;
use super::maps::{Maps, SharedMap};
use super::measure_error::MeasureError;
use super::measured::whole;
use super::probe_program::Probe;
use super::probes::{Interrupted, Probeable, Probes};
use super::refusal::StartError;
use super::variant::Variant;
use crate::units::FileOffset;

/// The name of the program.
const PROGRAM: &str = "place";
const PLACES: &str = "PLACES";
const USDT_ROWS: &str = "USDT_ROWS";
const SPAN_ROWS: &str = "SPAN_ROWS";
const OPEN_SPANS: &str = "OPEN_SPANS";
/// How often a row is read that is being changed meanwhile.
const TRIES: usize = 4;

/// A place to be probed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProbePlace {
    /// Its number, never used again.
    pub number: u32,
    /// Where, from the start of the file, bytes.
    pub offset: FileOffset,
    /// A counter in the program's memory that is raised while the place is probed: where, from the
    /// start of the file.
    pub semaphore: Option<FileOffset>,
    /// What is done there.
    pub place: PlaceAction,
}

impl Probeable for ProbePlace {
    fn probe(&self) -> Probe {
        Probe {
            offset: self.offset,
            cookie: u64::from(self.number),
            counter: self.semaphore,
        }
    }

    fn instrumentation(&self) -> u8 {
        self.place.instrumentation as u8
    }

    fn owner(&self) -> u32 {
        self.place.item
    }
}

/// The probes, and the maps of what they count.
pub struct SpanProbes {
    /// First: probes go before what they use.
    probes: Probes<ProbePlace>,
    places: HashMap<MapData, u32, PlaceAction>,
    /// Numbers of the places that the program was told of: the keys of that map.
    told: HashSet<u32>,
    usdt: HashMap<MapData, ItemKey, UsdtRow>,
    spans: HashMap<MapData, ItemKey, SpanRow>,
    open: HashMap<MapData, OpenKey, u64>,
    last_number: u32,
}

/// A row that a thread may be changing.
trait Changing: Pod {
    fn sequence(&self) -> u32;
}

impl Changing for UsdtRow {
    fn sequence(&self) -> u32 {
        self.sequence
    }
}

impl Changing for SpanRow {
    fn sequence(&self) -> u32 {
        self.sequence
    }
}

impl SpanProbes {
    /// Nothing is probed yet. `shared`: all maps, before any was taken.
    ///
    /// # Errors
    /// [`StartError::Map`] if a map is missing.
    pub(super) fn new(
        maps: &mut Maps<'_>,
        shared: &Arc<[SharedMap]>,
        variant: Variant,
    ) -> Result<Self, StartError> {
        Ok(Self {
            probes: Probes::new(PROGRAM, variant.object(), shared),
            places: maps.typed(PLACES)?,
            told: HashSet::new(),
            usdt: maps.typed(USDT_ROWS)?,
            spans: maps.typed(SPAN_ROWS)?,
            open: maps.typed(OPEN_SPANS)?,
            last_number: 0,
        })
    }

    /// A number for an item or a place, which nothing else has had.
    pub const fn next_number(&mut self) -> u32 {
        self.last_number += 1;
        self.last_number
    }

    /// Places that are probed, one in several processes as often.
    #[must_use]
    pub fn probed(&self) -> usize {
        self.probes.attached().count()
    }

    /// Probes places of one file, in the memory of one process alone if `pid` is one and this
    /// kernel can tell.
    ///
    /// # Errors
    /// [`MeasureError`]; none of them is probed then.
    pub fn attach(
        &mut self,
        file: &Arc<File>,
        module: &str,
        places: &[ProbePlace],
        pid: Option<u32>,
    ) -> Result<(), MeasureError> {
        let Self {
            probes,
            places: known,
            usdt,
            spans,
            open,
            ..
        } = self;
        probes.load(|| {
            let (whole_places, shared_places) = whole(PLACES, MAX_PLACES)?;
            let (whole_usdt, shared_usdt) = whole(USDT_ROWS, MAX_USDT_ROWS)?;
            let (whole_spans, shared_spans) = whole(SPAN_ROWS, MAX_SPAN_ROWS)?;
            let (whole_open, shared_open) = whole(OPEN_SPANS, MAX_OPEN_SPANS)?;
            (*known, *usdt, *spans, *open) = (whole_places, whole_usdt, whole_spans, whole_open);
            Ok(vec![shared_places, shared_usdt, shared_spans, shared_open])
        })?;
        let attached = self.tell(places);
        let attached = attached.and_then(|()| self.probes.attach(file, module, places, pid));
        if attached.is_err() {
            self.forget_unprobed();
        }
        attached
    }

    /// Tells the program what is done at places, before they are probed.
    fn tell(&mut self, places: &[ProbePlace]) -> Result<(), MeasureError> {
        for place in places {
            let told = self.places.insert(place.number, place.place, 0);
            told.map_err(MeasureError::Place)?;
            self.told.insert(place.number);
        }
        Ok(())
    }

    /// Those of one instrumentation.
    #[must_use]
    pub fn probed_by(&self, instrumentation: u8) -> usize {
        self.probes.attached_by(instrumentation)
    }

    /// Detaches the probes of one instrumentation.
    pub fn detach(&mut self, instrumentation: u8) {
        // A link has places of one only.
        self.probes
            .detach(|attached| attached.is_of(instrumentation));
        self.forget_unprobed();
    }

    /// Detaches links of these places alone, by their numbers.
    pub fn detach_places(&mut self, is_its: impl Fn(u32) -> bool) {
        self.probes.detach(|attached| {
            let mut places = attached.points.iter();
            places.all(|place| is_its(place.number))
        });
        self.forget_unprobed();
    }

    /// Detaches those of its probes that are of this process alone.
    pub fn detach_process(&mut self, instrumentation: u8, pid: u32) {
        self.probes
            .detach(|attached| attached.is_in(pid) && attached.is_of(instrumentation));
        self.forget_unprobed();
    }

    /// Detaches the probes of these USDT points and spans. No hit of others is missed meanwhile,
    /// but for those that are answered.
    pub fn detach_items(&mut self, is_over: impl Fn(u32) -> bool) -> Interrupted {
        let interrupted = self.probes.detach_owners(is_over);
        self.forget_unprobed();
        interrupted
    }

    /// Removes what is done at places that no probe leads to any more. (The same place in the
    /// memory of several processes has one entry.)
    fn forget_unprobed(&mut self) {
        let probed = self.probes.attached().map(|place| place.number);
        let probed: HashSet<u32> = probed.collect();
        let places = &mut self.places;
        self.told.retain(|number| {
            if probed.contains(number) {
                return true;
            }
            match places.remove(number) {
                Ok(()) | Err(MapError::KeyNotFound) => false,
                Err(error) => {
                    warn!("a place stays known that is not probed any more: {error}");
                    true
                }
            }
        });
    }

    /// Hits of USDT points so far, by thread. Rows that were being changed at each try are left out
    /// this time.
    #[must_use]
    pub fn usdt_rows(&self) -> Vec<(ItemKey, UsdtRow)> {
        self.read((USDT_ROWS, MAX_USDT_ROWS), &self.usdt)
    }

    /// The same of spans.
    #[must_use]
    pub fn span_rows(&self) -> Vec<(ItemKey, SpanRow)> {
        self.read((SPAN_ROWS, MAX_SPAN_ROWS), &self.spans)
    }

    fn read<R: Changing>(
        &self,
        (name, most): (&str, u32),
        rows: &HashMap<MapData, ItemKey, R>,
    ) -> Vec<(ItemKey, R)> {
        let Some(shared) = self.probes.map(name) else {
            return Vec::new();
        };
        let mut whole = Vec::new();
        let mut changing = Vec::new();
        let read = batch::read(&shared.descriptor, most, |key: ItemKey, row: R| {
            if row.sequence().is_multiple_of(2) {
                whole.push((key, row));
            } else {
                changing.push(key);
            }
        });
        if let Err(error) = read {
            warn!("hits of USDT points and spans cannot be read ({name}): {error}");
        }
        whole.extend(changing.into_iter().filter_map(|key| {
            (0..TRIES).find_map(|_| {
                let row = rows.get(&key, 0).ok()?;
                row.sequence().is_multiple_of(2).then_some((key, row))
            })
        }));
        whole
    }

    /// Spans under way, and when they started, monotonic nanoseconds.
    #[must_use]
    pub fn open(&self) -> Vec<(OpenKey, u64)> {
        let Some(shared) = self.probes.map(OPEN_SPANS) else {
            return Vec::new();
        };
        let mut open = Vec::new();
        let read = batch::read(&shared.descriptor, MAX_OPEN_SPANS, |key, started_ns| {
            open.push((key, started_ns));
        });
        if let Err(error) = read {
            warn!("spans under way cannot be read: {error}");
        }
        open
    }

    /// Removes a span that nobody will end. False: somebody did.
    pub fn close(&mut self, key: &OpenKey) -> bool {
        self.open.remove(key).is_ok()
    }

    /// Removes the rows of threads for which `is_gone`, and of items for which `is_over`, after
    /// they were read for the last time.
    pub fn remove(
        &mut self,
        is_gone: impl Fn(&MeasuredThread) -> bool,
        is_over: impl Fn(u32) -> bool,
    ) {
        if !self.probes.is_loaded() {
            return;
        }
        let mut failed = None;
        let usdt: Vec<ItemKey> = self.usdt.keys().filter_map(Result::ok).collect();
        for key in usdt
            .iter()
            .filter(|key| is_gone(&key.thread) || is_over(key.item))
        {
            failed = failed.or(self.usdt.remove(key).err());
        }
        let spans: Vec<ItemKey> = self.spans.keys().filter_map(Result::ok).collect();
        for key in spans
            .iter()
            .filter(|key| is_gone(&key.thread) || is_over(key.item))
        {
            failed = failed.or(self.spans.remove(key).err());
        }
        if let Some(error) = failed {
            warn!("hits of threads are kept that are gone: {error}");
        }
    }
}
