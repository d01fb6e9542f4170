//! Which of the two builds of the kernel programs this kernel takes: they differ in helpers, not in
//! what they do (`profiler-ebpf/src/main.rs`).

use aya::programs::ProgramType;
use aya::sys::{BpfHelper, is_helper_supported};
use aya::util::KernelVersion;
use profiler_common::limits::{MAX_FRAME_POINTER_FRAMES, TASKS_PER_THREAD};
use tracing::debug;

use super::btf::Btf;
use super::refusal::{StartError, errno};

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

    /// May something be kept with a task at its switch, where there was nothing? The kernels of
    /// 5.17 to 6.3 ask their allocator for memory then, which may wake a thread, for which it takes
    /// the lock of a run queue: the switch holds one, and would wait for itself. Since 6.4 task
    /// storage has its own; the hash of older ones is made beforehand.
    pub(super) fn creates_at_switch(self, types: &Btf<'_>) -> bool {
        self.may_create(types, KernelVersion::current().ok())
    }

    /// The same on a kernel of that version. Its types tell first: distributions add what is newer.
    fn may_create(self, types: &Btf<'_>, version: Option<KernelVersion>) -> bool {
        self == Self::Before517
            || types.offset("bpf_local_storage_map", &["selem_ma"]).is_ok()
            || version.is_some_and(|version| version >= SINCE_6_4)
    }

    /// What works less well with it: what, and which feature is missing and what that costs.
    pub(super) fn lacks(
        self,
        max_threads: u32,
        creates_at_switch: bool,
        finds_mappings: bool,
        newer_refused: Option<&str>,
    ) -> Vec<(&'static str, String)> {
        let why = if newer_refused.is_some() {
            "the programs that use tables are refused"
        } else {
            "this kernel has no bpf_loop (Linux 5.17)"
        };
        let mut lacks = match self {
            Self::Since517 => {
                let late = (!creates_at_switch).then(|| (
                    "threads of the kernel's making",
                    "observed within a second or two of their start, not at once (threads_late): this kernel cannot keep anything with a task at a switch without risk (Linux 6.4)".to_owned(),
                ));
                let unknown = (!finds_mappings).then(|| (
                    "stacks of a program's first milliseconds",
                    "incomplete (no_mapping) until the daemon has heard what the program has mapped: this kernel does not keep that in a way that the kernel programs can read (Linux 6.1)".to_owned(),
                ));
                late.into_iter().chain(unknown).collect()
            }
            Self::Before517 => vec![
                (
                    "user stacks",
                    format!(
                        "by frame pointers: {why}; they have at most {MAX_FRAME_POINTER_FRAMES} functions, and end early in programs and libraries built without frame pointers"
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
        };
        lacks.extend(newer_refused.map(|refused| {
            (
                "kernel programs",
                format!("those for kernels before 5.17, since those for later ones are refused: {refused}"),
            )
        }));
        lacks
    }

    /// Starts this build of the programs, or the older one where the kernel refuses it. Returns why
    /// it was refused as well.
    ///
    /// # Errors
    /// What the refusal of this build was, if the older one is refused too, or could not do better.
    pub(super) fn start_or_older<T>(
        self,
        mut start: impl FnMut(Self) -> Result<T, StartError>,
    ) -> Result<(T, Option<StartError>), StartError> {
        let refused = match start(self) {
            Ok(started) => return Ok((started, None)),
            Err(refused) => refused,
        };
        let is_hopeless = matches!(refused, StartError::Privilege(_) | StartError::NoBtf(_));
        if self == Self::Before517 || is_hopeless {
            return Err(refused);
        }
        match start(Self::Before517) {
            Ok(started) => Ok((started, Some(refused))),
            Err(older) => {
                debug!("the older programs are refused too: {older}");
                Err(refused)
            }
        }
    }
}

/// The first kernel on which task storage has an allocator of its own.
const SINCE_6_4: KernelVersion = KernelVersion::new(6, 4, 0);

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
        if errno(&error) == Some(libc::EPERM) {
            StartError::Privilege(error.into())
        } else {
            StartError::program("probe", error)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::btf::made_up;
    use super::*;

    /// A kernel that refuses the newer build, and perhaps the older one; what was tried is noted.
    fn refusing(
        tried: &mut Vec<Variant>,
        older_too: bool,
    ) -> impl FnMut(Variant) -> Result<u8, StartError> {
        move |variant| {
            tried.push(variant);
            if variant == Variant::Before517 && !older_too {
                return Ok(7);
            }
            Err(StartError::program("tick", format!("{variant:?}")))
        }
    }

    #[test]
    fn a_kernel_that_refuses_the_newer_programs_is_offered_the_older_ones() {
        // Check that the older programs run where the newer ones are refused, with the reason at
        // hand and in what is lacking; that the refusal of the newer ones is told where both are
        // refused; and that nothing is tried twice, or where it is hopeless.
        let (newer, older) = (Variant::Since517, Variant::Before517);
        let mut tried = Vec::new();
        let started = newer.start_or_older(refusing(&mut tried, false));
        let (started, refused) = started.expect("the older ones run");
        let refused = refused.expect("the newer ones were refused").to_string();
        assert_eq!((started, tried), (7, vec![newer, older]));
        assert_eq!(refused, "this kernel refuses the program tick: Since517");
        let lacks = older.lacks(1, true, true, Some(&refused));
        let find = |what| {
            lacks
                .iter()
                .find(|lack| lack.0 == what)
                .map(|lack| lack.1.as_str())
        };
        assert!(
            find("kernel programs").is_some_and(|why| why.ends_with(&refused)),
            "{lacks:?}"
        );
        assert!(
            find("user stacks").is_some_and(|why| !why.contains("bpf_loop")),
            "{lacks:?}"
        );

        let mut tried = Vec::new();
        let refused = newer
            .start_or_older(refusing(&mut tried, true))
            .expect_err("both are refused");
        assert!(refused.to_string().ends_with("Since517"), "{refused}");
        assert_eq!(tried, [newer, older]);
        let mut tried = Vec::new();
        older
            .start_or_older(refusing(&mut tried, true))
            .expect_err("it is refused");
        assert_eq!(tried, [older]);
        let mut tries = 0;
        let refused = newer.start_or_older::<u8>(|_| {
            tries += 1;
            Err(StartError::Privilege("no".into()))
        });
        assert!(matches!(refused, Err(StartError::Privilege(_))));
        assert_eq!(tries, 1, "another build needs the same privileges");
    }

    #[test]
    fn nothing_is_made_at_a_switch_where_it_may_deadlock() {
        // Check that on a kernel whose task storage asks the general allocator (one before 6.4
        // without the member) the programs are told to make none at switches, that on one that has
        // an allocator for it they may, and that the older programs always may.
        let bytes = made_up("bpf_local_storage_map", "selem_ma");
        let with = Btf::parse(&bytes).expect("hand-made types");
        let bytes = made_up("bpf_local_storage_map", "cache_idx");
        let without = Btf::parse(&bytes).expect("hand-made types");
        assert!(Variant::Since517.may_create(&with, Some(KernelVersion::new(5, 14, 0))));
        assert!(!Variant::Since517.may_create(&without, Some(KernelVersion::new(5, 17, 0))));
        assert!(!Variant::Since517.may_create(&without, Some(KernelVersion::new(6, 3, 9))));
        assert!(!Variant::Since517.may_create(&without, None));
        assert!(Variant::Since517.may_create(&without, Some(KernelVersion::new(7, 2, 0))));
        assert!(Variant::Before517.may_create(&without, Some(KernelVersion::new(5, 10, 0))));
        let lacks = Variant::Since517.lacks(1, false, false, None);
        assert!(lacks[0].1.contains("threads_late"), "{lacks:?}");
        assert!(lacks[1].1.contains("no_mapping"), "{lacks:?}");
        assert!(Variant::Since517.lacks(1, true, true, None).is_empty());
    }
}
