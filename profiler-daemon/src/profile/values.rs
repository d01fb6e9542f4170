//! The numbers that travel together: samples, walks and nanoseconds per class.

use profiler_common::{
    CLASS_COUNT, Class, ClassNs,
    division::equal_marks,
    kinds::{Kind, KindNs, TICKS, WAITS},
};
use serde::{Deserialize, Serialize};

/// The exact totals of a thread, a process or a session, over the session or a window of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Nanoseconds per class. Untraced time is under [`Class::User`].
    pub classes: ClassNs,
    /// Nanoseconds per kind of time that is divided among stacks by marks. Of a single thread over
    /// a part of the session only [`Kind::Untraced`] is known.
    pub kinds: KindNs,
    /// Nanoseconds per class that have a place: `kinds`, and the waits that stacks have exactly,
    /// open ones included. Never more than `classes`.
    pub attributed: ClassNs,
    /// Timer ticks by what they found ([`Tick`](profiler_common::kinds::Tick)).
    pub ticks: [u64; TICKS],
    /// See [`Primary::tick_excess`](profiler_common::kinds::Primary::tick_excess).
    pub tick_excess: u64,
    /// Nanoseconds in which the threads were no target.
    pub unobserved_ns: u64,
    /// Page faults that read nothing.
    pub minor_faults: u64,
    /// Page faults that waited for a page to be read.
    pub major_faults: u64,
    /// Switches that were not seen.
    pub switches_missed: u64,
    /// Nanoseconds that profiling them has cost.
    pub profiler_cost_ns: u64,
}

impl Totals {
    /// Adds `other` to every number.
    pub fn add(&mut self, other: &Self) {
        add_classes(&mut self.classes, &other.classes);
        add_kinds(&mut self.kinds, &other.kinds);
        add_classes(&mut self.attributed, &other.attributed);
        for (to, from) in self.ticks.iter_mut().zip(&other.ticks) {
            *to += from;
        }
        self.tick_excess = self.tick_excess.saturating_add(other.tick_excess);
        self.unobserved_ns += other.unobserved_ns;
        self.minor_faults += other.minor_faults;
        self.major_faults += other.major_faults;
        self.switches_missed += other.switches_missed;
        self.profiler_cost_ns += other.profiler_cost_ns;
    }

    /// Timer ticks of every kind.
    #[must_use]
    pub fn samples(&self) -> u64 {
        self.ticks.iter().sum()
    }

    /// So many samples tell as much as one that stands for itself: at least 1.
    #[must_use]
    pub fn samples_each(&self) -> f64 {
        let samples = self.samples();
        (samples as f64 / equal_marks(samples, self.tick_excess).max(1.0)).max(1.0)
    }

    /// All time.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        sum(&self.classes)
    }

    /// Time that is known to be neither a stack's nor of a kind that is divided.
    #[must_use]
    pub fn unattributed(&self) -> ClassNs {
        std::array::from_fn(|class| self.classes[class].saturating_sub(self.attributed[class]))
    }
}

/// The class that time of a kind has in the exact totals.
#[must_use]
pub const fn class_of(kind: Kind) -> Class {
    match kind {
        Kind::User | Kind::Untraced => Class::User,
        Kind::Kernel => Class::Kernel,
        Kind::Call => Class::Syscall,
        Kind::CallBlocked | Kind::OutsideBlocked => Class::Blocked,
        Kind::CallRunnable | Kind::OutsideRunnable => Class::Runnable,
    }
}

/// Whether time of a kind is waiting.
#[must_use]
pub const fn is_wait(kind: Kind) -> bool {
    matches!(class_of(kind), Class::Blocked | Class::Runnable)
}

/// The classes of waits that stacks have exactly, in the order of
/// [`WaitNs`](profiler_common::kinds::WaitNs).
pub const WAIT_CLASSES: [Class; WAITS] = [Class::Blocked, Class::Runnable];

/// Adds kind by kind.
pub fn add_kinds(to: &mut KindNs, from: &KindNs) {
    for (to, from) in to.iter_mut().zip(from) {
        *to += from;
    }
}

/// Takes so much off the gains, class by class, and answers what was taken. A wait that turns out
/// to be of another class mostly was one for a processor: that class comes first.
pub fn take_from(gains: &mut ClassNs, mut amount: u64) -> impl Iterator<Item = (usize, u64)> {
    let mut order: [usize; CLASS_COUNT] = std::array::from_fn(|class| class);
    order.swap(0, Class::Runnable as usize);
    let taken = order.map(|class| {
        let part = gains[class].min(amount);
        gains[class] -= part;
        amount -= part;
        (class, part)
    });
    taken.into_iter().filter(|(_, ns)| *ns > 0)
}

/// The sum over all classes, nanoseconds.
#[must_use]
pub fn sum(classes: &ClassNs) -> u64 {
    classes.iter().sum()
}

/// Adds class by class.
pub fn add_classes(to: &mut ClassNs, from: &ClassNs) {
    for class in 0..CLASS_COUNT {
        to[class] += from[class];
    }
}
