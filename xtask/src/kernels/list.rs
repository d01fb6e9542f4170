//! Which kernels there are to test on, and which tests are run there.

use anyhow::{Context as _, bail};

/// A kernel to test on.
pub(super) struct Kernel {
    /// The first two numbers of its release.
    pub(super) version: &'static str,
    /// Debian's name of the release that has it; `None`: none has, its file has to be given.
    pub(super) suite: Option<&'static str>,
    /// Those of [`TESTS`] that it is known not to pass.
    except: &'static [&'static str],
}

/// How many of the tests are run.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Extent {
    /// All.
    Full,
    /// Without [`NOT_ROUTINE`].
    Routine,
}

impl Kernel {
    /// The tests that are run on it.
    pub(super) fn tests(&self, extent: Extent) -> Vec<&'static str> {
        let mut tests = TESTS.to_vec();
        tests.retain(|test| !self.except.contains(test));
        tests.retain(|test| extent == Extent::Full || !NOT_ROUTINE.contains(test));
        tests
    }
}

/// Not passed before 5.17: stacks are followed by frame pointers there, which the C library has
/// not.
const WHOLE_STACKS: &[&str] = &[
    "return_probes::sleepers_in_functions_with_return_probes_have_whole_stacks",
    "return_probes::stacks_pass_functions_with_return_probes",
    "unwinding::stacks_of_a_workload_are_whole",
];

/// Oldest first.
pub(super) const KERNELS: [Kernel; 6] = [
    Kernel {
        version: "5.10",
        suite: Some("bullseye"),
        except: WHOLE_STACKS,
    },
    Kernel {
        version: "5.15",
        suite: None,
        except: WHOLE_STACKS,
    },
    Kernel {
        version: "5.17",
        suite: None,
        except: &[],
    },
    Kernel {
        version: "6.1",
        suite: Some("bookworm"),
        except: &[],
    },
    Kernel {
        version: "6.12",
        suite: Some("trixie"),
        except: &[],
    },
    Kernel {
        version: "7.2",
        suite: Some("sid"),
        // It preempts the programs at system calls, and while one waits, runs none for the calls of
        // others on its processor.
        except: &[
            "system_calls::a_sleeps_time_is_in_its_call",
            "system_calls::every_system_call_is_counted",
        ],
    },
];

/// Those that `cargo xtask test` chooses from: the oldest that has all that is needed, or the next
/// one.
const ROUTINE: [&str; 2] = ["6.1", "6.12"];

/// The tests that are run, by their full names: a share of each kind that holds under emulation and
/// takes no minutes there.
///
/// Time passes there as on a slow machine with one processor, so nearly all hold. Left out is what
/// races with a daemon that takes seconds to start, what compares page faults or a hundred ends of
/// processes with `getrusage` to 1 or 2 % (interrupts and the end after the last accounting take
/// more), what compares runners with their own clocks to 10 ms (which beginning and ending take
/// there), what wants three reports between two passes, and what needs tools that the image has
/// not.
const TESTS: [&str; 35] = [
    "brief::brief_programs_have_whole_stacks",
    "classes::a_process_lasts_as_long_as_by_its_own_clock",
    "classes::no_wake_up_is_lost_in_a_race",
    "classes::processor_time_agrees_with_getrusage_across_processors",
    "classes::waiters_are_blocked_while_the_gate_is_held",
    "exact_functions::callers_are_told_apart",
    "exact_functions::each_call_is_counted",
    "exact_functions::times_agree_with_the_programs_own_clocks",
    "exact_single::functions_are_measured_by_single_probes",
    "exact_single::more_than_bearable_are_refused",
    "exact_single::points_and_spans_are_followed_by_single_probes",
    "exact_survival::calls_of_goroutines_are_measured",
    "failures::the_doctor_finds_this_machine_fit",
    "failures::without_privilege_it_says_which",
    "kernels::what_this_kernel_lacks_is_said",
    "ledger::the_ledger_holds_when_every_event_is_walked",
    "names::a_new_name_is_shown",
    "processes::a_fork_without_exec_is_its_own_process",
    "processes::a_reused_pid_is_another_process",
    "processes::an_exec_keeps_the_process_and_changes_the_program",
    "processes::children_that_end_at_once_are_counted",
    "return_probes::sleepers_in_functions_with_return_probes_have_whole_stacks",
    "return_probes::stacks_pass_functions_with_return_probes",
    "shares::phases_that_end_in_sleeps_get_their_time",
    "shares::processor_time_splits_as_the_work_does",
    "shares::recursion_counts_once",
    "sleepers::a_sleep_under_way_is_seen_in_its_system_call",
    "sleepers::a_sleeping_threads_time_grows_while_it_sleeps",
    "spans::each_hit_is_counted",
    "system_calls::a_sleeps_time_is_in_its_call",
    "system_calls::every_system_call_is_counted",
    "system_calls::without_the_hooks_the_rest_is_exact",
    "threads::each_thread_has_its_own_time",
    "threads::no_short_thread_is_lost",
    "unwinding::stacks_of_a_workload_are_whole",
];

