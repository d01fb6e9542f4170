//! Unwind tables against an oracle: gimli's rows, evaluated with all registers and whole
//! expressions. Row by row over the files of this machine, and over the stacks of real programs
//! that are stopped at many moments. Needs no privileges: only own children are stopped.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]
#![expect(clippy::print_stdout, reason = "what was compared is shown on request")]

mod damage;
mod oracle;
mod programs;
mod rows;
mod stacks;
mod stopped;
