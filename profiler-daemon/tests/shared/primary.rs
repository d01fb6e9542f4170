//! What the kernel programs would have kept of time that tests make up by class.

use profiler_common::{
    Class, ClassNs,
    kinds::{Kind, KindNs, MARK_CALL, Primary, Tick},
};

/// What a stack has that was in running time with so many samples: ticks, and marks where it is
/// time inside calls. Waits are exactly its own.
pub(crate) fn primary(samples: u64, classes: &ClassNs) -> Primary {
    let mut primary = Primary {
        exact: [
            classes[Class::Blocked as usize],
            classes[Class::Runnable as usize],
        ],
        walks: samples.max(1),
        ..Primary::default()
    };
    let tick = if classes[Class::Kernel as usize] > 0 {
        Tick::Kernel
    } else if classes[Class::Syscall as usize] > classes[Class::User as usize] {
        Tick::Call
    } else {
        Tick::User
    };
    primary.ticks[tick as usize] = samples;
    if classes[Class::Syscall as usize] > 0 {
        primary.marks[MARK_CALL] = samples.max(1);
    }
    primary
}

/// The kinds of running time by class; waits are in none.
pub(crate) fn kinds(classes: &ClassNs) -> KindNs {
    let mut kinds = KindNs::default();
    kinds[Kind::User as usize] = classes[Class::User as usize];
    kinds[Kind::Call as usize] = classes[Class::Syscall as usize];
    kinds[Kind::Kernel as usize] = classes[Class::Kernel as usize];
    kinds
}
