//! Who takes room of what all processes share, and what of it leaves.

use std::{collections::HashSet, sync::Arc};

use super::{
    changes::Image,
    ids::ProcessKey,
    instance::Instance,
    live::Processes,
    module::{ModuleId, ModuleMarks},
    shares::Owner,
};

/// Those that are not followed: nobody that is known.
const NOBODY: Owner = Owner::Process {
    number: u64::MAX,
    user: None,
};
/// The user of threads of the kernel.
const ROOT: u32 = 0;

impl Processes {
    /// Has modules leave that nothing names: no mapping of a process that is known, and nothing that `others` marks, which is to be
    /// every module that somebody else has in use. Answers which they were: their files are closed, their numbers never come back.
    pub fn sweep_modules(&mut self, others: impl FnOnce(&mut ModuleMarks)) -> HashSet<ModuleId> {
        let (instances, files) = (&self.instances, &self.files);
        let gone = self.table.sweep(|marks| {
            let mut seen = HashSet::new();
            for instance in instances.values() {
                marks.keep(instance.jit);
                // Children share what their parent has mapped.
                if seen.insert(Arc::as_ptr(&instance.mappings)) {
                    instance.mappings.modules().for_each(|id| marks.keep(id));
                }
            }
            files.mark(marks);
            others(marks);
        });
        self.files.forget(&gone);
        self.jits.retain(|module, _| !gone.contains(module));
        gone
    }

    /// Who takes the room that is taken for a linked process. Those that are not followed are one.
    #[must_use]
    pub fn owner(&self, key: ProcessKey) -> Owner {
        let id = self.by_key.get(&key).copied();
        let instance = id.and_then(|id| Some((id, self.instances.get(&id)?)));
        instance.map_or(NOBODY, |(id, instance)| instance.owner(id))
    }

    /// The same, for the process that executes this image.
    #[must_use]
    pub fn owner_of(&self, image: Image) -> Owner {
        let instance = self.instances.get(&image.instance());
        instance.map_or(NOBODY, |instance| instance.owner(image.instance()))
    }
}

impl Instance {
    /// The same, of the instance of this number.
    pub(super) fn owner(&self, id: u64) -> Owner {
        let user = if self.kernel_thread {
            Some(ROOT)
        } else {
            self.facts.uid
        };
        Owner::Process { number: id, user }
    }
}
