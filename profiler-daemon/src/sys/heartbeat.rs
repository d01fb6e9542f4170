//! Whether threads move: each says when it takes up a piece of work and when that is done, so
//! others see how long it has been at it. One that is at a piece for longer than its bound, or that
//! ended by a panic, is stuck. What follows from that is decided elsewhere.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use super::clock::monotonic_ns;
use crate::units::MonoNs;

/// How one thread is. Cheap to clone: the thread has one, those who look another.
#[derive(Clone, Debug)]
pub struct Heartbeat(Arc<Beat>);

#[derive(Debug)]
struct Beat {
    thread: &'static str,
    bound_ns: u64,
    /// Held for some nanoseconds at a time, so that nobody waits for a thread that is stuck.
    doing: Mutex<Doing>,
}

#[derive(Clone, Copy, Debug)]
enum Doing {
    Nothing,
    Piece {
        what: &'static str,
        since_ns: MonoNs,
    },
    Broken {
        since_ns: MonoNs,
    },
}

impl Heartbeat {
    /// Of a thread of this name, which takes no longer than `bound` for a piece of work unless
    /// something is wrong.
    #[must_use]
    pub fn new(thread: &'static str, bound: Duration) -> Self {
        Self(Arc::new(Beat {
            thread,
            bound_ns: u64::try_from(bound.as_nanos()).unwrap_or(u64::MAX),
            doing: Mutex::new(Doing::Nothing),
        }))
    }

    /// Does all that the thread is there for. Should that panic, the thread is stuck from then on.
    pub fn live<T>(&self, work: impl FnOnce() -> T) -> T {
        let _life = Life(self);
        work()
    }

    /// A piece of work begins: `what`, as in "it has been at what for 20 s". It ends when the
    /// answer is dropped. There is one at a time: beginning another begins anew.
    #[must_use = "the piece ends when this is dropped"]
    pub fn begin(&self, what: &'static str) -> Piece {
        let piece = Piece(self.clone());
        piece.next(what);
        piece
    }

    /// How the thread is at that time of the monotonic clock.
    #[must_use]
    pub fn pulse(&self, now_ns: MonoNs) -> Pulse {
        let Beat {
            thread, bound_ns, ..
        } = *self.0;
        let (age_ns, trouble) = match *self.lock() {
            Doing::Nothing => (0, None),
            Doing::Piece { what, since_ns } => {
                let age_ns = now_ns.saturating_since(since_ns);
                let is_late = age_ns > bound_ns;
                (age_ns, is_late.then_some(Trouble::Late { what, bound_ns }))
            }
            Doing::Broken { since_ns } => {
                (now_ns.saturating_since(since_ns), Some(Trouble::Broken))
            }
        };
        Pulse {
            thread,
            age_ns,
            trouble,
        }
    }

    fn set(&self, doing: Doing) {
        *self.lock() = doing;
    }

    fn lock(&self) -> MutexGuard<'_, Doing> {
        self.0.doing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Says how the life of a thread ended.
struct Life<'a>(&'a Heartbeat);

impl Drop for Life<'_> {
    fn drop(&mut self) {
        self.0.set(if thread::panicking() {
            Doing::Broken {
                since_ns: monotonic_ns(),
            }
        } else {
            Doing::Nothing
        });
    }
}

/// A piece of work under way.
#[derive(Debug)]
pub struct Piece(Heartbeat);

impl Piece {
    /// It is done, and the next one begins.
    pub fn next(&self, what: &'static str) {
        self.0.set(Doing::Piece {
            what,
            since_ns: monotonic_ns(),
        });
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        self.0.set(Doing::Nothing);
    }
}

/// How a thread is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pulse {
    /// Its name.
    pub thread: &'static str,
    /// How long it has been at the present piece of work, or how long ago it broke, nanoseconds. 0
    /// for one that waits for work.
    pub age_ns: u64,
    /// Why it counts as stuck, if it does.
    pub trouble: Option<Trouble>,
}

/// Why a thread counts as stuck.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Trouble {
    /// It has been at this piece of work for longer than so many nanoseconds.
    Late {
        /// What it does.
        what: &'static str,
        /// How long that may take.
        bound_ns: u64,
    },
    /// It ended by a panic.
    Broken,
}

impl fmt::Display for Pulse {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (thread, age_s) = (self.thread, self.age_ns / 1_000_000_000);
        match self.trouble {
            Some(Trouble::Late { what, bound_ns }) => write!(
                out,
                "the thread {thread} has been at {what} for {age_s} s, where {} s is the most it should take",
                bound_ns / 1_000_000_000
            ),
            Some(Trouble::Broken) => write!(
                out,
                "the thread {thread} ended by an error of its own {age_s} s ago: the profiler has to be started anew"
            ),
            None => write!(out, "the thread {thread} moves"),
        }
    }
}

/// Those of several threads.
#[derive(Clone, Debug, Default)]
pub struct Heartbeats(Arc<[Heartbeat]>);

