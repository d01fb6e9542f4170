//! Takes over what was measured exactly, and sets the borders of the recent past that comparing it
//! with what was sampled needs.

use super::{Profile, measured::MeasuredCalls};
use crate::processes::module::ModuleMarks;

impl Profile {
    /// Takes over what was measured up to the pass. True if a border is to be set there.
    pub(super) fn take_measured(&mut self, mut measured: MeasuredCalls) -> bool {
        let last_ns = self.timeline.current_ns();
        let is_border = measured.take_borders(&self.measured, last_ns, self.now_ns);
        self.measured = measured;
        is_border
    }

    /// Marks the modules that frames and measured functions name.
    pub fn mark_modules(&self, marks: &mut ModuleMarks) {
        self.frames.mark_modules(marks);
        for of in self.measured.functions.iter() {
            marks.keep(of.function.module);
        }
    }
}
