//! Why the programs do not run, in a sentence that says what this kernel or this user lacks.

use std::error::Error;
use std::time::Duration;
use std::{io, iter};

use aya::EbpfError;
use aya::programs::ProgramError;
use aya::util::KernelVersion;
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
    /// The kernel refuses something, and is older than any that is supported.
    #[error("Linux 5.10 or later is needed, and this kernel is older ({chain})", chain = ErrorChain(.0.as_ref()))]
    TooOld(#[source] AnyError),
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
    /// The kernel does not end a grace period.
    #[error(
        "the kernel has not ended what ran before for {} s: it is too busy; try again",
        .0.as_secs()
    )]
    NoGracePeriod(Duration),
    /// No thread can be made.
    #[error("cannot start the thread that waits for grace periods: {0}")]
    Thread(#[source] io::Error),
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

/// The oldest kernel that has all that the programs need.
const OLDEST: KernelVersion = KernelVersion::new(5, 10, 0);

/// Why a program was not loaded.
pub(super) fn program_refused(program: &'static str, error: ProgramError) -> StartError {
    let errno = errno(&error);
    let cause: AnyError = match error {
        ProgramError::LoadError {
            io_error,
            verifier_log,
        } => VerifierRefusal::new(io_error, &verifier_log.to_string()).into(),
        _ => error.into(),
    };
    if errno == Some(libc::EPERM) {
        return StartError::Privilege(cause);
    }
    by_version(StartError::program(program, cause), this_version())
}

fn this_version() -> Option<KernelVersion> {
    KernelVersion::current().ok()
}

/// A refusal by a kernel of this version: one that is too old does not know what is asked for.
fn by_version(refusal: StartError, version: Option<KernelVersion>) -> StartError {
    if version.is_some_and(|version| version < OLDEST) {
        StartError::TooOld(refusal.into())
    } else {
        refusal
    }
}

/// The number of the system's error that is at the bottom of one.
pub(super) fn errno(error: &(dyn Error + 'static)) -> Option<i32> {
    iter::successors(Some(error), |&error| error.source())
        .filter_map(|error| error.downcast_ref::<io::Error>()?.raw_os_error())
        .last()
}

/// Why the object or a map was not loaded.
pub(super) fn refused(error: EbpfError) -> StartError {
    match errno(&error) {
        Some(libc::EPERM | libc::EACCES) => StartError::Privilege(error.into()),
        _ => by_version(StartError::Load(error), this_version()),
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
    use aya::maps::MapError;

    use super::*;

    #[test]
    fn refusals_are_told_by_the_number_of_their_error() {
        // Check that want of privilege is told from what the kernel does not know, and that what it
        // said stays in the sentence.
        let refusal = |errno| {
            refused(EbpfError::MapError(MapError::CreateError {
                name: "STACKS".to_owned(),
                io_error: io::Error::from_raw_os_error(errno),
            }))
        };
        for errno in [libc::EPERM, libc::EACCES] {
            assert!(matches!(refusal(errno), StartError::Privilege(_)));
        }
        assert!(matches!(refusal(libc::ENOMEM), StartError::Load(_)));
        let of_program = |errno| {
            let io_error = io::Error::from_raw_os_error(errno);
            StartError::program("tick", VerifierRefusal::new(io_error, "unknown func"))
        };
        let told = of_program(libc::EINVAL).to_string();
        assert!(told.contains("the program tick"), "{told}");
        assert!(told.contains("unknown func"), "{told}");
        let by = |minor| {
            let version = Some(KernelVersion::new(5, minor, 0));
            by_version(of_program(libc::EINVAL), version).to_string()
        };
        assert_eq!(by(10), told);
        let told = by(9);
        assert!(told.starts_with("Linux 5.10 or later is needed"), "{told}");
        assert!(told.contains("unknown func"), "{told}");
    }
}
