//! The names of the classes of time in answers.

/// The fields of `classes`, in the order of the contract.
pub(crate) const CLASSES: [&str; 5] = [
    "user_ns",
    "syscall_ns",
    "blocked_ns",
    "runnable_ns",
    "kernel_ns",
];
