//! From module and offset to the name of a function, read from files and the kernel's own table,
//! once for each place.

mod aliases;
mod cache;
pub mod chosen;
mod debug_files;
pub mod demangle;
mod elf;
#[cfg(test)]
pub(crate) mod elf_made;
mod file_tables;
#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod jumps;
pub mod kallsyms;
pub mod lines;
pub mod names;
mod parts;
mod perf_map;
mod plain_names;
mod recent;
pub mod request;
pub mod spans;
pub mod symbolizer;
pub mod usdt;
