//! Answers in other formats than JSON. Pure: each format is one function from an answer to bytes.

pub mod csv;
mod human;
mod tables;
pub mod text;
