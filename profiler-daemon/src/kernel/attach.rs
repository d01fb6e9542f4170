//! Attaches the programs: tracepoints, and the tick on every processor.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use aya::Ebpf;
use aya::programs::{BtfTracePoint, PerfEvent};

use super::load::program_of;
use super::refusal::{StartError, chain};
use super::ticks::Ticks;

/// What is attached.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    /// Tracepoints, by name.
    pub tracepoints: Vec<&'static str>,
    /// Processors with a timer tick.
    pub processors: Vec<u32>,
}

/// Attaches the programs of these tracepoints.
pub(super) fn attach(ebpf: &mut Ebpf, tracepoints: &[&'static str]) -> Result<(), StartError> {
    for name in tracepoints {
        let program: &mut BtfTracePoint = program_of(ebpf, name)?;
        program.attach().map_err(|error| StartError::Program {
            program: name,
            reason: chain(&error),
        })?;
    }
    Ok(())
}

/// The ticks of all processors, not started yet.
pub(super) fn ticks(ebpf: &mut Ebpf, frequency_hz: u32) -> Result<Ticks, StartError> {
    let program: &mut PerfEvent = program_of(ebpf, "tick")?;
    let descriptor = |program: &PerfEvent| -> io::Result<OwnedFd> {
        let descriptor = program.fd().map_err(io::Error::other)?;
        descriptor.as_fd().try_clone_to_owned()
    };
    let program = descriptor(program).map_err(|error| tick_refused(&error))?;
    Ok(Ticks::new(program, frequency_hz))
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
