//! How far the values of rows may be from the truth: what places hold of each stratum, added up by
//! row.

use std::collections::BTreeMap;

use profiler_common::{
    division::{
        Column, Estimate, KernelTicks, MARK_PARTS, Stratum, equal_marks, equal_weights, shares,
    },
    kinds::{Kind, MARK_BLOCKED, MARK_CALL, MARK_RUNNABLE, Primary, Tick},
};

use super::{
    marks::Marks,
    node::{MergedNode, ROOT},
};

/// How good the values of a row are.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Accuracy {
    /// Of all time.
    pub(super) elapsed: Estimate,
    /// Of application time.
    pub(super) application: Estimate,
    /// What they rest on.
    pub(super) marks: Marks,
}

impl Accuracy {
    fn add(&mut self, stratum: &Stratum, held: &RowHeld) {
        let RowHeld {
            primary,
            call_parts,
        } = held;
        stratum.add_estimate(&mut self.elapsed, primary, *call_parts, Column::Elapsed);
        stratum.add_estimate(
            &mut self.application,
            primary,
            *call_parts,
            Column::Application,
        );
        let ticks = equal_marks(primary.samples(), primary.tick_excess).ceil() as u64;
        self.marks.ticks = self.marks.ticks.saturating_add(ticks);
        for (marks, excess) in primary.marks.into_iter().zip(primary.excess) {
            let gaps = equal_marks(marks, excess).ceil() as u64;
            self.marks.gaps = self.marks.gaps.saturating_add(gaps);
        }
        let gaps = call_parts.div_ceil(MARK_PARTS);
        self.marks.gaps = self.marks.gaps.saturating_add(gaps);
        for (ns, squares_ms2) in primary.weighted.iter().zip(primary.squares_ms2) {
            if *ns > 0 {
                let waits = equal_weights(*ns, squares_ms2).ceil() as u64;
                self.marks.waits = self.marks.waits.saturating_add(waits);
            }
        }
    }

    /// Of a row that is this one and another.
    pub(super) fn join(&mut self, other: &Self) {
        self.elapsed.add(&other.elapsed);
        self.application.add(&other.application);
        self.marks.add(&other.marks);
    }
}

/// What a row holds of a stratum.
#[derive(Clone, Copy, Default)]
struct RowHeld {
    primary: Primary,
    /// Parts of marks of running time in calls ([`MARK_PARTS`]), beside those above.
    call_parts: u64,
}

impl RowHeld {
    fn add(&mut self, other: &Self) {
        self.primary.add(&other.primary);
        self.call_parts = self.call_parts.saturating_add(other.call_parts);
    }
}

/// A stratum, and what places hold of its kinds.
struct StratumShare {
    stratum: Stratum,
    held: Vec<(u32, Primary)>,
    /// Parts of marks that kernel functions have.
    calls: Vec<(u32, u64)>,
}

/// Where the time of a user function goes that it spent in the kernel.
pub(super) struct IntoKernel {
    /// Its running time in calls, nanoseconds.
    pub(super) call_ns: u64,
    /// The kernel functions that have it, each with the ticks that say so.
    pub(super) ticks: Vec<(u32, u64)>,
    /// The place for what has no function.
    pub(super) unknown: Option<u32>,
}

/// How the running time in calls of a user function was divided.
struct InKernel {
    user: u32,
    ticks: KernelTicks,
    places: Vec<(u32, u64)>,
}

/// What places hold.
#[derive(Default)]
pub(super) struct Holdings {
    parts: Vec<StratumShare>,
    in_kernel: Vec<InKernel>,
}

impl Holdings {
    /// Adds what places hold of a stratum.
    pub(super) fn add(&mut self, stratum: Stratum, held: Vec<(u32, Primary)>) {
        self.parts.push(StratumShare {
            stratum,
            held,
            calls: Vec::new(),
        });
    }

