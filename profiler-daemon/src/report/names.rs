//! What reports ask of whoever knows the names and the lines.

use crate::{
    processes::mappings::Place,
    profile::frames::FrameId,
    symbols::{
        lines::{Code, LineTable},
        names::FunctionName,
    },
};

/// Answers with the name of any frame.
pub trait Names {
    /// The function that `frame` is in.
    fn function(&self, frame: FrameId) -> &FunctionName;
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
