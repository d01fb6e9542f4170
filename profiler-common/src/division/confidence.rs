//! How sure a product is: the 95 % interval of the marks it rests on.
//!
//! Marks are counted as if each fell by chance alone (Wilson's interval). Those at drawn gaps are
//! more regular than that: where a function runs for longer than a gap at a time, its interval is
//! wider than it had to be.

use super::{MarkPlaces, MarkSort, Stratum, parts_of};
use crate::clock::Class;
use crate::kinds::{BLOCKED, KINDS, Kind, KindNs, Primary, RUNNABLE};

/// Standard deviations of a normal distribution that hold 95 % of it.
const Z: f64 = 1.959_964;

/// Rows that rest for more than half on fewer marks are thin.
const FEW_MARKS: f64 = 3.0;

/// Into so many parts a mark can be divided where what it stands for is: among kernel functions, by
/// ticks.
pub const MARK_PARTS: u64 = 1024;

/// A column of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Column {
    /// All classes.
    Elapsed,
    /// User mode: class user less faults.
    Application,
    /// Kernel mode outside calls.
    Fault,
    /// One class.
    Of(Class),
}

impl Column {
    fn holds(self, part: &MarkSort) -> bool {
        match self {
            Self::Elapsed => true,
            Self::Application => part.class == Class::User && !part.is_fault,
            Self::Fault => part.is_fault,
            Self::Of(class) => part.class == class,
        }
    }

    /// May time of `kind` be of this column?
    fn holds_any(self, kind: Kind) -> bool {
        parts_of(kind).iter().any(|part| self.holds(part))
    }

    /// Does every mark of `kind` stand for time of this column?
    fn holds_all(self, kind: Kind) -> bool {
        parts_of(kind).iter().all(|part| self.holds(part))
    }

    fn exact_ns(self, primary: &Primary) -> u64 {
        let [blocked_ns, runnable_ns] = [primary.exact[BLOCKED], primary.exact[RUNNABLE]];
        match self {
            Self::Elapsed => blocked_ns.saturating_add(runnable_ns),
            Self::Of(Class::Blocked) => blocked_ns,
            Self::Of(Class::Runnable) => runnable_ns,
            Self::Application | Self::Fault | Self::Of(_) => 0,
        }
    }
}

/// Between these two the true value lies, with a chance of 95 % on average over the rows of a
/// report. Nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interval {
    /// Never below what is exact of the value.
    pub low_ns: u64,
    /// Never above what there is to divide, and what is exact.
    pub high_ns: u64,
}

/// What a value of one column rests on. Those of several strata are added to that of their sum.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Estimate {
    exact_ns: u64,
    /// The most that it can be.
    ceiling_ns: u64,
    /// Estimated nanoseconds and marks by kind.
    kinds: [(f64, f64); KINDS],
    /// Of running time in calls: nanoseconds that further ticks say are in the value, and how many
    /// of them do.
    told: (f64, f64),
    /// Squares of the half-widths, added up.
    below: f64,
    above: f64,
}

impl Estimate {
    /// Adds the estimate of a value of another stratum.
    pub fn add(&mut self, other: &Self) {
        self.exact_ns = self.exact_ns.saturating_add(other.exact_ns);
        self.ceiling_ns = self.ceiling_ns.saturating_add(other.ceiling_ns);
        for (to, from) in self.kinds.iter_mut().zip(other.kinds) {
            to.0 += from.0;
            to.1 += from.1;
        }
        self.told.0 += other.told.0;
        self.told.1 += other.told.1;
        self.below += other.below;
        self.above += other.above;
    }

    /// Widens it by what is not known of the kernel functions of a user stack: of its running time
    /// in calls, `part.call_ns`, this value has the share of `ticks`.
    pub fn tell_apart(&mut self, part: &KernelTicks, ticks: u64) {
        if part.ticks == 0 {
            return;
        }
        let share = (float(ticks) / float(part.ticks)).min(1.0);
        let call_ns = float(part.call_ns);
        let (low, high) = wilson(share, float(part.ticks) / part.in_step.max(1.0));
        self.below += ((share - low) * call_ns).powi(2);
        self.above += ((high - share) * call_ns).powi(2);
        self.told.0 += share * call_ns;
        self.told.1 += float(ticks);
        // The stack has it exactly, but this value does not.
        let exact_ns = whole((share * float(part.exact_ns)).ceil());
        self.exact_ns = self.exact_ns.saturating_sub(exact_ns);
        let (kind_ns, marks) = &mut self.kinds[Kind::Call as usize];
        *kind_ns += float(exact_ns);
        *marks += float(exact_ns);
        let more_ns = part.exact_ns.saturating_sub(exact_ns);
        self.ceiling_ns = self.ceiling_ns.saturating_add(more_ns);
    }

    /// The interval of the value, which is `value_ns`.
    #[must_use]
    pub fn interval(&self, value_ns: u64) -> Interval {
        let low_ns = value_ns.saturating_sub(whole(self.below.sqrt()));
        let high_ns = value_ns.saturating_add(whole(self.above.sqrt()));
        Interval {
            low_ns: low_ns.max(self.exact_ns).min(value_ns),
            high_ns: high_ns.min(self.ceiling_ns).max(value_ns),
        }
    }

