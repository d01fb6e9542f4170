//! USDT points and spans: their probes, within a budget, and what was counted.

mod plan;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use profiler_common::spans::{ItemKey, OpenKey, PlaceAction, SpanRow, UsdtRow};
use tracing::warn;

use super::measuring::departed::Departed;
use super::measuring::point_limits;
use super::measuring::spent::unseen;
use crate::kernel::{FunctionProbes, Kernel, MeasureError, ProbeCosts, ProbePlace};
use crate::processes::ids::ProcessKey;
use crate::sys::proc_fs;
use crate::sys::thread_life::{ThreadLife, thread_life};
use crate::units::{BootNs, MonoNs};

use plan::traced_place;
pub use plan::{PlannedItem, PlannedPlace, Traced, TracedItem, TracedPlace, planned};

/// Sentences about places of one item that cannot be probed, or not well.
const MAX_SAID: usize = 20;

/// One item, from its attachment on.
struct Item {
    what: Arc<Traced>,
    places: Vec<(u32, PlannedPlace)>,
    said: Vec<String>,
    attached_ns: MonoNs,
    gave_up: Option<String>,
    /// How long hits were not seen because others in the same links were given up, nanoseconds.
    unseen_ns: u64,
    left_exit: u64,
}

/// What rows have in common.
trait CountedRow: Copy {
    const EMPTY: Self;
    fn merge(&mut self, other: &Self);
    fn hits(&self) -> u64;
}

impl CountedRow for UsdtRow {
    const EMPTY: Self = Self::EMPTY;
    fn merge(&mut self, other: &Self) {
        self.merge(other);
    }
    fn hits(&self) -> u64 {
        self.hits
    }
}

impl CountedRow for SpanRow {
    const EMPTY: Self = Self::EMPTY;
    fn merge(&mut self, other: &Self) {
        self.merge(other);
    }
    fn hits(&self) -> u64 {
        self.hits()
    }
}

/// Rows of threads.
struct CountedRows<R> {
    /// Of those that live, or of which nothing was read since they ended.
    living: HashMap<ItemKey, R>,
    /// Of those that are gone.
    ended: HashMap<(u32, ProcessKey), R>,
}

impl<R> Default for CountedRows<R> {
    fn default() -> Self {
        Self {
            living: HashMap::new(),
            ended: HashMap::new(),
        }
    }
}

impl<R: CountedRow> CountedRows<R> {
    /// Takes in what was read, and adds the new hits by process and item.
    fn take(
        &mut self,
        rows: Vec<(ItemKey, R)>,
        items: &BTreeMap<u32, Item>,
        spent: &mut HashMap<(u32, u32), u64>,
    ) {
        for (key, row) in rows {
            if !items.contains_key(&key.item) {
                continue;
            }
            let before = self.living.insert(key, row);
            let more = row
                .hits()
                .saturating_sub(before.map_or(0, |row| row.hits()));
            if more > 0 {
                *spent.entry((key.thread.pid, key.item)).or_default() += more;
            }
        }
    }

    fn end(&mut self, departed: &Departed) {
        let gone = self
            .living
            .extract_if(|key, _| departed.is_gone(&key.thread));
        for (key, row) in gone {
            let ended = self.ended.entry((key.item, process_of(&key)));
            ended.or_insert(R::EMPTY).merge(&row);
        }
    }

    /// Those of one item by process.
    fn of(&self, item: u32) -> BTreeMap<ProcessKey, R> {
        let mut all: BTreeMap<ProcessKey, R> = BTreeMap::new();
        let ended = self.ended.iter();
        let ended = ended.filter(|((of, _), _)| *of == item);
        let living = self.living.iter().filter(|(key, _)| key.item == item);
        let rows = ended.map(|((_, process), row)| (*process, row));
        for (process, row) in rows.chain(living.map(|(key, row)| (process_of(key), row))) {
            all.entry(process).or_insert(R::EMPTY).merge(row);
        }
        all
    }
}

/// See the module.
#[derive(Default)]
pub(super) struct Spanning {
    /// Whether every process is measured: none is told, and no memory is anybody's alone.
    of_all: bool,
    items: BTreeMap<u32, Item>,
    /// The item of each number that whoever asked has given.
    asked: HashMap<u32, u32>,
    /// Processes whose memory has probes of its own.
    in_processes: HashSet<u32>,
    usdt: CountedRows<UsdtRow>,
    spans: CountedRows<SpanRow>,
    open: Vec<(OpenKey, u64)>,
    /// What went wrong last while processes were followed, until it is told.
    trouble: Option<String>,
    /// The probes hit since the cost was judged last, by process and item.
    spent: HashMap<(u32, u32), u64>,
}

