//! USDT points and spans: their probes, within a budget, and what was counted.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::sync::Arc;

use profiler_common::spans::{Argument, ItemKey, OpenKey, Place, SpanRow, UsdtRow};
use tracing::warn;

use super::measuring::room;
use crate::kernel::{Kernel, MeasureError, Measured, ProbeCosts, ProbePlace};
use crate::processes::ids::ProcessKey;

/// The least time over which the cost of probes is looked at, nanoseconds.
const BUDGET_LOOK_NS: u64 = 190_000_000;

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
    pub offset: u64,
    /// Whether the kernel executes the instruction out of its line.
    pub stepped: bool,
    /// The counter that is raised while it is probed, from the start of the file.
    pub semaphore: Option<u64>,
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
}

/// One USDT point or span, with all that was counted of it.
#[derive(Clone, Debug)]
pub struct TracedItem {
    /// What it is.
    pub what: Arc<Traced>,
    /// Places that are probed.
    pub places: usize,
    /// Whether any of them is executed out of its line.
    pub stepped: bool,
    /// When the last of them were, monotonic nanoseconds.
    pub attached_ns: u64,
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

/// One item, from its attachment on.
struct Item {
    what: Arc<Traced>,
    places: Vec<(u32, PlannedPlace)>,
    attached_ns: u64,
    gave_up: Option<String>,
    left_exit: u64,
}

/// What rows have in common.
trait Row: Copy {
    const EMPTY: Self;
    fn merge(&mut self, other: &Self);
    fn hits(&self) -> u64;
}

impl Row for UsdtRow {
    const EMPTY: Self = Self::EMPTY;
    fn merge(&mut self, other: &Self) {
        self.merge(other);
    }
    fn hits(&self) -> u64 {
        self.hits
    }
}

impl Row for SpanRow {
    const EMPTY: Self = Self::EMPTY;
    fn merge(&mut self, other: &Self) {
        self.merge(other);
    }
    fn hits(&self) -> u64 {
        self.hits()
    }
}

/// Rows of threads.
struct Rows<R> {
    /// Of those that live, or of which nothing was read since they ended.
    living: HashMap<ItemKey, R>,
    /// Of those that are gone.
    ended: HashMap<(u32, ProcessKey), R>,
}

impl<R> Default for Rows<R> {
    fn default() -> Self {
        Self {
            living: HashMap::new(),
            ended: HashMap::new(),
        }
    }
}

impl<R: Row> Rows<R> {
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

    fn end(&mut self, is_gone: impl Fn(u32, u64) -> bool) {
        let gone = self
            .living
            .extract_if(|key, _| is_gone(key.thread.tid, key.thread.start_boot_ns));
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
    items: BTreeMap<u32, Item>,
    /// The item of each number that whoever asked has given.
    asked: HashMap<u32, u32>,
    /// Processes whose memory has probes of its own.
    in_processes: HashSet<u32>,
    usdt: Rows<UsdtRow>,
    spans: Rows<SpanRow>,
    open: Vec<(OpenKey, u64)>,
    /// When the cost was looked at last, and the probes hit since, by process and item.
    looked_ns: u64,
    spent: HashMap<(u32, u32), u64>,
}

impl Spanning {
    /// Probes more places, in the memory of these processes, whom the instrumentation measures.
    ///
    /// # Errors
    /// [`MeasureError`]; places before those that are refused are then probed.
    pub(super) fn start(
        &mut self,
        kernel: &mut Kernel,
        (instrumentation, pids): (u8, &[u32]),
        items: Vec<PlannedItem>,
        now_ns: u64,
    ) -> Result<(), MeasureError> {
        self.looked_ns = now_ns;
        let mut new = Vec::new();
        for planned in items {
            let asked = self.asked.entry(planned.id);
            let number = *asked.or_insert_with(|| kernel.spans.next_number());
            let item = self.items.entry(number).or_insert_with(|| Item {
                what: planned.what,
                places: Vec::new(),
                attached_ns: now_ns,
                gave_up: None,
                left_exit: 0,
            });
            item.attached_ns = now_ns;
            for place in planned.places {
                let of_place = kernel.spans.next_number();
                item.places.push((of_place, place));
                new.push(of_place);
            }
        }
        self.in_processes.extend(pids);
        let is_new = |_: &Item, number: u32| new.contains(&number);
        self.attach(kernel, instrumentation, pids, is_new)
    }

    /// A look in between: children that share a file with others get probes, and what costs too
    /// much loses them. `budget`: how much of one processor probes may take from a process; 0 =
    /// any.
    pub(super) fn look(
        &mut self,
        kernel: &mut Kernel,
        instrumentation: u8,
        (costs, budget): (&ProbeCosts, f64),
        now_ns: u64,
    ) {
        if self.items.is_empty() {
            return;
        }
        self.follow_children(kernel, instrumentation);
        if budget > 0.0 && now_ns.saturating_sub(self.looked_ns) >= BUDGET_LOOK_NS {
            self.read(kernel);
            self.keep_budget(kernel, costs, budget, now_ns);
        }
    }

