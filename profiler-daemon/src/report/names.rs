//! What reports ask of whoever knows the names.

use crate::{
    profile::frames::FrameId,
    symbols::names::{FunctionName, Unnamed},
};

/// Answers with the name of any frame.
pub trait Names {
    /// The function that `frame` is in.
    fn function(&self, frame: FrameId) -> &FunctionName;

    /// Why `frame` has no function's name, where that is known.
    fn unnamed(&self, _frame: FrameId) -> Option<Unnamed> {
        None
    }
}
