//! One instrumentation: of whom functions are measured, until when, and how it stands.

use std::collections::HashSet;

use thiserror::Error;

use super::plan::{Plan, RefusedFunction};
use super::state::MeasuredFunctions;
use super::untold::Fate;
use crate::config::targets::Targets;
use crate::kernel::{Kernel, MeasureError, ProbeCosts, Probing};
use crate::processes::live::Processes;
use crate::processes::living::Living;
use crate::sys::clock::unix_ns;
use crate::sys::proc_fs;
use crate::units::{MonoNs, UnixNs};

use super::super::descendants;
use super::super::spanning::Spanning;

/// Why functions are not measured.
#[derive(Debug, Error)]
pub enum InstrumentationError {
    /// The kernel does not do it.
    #[error(transparent)]
    Kernel(#[from] MeasureError),
    /// There are as many as can be told apart.
    #[error("{0} instrumentations run, and no more can: end one first")]
    TooMany(usize),
    /// There is no such process.
    #[error("there is no process {0}")]
    NoProcess(u32),
    /// It has ended, or was never there.
    #[error("the instrumentation has ended")]
    Over,
}

/// Why an instrumentation has ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Somebody asked for it.
    Asked,
    /// Its time was over.
    Time,
    /// All processes that it named are gone.
    NoProcess,
    /// All that it measures costs too much.
    GivenUp,
}

/// How an instrumentation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Nothing that was chosen is mapped yet.
    Waiting,
    /// Entries of functions are counted, to see what measuring them would cost.
    Trial,
    /// Calls are measured.
    Measuring,
    /// Everything is detached.
    Ended(End),
}

/// An instrumentation, with what it has measured.
#[derive(Clone, Debug)]
pub struct InstrumentationState {
    /// Its number, from 1; never used again.
    pub id: u32,
    /// What whoever asked calls it.
    pub name: String,
    /// Of whom.
    pub whom: Targets,
    /// How it stands.
    pub stage: Stage,
    /// When it began, monotonic nanoseconds.
    pub began_ns: MonoNs,
    /// The same by the wall clock, nanoseconds since 1970.
    pub began_unix_ns: UnixNs,
    /// When it ended, or is going to; `None`: nobody said.
    pub until_ns: Option<MonoNs>,
    /// What its probes may take of one processor from a process; 0 = any.
    pub budget: f64,
    /// Processes that it measures now.
    pub processes: usize,
    /// Points of it that are attached.
    pub points: usize,
    /// Functions that were meant and cannot be measured.
    pub refused: Vec<RefusedFunction>,
    /// What was asked for and is in no file that is mapped yet.
    pub missing: Vec<String>,
    /// Functions that are being tried: name and module.
    pub tried: Vec<(String, String)>,
    /// What went wrong last while it followed processes.
    pub trouble: Option<String>,
    /// What was measured.
    pub measured: MeasuredFunctions,
}

/// See the module.
pub(super) struct RunningInstrumentation {
    /// Its number among those that run, a bit of the kernel side's masks.
    pub(super) slot: u8,
    /// Whether whoever asked for it can be told.
    pub(super) fate: Fate,
    pub(super) name: String,
    pub(super) whom: Targets,
    pub(super) budget: f64,
    pub(super) trial: bool,
    pub(super) began_ns: MonoNs,
    pub(super) began_unix_ns: UnixNs,
    pub(super) until_ns: Option<MonoNs>,
    pub(super) ended: Option<End>,
    /// Processes that it measures; with [`Targets::all`] none is told.
    pub(super) processes: HashSet<u32>,
    pub(super) refused: Vec<RefusedFunction>,
    pub(super) missing: Vec<String>,
    /// Whether it is told where functions are called from.
    pub(super) callers: bool,
    pub(super) trouble: Option<String>,
    /// USDT points and spans.
    pub(super) spanning: Spanning,
    /// What probes cost while it ran, once it has ended.
    pub(super) costs: Option<ProbeCosts>,
}

impl RunningInstrumentation {
    pub(super) fn new(slot: u8, plan: &Plan, now_ns: MonoNs) -> Self {
        Self {
            slot,
            fate: Fate::default(),
            name: plan.name.clone(),
            whom: plan.whom.clone(),
            budget: plan.budget,
            trial: plan.trial,
            began_ns: now_ns,
            began_unix_ns: unix_ns(),
            until_ns: plan
                .length_ns
                .map(|length_ns| now_ns.saturating_add(length_ns)),
            ended: None,
            processes: HashSet::new(),
            refused: Vec::new(),
            missing: Vec::new(),
            callers: plan.callers,
            trouble: None,
            spanning: Spanning::new(plan.whom.all),
            costs: None,
        }
    }

    pub(super) fn runs(&self) -> bool {
        self.ended.is_none()
    }

    /// Has the kernel side measure the processes that are meant now.
    ///
    /// # Errors
    /// [`MeasureError`].
    pub(super) fn begin(
        &mut self,
        kernel: &mut Kernel,
        processes: &Processes,
    ) -> Result<(), MeasureError> {
        let Kernel {
            measured, targets, ..
        } = kernel;
        let whom = &self.whom;
        if whom.all {
            return measured.choose(self.slot, None, false, targets);
        }
        let mut pids: HashSet<u32> = whom.pids.iter().copied().collect();
        pids.extend(by_name(whom, processes));
        loop {
            let chosen: Vec<u32> = pids.iter().copied().collect();
            measured.choose(self.slot, Some(&chosen), whom.children, targets)?;
            if !whom.children {
                break;
            }
            // What those fork that are chosen already, the programs see to: once a reading shows
            // nobody new, there is nobody else.
            let known = pids.len();
            pids.extend(descendants::of(&chosen));
            if pids.len() == known {
                break;
            }
        }
        self.processes = pids;
        Ok(())
    }

