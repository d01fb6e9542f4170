//! The numbers that travel together: samples, walks and nanoseconds per class.

use profiler_common::{CLASS_COUNT, Class, ClassNs};
use serde::{Deserialize, Serialize};

/// Samples, walks and time of one place in a call tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Values {
    /// Timer samples.
    pub samples: u64,
    /// Walks; held by the outermost frame of the stacks walked.
    pub walks: u64,
    /// Nanoseconds per class.
    pub classes: ClassNs,
}

impl Values {
    /// Adds `other` to every number.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.walks += other.walks;
        add_classes(&mut self.classes, &other.classes);
    }

    /// Takes `other` away as far as it is there; what is not stays in `other`.
    pub fn take(&mut self, other: &mut Self) {
        fn take(from: &mut u64, wanted: &mut u64) {
            let part = (*from).min(*wanted);
            *from -= part;
            *wanted -= part;
        }
        take(&mut self.samples, &mut other.samples);
        take(&mut self.walks, &mut other.walks);
        for class in 0..CLASS_COUNT {
            take(&mut self.classes[class], &mut other.classes[class]);
        }
    }

    /// All time.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        sum(&self.classes)
    }

    /// Time without an operating-system event.
    #[must_use]
    pub fn application_ns(&self) -> u64 {
        self.classes[Class::User as usize]
    }

    /// Time off the processor: blocked, or waiting for one.
    #[must_use]
    pub fn off_processor_ns(&self) -> u64 {
        self.classes[Class::Blocked as usize] + self.classes[Class::Runnable as usize]
    }
}

/// The exact totals of a thread, a process or a session, over the session or a window of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Totals {
    /// Timer samples.
    pub samples: u64,
    /// Nanoseconds per class.
    pub classes: ClassNs,
    /// Nanoseconds per class that stacks have received, open intervals included; never more than `classes`.
    pub attributed: ClassNs,
    /// Nanoseconds in which the threads were no target.
    pub unobserved_ns: u64,
}

impl Totals {
    /// Adds `other` to every number.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        add_classes(&mut self.classes, &other.classes);
        add_classes(&mut self.attributed, &other.attributed);
        self.unobserved_ns += other.unobserved_ns;
    }

    /// All time.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        sum(&self.classes)
    }

    /// Time without an operating-system event.
    #[must_use]
    pub fn application_ns(&self) -> u64 {
        self.classes[Class::User as usize]
    }

    /// Time that no stack has.
    #[must_use]
    pub fn unattributed(&self) -> ClassNs {
        std::array::from_fn(|class| self.classes[class].saturating_sub(self.attributed[class]))
    }
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
