//! Tests of what the server is told while the collector is silent, over a collector that is only a
//! queue.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use tokio::sync::watch;

use super::Live;
use crate::api::problem::Problem;
use crate::api::{BoxFuture, Source as _, TargetsFailure};
use crate::collect::{
    CollectorState, Command, Commander, TableFill, TableReported, TargetsRefused,
};
use crate::config::Config;
use crate::config::targets::Targets;
use crate::profile::Profile;
use crate::profile::limits::Limits;
use crate::stages::Access;
use crate::symbols::lines::finder::{LineFinder, LineOptions, WorkerOptions};
use crate::symbols::symbolizer::{SymbolOptions, Symbolizer};
use crate::sys::heartbeat::Heartbeat;
use crate::sys::limited_child::ChildLimits;
use crate::units::{MonoNs, UnixNs};

/// A backend, the queue of its collector, and who else fills that.
fn live() -> (Live, Receiver<Command>, Commander) {
    let (live, commands, commander, _) = live_with_targets();
    (live, commands, commander)
}

/// The same with the collector's end of what is profiled.
fn live_with_targets() -> (Live, Receiver<Command>, Commander, watch::Sender<Targets>) {
    live_with(None)
}

/// The same beside a thread that is elsewhere.
fn live_with(
    thread: Option<Heartbeat>,
) -> (Live, Receiver<Command>, Commander, watch::Sender<Targets>) {
    let (commander, commands, _bell) = Commander::new().unwrap();
    let symbolizer = Symbolizer::spawn(SymbolOptions { cache_bytes: 0 }).unwrap();
    let lines = LineFinder::spawn(LineOptions {
        cache_bytes: 0,
        worker: WorkerOptions {
            program: PathBuf::new(),
            limits: ChildLimits {
                memory_bytes: 0,
                processor_s: 0,
                time: Duration::ZERO,
                output_bytes: 0,
            },
        },
    })
    .unwrap();
    let (targets, in_force) = watch::channel(Targets::default());
    let access = Access::new(commander.clone(), symbolizer, lines, in_force, thread);
    let live = Live::new(Config::default(), access, Arc::default());
    (live, commands, commander, targets)
}

/// Answers the questions that come, as a collector after so many passes would, until `work` is
/// done.
async fn answering<T>(
    commands: &Receiver<Command>,
    passes: u64,
    work: impl Future<Output = T>,
) -> T {
    answering_with(commands, &CollectorState::made_up(passes), work).await
}

/// Answers them as a collector that is in this state.
async fn answering_with<T>(
    commands: &Receiver<Command>,
    state: &CollectorState,
    work: impl Future<Output = T>,
) -> T {
    let answers = async {
        loop {
            match commands.try_recv() {
                Ok(Command::State { answer }) => drop(answer.send(state.clone())),
                Ok(Command::Snapshot { answer, .. }) => {
                    let profile = Profile::new(Limits::default(), MonoNs::ZERO, UnixNs::ZERO);
                    drop(answer.send(Arc::new(profile.snapshot())));
                }
                Ok(_) => panic!("nobody asks for anything else here"),
                Err(_) => tokio::task::yield_now().await,
            }
        }
    };
    tokio::select! {
        done = work => done,
        () = answers => unreachable!("it answers for ever"),
    }
}

/// Has no room left for questions.
fn fill(commander: &Commander) {
    while commander.send(Command::Stop).is_ok() {}
}

#[tokio::test]
async fn counters_never_fall() {
    // Check that metrics are empty before the first pass, whole after it, and refused rather than
    // empty again when the collector does not answer.
    let (live, commands, commander) = live();
    let samples = |text: String| {
        let line = text
            .lines()
            .find(|line| line.starts_with("profiler_samples_total "));
        line.unwrap().to_owned()
    };
    let before = live.metrics().await.unwrap();
    assert_eq!(samples(before), "profiler_samples_total 0");
    answering(&commands, 1, live.refresh()).await.unwrap();
    let whole = answering(&commands, 1, live.metrics()).await.unwrap();
    assert_eq!(samples(whole), "profiler_samples_total 7");
    fill(&commander);
    let refused = live.metrics().await.unwrap_err();
    assert_eq!(
        refused.to_string(),
        "too many requests wait for the collector"
    );
}