    /// Moves what user functions hold of time in the kernel to where that time went. `moves` are by
    /// place of the user function.
    pub(super) fn move_into_kernel(&mut self, moves: BTreeMap<u32, IntoKernel>) {
        let mut known: BTreeMap<u32, KernelTicks> = BTreeMap::new();
        for part in &mut self.parts {
            let mut moved = Vec::new();
            for (node, held) in &mut part.held {
                let Some(to) = moves.get(node) else {
                    continue;
                };
                let known = known.entry(*node).or_default();
                known.in_step = known.in_step.max(part.stratum.ticks_in_step());
                let mut rest = take_kernel_part(held);
                if part.stratum.is_exact(Kind::Call) {
                    let exact_ns = rest.marks[MARK_CALL];
                    known.exact_ns = known.exact_ns.saturating_add(exact_ns);
                }
                let weights: Vec<u64> = to.ticks.iter().map(|(_, ticks)| *ticks).collect();
                let parts = rest.marks[MARK_CALL].saturating_mul(MARK_PARTS);
                if let Some(parts) = shares(parts, &weights).filter(|parts| !parts.is_empty()) {
                    rest.marks[MARK_CALL] = 0;
                    let parts = to
                        .ticks
                        .iter()
                        .zip(parts)
                        .map(|((at, _), part)| (*at, part));
                    part.calls.extend(parts.filter(|(_, part)| *part > 0));
                }
                match to.unknown {
                    Some(unknown) if rest != Primary::default() => moved.push((unknown, rest)),
                    Some(_) => {}
                    // No time of it was left: it is that of untraced calls, which went with the
                    // others.
                    None => held.add(&rest),
                }
            }
            part.held.append(&mut moved);
        }
        for (user, to) in moves {
            let ticks = KernelTicks {
                call_ns: to.call_ns,
                ticks: (to.ticks.iter()).fold(0, |sum, (_, ticks)| sum.saturating_add(*ticks)),
                ..known.get(&user).copied().unwrap_or_default()
            };
            self.in_kernel.push(InKernel {
                user,
                ticks,
                places: to.ticks,
            });
        }
    }

    /// How good the values of `rows` rows are that have what places hold themselves. `row_of` says
    /// which row that is.
    pub(super) fn of_own(&self, rows: usize, row_of: impl Fn(u32) -> Option<u32>) -> Vec<Accuracy> {
        let mut accuracy = vec![Accuracy::default(); rows];
        let mut sums = RowSums::new(rows);
        for part in &self.parts {
            part.add_to(&mut sums, &row_of);
            sums.drain(|row, held| accuracy[row as usize].add(&part.stratum, held));
        }
        let mut ticks = RowCounts::new(rows);
        for of in &self.in_kernel {
            let whole = row_of(of.user);
            for (node, count) in &of.places {
                if let Some(row) = row_of(*node).filter(|row| Some(*row) != whole) {
                    ticks.add(row, *count);
                }
            }
            ticks.drain(|row, count| {
                accuracy[row as usize].elapsed.tell_apart(&of.ticks, count);
            });
        }
        accuracy
    }

    /// The same of rows that have what places hold with all below them. `row_of` says where; no
    /// place may be below another of its row.
    pub(super) fn with_callees(
        &self,
        nodes: &[MergedNode],
        rows: usize,
        row_of: impl Fn(u32) -> Option<u32>,
    ) -> Vec<Accuracy> {
        let mut accuracy = vec![Accuracy::default(); rows];
        let (mut by_node, mut by_row) = (RowSums::new(nodes.len()), RowSums::new(rows));
        for part in &self.parts {
            part.add_to(&mut by_node, Some);
            by_node.add_to_callers(nodes);
            by_node.drain(|node, held| {
                if let Some(row) = row_of(node) {
                    by_row.of(row).add(held);
                }
            });
            by_row.drain(|row, held| accuracy[row as usize].add(&part.stratum, held));
        }
        let mut ticks = RowCounts::new(rows);
        for of in &self.in_kernel {
            for (node, count) in &of.places {
                let mut at = *node;
                while at != of.user && at != ROOT {
                    if let Some(row) = row_of(at) {
                        ticks.add(row, *count);
                    }
                    at = nodes[at as usize].parent;
                }
            }
            ticks.drain(|row, count| {
                accuracy[row as usize].elapsed.tell_apart(&of.ticks, count);
            });
        }
        accuracy
    }
}

