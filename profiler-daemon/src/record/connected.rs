//! Recording over a running daemon: it profiles anyway, so its time is waited for, its whole
//! profile is taken, and the report is made here as if those who were asked for had been recorded
//! alone. Changes nothing of the daemon.

use std::collections::{BTreeMap, BTreeSet};
use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow};

use crate::args::RecordArgs;
use crate::config::duration;
use crate::export::saved::Saved;
use crate::http::Client;
use crate::processes::ids::ProcessKey;
use crate::profile::snapshot::Snapshot;
use crate::report::{ProcessSelector, Scope, Window};

use super::early;
use super::ending::{Left, Signals};
use super::output::Output;
use super::span::{Reading, RecordedSpan, seconds};
use super::target::Recorded;
use super::wanted::OutputRequest;
use super::{finish, progress, write};
use crate::units::{BootNs, MonoNs};

/// How old what the daemon says of this moment may be.
const FRESH: Duration = Duration::from_millis(100);
/// Time after the end in which the daemon hears of it.
const SETTLE: Duration = Duration::from_millis(200);

/// Waits, takes the profile and writes the report. Answers what is left to wait for.
pub(super) async fn record(
    args: &RecordArgs,
    client: &Client,
    wanted: &OutputRequest,
    output: Output,
    signals: &mut Signals,
) -> anyhow::Result<Left> {
    tokio::select! {
        ready = check(client, args) => ready?,
        signal = signals.quit.next() => return Ok(Left::Nothing(signal.exit_code())),
    }
    // The daemon hears of that, and has until the command runs.
    let program = early::map(&args.command);
    let began_at = tokio::select! {
        reading = Reading::take(client) => reading?,
        signal = signals.quit.next() => return Ok(Left::Nothing(signal.exit_code())),
    };
    // Only now: what a command waits before its program begins would be its time.
    let mut recorded = if client.is_on_this_machine() {
        Recorded::new(args)?
    } else {
        Recorded::elsewhere(args)?
    };
    let chosen = ReportSubject::new(args, &recorded);
    let on_terminal = std::io::stderr().is_terminal() && args.command.is_empty();
    let began = Instant::now();
    if let Err(failure) = recorded.begin() {
        progress::say(&failure.sentence);
        return Ok(Left::Nothing(failure.exit_code));
    }
    // It has mapped it itself by now.
    drop(program);
    let length = args.duration.map(Duration::from_nanos);
    let ended = tokio::select! {
        ended = recorded.end(length, signals) => ended?,
        never = progress::wait(began, length, on_terminal) => match never {},
    };
    let recorded_for = began.elapsed();
    if on_terminal {
        progress::clear();
    }
    let report = async {
        // An answer may be from a moment before it was asked for.
        tokio::time::sleep(FRESH).await;
        let ended_at = Reading::take(client).await?;
        // What ended last is told by the side-band a moment later.
        tokio::time::sleep(SETTLE).await;
        let file = client.get("/api/v1/profile").await?;
        let read = tokio::task::spawn_blocking(move || Saved::read(&file)).await;
        let mut saved = read
            .context("reading the profile failed")?
            .with_context(|| format!("the profile of {client} cannot be read"))?;
        let span = RecordedSpan::find(&saved.snapshot, began_at, ended_at);
        let (mut snapshot, scope) = chosen.of(&saved.snapshot, span)?;
        let dropped = span.dropped(&saved.snapshot, &snapshot, began_at);
        if let Some(dropped) = dropped.filter(|_| chosen.may_lack_dropped()) {
            progress::say(&dropped.to_string());
            snapshot = span.without(snapshot, dropped);
        }
        let window = match chosen {
            // All of its life.
            ReportSubject::Command(_) => {
                snapshot = span.begun(snapshot);
                Window::Session
            }
            _ => {
                if span.forgotten_ns > 0 {
                    progress::say(&format!(
                        "the daemon no longer keeps the first {:.1} s: the report is about what came after",
                        seconds(span.forgotten_ns)
                    ));
                }
                span.window(&snapshot)
            }
        };
        saved.snapshot = Arc::new(snapshot);
        write::report(saved, *wanted, scope, window, None).await
    };
    finish(report, output, (args, recorded_for), signals).await?;
    Ok(recorded.left(ended))
}

