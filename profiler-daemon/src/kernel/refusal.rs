//! Why the programs do not run, in a sentence that says what this kernel or this user lacks.

use std::error::Error;
use std::{io, iter};

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use thiserror::Error;

use super::btf::BtfError;

/// Why the programs do not run.
#[derive(Debug, Error)]
pub enum StartError {
    /// No type information.
    #[error(
        "cannot read the kernel's type information /sys/kernel/btf/vmlinux ({0}): a kernel built with CONFIG_DEBUG_INFO_BTF=y is needed"
    )]
    NoBtf(io::Error),
    /// The type information lacks something.
    #[error("this kernel is not supported: {0}")]
    Btf(#[from] BtfError),
    /// The kernel refuses for want of privilege.
    #[error(
        "the kernel refuses the programs ({0}): run as root, or give the daemon CAP_BPF and CAP_PERFMON, and for all names CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE, CAP_DAC_READ_SEARCH and CAP_SYSLOG (`profiler-daemon doctor` says which are missing)"
    )]
    Privilege(String),
    /// The kernel is too old.
    #[error(
        "this kernel lacks {0}, without which nothing can be profiled: Linux 5.10 or later is needed"
    )]
    TooOld(String),
    /// The kernel refuses the object or a map.
    #[error("cannot load the kernel programs: {0}")]
    Load(#[source] EbpfError),
    /// The kernel refuses a program.
    #[error("this kernel refuses the program {program}: {reason}")]
    Program {
        /// Its name.
        program: &'static str,
        /// What the kernel says, the end of the verifier's log included.
        reason: String,
    },
    /// A map cannot be used.
    #[error("cannot use the kernel map {map}: {reason}")]
    Map {
        /// Its name.
        map: &'static str,
        /// Why.
        reason: String,
    },
}

/// Why a program was not loaded.
pub(super) fn program_refused(program: &'static str, error: ProgramError) -> StartError {
    match &error {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => {
            if io_error.raw_os_error() == Some(libc::EPERM) {
                return StartError::Privilege(io_error.to_string());
            }
            let log = verifier_log.to_string();
            if let Some(helper) = unknown_helper(&log) {
                return StartError::TooOld(format!("the helper {helper}"));
            }
            let tail: Vec<&str> = log.lines().rev().take(12).collect();
            let tail: Vec<&str> = tail.into_iter().rev().collect();
            StartError::Program {
                program,
                reason: format!("{io_error}; the verifier says: {}", tail.join(" / ")),
            }
        }
        _ => StartError::Program {
            program,
            reason: chain(&error),
        },
    }
}

/// An error and what caused it, in one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        text.push_str(": ");
        text.push_str(&cause.to_string());
        source = cause.source();
    }
    text
}

/// The number of the system's error that is at the bottom of one.
pub(super) fn errno(error: &(dyn Error + 'static)) -> Option<i32> {
    iter::successors(Some(error), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error())
        .last()
}

/// The helper that the verifier does not know: `unknown func bpf_task_pt_regs#175`.
fn unknown_helper(log: &str) -> Option<&str> {
    let (_, rest) = log.split_once("unknown func ")?;
    rest.split(['#', ' ', '\n'])
        .next()
        .filter(|name| !name.is_empty())
}

/// The maps that are rings.
const RINGS: [&str; 2] = ["STACKS", "AYA_LOGS"];

/// Why the object or a map was not loaded.
pub(super) fn refused(error: EbpfError) -> StartError {
    // Such a map can be asked for wrongly in one way only: where nobody knows its type.
    if let EbpfError::MapError(MapError::CreateError { name, io_error }) = &error
        && RINGS.contains(&name.as_str())
        && io_error.raw_os_error() == Some(libc::EINVAL)
    {
        return StartError::TooOld("BPF ring buffers".to_owned());
    }
    match errno(&error) {
        Some(libc::EPERM | libc::EACCES) => StartError::Privilege(chain(&error)),
        _ => StartError::Load(error),
    }
}

/// Why there are no ticks.
pub(super) fn tick_refused(error: &io::Error) -> StartError {
    if error.kind() == io::ErrorKind::PermissionDenied {
        StartError::Privilege(format!("perf_event_open: {error}"))
    } else {
        StartError::Program {
            program: "tick",
            reason: error.to_string(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_an_old_kernel_lacks_is_told_in_one_sentence() {
        // Check that a map type or a helper that the kernel does not know is named, and that other
        // refusals stay what they are.
        let refusal = |name: &str, errno| {
            refused(EbpfError::MapError(MapError::CreateError {
                name: name.to_owned(),
                io_error: io::Error::from_raw_os_error(errno),
            }))
        };
        assert_eq!(
            refusal("STACKS", libc::EINVAL).to_string(),
            "this kernel lacks BPF ring buffers, without which nothing can be profiled: Linux 5.10 or later is needed"
        );
        assert!(matches!(
            refusal("STACKS", libc::ENOMEM),
            StartError::Load(_)
        ));
        assert!(matches!(
            refusal("THREADS", libc::EINVAL),
            StartError::Load(_)
        ));
        for errno in [libc::EPERM, libc::EACCES] {
            assert!(matches!(refusal("STACKS", errno), StartError::Privilege(_)));
        }
        let log = "0: (bf) r6 = r1\n9: (85) call bpf_task_pt_regs#175\nunknown func bpf_task_pt_regs#175\nprocessed 9 insns";
        assert_eq!(unknown_helper(log), Some("bpf_task_pt_regs"));
        assert_eq!(unknown_helper("invalid access to map value"), None);
    }
}