impl Spanning {
    /// Nothing is probed yet. `of_all`: whether every process is measured.
    pub(super) fn new(of_all: bool) -> Self {
        Self {
            of_all,
            ..Self::default()
        }
    }

    /// Probes more places, in the memory of the processes that the instrumentation measures.
    ///
    /// # Errors
    /// [`MeasureError`]; none of these places is then probed.
    pub(super) fn start(
        &mut self,
        kernel: &mut Kernel,
        instrumentation: u8,
        items: Vec<PlannedItem>,
        now_ns: MonoNs,
    ) -> Result<(), MeasureError> {
        if items.is_empty() {
            return Ok(());
        }
        // First: whoever comes here has probes of what there was before, and of what is new now.
        self.follow_processes(kernel, instrumentation);
        let mut new = HashSet::new();
        let mut changed = Vec::new();
        for planned in items {
            let asked = self.asked.entry(planned.id);
            let number = *asked.or_insert_with(|| kernel.spans.next_number());
            let item = self.items.entry(number).or_insert_with(|| Item {
                what: planned.what,
                places: Vec::new(),
                said: Vec::new(),
                attached_ns: now_ns,
                gave_up: None,
                unseen_ns: 0,
                left_exit: 0,
            });
            let room = MAX_SAID.saturating_sub(item.said.len());
            item.said.extend(planned.said.into_iter().take(room));
            if item.gave_up.is_some() || planned.places.is_empty() {
                continue;
            }
            item.attached_ns = now_ns;
            changed.push(number);
            for place in planned.places {
                let of_place = kernel.spans.next_number();
                item.places.push((of_place, place));
                new.insert(of_place);
            }
        }
        let pids: Vec<u32> = self.in_processes.iter().copied().collect();
        let is_new = |_: &Item, number: u32| new.contains(&number);
        let attached = self.attach(kernel, instrumentation, &pids, is_new);
        if let Err(error) = &attached {
            kernel.spans.detach_places(|number| new.contains(&number));
            for number in changed {
                if let Some(item) = self.items.get_mut(&number) {
                    item.places.retain(|(of, _)| !new.contains(of));
                    if item.said.len() < MAX_SAID {
                        item.said
                            .push(format!("not followed in a new file: {error}"));
                    }
                }
            }
        }
        attached
    }

    /// A check in between passes: children that share a file with others get probes. Answers what
    /// went wrong since the last one.
    pub(super) fn check(&mut self, kernel: &mut Kernel, instrumentation: u8) -> Option<String> {
        if !self.items.is_empty() {
            self.follow_processes(kernel, instrumentation);
        }
        self.trouble.take()
    }

    /// Takes in what was counted; rows are over whose threads are gone, after this.
    pub(super) fn pass(&mut self, kernel: &mut Kernel, instrumentation: u8, departed: &Departed) {
        if self.items.is_empty() {
            return;
        }
        // Read after the threads: those that have exited hit nothing any more.
        self.read(kernel);
        self.usdt.end(departed);
        self.spans.end(departed);
        let open = kernel.spans.open();
        let pids: HashSet<u32> = if self.of_all {
            let of = open.iter().map(|(key, _)| key.pid);
            let of: HashSet<u32> = of.collect();
            let living = of.into_iter();
            living
                .filter(|pid| proc_fs::stat(*pid).is_some_and(|stat| !stat.dead()))
                .collect()
        } else {
            let pids = kernel.measured.processes(instrumentation);
            pids.into_iter().collect()
        };
        let items = &mut self.items;
        let mut known: HashMap<ProcessKey, bool> = HashMap::new();
        self.open = open;
        self.open.retain(|(key, _)| {
            let Some(item) = items.get_mut(&key.span) else {
                return false;
            };
            let process = ProcessKey {
                pid: key.pid,
                start_ns: BootNs::new(key.process_start_boot_ns),
            };
            let lives = *known.entry(process).or_insert_with(|| {
                pids.contains(&key.pid) && is_of(process, thread_life(key.pid, key.pid))
            });
            // Nobody will end it.
            if !lives && kernel.spans.close(key) {
                item.left_exit += 1;
            }
            lives
        });
    }

