//! Answers in other formats than JSON. Pure: each format is one function from an answer to bytes.

mod human;
mod tables;
pub mod text;