/// Those that `cargo xtask test` leaves out, which is to be over soon: ten seconds each. Of each
/// kind others stay that ask as much of the kernel.
const NOT_ROUTINE: [&str; 14] = [
    "classes::waiters_are_blocked_while_the_gate_is_held",
    "exact_functions::each_call_is_counted",
    "exact_functions::times_agree_with_the_programs_own_clocks",
    "exact_single::more_than_bearable_are_refused",
    "failures::without_privilege_it_says_which",
    "names::a_new_name_is_shown",
    "processes::a_reused_pid_is_another_process",
    "processes::children_that_end_at_once_are_counted",
    "return_probes::sleepers_in_functions_with_return_probes_have_whole_stacks",
    "shares::phases_that_end_in_sleeps_get_their_time",
    "shares::recursion_counts_once",
    "sleepers::a_sleeping_threads_time_grows_while_it_sleeps",
    "system_calls::a_sleeps_time_is_in_its_call",
    "threads::each_thread_has_its_own_time",
];

/// The kernels with these versions; all that Debian has where none is named. Where a file is given,
/// one has to be.
pub(super) fn choose(
    versions: &[String],
    file_is_given: bool,
) -> anyhow::Result<Vec<&'static Kernel>> {
    if file_is_given && versions.len() != 1 {
        bail!("name the one version of the kernel that --image gives, as in 5.15");
    }
    if versions.is_empty() {
        let of_debian = |kernel: &&Kernel| kernel.suite.is_some();
        return Ok(KERNELS.iter().filter(of_debian).collect());
    }
    let find = |version: &String| {
        KERNELS
            .iter()
            .find(|kernel| kernel.version == version)
            .with_context(|| {
                let known = KERNELS.map(|kernel| kernel.version).join(", ");
                format!("no kernel {version}: there are {known}")
            })
    };
    versions.iter().map(find).collect()
}

/// The kernel for the routine, given the release of this machine's own.
pub(super) fn another(own: &str) -> &'static Kernel {
    let is_own = |version: &str| {
        own.strip_prefix(version)
            .is_some_and(|rest| !rest.starts_with(|next: char| next.is_ascii_digit()))
    };
    let version = ROUTINE.into_iter().find(|version| !is_own(version));
    KERNELS
        .iter()
        .find(|kernel| Some(kernel.version) == version)
        .expect("the routine's kernels are in the list, and at most one is this machine's")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_are_chosen_by_version() {
        // Check that none means all of Debian's, that named ones come in that order, and that an
        // unknown one is refused with those known.
        let versions = |names: &[&str]| {
            let names: Vec<_> = names.iter().map(|name| (*name).to_owned()).collect();
            choose(&names, false).map(|kernels| {
                kernels
                    .iter()
                    .map(|kernel| kernel.version)
                    .collect::<Vec<_>>()
            })
        };
        assert_eq!(
            versions(&[]).expect("all of Debian"),
            ["5.10", "6.1", "6.12", "7.2"]
        );
        assert_eq!(versions(&["7.2", "6.1"]).expect("both"), ["7.2", "6.1"]);
        let error = versions(&["4.19"]).expect_err("there is none").to_string();
        assert!(error.contains("4.19") && error.contains("6.12"), "{error}");
        // Of which kernel the file is must be said.
        let given = choose(&["5.15".to_owned()], true).expect("one");
        assert_eq!(given[0].version, "5.15");
        assert!(choose(&[], true).is_err());
    }

    #[test]
    fn exceptions_are_from_the_list() {
        // Check that a kernel's exceptions are left out, that each is a test in the list, and that
        // no test is there twice; and that the routine is all of it but what it leaves out.
        for kernel in &KERNELS {
            assert_eq!(
                kernel.tests(Extent::Full).len() + kernel.except.len(),
                TESTS.len(),
                "{}",
                kernel.version
            );
        }
        let mut tests = TESTS.to_vec();
        tests.sort_unstable();
        tests.dedup();
        assert_eq!(tests.len(), TESTS.len());
        let routine = KERNELS[2].tests(Extent::Routine);
        assert_eq!(routine.len() + NOT_ROUTINE.len(), TESTS.len());
    }

    #[test]
    fn the_routine_is_never_on_the_own_kernel() {
        // Check that another kernel than the running one is taken, and that 6.12 is not taken for
        // 6.1.
        assert_eq!(another("6.18.44").version, "6.1");
        assert_eq!(another("6.12.107+deb13-cloud-amd64").version, "6.1");
        assert_eq!(another("6.1.0-50-amd64").version, "6.12");
        assert_eq!(another("").version, "6.1");
    }
}
