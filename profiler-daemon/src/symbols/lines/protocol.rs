//! What the daemon and its worker say to each other: the question on standard input, the answer on
//! standard output, one line of JSON for each address, in order. So whatever ends the worker, what
//! it found until then is whole.

use serde::{Deserialize, Serialize};

use crate::units::ModuleAddress;

/// Most addresses of one question.
pub(super) const MAX_ADDRESSES: usize = 65_536;
/// Most bytes of a question.
pub(super) const MAX_QUESTION_BYTES: u64 = 4 << 20;
/// Most bytes of one line of an answer.
pub(super) const MAX_LINE_BYTES: usize = 1 << 20;
/// Most functions at one address; of more, the outermost and the innermost stay.
pub(super) const MAX_STEPS: usize = 128;
/// Longest path of a source file, bytes; of a longer one, the end stays.
pub(super) const MAX_PATH_BYTES: usize = 1024;

/// The worker's exit codes beside 0.
pub(super) mod exit {
    /// The question makes no sense, or the worker cannot be confined.
    pub(in super::super) const REFUSED: u8 = 2;
    /// The file makes no sense.
    pub(in super::super) const UNREADABLE: u8 = 3;
    /// There is not enough memory for the file's sections.
    pub(in super::super) const NO_MEMORY: u8 = 4;
}

/// Addresses that are asked about.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(super) struct AddressQuery {
    pub(super) addresses: Vec<ModuleAddress>,
}

/// What is at one address.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) enum AddressCode {
    /// Functions, outermost first; none: nothing is known of it.
    #[serde(rename = "s")]
    Steps(Vec<FoundStep>),
    /// The debug information makes no sense there.
    #[serde(rename = "x")]
    Unreadable,
}

/// One function.
#[derive(Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct FoundStep {
    #[serde(rename = "n", default, skip_serializing_if = "Option::is_none")]
    pub(super) function: Option<String>,
    #[serde(rename = "f", default, skip_serializing_if = "Option::is_none")]
    pub(super) file: Option<String>,
    #[serde(rename = "l", default, skip_serializing_if = "Option::is_none")]
    pub(super) line: Option<u32>,
}
