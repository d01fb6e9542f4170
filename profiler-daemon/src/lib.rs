//! placeholder
pub mod sys;

pub mod args;
pub mod config;
pub mod doctor;
pub mod metrics;
