//! Says what the frames of stacks are, by what their processes had mapped when they were walked.

use crate::kernel::RawStack;
use crate::processes::live::Processes;
use crate::profile::frames::FrameTable;
use crate::sys::clock::monotonic_ns;
use crate::sys::perf_event::SideBand;
use crate::units::MonoNs;

use super::stacks::StackCache;

/// See the module. Made for the stacks of one look.
pub(super) struct Naming<'a> {
    pub(super) side_band: Option<&'a mut SideBand>,
    pub(super) processes: &'a mut Processes,
    pub(super) stacks: &'a mut StackCache,
    pub(super) frames: &'a mut FrameTable,
    /// What happened before this is known of the processes, monotonic nanoseconds.
    pub(super) side_band_read_ns: MonoNs,
}

impl Naming<'_> {
    /// Takes a stack. What was mapped before it was walked is in the side-band, and is taken in
    /// first.
    pub(super) fn add(&mut self, raw: &RawStack) {
        if MonoNs::new(raw.head.time_ns) >= self.side_band_read_ns
            && let Some(side_band) = &mut self.side_band
        {
            self.side_band_read_ns = monotonic_ns();
            let processes = &mut *self.processes;
            side_band.read(|event| processes.apply(&event));
        }
        self.stacks.add(raw, self.processes, self.frames);
    }
}
