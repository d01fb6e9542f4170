//! What reports show of one place: the product of exact totals and marks, made once for a report.

use profiler_common::{CLASS_COUNT, Class, ClassNs, kinds::WaitNs};

use crate::profile::values::{WAIT_CLASSES, add_classes, sum};

/// Samples, walks and time of one place. Of a place that is divided by marks, the time is an
/// estimate.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Values {
    /// Timer samples.
    pub samples: u64,
    /// Walks; held by the outermost frame of the stacks walked.
    pub walks: u64,
    /// Nanoseconds per class.
    pub classes: ClassNs,
    /// Of class `user`: kernel mode outside system calls (page faults, interrupts), nanoseconds.
    pub fault_ns: u64,
    /// Of all classes: time whose class itself is an estimate, since system calls were not traced,
    /// nanoseconds.
    pub estimated_ns: u64,
}

impl Values {
    /// Adds `other` to every number.
    pub fn add(&mut self, other: &Self) {
        self.samples += other.samples;
        self.walks += other.walks;
        add_classes(&mut self.classes, &other.classes);
        self.fault_ns += other.fault_ns;
        self.estimated_ns += other.estimated_ns;
    }

    /// All time.
    #[must_use]
    pub fn elapsed_ns(&self) -> u64 {
        sum(&self.classes)
    }

    /// Time in user mode: without any operating-system event.
    #[must_use]
    pub fn application_ns(&self) -> u64 {
        self.classes[Class::User as usize].saturating_sub(self.fault_ns)
    }

    /// Time off the processor: blocked, or waiting for one.
    #[must_use]
    pub fn off_processor_ns(&self) -> u64 {
        self.classes[Class::Blocked as usize] + self.classes[Class::Runnable as usize]
    }

    /// Takes out what was spent in the kernel: all but user mode, and but the waits `walked`, whose
    /// stacks are known.
    pub(super) fn take_kernel_time(&mut self, walked: &WaitNs) -> Self {
        let mut stays = [0; CLASS_COUNT];
        stays[Class::User as usize] = self.application_ns();
        for (class, ns) in WAIT_CLASSES.into_iter().zip(walked) {
            stays[class as usize] = self.classes[class as usize].min(*ns);
        }
        // Of what is estimated, as much as can be is user mode.
        let estimated_ns = self.estimated_ns.min(self.application_ns());
        let mut in_kernel = Self {
            fault_ns: self.fault_ns,
            estimated_ns: self.estimated_ns - estimated_ns,
            ..Self::default()
        };
        for (class, stays) in stays.into_iter().enumerate() {
            in_kernel.classes[class] = self.classes[class] - stays;
        }
        self.classes = stays;
        self.fault_ns = 0;
        self.estimated_ns = estimated_ns;
        in_kernel
    }

    /// Only time of one class.
    #[must_use]
    pub fn of_class(class: Class, ns: u64) -> Self {
        let mut classes = [0; CLASS_COUNT];
        classes[class as usize] = ns;
        Self {
            classes,
            ..Self::default()
        }
    }
}
