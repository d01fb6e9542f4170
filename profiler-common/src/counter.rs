//! Everything the kernel programs count, in one list: one number, one name, one sentence. Numbers
//! are never reused.

macro_rules! counters {
    ($($(#[doc = $doc:literal])+ $name:ident = $value:literal, $snake:literal, $kind:ident;)+) => {
        $crate::named_enum! {
            /// What the kernel programs count. The value is the index in the counter map.
            #[repr(u32)]
            #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
            pub enum Counter {
                $($(#[doc = $doc])+ $name = $value => $snake,)+
            }
        }

        impl Counter {
            /// What it means for the answers.
            #[must_use]
            pub const fn kind(self) -> CounterKind {
                match self { $(Self::$name => CounterKind::$kind,)+ }
            }
        }
    };
}

/// What a counter means for the answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CounterKind {
    /// Work done.
    Event,
    /// A timer tick that was no sample of a target: semantics.md section 2.
    Discarded,
    /// A sample that was lost.
    SampleLost,
    /// Something that could not be seen or kept.
    Loss,
    /// A race that was noticed and decided.
    Race,
}

counters! {
    /// Timer ticks.
    Ticks = 0, "ticks", Event;
    /// Ticks that became samples.
    Samples = 1, "samples", Event;
    /// Ticks on an idle processor.
    TicksIdle = 2, "idle", Discarded;
    /// Ticks in a process that is not a target.
    TicksNotTarget = 3, "not_target", Discarded;
    /// Ticks in a thread that is past its exit.
    TicksExiting = 4, "exiting", Discarded;
    /// Samples whose stack was not kept because the map of rows per stack was full.
    SamplesMapFull = 5, "samples_map_full", Loss;
    /// Samples whose stack was not kept because the ring of stacks was full.
    SamplesRingFull = 6, "samples_ring_full", Loss;
    /// Samples lost because the thread has no record.
    SamplesNoRecord = 7, "samples_no_record", SampleLost;
    /// Stack walks.
    Walks = 8, "walks", Event;
    /// Walks at other events whose stack, or the marks that fell before them, were not kept because
    /// the map of rows per stack was full.
    WalksMapFull = 9, "walks_map_full", Loss;
    /// Walks at other events whose stack was not kept because the ring of stacks was full.
    WalksRingFull = 10, "walks_ring_full", Loss;
    /// Ticks that interrupted an update of the same thread, or came while the scan of all tasks
    /// might have been changing its record: sampled, the clock left to the update.
    TicksNested = 11, "ticks_nested", Race;
    /// Threads that are not observed because all thread records are in use. They are evaluated
    /// again, and counted again if there is still none, when records have come free.
    ThreadsNoRecord = 12, "threads_no_record", Loss;
    /// Threads that are not observed because the kernel had no memory for their task storage, or,
    /// before Linux 5.17, because the hash of tasks is full (`limits.max_threads`). Counted at each
    /// of their events.
    ThreadsNoStorage = 13, "threads_no_storage", Loss;
    /// Threads that two processors evaluated at once: the scan of all tasks, and the thread's own
    /// event, which is then not seen.
    ThreadsContended = 14, "threads_contended", Race;
    /// Switch-ins without a wake, where wakes are traced: the whole off-CPU interval counts as
    /// blocked.
    WakesMissed = 15, "wakes_missed", Race;
    /// Wakes that came before the switch-out was complete, where wakes are traced: the whole
    /// off-CPU interval counts as runnable.
    WakesEarly = 16, "wakes_early", Race;
    /// System calls whose exit was not seen: another was entered, or a tick found user mode.
    CallsNested = 17, "calls_nested", Race;
    /// System calls not counted by name because all rows are in use; their time is in the classes
    /// all the same.
    CallRowsFull = 18, "call_rows_full", Loss;
    /// Children of targets that did not become targets because the table of target processes is
    /// full.
    TargetsFull = 19, "targets_full", Loss;
    /// Waits whose stack was walked and had no room at their end: inside a call they count as not
    /// walked, else the stack is not kept.
    WaitsMapFull = 20, "waits_map_full", Loss;
    /// Walks that reached the bound on frames.
    WalksTruncated = 21, "walks_truncated", Event;
    /// Walks that could not be followed to the outermost frame.
    WalksFailed = 22, "walks_failed", Event;
    /// Walks without kernel frames although the thread was in the kernel: the kernel's walker
    /// refused.
    KernelWalksFailed = 23, "kernel_walks_failed", Loss;
    /// Switches that were not seen: a thread came that had not left, or was found where it had not
    /// come. It is taken to have come at the last switch seen on its processor, and to be away from
    /// its last event on.
    SwitchesMissed = 24, "switches_missed", Race;
    /// Children whose stacks could not be followed at first because the table of processes with
    /// known mappings is full.
    MappedProcessesFull = 25, "mapped_processes_full", Event;
    /// Switches of threads that were not known yet, on kernels from 5.17 to 6.3, where nothing can
    /// be made known at a switch: those that the kernel makes for itself, such as workers of
    /// io_uring. They are observed from the next scan on, within a second or two.
    ThreadsLate = 26, "threads_late", Loss;
    /// Processes that became targets by name, or are none any more, because they renamed
    /// themselves: their other threads are evaluated anew within a second or two.
    LeadersRenamed = 27, "leaders_renamed", Event;
    /// Switches and exits of calls whose stacks were not walked while the budget was short of
    /// walks: others stand for them.
    WalksOverBudget = 28, "walks_over_budget", Event;
    /// Ticks whose stacks were not walked while the budget was short of the walks of ticks alone:
    /// others stand for them.
    TicksOverBudget = 29, "ticks_over_budget", Event;
    /// Entries and exits of measured functions.
    ProbeHits = 30, "probe_hits", Event;
    /// Entries and exits of measured functions in threads that are not observed: not measured.
    ProbesNotObserved = 31, "probes_not_observed", Event;
    /// Entries and exits of measured functions at which the times of the thread could not be read,
    /// or which goroutine it was: the call is counted only.
    ProbesNoTimes = 32, "probes_no_times", Event;
    /// Entries of measured functions in threads, of Go's functions in goroutines, for whose open
    /// calls there is no room because too many have some: the call is counted only.
    ProbesNoFrames = 33, "probes_no_frames", Event;
    /// Entries and exits of measured functions that are not measured because all rows are in use.
    ProbesNoRow = 34, "probes_no_row", Event;
    /// Calls of measured functions that are counted, and not told apart by their callers, because
    /// all rows of those are in use.
    ProbesNoCaller = 35, "probes_no_caller", Event;
    /// Hits of USDT points and of starts and ends of spans.
    PlaceHits = 36, "place_hits", Event;
    /// Such hits in threads that are not observed: not counted.
    PlacesNotObserved = 37, "places_not_observed", Event;
    /// Such hits that are not counted because all rows are in use.
    PlacesNoRow = 38, "places_no_row", Event;
    /// Such hits whose argument could not be read: its memory was not there.
    PlacesNoArgument = 39, "places_no_argument", Event;
    /// Starts of spans that were not kept because too many are under way.
    SpansNotKept = 40, "spans_not_kept", Event;
}

/// Elements of the counter map.
pub const COUNTERS: u32 = Counter::ALL.len() as u32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_the_positions_and_names_are_unique() {
        // Check that the counter map has exactly one element per counter, and that no name stands
        // twice.
        for (index, counter) in Counter::ALL.iter().enumerate() {
            assert_eq!(*counter as usize, index, "{}", counter.name());
            assert!(!counter.help().is_empty());
            assert!(
                Counter::ALL[..index]
                    .iter()
                    .all(|other| other.name() != counter.name())
            );
        }
    }
}
