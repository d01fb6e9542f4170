//! Questions to the stages, and their answers.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::{oneshot, watch};
use tracing::debug;

use crate::collect::{
    CollectorState, Command, Commander, Gone, MeasuredFunctions, Reply, TargetsRefused,
};
use crate::config::targets::Targets;
use crate::processes::mappings::Place;
use crate::processes::module::ModuleId;
use crate::profile::frames::FrameId;
use crate::profile::snapshot::Snapshot;
use crate::report::names::{Lines, Names};
use crate::report::{caller_frames, caller_name};
use crate::symbols::lines::finder::{LineCounts, LineFinder};
use crate::symbols::names::{FunctionName, Named, Unnamed};
use crate::symbols::{
    request::Request,
    symbolizer::{SymbolCounts, Symbolizer},
};
use crate::sys::heartbeat::{Heartbeat, Heartbeats};

/// How long a question to the collector may take.
const PATIENCE: Duration = Duration::from_secs(8);

/// Why there is no answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Unanswered {
    /// The collector does not take the question.
    #[error(transparent)]
    Refused(#[from] Gone),
    /// The collector ended before it answered.
    #[error("the collector has stopped")]
    Stopped,
    /// It takes too long.
    #[error("the collector did not answer within {0:?}")]
    Late(Duration),
}

/// Asks the collector's thread and those that find names and lines. Cheap to clone.
#[derive(Clone)]
pub struct Access {
    commander: Commander,
    symbolizer: Symbolizer,
    lines: LineFinder,
    targets: watch::Receiver<Targets>,
    heartbeats: Heartbeats,
}

impl Access {
    /// `others`: the heartbeats of threads beside those that find names and lines.
    pub(crate) fn new(
        commander: Commander,
        symbolizer: Symbolizer,
        lines: LineFinder,
        targets: watch::Receiver<Targets>,
        others: impl IntoIterator<Item = Heartbeat>,
    ) -> Self {
        let own = [symbolizer.heartbeat(), lines.heartbeat()];
        Self {
            heartbeats: others.into_iter().chain(own).collect(),
            commander,
            symbolizer,
            lines,
            targets,
        }
    }

    /// Has the threads that find names and lines end, and waits for that no longer than `within`.
    pub(super) async fn end_finders(&self, within: Duration) {
        let (names, lines) = tokio::join!(self.symbolizer.end(within), self.lines.end(within));
        for (thread, ended) in [("symbols", names), ("lines", lines)] {
            if let Err(error) = ended {
                debug!("the thread {thread} is left alone: {error}");
            }
        }
    }

    /// Hands over a command that has no answer. Nothing happens where the collector is gone.
    pub(super) fn tell(&self, command: Command) {
        self.commander.send(command).ok();
    }

    /// Asks the collector. What is asked is not done if nobody waits any more when its turn comes.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn ask<T: Send + 'static>(
        &self,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Unanswered> {
        self.ask_within(PATIENCE, command).await
    }

