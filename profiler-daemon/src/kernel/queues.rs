//! Run queues: whether the scheduler keeps an account of the waits in them that the programs can
//! read, and who is in one as a pass is made.

use std::fs;

use tracing::{debug, warn};

use super::btf::Btf;
use super::offsets;
use super::programs::Programs;
use super::variant::Variant;
use crate::sys::clock::monotonic_ns;
use crate::units::MonoNs;

/// The settings of where that account is; empty where there is none that can be read, and wakes are
/// traced instead.
pub(super) fn fields(types: &Btf<'_>, variant: Variant) -> Vec<(&'static str, u32)> {
    let found = match variant {
        Variant::Before517 => Err("these programs do not read it".to_owned()),
        Variant::Since517 if !is_kept() => Err("the scheduler does not keep it".to_owned()),
        Variant::Since517 => offsets::of_queues(types).map_err(|error| error.to_string()),
    };
    found.unwrap_or_else(|why| {
        debug!("wakes are traced, since the account of run queues is not read: {why}");
        Vec::new()
    })
}

/// Does the scheduler keep the account? Kernels before 5.14 may do so on request only.
fn is_kept() -> bool {
    // A thread that reads its own has come onto a processor at least once.
    fs::read_to_string("/proc/thread-self/schedstat").is_ok_and(|text| has_arrivals(&text))
}

/// The third number is how often it came onto a processor.
fn has_arrivals(schedstat: &str) -> bool {
    let arrivals = schedstat.split_whitespace().nth(2);
    arrivals.is_some_and(|arrivals| arrivals.parse::<u64>().is_ok_and(|arrivals| arrivals > 0))
}

/// The search for threads that are in a run queue: all tasks of the machine are gone through, some
/// half a microsecond each, for no more than one part in [`PARTS`] of the time.
#[derive(Debug, Default)]
pub(super) struct QueueSearch {
    /// When it may be made again.
    next_ns: MonoNs,
}

/// See [`QueueSearch`]: some 500 threads are gone through ten times a second, 30 000 every 4
/// seconds.
const PARTS: u64 = 256;

impl QueueSearch {
    /// Has the programs note in the records of threads that are in a run queue since when they are,
    /// unless there are none, or the last search took too long for another one by now. Then they
    /// are told as blocked until they run.
    pub(super) fn note_queued(&mut self, programs: &mut Programs) {
        let began_ns = monotonic_ns();
        if began_ns < self.next_ns || is_alone() {
            return;
        }
        // It writes nothing.
        if let Err(error) = programs.iterate("queued", None, &mut std::io::sink(), 1) {
            warn!(
                "threads that wait for a processor are told as blocked until they get one: {error}"
            );
        }
        self.end(began_ns, monotonic_ns());
    }

    /// One was made from then to then.
    fn end(&mut self, began_ns: MonoNs, ended_ns: MonoNs) {
        let took_ns = ended_ns.saturating_since(began_ns);
        self.next_ns = ended_ns + took_ns.saturating_mul(PARTS - 1);
    }
}

/// Is the calling thread the only one that runs or waits for a processor? Then there is nobody to
/// look for among all the threads of a machine that sleeps.
fn is_alone() -> bool {
    fs::read_to_string("/proc/loadavg").is_ok_and(|text| running(&text) == Some(1))
}

/// How many threads run or wait for a processor: before the slash of the fourth word.
fn running(loadavg: &str) -> Option<u64> {
    let threads = loadavg.split_whitespace().nth(3)?;
    threads.split_once('/')?.0.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_search_that_takes_long_is_made_less_often() {
        // Check that the next search is as far off as bounds its part of the time.
        let mut search = QueueSearch::default();
        for (began_ns, took_ns) in [(1_000, 50_000), (2_000_000_000, 8_000_000)] {
            let began = MonoNs::new(began_ns);
            search.end(began, began + took_ns);
            assert_eq!(search.next_ns, began + took_ns * PARTS);
        }
    }

    #[test]
    fn who_runs_alone_need_not_look_for_others() {
        // Check that the count of threads that run is found, and that what makes no sense is no
        // count.
        assert_eq!(running("0.36 1.20 2.24 1/234 5678\n"), Some(1));
        assert_eq!(running("0.36 1.20 2.24 12/234 5678\n"), Some(12));
        for text in ["", "0 0 0", "0 0 0 1 5", "0 0 0 x/2 5"] {
            assert_eq!(running(text), None, "{text}");
        }
    }

    #[test]
    fn an_account_that_stands_still_is_none() {
        // Check that only a count of arrivals tells of an account that is kept.
        assert!(has_arrivals("0 72329 1\n"));
        assert!(has_arrivals("812345 0 29"));
        for text in ["0 0 0\n", "", "1 2", "1 2 x", "1 2 -3"] {
            assert!(!has_arrivals(text), "{text}");
        }
    }
}
