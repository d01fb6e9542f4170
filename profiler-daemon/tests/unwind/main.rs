//! Unwind tables against an oracle: gimli's rows, evaluated with all registers and whole expressions. Row by row over the
//! files of this machine, and over the stacks of real programs that are stopped at many moments. Needs no privileges:
//! only own children are stopped.

mod damage;
mod oracle;
mod programs;
mod rows;
mod stacks;
mod stopped;
