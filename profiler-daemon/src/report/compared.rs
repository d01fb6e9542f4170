//! Two sides: what can be compared with what, and what is told of each side.

use std::cmp::Reverse;

use serde::Serialize;

use super::{
    completeness::Completeness,
    query::{ProcessSelector, Scope, StackValue, TableQuery, Window},
    scope::View,
    times::WindowSpan,
    values::ClassValues,
};
use crate::profile::{over::Span, values::Totals};

/// Most processes that a side names.
const MAX_NAMED: usize = 16;

/// One side of a comparison.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiffSide {
    /// A process, over the window that the question gives.
    Process(ProcessSelector),
    /// Whom the question names, over this window.
    Window {
        /// The window.
        window: Window,
        /// As it was written.
        name: String,
    },
}

impl Default for DiffSide {
    fn default() -> Self {
        Self::Window {
            window: Window::Session,
            name: "session".to_owned(),
        }
    }
}

impl DiffSide {
    /// As it was written.
    #[must_use]
    pub fn name(&self) -> String {
        match self {
            Self::Process(selector) => selector.to_string(),
            Self::Window { name, .. } => name.clone(),
        }
    }
}

/// A question for a comparison of functions.
#[derive(Clone, Debug, Default)]
pub struct DiffQuery {
    /// What is compared.
    pub base: DiffSide,
    /// With what.
    pub other: DiffSide,
    /// Whose functions: for sides that are windows.
    pub of: Scope,
    /// Which value; all time without. The largest change is of its shares.
    pub value: Option<StackValue>,
    /// Only functions of which a share of that value changed by this many percentage points.
    pub threshold_percent: f64,
    /// Which rows, in which order; the window is for sides that are processes.
    pub table: TableQuery,
}

impl DiffQuery {
    /// Whose functions a side shows, over what time.
    #[must_use]
    pub fn scope(&self, side: &DiffSide) -> (Scope, Window) {
        match side {
            DiffSide::Process(selector) => (Scope::Process(*selector), self.table.window),
            DiffSide::Window { window, .. } => (self.of, *window),
        }
    }
}

profiler_common::named_enum! {
    /// What a row of a comparison of processes is.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, utoipa::ToSchema)]
    #[serde(rename_all = "snake_case")]
    pub enum Grouping {
        /// All processes of one name.
        #[default]
        Name => "name",
        /// One process, or the ended ones of one file.
        Process => "process",
    }
}

/// A question for a comparison of processes.
#[derive(Clone, Debug, Default)]
pub struct ProcessDiffQuery {
    /// The one time.
    pub base: ComparedWindow,
    /// The other.
    pub other: ComparedWindow,
    /// What a row is.
    pub by: Grouping,
    /// Which value; time on a processor without. The largest change is of its share.
    pub value: Option<StackValue>,
    /// Only rows of which that share changed by this many percentage points.
    pub threshold_percent: f64,
    /// Which rows, in which order.
    pub table: TableQuery,
}

/// A window that is compared.
#[derive(Clone, Debug, Default)]
pub struct ComparedWindow {
    /// The window.
    pub window: Window,
    /// As it was written.
    pub name: String,
}

/// One side.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct Side {
    /// The process or window as it was asked for.
    pub name: String,
    /// The time it covers.
    pub window: WindowSpan,
    /// What it lacks.
    pub completeness: Completeness,
    /// How many processes were there; null where ended ones that are no longer kept one by one are
    /// among them, of which that is not known.
    #[schema(required)]
    pub process_count: Option<u64>,
    /// Of a comparison of one process, or of those of one name: which they are, as
    /// `PID.START_TICKS`, those with most time first; at most 16.
    pub processes: Vec<String>,
    /// Timer samples.
    pub samples: u64,
    /// All time of all threads.
    pub elapsed_ns: u64,
    /// Time without an operating-system event.
    pub application_ns: u64,
    /// `elapsed_ns` by class.
    pub classes: ClassValues,
}

impl Side {
    pub(super) fn new(name: String, view: &View<'_>, completeness: Completeness) -> Self {
        let totals = view.total.values;
        let mut there: Vec<_> = (0..view.members.len())
            .filter(|index| view.has_member(*index))
            .collect();
        let counts = there.iter().map(|index| view.process_count(*index));
        let process_count = counts.sum();
        let mut processes = Vec::new();
        if !view.is_session() {
            there.sort_by_key(|index| Reverse(view.totals[*index].elapsed_ns()));
            let keys = there
                .iter()
                .filter_map(|index| view.members[*index].process);
            let named = keys.map(|(key, _)| ProcessSelector {
                pid: key.pid,
                start_ticks: Some(key.start_ticks()),
            });
            processes.extend(named.take(MAX_NAMED).map(|named| named.to_string()));
        }
        Self {
            name,
            window: view.window(),
            completeness,
            process_count,
            processes,
            samples: totals.samples,
            elapsed_ns: totals.elapsed_ns(),
            application_ns: totals.application_ns(),
            classes: ClassValues::from(&totals.classes),
        }
    }
}

impl View<'_> {
    /// Whether a member was there in the time covered.
    pub(super) fn has_member(&self, index: usize) -> bool {
        let (member, totals) = (&self.members[index], &self.totals[index]);
        match member.process {
            Some((_, process)) => self.has_process(&process.info, totals),
            None => {
                let whole = self.coverage.span == Span::Session;
                *totals != Totals::default() || (whole && member.ended > 0)
            }
        }
    }

    /// How many processes a member was in the time covered; none where that is not known.
    pub(super) fn process_count(&self, index: usize) -> Option<u64> {
        let member = &self.members[index];
        match member.process {
            Some(_) => Some(1),
            None => (self.coverage.span == Span::Session).then_some(member.ended),
        }
    }
}
