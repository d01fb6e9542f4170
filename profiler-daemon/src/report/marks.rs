//! What rows rest on.

/// The marks that a row rests on, those of what it called included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, utoipa::ToSchema)]
pub struct Marks {
    /// Timer ticks: they divide time outside system calls.
    pub ticks: u64,
    /// Marks at drawn gaps: they divide running time inside system calls, and waits in them that
    /// were not walked.
    pub gaps: u64,
    /// Waits outside system calls: as many of one length as tell as much as those that were walked.
    pub waits: u64,
}

impl Marks {
    /// Adds those of another row.
    pub(super) fn add(&mut self, other: &Self) {
        self.ticks = self.ticks.saturating_add(other.ticks);
        self.gaps = self.gaps.saturating_add(other.gaps);
        self.waits = self.waits.saturating_add(other.waits);
    }

    /// The number in one of the columns.
    #[must_use]
    pub(super) fn column(&self, name: &str) -> Option<f64> {
        Some(match name {
            "ticks" => self.ticks as f64,
            "gaps" => self.gaps as f64,
            "waits" => self.waits as f64,
            _ => return None,
        })
    }
}
