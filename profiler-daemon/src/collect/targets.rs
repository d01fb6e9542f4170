//! Makes targets those of the programs: all or none of them.

use tracing::warn;

use super::command::TargetsRefused;
use super::descendants;
use crate::config::targets::Targets;
use crate::kernel::{Kernel, NamedTargets, TargetError};
use crate::sys::proc_fs;

/// Has the programs profile `targets` in place of those `before`, where there were any. Processes
/// and control groups that are named must exist.
///
/// # Errors
/// [`TargetsRefused`]; what is profiled is then as before.
pub(super) fn replace(
    kernel: &mut Kernel,
    targets: &Targets,
    before: Option<&Targets>,
) -> Result<(), TargetsRefused> {
    let mut pids = targets.pids.iter();
    if let Some(pid) = pids.find(|pid| proc_fs::stat(**pid).is_none()) {
        return Err(TargetsRefused::NoProcess(*pid));
    }
    apply(kernel, targets).inspect_err(|_| {
        if let Some(before) = before
            && let Err(error) = apply(kernel, before)
        {
            warn!("the targets cannot be set as they were: {error}");
        }
    })
}

/// The living descendants are looked for last: those that are born meanwhile are evaluated by these
/// targets already.
fn apply(kernel: &mut Kernel, targets: &Targets) -> Result<(), TargetsRefused> {
    kernel.targets.name(&named(targets))?;
    if targets.children {
        descendants::add(&mut kernel.targets, &targets.pids)?;
    }
    let evaluated = kernel.targets.evaluate_anew(&mut kernel.programs);
    Ok(evaluated.map_err(TargetError::from)?)
}

/// Targets as the kernel stage takes them.
fn named(targets: &Targets) -> NamedTargets {
    let comms = targets.comms.iter();
    NamedTargets {
        all: targets.all,
        children: targets.children,
        pids: targets.pids.clone(),
        comms: comms.map(|comm| comm.clone().into_bytes()).collect(),
        cgroups: targets.cgroups.clone(),
    }
}
