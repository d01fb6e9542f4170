//! What a mapping holds, by its name alone.

use super::source::Mapped;

/// See the module.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sort {
    Vdso,
    Special,
    Anonymous,
    File { memory: bool },
}

pub(super) fn sort_of(mapped: &Mapped) -> Sort {
    let path = &*mapped.path;
    match path {
        b"[vdso]" => Sort::Vdso,
        b"[vsyscall]" | b"[uprobes]" | b"[uprobes-trampoline]" | b"[sigpage]" | b"[vectors]" => {
            Sort::Special
        }
        _ if mapped.inode == 0 || path.starts_with(b"/SYSV") || path.starts_with(b"/dev/zero") => {
            Sort::Anonymous
        }
        _ => Sort::File {
            memory: path.starts_with(b"/memfd:") || path.starts_with(b"/dev/shm/"),
        },
    }
}