    /// Detaches everything; what was counted is kept.
    pub(super) fn end(&mut self, kernel: &mut Kernel, instrumentation: u8) {
        if self.items.is_empty() {
            return;
        }
        self.pass(kernel, instrumentation, &Departed::default());
        kernel.spans.detach(instrumentation);
        // What was hit until then.
        self.read(kernel);
        for (key, _) in &self.open {
            kernel.spans.close(key);
        }
        let items = &self.items;
        kernel
            .spans
            .remove(|_| false, |item| items.contains_key(&item));
    }

    /// Is nothing followed?
    pub(super) fn is_empty(&self) -> bool {
        self.items.is_empty()
    }

    /// Is any place probed?
    pub(super) fn is_probing(&self) -> bool {
        let mut items = self.items.values();
        items.any(|item| item.gave_up.is_none() && !item.places.is_empty())
    }

    /// Places that are probed, each in however many processes.
    pub(super) fn places(&self) -> usize {
        let items = self.items.values();
        let probed = items.filter(|item| item.gave_up.is_none());
        probed.map(|item| item.places.len()).sum()
    }

    /// Did all of it cost too much?
    pub(super) fn is_given_up(&self) -> bool {
        self.items.values().all(|item| item.gave_up.is_some())
    }

    /// What was counted up to the last pass.
    pub(super) fn state(&self, now_ns: MonoNs) -> Vec<TracedItem> {
        let items = self.items.iter().map(|(number, item)| {
            let open = self.open.iter().filter(|(key, _)| key.span == *number);
            let ages =
                open.map(|(_, started_ns)| now_ns.saturating_since(MonoNs::new(*started_ns)));
            let ages: Vec<u64> = ages.collect();
            let mut spans = SpanRow::EMPTY;
            for row in self.spans.of(*number).values() {
                spans.merge(row);
            }
            TracedItem {
                what: Arc::clone(&item.what),
                places: item.places.iter().map(|(_, of)| traced_place(of)).collect(),
                said: item
                    .said
                    .iter()
                    .cloned()
                    .chain(unseen(item.unseen_ns))
                    .collect(),
                attached_ns: item.attached_ns,
                gave_up: item.gave_up.clone(),
                hits: self.usdt.of(*number),
                spans,
                open: ages.len() as u64,
                open_longest_ns: ages.into_iter().max().unwrap_or(0),
                left_exit: item.left_exit,
            }
        });
        items.collect()
    }

    /// Processes that have come, or gone, whose memory has probes of its own.
    fn follow_processes(&mut self, kernel: &mut Kernel, instrumentation: u8) {
        if self.of_all || !FunctionProbes::tells_processes() {
            return;
        }
        let pids = kernel.measured.processes(instrumentation);
        let pids: HashSet<u32> = pids.into_iter().collect();
        let shared = |item: &Item, number: u32| {
            let mut places = item.places.iter();
            item.gave_up.is_none() && places.any(|(of, place)| *of == number && place.shared)
        };
        // One by one: where there is no room for one, there may be for another.
        let mut failed = Vec::new();
        let mut why = None;
        for pid in pids.difference(&self.in_processes) {
            if let Err(error) = self.attach(kernel, instrumentation, &[*pid], shared) {
                failed.push(*pid);
                why = Some(error);
            }
        }
        if let Some(error) = why {
            warn!("USDT points and spans are not followed in processes {failed:?}: {error}");
            self.trouble = Some(format!(
                "USDT points and spans are not followed in {} new processes: {error}",
                failed.len()
            ));
        }
        for pid in self.in_processes.difference(&pids) {
            kernel.spans.detach_process(instrumentation, *pid);
        }
        self.in_processes = pids;
    }

    /// Probes the places that are meant: in all memory that has their file, or in that of these
    /// processes.
    fn attach(
        &self,
        kernel: &mut Kernel,
        instrumentation: u8,
        pids: &[u32],
        is_meant: impl Fn(&Item, u32) -> bool,
    ) -> Result<(), MeasureError> {
        let mut files: Vec<(&PlannedPlace, Vec<ProbePlace>)> = Vec::new();
        for (item_number, item) in &self.items {
            for (number, planned) in &item.places {
                if !is_meant(item, *number) {
                    continue;
                }
                let probe = ProbePlace {
                    number: *number,
                    offset: planned.offset,
                    semaphore: planned.semaphore,
                    place: PlaceAction {
                        item: *item_number,
                        roles: planned.roles,
                        instrumentation: u32::from(instrumentation),
                        padding: 0,
                        argument: planned.argument,
                    },
                };
                let mut known = files.iter_mut();
                match known.find(|(of, _)| Arc::ptr_eq(&of.file, &planned.file)) {
                    Some((_, probes)) => probes.push(probe),
                    None => files.push((planned, vec![probe])),
                }
            }
        }
        for (of, probes) in files {
            let by_process = of.shared && !self.of_all && FunctionProbes::tells_processes();
            let memories: Vec<Option<u32>> = if by_process {
                pids.iter().copied().map(Some).collect()
            } else {
                vec![None]
            };
            point_limits::check(kernel, instrumentation, probes.len() * memories.len())?;
            for pid in memories {
                match kernel.spans.attach(&of.file, &of.module, &probes, pid) {
                    // It has exited meanwhile.
                    Err(error) if error.is_no_process() && pid.is_some() => {}
                    attached => attached?,
                }
            }
        }
        Ok(())
    }

