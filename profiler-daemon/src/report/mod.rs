//! Questions about a snapshot and their answers: columns, percentages, order, completeness. The
//! field names of the answers are those of docs/http-api.md.
//!
//! Pure: names of functions come from outside ([`names::Names`]), and only the snapshot's time is
//! known. Every answer obeys the ledger of docs/semantics.md section 5; tests/pipeline checks all
//! of it on random profiles.

mod accuracy;
pub mod agreement;
pub mod answer;
pub mod call_values;
pub mod called_from;
pub mod callers;
pub mod calltree;
mod change;
mod changed;
mod compared;
pub mod completeness;
pub mod confidence;
mod covered;
pub mod diff;
mod divided;
mod entry;
pub mod error;
mod figures;
mod fold;
mod followed;
pub mod functions;
mod identity;
mod idle;
pub mod instrumentations;
pub mod lines;
mod marks;
mod meant;
pub mod measured;
pub mod measured_rows;
mod member;
mod merged_tree;
pub mod modules;
pub mod names;
mod needed;
mod node;
pub mod os_events;
pub mod overview;
mod places;
pub mod processes;
pub mod product;
pub mod query;
pub mod recording;
mod scope;
mod sections;
pub mod session;
pub mod sessions;
mod spans;
pub mod stacks;
mod strata;
pub mod syscall_names;
mod table;
pub mod threads;
pub mod timeline;
pub mod times;
mod tree_builder;
mod tree_options;
pub mod values;
mod walks;
mod whole_tree;

pub use answer::List;
pub use call_values::CallValues;
pub use called_from::CalledFrom;
pub use callers::{Neighbours, callees, callers};
pub use calltree::{CallTree, TreeNode, calltree};
pub use changed::{ProcessDiff, ProcessDiffRow, ProcessSide, Whole, process_diff};
pub use compared::{ComparedWindow, DiffQuery, DiffSide, Grouping, ProcessDiffQuery, Side};
pub use diff::{Diff, DiffRow, diff};
pub use error::ReportError;
pub use fold::check_fold;
pub use followed::{FollowedPoint, FollowedSpan};
pub use functions::{FunctionRow, functions, functions_with_inlines};
pub use instrumentations::{Instrumentation, Instrumentations, instrumentation};
pub use lines::{InstructionRow, LineRow, instructions, lines};
pub use measured::{
    Measured, MeasuredCaller, MeasuredValues, caller_frames, caller_name, measured,
};
pub use measured_rows::MeasuredGroup;
pub use modules::{ModuleRow, modules};
pub use needed::{frames_needed, lines_needed, outermost_frames};
pub use os_events::{OsEvents, os_events};
pub use overview::{Overview, OverviewQuery, OverviewRow, overview, overview_frames};
pub use processes::{ProcessReport, ProcessRow, process, processes};
pub use query::{
    CodeQuery, Comm, Fold, FrameScope, Moment, NeighbourQuery, Order, ProcessSelector, Scope,
    SectionMode, StackQuery, StackValue, TableQuery, TimelineQuery, TreeQuery, ViewQuery, Window,
};
pub use recording::{Recording, recording};
pub use session::{SessionReport, samples, session};
pub use sessions::{SessionList, SessionTotals, session_totals, sessions};
pub use spans::{SpanValues, UsdtValues};
pub use stacks::{StackTree, stacks, stacks_between};
pub use table::Columns;
pub use threads::{ThreadRow, threads};
pub use timeline::{Line, ProcessWho, ThreadWho, Timeline, Who, process_timeline, thread_timeline};
pub use times::{WindowSpan, rfc3339};
