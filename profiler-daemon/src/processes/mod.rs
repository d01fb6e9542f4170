//! Who runs: processes by number and start time, what they have mapped and when, and which module
//! an address is in.

pub mod changes;
mod copies;
mod endings;
mod file_key;
pub mod files;
pub mod ids;
pub mod instance;
mod jit;
pub mod kernel_modules;
mod leaderless;
mod leaving;
pub mod live;
pub mod living;
pub mod mappings;
pub mod module;
mod opening;
mod perf_map_files;
mod row_budget;
pub mod seen;
pub mod shares;
mod sort;
pub mod source;
mod unmapped;
mod upkeep;
mod vdso;

#[cfg(test)]
pub(crate) mod made_up;
#[cfg(test)]
mod real_tests;
