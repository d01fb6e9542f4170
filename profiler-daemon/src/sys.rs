//! Thin wrappers over system calls. Each answers with what the kernel said and decides nothing.

pub mod probe;