    /// Reads what was counted, and adds to what probes have cost.
    pub(super) fn read(&mut self, kernel: &Kernel) {
        if self.items.is_empty() {
            return;
        }
        let (items, spent) = (&self.items, &mut self.spent);
        self.usdt.take(kernel.spans.usdt_rows(), items, spent);
        self.spans.take(kernel.spans.span_rows(), items, spent);
    }

    /// What probes have cost since this was asked last, by process and item.
    pub(super) fn spent(&mut self, costs: &ProbeCosts) -> Vec<ItemHits> {
        let mut hits = Vec::new();
        for ((pid, number), count) in self.spent.drain() {
            let item = self.items.get(&number);
            let Some(item) = item.filter(|item| item.gave_up.is_none()) else {
                continue;
            };
            let stepped = item.places.iter().any(|(_, place)| place.stepped);
            // What a call costs that is only counted: one hit.
            let cost = costs[usize::from(stepped)];
            hits.push(ItemHits {
                pid,
                item: number,
                count,
                cost_ns: count as f64 * (cost.inside_ns + cost.outside_ns),
            });
        }
        hits
    }

    /// Detaches the probes of items that cost too much, each with why. Answers how many others are
    /// not followed any more either.
    pub(super) fn give_up(&mut self, kernel: &mut Kernel, mut gone: HashMap<u32, String>) -> u64 {
        let numbers: HashSet<u32> = gone.keys().copied().collect();
        for (number, item) in &mut self.items {
            if let Some(why) = gone.remove(number) {
                item.gave_up = Some(why);
            }
        }
        let interrupted = kernel.spans.detach_items(|item| numbers.contains(&item));
        for number in interrupted.owners {
            if let Some(item) = self.items.get_mut(&number) {
                item.unseen_ns += interrupted.unseen_ns;
            }
        }
        let failed = interrupted.failed.len() as u64;
        for (number, why) in interrupted.failed {
            if let Some(item) = self.items.get_mut(&number) {
                item.gave_up = Some(why);
            }
        }
        failed
    }
}

/// The cost of one item's probes in one process.
pub(super) struct ItemHits {
    pub(super) pid: u32,
    /// Its number.
    pub(super) item: u32,
    /// Probes that were hit.
    pub(super) count: u64,
    /// What they cost together, nanoseconds.
    pub(super) cost_ns: f64,
}

/// Whether that process has its id, and not one that came later, by the first thread of that id.
/// What cannot be told is taken to be so; other threads may go on where the first has ended.
fn is_of(process: ProcessKey, first: ThreadLife) -> bool {
    match first {
        ThreadLife::None => false,
        ThreadLife::Since(ticks) => ticks == ThreadLife::ticks(process.start_ns),
        ThreadLife::Ended | ThreadLife::Unknown => true,
    }
}

fn process_of(key: &ItemKey) -> ProcessKey {
    ProcessKey {
        pid: key.thread.pid,
        start_ns: BootNs::new(key.process_start_boot_ns),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that a process is told from one that has its id later, that what cannot be told is
    // taken for it, and that it lives on where its first thread has ended.
    #[test]
    fn a_process_is_told_from_the_next_of_its_id() {
        let process = ProcessKey {
            pid: 7,
            start_ns: BootNs::new(1_239_999_999),
        };
        for (first, expected) in [
            (ThreadLife::Since(123), true),
            (ThreadLife::Since(124), false),
            (ThreadLife::Since(122), false),
            (ThreadLife::None, false),
            (ThreadLife::Ended, true),
            (ThreadLife::Unknown, true),
        ] {
            assert_eq!(is_of(process, first), expected, "{first:?}");
        }
    }
}
