//! Which functions threads and processes begin in: a walk that ends there has seen the whole stack,
//! whatever made it end.

/// Whole names.
const ENTRY: [&str; 13] = [
    "_start",
    "_dl_start_user",
    "_rt0_amd64_linux",
    "__clone",
    "__clone3",
    "__libc_start_call_main",
    "clone",
    "clone3",
    "ret_from_fork",
    "ret_from_fork_asm",
    "runtime.goexit",
    "runtime.mstart",
    "start_thread",
];

/// Beginnings of names: the C library versions this one.
const ENTRY_PREFIX: &str = "__libc_start_main";

/// Whether a function is where a thread's stack begins.
pub(super) fn is_entry(function: &str) -> bool {
    // Linkers append versions (clone@@GLIBC_2.2.5) and compilers parts (start_thread.cold).
    let base = function.split('@').next().unwrap_or(function);
    base.starts_with(ENTRY_PREFIX) || ENTRY.contains(&base)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check versioned, split and plain names of entry functions, and names that only look like
    // them.
    #[test]
    fn entries() {
        for name in [
            "_start",
            "__libc_start_main_impl",
            "__libc_start_main@@GLIBC_2.34",
            "clone3",
            "clone@@GLIBC_2.2.5",
        ] {
            assert!(is_entry(name), "{name}");
        }
        for name in ["start", "_start2", "clone_tree", "my_start_thread", ""] {
            assert!(!is_entry(name), "{name}");
        }
    }
}
