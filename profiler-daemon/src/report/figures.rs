//! Values with how good they are.

use super::{accuracy::Accuracy, product::Values};

/// Values with how good they are; of exact totals nothing is to be said.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Figures {
    pub(super) values: Values,
    pub(super) accuracy: Option<Accuracy>,
}

impl From<Values> for Figures {
    fn from(values: Values) -> Self {
        Self {
            values,
            accuracy: None,
        }
    }
}

impl Figures {
    /// Adds those of another row.
    pub(super) fn add(&mut self, other: &Self) {
        self.values.add(&other.values);
        match (&mut self.accuracy, &other.accuracy) {
            (Some(accuracy), Some(other)) => accuracy.join(other),
            (accuracy, other) => *accuracy = accuracy.or(*other),
        }
    }
}
