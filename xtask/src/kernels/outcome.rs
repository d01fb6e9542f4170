//! What a boot came to, read from what the guest wrote to its console.

/// The line before which nothing has ended: `init` writes it last, with the exit status of what it
/// ran.
pub(super) const LAST_LINE: &str = "guest: ended with ";
/// The line that `init` writes first, with the kernel's release.
pub(super) const FIRST_LINE: &str = "guest: Linux ";
/// What the kernel says when it has found something wrong with itself.
const COMPLAINTS: [&str; 5] = [
    "Kernel panic",
    "BUG:",
    "Oops:",
    "general protection fault",
    "rcu_sched self-detected",
];

/// What is read from a console.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Outcome {
    /// The kernel that ran, by its own word.
    pub(super) release: Option<String>,
    /// The exit status of what `init` ran; none if it did not come to its end.
    pub(super) status: Option<i32>,
    /// Tests that passed and failed.
    pub(super) passed: u64,
    /// See above.
    pub(super) failed: u64,
    /// The first complaint of the kernel about itself.
    pub(super) complaint: Option<String>,
}

impl Outcome {
    /// Reads a whole console.
    pub(super) fn read(console: &str) -> Self {
        let mut outcome = Self::default();
        for line in console.lines().map(str::trim_end) {
            // The firmware's control sequences stand before the first line.
            if let Some((_, release)) = line.split_once(FIRST_LINE) {
                outcome.release = Some(release.to_owned());
            } else if let Some(status) = line.strip_prefix(LAST_LINE) {
                outcome.status = status.parse().ok();
            } else if let Some(results) = line.strip_prefix("test result: ") {
                outcome.passed += count(results, " passed");
                outcome.failed += count(results, " failed");
            }
            if outcome.complaint.is_none() && COMPLAINTS.iter().any(|words| line.contains(words)) {
                outcome.complaint = Some(line.to_owned());
            }
        }
        outcome
    }

    /// Why this is no success of `expected` tests, or none.
    pub(super) fn fault(&self, expected: usize) -> Option<String> {
        if let Some(complaint) = &self.complaint {
            return Some(format!("the kernel complains: {complaint}"));
        }
        let run = self.passed + self.failed;
        match self.status {
            None => Some("it did not come to its end".to_owned()),
            // Failed tests say more than their exit status.
            Some(status) if status != 0 && self.failed == 0 => {
                Some(format!("exit status {status}, expected 0"))
            }
            Some(_) if self.failed > 0 || run != expected as u64 => Some(format!(
                "{} of {expected} tests passed, {} failed",
                self.passed, self.failed
            )),
            Some(_) => None,
        }
    }
}

/// The number before `what` in `ok. 12 passed; 0 failed; …`.
fn count(results: &str, what: &str) -> u64 {
    results
        .split_once(what)
        .and_then(|(before, _)| before.rsplit(' ').next()?.parse().ok())
        .unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const GOOD: &str = "\u{1b}[2Jguest: Linux 6.1.0-50-cloud-amd64\r\n\r\nrunning 2 tests\r\ntest a::b ... ok\r\n\
        test a::c ... ok\r\n\r\ntest result: ok. 2 passed; 0 failed; 0 ignored; 0 measured; 57 filtered out; finished in 9s\r\n\
        guest: ended with 0\r\n[    9.8] reboot: Power down\r\n";

    #[test]
    fn a_success_is_read_from_the_console() {
        // Check that release, counts and status are found behind control sequences and carriage
        // returns.
        let outcome = Outcome::read(GOOD);
        assert_eq!(outcome.release.as_deref(), Some("6.1.0-50-cloud-amd64"));
        assert_eq!(
            (outcome.passed, outcome.failed, outcome.status),
            (2, 0, Some(0))
        );
        assert_eq!(outcome.fault(2), None);
    }

    #[test]
    fn what_is_no_success_is_told() {
        // Check that a missing end, a failed test, a test that did not run and a kernel in trouble
        // are all failures.
        let hung = GOOD.split("guest: ended").next().expect("the beginning");
        let failed = GOOD
            .replace("2 passed; 0 failed", "1 passed; 1 failed")
            .replace("ended with 0", "ended with 101");
        let ill = GOOD.replace(
            "test a::c",
            "[ 40.5] watchdog: BUG: soft lockup - CPU#1 stuck\r\ntest a::c",
        );
        for (console, expected, words) in [
            (hung, 2, "did not come to its end"),
            (&failed, 2, "1 of 2 tests passed, 1 failed"),
            (GOOD, 3, "2 of 3 tests passed, 0 failed"),
            (&ill, 2, "soft lockup"),
            (
                &GOOD.replace("ended with 0", "ended with 127"),
                2,
                "exit status 127",
            ),
        ] {
            let fault = Outcome::read(console).fault(expected);
            assert!(
                fault.as_ref().is_some_and(|fault| fault.contains(words)),
                "{fault:?}"
            );
        }
    }
}
