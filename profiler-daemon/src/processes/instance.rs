//! One process as the daemon knows it: when it started and ended, what it is called, what it has
//! mapped. Plain data with its small rules; who creates and finds instances is `live`.

use std::sync::Arc;

use super::{
    ids::{Image, ProcessKey, START_TICK_NS, start_ticks},
    mappings::Mappings,
    module::ModuleId,
    source::{Description, Mapped},
};
use crate::sys::clock::ClockOffsets;
use crate::units::{BootNs, MonoNs};

/// How much later than a process's start its fork record may be stamped: the kernel can be
/// interrupted in between.
pub(super) const FORK_SLACK_NS: u64 = 1_000_000_000;
/// Bytes of a process name, its terminating zero included.
pub const COMM_BYTES: usize = 16;
/// Longest path or group name kept, bytes.
const MAX_TEXT_BYTES: usize = 4096;

/// What does not change while a program runs; shared between a process and its children until they
/// execute another.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Facts {
    /// Path of the program.
    pub exe: Option<Arc<str>>,
    /// The file it executed last.
    pub image: Option<Arc<Image>>,
    /// Real user.
    pub uid: Option<u32>,
    /// Control group.
    pub cgroup: Option<Arc<str>>,
    /// Systemd unit.
    pub unit: Option<Arc<str>>,
    /// Container.
    pub container_id: Option<Arc<str>>,
    /// Command line, where the daemon was told to read it.
    pub cmdline: Option<Arc<str>>,
}

impl Facts {
    /// Takes what was read; what could not be read any more is taken from `before` (the parent's,
    /// or the program's before).
    pub(super) fn gather(read: Description, before: &Self) -> Self {
        let text = |text: Option<&str>| text.map(|text| Arc::from(cut(text)));
        let (cgroup, unit, container_id) = match &read.cgroup {
            Some(facts) => (
                text(facts.path.as_deref()),
                text(facts.unit.as_deref()),
                text(facts.container_id.as_deref()),
            ),
            None => (
                before.cgroup.clone(),
                before.unit.clone(),
                before.container_id.clone(),
            ),
        };
        Self {
            exe: read
                .exe
                .as_ref()
                .map(|exe| Arc::from(cut(&exe.to_string_lossy())))
                .or_else(|| before.exe.clone()),
            image: before.image.clone(),
            uid: read.uid.or(before.uid),
            cgroup,
            unit,
            container_id,
            cmdline: text(read.cmdline.as_deref()),
        }
    }
}

/// The image of a process that has executed a mapped file.
pub(super) fn image_of(mapped: &Mapped) -> Arc<Image> {
    let (major, minor) = (mapped.device.major, mapped.device.minor);
    let path = String::from_utf8_lossy(mapped.plain_path());
    Arc::new(Image {
        device: u64::from(major) << 32 | u64::from(minor),
        inode: mapped.inode,
        path: Arc::from(cut(&path)),
    })
}

fn cut(text: &str) -> &str {
    let mut end = text.len().min(MAX_TEXT_BYTES);
    while !text.is_char_boundary(end) {
        end -= 1;
    }
    &text[..end]
}

/// What is known of a process, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcessDescription {
    /// Which process.
    pub key: ProcessKey,
    /// Its parent.
    pub ppid: u32,
    /// Its name: at most 15 bytes that it chose, zero-terminated.
    pub comm: [u8; COMM_BYTES],
    /// Program, user, groups.
    pub facts: Arc<Facts>,
    /// When it ended, monotonic nanoseconds.
    pub exited_ns: Option<MonoNs>,
    /// Whether it is a thread of the kernel.
    pub kernel_thread: bool,
}

/// One process.
#[derive(Clone, Debug)]
pub(super) struct Instance {
    pub(super) pid: u32,
    pub(super) ppid: u32,
    /// Start, monotonic nanoseconds; at or before the first record about it.
    pub(super) start_ns: MonoNs,
    /// Time of its fork record.
    pub(super) forked_ns: Option<MonoNs>,
    /// The same by the clock by which `/proc` tells starts, as the two stood then: a suspend moves
    /// them apart.
    forked_boot_ns: Option<BootNs>,
    /// Start as `/proc` tells it.
    pub(super) start_ticks: Option<u64>,
    pub(super) key: Option<ProcessKey>,
    pub(super) comm: [u8; COMM_BYTES],
    pub(super) facts: Arc<Facts>,
    /// Whether the facts are its own rather than its parent's.
    pub(super) facts_own: bool,
    pub(super) kernel_thread: bool,
    pub(super) mappings: Arc<Mappings>,
    /// The module of the code that it makes at run time.
    pub(super) jit: ModuleId,
    /// Whether that module is one of names.
    pub(super) jit_has_names: bool,
    /// When the file that names this code was last looked for, monotonic nanoseconds.
    pub(super) jit_looked_ns: MonoNs,
    /// How often it executed another program.
    pub(super) execs: u32,
    /// It executed another, of which nothing is mapped yet.
    pub(super) executes: bool,
    /// When it last did, monotonic nanoseconds; 0 = not since it is known.
    pub(super) exec_ns: MonoNs,
    pub(super) exited_ns: Option<MonoNs>,
    /// Whether it ever had more than its first thread, as far as is known.
    pub(super) threaded: bool,
    /// Its first thread ended; others may live on.
    pub(super) leader_gone: bool,
    /// The kernel side is done with it.
    pub(super) retired: bool,
    /// Its mappings may be incomplete since this time: read them again.
    pub(super) incomplete_since_ns: Option<MonoNs>,
    /// Addresses of it were in no mapping since these were last read.
    pub(super) unresolved: bool,
    /// When its mappings were last read because an address was not found, and how long to wait
    /// until the next time.
    pub(super) reread_ns: MonoNs,
    pub(super) reread_wait_ns: u64,
}