impl StratumShare {
    /// Adds what places hold to the rows that they are of.
    fn add_to(&self, sums: &mut RowSums, row_of: impl Fn(u32) -> Option<u32>) {
        for (node, primary) in &self.held {
            if let Some(row) = row_of(*node) {
                sums.of(row).primary.add(primary);
            }
        }
        for (node, parts) in &self.calls {
            if let Some(row) = row_of(*node) {
                let call_parts = &mut sums.of(row).call_parts;
                *call_parts = call_parts.saturating_add(*parts);
            }
        }
    }
}

/// Takes out what was spent in the kernel, as the time is
/// ([`Values::take_kernel_time`](super::product::Values::take_kernel_time)): all but user mode, and
/// but waits that were walked. Ticks that found calls have no time.
fn take_kernel_part(held: &mut Primary) -> Primary {
    let mut part = Primary {
        marks: std::mem::take(&mut held.marks),
        excess: std::mem::take(&mut held.excess),
        ..Primary::default()
    };
    let in_kernel = [
        Tick::Fault,
        Tick::UntracedFault,
        Tick::UntracedCall,
        Tick::Kernel,
    ];
    for tick in in_kernel.map(|tick| tick as usize) {
        part.ticks[tick] = std::mem::take(&mut held.ticks[tick]);
    }
    for (wait, mark) in [MARK_BLOCKED, MARK_RUNNABLE].into_iter().enumerate() {
        // Where marks at gaps have a part in it, only what is exact is sure to have been walked.
        if part.marks[mark] > 0 {
            part.weighted[wait] = std::mem::take(&mut held.weighted[wait]);
            part.squares_ms2[wait] = std::mem::take(&mut held.squares_ms2[wait]);
        }
    }
    part
}

/// What some rows hold; only those that hold anything take room.
struct RowSums {
    /// By row: its place among those that hold anything.
    places: Vec<u32>,
    held: Vec<(u32, RowHeld)>,
}

/// The place of a row that holds nothing.
const NOWHERE: u32 = u32::MAX;

impl RowSums {
    fn new(rows: usize) -> Self {
        Self {
            places: vec![NOWHERE; rows],
            held: Vec::new(),
        }
    }

    fn of(&mut self, row: u32) -> &mut RowHeld {
        let place = &mut self.places[row as usize];
        if *place == NOWHERE {
            *place = u32::try_from(self.held.len()).expect("rows are numbered by u32");
            self.held.push((row, RowHeld::default()));
        }
        &mut self.held[*place as usize].1
    }

    /// Where rows are nodes: adds what each holds to all that it is below of, but the root.
    fn add_to_callers(&mut self, nodes: &[MergedNode]) {
        let mut at = 0;
        while let Some((node, _)) = self.held.get(at) {
            let parent = nodes[*node as usize].parent;
            if parent != ROOT {
                self.of(parent);
            }
            at += 1;
        }
        // Callees have higher numbers than their callers.
        let mut order: Vec<u32> = self.held.iter().map(|(node, _)| *node).collect();
        order.sort_unstable_by(|a, b| b.cmp(a));
        for node in order {
            let parent = nodes[node as usize].parent;
            if parent != ROOT {
                let places = [node, parent].map(|node| self.places[node as usize] as usize);
                let [(_, held), (_, callers)] = self
                    .held
                    .get_disjoint_mut(places)
                    .expect("both hold something");
                callers.add(held);
            }
        }
    }

    fn drain(&mut self, mut each: impl FnMut(u32, &RowHeld)) {
        for (row, held) in &self.held {
            self.places[*row as usize] = NOWHERE;
            each(*row, held);
        }
        self.held.clear();
    }
}

/// Counts of some rows.
struct RowCounts {
    counts: Vec<u64>,
    touched: Vec<u32>,
}

impl RowCounts {
    fn new(rows: usize) -> Self {
        Self {
            counts: vec![0; rows],
            touched: Vec::new(),
        }
    }

    fn add(&mut self, row: u32, count: u64) {
        let sum = &mut self.counts[row as usize];
        if *sum == 0 {
            self.touched.push(row);
        }
        *sum = sum.saturating_add(count);
    }

    fn drain(&mut self, mut each: impl FnMut(u32, u64)) {
        for row in self.touched.drain(..) {
            each(row, std::mem::take(&mut self.counts[row as usize]));
        }
    }
}
