//! The thread that makes tables: asked with open files, answers with tables or the reason why there
//! is none. Reading files and the disk happens here and nowhere else. A file that is slow, huge or
//! breaks the reader costs its own table only, and no more of the processor than a file of its size
//! has a use for. Whose turn it is, is decided by those who ask.

use std::{
    io,
    os::unix::fs::MetadataExt as _,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{Arc, Mutex, PoisonError, mpsc},
    time::{Duration, Instant},
};

use super::{
    BuildLimits, NoTable, UnwindTable, build_file,
    cache::{CacheCounts, TableCache, TableKey},
};
use crate::{
    elf::build_id::{self, ElfIdentity},
    processes::{
        files::{ModuleFile, only_root_writes},
        module::ModuleId,
    },
    sys::{clock::thread_ns, heap, heartbeat::Heartbeat, own_thread::OwnThread},
};

/// Files that may wait for their tables.
const MAX_WAITING: usize = 16;
/// Answers that may wait to be taken; the thread rests meanwhile.
const MAX_ANSWERS: usize = 16;

/// Longest time that one table may take.
const MAX_TIME: Duration = Duration::from_secs(10);
/// Processor time that a table may take, and what is added for each byte of the file that lies on a
/// disk: real files take about a twentieth of it.
const BASE_PROCESSOR_NS: u64 = 500_000_000;
const PROCESSOR_NS_PER_BYTE: u64 = 100;
/// How much longer it takes at most to notice that it took too long, unless something is wrong.
const UNNOTICED: Duration = Duration::from_secs(50);

/// Quiet time after which memory is given back.
const TIDY_AFTER: Duration = Duration::from_secs(2);

/// How to make tables.
#[derive(Clone, Debug)]
pub struct UnwindOptions {
    /// Bounds of one table.
    pub limits: BuildLimits,
    /// Longest time that one table may take, of a processor's too.
    pub max_time: Duration,
    /// Says that the thread moves.
    pub heartbeat: Heartbeat,
}

impl Default for UnwindOptions {
    fn default() -> Self {
        Self {
            limits: BuildLimits::default(),
            max_time: MAX_TIME,
            heartbeat: Heartbeat::new("unwind", MAX_TIME + UNNOTICED),
        }
    }
}

/// A file that needs a table.
#[derive(Clone, Debug)]
pub struct TableRequest {
    /// Its module.
    pub module: ModuleId,
    /// The open file. Dropped with the answer.
    pub file: Arc<ModuleFile>,
}

/// What became of a request.
#[derive(Clone, Debug)]
pub struct TableAnswer {
    /// The module asked for.
    pub module: ModuleId,
    /// Its table. The reason otherwise: frame pointers are all there is.
    pub table: Result<Arc<UnwindTable>, NoTable>,
    /// Found on disk.
    pub from_disk: bool,
    /// What it took, nanoseconds.
    pub took_ns: u64,
}

/// What happened so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerCounts {
    /// Tables made.
    pub built: u64,
    /// Tables found on disk.
    pub from_disk: u64,
    /// Files whose unwind information could not be used, by reason, in the order of
    /// [`NoTable::ALL`].
    pub none: [u64; NoTable::ALL.len()],
    /// Requests refused because too many waited.
    pub refused: u64,
    /// Time spent, nanoseconds.
    pub busy_ns: u64,
    /// How the disk did.
    pub disk: CacheCounts,
}

/// The way to the thread. It ends when this is gone and all that waited was answered or dropped.
#[derive(Debug)]
pub struct TableWorker {
    requests: mpsc::SyncSender<TableRequest>,
    answers: mpsc::Receiver<TableAnswer>,
    counts: Arc<Mutex<WorkerCounts>>,
}

impl TableWorker {
    /// Starts the thread, which ends once this is gone. `waker` is called on it after each answer.
    ///
    /// # Errors
    ///
    /// No thread could be made.
    pub fn spawn(
        options: UnwindOptions,
        cache: Option<TableCache>,
        waker: impl Fn() + Send + 'static,
    ) -> io::Result<(Self, OwnThread)> {
        let (requests, coming) = mpsc::sync_channel::<TableRequest>(MAX_WAITING);
        let (answer, answers) = mpsc::sync_channel(MAX_ANSWERS);
        let counts = Arc::new(Mutex::new(WorkerCounts::default()));
        let mut worker = Worker {
            options,
            cache,
            counts: Arc::clone(&counts),
        };
        let life = worker.options.heartbeat.clone();
        let work = move || {
            // What building takes is given back once all that came together is built.
            let mut untidy = false;
            loop {
                let request = match coming.recv_timeout(TIDY_AFTER) {
                    Ok(request) => request,
                    Err(mpsc::RecvTimeoutError::Timeout) => {
                        if std::mem::take(&mut untidy) {
                            heap::trim();
                        }
                        continue;
                    }
                    Err(mpsc::RecvTimeoutError::Disconnected) => return,
                };
                if answer.send(worker.answer(request)).is_err() {
                    return;
                }
                waker();
                untidy = true;
            }
        };
        let thread = OwnThread::spawn("unwind", move || life.live(work))?;
        let worker = Self {
            requests,
            answers,
            counts,
        };
        Ok((worker, thread))
    }