/// Whether the daemon profiles, and keeps enough for the report. Of a command it keeps the whole
/// session.
async fn check(client: &Client, args: &RecordArgs) -> anyhow::Result<()> {
    client.get("/readyz").await?;
    let status = client.json("/api/v1/status").await?;
    if status.get("replay").is_some_and(|replay| !replay.is_null()) {
        return Err(anyhow!(
            "{client} serves a saved profile: nothing is recorded there"
        ));
    }
    if let Some(length_ns) = args.duration.filter(|_| args.command.is_empty()) {
        let window = duration::format(length_ns);
        client
            .get(&format!("/api/v1/session?window={window}"))
            .await?;
    }
    Ok(())
}

/// Whose time the report is about.
enum ReportSubject {
    Everybody,
    /// The command, from its first instruction on, and what it starts.
    Command(u32),
    Named {
        pids: Vec<u32>,
        comms: Vec<String>,
        children: bool,
    },
}

impl ReportSubject {
    fn new(args: &RecordArgs, recorded: &Recorded) -> Self {
        match recorded.command_pid() {
            Some(pid) => Self::Command(pid),
            None if args.pids.is_empty() && args.comms.is_empty() => Self::Everybody,
            None => Self::Named {
                pids: args.pids.clone(),
                comms: args.comms.clone(),
                children: args.children,
            },
        }
    }

    /// Whether some of those may be among processes that the daemon dropped: who is named by number
    /// is there, or told to be missing.
    fn may_lack_dropped(&self) -> bool {
        match self {
            Self::Everybody => false,
            Self::Command(_) => true,
            Self::Named {
                comms, children, ..
            } => *children || !comms.is_empty(),
        }
    }

    /// The profile of those alone, and what the report is about.
    fn of(&self, snapshot: &Snapshot, span: RecordedSpan) -> anyhow::Result<(Snapshot, Scope)> {
        let (pids, comms, children) = match self {
            Self::Everybody => return Ok((snapshot.clone(), Scope::Session)),
            Self::Command(pid) => (&[*pid][..], &[][..], true),
            Self::Named {
                pids,
                comms,
                children,
            } => (&pids[..], &comms[..], *children),
        };
        let mut keys: BTreeSet<ProcessKey> = BTreeSet::new();
        for pid in pids {
            let newest = snapshot
                .processes()
                .keys()
                .rev()
                .find(|key| key.pid == *pid);
            let newest = newest.ok_or_else(|| {
                if snapshot.was_dropped(*pid, None) {
                    anyhow!("process {pid} has ended, and the daemon no longer keeps it: it keeps the last limits.exited_processes")
                } else {
                    anyhow!("the daemon knows no process {pid}: /api/v1/targets says what it profiles")
                }
            })?;
            keys.insert(*newest);
        }
        for comm in comms {
            let named = snapshot
                .processes()
                .iter()
                .filter(|(_, process)| process.info.comm.to_string() == *comm);
            let before = keys.len();
            keys.extend(named.map(|(key, _)| *key));
            let ended = snapshot.dropped().iter();
            let ended = ended.filter(|(_, ended)| ended.comm.to_string() == *comm);
            keys.extend(ended.map(|(key, _)| *key));
            if keys.len() == before {
                return Err(anyhow!("the daemon knows no process named {comm}"));
            }
        }
        let scope = match (children, keys.first()) {
            (false, Some(one)) if keys.len() == 1 && comms.is_empty() => {
                Scope::Process(ProcessSelector {
                    pid: one.pid,
                    start_ticks: Some(one.start_ticks()),
                })
            }
            _ => Scope::Session,
        };
        if children {
            add_children(snapshot, &mut keys);
        }
        let since_ns = match self {
            // The report is about all of its life.
            Self::Command(_) => MonoNs::ZERO,
            _ => span.since_ns(snapshot),
        };
        Ok((snapshot.only(since_ns, |key| keys.contains(&key)), scope))
    }
}