    /// Takes in who has come and gone since: answers the new ones, and those that are not measured
    /// any more.
    pub(super) fn follow(
        &mut self,
        kernel: &mut Kernel,
        processes: &Processes,
    ) -> (Vec<u32>, Vec<u32>) {
        if self.whom.all {
            return (Vec::new(), Vec::new());
        }
        let Kernel {
            measured, targets, ..
        } = kernel;
        let mut now: HashSet<u32> = measured.processes(self.slot).into_iter().collect();
        if !(self.whom.comms.is_empty() && self.whom.cgroups.is_empty()) {
            let meant: HashSet<u32> = by_name(&self.whom, processes).collect();
            let new: Vec<u32> = meant.difference(&now).copied().collect();
            if !new.is_empty() {
                match measured.choose(self.slot, Some(&new), self.whom.children, targets) {
                    Ok(()) => now.extend(&new),
                    Err(error) => self.trouble = Some(error.to_string()),
                }
            }
            if !self.whom.children {
                // They execute another program by now, or have moved to another group.
                let left = |pid: &u32| !meant.contains(pid) && !self.whom.pids.contains(pid);
                for pid in now.extract_if(left) {
                    measured.leave_out(self.slot, pid);
                }
            }
        }
        let new = now.difference(&self.processes).copied().collect();
        let gone = self.processes.difference(&now).copied().collect();
        self.processes = now;
        (new, gone)
    }

    /// Whether nobody is left whom it could measure.
    pub(super) fn is_alone(&self) -> bool {
        let named = self.whom.comms.is_empty() && self.whom.cgroups.is_empty() && !self.whom.all;
        named && self.processes.is_empty()
    }

    /// Whether probes of a file are in the memory of its processes alone.
    pub(super) fn is_by_process(&self, shared: bool) -> bool {
        let whom = &self.whom;
        shared
            && !whom.all
            && match Probing::of_this_kernel() {
                Probing::Many { of_processes } => of_processes,
                // Each process would need points of its own, of which there may be few: one that
                // nobody can join has them, else the programs tell who is measured.
                Probing::Single => {
                    let is_named = !(whom.comms.is_empty() && whom.cgroups.is_empty());
                    whom.pids.len() == 1 && !is_named && !whom.children
                }
                Probing::Nothing => false,
            }
    }
}

/// Who is meant now, each with a number that changes as it maps files.
///
/// # Errors
/// [`InstrumentationError::NoProcess`].
pub(super) fn meant(
    whom: &Targets,
    processes: &Processes,
) -> Result<Vec<(u32, u64)>, InstrumentationError> {
    let mut pids = whom.pids.iter();
    if let Some(pid) = pids.find(|pid| proc_fs::stat(**pid).is_none()) {
        return Err(InstrumentationError::NoProcess(*pid));
    }
    let mut pids: HashSet<u32> = whom.pids.iter().copied().collect();
    pids.extend(by_name(whom, processes));
    if whom.children {
        let chosen: Vec<u32> = pids.iter().copied().collect();
        pids.extend(descendants::of(&chosen));
    }
    let living = processes.living();
    let its = living.filter(|living| whom.all || pids.contains(&living.pid));
    let mut meant: Vec<(u32, u64)> = its.map(|living| (living.pid, living.changes)).collect();
    // Of a process that has just begun no record was read yet: it has mapped what it has.
    for (pid, _) in &meant {
        pids.remove(pid);
    }
    meant.extend(pids.into_iter().map(|pid| (pid, 0)));
    Ok(meant)
}

/// The living processes that are named by name or group.
fn by_name<'a>(whom: &'a Targets, processes: &'a Processes) -> impl Iterator<Item = u32> + 'a {
    let names_any = !(whom.comms.is_empty() && whom.cgroups.is_empty());
    let living = names_any.then(|| processes.living()).into_iter().flatten();
    living
        .filter(|living| is_named(whom, living))
        .map(|living| living.pid)
}

fn is_named(whom: &Targets, living: &Living<'_>) -> bool {
    let mut comms = whom.comms.iter();
    if comms.any(|comm| comm.as_bytes() == living.comm) {
        return true;
    }
    let mut cgroups = whom.cgroups.iter();
    living.cgroup.is_some_and(|own| {
        cgroups.any(|group| {
            let rest = own.strip_prefix(group.trim_end_matches('/'));
            rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that a group means itself and what is below it, not one whose name begins alike, and
    // that a name means all of it.
    #[test]
    fn who_is_named() {
        let whom = Targets {
            all: false,
            comms: vec!["nginx".to_owned()],
            cgroups: vec!["/system.slice/db.service".to_owned()],
            ..Targets::default()
        };
        let named = |comm: &[u8], cgroup| {
            let living = Living {
                pid: 1,
                comm,
                cgroup,
                changes: 0,
            };
            is_named(&whom, &living)
        };
        assert!(named(b"nginx", None));
        assert!(!named(b"nginx2", None));
        assert!(named(b"x", Some("/system.slice/db.service")));
        assert!(named(b"x", Some("/system.slice/db.service/a")));
        assert!(!named(b"x", Some("/system.slice/db.service2")));
        assert!(!named(b"x", Some("/system.slice")));
    }
}