    /// Takes in what was counted; rows are over whose threads `is_gone`, after this.
    pub(super) fn pass(
        &mut self,
        kernel: &mut Kernel,
        instrumentation: u8,
        is_gone: &impl Fn(u32, u64) -> bool,
    ) {
        if self.items.is_empty() {
            return;
        }
        // Read after the threads: those that have exited hit nothing any more.
        self.read(kernel);
        self.usdt.end(is_gone);
        self.spans.end(is_gone);
        let pids = kernel.measured.processes(instrumentation);
        let pids: HashSet<u32> = pids.into_iter().collect();
        let items = &mut self.items;
        self.open = kernel.spans.open();
        self.open.retain(|(key, _)| {
            let Some(item) = items.get_mut(&key.span) else {
                return false;
            };
            let lives = pids.contains(&key.pid);
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
        self.pass(kernel, instrumentation, &|_, _| false);
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
    pub(super) fn state(&self, now_ns: u64) -> Vec<TracedItem> {
        let items = self.items.iter().map(|(number, item)| {
            let open = self.open.iter().filter(|(key, _)| key.span == *number);
            let ages = open.map(|(_, started_ns)| now_ns.saturating_sub(*started_ns));
            let ages: Vec<u64> = ages.collect();
            let mut spans = SpanRow::EMPTY;
            for row in self.spans.of(*number).values() {
                spans.merge(row);
            }
            TracedItem {
                what: Arc::clone(&item.what),
                places: item.places.len(),
                stepped: item.places.iter().any(|(_, place)| place.stepped),
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
    fn follow_children(&mut self, kernel: &mut Kernel, instrumentation: u8) {
        let mut places = self.items.values().flat_map(|item| &item.places);
        if !places.any(|(_, place)| place.shared) || !Measured::tells_processes() {
            return;
        }
        let pids = kernel.measured.processes(instrumentation);
        let pids: HashSet<u32> = pids.into_iter().collect();
        let new: Vec<u32> = pids.difference(&self.in_processes).copied().collect();
        if !new.is_empty() {
            let shared = |item: &Item, number: u32| {
                let mut places = item.places.iter();
                item.gave_up.is_none() && places.any(|(of, place)| *of == number && place.shared)
            };
            if let Err(error) = self.attach(kernel, instrumentation, &new, shared) {
                warn!("USDT points and spans are not followed in processes {new:?}: {error}");
            }
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
        if pids.is_empty() {
            return Ok(());
        }
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
                    place: Place {
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
            let memories: Vec<Option<u32>> = if of.shared && Measured::tells_processes() {
                pids.iter().copied().map(Some).collect()
            } else {
                vec![None]
            };
            room::check(kernel, instrumentation, probes.len() * memories.len())?;
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

    fn read(&mut self, kernel: &Kernel) {
        let (items, spent) = (&self.items, &mut self.spent);
        self.usdt.take(kernel.spans.usdt_rows(), items, spent);
        self.spans.take(kernel.spans.span_rows(), items, spent);
    }

    /// Where probes take more of a process than they may, the costliest item loses its own.
    fn keep_budget(&mut self, kernel: &mut Kernel, costs: &ProbeCosts, budget: f64, now_ns: u64) {
        let took_ns = now_ns.saturating_sub(self.looked_ns) as f64;
        self.looked_ns = now_ns;
        let mut processes: HashMap<u32, Spent> = HashMap::new();
        for ((pid, number), hits) in self.spent.drain() {
            let Some(item) = self.items.get(&number) else {
                continue;
            };
            let stepped = item.places.iter().any(|(_, place)| place.stepped);
            // What a call costs that is only counted: one hit.
            let cost = costs[usize::from(stepped)];
            let cost_ns = hits as f64 * (cost.inside_ns + cost.outside_ns);
            let process = processes.entry(pid).or_default();
            process.all_ns += cost_ns;
            if cost_ns > process.most_ns {
                process.most_ns = cost_ns;
                process.item = number;
                process.hits = hits;
            }
        }
        for (pid, spent) in processes {
            let share = spent.all_ns / took_ns;
            let Some(item) = self.items.get_mut(&spent.item) else {
                continue;
            };
            if share <= budget || item.gave_up.is_some() {
                continue;
            }
            let module = item
                .places
                .first()
                .map(|(_, place)| Arc::clone(&place.module));
            let module = module.unwrap_or_else(|| "".into());
            if let Err(error) = kernel.spans.detach_item(&module, spent.item) {
                warn!(
                    "others beside {:?} are not followed any more: {error}",
                    item.what
                );
            }
            item.gave_up = Some(format!(
                "given up: {:.0} hits a second in process {pid} cost {:.1} % of a processor, and all USDT points and spans there {:.1} % of {:.1} % that they may take",
                spent.hits as f64 / took_ns * 1e9,
                100.0 * spent.most_ns / took_ns,
                100.0 * share,
                100.0 * budget,
            ));
        }
    }
}

/// What probes have taken of a process.
#[derive(Default)]
struct Spent {
    all_ns: f64,
    /// The costliest item: its number, what its probes took, and its hits.
    item: u32,
    most_ns: f64,
    hits: u64,
}

fn process_of(key: &ItemKey) -> ProcessKey {
    ProcessKey {
        pid: key.thread.pid,
        start_ns: key.process_start_boot_ns,
    }
}
