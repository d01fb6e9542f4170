//! Names of functions.

pub mod names;
