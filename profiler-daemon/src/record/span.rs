//! The time of a recording by the clock of the daemon that it is made over, and what that daemon no
//! longer keeps of it.

use std::fmt;
use std::time::Duration;

use anyhow::anyhow;

use crate::http::Client;
use crate::profile::snapshot::Snapshot;
use crate::report::{Moment, Window};
use crate::units::{MonoNs, UnixNs};

/// What a daemon says when it is asked how far it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reading {
    /// When it read the kernel, nanoseconds since 1970.
    pub(super) at_unix_ns: UnixNs,
    /// Processes that it had dropped by then.
    pub(super) dropped: u64,
}

impl Reading {
    /// Asks for it. The kernel is read then, or was not long before.
    ///
    /// # Errors
    /// The daemon does not answer, or not as daemons do.
    pub(super) async fn take(client: &Client) -> anyhow::Result<Self> {
        let session = client.json("/api/v1/session").await?;
        let read = || {
            let at = humantime::parse_rfc3339(session.get("as_of")?.as_str()?).ok()?;
            let at = at.duration_since(std::time::UNIX_EPOCH).ok()?;
            Some(Self {
                at_unix_ns: UnixNs::new(u64::try_from(at.as_nanos()).ok()?),
                dropped: session.pointer("/retired/processes")?.as_u64()?,
            })
        };
        read().ok_or_else(|| anyhow!("{client} does not say when it read the kernel"))
    }
}

/// Where a recording lies in a profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RecordedSpan {
    /// Its begin, or since when all is kept, monotonic nanoseconds.
    from_ns: MonoNs,
    /// Its end; `None` is that of the profile.
    to_ns: Option<MonoNs>,
    /// How much of its begin is no longer kept, nanoseconds.
    pub(super) forgotten_ns: u64,
}

/// Processes that the daemon dropped while it was recorded, of which nobody knows any more whose
/// they were.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct DroppedProcesses {
    /// How many: some of them may have ended before the recording began.
    pub(super) processes: u64,
    /// What they have of the recording's time, as far as that is kept, nanoseconds.
    pub(super) elapsed_ns: u64,
}

impl fmt::Display for DroppedProcesses {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{} processes that ended, with {:.1} s of this time, were no longer kept by the daemon (setting limits.exited_processes): \
             those that were asked for, and what they started, are missing from the report",
            self.processes,
            seconds(self.elapsed_ns)
        )
    }
}

/// Nanoseconds as seconds, for sentences.
pub(super) fn seconds(ns: u64) -> f64 {
    Duration::from_nanos(ns).as_secs_f64()
}

impl RecordedSpan {
    /// Finds what lies between two readings.
    pub(super) fn find(snapshot: &Snapshot, began: Reading, ended: Reading) -> Self {
        let began_ns = moment_ns(snapshot, began.at_unix_ns);
        let ended_ns = moment_ns(snapshot, ended.at_unix_ns);
        let from_ns = began_ns.max(snapshot.kept_since_ns());
        Self {
            from_ns,
            to_ns: (from_ns < ended_ns && ended_ns < snapshot.now_ns()).then_some(ended_ns),
            forgotten_ns: from_ns - began_ns,
        }
    }

    /// The part of a report that is about it, which rounds it outward to pieces of the recent past.
    pub(super) fn window(self, snapshot: &Snapshot) -> Window {
        let ago = |at_ns| Moment::Ago {
            ns: snapshot.now_ns().saturating_since(at_ns),
        };
        Window::Between {
            from: ago(self.from_ns),
            to: self.to_ns.map(ago),
        }
    }

    /// The profile as if the session had begun with it.
    pub(super) fn begun(self, snapshot: Snapshot) -> Snapshot {
        if self.forgotten_ns > 0 {
            return snapshot;
        }
        snapshot.begun(self.from_ns)
    }

    /// When it begins in a report.
    pub(super) fn since_ns(self, snapshot: &Snapshot) -> MonoNs {
        let between = snapshot.between(self.from_ns, self.to_ns);
        between.map_or(self.from_ns, |coverage| coverage.from_ns)
    }