    /// Asks for a table. False if too many wait (which is counted) or the thread is gone: ask again
    /// later.
    #[must_use]
    pub fn request(&self, request: TableRequest) -> bool {
        let taken = self.requests.try_send(request).is_ok();
        if !taken {
            self.lock().refused += 1;
        }
        taken
    }

    /// The next answer; `None` if there is none yet.
    #[must_use]
    pub fn poll(&self) -> Option<TableAnswer> {
        self.answers.try_recv().ok()
    }

    /// Waits for the next answer; `None` if none came in that time.
    #[must_use]
    pub fn wait(&self, timeout: Duration) -> Option<TableAnswer> {
        self.answers.recv_timeout(timeout).ok()
    }

    /// What happened so far.
    #[must_use]
    pub fn counts(&self) -> WorkerCounts {
        *self.lock()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, WorkerCounts> {
        self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

struct Worker {
    options: UnwindOptions,
    cache: Option<TableCache>,
    counts: Arc<Mutex<WorkerCounts>>,
}

impl Worker {
    fn answer(&mut self, request: TableRequest) -> TableAnswer {
        let start = Instant::now();
        let _piece = self.options.heartbeat.begin("an unwind table");
        let key = key_to_keep(&request);
        let mut cache = self.cache.as_mut().zip(key);
        let found = cache.as_mut().and_then(|(cache, key)| cache.get(key));
        let from_disk = found.is_some();
        let table = match found {
            Some(table) => Ok(table),
            None => build(&request, &self.options, start),
        };
        if let (Ok(table), false, Some((cache, key))) = (&table, from_disk, &mut cache) {
            cache.put(key, table);
        }
        let took_ns = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
        let mut counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        match &table {
            Ok(_) if from_disk => counts.from_disk += 1,
            Ok(_) => counts.built += 1,
            Err(_) => {}
        }
        if let Some(why) = table
            .as_ref()
            .map_or_else(|why| Some(*why), |table| table.without)
        {
            counts.none[why as usize] += 1;
        }
        counts.busy_ns += took_ns;
        if let Some(cache) = &self.cache {
            counts.disk = cache.counts();
        }
        TableAnswer {
            module: request.module,
            table: table.map(Arc::new),
            from_disk,
            took_ns,
        }
    }
}

fn build(
    request: &TableRequest,
    options: &UnwindOptions,
    start: Instant,
) -> Result<UnwindTable, NoTable> {
    let file = &request.file.file;
    let budget_ns = file.metadata().map_or(0, |metadata| {
        let max_ns = u64::try_from(options.max_time.as_nanos()).unwrap_or(u64::MAX);
        processor_ns(metadata.blocks().saturating_mul(512)).min(max_ns)
    });
    let end_ns = thread_ns().saturating_add(budget_ns);
    let mut keep_going = || start.elapsed() < options.max_time && thread_ns() < end_ns;
    catch_unwind(AssertUnwindSafe(|| {
        build_file(file, &options.limits, &mut keep_going)
    }))
    .unwrap_or(Err(NoTable::Panicked))
}

/// Processor time for the table of a file that has so many bytes on its disk. What a sparse file
/// claims to hold earns it none.
fn processor_ns(held_bytes: u64) -> u64 {
    BASE_PROCESSOR_NS.saturating_add(held_bytes.saturating_mul(PROCESSOR_NS_PER_BYTE))
}

/// What the table is kept under on disk. Only tables of files that nobody but root can write are
/// kept: others could bear the build ID of a file that they are not.
fn key_to_keep(request: &TableRequest) -> Option<TableKey> {
    let metadata = request.file.file.metadata().ok()?;
    if !only_root_writes(&metadata) {
        return None;
    }
    Some(match build_id::of_file(&request.file.file) {
        ElfIdentity::BuildId(build) => TableKey::Build(build),
        _ => TableKey::File(request.file.identity),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::module::FileIdentity;
    use std::fs::File;

    const PATIENCE: Duration = Duration::from_secs(60);

    fn request(module: u64, file: File) -> TableRequest {
        let metadata = file.metadata().unwrap();
        TableRequest {
            module: ModuleId(module),
            file: Arc::new(ModuleFile {
                module: ModuleId(module),
                file,
                identity: FileIdentity {
                    device: metadata.dev(),
                    inode: metadata.ino(),
                    size_bytes: metadata.size(),
                    modified_unix_ns: 0,
                },
            }),
        }
    }

    fn own_libc() -> File {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let line = maps.lines().find(|line| line.contains("/libc.so")).unwrap();
        File::open(line.split_whitespace().nth(5).unwrap()).unwrap()
    }

    // Check that files with unwind information get tables and others reasons, each counted.
    #[test]
    fn answers() {
        let (waker, rung) = mpsc::channel();
        let (worker, _thread) = TableWorker::spawn(UnwindOptions::default(), None, move || {
            waker.send(()).unwrap();
        })
        .unwrap();
        assert!(worker.request(request(7, File::open("/proc/self/exe").unwrap())));
        assert!(worker.request(request(8, tempfile::tempfile().unwrap())));
        rung.recv_timeout(PATIENCE).unwrap();
        rung.recv_timeout(PATIENCE).unwrap();
        let mut answers = [worker.poll().unwrap(), worker.poll().unwrap()];
        answers.sort_by_key(|answer| answer.module);
        let [first, second] = answers;
        assert_eq!(first.module, ModuleId(7));
        assert!(first.table.unwrap().rows.len() > 1000);
        assert_eq!(second.module, ModuleId(8));
        assert_eq!(second.table.unwrap_err(), NoTable::NotElf);
        assert!(worker.poll().is_none());
        let counts = worker.counts();
        assert_eq!(
            (counts.built, counts.none[NoTable::NotElf as usize]),
            (1, 1)
        );
    }

    // Check that the second table of a file of root's comes from the disk, is the same, and that
    // others' files are not kept.
    #[test]
    fn keeps_tables_of_root() {
        let folder = tempfile::tempdir().unwrap();
        let cache = TableCache::open(folder.path(), 1 << 30).unwrap();
        let options = UnwindOptions::default();
        let (worker, _thread) = TableWorker::spawn(options, Some(cache), || {}).unwrap();
        let ask = |file| {
            assert!(worker.request(request(1, file)));
            worker.wait(PATIENCE).unwrap()
        };
        let first = ask(own_libc());
        let second = ask(own_libc());
        assert_eq!((first.from_disk, second.from_disk), (false, true));
        assert!(first.table.unwrap() == second.table.unwrap());
        let mut copy = tempfile::NamedTempFile::new().unwrap();
        io::copy(&mut own_libc(), &mut copy).unwrap();
        let anyone = std::os::unix::fs::PermissionsExt::from_mode(0o666);
        std::fs::set_permissions(copy.path(), anyone).unwrap();
        for _ in 0..2 {
            let answer = ask(File::open(copy.path()).unwrap());
            assert!(answer.table.is_ok() && !answer.from_disk);
        }
        assert_eq!(worker.counts().disk.written, 1);
    }

    // Check that a file of which most is a hole earns no time for it, and a large one does.
    #[test]
    fn time_for_what_is_there() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 40).unwrap();
        let held_bytes = file.metadata().unwrap().blocks() * 512;
        assert!(processor_ns(held_bytes) < 600_000_000);
        assert!(processor_ns(100 << 20) >= 10_000_000_000);
        assert_eq!(processor_ns(u64::MAX), u64::MAX);
    }

    // Check that the thread ends once nobody asks any more, with answers that nobody takes.
    #[tokio::test]
    async fn ends() {
        let (worker, thread) = TableWorker::spawn(UnwindOptions::default(), None, || {}).unwrap();
        assert!(worker.request(request(8, tempfile::tempfile().unwrap())));
        drop(worker);
        assert_eq!(thread.join(PATIENCE).await, Ok(()));
    }

    // Check that a file that takes too long is given up, and that the thread goes on with the next.
    #[test]
    fn gives_up() {
        let options = UnwindOptions {
            max_time: Duration::ZERO,
            ..UnwindOptions::default()
        };
        let (worker, _thread) = TableWorker::spawn(options, None, || {}).unwrap();
        for _ in 0..2 {
            assert!(worker.request(request(1, own_libc())));
            let answer = worker.wait(PATIENCE).unwrap();
            assert_eq!(answer.table.unwrap_err(), NoTable::TooSlow);
        }
    }
}
