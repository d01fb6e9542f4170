//! Modules of what the kernel maps into each process (vDSO).

use super::{
    files::{Files, Identified, ModuleFile, file_identity, named},
    module::{Module, ModuleId, ModuleIdentity, ModuleKind, ModuleTable},
    shares::Owner,
    source::{Mapped, ProcessSource},
};
use crate::{
    elf::build_id::{self, ElfIdentity},
    sys::memory_file::memory_file,
};
use std::{hash::BuildHasher as _, sync::Arc};

impl Files {
    /// Addresses above 4 GiB can only hold the vDSO of this machine's own word size, which is the
    /// same in every process. What lies below may be that of 32-bit programs: it has a name, and
    /// nothing of it is read.
    pub(super) fn vdso(
        &mut self,
        (table, owner): (&mut ModuleTable, Owner),
        source: &dyn ProcessSource,
        mapped: &Mapped,
    ) -> Identified {
        let native = mapped.start.get() > u64::from(u32::MAX);
        if native && self.native_vdso.is_none() {
            let image = source.own_vdso();
            self.native_vdso =
                image.and_then(|image| self.vdso_image((&mut *table, Owner::System), &image));
        }
        let module = self.native_vdso.filter(|_| native);
        Identified {
            module: module.unwrap_or_else(|| named((table, owner), b"[vdso]", ModuleKind::Vdso)),
            is_file: true,
        }
    }

    pub(super) fn vdso_image(
        &mut self,
        (table, owner): (&mut ModuleTable, Owner),
        image: &[u8],
    ) -> Option<ModuleId> {
        let ElfIdentity::BuildId(build) = build_id::of_bytes(image) else {
            return None;
        };
        let unique = format!("[vdso] {:x}", self.image_hashes.hash_one(image));
        let module = table.intern_for(owner, ModuleIdentity::Named(unique.into()), || Module {
            name: "[vdso]".into(),
            build_id: Some(build.id),
            kind: ModuleKind::Vdso,
        });
        const MAX_IMAGES: usize = 8;
        if self.images.len() < MAX_IMAGES && !self.images.contains_key(&module) {
            let file = memory_file(image).ok()?;
            let identity = file_identity(&file)?;
            let file = ModuleFile {
                module,
                file,
                identity,
            };
            self.images.insert(module, Arc::new(file));
        }
        Some(module)
    }
}
