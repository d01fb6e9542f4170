//! The loaded programs: attached and detached, run once for each task, and what they cost.

use std::fs::{self, File};
use std::io::{self, Read as _};
use std::ops::Range;
use std::os::fd::{AsFd as _, AsRawFd as _, OwnedFd};

use aya::Ebpf;
use aya::programs::tp_btf::BtfTracePointLinkId;
use aya::programs::{BtfTracePoint, Iter, PerfEvent, Program, ProgramError};
use tracing::warn;

use super::cost::ProgramStats;
use super::maps::Maps;
use super::program_code;
use super::refusal::{StartError, tick_refused};
use super::task_iter;
use crate::error_chain::AnyError;
use crate::units::VirtualAddress;

/// The loaded programs. Those of tracepoints are detached when this is dropped.
pub struct Programs {
    ebpf: Ebpf,
    tracepoints: Vec<&'static str>,
}

impl Programs {
    /// Of this object, whose programs are loaded. Those of `tracepoints`, which have their names,
    /// are attached together.
    pub(super) const fn new(ebpf: Ebpf, tracepoints: Vec<&'static str>) -> Self {
        Self { ebpf, tracepoints }
    }

    /// The maps of the object that nobody has taken yet.
    pub(super) const fn maps(&mut self) -> Maps<'_> {
        Maps::of(&mut self.ebpf)
    }

    /// The tracepoints that are attached together, by name.
    pub(super) fn tracepoints(&self) -> &[&'static str] {
        &self.tracepoints
    }

    /// Attaches the programs of these tracepoints, for as long as this lives.
    ///
    /// # Errors
    /// [`StartError::Program`] if the kernel refuses one; those before it are then attached.
    pub(super) fn attach_all(&mut self) -> Result<(), StartError> {
        for name in &self.tracepoints {
            attach(&mut self.ebpf, name)?;
        }
        Ok(())
    }

    /// Attaches the program of one tracepoint.
    ///
    /// # Errors
    /// [`StartError::Program`] if the kernel refuses.
    pub(super) fn attach(&mut self, name: &'static str) -> Result<BtfTracePointLinkId, StartError> {
        attach(&mut self.ebpf, name)
    }

    /// Detaches the program of one tracepoint.
    ///
    /// # Errors
    /// [`StartError::Program`] if the kernel refuses.
    pub(super) fn detach(
        &mut self,
        name: &'static str,
        link: BtfTracePointLinkId,
    ) -> Result<(), StartError> {
        let program: &mut BtfTracePoint = program_of(&mut self.ebpf, name)?;
        program
            .detach(link)
            .map_err(|error| StartError::program(name, error))
    }

    /// The program that ticks run, for whoever opens these.
    ///
    /// # Errors
    /// [`StartError`] if there is none, or no descriptor for it.
    pub(super) fn tick(&mut self) -> Result<OwnedFd, StartError> {
        let program: &mut PerfEvent = program_of(&mut self.ebpf, "tick")?;
        let descriptor = program.fd().map_err(io::Error::other);
        descriptor
            .and_then(|descriptor| descriptor.as_fd().try_clone_to_owned())
            .map_err(tick_refused)
    }

    /// Runs a program once for each task, or for each thread of the process `pid` ([`task_iter`]),
    /// and takes what it writes, not more than `max_bytes`.
    ///
    /// # Errors
    /// [`StartError::Program`] if the kernel refuses, or `to` does.
    pub(super) fn iterate(
        &mut self,
        name: &'static str,
        pid: Option<u32>,
        to: &mut dyn io::Write,
        max_bytes: u64,
    ) -> Result<(), StartError> {
        let fail = |error: io::Error| StartError::program(name, error);
        let program: &mut Iter = program_of(&mut self.ebpf, name)?;
        let file = match pid {
            None => over_all(program).map_err(|error| StartError::program(name, error)),
            Some(pid) => {
                let program = program.fd();
                let program = program.map_err(|error| StartError::program(name, error))?;
                let file = task_iter::of_process(program.as_fd(), pid);
                file.map_err(fail)
            }
        };
        let copied = io::copy(&mut file?.take(max_bytes), to);
        copied.map(drop).map_err(fail)
    }

    /// Run-time statistics of each program, by name, gathered while they were measured.
    #[must_use]
    pub fn costs(&self) -> Vec<ProgramStats> {
        let mut costs: Vec<ProgramStats> = self
            .ebpf
            .programs()
            .filter_map(|(name, program)| {
                let info = program.info().ok()?;
                Some(ProgramStats {
                    name: name.to_owned(),
                    runs: info.run_count(),
                    run_ns: u64::try_from(info.run_time().as_nanos()).unwrap_or(u64::MAX),
                })
            })
            .collect();
        costs.sort_by(|a, b| a.name.cmp(&b.name));
        costs
    }

    /// Where the code of the programs is, as addresses of the kernel; of none where it shows no
    /// addresses.
    #[must_use]
    pub fn code(&self) -> Vec<Range<VirtualAddress>> {
        let functions = |program: &Program| {
            let program = program.fd().ok()?;
            program_code::functions(program.as_fd())
                .inspect_err(|error| warn!("where a program's code is cannot be asked: {error}"))
                .ok()
        };
        let programs = self.ebpf.programs();
        let code = programs.filter_map(|(_, program)| functions(program));
        code.flatten().collect()
    }

    /// Runs so far that the kernel left out because the same program was preempted on that
    /// processor (from Linux 7.2 on), as `/proc/self/fdinfo` tells: what they would have seen is
    /// lost.
    #[must_use]
    pub fn skipped_runs(&self) -> u64 {
        let skipped = |program: &Program| {
            let fd = program.fd().ok()?.as_fd().as_raw_fd();
            let text = fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).ok()?;
            let mut lines = text.lines();
            let number = lines.find_map(|line| line.strip_prefix("recursion_misses:"))?;
            number.trim().parse::<u64>().ok()
        };
        self.ebpf
            .programs()
            .filter_map(|(_, program)| skipped(program))
            .sum()
    }
}

/// What an iterator writes about all tasks, or why it does not.
fn over_all(program: &mut Iter) -> Result<File, AnyError> {
    let link = program.attach().and_then(|link| program.take_link(link));
    Ok(link?.into_file()?)
}

fn attach(ebpf: &mut Ebpf, name: &'static str) -> Result<BtfTracePointLinkId, StartError> {
    let program: &mut BtfTracePoint = program_of(ebpf, name)?;
    program
        .attach()
        .map_err(|error| StartError::program(name, error))
}

/// A program of the object as the type it is.
///
/// # Errors
/// [`StartError::Program`] if the object has no such program, or one of another type.
pub(super) fn program_of<'a, P>(
    ebpf: &'a mut Ebpf,
    name: &'static str,
) -> Result<&'a mut P, StartError>
where
    &'a mut P: TryFrom<&'a mut Program, Error = ProgramError>,
{
    ebpf.program_mut(name)
        .ok_or_else(|| StartError::program(name, "it is not in the object"))?
        .try_into()
        .map_err(|error: ProgramError| StartError::program(name, error))
}
