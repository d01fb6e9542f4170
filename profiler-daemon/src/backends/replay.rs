//! A saved profile as the server sees it: it answers every report as on the day it was saved, but
//! for lines, which are not saved, and nothing about a kernel.

use std::fs::File;
use std::io::Read as _;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, anyhow};

use crate::api::{
    BoxFuture, ReplayOf, SessionFailure, Source, Status, TargetsFailure, Unavailable,
};
use crate::config::targets::Targets;
use crate::export::saved::{Saved, SavedNames};
use crate::processes::mappings::Place;
use crate::profile::frames::{Frame, FrameId};
use crate::profile::sessions::{SessionChange, SessionChanged};
use crate::profile::snapshot::Snapshot;
use crate::report::names::{Lines, Names};
use crate::report::rfc3339;
use crate::symbols::lines::{Code, LineTable, NoLine};

/// The largest file that is read, bytes.
const MAX_FILE_BYTES: u64 = 256 << 20;

/// See the module.
pub struct Replay {
    snapshot: Arc<Snapshot>,
    names: Arc<SavedNames>,
    status: Status,
    targets: Targets,
    replay: ReplayOf,
    sampling_period_ns: u64,
}

impl Replay {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or holds no whole profile.
    pub fn open(path: &Path) -> anyhow::Result<Self> {
        let cannot = || format!("cannot replay {}", path.display());
        let bytes = read(path).with_context(cannot)?;
        let saved = Saved::read(&bytes).with_context(cannot)?;
        drop(bytes);
        let name = path.file_name().unwrap_or(path.as_os_str());
        Self::of(saved, &name.to_string_lossy()).with_context(cannot)
    }

    fn of(saved: Saved, name: &str) -> anyhow::Result<Self> {
        let status: Status =
            serde_json::from_str(&saved.status).context("how the daemon was cannot be read")?;
        let targets =
            serde_json::from_str(&saved.targets).context("what was profiled cannot be read")?;
        let replay = ReplayOf {
            file: name.to_owned(),
            saved_at: rfc3339(saved.snapshot.as_of_unix_ns()),
        };
        Ok(Self {
            status: Status {
                replay: Some(replay.clone()),
                ..status
            },
            targets,
            replay,
            sampling_period_ns: saved.sampling_period_ns,
            names: Arc::new(saved.names),
            snapshot: saved.snapshot,
        })
    }

    /// Time between two samples of one processor when it was recorded, nanoseconds.
    #[must_use]
    pub fn sampling_period_ns(&self) -> u64 {
        self.sampling_period_ns
    }

    /// What is replayed.
    #[must_use]
    pub fn about(&self) -> &ReplayOf {
        &self.replay
    }
}

/// All of a file.
fn read(path: &Path) -> anyhow::Result<Vec<u8>> {
    // A pipe would be waited for.
    if !path.metadata()?.is_file() {
        return Err(anyhow!("it is no plain file"));
    }
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)?;
    if bytes.len() as u64 > MAX_FILE_BYTES {
        return Err(anyhow!("it is larger than {MAX_FILE_BYTES} bytes"));
    }
    Ok(bytes)
}

/// What can be said of a place without the files that say lines: these are elsewhere.
fn without_files(snapshot: &Snapshot, frame: FrameId) -> (Place, Code) {
    let Frame { module, offset } = snapshot.frame(frame);
    let kind = snapshot.module(module).kind;
    let not_saved = || Code {
        address: None,
        steps: Err(NoLine::NotSaved),
    };
    let code = Code::without_file(kind, offset).unwrap_or_else(not_saved);
    (Place { module, offset }, code)
}

impl Source for Replay {
    fn snapshot(&self) -> BoxFuture<'_, Result<Arc<Snapshot>, Unavailable>> {
        Box::pin(std::future::ready(Ok(Arc::clone(&self.snapshot))))
    }

    fn names(
        &self,
        _snapshot: Arc<Snapshot>,
        _frames: Vec<FrameId>,
    ) -> BoxFuture<'_, Arc<dyn Names + Send + Sync>> {
        let names: Arc<dyn Names + Send + Sync> = Arc::<SavedNames>::clone(&self.names);
        Box::pin(std::future::ready(names))
    }

    fn lines(
        &self,
        snapshot: Arc<Snapshot>,
        frames: Vec<FrameId>,
        _patience: Duration,
    ) -> BoxFuture<'_, Arc<dyn Lines + Send + Sync>> {
        let known = frames.iter().map(|frame| without_files(&snapshot, *frame));
        let lines: Arc<dyn Lines + Send + Sync> = Arc::new(known.collect::<LineTable>());
        Box::pin(std::future::ready(lines))
    }

    fn status(&self) -> Status {
        self.status.clone()
    }

    fn readiness(&self) -> Result<(), Vec<String>> {
        Ok(())
    }

    fn targets(&self) -> Targets {
        self.targets.clone()
    }

    fn set_targets(&self, _targets: Targets) -> BoxFuture<'_, Result<Targets, TargetsFailure>> {
        let refused = TargetsFailure::Refused(self.replay.to_string().into());
        Box::pin(std::future::ready(Err(refused)))
    }

    fn change_session(
        &self,
        _change: SessionChange,
    ) -> BoxFuture<'_, Result<(SessionChanged, Arc<Snapshot>), SessionFailure>> {
        let refused = SessionFailure::Unavailable(Unavailable(self.replay.to_string().into()));
        Box::pin(std::future::ready(Err(refused)))
    }

    fn metrics(&self) -> BoxFuture<'_, Result<String, Unavailable>> {
        Box::pin(std::future::ready(Err(Unavailable(
            self.replay.to_string().into(),
        ))))
    }

    fn replay(&self) -> Option<&ReplayOf> {
        Some(&self.replay)
    }
}
