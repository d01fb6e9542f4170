//! Tells the profile of processes: who is new, has changed or is gone.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::kernel::Pass;
use crate::processes::ids::{Image, ProcessKey};
use crate::processes::instance::Facts;
use crate::processes::live::Processes;
use crate::profile::input::{CommName, DrainPass, ProcessInfo};
use crate::sys::clock::ClockOffsets;
use crate::units::MonoNs;

use super::convert::{Owners, SlotOwner};

/// What of a process was last told to the profile.
#[derive(PartialEq, Eq)]
struct SentDescription {
    facts: usize,
    image: usize,
    comm: CommName,
    exited: bool,
}

/// What of each process was last told.
#[derive(Default)]
pub(super) struct Descriptions {
    told: HashMap<ProcessKey, SentDescription>,
}

impl Descriptions {
    /// Tells the profile of processes that are new, have changed or are gone.
    pub(super) fn describe(
        &mut self,
        pass: &Pass,
        owners: &Owners,
        processes: &mut Processes,
        offsets: ClockOffsets,
        to: &mut DrainPass,
    ) {
        /// What the threads of a process show.
        struct SeenThreads {
            comm: Option<CommName>,
            last_comm: CommName,
            start_ns: MonoNs,
            parent_pid: u32,
            kernel_thread: bool,
            living: usize,
            last_event_ns: MonoNs,
        }
        let mut seen: HashMap<ProcessKey, SeenThreads> = HashMap::new();
        for thread in &pass.threads {
            let owner = SlotOwner::of(thread);
            let process = seen.entry(owner.process).or_insert_with(|| SeenThreads {
                comm: None,
                last_comm: CommName(thread.comm),
                start_ns: thread.process_start_ns,
                parent_pid: thread.parent_pid,
                kernel_thread: thread.kernel_thread,
                living: 0,
                last_event_ns: MonoNs::ZERO,
            });
            let living = thread.phase != profiler_common::Phase::Exited;
            process.living += usize::from(living);
            process.last_event_ns = process.last_event_ns.max(thread.last_event_ns);
            // The first thread's name is the process's; after an exec by another thread there are
            // two of that number.
            if thread.tid == thread.pid && (living || process.comm.is_none()) {
                process.comm = Some(CommName(thread.comm));
            }
        }
        // Threads that could not be read live on as they were.
        let mut unread = HashSet::new();
        for owner in pass.unreadable.iter().filter_map(|slot| owners.get(*slot)) {
            unread.insert(owner.process);
            if let Some(process) = seen.get_mut(&owner.process) {
                process.living += 1;
            }
        }
        for (key, process) in &seen {
            processes.link(key.pid, process.start_ns, key.start_ns);
            let Some(info) = processes.info(*key) else {
                // Too many processes to follow: the profile makes do with what the thread says.
                continue;
            };
            let comm = process.comm.unwrap_or(process.last_comm);
            let exited = process.living == 0;
            let told = SentDescription {
                facts: Arc::as_ptr(&info.facts).addr(),
                image: info
                    .facts
                    .image
                    .as_ref()
                    .map_or(0, |image| Arc::as_ptr(image).addr()),
                comm,
                exited,
            };
            if self.told.get(key) == Some(&told) {
                continue;
            }
            self.told.insert(*key, told);
            let facts = &info.facts;
            to.processes.push(ProcessInfo {
                key: *key,
                ppid: if info.ppid == 0 {
                    process.parent_pid
                } else {
                    info.ppid
                },
                comm,
                exe: facts.exe.clone(),
                image: image_of(facts),
                uid: facts.uid,
                cgroup: facts.cgroup.clone(),
                unit: facts.unit.clone(),
                container_id: facts.container_id.clone(),
                started_at_unix_ns: offsets.unix_from_boot(key.start_ns),
                exited_at_unix_ns: exited
                    .then(|| offsets.unix_from_monotonic(process.last_event_ns)),
                kernel_thread: process.kernel_thread,
                cmdline: facts.cmdline.clone(),
            });
        }
        // Who has no thread left in the kernel's records is over. Who is left out sleeps on, and
        // has not been told to have exited.
        self.told.retain(|key, told| {
            let is_left_out = pass.is_partial && !told.exited;
            let stays = is_left_out || seen.contains_key(key) || unread.contains(key);
            if !stays {
                processes.retire(*key);
            }
            stays
        });
    }
}

/// The image of a process, by its path alone where the mapping of its file was missed.
fn image_of(facts: &Facts) -> Option<Arc<Image>> {
    let by_path = || {
        let path = Arc::clone(facts.exe.as_ref()?);
        Some(Arc::new(Image {
            device: 0,
            inode: 0,
            path,
        }))
    };
    facts.image.clone().or_else(by_path)
}
