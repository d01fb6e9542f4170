//! profiler
pub mod kernel;
