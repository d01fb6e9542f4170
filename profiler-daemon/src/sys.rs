//! Thin wrappers around the operating system: clocks, `/proc`, perf side-band rings, own cost. The
//! parsers are pure functions over bytes; nothing here knows what a profile is.

pub mod bus_guard;
pub mod cgroup;
pub mod clock;
pub mod code_file;
pub mod confine;
pub mod ending_signal;
pub mod grace_period;
pub mod heap;
pub mod heartbeat;
pub mod held_command;
pub mod limited_child;
pub mod mapped_file;
pub mod mapping;
pub mod memory_file;
pub mod memory_reader;
pub mod open_in_root;
pub mod own_cost;
pub mod own_thread;
mod perf_attr;
pub mod perf_event;
pub mod perf_record;
pub mod perf_ring;
mod poll;
pub mod priority;
pub mod probe;
pub mod proc_fs;
pub mod proc_maps;
pub mod proc_stat;
pub mod quota;
pub mod thread_life;
pub mod tick_event;
pub mod time_order;
pub mod uprobe_event;
pub mod waker;