/// Adds what these processes started, and what that started, as far as those in between are known.
/// A parent's number counts for those that started after it.
fn add_children(snapshot: &Snapshot, keys: &mut BTreeSet<ProcessKey>) {
    let kept = snapshot.processes().iter();
    let kept = kept.map(|(key, process)| (*key, process.info.ppid));
    let ended = snapshot.dropped().iter();
    let known: BTreeMap<ProcessKey, u32> = kept
        .chain(ended.map(|(key, ended)| (*key, ended.ppid)))
        .collect();
    let mut by_start: Vec<(ProcessKey, u32)> =
        known.iter().map(|(key, ppid)| (*key, *ppid)).collect();
    by_start.sort_by_key(|(key, _)| key.start_ns);
    for (key, ppid) in by_start {
        let of_parent = ProcessKey {
            pid: ppid,
            start_ns: BootNs::ZERO,
        }..=ProcessKey {
            pid: ppid,
            start_ns: key.start_ns,
        };
        // The newest of that number when it started.
        let parent = known.range(of_parent).next_back();
        if parent.is_some_and(|(parent, _)| keys.contains(parent)) {
            keys.insert(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Reading, RecordedSpan, ReportSubject, add_children};
    use crate::processes::ids::ProcessKey;
    use crate::profile::input::{CommName, DrainPass, ProcessInfo};
    use crate::profile::snapshot::Snapshot;
    use crate::profile::{Profile, limits::Limits};
    use crate::report::Scope;
    use crate::units::{BootNs, MonoNs, UnixNs};

    fn key(pid: u32, start_ns: u64) -> ProcessKey {
        ProcessKey {
            pid,
            start_ns: BootNs::new(start_ns),
        }
    }

    /// Processes of (number, start, parent, name).
    fn snapshot(processes: &[(u32, u64, u32, &str)]) -> Snapshot {
        let mut profile = Profile::new(Limits::default(), MonoNs::ZERO, UnixNs::ZERO);
        let info = |(pid, start_ns, ppid, comm): &(u32, u64, u32, &str)| ProcessInfo {
            ppid: *ppid,
            ..ProcessInfo::unknown(key(*pid, *start_ns), CommName::new(comm), UnixNs::ZERO)
        };
        profile.apply(DrainPass {
            processes: processes.iter().map(info).collect(),
            ..DrainPass::default()
        });
        profile.snapshot()
    }

    /// All of it.
    fn span(snapshot: &Snapshot) -> RecordedSpan {
        let reading = Reading {
            at_unix_ns: UnixNs::ZERO,
            dropped: 0,
        };
        RecordedSpan::find(snapshot, reading, reading)
    }

    fn kept(chosen: &ReportSubject, snapshot: &Snapshot) -> Vec<u32> {
        let (only, _) = chosen.of(snapshot, span(snapshot)).unwrap();
        only.processes().keys().map(|key| key.pid).collect()
    }

    // Check that children are found through processes that ended, and that one whose parent's
    // number was used before by one that was asked for is none.
    #[test]
    fn children() {
        let all = snapshot(&[
            (10, 1, 1, "make"),
            (11, 2, 10, "sh"),
            (12, 3, 11, "cc"),
            (20, 4, 1, "bash"),
            (10, 5, 1, "other"),
            (13, 6, 10, "of-other"),
        ]);
        let mut keys = [key(10, 1)].into();
        add_children(&all, &mut keys);
        assert_eq!(keys, [key(10, 1), key(11, 2), key(12, 3)].into());
        assert_eq!(kept(&ReportSubject::Command(10), &all), [10, 13]);
    }

    // Check whom numbers and names choose, that one number alone is reported as that process, and
    // that nobody is told.
    #[test]
    fn choices() {
        let all = snapshot(&[(10, 1, 1, "a"), (11, 2, 10, "b"), (12, 3, 1, "b")]);
        let named = |pids: &[u32], comms: &[&str], children| ReportSubject::Named {
            pids: pids.to_vec(),
            comms: comms.iter().map(|comm| (*comm).to_owned()).collect(),
            children,
        };
        assert_eq!(kept(&ReportSubject::Everybody, &all), [10, 11, 12]);
        assert_eq!(kept(&named(&[10], &[], false), &all), [10]);
        assert_eq!(kept(&named(&[10], &[], true), &all), [10, 11]);
        assert_eq!(kept(&named(&[], &["b"], false), &all), [11, 12]);
        assert_eq!(kept(&named(&[10], &["b"], false), &all), [10, 11, 12]);
        let scope = |chosen: &ReportSubject| chosen.of(&all, span(&all)).unwrap().1;
        assert!(matches!(scope(&named(&[10], &[], false)), Scope::Process(one) if one.pid == 10));
        assert_eq!(scope(&named(&[10], &[], true)), Scope::Session);
        assert_eq!(scope(&named(&[], &["a"], false)), Scope::Session);
        for (chosen, part) in [
            (named(&[99], &[], false), "no process 99"),
            (named(&[], &["c"], false), "no process named c"),
        ] {
            let sentence = chosen.of(&all, span(&all)).unwrap_err().to_string();
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
