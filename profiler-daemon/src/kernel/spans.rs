//! USDT points and spans: the places at which they are probed, attached and detached while the
//! programs run, and what was counted there.

use std::fs::File;
use std::os::fd::{AsFd as _, OwnedFd};
use std::sync::Arc;

use aya::Pod;
use aya::maps::{HashMap, MapData};
use profiler_common::limits::{MAX_OPEN_SPANS, MAX_PLACES, MAX_SPAN_ROWS, MAX_USDT_ROWS};
use profiler_common::measured::MeasuredThread;
use profiler_common::spans::{ItemKey, OpenKey, Place, SpanRow, UsdtRow};
use tracing::warn;

use super::batch;
use super::maps::{Maps, SharedMap};
use super::measured::{MeasureError, Measured, whole};
use super::probe_program::{self, Probe};
use super::probing::{self, Probing};
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
    pub place: Place,
}

/// A link: probes of some places of one file.
struct Attached {
    file: Arc<File>,
    places: Vec<ProbePlace>,
    /// The process whose memory alone has them.
    pid: Option<u32>,
    /// Closed, it is detached.
    link: OwnedFd,
}

/// The probes, and the maps of what they count. The program is loaded when it is first asked for.
pub struct Spans {
    /// First: probes go before what they use.
    links: Vec<Attached>,
    program: Option<OwnedFd>,
    object: &'static [u8],
    /// `None`: the older build has no such program.
    maps: Option<SpanMaps>,
    last_number: u32,
}

