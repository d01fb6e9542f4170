//! Answers in other formats than JSON. Pure: each format is one function from an answer to bytes.

mod compared;
pub mod csv;
pub mod firefox;
pub mod flamegraph;
pub mod folded;
pub(crate) mod human;
pub mod instrumentations;
pub mod measured;
pub mod overview;
pub mod pprof;
mod recorded;
pub mod saved;
pub mod sessions;
mod spans;
pub mod speedscope;
mod tables;
pub mod text;
mod timeline;
mod unit;
