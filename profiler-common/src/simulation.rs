//! Is exact time divided among stacks as it was spent? Simulated programs whose answer is known
//! drive the thread clock and the marks as the kernel programs do, and have their time divided as a
//! report does.
//!
//! A run is held against the program's own truth with the error that its number of marks lets
//! expect. The rule of docs/semantics.md section 4 must pass; the rule it replaced, and rules that
//! look as good, must fail ([`rules`]).

mod check;
mod coverage;
mod draw;
mod next_walk;
mod programs;
mod random_programs;
mod rules;
mod thread;
mod world;
