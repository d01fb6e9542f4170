//! The profiler daemon as a library: the stages in the order of the data, which is the order of
//! dependency.
//!
//! A module imports from those before it, never from those behind it; `cargo xtask tidy` checks
//! that. (Each line stands alone, so that rustfmt leaves the order as it is.)

pub mod error_chain;

pub mod units;

pub mod sys;

pub mod config;

pub mod doctor;

pub mod kernel;

pub mod elf;

pub mod processes;

pub mod unwind;

pub mod symbols;

pub mod profile;

pub mod collect;

pub mod report;

pub mod export;

pub mod stages;

pub mod metrics;

pub mod api;

pub mod args;

pub mod http;

pub mod backends;

pub mod daemon;

pub mod record;

pub mod top;

#[cfg(any(test, feature = "fuzzing"))]
pub mod fuzzing;