    /// What was dropped of it and is not in the part of the profile that is shown; nothing where
    /// all that was dropped had ended before.
    pub(super) fn dropped(
        self,
        snapshot: &Snapshot,
        shown: &Snapshot,
        began: Reading,
    ) -> Option<DroppedProcesses> {
        let elapsed_ns = |of: &Snapshot| of.retired_ns(self.from_ns, self.to_ns);
        let dropped = DroppedProcesses {
            processes: (snapshot.ended().saturating_sub(began.dropped))
                .saturating_sub(shown.ended()),
            elapsed_ns: elapsed_ns(snapshot).saturating_sub(elapsed_ns(shown)),
        };
        let is_of_it = dropped.elapsed_ns > 0 || self.forgotten_ns > 0;
        (dropped.processes > 0 && is_of_it).then_some(dropped)
    }

    /// The profile with what was dropped among its losses.
    pub(super) fn without(self, snapshot: Snapshot, dropped: DroppedProcesses) -> Snapshot {
        snapshot
            .with_loss(self.from_ns, "dropped_processes", dropped.processes)
            .with_loss(self.from_ns, "dropped_ns", dropped.elapsed_ns)
    }
}

/// A moment at which the kernel was read, by the monotonic clock: that of this very reading where
/// it still is a border, since the clock of the day may have been set.
fn moment_ns(snapshot: &Snapshot, unix_ns: UnixNs) -> MonoNs {
    let mut borders = snapshot.borders(MonoNs::ZERO, MonoNs::MAX);
    let border = borders.find(|(_, at_unix_ns)| *at_unix_ns == unix_ns);
    border.map_or_else(
        || {
            let ago_ns = snapshot.as_of_unix_ns().saturating_since(unix_ns);
            snapshot.now_ns().saturating_sub(ago_ns)
        },
        |(at_ns, _)| at_ns,
    )
}

#[cfg(test)]
mod tests {
    use super::{DroppedProcesses, Reading, RecordedSpan};
    use crate::processes::ids::{ProcessKey, ThreadKey};
    use crate::profile::frames::FrameId;
    use crate::profile::input::{CommName, DrainPass, ProcessInfo, ThreadState, ThreadUpdate};
    use crate::profile::snapshot::Snapshot;
    use crate::profile::{Profile, limits::Limits};
    use crate::report::names::Names;
    use crate::report::{ViewQuery, session};
    use crate::symbols::names::FunctionName;
    use crate::units::{BootNs, MonoNs, UnixNs};

    const SECOND_NS: u64 = 1_000_000_000;
    /// When the session began by the clock of the day; it is set an hour back after ten seconds.
    const BEGAN_UNIX_NS: u64 = 1_700_000_000 * SECOND_NS;

    /// There are no stacks here, so nobody asks.
    struct NoNames;

    impl Names for NoNames {
        fn function(&self, frame: FrameId) -> &FunctionName {
            panic!("{frame:?} is on no stack")
        }
    }

    fn unix_ns(second: u64) -> u64 {
        let set_back = if second > 10 { 3_600 * SECOND_NS } else { 0 };
        BEGAN_UNIX_NS + second * SECOND_NS - set_back
    }

    fn reading(second: u64) -> Reading {
        Reading {
            at_unix_ns: UnixNs::new(unix_ns(second)),
            dropped: 0,
        }
    }

    /// Twenty seconds of a process that is dropped soon after it ended in the fifth.
    fn snapshot(recent_past_ns: u64) -> Snapshot {
        let limits = Limits {
            exited_processes: 0,
            recent_past_ns,
            ..Limits::default()
        };
        let mut profile = Profile::new(limits, MonoNs::ZERO, UnixNs::new(BEGAN_UNIX_NS));
        let process = ProcessKey {
            pid: 10,
            start_ns: BootNs::ZERO,
        };
        for second in 1..=20 {
            let exited = (second >= 5).then(|| unix_ns(5));
            let info = ProcessInfo {
                exited_at_unix_ns: exited.map(UnixNs::new),
                ..ProcessInfo::unknown(process, CommName::new("cc"), UnixNs::ZERO)
            };
            let thread = ThreadUpdate {
                thread: ThreadKey {
                    tid: 10,
                    start_ns: BootNs::ZERO,
                },
                process,
                comm: CommName::new("cc"),
                state: if exited.is_some() {
                    ThreadState::Exited
                } else {
                    ThreadState::Running
                },
                first_event_ns: MonoNs::ZERO,
                last_event_ns: MonoNs::new(second * SECOND_NS),
                unobserved_ns: 0,
                classes: [second * SECOND_NS, 0, 0, 0, 0],
                kinds: [second * SECOND_NS, 0, 0, 0, 0, 0, 0, 0],
                minor_faults: 0,
                major_faults: 0,
                switches_missed: 0,
                profiler_cost_ns: 0,
                call: None,
                slot: 1,
            };
            let lives = second <= 5;
            profile.apply(DrainPass {
                now_ns: MonoNs::new(second * SECOND_NS),
                now_unix_ns: UnixNs::new(unix_ns(second)),
                processes: lives.then_some(info).into_iter().collect(),
                threads: lives.then_some(thread).into_iter().collect(),
                ..DrainPass::default()
            });
        }
        profile.snapshot()
    }

