//! Why functions, USDT points and spans are not measured.

use std::io;

use aya::maps::MapError;
use thiserror::Error;

use super::refusal::StartError;
use crate::error_chain::{AnyError, ErrorChain};

/// Why functions are not measured.
#[derive(Debug, Error)]
pub enum MeasureError {
    /// A program is not told which probe was hit.
    #[error(
        "this kernel has no attach cookies (Linux 5.15): functions cannot be told apart, so they cannot be measured"
    )]
    NoCookies,
    /// The kernel refuses the program.
    #[error("this kernel refuses the program that measures functions: {}", ErrorChain(.0.as_ref()))]
    Program(#[source] AnyError),
    /// The kernel refuses the probes.
    #[error("the kernel refuses the probes in {module}: {reason}")]
    Probes {
        /// The file.
        module: String,
        /// What the kernel says.
        #[source]
        reason: io::Error,
    },
    /// More than may be.
    #[error("{wanted} points would be probed; at most {most} can be")]
    TooMany {
        /// How many.
        wanted: usize,
        /// How many may be.
        most: usize,
    },
    /// More than this kernel bears.
    #[error(
        "{wanted} points would be probed at a time; on this kernel, which has no links of many points (Linux 6.6), at most {most} can be{of}: choose fewer functions, or count calls alone (--trace-counts)"
    )]
    TooManySingle {
        /// How many.
        wanted: usize,
        /// How many may be.
        most: usize,
        /// Of what, as it is told.
        of: &'static str,
    },
    /// There is no memory for the maps, where they have to be whole from the beginning.
    #[error("the kernel makes no maps for what is measured: {}", ErrorChain(.0))]
    NoMaps(#[source] MapError),
    /// A map does not take what it is told.
    #[error("the kernel does not take which processes are measured: {}", ErrorChain(.0))]
    Map(#[source] MapError),
    /// The map of places does not take one more.
    #[error("the kernel does not take what is done at a USDT point or an end of a span: {}", ErrorChain(.0))]
    Place(#[source] MapError),
    /// The programs cannot be told.
    #[error(transparent)]
    Control(#[from] StartError),
}

impl MeasureError {
    /// Is it that the process is gone?
    #[must_use]
    pub fn is_no_process(&self) -> bool {
        matches!(self, Self::Probes { reason, .. } if reason.raw_os_error() == Some(libc::ESRCH))
    }
}
