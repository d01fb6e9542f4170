//! Waiting for what runs on other processors: grace periods of the kernel, which a thread of their
//! own waits for. A kernel that is busy may take seconds for one, and whoever needs it has other
//! things to do by then.

use std::io;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use rustix::thread::{MembarrierCommand, membarrier};

/// How long is waited where the kernel refuses to tell (`nohz_full`): a kernel program runs for
/// microseconds, this is an age.
const REFUSED: Duration = Duration::from_millis(50);

/// The way to the thread that waits. The thread ends with it, but is not waited for: it may be in
/// the kernel for as long as a period takes, and holds nothing.
#[derive(Debug)]
pub struct GracePeriods(Arc<Shared>);

/// A grace period, which begins no earlier than it was asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GracePeriod(u64);

#[derive(Debug, Default)]
struct Shared {
    periods: Mutex<Periods>,
    asked: Condvar,
    over: Condvar,
}

#[derive(Debug, Default)]
struct Periods {
    /// The last that was asked for.
    asked: u64,
    /// All up to this one are over.
    over: u64,
    has_ended: bool,
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Periods> {
        self.periods.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for one period after the other, each by `wait`.
    fn work(&self, wait: impl Fn()) {
        let mut periods = self.lock();
        loop {
            let idle = |periods: &mut Periods| periods.asked == periods.over && !periods.has_ended;
            periods = self
                .asked
                .wait_while(periods, idle)
                .unwrap_or_else(PoisonError::into_inner);
            if periods.has_ended {
                return;
            }
            let asked = periods.asked;
            drop(periods);
            wait();
            periods = self.lock();
            periods.over = asked;
            self.over.notify_all();
        }
    }
}

impl GracePeriods {
    /// Starts the thread.
    ///
    /// # Errors
    /// No thread could be made.
    pub fn start() -> io::Result<Self> {
        Self::with(wait_for_grace_period)
    }

    fn with(wait: impl Fn() + Send + 'static) -> io::Result<Self> {
        let shared = Arc::new(Shared::default());
        let of_thread = Arc::clone(&shared);
        thread::Builder::new()
            .name("grace".to_owned())
            .spawn(move || of_thread.work(wait))?;
        Ok(Self(shared))
    }

    /// A grace period begins.
    #[must_use]
    pub fn begin(&self) -> GracePeriod {
        let mut periods = self.0.lock();
        periods.asked += 1;
        self.0.asked.notify_one();
        GracePeriod(periods.asked)
    }

    /// Waits until it is over, so every kernel program that was running when it began has ended; no
    /// longer than that. Whether it is.
    #[must_use]
    pub fn wait(&self, period: GracePeriod, within: Duration) -> bool {
        let is_on = |periods: &mut Periods| periods.over < period.0;
        let (periods, _) = self
            .0
            .over
            .wait_timeout_while(self.0.lock(), within, is_on)
            .unwrap_or_else(PoisonError::into_inner);
        periods.over >= period.0
    }
}

impl Drop for GracePeriods {
    fn drop(&mut self) {
        self.0.lock().has_ended = true;
        self.0.asked.notify_one();
    }
}

/// Takes milliseconds, as a rule.
fn wait_for_grace_period() {
    if membarrier(MembarrierCommand::Global).is_err() {
        thread::sleep(REFUSED);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc;

    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    #[test]
    fn periods_are_over_in_turn() {
        // Check that one that is asked for while another is on begins after it, that waiting for
        // one that does not end ends, and that all are over that were asked for before the last.
        let (begins, begun) = mpsc::channel();
        let (end, ends) = mpsc::channel::<()>();
        let periods = GracePeriods::with(move || {
            begins.send(()).expect("the test waits for it");
            ends.recv().ok();
        })
        .expect("a thread");
        let first = periods.begin();
        begun.recv_timeout(LONG).expect("it begins");
        let second = periods.begin();
        let third = periods.begin();
        assert!(!periods.wait(first, Duration::ZERO));
        end.send(()).expect("it is waited for");
        assert!(periods.wait(first, LONG));
        begun.recv_timeout(LONG).expect("it begins");
        assert!(!periods.wait(second, Duration::from_millis(1)));
        end.send(()).expect("it is waited for");
        assert!(periods.wait(third, LONG) && periods.wait(second, Duration::ZERO));
        drop(periods);
        assert!(begun.recv_timeout(LONG).is_err(), "the thread has ended");
    }

    #[test]
    fn the_kernel_ends_them() {
        // Check that a period of the kernel, or what stands for it, is over after a while.
        let periods = GracePeriods::start().expect("a thread");
        let period = periods.begin();
        assert!(periods.wait(period, LONG));
    }
}
