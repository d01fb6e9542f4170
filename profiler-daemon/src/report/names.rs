//! What reports ask of whoever knows the names.

use crate::{profile::frames::FrameId, symbols::names::FunctionName};

/// Answers with the name of any frame.
pub trait Names {
    /// The function that `frame` is in.
    fn function(&self, frame: FrameId) -> &FunctionName;
}