    /// Does the value rest for more than half on kinds of which it has fewer than three marks, or
    /// on fewer than three ticks for the kernel function?
    #[must_use]
    pub fn is_thin(&self) -> bool {
        let mut value_ns = float(self.exact_ns);
        let mut thin_ns = 0.0;
        for (kind_ns, marks) in self.kinds {
            value_ns += kind_ns;
            if marks < FEW_MARKS {
                thin_ns += kind_ns;
            }
        }
        if self.told.1 < FEW_MARKS && self.kinds[Kind::Call as usize].1 >= FEW_MARKS {
            thin_ns += self.told.0;
        }
        thin_ns * 2.0 > value_ns
    }

    fn add_exact(&mut self, exact_ns: u64) {
        self.exact_ns = self.exact_ns.saturating_add(exact_ns);
        self.ceiling_ns = self.ceiling_ns.saturating_add(exact_ns);
    }

    /// Adds a `share` of the time `kind_ns`, which is divided by `marks` of which `in_step` fall at
    /// once.
    fn add_share(&mut self, kind: Kind, kind_ns: u64, share: f64, marks: f64, in_step: f64) {
        let share = share.clamp(0.0, 1.0);
        let total = float(kind_ns);
        let (low, high) = wilson(share, marks / in_step);
        self.ceiling_ns = self.ceiling_ns.saturating_add(kind_ns);
        self.kinds[kind as usize].0 += share * total;
        self.kinds[kind as usize].1 += share * marks;
        self.below += ((share - low) * total).powi(2);
        self.above += ((high - share) * total).powi(2);
    }
}

/// The ticks that divide the running time in calls of one user stack among its kernel functions.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct KernelTicks {
    /// The time, nanoseconds.
    pub call_ns: u64,
    /// Of it, what is exactly the user stack's.
    pub exact_ns: u64,
    /// How many there are.
    pub ticks: u64,
    /// So many of them fell at once, as so many threads ran.
    pub in_step: f64,
}

impl Stratum {
    /// What the value of `column` rests on, of stacks whose primary data add up to `cells`.
    ///
    /// A kind of which they have no mark, but others do, may still be theirs: it widens the
    /// interval upwards, by about four mark periods. What is not sampled of a kind is a row of its
    /// own, and in no interval.
    #[must_use]
    pub fn estimate(&self, cells: &Primary, column: Column) -> Estimate {
        let mut estimate = Estimate::default();
        self.add_estimate(&mut estimate, cells, 0, column);
        estimate
    }

    /// The same of stacks that have `call_parts` parts ([`MARK_PARTS`] are one) of marks of running
    /// time in calls besides, added to what the value rests on in other strata.
    pub fn add_estimate(
        &self,
        estimate: &mut Estimate,
        cells: &Primary,
        call_parts: u64,
        column: Column,
    ) {
        estimate.add_exact(column.exact_ns(cells));
        for kind in Kind::ALL {
            let parts = if kind == Kind::Call { call_parts } else { 0 };
            self.add_kind(estimate, kind, (cells, parts), column);
        }
    }

    /// So many ticks tell as much as one that falls alone: how many threads ran at once, on
    /// average, and at least one, times how many ticks one stands for.
    #[must_use]
    pub fn ticks_in_step(&self) -> f64 {
        let ticks = self.sum.samples();
        let each = float(ticks) / equal_marks(ticks, self.sum.tick_excess).max(1.0);
        self.threads_at_once * each.max(1.0)
    }

    /// Whether the marks of `kind` are its time itself, so that nothing of it is left to chance.
    #[must_use]
    pub const fn is_exact(&self, kind: Kind) -> bool {
        self.is_exact[kind as usize]
    }

    /// What the stratum's total of `column` rests on: kinds that are whole in it are measured, the
    /// others estimated.
    #[must_use]
    pub fn total_estimate(&self, column: Column) -> Estimate {
        let mut estimate = Estimate::default();
        estimate.add_exact(column.exact_ns(&self.sum));
        for kind in Kind::ALL {
            let kind_ns = self.kinds[kind as usize];
            let missing_ns = self.not_sampled[kind as usize];
            if column.holds_all(kind) {
                estimate.add_exact(kind_ns);
            } else if missing_ns > 0 && column.holds_any(kind) {
                // Nothing tells what of it is in the column: it counts as user mode, and may be all
                // or nothing.
                let is_counted = column.holds(&parts_of(kind)[0]);
                let square = float(missing_ns).powi(2);
                estimate.ceiling_ns = estimate.ceiling_ns.saturating_add(missing_ns);
                if is_counted {
                    estimate.kinds[kind as usize].0 += float(missing_ns);
                    estimate.below += square;
                } else {
                    estimate.above += square;
                }
            } else {
                self.add_kind(&mut estimate, kind, (&self.sum, 0), column);
            }
        }
        estimate
    }

