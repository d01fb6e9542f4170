//! Instrumentations that run by themselves: what they mean is looked for in what processes have
//! mapped, now and as long as they run.

use std::sync::Arc;
use std::time::Duration;

use thiserror::Error;
use tokio::sync::Semaphore;
use tracing::{debug, warn};

use super::access::{Access, Unanswered};
use super::choosing::{Exits, NotChosen};
use super::looking::Looking;
use super::spanning::{Followed, Missing};
use crate::collect::{
    Command, InstrumentationCommand, InstrumentationError, InstrumentationState, MeasuredFunction,
    MeasuredFunctions, MoreFunctions, Plan, Stage, Untold, planned,
};
use crate::config::targets::Targets;
use crate::symbols::chosen::Pattern;
use crate::symbols::spans::SpanEndpoint;
use crate::sys::clock::{monotonic_ns, unix_ns};

/// Time between two checks who has mapped what.
const POLL: Duration = Duration::from_millis(200);
/// Processes that are examined at a time; others the next time.
const MAX_EXAMINED: usize = 256;
/// Processor time that choosing the functions of one request may take, and later each check,
/// nanoseconds; choosing its USDT points and spans may take as much. Files that are not looked
/// through by then are those of the next check.
const BUDGET_NS: u64 = 2_000_000_000;
/// How long a request waits for its functions. What hangs longer keeps its turn: others are refused
/// meanwhile, and the daemon is not held up.
const PATIENCE: Duration = Duration::from_secs(6);

/// What is asked for.
#[derive(Clone, Debug)]
pub struct InstrumentationRequest {
    /// What whoever asks calls it; may be empty.
    pub name: String,
    /// The functions.
    pub patterns: Vec<Pattern>,
    /// The USDT points and spans.
    pub followed: Followed,
    /// Whether it is told where functions are called from.
    pub callers: bool,
    /// Of whom.
    pub whom: Targets,
    /// How the ends of calls are found.
    pub exits: Exits,
    /// How long, nanoseconds.
    pub length_ns: u64,
    /// What probes may take of one processor from a process.
    pub budget: f64,
}

