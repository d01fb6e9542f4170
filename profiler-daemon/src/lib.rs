//! The profiler daemon as a library: the stages in the order of the data.

pub mod sys;

pub mod args;

pub mod config;

pub mod doctor;

pub mod processes;

pub mod symbols;

pub mod profile;

pub mod report;

pub mod export;

pub mod metrics;

pub mod http;