    /// The same, of what may take longer.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn ask_within<T: Send + 'static>(
        &self,
        patience: Duration,
        command: impl FnOnce(Reply<T>) -> Command,
    ) -> Result<T, Unanswered> {
        let (answer, receiver) = oneshot::channel();
        self.commander.send(command(answer))?;
        match tokio::time::timeout(patience, receiver).await {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(_)) => Err(Unanswered::Stopped),
            Err(_) => Err(Unanswered::Late(patience)),
        }
    }

    /// How the collector is.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn state(&self) -> Result<CollectorState, Unanswered> {
        self.ask(|answer| Command::State { answer }).await
    }

    /// The profile as of a pass that is not older than this, in nanoseconds.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn snapshot(&self, max_age_ns: u64) -> Result<Arc<Snapshot>, Unanswered> {
        self.ask(|answer| Command::Snapshot { max_age_ns, answer })
            .await
    }

    /// Replaces what is profiled, and answers it. Threads that sleep are evaluated at once, so all
    /// of it counts from the answer on.
    ///
    /// # Errors
    /// [`Unanswered`]; within, why they cannot be set.
    pub async fn set_targets(
        &self,
        targets: Targets,
    ) -> Result<Result<Targets, TargetsRefused>, Unanswered> {
        self.ask(|answer| Command::SetTargets { targets, answer })
            .await
    }

    /// What is profiled.
    #[must_use]
    pub fn targets(&self) -> Targets {
        self.targets.borrow().clone()
    }

    /// Whether the threads of the stages move.
    #[must_use]
    pub fn heartbeats(&self) -> &Heartbeats {
        &self.heartbeats
    }

    /// How finding names went.
    #[must_use]
    pub fn symbol_counts(&self) -> SymbolCounts {
        self.symbolizer.counts()
    }

    /// How finding lines went.
    #[must_use]
    pub fn line_counts(&self) -> LineCounts {
        self.lines.counts()
    }

    /// The names of frames of a snapshot, as far as they are found within `patience`. The others
    /// are unknown.
    pub async fn names(
        &self,
        snapshot: Arc<Snapshot>,
        frames: Vec<FrameId>,
        patience: Duration,
    ) -> Arc<dyn Names + Send + Sync> {
        let places = frames.iter().map(|id| place_of(&snapshot, *id));
        let requests = self.requests(&snapshot, places.collect()).await;
        let symbolizer = self.symbolizer.clone();
        // The thread that finds names may be busy: it is waited for on a thread made for waiting.
        let names = tokio::task::spawn_blocking(move || symbolizer.names(requests, patience))
            .await
            .unwrap_or_default();
        Arc::new(FrameNames::new(&frames, names))
    }

    /// What tells the function and the file of each caller of measured functions, as far as names
    /// are found within `patience`.
    ///
    /// # Errors
    /// [`Unanswered`].
    pub async fn caller_names(
        &self,
        measured: &MeasuredFunctions,
        patience: Duration,
    ) -> Result<impl Fn(FrameId) -> (String, String) + use<>, Unanswered> {
        let snapshot = self.snapshot(u64::MAX).await?;
        let frames = caller_frames(measured);
        let names = self.names(Arc::clone(&snapshot), frames, patience).await;
        Ok(move |frame| caller_name(&snapshot, &*names, frame))
    }

    /// What debug information says of frames of a snapshot, those that matter most first, as far as
    /// it is known within `patience`.
    pub async fn lines(
        &self,
        snapshot: Arc<Snapshot>,
        frames: Vec<FrameId>,
        patience: Duration,
    ) -> Arc<dyn Lines + Send + Sync> {
        let places = frames.into_iter().map(|id| place_of(&snapshot, id));
        let requests = self.requests(&snapshot, places.collect()).await;
        let lines = self.lines.clone();
        let table = tokio::task::spawn_blocking(move || lines.table(requests, patience)).await;
        Arc::new(table.unwrap_or_default())
    }

    /// Places with what is needed to find out about them. Without the files there are no names and
    /// lines, but still a report.
    async fn requests(&self, snapshot: &Snapshot, places: Vec<Place>) -> Vec<Request> {
        let modules: BTreeSet<ModuleId> = places.iter().map(|place| place.module).collect();
        let wanted = modules.iter().copied().collect();
        let files = self
            .ask(|answer| Command::Files {
                modules: wanted,
                answer,
            })
            .await
            .unwrap_or_default();
        let modules: HashMap<ModuleId, _> = modules
            .into_iter()
            .map(|id| (id, snapshot.modules().share(id)))
            .collect();
        let request = |place: Place| {
            let open = files.get(&place.module);
            Request {
                place,
                module: Arc::clone(&modules[&place.module]),
                file: open.map(|open| Arc::clone(&open.file)),
                seen: open.and_then(|open| open.seen.clone()),
            }
        };
        places.into_iter().map(request).collect()
    }
}

fn place_of(snapshot: &Snapshot, id: FrameId) -> Place {
    let frame = snapshot.frame(id);
    Place {
        module: frame.module,
        offset: frame.offset,
    }
}

/// Names by frame.
struct FrameNames {
    /// Of each frame which of the names it has, counted from one; 0 = it was not asked for.
    of_frames: Vec<u32>,
    names: Vec<Named>,
    unknown: FunctionName,
}

impl FrameNames {
    /// The first name is that of the first frame, and so on.
    fn new(frames: &[FrameId], names: Vec<Named>) -> Self {
        let len = frames.iter().map(|frame| frame.0 as usize + 1).max();
        let mut of_frames = vec![0; len.unwrap_or_default()];
        for ((frame, number), _) in frames.iter().zip(1..).zip(&names) {
            of_frames[frame.0 as usize] = number;
        }
        Self {
            of_frames,
            names,
            unknown: FunctionName::unknown(),
        }
    }

    fn named(&self, frame: FrameId) -> Option<&Named> {
        let number = *self.of_frames.get(frame.0 as usize)? as usize;
        self.names.get(number.checked_sub(1)?)
    }
}

impl Names for FrameNames {
    fn function(&self, frame: FrameId) -> &FunctionName {
        let named = self.named(frame).map(|named| &*named.function);
        named.unwrap_or(&self.unknown)
    }

    fn unnamed(&self, frame: FrameId) -> Option<Unnamed> {
        self.named(frame).and_then(|named| named.reason)
    }
}
