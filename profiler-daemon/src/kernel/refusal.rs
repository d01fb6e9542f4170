//! Why the programs do not run, in a sentence that says what this kernel or this user lacks.

use std::error::Error;
use std::{io, iter};

use aya::EbpfError;
use aya::maps::MapError;
use aya::programs::ProgramError;
use thiserror::Error;

use super::btf::BtfError;
use crate::error_chain::{AnyError, ErrorChain};

/// Why the programs do not run.
#[derive(Debug, Error)]
pub enum StartError {
    /// No type information.
    #[error(
        "cannot read the kernel's type information /sys/kernel/btf/vmlinux ({0}): a kernel built with CONFIG_DEBUG_INFO_BTF=y is needed"
    )]
    NoBtf(#[source] io::Error),
    /// The type information lacks something.
    #[error("this kernel is not supported: {0}")]
    Btf(#[from] BtfError),
    /// The kernel refuses for want of privilege.
    #[error(
        "the kernel refuses the programs ({chain}): run as root, or give the daemon CAP_BPF and CAP_PERFMON, and for all names CAP_SYS_PTRACE, CAP_CHECKPOINT_RESTORE, CAP_DAC_READ_SEARCH and CAP_SYSLOG (`profiler-daemon doctor` says which are missing)",
        chain = ErrorChain(.0.as_ref())
    )]
    Privilege(#[source] AnyError),
    /// The kernel is too old.
    #[error(
        "this kernel lacks {0}, without which nothing can be profiled: Linux 5.10 or later is needed"
    )]
    TooOld(String),
    /// The kernel refuses the object or a map.
    #[error("cannot load the kernel programs: {}", ErrorChain(.0))]
    Load(#[source] EbpfError),
    /// The kernel refuses a program.
    #[error("this kernel refuses the program {program}: {}", ErrorChain(.cause.as_ref()))]
    Program {
        /// Its name.
        program: &'static str,
        /// What the kernel says, the end of the verifier's log included.
        #[source]
        cause: AnyError,
    },
    /// A map cannot be used.
    #[error("cannot use the kernel map {map}: {}", ErrorChain(.cause.as_ref()))]
    Map {
        /// Its name.
        map: &'static str,
        /// Why.
        #[source]
        cause: AnyError,
    },
}

impl StartError {
    /// A program cannot be had, for this reason.
    pub(super) fn program(program: &'static str, cause: impl Into<AnyError>) -> Self {
        let cause = cause.into();
        Self::Program { program, cause }
    }

    /// A map cannot be used, for this reason.
    pub(super) fn map(map: &'static str, cause: impl Into<AnyError>) -> Self {
        let cause = cause.into();
        Self::Map { map, cause }
    }
}

/// The kernel refuses a program, and its verifier says why.
#[derive(Debug, Error)]
#[error("{error}; the verifier says: {log}")]
pub(super) struct VerifierRefusal {
    #[source]
    error: io::Error,
    log: String,
}

impl VerifierRefusal {
    /// Of this error, with the end of the verifier's log.
    pub(super) fn new(error: io::Error, log: &str) -> Self {
        let end: Vec<&str> = log.lines().rev().take(12).collect();
        let end: Vec<&str> = end.into_iter().rev().collect();
        Self {
            error,
            log: end.join(" / "),
        }
    }
}

/// The kernel opens no event that counts ticks.
#[derive(Debug, Error)]
#[error("perf_event_open: {0}")]
struct EventRefused(#[source] io::Error);

/// Why a program was not loaded.
pub(super) fn program_refused(program: &'static str, error: ProgramError) -> StartError {
    match error {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => {
            if io_error.raw_os_error() == Some(libc::EPERM) {
                return StartError::Privilege(io_error.into());
            }
            let log = verifier_log.to_string();
            if let Some(helper) = unknown_helper(&log) {
                return StartError::TooOld(format!("the helper {helper}"));
            }
            StartError::program(program, VerifierRefusal::new(io_error, &log))
        }
        _ => StartError::program(program, error),
    }
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
        Some(libc::EPERM | libc::EACCES) => StartError::Privilege(error.into()),
        _ => StartError::Load(error),
    }
}

/// Why there are no ticks.
pub(super) fn tick_refused(error: io::Error) -> StartError {
    if error.kind() == io::ErrorKind::PermissionDenied {
        StartError::Privilege(EventRefused(error).into())
    } else {
        StartError::program("tick", error)
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
