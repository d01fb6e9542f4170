//! Divides the exact totals of a view's strata among the places that hold their marks, to the nanosecond
//! (docs/semantics.md section 4), and says how far each row's share may be from the truth.

use profiler_common::{
    CLASS_COUNT,
    division::{
        Column, Estimate, Product, Stratum,
        strata::{part_of, totals_of},
    },
    kinds::{KINDS, Kind, KindNs, Primary},
};

use super::{
    product::{Marks, Values},
    strata::Shared,
};
use crate::profile::values::{WAIT_CLASSES, class_of};

/// What a place holds of one member of the view.
#[derive(Clone, Debug)]
pub(super) struct Cell {
    pub(super) member: u32,
    pub(super) node: u32,
    pub(super) primary: Primary,
}

/// A stratum, and what its cells hold of its kinds.
struct Part {
    stratum: Stratum,
    /// Each by its place among all cells.
    cells: Vec<(u32, Primary)>,
}

/// The products.
#[derive(Default)]
pub(super) struct Divided {
    /// By cell.
    pub(super) values: Vec<Values>,
    /// By member: time of kinds of which its stratum has no mark.
    pub(super) not_sampled: Vec<Values>,
    parts: Vec<Part>,
}

impl Divided {
    /// Divides `strata`, whose members have the exact totals `kinds`, among `cells`. `span_ns`: the time that the report covers.
    pub(super) fn new(strata: &[Shared], kinds: &[KindNs], cells: &[Cell], span_ns: u64) -> Self {
        let mut by_member: Vec<Vec<u32>> = vec![Vec::new(); kinds.len()];
        for (index, cell) in (0u32..).zip(cells) {
            by_member[cell.member as usize].push(index);
        }
        let mut divided = Self {
            values: cells.iter().map(as_counted).collect(),
            not_sampled: vec![Values::default(); kinds.len()],
            parts: Vec::new(),
        };
        for shared in strata {
            let of_member = |(member, set): &(u32, [bool; KINDS])| {
                let set = *set;
                let cells_of = by_member[*member as usize].iter();
                cells_of.map(move |cell| {
                    let part = part_of(&set, false, &cells[*cell as usize].primary);
                    (*cell, part)
                })
            };
            let mut held: Vec<(u32, Primary)> = shared.members.iter().flat_map(of_member).collect();
            held.retain(|(_, part)| *part != Primary::default());
            divided.take(shared, kinds, held, span_ns);
        }
        divided
    }

    fn take(
        &mut self,
        shared: &Shared,
        kinds: &[KindNs],
        cells: Vec<(u32, Primary)>,
        span_ns: u64,
    ) {
        let mut sum = Primary::default();
        cells.iter().for_each(|(_, part)| sum.add(part));
        let stratum = Stratum::new(&shared.kinds, &sum, span_ns);
        let parts: Vec<Primary> = cells.iter().map(|(_, part)| *part).collect();
        let (products, _) = stratum.divide(&parts);
        for ((cell, _), product) in cells.iter().zip(&products) {
            self.values[*cell as usize].add(&Values::from(product));
        }
        let without_marks = stratum.not_sampled_kinds();
        for (member, set) in &shared.members {
            let of_member = totals_of(set, &kinds[*member as usize]);
            for kind in Kind::ALL
                .into_iter()
                .filter(|kind| without_marks[*kind as usize] > 0)
            {
                let ns = of_member[kind as usize];
                let mut values = Values::of_class(class_of(kind), ns);
                values.estimated_ns = if kind == Kind::Untraced { ns } else { 0 };
                self.not_sampled[*member as usize].add(&values);
            }
        }
        self.parts.push(Part { stratum, cells });
    }

    /// How good each of `rows` rows is. `rows_of` says which rows a cell counts for, none twice.
    pub(super) fn accuracy(
        &self,
        cells: &[Cell],
        rows: usize,
        mut rows_of: impl FnMut(&Cell, &mut Vec<u32>),
    ) -> Vec<Accuracy> {
        let mut accuracy = vec![Accuracy::default(); rows];
        let mut sums: Vec<Option<Primary>> = vec![None; rows];
        let (mut touched, mut found) = (Vec::new(), Vec::new());
        for part in &self.parts {
            for (cell, held) in &part.cells {
                found.clear();
                rows_of(&cells[*cell as usize], &mut found);
                for row in &found {
                    let sum = &mut sums[*row as usize];
                    if sum.is_none() {
                        touched.push(*row);
                    }
                    sum.get_or_insert_default().add(held);
                }
            }
            for row in touched.drain(..) {
                if let Some(sum) = sums[row as usize].take() {
                    accuracy[row as usize].add(&part.stratum, &sum);
                }
            }
        }
        accuracy
    }
}

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
    fn add(&mut self, stratum: &Stratum, held: &Primary) {
        self.elapsed.add(&stratum.estimate(held, Column::Elapsed));
        self.application
            .add(&stratum.estimate(held, Column::Application));
        self.marks.ticks = self.marks.ticks.saturating_add(held.samples());
        for gaps in held.marks {
            self.marks.gaps = self.marks.gaps.saturating_add(gaps);
        }
        for (ns, squares_us2) in held.weighted.iter().zip(held.squares_us2) {
            self.marks.waits = self
                .marks
                .waits
                .saturating_add(equal_weights(*ns, squares_us2));
        }
    }
}

impl Accuracy {
    /// Of a row that is this one and another.
    pub(super) fn join(&mut self, other: &Self) {
        self.elapsed.add(&other.elapsed);
        self.application.add(&other.application);
        self.marks.add(&other.marks);
    }
}

/// How many equal weights tell as much as these.
fn equal_weights(ns: u64, squares_us2: u64) -> u64 {
    let us = ns as f64 / 1e3;
    // A wait of less than a microsecond has a square of nothing.
    let squares = (squares_us2 as f64).max(us).max(1.0);
    (us * us / squares).ceil() as u64
}

/// What a cell has without any division: counts, and waits that are exactly its own.
fn as_counted(cell: &Cell) -> Values {
    let mut classes = [0; CLASS_COUNT];
    for (class, ns) in WAIT_CLASSES.into_iter().zip(cell.primary.exact) {
        classes[class as usize] = ns;
    }
    Values {
        samples: cell.primary.samples(),
        walks: cell.primary.walks,
        classes,
        ..Values::default()
    }
}

impl From<&Product> for Values {
    fn from(product: &Product) -> Self {
        Self {
            samples: 0,
            walks: 0,
            classes: product.classes,
            fault_ns: product.fault_ns,
            estimated_ns: product.estimated_ns,
        }
    }
}
