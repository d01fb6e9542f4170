//! A made-up machine for tests: processes as its `/proc` shows them at the moment, whatever the
//! records say.

use std::{
    collections::HashMap,
    fs::File,
    ops::Range,
    path::PathBuf,
    sync::{Arc, Mutex},
};

use super::{
    ids::ProcessKey,
    live::Processes,
    module::ModuleId,
    source::{Description, Mapped, ProcessSource},
};
use crate::sys::{
    clock::ClockOffsets,
    perf_record::Device,
    proc_maps::{ExecMaps, MapsEntry},
    proc_stat::ProcStat,
};
use crate::units::{BootNs, FileOffset, MonoNs, VirtualAddress};

/// One process as the made-up `/proc` shows it: start ticks, threads, mappings as (start, path),
/// the file that names the code it makes.
#[derive(Clone, Default)]
struct MadeUpProcess {
    ticks: u64,
    threads: u32,
    maps: Vec<(u64, &'static str)>,
    exe: &'static str,
    uid: u32,
    perf_map: Option<PathBuf>,
    /// The file behind all that it has mapped.
    file: Option<PathBuf>,
    described: u32,
}

/// The machine. Copies are the same one.
#[derive(Clone, Default)]
pub(crate) struct Machine(Arc<Mutex<HashMap<u32, MadeUpProcess>>>);

/// The inode of whatever is mapped by this path: no memory without a file has one.
pub(crate) fn inode(path: &str) -> u64 {
    if path == "//anon" { 0 } else { 5 }
}

impl Machine {
    pub(crate) fn show(&self, pid: u32, ticks: u64, maps: &[(u64, &'static str)]) {
        let shown = MadeUpProcess {
            ticks,
            threads: 1,
            maps: maps.to_vec(),
            exe: "/bin/shown",
            uid: 7,
            perf_map: None,
            file: None,
            described: 0,
        };
        self.0.lock().unwrap().insert(pid, shown);
    }

    pub(crate) fn hide(&self, pid: u32) {
        self.0.lock().unwrap().remove(&pid);
    }

    pub(crate) fn threads(&self, pid: u32, threads: u32) {
        self.0.lock().unwrap().get_mut(&pid).unwrap().threads = threads;
    }

    /// From now on the process is this user's.
    pub(crate) fn user(&self, pid: u32, uid: u32) {
        self.0.lock().unwrap().get_mut(&pid).unwrap().uid = uid;
    }

    /// From now on the process names the code it makes in that file.
    pub(crate) fn perf_map(&self, pid: u32, path: PathBuf) {
        self.0.lock().unwrap().get_mut(&pid).unwrap().perf_map = Some(path);
    }

    /// From now on this is the file behind all that the process has mapped.
    pub(crate) fn file(&self, pid: u32, path: PathBuf) {
        self.0.lock().unwrap().get_mut(&pid).unwrap().file = Some(path);
    }

    /// How often it was asked what the process is.
    pub(crate) fn described(&self, pid: u32) -> u32 {
        self.get(pid).map_or(0, |shown| shown.described)
    }

    fn get(&self, pid: u32) -> Option<MadeUpProcess> {
        self.0.lock().unwrap().get(&pid).cloned()
    }
}

impl ProcessSource for Machine {
    fn pids(&self) -> Vec<u32> {
        self.0.lock().unwrap().keys().copied().collect()
    }

    fn stat(&self, pid: u32) -> Option<ProcStat> {
        self.get(pid).map(|shown| ProcStat {
            comm: "shown".into(),
            state: b'S',
            ppid: 1,
            flags: 0,
            threads: shown.threads,
            start_ticks: shown.ticks,
        })
    }

    fn exec_maps(&self, pid: u32, limit: usize) -> Option<ExecMaps> {
        let entries = self
            .get(pid)?
            .maps
            .into_iter()
            .take(limit)
            .map(|(start, path)| MapsEntry {
                start: VirtualAddress::new(start),
                end: VirtualAddress::new(start + 0x1000),
                file_offset: FileOffset::ZERO,
                device: Device { major: 8, minor: 1 },
                inode: inode(path),
                path: path.as_bytes().into(),
            });
        Some(ExecMaps {
            entries: entries.collect(),
            ..ExecMaps::default()
        })
    }

    fn describe(&self, pid: u32, _: bool) -> Description {
        if let Some(shown) = self.0.lock().unwrap().get_mut(&pid) {
            shown.described += 1;
        }
        Description {
            exe: self.get(pid).map(|shown| shown.exe.into()),
            uid: self.get(pid).map(|shown| shown.uid),
            ..Description::default()
        }
    }

    fn open(&self, pid: u32, _: u32, _: &Mapped) -> Option<File> {
        File::open(self.get(pid)?.file?).ok()
    }

    fn open_mapped(&self, pid: u32, range: Range<VirtualAddress>) -> Option<(File, Mapped)> {
        let shown = self.get(pid)?;
        let (start, path) = shown
            .maps
            .iter()
            .find(|(start, _)| *start == range.start.get())?;
        let mapped = Mapped {
            start: VirtualAddress::new(*start),
            end: range.end,
            device: Device { major: 8, minor: 1 },
            inode: inode(path),
            path: path.as_bytes().into(),
        };
        Some((File::open(shown.file?).ok()?, mapped))
    }

    fn perf_map(&self, pid: u32) -> Option<File> {
        File::open(self.get(pid)?.perf_map?).ok()
    }

    fn own_vdso(&self) -> Option<Vec<u8>> {
        None
    }
}

/// Ties the kernel's task of this start; the made-up machine never slept, so both clocks are equal.
pub(super) fn link(processes: &mut Processes, pid: u32, start_ns: u64) -> ProcessKey {
    processes.link(pid, MonoNs::new(start_ns), BootNs::new(start_ns))
}

/// The module at address 0x1000 at that time.
pub(super) fn module_at(processes: &mut Processes, key: ProcessKey, time_ns: u64) -> ModuleId {
    let place = processes.resolve(key, MonoNs::new(time_ns), VirtualAddress::new(0x1000));
    place.unwrap().module
}

/// A pass at that time.
pub(super) fn sweep(processes: &mut Processes, now_ns: u64) {
    processes.sweep(MonoNs::new(now_ns), ClockOffsets::default());
}
