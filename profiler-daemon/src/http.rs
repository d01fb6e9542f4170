//! The HTTP server: how `curl`, a scraper and the page are answered (docs/http-api.md).
//!
//! What can be asked is declared in `api`; here it is served. Everything a client can do is bounded
//! in time, bytes and number.

mod accept;
mod answer;
mod app;
mod changes;
mod client;
mod control;
mod events;
mod files;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod guard;
mod instrumentations;
mod options;
mod page;
mod record;
mod report_memory;
mod reports;
mod respond;
mod room;
mod seats;
mod serve;
mod shared;
mod speedscope;
mod stall;
mod streams;
mod ties;
mod unknown;

pub use app::app;
pub use client::{Client, NoAnswer};
pub use options::HttpOptions;
pub use serve::serve;
