//! What this process itself costs, of how much, and the few limits it may lift for itself.

use std::io;

use rustix::{
    param::page_size,
    process::{Resource, Rlimit, getrlimit, setrlimit},
    system::sysinfo,
};

/// What this process has used so far.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ResourceUsage {
    /// Processor time of all threads, user mode, nanoseconds.
    pub user_ns: u64,
    /// Processor time of all threads, kernel mode, nanoseconds.
    pub system_ns: u64,
    /// Memory in use that is not a file's, bytes.
    pub anonymous_bytes: u64,
    /// All resident memory, bytes.
    pub resident_bytes: u64,
    /// All mapped memory, bytes.
    pub virtual_bytes: u64,
}

impl ResourceUsage {
    /// Reads the present cost; what cannot be read is 0.
    #[must_use]
    pub fn now() -> Self {
        let (user_ns, system_ns) = cpu_ns();
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
        let mut pages = statm
            .split_ascii_whitespace()
            .map(|word| word.parse::<u64>().unwrap_or(0));
        let mapped = pages.next().unwrap_or(0) * page_bytes();
        let resident = pages.next().unwrap_or(0) * page_bytes();
        let shared = pages.next().unwrap_or(0) * page_bytes();
        Self {
            user_ns,
            system_ns,
            anonymous_bytes: resident.saturating_sub(shared),
            resident_bytes: resident,
            virtual_bytes: mapped,
        }
    }
}

fn cpu_ns() -> (u64, u64) {
    let ns = |time: libc::timeval| {
        u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000_000
            + u64::try_from(time.tv_usec).unwrap_or(0) * 1000
    };
    // SAFETY: all-zero bytes are a valid rusage (numbers only).
    let mut usage: libc::rusage = unsafe { std::mem::zeroed() };
    // SAFETY: `usage` is valid and only written to.
    let failed = unsafe { libc::getrusage(libc::RUSAGE_SELF, &raw mut usage) };
    if failed != 0 {
        return (0, 0);
    }
    (ns(usage.ru_utime), ns(usage.ru_stime))
}

/// Size of a memory page, bytes.
#[must_use]
pub fn page_bytes() -> u64 {
    page_size() as u64
}

/// Memory of the machine, bytes: also where this process may use less of it.
#[must_use]
pub fn machine_memory_bytes() -> u64 {
    let machine = sysinfo();
    machine.totalram.saturating_mul(machine.mem_unit.into())
}

/// Raises the soft limit of open files to `wanted`, or to the hard limit where that is lower.
/// Answers the limit in force.
///
/// # Errors
///
/// The limit could not be set.
pub fn raise_open_files(wanted: u64) -> io::Result<u64> {
    let limit = getrlimit(Resource::Nofile);
    // No limit is the largest number.
    let [current, most] = [limit.current, limit.maximum].map(|limit| limit.unwrap_or(u64::MAX));
    if current >= wanted {
        return Ok(current);
    }
    let raised = wanted.min(most);
    let limit = Rlimit {
        current: Some(raised),
        ..limit
    };
    setrlimit(Resource::Nofile, limit)?;
    Ok(raised)
}

/// Takes the limit on locked memory away.
///
/// # Errors
///
/// It could not be taken away. (It takes CAP_SYS_RESOURCE, where the service manager has not done
/// it.)
pub fn raise_locked_memory() -> io::Result<()> {
    let none = Rlimit {
        current: None,
        maximum: None,
    };
    Ok(setrlimit(Resource::Memlock, none)?)
}

/// Open files of this process, 0 if they cannot be read, and how many it may have open.
#[must_use]
pub fn open_files() -> (u64, u64) {
    // The listing itself is one of them.
    let open = std::fs::read_dir("/proc/self/fd")
        .map_or(0, |entries| entries.count().saturating_sub(1) as u64);
    let most = getrlimit(Resource::Nofile).current;
    (open, most.unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that touching memory and burning time shows in the cost.
    #[test]
    fn cost_grows() {
        let before = ResourceUsage::now();
        let mut block = vec![0_u8; 16 << 20];
        for round in 0..20_u8 {
            for byte in &mut block {
                *byte = byte.wrapping_add(round | 1);
            }
        }
        let after = ResourceUsage::now();
        // Other tests free memory meanwhile; the block itself is there for certain.
        assert!(after.anonymous_bytes >= 16 << 20, "{after:?}");
        assert!(after.user_ns > before.user_ns);
        assert!(block.iter().any(|byte| *byte != 0));
    }

    // Check that the open-file limit in force is at most what was asked for or what it was before.
    #[test]
    fn open_files_limit() {
        let first = raise_open_files(1).unwrap();
        assert!(raise_open_files(first).unwrap() >= first);
    }
}
