//! Who runs: processes by number and start time, what they have mapped and when, and which module an address is in.

pub mod ids;
pub mod module;
