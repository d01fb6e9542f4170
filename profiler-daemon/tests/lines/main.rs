//! Lines of real programs, compiled here, read by the real worker: where they are, what becomes of
//! damaged files, and what of a worker that takes too much or dies.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod compiled;
mod damage;
mod programs;
mod separate;
mod workers;
