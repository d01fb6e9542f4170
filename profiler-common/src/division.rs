//! Divides exact time among stacks by their marks (docs/semantics.md section 4): the report side,
//! made once for the window of a report. Pure: totals and marks go in, nanoseconds of each stack
//! come out, and intervals of what they rest on.
//!
//! A report says which processes are strata ([`strata`]), gives each stratum's exact kinds and the
//! sum of its stacks' primary data to [`Stratum::new`], and has its stacks divided by
//! [`Stratum::divide`]. All other figures are sums of these products. [`Stratum::estimate`] says
//! how sure a sum of stacks is ([`Estimate`]).
//!
//! All numbers may be as large as `u64` goes, and may contradict each other (saved files): sums
//! saturate, nothing panics, and what is given out is what the totals say, whatever the marks are.

use core::ops::Range;
use std::vec::Vec;

use crate::clock::{Class, ClassNs};
use crate::kinds::{
    BLOCKED, KINDS, Kind, KindNs, MARK_BLOCKED, MARK_CALL, MARK_RUNNABLE, Primary, RUNNABLE, Tick,
};

use strata::KindSet;

mod confidence;
mod rounding;
pub mod strata;
mod totals;

pub use confidence::{
    Column, Estimate, Interval, KernelTicks, MARK_PARTS, equal_marks, equal_weights,
};
pub use rounding::shares;

/// Where the marks of a [`MarkSort`] are in a [`Primary`].
#[derive(Clone, Copy, Debug)]
enum MarkPlaces {
    Ticks(Tick),
    Gaps(usize),
    Weights(usize),
}

/// One sort of marks: what it divides, and what time at such a mark is.
#[derive(Clone, Copy, Debug)]
struct MarkSort {
    kind: Kind,
    class: Class,
    /// Kernel mode outside calls.
    is_fault: bool,
    marks: MarkPlaces,
}

const fn part(kind: Kind, class: Class, is_fault: bool, marks: MarkPlaces) -> MarkSort {
    MarkSort {
        kind,
        class,
        is_fault,
        marks,
    }
}

/// How many sorts of marks there are.
const PARTS: usize = 11;

/// All sorts of marks, those of a kind beside each other. A kind with several is divided among them
/// first, so its totals need no stacks.
#[rustfmt::skip]
static ALL_PARTS: [MarkSort; PARTS] = [
    part(Kind::User, Class::User, false, MarkPlaces::Ticks(Tick::User)),
    part(Kind::User, Class::User, true, MarkPlaces::Ticks(Tick::Fault)),
    part(Kind::Untraced, Class::User, false, MarkPlaces::Ticks(Tick::UntracedUser)),
    part(Kind::Untraced, Class::User, true, MarkPlaces::Ticks(Tick::UntracedFault)),
    part(Kind::Untraced, Class::Syscall, false, MarkPlaces::Ticks(Tick::UntracedCall)),
    part(Kind::Kernel, Class::Kernel, false, MarkPlaces::Ticks(Tick::Kernel)),
    part(Kind::Call, Class::Syscall, false, MarkPlaces::Gaps(MARK_CALL)),
    part(Kind::CallBlocked, Class::Blocked, false, MarkPlaces::Gaps(MARK_BLOCKED)),
    part(Kind::CallRunnable, Class::Runnable, false, MarkPlaces::Gaps(MARK_RUNNABLE)),
    part(Kind::OutsideBlocked, Class::Blocked, false, MarkPlaces::Weights(BLOCKED)),
    part(Kind::OutsideRunnable, Class::Runnable, false, MarkPlaces::Weights(RUNNABLE)),
];

/// Where the sorts of marks of `kind` are in [`ALL_PARTS`]: there is one at least.
const fn places_of(kind: Kind) -> Range<usize> {
    match kind {
        Kind::User => 0..2,
        Kind::Untraced => 2..5,
        Kind::Kernel => 5..6,
        Kind::Call => 6..7,
        Kind::CallBlocked => 7..8,
        Kind::CallRunnable => 8..9,
        Kind::OutsideBlocked => 9..10,
        Kind::OutsideRunnable => 10..11,
    }
}

fn parts_of(kind: Kind) -> &'static [MarkSort] {
    &ALL_PARTS[places_of(kind)]
}