#[tokio::test]
async fn a_silent_collector_is_not_an_unattached_one() {
    // Check that what is missing is said as it is: first the programs, then the pass, then nothing;
    // and where the collector is silent, that, while the status keeps what was known, until it
    // answers again.
    let (live, commands, commander) = live();
    let missing = |live: &Live| live.readiness().unwrap_err().join("; ");
    assert!(missing(&live).contains("not attached yet"));
    answering(&commands, 0, live.refresh()).await.unwrap();
    assert!(missing(&live).contains("not been read yet"));
    answering(&commands, 1, live.refresh()).await.unwrap();
    assert_eq!(live.readiness(), Ok(()));
    fill(&commander);
    assert!(live.refresh().await.is_none());
    assert_eq!(missing(&live), "too many requests wait for the collector");
    assert!(live.status().own_cost.kernel_map_bytes.is_some());
    while commands.try_recv().is_ok() {}
    // A report asks for itself, and is not refused for what another question met.
    answering(&commands, 1, live.snapshot()).await.unwrap();
    answering(&commands, 1, live.refresh()).await.unwrap();
    assert_eq!(live.readiness(), Ok(()));
}

#[tokio::test]
async fn a_processor_without_ticks_is_told() {
    // Check that a processor on which nothing is sampled is among what works less well than it
    // should, for people and for metrics.
    let (live, commands, _commander) = live();
    assert!(live.status().degraded.is_empty());
    answering(&commands, 1, live.refresh()).await.unwrap();
    let degraded = live.status().degraded;
    assert_eq!(degraded.len(), 1);
    assert_eq!(degraded[0].what, "samples on processor 3");
    assert_eq!(degraded[0].why, "it has no timer tick: it came online");
    let metrics = answering(&commands, 1, live.metrics()).await.unwrap();
    assert!(metrics.contains("\nprofiler_degraded_features 1\n"));
}

#[tokio::test]
async fn a_table_that_fills_is_told() {
    // Check that a table that is nearly full is among what works less well than it should, with
    // what happens to what finds no room, and that metrics tell how full each table is, and count
    // it.
    let (live, commands, _commander) = live();
    let frames = TableFill {
        table: "frames",
        holds: "frames",
        used: 950,
        limit: 1_000,
        refused: 3,
        consequence: "what finds none is [unknown] (frames_full)",
    };
    let mut full = CollectorState::made_up(1);
    full.without_ticks.clear();
    full.tables = vec![frames];
    answering_with(&commands, &full, live.refresh())
        .await
        .unwrap();
    assert!(live.status().degraded.is_empty(), "it is not told yet");
    full.tables_reported = vec![TableReported {
        fill: frames,
        refused: 2,
    }];
    answering_with(&commands, &full, live.refresh())
        .await
        .unwrap();
    let degraded = live.status().degraded;
    assert_eq!((degraded.len(), &*degraded[0].what), (1, "room for frames"));
    assert_eq!(
        degraded[0].why,
        "950 of 1000 are in use (95 %), and 2 found no room of late: what finds none is [unknown] (frames_full)"
    );
    let metrics = answering_with(&commands, &full, live.metrics())
        .await
        .unwrap();
    assert!(metrics.contains("\nprofiler_table_used_ratio{table=\"frames\"} 0.95\n"));
    assert!(metrics.contains("\nprofiler_degraded_features 1\n"));
}

