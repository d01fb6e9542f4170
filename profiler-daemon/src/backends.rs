//! Where the server's answers come from: running stages, or a profile that was saved.

mod facts;
mod instrumenting;
mod live;
mod memory;
mod replay;
mod spending;
#[cfg(test)]
mod tests;

pub use live::Live;
pub use replay::Replay;
