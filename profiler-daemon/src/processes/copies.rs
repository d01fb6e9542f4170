//! By what the kernel knows of them, the files that a module was mapped from: copies of one library
//! are one module.

use profiler_common::unwind::{ANY_USER, MappedFile};

use super::{
    file_key::FileKey,
    files::{Files, Kept},
    live::Processes,
    module::{FileIdentity, ModuleId},
};

/// Bits of a device's minor number as the kernel keeps it.
const MINOR_BITS: u32 = 20;

impl Processes {
    /// The open files of a module.
    #[must_use]
    pub fn copies(&self, module: ModuleId) -> Vec<MappedFile> {
        self.files.copies(module)
    }

    /// The modules of which a file was opened since the last call.
    pub fn take_newly_opened(&mut self) -> Vec<ModuleId> {
        std::mem::take(&mut self.files.newly_opened)
    }
}

impl Files {
    fn copies(&self, module: ModuleId) -> Vec<MappedFile> {
        let is_copy = |kept: &Kept| kept.is_file && kept.file.module == module;
        let copies = self.kept.iter().filter(|(_, kept)| is_copy(kept));
        copies
            .filter_map(|(key, kept)| mapped_file(key, kept.file.identity))
            .collect()
    }
}

/// The file as it was when it was opened; `None` if it is known for nobody in particular.
fn mapped_file(key: &FileKey, identity: FileIdentity) -> Option<MappedFile> {
    const NANOSECONDS: i128 = 1_000_000_000;
    let modified_ns = identity.modified_unix_ns;
    Some(MappedFile {
        inode: key.inode,
        size_bytes: identity.size_bytes,
        modified_s: i64::try_from(modified_ns.div_euclid(NANOSECONDS)).ok()?,
        modified_ns: u32::try_from(modified_ns.rem_euclid(NANOSECONDS)).ok()?,
        device: key.device.major << MINOR_BITS | key.device.minor,
        user: key.of_user.unwrap_or(Some(ANY_USER))?,
        padding: 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        processes::{shares::Owner, source::Mapped},
        sys::perf_record::Device,
        units::VirtualAddress,
    };

    // Check that a file is told as the kernel keeps it, also one written before 1970, and for whom.
    #[test]
    fn as_the_kernel_keeps_it() {
        let mapped = Mapped {
            start: VirtualAddress::new(0x1000),
            end: VirtualAddress::new(0x2000),
            device: Device {
                major: 0xfe,
                minor: 3,
            },
            inode: 77,
            path: b"/lib/a.so"[..].into(),
        };
        let identity = FileIdentity {
            device: 1,
            inode: 2,
            size_bytes: 4096,
            modified_unix_ns: -1,
        };
        let key = FileKey::of(&mapped);
        let file = mapped_file(&key, identity).unwrap();
        let expected = MappedFile {
            inode: 77,
            size_bytes: 4096,
            modified_s: -1,
            modified_ns: 999_999_999,
            device: 0x0fe0_0003,
            user: ANY_USER,
            padding: 0,
        };
        assert_eq!(file, expected);
        let of = |user| key.of_user(Owner::Process { number: 1, user });
        let of_user = mapped_file(&of(Some(1000)), identity).unwrap();
        assert_eq!(of_user.user, 1000);
        assert_eq!(mapped_file(&of(None), identity), None);
    }
}
