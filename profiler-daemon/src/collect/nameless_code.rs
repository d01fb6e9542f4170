//! Code that a process makes at run time and does not name: it is one function, so nothing is lost
//! where its addresses are not told apart, and an engine that makes code without end does not fill
//! call trees with places that no report can name.

use std::collections::HashMap;

use crate::processes::module::ModuleId;
use crate::profile::frames::{Frame, FrameTable};
use crate::units::ModuleOffset;

/// Instructions of one program's nameless code that are told apart.
const MAX_INSTRUCTIONS: u16 = if cfg!(test) { 3 } else { 4096 };
/// Programs whose instructions are counted; with more of them all are counted anew.
const MAX_PROGRAMS: usize = 1024;

/// See the module.
#[derive(Debug, Default)]
pub(super) struct NamelessCode {
    /// How many instructions were told apart.
    told: HashMap<ModuleId, u16>,
}

impl NamelessCode {
    /// The frame that stands for nameless code of `module` at `offset`, with what called it if
    /// that is nameless too (`inner` is then the module of the frame that it called): `None`, since
    /// the inner frame stands for it already. Only where a thread was is told apart, up to a bound:
    /// callers and what is beyond it are at offset 0.
    pub(super) fn frame(
        &mut self,
        (module, offset): (ModuleId, ModuleOffset),
        inner: Option<ModuleId>,
        table: &FrameTable,
    ) -> Option<Frame> {
        let whole = Frame {
            module,
            offset: ModuleOffset::ZERO,
        };
        if let Some(inner) = inner {
            return (inner != module).then_some(whole);
        }
        let exact = Frame { module, offset };
        if table.knows(&exact) {
            return Some(exact);
        }
        if self.told.len() >= MAX_PROGRAMS && !self.told.contains_key(&module) {
            self.told.clear();
        }
        let told = self.told.entry(module).or_default();
        if *told == MAX_INSTRUCTIONS {
            return Some(whole);
        }
        *told += 1;
        Some(exact)
    }
}