/// Why nothing was begun.
#[derive(Debug, Error)]
pub enum NotBegun {
    /// Its functions cannot be chosen.
    #[error(transparent)]
    NotChosen(#[from] NotChosen),
    /// A pattern means nothing.
    #[error(
        "{0}: there is no such function in the symbols of that file: name it as linkers write it or as it reads, * stands for any text, or give MODULE:+0x1234 for an address"
    )]
    Unknown(String),
    /// The same of a USDT point.
    #[error(
        "{0}: there is no such USDT point in that file: `readelf -n FILE` shows those that there are (stapsdt), and * stands for any text"
    )]
    NoPoint(String),
    /// Somebody else's functions are being chosen.
    #[error("functions of another request are being chosen: ask again in a moment")]
    Busy,
    /// It takes too long.
    #[error(
        "looking for the functions took longer than {PATIENCE:?}: name fewer processes or files"
    )]
    Late,
    /// It cannot be.
    #[error(transparent)]
    Refused(#[from] InstrumentationError),
    /// The collector does not answer.
    #[error(transparent)]
    Unanswered(#[from] Unanswered),
}

/// One at a time chooses functions.
#[derive(Clone)]
pub struct Turns(Arc<Semaphore>);

impl Default for Turns {
    fn default() -> Self {
        Self(Arc::new(Semaphore::new(1)))
    }
}

/// Everything that is meant by its file is in it, if that was looked through, and no file that was
/// named itself is of no use.
fn check(looking: &mut Looking) -> Result<(), NotBegun> {
    if let Some(why) = looking.take_failure() {
        return Err(why.into());
    }
    if let Some(pattern) = looking.functions().missing_in_their_files().first() {
        return Err(NotBegun::Unknown(pattern.text()));
    }
    match looking.spans().missing_in_their_files().next() {
        Some(missing @ Missing::End(_, SpanEndpoint::Function(_))) => {
            Err(NotBegun::Unknown(missing.text()))
        }
        Some(missing) => Err(NotBegun::NoPoint(missing.text())),
        None => Ok(()),
    }
}

/// Says what an instrumentation would be, and attaches nothing.
///
/// # Errors
/// [`NotBegun`].
pub async fn preview(
    access: &Access,
    turns: &Turns,
    wanted: InstrumentationRequest,
) -> Result<InstrumentationState, NotBegun> {
    let whom = wanted.whom.clone();
    let processes = meant(access, &whom).await?;
    let (looking, more) = choose(turns, &wanted, &processes).await?;
    let goroutines = more.functions.iter().any(|plan| plan.goroutines);
    let ask =
        |answer| Command::Instrumentation(InstrumentationCommand::Costs { goroutines, answer });
    let costs = access.ask(ask).await??;
    let now_ns = monotonic_ns();
    let mut items = looking.spans().spans();
    items.extend(more.items);
    let functions = more.functions.into_iter().map(|plan| MeasuredFunction {
        plan: Arc::new(plan),
        attached_ns: now_ns,
        gave_up: None,
        unseen: None,
        calls: Default::default(),
        callers: Default::default(),
    });
    Ok(InstrumentationState {
        id: 0,
        name: wanted.name,
        whom,
        stage: Stage::Waiting,
        began_ns: now_ns,
        began_unix_ns: unix_ns(),
        until_ns: None,
        budget: wanted.budget,
        processes: processes.len(),
        points: 0,
        refused: more.refused,
        missing: more.missing,
        tried: Vec::new(),
        trouble: None,
        measured: MeasuredFunctions {
            functions: functions.collect(),
            items: planned(&items, now_ns),
            costs,
        },
    })
}

/// Begins an instrumentation, and has it followed as long as it runs: until its number is dropped
/// without that it was told, or this is, before it is done.
///
/// # Errors
/// [`NotBegun`]; nothing is then attached.
pub async fn begin(
    access: &Access,
    turns: &Turns,
    wanted: InstrumentationRequest,
) -> Result<(InstrumentationState, Untold), NotBegun> {
    let processes = meant(access, &wanted.whom).await?;
    let (looking, more) = choose(turns, &wanted, &processes).await?;
    let mut items = looking.spans().spans();
    items.extend(more.items);
    let plan = Plan {
        name: wanted.name,
        whom: wanted.whom,
        functions: more.functions,
        refused: more.refused,
        items,
        missing: more.missing,
        callers: wanted.callers,
        budget: wanted.budget,
        length_ns: Some(wanted.length_ns),
        trial: true,
    };
    let start = |answer| Command::Instrumentation(InstrumentationCommand::Start { plan, answer });
    let begun = access.ask(start).await??;
    let id = begun.id();
    tokio::spawn(follow(access.clone(), turns.clone(), id, looking));
    let ask = |answer| Command::Instrumentation(InstrumentationCommand::One { id, answer });
    let state = access.ask(ask).await?;
    Ok((state.ok_or(InstrumentationError::Over)?, begun))
}

async fn meant(access: &Access, whom: &Targets) -> Result<Vec<(u32, u64)>, NotBegun> {
    let whom = whom.clone();
    let ask = |answer| Command::Instrumentation(InstrumentationCommand::Meant { whom, answer });
    Ok(access.ask(ask).await??)
}

/// What is meant in what these processes have mapped.
async fn choose(
    turns: &Turns,
    wanted: &InstrumentationRequest,
    processes: &[(u32, u64)],
) -> Result<(Looking, MoreFunctions), NotBegun> {
    let turn = Arc::clone(&turns.0);
    let turn = turn.try_acquire_owned().map_err(|_| NotBegun::Busy)?;
    let mut looking = Looking::new(
        wanted.patterns.clone(),
        wanted.exits,
        wanted.followed.clone(),
        BUDGET_NS,
    );
    let processes = processes.to_vec();
    let work = tokio::task::spawn_blocking(move || {
        // Kept to the end of the work, whoever waits for it.
        let _turn = turn;
        let more = looking.processes(&processes, usize::MAX);
        (looking, more)
    });
    let done = tokio::time::timeout(PATIENCE, work).await;
    let (mut looking, more) = done
        .map_err(|_| NotBegun::Late)?
        .map_err(|_| NotBegun::Late)?;
    check(&mut looking)?;
    Ok((looking, more))
}

/// Has an instrumentation measure functions, and follow USDT points and spans, of files that its
/// processes map later, as long as it runs.
async fn follow(access: Access, turns: Turns, id: u32, mut looking: Looking) {
    let mut missing = looking.missing();
    loop {
        tokio::time::sleep(POLL).await;
        let ask =
            |answer| Command::Instrumentation(InstrumentationCommand::Processes { id, answer });
        let processes = match access.ask(ask).await {
            Ok(Some(processes)) => processes,
            Ok(None) | Err(Unanswered::Stopped | Unanswered::Refused(_)) => return,
            Err(Unanswered::Late(_)) => continue,
        };
        if !looking.is_new(&processes) {
            continue;
        }
        let Ok(turn) = Arc::clone(&turns.0).acquire_owned().await else {
            return;
        };
        let work = tokio::task::spawn_blocking(move || {
            let _turn = turn;
            let more = looking.processes(&processes, MAX_EXAMINED);
            (looking, more)
        });
        let Ok(done) = work.await else {
            warn!("instrumentation {id} is not followed any more: looking for functions failed");
            return;
        };
        let more;
        (looking, more) = done;
        let is_nothing =
            more.functions.is_empty() && more.refused.is_empty() && more.items.is_empty();
        if is_nothing && more.missing == missing {
            continue;
        }
        missing.clone_from(&more.missing);
        let ask =
            |answer| Command::Instrumentation(InstrumentationCommand::More { id, more, answer });
        match access.ask(ask).await {
            Ok(Ok(())) => {}
            Ok(Err(InstrumentationError::Over)) => return,
            Ok(Err(error)) => warn!("instrumentation {id} measures nothing that is new: {error}"),
            Err(error) => debug!("instrumentation {id}: {error}"),
        }
    }
}
