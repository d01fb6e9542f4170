//! Black-box tests on the running kernel: workloads with known answers, the daemon as it ships, and
//! only what it answers over HTTP. They need root; without it each says so and passes, unless
//! `CI=true`, where that is a failure.
//!
//! Tolerances are those of `docs/semantics.md`: class sums to the nanosecond, wall time 0.1 % + 10
//! ms, processor time against `getrusage` 1 % + 10 ms, shares between phases that are separated by
//! events 2 points, shares inside code that makes no events four standard deviations of the number
//! of walks.

mod accuracy;
mod accuracy_rows;
mod asleep;
mod brief;
mod budget;
#[path = "../shared/class_names.rs"]
mod class_names;
mod classes;
mod daemon;
mod estimated;
mod exact_functions;
mod exact_later;
mod exact_overlays;
mod exact_points;
mod exact_shapes;
mod exact_single;
mod exact_survival;
mod existing;
mod failures;
mod hostile;
mod http;
mod instrumentations;
mod instrumented_room;
mod kernel_maps;
mod kernels;
mod ledger;
mod limits;
mod lines;
mod marks;
mod names;
mod observed;
mod own_frames;
mod peers;
mod phantoms;
mod points_over_http;
mod processes;
mod queued;
mod quotas;
mod reads;
mod record;
mod record_signals;
mod retention;
mod return_probes;
mod saved;
mod sessions;
mod shares;
mod shutdown;
mod signals;
mod sleepers;
mod spans;
mod surface;
mod system_calls;
mod targets;
mod threads;
mod ticks;
mod top;
mod unwind_go;
mod unwind_nothing;
mod unwind_room;
mod unwinding;
mod workload;