impl FromIterator<Heartbeat> for Heartbeats {
    fn from_iter<I: IntoIterator<Item = Heartbeat>>(beats: I) -> Self {
        Self(beats.into_iter().collect())
    }
}

impl Heartbeats {
    /// How each thread is at that time of the monotonic clock.
    pub fn pulses(&self, now_ns: MonoNs) -> impl Iterator<Item = Pulse> {
        self.0.iter().map(move |beat| beat.pulse(now_ns))
    }

    /// Those that are stuck.
    pub fn stuck(&self, now_ns: MonoNs) -> impl Iterator<Item = Pulse> {
        self.pulses(now_ns).filter(|pulse| pulse.trouble.is_some())
    }
}

/// Tells when threads get stuck and when they move again, each once.
#[derive(Debug)]
pub struct Watch {
    beats: Heartbeats,
    stuck: BTreeSet<&'static str>,
}

impl Watch {
    /// Over threads that all move so far.
    #[must_use]
    pub fn over(beats: Heartbeats) -> Self {
        Self {
            beats,
            stuck: BTreeSet::new(),
        }
    }

    /// The threads that have got stuck, or move again, since they were asked for last.
    pub fn changes(&mut self, now_ns: MonoNs) -> Vec<Pulse> {
        let stuck = &mut self.stuck;
        let changed = |pulse: &Pulse| match pulse.trouble {
            Some(_) => stuck.insert(pulse.thread),
            None => stuck.remove(pulse.thread),
        };
        self.beats.pulses(now_ns).filter(changed).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn stuck(beats: &Heartbeats, now_ns: MonoNs) -> Vec<&'static str> {
        beats.stuck(now_ns).map(|pulse| pulse.thread).collect()
    }

    // Check that a thread is stuck once it is at one piece of work for longer than its bound, that
    // the next piece begins anew, and that one that waits for work is never stuck.
    #[test]
    fn pieces_have_a_bound() {
        let [slow, idle] =
            ["slow", "idle"].map(|name| Heartbeat::new(name, Duration::from_secs(5)));
        let beats: Heartbeats = [slow.clone(), idle].into_iter().collect();
        let begun_ns = monotonic_ns();
        let piece = slow.begin("names");
        let later_ns = monotonic_ns() + 5 * SECOND_NS;
        assert!(stuck(&beats, begun_ns + 4 * SECOND_NS).is_empty());
        assert_eq!(stuck(&beats, later_ns + 1), ["slow"]);
        let pulse = slow.pulse(later_ns + SECOND_NS);
        assert!(pulse.age_ns >= 6 * SECOND_NS);
        let sentence =
            "the thread slow has been at names for 6 s, where 5 s is the most it should take";
        assert_eq!(pulse.to_string(), sentence);
        std::thread::sleep(Duration::from_millis(2));
        piece.next("more names");
        assert!(stuck(&beats, later_ns + 1).is_empty());
        drop(piece);
        assert!(stuck(&beats, MonoNs::MAX).is_empty());
        assert_eq!(slow.pulse(MonoNs::MAX).age_ns, 0);
    }

    // Check that a thread that panics is stuck for ever, in the middle of a piece or not, that one
    // that ends otherwise is not, and that a panic that is caught within the thread changes
    // nothing.
    #[test]
    fn broken_threads_are_stuck() {
        let beat = Heartbeat::new("breaks", Duration::from_secs(5));
        let of_thread = beat.clone();
        let ended = thread::spawn(move || {
            of_thread.live(|| {
                let _piece = of_thread.begin("names");
                panic!("as the test wants it");
            })
        });
        assert!(ended.join().is_err());
        let pulse = beat.pulse(monotonic_ns() + 7 * SECOND_NS);
        assert_eq!(pulse.trouble, Some(Trouble::Broken));
        assert!(
            pulse
                .to_string()
                .contains("ended by an error of its own 7 s ago")
        );
        let ends = Heartbeat::new("ends", Duration::ZERO);
        assert_eq!(ends.live(|| 3), 3);
        let caught = std::panic::catch_unwind(|| {
            let _piece = ends.begin("names");
            panic!("as the test wants it");
        });
        assert!(caught.is_err() && ends.pulse(MonoNs::MAX).trouble.is_none());
    }

    // Check that getting stuck and moving again are each told once.
    #[test]
    fn changes_are_told_once() {
        let beat = Heartbeat::new("slow", Duration::from_secs(5));
        let mut watch = Watch::over([beat.clone()].into_iter().collect());
        let piece = beat.begin("names");
        let now_ns = monotonic_ns();
        assert!(watch.changes(now_ns).is_empty());
        assert!(watch.changes(now_ns + 6 * SECOND_NS)[0].trouble.is_some());
        assert!(watch.changes(now_ns + 7 * SECOND_NS).is_empty());
        drop(piece);
        let again = watch.changes(now_ns + 8 * SECOND_NS);
        assert_eq!(again[0].to_string(), "the thread slow moves");
        assert!(watch.changes(now_ns + 9 * SECOND_NS).is_empty());
    }
}