/// So many standard deviations of the sum of drawn waits are chance. What there is beyond has other
/// waits than those that were drawn.
const CHANCE: f64 = 3.0;

impl MarkSort {
    /// How much of `kind_ns` the marks in `sum` can stand for. Weights of drawn waits add up to all
    /// waits, by and by: where there is far more, what was drawn is no picture of it. That is so
    /// where a few long waits have most of the time, and none of them was among the few drawn; so
    /// the drawn ones have what they weigh, and no more.
    fn tells_of(&self, kind_ns: u64, sum: &Primary) -> u64 {
        let MarkPlaces::Weights(index) = self.marks else {
            return kind_ns;
        };
        let weighted_ns = sum.weighted[index];
        if weighted_ns == 0 || weighted_ns >= kind_ns {
            return kind_ns;
        }
        let draws = equal_weights(weighted_ns, sum.squares_ms2[index]);
        let most = float(weighted_ns.into()) * (1.0 + CHANCE / draws.sqrt());
        if float(kind_ns.into()) <= most {
            kind_ns
        } else {
            weighted_ns
        }
    }

    fn of(&self, primary: &Primary) -> u64 {
        match self.marks {
            MarkPlaces::Ticks(tick) => primary.ticks[tick as usize],
            MarkPlaces::Gaps(index) => primary.marks[index],
            MarkPlaces::Weights(index) => primary.weighted[index],
        }
    }
}

/// The time of one stack, of several, or of a stratum.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Product {
    /// Nanoseconds by class. Elapsed time is their sum.
    pub classes: ClassNs,
    /// Nanoseconds of class user in kernel mode outside calls; no Application time.
    pub fault_ns: u64,
    /// Nanoseconds whose class rests on ticks, since calls were not traced.
    pub estimated_ns: u64,
}

impl Product {
    /// Nanoseconds of all classes.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        let classes = self.classes.iter();
        classes.fold(0, |sum, class_ns| sum.saturating_add(*class_ns))
    }

    /// Nanoseconds in user mode.
    #[must_use]
    pub fn application_ns(&self) -> u64 {
        self.classes[Class::User as usize].saturating_sub(self.fault_ns)
    }

    /// Adds `other`.
    pub fn add(&mut self, other: &Self) {
        for (to, from) in self.classes.iter_mut().zip(other.classes) {
            *to = to.saturating_add(from);
        }
        self.fault_ns = self.fault_ns.saturating_add(other.fault_ns);
        self.estimated_ns = self.estimated_ns.saturating_add(other.estimated_ns);
    }

    fn add_part(&mut self, part: &MarkSort, part_ns: u64) {
        let class_ns = &mut self.classes[part.class as usize];
        *class_ns = class_ns.saturating_add(part_ns);
        if part.is_fault {
            self.fault_ns = self.fault_ns.saturating_add(part_ns);
        }
        if part.kind == Kind::Untraced {
            self.estimated_ns = self.estimated_ns.saturating_add(part_ns);
        }
    }

    /// What of `kind` has no mark. Untraced time counts as user mode, as in the clock.
    fn add_not_sampled(&mut self, kind: Kind, kind_ns: u64) {
        self.add_part(&parts_of(kind)[0], kind_ns);
    }

    fn add_exact(&mut self, primary: &Primary) {
        for (class, index) in [(Class::Blocked, BLOCKED), (Class::Runnable, RUNNABLE)] {
            let class_ns = &mut self.classes[class as usize];
            *class_ns = class_ns.saturating_add(primary.exact[index]);
        }
    }
}

/// Exact totals that are divided together, and the marks they are divided by: a process, or the
/// small processes of an image.
#[derive(Clone, Debug)]
pub struct Stratum {
    kinds: KindNs,
    sum: Primary,
    /// What each part has, nanoseconds: with `not_sampled` they add up to `kinds`.
    quotas: [u64; PARTS],
    not_sampled: KindNs,
    /// All marks of each kind: asked for at each row of each report.
    marks: [f64; KINDS],
    /// Kinds whose marks are their time itself: the same.
    is_exact: KindSet,
    threads_at_once: f64,
}

