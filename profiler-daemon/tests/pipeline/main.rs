//! From drain passes to answers: what random machines did goes in, and every ledger rule of
//! docs/semantics.md section 5 is checked on the JSON that comes out, as an outsider would.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod aggregates;
mod between;
mod called_from;
mod changed;
#[path = "../shared/class_names.rs"]
mod class_names;
mod counts;
mod detail;
mod diff;
mod divided;
mod golden;
mod identity;
mod idle;
mod leaving;
mod ledger;
mod lines;
mod long_lives;
mod machine;
mod measured;
mod neighbours;
mod oracle;
mod overview;
mod partial;
mod pprof;
#[path = "../shared/primary.rs"]
mod primary;
mod records;
mod room;
mod rules;
mod saved;
mod sessions;
mod small;
mod stacks;
mod timeline;
mod windows;
