//! Who takes room of what all processes share, and what of it leaves.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use super::{
    changes::ChangedImage,
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
    /// Has modules leave that nothing names: no mapping of a process that is known, and nothing
    /// that `others` marks, which is to be every module that somebody else has in use. Answers
    /// which they were: their files are closed, their numbers never come back.
    pub fn sweep_modules(&mut self, others: impl FnOnce(&mut ModuleMarks)) -> HashSet<ModuleId> {
        let (instances, files) = (&self.instances, &self.files);
        let gone = self.table.sweep(|marks| {
            // Children share what their parent has mapped. Who lives has it, before who ended, and
            // the oldest before its children.
            let mut holders = HashMap::new();
            for (id, instance) in instances {
                marks.keep(instance.jit);
                let rank = (instance.exited_ns.is_some(), *id);
                let first = holders.entry(Arc::as_ptr(&instance.mappings));
                let first = first.or_insert((rank, instance));
                if rank < first.0 {
                    *first = (rank, instance);
                }
            }
            for ((is_gone, id), instance) in holders.into_values() {
                let owner = instance.owner(id);
                for module in instance.mappings.modules() {
                    if is_gone {
                        marks.keep(module);
                    } else {
                        marks.keep_for(module, owner);
                    }
                }
            }
            files.mark(marks);
            others(marks);
        });
        self.files.forget(&mut self.table, &gone);
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
    pub fn owner_of(&self, image: ChangedImage) -> Owner {
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