struct SpanMaps {
    /// All maps of the running programs.
    shared: Arc<[SharedMap]>,
    /// Those that stand in the place of some of them.
    own: Vec<SharedMap>,
    places: HashMap<MapData, u32, Place>,
    usdt: HashMap<MapData, ItemKey, UsdtRow>,
    spans: HashMap<MapData, ItemKey, SpanRow>,
    open: HashMap<MapData, OpenKey, u64>,
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

impl Spans {
    /// Nothing is probed yet. `shared`: all maps, before any was taken.
    ///
    /// # Errors
    /// [`StartError::Map`] if a map is missing.
    pub(super) fn new(
        maps: &mut Maps<'_>,
        shared: &Arc<[SharedMap]>,
        variant: Variant,
    ) -> Result<Self, StartError> {
        let maps = match variant {
            Variant::Before517 => None,
            Variant::Since517 => Some(SpanMaps {
                shared: Arc::clone(shared),
                own: Vec::new(),
                places: maps.typed(PLACES)?,
                usdt: maps.typed(USDT_ROWS)?,
                spans: maps.typed(SPAN_ROWS)?,
                open: maps.typed(OPEN_SPANS)?,
            }),
        };
        Ok(Self {
            links: Vec::new(),
            program: None,
            object: variant.object(),
            maps,
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
        self.links
            .iter()
            .map(|attached| attached.places.len())
            .sum()
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
        let probing = Measured::supported()?;
        let maps = self.maps.as_mut().ok_or(MeasureError::OlderPrograms)?;
        let program = match &mut self.program {
            Some(program) => program,
            none => none.insert(maps.load(self.object, probing)?),
        };
        for place in places {
            let told = maps.places.insert(place.number, place.place, 0);
            told.map_err(MeasureError::Map)?;
        }
        let mut made = Vec::new();
        for places in places.chunks(probing.per_link()) {
            let probes = places.iter().map(|place| Probe {
                offset: place.offset,
                cookie: u64::from(place.number),
                counter: place.semaphore,
            });
            let probes: Vec<Probe> = probes.collect();
            match probing.attach(program.as_fd(), file, &probes, pid) {
                Ok(link) => made.push(Attached {
                    file: Arc::clone(file),
                    places: places.to_vec(),
                    pid: pid.filter(|_| probing.is_of_processes()),
                    link,
                }),
                Err(reason) => {
                    close(made);
                    return Err(MeasureError::Probes {
                        module: module.to_owned(),
                        reason,
                    });
                }
            }
        }
        self.links.append(&mut made);
        Ok(())
    }

    /// Those of one instrumentation.
    #[must_use]
    pub fn probed_by(&self, instrumentation: u8) -> usize {
        let places = self.links.iter().flat_map(|attached| &attached.places);
        places
            .filter(|place| place.place.instrumentation == u32::from(instrumentation))
            .count()
    }

    /// Detaches the probes of one instrumentation.
    pub fn detach(&mut self, instrumentation: u8) {
        let is_its = |attached: &mut Attached| {
            let mut places = attached.places.iter();
            places.any(|place| place.place.instrumentation == u32::from(instrumentation))
        };
        // A link has places of one only.
        let gone: Vec<Attached> = self.links.extract_if(.., is_its).collect();
        for attached in &gone {
            self.forget(&attached.places);
        }
        close(gone);
    }

    /// Detaches links of these places alone, by their numbers.
    pub fn detach_places(&mut self, is_its: impl Fn(u32) -> bool) {
        let all = |attached: &mut Attached| {
            let mut places = attached.places.iter();
            places.all(|place| is_its(place.number))
        };
        let gone: Vec<Attached> = self.links.extract_if(.., all).collect();
        for attached in &gone {
            self.forget(&attached.places);
        }
        close(gone);
    }

    /// Detaches those of its probes that are of this process alone.
    pub fn detach_process(&mut self, instrumentation: u8, pid: u32) {
        let is_over = |attached: &mut Attached| {
            let mut places = attached.places.iter();
            attached.pid == Some(pid)
                && places.any(|place| place.place.instrumentation == u32::from(instrumentation))
        };
        close(self.links.extract_if(.., is_over).collect());
    }

    /// Detaches the probes of these USDT points and spans. Others in the same links are attached
    /// again: what hits them in between is not seen.
    ///
    /// # Errors
    /// [`MeasureError`] if the others cannot be attached any more.
    pub fn detach_items(
        &mut self,
        module: &str,
        is_over: impl Fn(u32) -> bool,
    ) -> Result<(), MeasureError> {
        let is_its = |attached: &mut Attached| {
            let mut places = attached.places.iter();
            places.any(|place| is_over(place.place.item))
        };
        let found: Vec<Attached> = self.links.extract_if(.., is_its).collect();
        let mut others = Vec::new();
        for attached in &found {
            let places = attached.places.iter();
            let (its, left): (Vec<ProbePlace>, Vec<ProbePlace>) =
                places.partition(|place| is_over(place.place.item));
            self.forget(&its);
            others.push((Arc::clone(&attached.file), left, attached.pid));
        }
        // First all are detached.
        close(found);
        for (file, places, pid) in others {
            self.attach(&file, module, &places, pid)?;
        }
        Ok(())
    }

    /// Removes what is done at places that no probe leads to any more.
    fn forget(&mut self, places: &[ProbePlace]) {
        let Some(maps) = &mut self.maps else { return };
        for place in places {
            // The same place in the memory of several processes has one entry.
            match maps.places.remove(&place.number) {
                Ok(()) | Err(aya::maps::MapError::KeyNotFound) => {}
                Err(error) => warn!("a place stays known that is not probed any more: {error}"),
            }
        }
    }

    /// Hits of USDT points so far, by thread. Rows that were being changed at each try are left out
    /// this time.
    #[must_use]
    pub fn usdt_rows(&self) -> Vec<(ItemKey, UsdtRow)> {
        let maps = self.maps.as_ref();
        maps.map_or_else(Vec::new, |maps| {
            self.read(maps, (USDT_ROWS, MAX_USDT_ROWS), &maps.usdt)
        })
    }

    /// The same of spans.
    #[must_use]
    pub fn span_rows(&self) -> Vec<(ItemKey, SpanRow)> {
        let maps = self.maps.as_ref();
        maps.map_or_else(Vec::new, |maps| {
            self.read(maps, (SPAN_ROWS, MAX_SPAN_ROWS), &maps.spans)
        })
    }

    fn read<R: Changing>(
        &self,
        maps: &SpanMaps,
        (name, most): (&str, u32),
        rows: &HashMap<MapData, ItemKey, R>,
    ) -> Vec<(ItemKey, R)> {
        let shared = maps.find(name).filter(|_| self.program.is_some());
        let Some(shared) = shared else {
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
        let maps = self.maps.as_ref().filter(|_| self.program.is_some());
        let shared = maps.and_then(|maps| maps.find(OPEN_SPANS));
        let Some(shared) = shared else {
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
        let open = self.maps.as_mut().map(|maps| maps.open.remove(key));
        open.is_some_and(|removed| removed.is_ok())
    }

    /// Removes the rows of threads for which `is_gone`, and of items for which `is_over`, after
    /// they were read for the last time.
    pub fn remove(
        &mut self,
        is_gone: impl Fn(&MeasuredThread) -> bool,
        is_over: impl Fn(u32) -> bool,
    ) {
        let Some(maps) = self.maps.as_mut().filter(|_| self.program.is_some()) else {
            return;
        };
        let mut failed = None;
        let usdt: Vec<ItemKey> = maps.usdt.keys().filter_map(Result::ok).collect();
        for key in usdt
            .iter()
            .filter(|key| is_gone(&key.thread) || is_over(key.item))
        {
            failed = failed.or(maps.usdt.remove(key).err());
        }
        let spans: Vec<ItemKey> = maps.spans.keys().filter_map(Result::ok).collect();
        for key in spans
            .iter()
            .filter(|key| is_gone(&key.thread) || is_over(key.item))
        {
            failed = failed.or(maps.spans.remove(key).err());
        }
        if let Some(error) = failed {
            warn!("hits of threads are kept that are gone: {error}");
        }
    }
}

impl SpanMaps {
    /// The program, with these maps.
    fn load(&mut self, object: &[u8], probing: Probing) -> Result<OwnedFd, MeasureError> {
        if probing::needs_whole_maps() && self.own.is_empty() {
            let (places, own_places) = whole(PLACES, MAX_PLACES)?;
            let (usdt, own_usdt) = whole(USDT_ROWS, MAX_USDT_ROWS)?;
            let (spans, own_spans) = whole(SPAN_ROWS, MAX_SPAN_ROWS)?;
            let (open, own_open) = whole(OPEN_SPANS, MAX_OPEN_SPANS)?;
            (self.places, self.usdt, self.spans, self.open) = (places, usdt, spans, open);
            self.own = vec![own_places, own_usdt, own_spans, own_open];
        }
        let maps = || self.own.iter().chain(self.shared.iter());
        let loaded = probe_program::load(object, PROGRAM, maps, probing.is_of_many());
        loaded.map_err(MeasureError::Program)
    }

    fn find(&self, name: &str) -> Option<&SharedMap> {
        let mut maps = self.own.iter().chain(self.shared.iter());
        maps.find(|map| map.name == name)
    }
}

impl Drop for Spans {
    fn drop(&mut self) {
        close(std::mem::take(&mut self.links));
    }
}

/// Detaches probes.
fn close(attached: Vec<Attached>) {
    probing::close(attached.into_iter().map(|attached| attached.link).collect());
}
