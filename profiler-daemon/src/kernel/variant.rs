//! Which of the two builds of the kernel programs this kernel takes: they differ in helpers, not in what they do
//! (`profiler-ebpf/src/main.rs`).

use aya::programs::ProgramType;
use aya::sys::{BpfHelper, is_helper_supported};
use profiler_common::limits::{MAX_FRAME_POINTER_FRAMES, TASKS_PER_THREAD};

use super::refusal::{StartError, chain};

/// A build of the kernel programs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Variant {
    /// For kernels with `bpf_loop`, the youngest helper that is used: all else is older.
    Since517,
    /// For kernels without.
    Before517,
}

impl Variant {
    /// The one for this kernel. Asked, not judged by the release: distributions add what is newer.
    ///
    /// # Errors
    /// [`StartError`] if the kernel does not tell, for want of privilege most often.
    pub(super) fn of_this_kernel() -> Result<Self, StartError> {
        Ok(if has_loops()? {
            Self::Since517
        } else {
            Self::Before517
        })
    }

    /// The object, built from source by the build script and aligned for the loader.
    pub(super) fn object(self) -> &'static [u8] {
        static SINCE: &[u8] = aya::include_bytes_aligned!(env!("PROFILER_EBPF_OBJECT"));
        static BEFORE: &[u8] =
            aya::include_bytes_aligned!(env!("PROFILER_EBPF_OBJECT_BEFORE_5_17"));
        match self {
            Self::Since517 => SINCE,
            Self::Before517 => BEFORE,
        }
    }

    /// What works less well with it: what, and which feature is missing and what that costs.
    pub(super) fn lacks(self, max_threads: u32) -> Vec<(&'static str, String)> {
        match self {
            Self::Since517 => Vec::new(),
            Self::Before517 => vec![
                (
                    "user stacks",
                    format!(
                        "by frame pointers: this kernel has no bpf_loop (Linux 5.17); they have at most {MAX_FRAME_POINTER_FRAMES} functions, and end early in programs and libraries built without frame pointers"
                    ),
                ),
                (
                    "known tasks",
                    format!(
                        "in a hash: the programs for kernels before 5.17 use no task storage (Linux 5.13); at most {}, {TASKS_PER_THREAD} for each of limits.max_threads, and those beyond are not observed (threads_no_storage)",
                        max_tasks(max_threads)
                    ),
                ),
            ],
        }
    }
}

/// Tasks that can be known before 5.17, given how many can be observed.
pub(super) const fn max_tasks(max_threads: u32) -> u32 {
    max_threads.saturating_mul(TASKS_PER_THREAD)
}

/// Whether kernel programs may loop by `bpf_loop` (Linux 5.17), and so unwind by tables.
///
/// # Errors
/// [`StartError`] if the kernel does not tell.
pub fn has_loops() -> Result<bool, StartError> {
    is_helper_supported(ProgramType::PerfEvent, BpfHelper::BPF_FUNC_loop).map_err(|error| {
        let reason = chain(&error);
        if reason.contains("Operation not permitted") {
            return StartError::Privilege(reason);
        }
        StartError::Program {
            program: "probe",
            reason,
        }
    })
}
