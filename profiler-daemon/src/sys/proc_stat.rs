//! Reads the line of `/proc/PID/stat`. Pure; the name in it is chosen by the process and may hold
//! any byte.

/// What the line says, as far as it is used here.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProcStat {
    /// The name, at most 16 bytes from the kernel, as text (bytes that are none become U+FFFD).
    pub comm: Box<str>,
    /// `R`, `S`, `D`, `T`, `Z`, …
    pub state: u8,
    /// Parent process.
    pub ppid: u32,
    /// `PF_*` bits of the task.
    pub flags: u64,
    /// Threads, 0 or 1 once it is a zombie.
    pub threads: u32,
    /// Start, in 10 ms ticks since boot.
    pub start_ticks: u64,
}

const PF_KTHREAD: u64 = 0x0020_0000;

impl ProcStat {
    /// Reads the line; `None` if it is not one.
    #[must_use]
    pub fn parse(line: &[u8]) -> Option<Self> {
        // The name may hold ") R 1 ": only the last parenthesis ends it, since only numbers follow.
        let open = line.iter().position(|byte| *byte == b'(')?;
        let close = line.iter().rposition(|byte| *byte == b')')?;
        let comm = String::from_utf8_lossy(line.get(open + 1..close)?).into();
        let rest = std::str::from_utf8(line.get(close + 1..)?).ok()?;
        let mut fields = rest.split_ascii_whitespace();
        let state = *fields.next()?.as_bytes().first()?;
        let ppid = fields.next()?.parse().ok()?;
        let flags = fields.nth(4)?.parse().ok()?;
        let threads = fields.nth(10)?.parse().ok()?;
        let start_ticks = fields.nth(1)?.parse().ok()?;
        Some(Self {
            comm,
            state,
            ppid,
            flags,
            threads,
            start_ticks,
        })
    }

    /// Whether it is a thread of the kernel, which has no program.
    #[must_use]
    pub fn kernel_thread(&self) -> bool {
        self.flags & PF_KTHREAD != 0
    }

    /// Whether it has ended and only its number is left.
    #[must_use]
    pub fn dead(&self) -> bool {
        matches!(self.state, b'Z' | b'X' | b'x') && self.threads <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TAIL: &str =
        "S 7 5 5 0 -1 4194560 10 0 0 0 3 4 0 0 20 0 9 0 123456 0 0 18446744073709551615 1 1\n";

    // Check that a name full of parentheses, spaces and line ends cannot shift the numbers behind
    // it.
    #[test]
    fn hostile_names() {
        for name in ["plain", "a) R 1 (b", ")", "(", "two\nlines ) S", ""] {
            let stat = ProcStat::parse(format!("42 ({name}) {TAIL}").as_bytes()).unwrap();
            assert_eq!(&*stat.comm, name);
            assert_eq!(
                (stat.state, stat.ppid, stat.threads, stat.start_ticks),
                (b'S', 7, 9, 123_456)
            );
            assert!(!stat.kernel_thread() && !stat.dead());
        }
    }

    // Check that this very process is read as it knows itself.
    #[test]
    fn own_line() {
        let stat = ProcStat::parse(&std::fs::read("/proc/self/stat").unwrap()).unwrap();
        assert_eq!(stat.ppid, std::os::unix::process::parent_id());
        assert!(stat.start_ticks > 0 && stat.threads > 0 && !stat.dead());
    }

    proptest! {
        // Check that no bytes make the reader panic, and that nothing without a name in parentheses
        // is taken.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let parsed = ProcStat::parse(&bytes);
            prop_assert!(parsed.is_none() || bytes.contains(&b'('));
        }
    }
}