impl Instance {
    /// A child begins as a copy of its parent.
    pub(super) fn inherit(&mut self, parent: &Self) {
        self.comm = parent.comm;
        self.facts = Arc::clone(&parent.facts);
        self.kernel_thread = parent.kernel_thread;
        self.mappings = Arc::clone(&parent.mappings);
        self.incomplete_since_ns = parent.incomplete_since_ns;
        // Else whoever forks without end would have all turns of being read again.
        self.reread_ns = parent.reread_ns;
        self.reread_wait_ns = parent.reread_wait_ns;
    }

    pub(super) fn new(pid: u32, start_ns: MonoNs) -> Self {
        Self {
            pid,
            ppid: 0,
            start_ns,
            forked_ns: None,
            forked_boot_ns: None,
            start_ticks: None,
            key: None,
            comm: [0; COMM_BYTES],
            facts: Arc::default(),
            facts_own: false,
            kernel_thread: false,
            mappings: Arc::default(),
            jit: ModuleId::JIT,
            jit_has_names: false,
            jit_looked_ns: MonoNs::ZERO,
            execs: 0,
            executes: false,
            exec_ns: MonoNs::ZERO,
            exited_ns: None,
            threaded: false,
            leader_gone: false,
            retired: false,
            incomplete_since_ns: None,
            unresolved: false,
            reread_ns: MonoNs::ZERO,
            reread_wait_ns: 0,
        }
    }

    /// Whether a fork record of this time tells of the birth of this very process.
    pub(super) fn born_by(&self, fork_ns: MonoNs, clocks: ClockOffsets) -> bool {
        if let Some(forked_ns) = self.forked_ns {
            return forked_ns == fork_ns;
        }
        if self.key.is_some() {
            return (self.start_ns..=self.start_ns + FORK_SLACK_NS).contains(&fork_ns);
        }
        self.start_ticks.is_some_and(|ticks| {
            let fork_ticks = start_ticks(clocks.boot_from_monotonic(fork_ns));
            (ticks..=ticks + FORK_SLACK_NS / START_TICK_NS).contains(&fork_ticks)
        })
    }

    /// Whether the kernel's task with this start is this process.
    pub(super) fn is_task(&self, start_monotonic_ns: MonoNs, key: ProcessKey) -> bool {
        if self.key.is_some() {
            return self.key == Some(key);
        }
        match (self.forked_ns, self.start_ticks) {
            (Some(forked_ns), _) => (start_monotonic_ns
                ..=start_monotonic_ns.saturating_add(FORK_SLACK_NS))
                .contains(&forked_ns),
            (None, Some(ticks)) => ticks == key.start_ticks(),
            (None, None) => false,
        }
    }

    /// A fork record of this time tells of its birth, as the clocks stand now.
    pub(super) fn set_forked(&mut self, fork_ns: MonoNs, clocks: ClockOffsets) {
        self.forked_ns = Some(fork_ns);
        self.forked_boot_ns = Some(clocks.boot_from_monotonic(fork_ns));
    }

    /// Whether the process that `/proc` shows under this number, started at `ticks`, is this one.
    pub(super) fn is_listed(&self, ticks: u64) -> bool {
        if let Some(known) = self.key.map(ProcessKey::start_ticks).or(self.start_ticks) {
            return known == ticks;
        }
        // Only the fork time is known, which is a little later than the start.
        self.forked_boot_ns.is_some_and(|forked_ns| {
            let latest = start_ticks(forked_ns);
            (latest.saturating_sub(FORK_SLACK_NS / START_TICK_NS)..=latest + 1).contains(&ticks)
        })
    }

    pub(super) fn set_comm(&mut self, comm: &[u8]) {
        self.comm = [0; COMM_BYTES];
        for (to, from) in self.comm[..COMM_BYTES - 1].iter_mut().zip(comm) {
            *to = *from;
        }
    }

    /// A file was mapped: the first one after an exec is the program.
    pub(super) fn note_mapped(&mut self, mapped: &Mapped) {
        if std::mem::take(&mut self.executes) {
            self.note_image(mapped);
        }
        if self.facts.exe.is_none() {
            let path = Arc::clone(&image_of(mapped).path);
            Arc::make_mut(&mut self.facts).exe = Some(path);
        }
    }

    /// This file is the program.
    pub(super) fn note_image(&mut self, mapped: &Mapped) {
        if self.facts.image.is_none() {
            Arc::make_mut(&mut self.facts).image = Some(image_of(mapped));
        }
    }

    pub(super) fn info(&self, key: ProcessKey) -> ProcessDescription {
        ProcessDescription {
            key,
            ppid: self.ppid,
            comm: self.comm,
            facts: Arc::clone(&self.facts),
            exited_ns: self.exited_ns,
            kernel_thread: self.kernel_thread,
        }
    }
}