    /// Which seconds a report is about.
    fn seconds(snapshot: &Snapshot, span: RecordedSpan) -> (u64, u64, u64) {
        let view = ViewQuery {
            window: span.window(snapshot),
            ..ViewQuery::default()
        };
        let session = session(snapshot, &view, &NoNames).unwrap();
        let second = |text: &str| {
            (1..=20).find(|at| crate::report::rfc3339(UnixNs::new(unix_ns(*at))) == text)
        };
        let window = &session.window;
        let unknown = || panic!("{window:?} is between seconds");
        (
            second(&window.from).unwrap_or_else(unknown),
            second(&window.to).unwrap_or_else(unknown),
            session.totals.elapsed_ns / SECOND_NS,
        )
    }

    // Check that a report is about the time between the two readings, to the border, though the
    // clock was set between them and passes came after; and that what is forgotten of its begin is
    // left out, and said.
    #[test]
    fn windows() {
        let all = snapshot(3_600 * SECOND_NS);
        let span = RecordedSpan::find(&all, reading(3), reading(15));
        assert_eq!(seconds(&all, span), (3, 15, 2));
        assert_eq!(span.forgotten_ns, 0);
        // Two readings that are one end with the profile.
        let span = RecordedSpan::find(&all, reading(15), reading(15));
        assert_eq!(seconds(&all, span), (15, 20, 0));
        let some = snapshot(8 * SECOND_NS);
        let span = RecordedSpan::find(&some, reading(13), reading(15));
        assert_eq!((span.forgotten_ns, seconds(&some, span)), (0, (13, 15, 0)));
        let span = RecordedSpan::find(
            &some,
            Reading {
                at_unix_ns: UnixNs::new(unix_ns(11) - 9 * SECOND_NS),
                dropped: 0,
            },
            reading(15),
        );
        let (from, to, _) = seconds(&some, span);
        assert!(from >= 11 && to == 15, "{from} to {to}");
        assert_eq!(span.forgotten_ns, (from - 2) * SECOND_NS);
    }

    // Check that what was dropped is told by number and time where it ran within the recording, and
    // not where it had ended; and that the report's own losses have it.
    #[test]
    fn dropped() {
        let all = snapshot(3_600 * SECOND_NS);
        let span = RecordedSpan::find(&all, reading(3), reading(15));
        let none = all.only(MonoNs::ZERO, |_| false);
        let gone = span.dropped(&all, &none, reading(3)).unwrap();
        let expected = DroppedProcesses {
            processes: 1,
            elapsed_ns: 2 * SECOND_NS,
        };
        assert_eq!(gone, expected);
        let mine = span.without(none.clone(), gone);
        for window in [span.window(&mine), crate::report::Window::Session] {
            let view = ViewQuery {
                window,
                ..ViewQuery::default()
            };
            let session = session(&mine, &view, &NoNames).unwrap();
            assert_eq!(session.totals.elapsed_ns, 0);
            let causes = session.completeness.causes;
            assert_eq!(causes["dropped_processes"], 1, "{causes:?}");
            assert_eq!(causes["dropped_ns"], 2 * SECOND_NS);
        }
        let later = RecordedSpan::find(&all, reading(8), reading(15));
        assert_eq!(later.dropped(&all, &none, reading(8)), None);
        let known = Reading {
            dropped: 1,
            ..reading(3)
        };
        assert_eq!(span.dropped(&all, &none, known), None);
        // Nothing is missing where all that its image did since then was asked for.
        let mine = all.only(span.since_ns(&all), |key| key.pid == 10);
        assert_eq!(span.dropped(&all, &mine, reading(3)), None);
        assert_eq!(mine.ended(), 1);
        // One that had ended before is none of it.
        let of_later = all.only(later.since_ns(&all), |key| key.pid == 10);
        assert_eq!(of_later.ended(), 0);
        assert_eq!(seconds(&mine, span), (3, 15, 2));
    }
}