    fn add_kind(
        &self,
        estimate: &mut Estimate,
        kind: Kind,
        (cells, parts): (&Primary, u64),
        column: Column,
    ) {
        let all = self.marks[kind as usize];
        let kind_ns = self.kinds[kind as usize] - self.not_sampled[kind as usize];
        if all == 0.0 || kind_ns == 0 || !column.holds_any(kind) {
            return;
        }
        let held = parts_of(kind)
            .iter()
            .filter(|part| column.holds(part))
            .fold(0u64, |sum, part| sum.saturating_add(part.of(cells)));
        if self.is_exact(kind) && column.holds_all(kind) {
            // The weights are the time itself: nothing was left to chance.
            let held_ns = held.saturating_add(parts / MARK_PARTS);
            estimate.add_exact(held_ns.min(kind_ns));
            return;
        }
        let share = (float(held) + float(parts) / float(MARK_PARTS)) / all;
        let first = &parts_of(kind)[0];
        let (marks, in_step) = match first.marks {
            MarkPlaces::Ticks(_) => {
                let weighty = |of: &Primary| (of.samples(), of.tick_excess);
                let each = each_mark(share, weighty(cells), weighty(&self.sum));
                (all / each, self.threads_at_once)
            }
            MarkPlaces::Gaps(index) => {
                let weighty = |of: &Primary| (of.marks[index], of.excess[index]);
                let each = each_mark(share, weighty(cells), weighty(&self.sum));
                (all / each, 1.0)
            }
            MarkPlaces::Weights(index) => {
                let squares_ms2 = self.sum.squares_ms2[index];
                (equal_weights(self.sum.weighted[index], squares_ms2), 1.0)
            }
        };
        estimate.add_share(kind, kind_ns, share, marks, in_step);
    }
}

/// How many threads ran at once, on average over `span_ns`, and at least one.
pub(super) fn threads_at_once(kinds: &KindNs, span_ns: u64) -> f64 {
    let running = [Kind::User, Kind::Untraced, Kind::Kernel, Kind::Call];
    let running_ns: f64 = running.map(|kind| float(kinds[kind as usize])).iter().sum();
    if span_ns == 0 {
        1.0
    } else {
        (running_ns / float(span_ns)).max(1.0)
    }
}

/// As many marks that stand for themselves alone tell as much as `marks`, which add this
/// [`Primary::excess`] to the variance.
#[must_use]
pub fn equal_marks(marks: u64, excess: u64) -> f64 {
    let sum = float(marks);
    if excess == 0 {
        return sum;
    }
    // Saturated: nothing is known but that there was one.
    (sum * sum / (sum + float(excess))).clamp(1.0, sum.max(1.0))
}

/// So many marks tell as much about a `share` as one that stands for itself alone, where `own` have
/// been seen in it among `all`, each with their [`Primary::excess`]. What is rare is only as sure
/// as its own marks are light; and no surer than marks are on average, since which of few marks are
/// heavy is chance too.
fn each_mark(share: f64, own: (u64, u64), all: (u64, u64)) -> f64 {
    let each = |(marks, excess): (u64, u64)| float(marks) / equal_marks(marks, excess).max(1.0);
    let others = (
        all.0.saturating_sub(own.0),
        // Saturated: nothing is known of the others either.
        if all.1 == u64::MAX {
            u64::MAX
        } else {
            all.1.saturating_sub(own.1)
        },
    );
    let or_average = |part: (u64, u64)| each(if part.0 == 0 { all } else { part });
    let seen = (1.0 - share) * or_average(own) + share * or_average(others);
    seen.max(each(all)).max(1.0)
}

/// As many equal weights as good as these: (sum of w)^2 / sum of w^2, at least 1.
#[must_use]
pub fn equal_weights(weights_ns: u64, squares_ms2: u64) -> f64 {
    if squares_ms2 == u64::MAX {
        return 1.0; // Saturated: nothing is known but that there was one.
    }
    let weights_ms = float(weights_ns) / 1e6;
    // Squares are rounded by chance: where the sum is small it may be one too low.
    (weights_ms * weights_ms / (float(squares_ms2) + 1.0)).max(1.0)
}

/// Wilson's interval of a `share` seen among `marks`.
fn wilson(share: f64, marks: f64) -> (f64, f64) {
    let z2 = Z * Z / marks;
    let centre = (share + z2 / 2.0) / (1.0 + z2);
    let half = (share * (1.0 - share) * z2 + z2 * z2 / 4.0).sqrt() / (1.0 + z2);
    ((centre - half).max(0.0), (centre + half).min(1.0))
}

#[expect(
    clippy::cast_precision_loss,
    reason = "an interval is right to 53 bits, far more than it is worth"
)]
fn float(number: u64) -> f64 {
    number as f64
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "what is too large is the largest number, and nothing here is negative"
)]
fn whole(number: f64) -> u64 {
    number.round() as u64
}

#[cfg(test)]
#[path = "confidence_tests.rs"]
mod tests;
