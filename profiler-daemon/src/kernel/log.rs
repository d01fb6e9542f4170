//! aya-log: the programs' rare diagnostics, handed to the daemon's own log.

use aya::Ebpf;
use aya_log::EbpfLogger;
use tracing::warn;

/// Reads what the programs log. Polled with each drain; the ring is small, and what does not fit is
/// not said.
pub(super) struct ProgramLog(Option<EbpfLogger<&'static dyn log::Log>>);

impl ProgramLog {
    /// Takes the log's ring. Without it the programs are mute, and all else works.
    pub(super) fn take(ebpf: &mut Ebpf) -> Self {
        match EbpfLogger::init(ebpf) {
            Ok(logger) => Self(Some(logger)),
            Err(error) => {
                warn!("the kernel programs' diagnostics cannot be read: {error}");
                Self(None)
            }
        }
    }

    /// Passes on what there is.
    pub(super) fn flush(&mut self) {
        if let Some(logger) = &mut self.0 {
            logger.flush();
        }
    }
}
