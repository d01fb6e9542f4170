//! Asks for unwind tables, one at a time: the files wait as numbers, in a queue that is fair to
//! their owners, and each is opened when its turn has come. So what waits holds no descriptor, and
//! who comes late waits for one table, not for all that were asked for before.

use std::sync::Arc;

use crate::processes::files::ModuleFile;
use crate::processes::module::ModuleId;
use crate::units::MonoNs;
use crate::unwind::worker::{TableAnswer, TableRequest, TableWorker, WorkerCounts};

use super::table_queue::{TableQueue, Waiting};

/// Most files that are passed over at a time because they need no table any more: looking for that
/// takes a while.
const MAX_PASSED_OVER: usize = 64;

/// A file whose turn has come.
pub(super) enum FileTurn {
    /// It is open.
    Open(Arc<ModuleFile>),
    /// It is gone, or another file by now.
    Gone,
    /// Nobody has it mapped any more.
    Unneeded,
}

/// Why a file was not handed over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DroppedFile {
    /// See [`FileTurn::Gone`].
    Gone,
    /// See [`FileTurn::Unneeded`].
    Unneeded,
}

/// See the module.
pub(super) struct Asking {
    worker: TableWorker,
    queue: TableQueue,
    /// What the worker has.
    in_work: Option<Waiting>,
    refused: u64,
}

impl Asking {
    pub(super) fn new(worker: TableWorker) -> Self {
        Self {
            worker,
            queue: TableQueue::default(),
            in_work: None,
            refused: 0,
        }
    }

    /// What the worker did, and what was refused because too many wait.
    pub(super) fn counts(&self) -> WorkerCounts {
        let counts = self.worker.counts();
        WorkerCounts {
            refused: counts.refused + self.refused,
            ..counts
        }
    }

    /// Has a file wait for its turn. False if too many do, which is counted: ask again later.
    #[must_use]
    pub(super) fn ask(&mut self, file: Waiting, now_ns: MonoNs) -> bool {
        let taken = self.queue.push(file, now_ns);
        self.refused += u64::from(!taken);
        taken
    }

    /// How many files wait, that which the worker has included.
    pub(super) fn waiting(&self) -> usize {
        self.queue.len() + usize::from(self.is_at_work())
    }

    /// Whether the worker has a file.
    pub(super) const fn is_at_work(&self) -> bool {
        self.in_work.is_some()
    }

    /// The answer, if there is one.
    pub(super) fn answer(&mut self) -> Option<TableAnswer> {
        let answer = self.worker.poll()?;
        if let Some(file) = self.in_work.take() {
            self.queue.charge(file.owner, answer.took_ns);
        }
        Some(answer)
    }

    /// Gives the worker the next file if it has none. `open` says what became of it. Answers the
    /// files that were dropped.
    pub(super) fn hand_over(
        &mut self,
        now_ns: MonoNs,
        mut open: impl FnMut(ModuleId) -> FileTurn,
    ) -> Vec<(ModuleId, DroppedFile)> {
        let mut dropped = Vec::new();
        while self.in_work.is_none()
            && dropped.len() < MAX_PASSED_OVER
            && let Some(next) = self.queue.next(now_ns)
        {
            let module = next.module;
            match open(module) {
                FileTurn::Open(file) => {
                    if self.worker.request(TableRequest { module, file }) {
                        self.in_work = Some(next);
                    } else {
                        // The thread is gone, and with it all tables to come.
                        dropped.push((module, DroppedFile::Gone));
                    }
                }
                FileTurn::Gone => dropped.push((module, DroppedFile::Gone)),
                FileTurn::Unneeded => dropped.push((module, DroppedFile::Unneeded)),
            }
        }
        dropped
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, File};
    use std::os::unix::fs::MetadataExt as _;
    use std::sync::mpsc;
    use std::time::Duration;

    use crate::processes::module::FileIdentity;
    use crate::sys::clock::monotonic_ns;
    use crate::unwind::worker::UnwindOptions;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn open(module: ModuleId, path: &str) -> FileTurn {
        let file = File::open(path).unwrap();
        let metadata = file.metadata().unwrap();
        let identity = FileIdentity {
            device: metadata.dev(),
            inode: metadata.ino(),
            size_bytes: metadata.size(),
            modified_unix_ns: 0,
        };
        let file = ModuleFile {
            module,
            file,
            identity,
        };
        FileTurn::Open(Arc::new(file))
    }

    /// How often this process has that file open.
    fn times_open(path: &str) -> usize {
        let links = fs::read_dir("/proc/self/fd").unwrap();
        let links = links.filter_map(|link| fs::read_link(link.unwrap().path()).ok());
        links.filter(|link| link.as_os_str() == path).count()
    }

    // Check that of hundreds of files that wait one is open at a time; that those nobody needs any
    // more, and those that are gone, are dropped and named; and that another owner's file comes
    // next, however many wait before it.
    #[test]
    fn one_file_is_open_at_a_time() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("program");
        fs::copy("/proc/self/exe", &path).unwrap();
        let path = path.to_str().unwrap();
        let (waker, rung) = mpsc::channel();
        let worker = TableWorker::spawn(UnwindOptions::default(), None, move || {
            waker.send(()).unwrap();
        });
        let (worker, _thread) = worker.unwrap();
        let mut asking = Asking::new(worker);
        let file = |module, owner| Waiting {
            module: ModuleId(module),
            owner,
            size_bytes: 1 << 20,
        };
        let asked = (0..400).filter(|n| asking.ask(file(*n, 1000), monotonic_ns()));
        assert_eq!(asked.count(), 400);
        assert!(
            asking
                .hand_over(MonoNs::ZERO, |module| open(module, path))
                .is_empty()
        );
        assert!(times_open(path) <= 1);
        assert!(asking.ask(file(700, 0), monotonic_ns()));
        rung.recv_timeout(PATIENCE).unwrap();
        let first = asking.answer().unwrap();
        assert!(first.table.is_ok() && first.took_ns > 0);
        drop(first);
        assert_eq!(times_open(path), 0);
        assert!(
            asking
                .hand_over(MonoNs::ZERO, |module| open(module, path))
                .is_empty()
        );
        rung.recv_timeout(PATIENCE).unwrap();
        assert_eq!(asking.answer().unwrap().module, ModuleId(700));
        let mut dropped = Vec::new();
        loop {
            let more = asking.hand_over(MonoNs::ZERO, |module| match module.0 % 2 {
                0 => FileTurn::Gone,
                _ => FileTurn::Unneeded,
            });
            if more.is_empty() {
                break;
            }
            assert!(more.len() <= MAX_PASSED_OVER);
            dropped.extend(more);
        }
        assert_eq!(dropped.len(), 399);
        let right = |(module, why): &(ModuleId, DroppedFile)| {
            (*why == DroppedFile::Gone) == (module.0 % 2 == 0)
        };
        assert!(dropped.iter().all(right));
        assert!(asking.answer().is_none());
    }
}