#[tokio::test]
async fn a_stuck_thread_is_told() {
    // Check that a thread that is at one piece of work for too long makes the daemon not ready, is
    // among what works less well than it should, and in the metrics, each by its name; and that
    // nothing of it is left once it moves.
    let unwind = Heartbeat::new("unwind", Duration::ZERO);
    let (live, commands, _commander, _targets) = live_with(Some(unwind.clone()));
    answering(&commands, 1, live.refresh()).await.unwrap();
    let piece = unwind.begin("a table");
    let missing = live.readiness().unwrap_err();
    assert_eq!(missing.len(), 1, "{missing:?}");
    assert!(missing[0].starts_with("the thread unwind has been at a table for 0 s"));
    let degraded = live.status().degraded;
    let told = degraded
        .iter()
        .find(|degraded| degraded.what == "thread unwind");
    assert_eq!(told.unwrap().why, missing[0]);
    let metrics = answering(&commands, 1, live.metrics()).await.unwrap();
    assert!(metrics.contains("\nprofiler_degraded_features 2\n"));
    let age = "\nprofiler_thread_heartbeat_age_seconds{thread=\"unwind\"} ";
    let age = metrics.split_once(age).unwrap().1.lines().next().unwrap();
    assert!(age.parse::<f64>().unwrap() > 0.0);
    assert!(metrics.contains("\nprofiler_thread_heartbeat_age_seconds{thread=\"symbols\"} 0\n"));
    drop(piece);
    assert_eq!(live.readiness(), Ok(()));
    assert_eq!(live.status().degraded.len(), 1);
}

#[tokio::test]
async fn the_collector_says_what_is_profiled() {
    // Check that targets are those that the collector has set, in the order in which it did,
    // whoever heard its answer; that what it refuses and what it cannot take now are told apart;
    // and that it can tell when nobody waits any more. What the system fails at is no refusal.
    let (live, commands, commander, in_force) = live_with_targets();
    let of = |pid| Targets::only(vec![pid], Vec::new(), false).unwrap();
    let mut first = live.set_targets(of(1));
    let mut second = live.set_targets(of(2));
    // Both are asked before either is answered, and the first answer is heard last.
    assert!(poll(&mut first).is_pending() && poll(&mut second).is_pending());
    let mut answers = Vec::new();
    while let Ok(Command::SetTargets { targets, answer }) = commands.try_recv() {
        in_force.send_replace(targets.clone());
        answers.push((answer, targets));
    }
    let [(first_answer, one), (second_answer, two)] = answers.try_into().unwrap();
    second_answer.send(Ok(two)).unwrap();
    assert_eq!(second.await.ok(), Some(of(2)));
    first_answer.send(Ok(one)).unwrap();
    assert_eq!(first.await.ok(), Some(of(1)));
    assert_eq!(live.targets(), of(2));
    let mut gone = live.set_targets(of(3));
    assert!(poll(&mut gone).is_pending());
    drop(gone);
    let Ok(Command::SetTargets { answer, .. }) = commands.try_recv() else {
        panic!("the collector was asked");
    };
    assert!(answer.is_closed());
    let mut refused = live.set_targets(of(4));
    assert!(poll(&mut refused).is_pending());
    let Ok(Command::SetTargets { answer, .. }) = commands.try_recv() else {
        panic!("the collector was asked");
    };
    answer.send(Err(TargetsRefused::NoProcess(4))).unwrap();
    let Err(TargetsFailure::Refused(cause)) = refused.await else {
        panic!("there is no such process");
    };
    assert!(matches!(
        cause.downcast_ref(),
        Some(TargetsRefused::NoProcess(4))
    ));
    let mut failed = live.set_targets(of(4));
    assert!(poll(&mut failed).is_pending());
    let Ok(Command::SetTargets { answer, .. }) = commands.try_recv() else {
        panic!("the collector was asked");
    };
    let cause = io::Error::from_raw_os_error(libc::EMFILE);
    answer.send(Err(TargetsRefused::Unlisted(cause))).unwrap();
    let Err(failure @ TargetsFailure::Failed(_)) = failed.await else {
        panic!("the system failed, and the request was allowed");
    };
    assert_eq!(Problem::from(failure).status(), 500);
    fill(&commander);
    let Err(busy @ TargetsFailure::Unavailable(_)) = live.set_targets(of(5)).await else {
        panic!("the collector has too much to do");
    };
    assert_eq!(busy.to_string(), "too many requests wait for the collector");
}

/// Lets a future come as far as it can.
fn poll<T>(future: &mut BoxFuture<'_, T>) -> Poll<T> {
    future
        .as_mut()
        .poll(&mut Context::from_waker(Waker::noop()))
}
