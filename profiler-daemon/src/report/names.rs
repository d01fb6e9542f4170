//! What reports ask of whoever knows the names and the lines.

use crate::{
    processes::mappings::Place,
    profile::frames::FrameId,
    symbols::{
        lines::{Code, LineTable},
        names::{FunctionName, Unnamed},
    },
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

/// Answers with what debug information says of a place.
pub trait Lines {
    /// What is there; `None` for a place that was not asked for.
    fn code(&self, place: Place) -> Option<&Code>;
}

impl Lines for LineTable {
    fn code(&self, place: Place) -> Option<&Code> {
        self.code(place)
    }
}
