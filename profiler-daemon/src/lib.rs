//! The profiler daemon as a library: the stages in the order of the data.

pub mod processes;
pub mod symbols;

pub mod profile;

pub mod export;
pub mod report;
