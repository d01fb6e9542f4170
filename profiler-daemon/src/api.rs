//! What can be asked, and what is answered, whoever asks (docs/http-api.md): over HTTP, on the
//! command line, in a terminal.
//!
//! An endpoint is a line in `endpoints`; what is asked there is a file in `questions`, which says
//! by which parameters and how it is answered. Nothing here knows a server or a connection, nor
//! where the data comes from: that is the [`Source`]'s.

pub(crate) mod answer;
pub(crate) mod change;
pub(crate) mod described;
pub(crate) mod endpoint;
pub(crate) mod endpoints;
pub(crate) mod format;
pub(crate) mod instrumentation;
pub(crate) mod openapi;
pub(crate) mod parameter;
pub(crate) mod problem;
pub(crate) mod query;
pub(crate) mod query_string;
pub(crate) mod question;
pub(crate) mod questions;
mod source;
mod spending;
mod status;
pub(crate) mod value;

pub use endpoint::Endpoint;
pub use endpoints::ENDPOINTS;
pub use format::Format;
pub use openapi::document as openapi_document;
pub use questions::saved;
pub use source::{
    BoxFuture, InstrumentationFailure, SessionFailure, Source, TargetsFailure, Unavailable,
};
pub use spending::Spending;
pub use status::{
    AttachedProgram, Coverage, Degraded, FileWithoutInformation, LineReading, OwnCost,
    ProfileMemory, ProgramCost, ReplayOf, Status, Unwinding,
};
