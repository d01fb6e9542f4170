//! Attaches the programs: tracepoints once, the tick on every processor.

use std::fs;

use aya::Ebpf;
use aya::programs::perf_event::{PerfEventConfig, PerfEventScope, SamplePolicy, SoftwareEvent};
use aya::programs::{BtfTracePoint, PerfEvent};

use super::load::{KernelSettings, program_of};
use super::refusal::{StartError, chain};

/// What is attached.
#[derive(Clone, Debug, Default)]
pub struct Attached {
    /// Tracepoints, by name.
    pub tracepoints: Vec<&'static str>,
    /// Processors with a timer tick.
    pub processors: Vec<u32>,
}

/// Attaches the programs of these tracepoints, and the tick.
pub(super) fn attach(
    ebpf: &mut Ebpf,
    tracepoints: Vec<&'static str>,
    settings: &KernelSettings,
) -> Result<Attached, StartError> {
    for name in &tracepoints {
        let program: &mut BtfTracePoint = program_of(ebpf, name)?;
        program.attach().map_err(|error| StartError::Program {
            program: name,
            reason: chain(&error),
        })?;
    }
    let mut attached = Attached {
        tracepoints,
        processors: Vec::new(),
    };
    let tick: &mut PerfEvent = program_of(ebpf, "tick")?;
    for cpu in online_processors() {
        tick.attach(
            PerfEventConfig::Software(SoftwareEvent::CpuClock),
            PerfEventScope::AllProcessesOneCpu { cpu },
            SamplePolicy::Frequency(u64::from(settings.frequency_hz)),
            false,
        )
        .map_err(|error| {
            let reason = chain(&error);
            if reason.contains("Permission denied") || reason.contains("not permitted") {
                StartError::Privilege(format!("perf_event_open: {reason}"))
            } else {
                StartError::Program {
                    program: "tick",
                    reason,
                }
            }
        })?;
        attached.processors.push(cpu);
    }
    Ok(attached)
}

/// The processors that are online: `/sys/devices/system/cpu/online`, else the first one.
#[must_use]
pub fn online_processors() -> Vec<u32> {
    let text = fs::read_to_string("/sys/devices/system/cpu/online").unwrap_or_default();
    let list = parse_processors(&text);
    if list.is_empty() { vec![0] } else { list }
}

/// Parses `0-3,8,10-11`; what is no number is left out, and no more than 8192 are taken.
fn parse_processors(text: &str) -> Vec<u32> {
    text.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<u32>().ok()?..=last.parse::<u32>().ok()?)
        })
        .flatten()
        .take(8192)
        .collect()
}

#[cfg(test)]
mod tests {
    use super::parse_processors;

    #[test]
    fn processor_lists() {
        // Check that ranges and single processors are read, and that nonsense gives none.
        assert_eq!(parse_processors("0-2,5,7-8\n"), [0, 1, 2, 5, 7, 8]);
        assert_eq!(parse_processors(""), [0u32; 0]);
        assert_eq!(parse_processors("x-y,3"), [3]);
        assert_eq!(parse_processors("0-4294967295").len(), 8192);
    }
}
