//! How the collector waits for events of processes.

use std::time::Duration;

use tracing::warn;

use crate::sys::clock::monotonic_ns;
use crate::sys::perf_event::SideBand;
use crate::sys::waker::Waker;
use crate::units::MonoNs;

use super::Collector;

/// Time between two checks, in a rest, how full the rings of process events are.
const FILLING_CHECK_NS: u64 = 20_000_000;

impl Collector {
    /// Waits for records, and takes them in.
    pub(super) fn wait(&mut self, timeout: Duration, waker: &Waker) {
        let Some(side_band) = &mut self.side_band else {
            waker.wait(timeout);
            let _piece = self.heartbeat.begin("unwind tables");
            self.sync_unwinding();
            return;
        };
        let until_ns = monotonic_ns() + timeout.as_nanos() as u64;
        if let Err(error) = side_band.wait(timeout, waker) {
            warn!("cannot wait for process events: {error}");
            self.rest(until_ns, waker);
        }
        let piece = self.heartbeat.begin("events of processes");
        let has_events = self.read_side_band();
        drop(piece);
        if has_events {
            self.rest(until_ns, waker);
        }
    }

    /// Rests after events, so that those that come next are read together: until then at most, and
    /// until there is something else to do or hardly any room for more of them.
    fn rest(&mut self, until_ns: MonoNs, waker: &Waker) {
        let begun_ns = monotonic_ns();
        let rest_ns = self.backoff.next(begun_ns).as_nanos() as u64;
        let until_ns = until_ns.min(begun_ns + rest_ns);
        let is_filling = || self.side_band.as_ref().is_some_and(SideBand::is_filling);
        while let left_ns @ 1.. = until_ns.saturating_since(monotonic_ns())
            && !is_filling()
            && !waker.wait(Duration::from_nanos(left_ns.min(FILLING_CHECK_NS)))
        {}
    }
}
