//! Modules whose file could not be opened, and when that is tried again: after a while, longer each
//! time, or as soon as another process maps it.

use std::collections::HashMap;

use crate::processes::module::ModuleId;

/// Longest wait between two tries, passes.
const MAX_WAIT: u64 = 64;

#[derive(Clone, Copy, Debug)]
struct Try {
    /// The pass of the last one.
    pass: u64,
    /// Passes until the next one.
    wait: u64,
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Retries(HashMap<ModuleId, Try>);

impl Retries {
    /// It could not be opened in this pass.
    pub(super) fn failed(&mut self, module: ModuleId, pass: u64) {
        let wait = self.0.get(&module).map_or(1, |last| last.wait * 2);
        let wait = wait.min(MAX_WAIT);
        self.0.insert(module, Try { pass, wait });
    }

    /// Whether it is to be tried, once in a pass, now that another process has it.
    pub(super) fn may_try(&self, module: ModuleId, pass: u64) -> bool {
        self.0.get(&module).is_some_and(|last| last.pass < pass)
    }

    /// Those whose wait is over.
    pub(super) fn due(&self, pass: u64) -> impl Iterator<Item = ModuleId> {
        let due = self
            .0
            .iter()
            .filter(move |(_, last)| last.pass + last.wait <= pass);
        due.map(|(module, _)| *module)
    }

    /// It was opened, or nobody needs it any more.
    pub(super) fn forget(&mut self, module: ModuleId) {
        self.0.remove(&module);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that a file that cannot be opened is tried again and again, ever less often, but at
    // once when it is mapped anew, and no more once it was opened.
    #[test]
    fn tried_again() {
        let (mut retries, module) = (Retries::default(), ModuleId(7));
        assert!(!retries.may_try(module, 1));
        retries.failed(module, 1);
        assert!(!retries.may_try(module, 1) && retries.may_try(module, 2));
        let mut tries = Vec::new();
        for pass in 1..400 {
            if retries.due(pass).next() == Some(module) {
                tries.push(pass);
                retries.failed(module, pass);
            }
        }
        assert_eq!(tries, [2, 4, 8, 16, 32, 64, 128, 192, 256, 320, 384]);
        retries.forget(module);
        assert!(retries.due(1000).next().is_none() && !retries.may_try(module, 1000));
    }
}
