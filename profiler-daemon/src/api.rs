//! What can be asked, and what is answered, whoever asks (docs/http-api.md): over HTTP, on the command line, in a terminal.
//!
//! Nothing here knows a server or a connection, nor where the data comes from: that is the
//! [`Source`]'s.

pub(crate) mod parameter;
pub(crate) mod problem;
pub(crate) mod query;
pub(crate) mod query_string;
mod source;
mod spending;
mod status;
pub(crate) mod value;

pub use source::{BoxFuture, SessionFailure, Source, TargetsFailure, Unavailable};
pub use spending::Spending;
pub use status::{
    AttachedProgram, Coverage, Degraded, FileWithoutInformation, LineReading, OwnCost, ProfileRoom,
    ProgramCost, ReplayOf, Status, Unwinding,
};
