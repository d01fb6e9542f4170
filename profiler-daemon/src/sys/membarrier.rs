//! Waiting for what runs on other processors.

use std::io;

use rustix::thread::{MembarrierCommand, membarrier};

/// Returns after a grace period of the kernel, so after every kernel program that was running at
/// the call has ended. Takes milliseconds.
///
/// # Errors
/// Refused on kernels with tickless processors (`nohz_full`).
pub fn wait_for_grace_period() -> io::Result<()> {
    Ok(membarrier(MembarrierCommand::Global)?)
}
