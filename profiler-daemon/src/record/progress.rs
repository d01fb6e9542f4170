//! What a person at a terminal sees while and after something is recorded: one line, on standard
//! error.

use std::convert::Infallible;
use std::io::{self, Write as _};
use std::time::{Duration, Instant};

use crate::export::text::name;
use crate::report;
use crate::stages::Access;

/// Time between two changes of the line.
const PERIOD: Duration = Duration::from_millis(500);
/// Older passes are done anyway: looking on shall cause none.
const ANY_AGE_NS: u64 = u64::MAX;

/// Keeps the line up to date, if it is to be shown, until the future is dropped.
pub(super) async fn show(
    access: &Access,
    began: Instant,
    length: Option<Duration>,
    shown: bool,
) -> Infallible {
    if !shown {
        return std::future::pending().await;
    }
    loop {
        let samples = match access.snapshot(ANY_AGE_NS).await {
            Ok(snapshot) => report::samples(&snapshot),
            Err(_) => 0,
        };
        put(&format!(
            "\r{}\x1b[K",
            line(began.elapsed(), length, Some(samples))
        ));
        tokio::time::sleep(PERIOD).await;
    }
}

/// The same where samples are counted elsewhere.
pub(super) async fn wait(began: Instant, length: Option<Duration>, shown: bool) -> Infallible {
    if !shown {
        return std::future::pending().await;
    }
    loop {
        put(&format!("\r{}\x1b[K", line(began.elapsed(), length, None)));
        tokio::time::sleep(PERIOD).await;
    }
}

/// Takes the line away.
pub(super) fn clear() {
    put("\r\x1b[K");
}

/// Tells a sentence, in which names of others may be.
pub(super) fn say(sentence: &str) {
    put(&format!("profiler-daemon: {}\n", name(sentence)));
}

fn put(text: &str) {
    let mut out = io::stderr().lock();
    // Nobody to tell is no reason to stop recording.
    out.write_all(text.as_bytes())
        .and_then(|()| out.flush())
        .unwrap_or_default();
}

fn line(so_far: Duration, length: Option<Duration>, samples: Option<u64>) -> String {
    let of = length.map_or_else(String::new, |length| {
        format!(" of {} s", length.as_secs_f64())
    });
    let samples = samples.map_or_else(String::new, |samples| format!(", {samples} samples"));
    format!(
        "recording: {} s{of}{samples}; Ctrl-C ends it",
        so_far.as_secs()
    )
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::line;

    // Check that the line says how far it is, and of how much where that is known.
    #[test]
    fn lines() {
        let so_far = Duration::from_millis(3_900);
        assert_eq!(
            line(so_far, None, Some(7)),
            "recording: 3 s, 7 samples; Ctrl-C ends it"
        );
        assert_eq!(
            line(so_far, Some(Duration::from_millis(10_500)), Some(7)),
            "recording: 3 s of 10.5 s, 7 samples; Ctrl-C ends it"
        );
    }
}