impl Stratum {
    /// A stratum over `span_ns` of time: its exact `kinds`, and the `sum` of the primary data of
    /// its stacks (whose `exact` is in no kind).
    ///
    /// The span says how many threads ran at once; their ticks are in step, and count as one for
    /// intervals. 0: one did.
    #[must_use]
    pub fn new(kinds: &KindNs, sum: &Primary, span_ns: u64) -> Self {
        let mut quotas = [0; PARTS];
        let mut not_sampled = [0; KINDS];
        let mut marks = [0.0; KINDS];
        let mut is_exact = [false; KINDS];
        for kind in Kind::ALL {
            let kind_ns = kinds[kind as usize];
            let weights: Vec<u64> = parts_of(kind).iter().map(|part| part.of(sum)).collect();
            let told_ns = parts_of(kind)[0].tells_of(kind_ns, sum);
            not_sampled[kind as usize] = kind_ns - told_ns;
            match shares(told_ns, &weights) {
                None => not_sampled[kind as usize] = kind_ns,
                Some(parts) => quotas[places_of(kind)].copy_from_slice(&parts),
            }
            let all = weights.iter().map(|weight| u128::from(*weight)).sum();
            marks[kind as usize] = float(all);
            is_exact[kind as usize] = all == u128::from(kind_ns);
        }
        Self {
            kinds: *kinds,
            sum: *sum,
            quotas,
            not_sampled,
            marks,
            is_exact,
            threads_at_once: confidence::threads_at_once(kinds, span_ns),
        }
    }

    /// The stratum's whole time: its kinds, and the exact waits of its stacks. What is estimated of
    /// it (user mode, faults and calls where these are not traced) is equal to the sum over what
    /// [`Self::divide`] gives.
    #[must_use]
    pub fn total(&self) -> Product {
        let mut total = self.not_sampled();
        for (part, quota_ns) in ALL_PARTS.iter().zip(self.quotas) {
            total.add_part(part, quota_ns);
        }
        total.add_exact(&self.sum);
        total
    }

    /// Kinds without a mark, and what drawn waits cannot stand for: the row `[not sampled]`.
    #[must_use]
    pub fn not_sampled(&self) -> Product {
        let mut product = Product::default();
        for kind in Kind::ALL {
            product.add_not_sampled(kind, self.not_sampled[kind as usize]);
        }
        product
    }

    /// The time of each of `cells`, which are all stacks of the stratum, and what is `[not
    /// sampled]`. Their sum is [`Self::total`], to the nanosecond.
    ///
    /// Rounded by largest remainder; between equal stacks, the earlier one has the odd nanosecond.
    /// Where `cells` have none of the marks that the stratum's sum has, the time is `[not
    /// sampled]`.
    #[must_use]
    pub fn divide<'c>(
        &self,
        cells: impl IntoIterator<Item = &'c Primary, IntoIter: Clone>,
    ) -> (Vec<Product>, Product) {
        let cells = cells.into_iter();
        let mut products: Vec<Product> = cells
            .clone()
            .map(|cell| {
                let mut product = Product::default();
                product.add_exact(cell);
                product
            })
            .collect();
        let mut rest = self.not_sampled();
        for (part, quota_ns) in ALL_PARTS.iter().zip(self.quotas) {
            let marked = cells.clone().map(|cell| part.of(cell));
            let marked = marked.enumerate();
            let was_shared = rounding::share(quota_ns, marked, |index, part_ns| {
                products[index].add_part(part, part_ns);
            });
            if !was_shared {
                rest.add_part(part, quota_ns);
            }
        }
        (products, rest)
    }
}

#[expect(
    clippy::cast_precision_loss,
    reason = "an interval is right to 53 bits, far more than it is worth"
)]
fn float(number: u128) -> f64 {
    number as f64
}

/// How the running time in calls of one user stack (`call_ns` of its product) divides among its
/// kernel stacks, whose ticks that found a call ([`Tick::Call`]) are `ticks`; and what of it is
/// `[kernel, not sampled]`: all, if there are none.
#[must_use]
pub fn kernel_parts(call_ns: u64, ticks: &[u64]) -> (Vec<u64>, u64) {
    match shares(call_ns, ticks) {
        Some(parts) => (parts, 0),
        None => (std::vec![0; ticks.len()], call_ns),
    }
}

#[cfg(test)]
#[path = "division_tests.rs"]
mod tests;
