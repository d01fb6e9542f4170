//! What the machine says about itself: a handful of small files, and three system calls tried.
//!
//! Nothing here is judged. A fact that cannot be read is absent or carries the reason.

use std::io::Read as _;
use std::path::Path;

use crate::kernel::{self, Probing};
use crate::sys::{own_cost, probe};

/// The most that is read of any file, in bytes.
const MAX_BYTES: u64 = 4_096;

/// The inode of the first process namespace, the same on every Linux.
const INITIAL_PID_NAMESPACE: &str = "pid:[4026531836]";

/// Why something could not be done, as the kernel said it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refused {
    /// The error number, 0 where there is none.
    pub errno: i32,
    /// The sentence that goes with it.
    pub sentence: String,
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        Self {
            errno: error.raw_os_error().unwrap_or(0),
            sentence: error.to_string(),
        }
    }
}

/// What the machine says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct MachineFacts {
    /// The kernel's release, as in `6.1.0-13-amd64`.
    pub release: Option<String>,
    /// Whether the kernel's type information can be read.
    pub btf: Result<(), Refused>,
    /// The content of the lockdown file, as in `none [integrity] confidentiality`.
    pub lockdown: Option<String>,
    /// The effective capabilities, a bit each.
    pub capabilities: Option<u64>,
    /// `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i64>,
    /// `kernel.kptr_restrict`.
    pub kptr_restrict: Option<i64>,
    /// `kernel.bpf_stats_enabled`.
    pub bpf_stats_enabled: Option<i64>,
    /// Whether a small map can be created.
    pub bpf: Result<(), Refused>,
    /// Whether programs can loop by a helper, as unwinding by tables needs; none where the kernel
    /// does not tell.
    pub loops: Option<bool>,
    /// How chosen functions are probed.
    pub probing: Probing,
    /// Whether a counter over everything that runs can be opened.
    pub perf: Result<(), Refused>,
    /// Whether the kernel shows the addresses of its functions; none where the list cannot be read.
    pub kernel_addresses: Option<bool>,
    /// Whether there are control groups of version 2.
    pub control_groups: bool,
    /// Whether the list of trace points can be read.
    pub tracefs: bool,
    /// Whether process numbers here are those the kernel uses.
    pub initial_pid_namespace: Option<bool>,
}

impl MachineFacts {
    /// Asks this machine.
    #[must_use]
    pub fn gather() -> Self {
        let status = read("/proc/self/status").unwrap_or_default();
        // As when the programs are loaded. Where it fails, and maps count towards the limit, what
        // is tried next tells.
        own_cost::raise_locked_memory().ok();
        Self {
            release: read("/proc/sys/kernel/osrelease")
                .ok()
                .map(|text| text.trim().to_owned()),
            btf: std::fs::File::open("/sys/kernel/btf/vmlinux")
                .map(drop)
                .map_err(Refused::from),
            lockdown: read("/sys/kernel/security/lockdown").ok(),
            capabilities: effective_capabilities(&status),
            perf_event_paranoid: number("/proc/sys/kernel/perf_event_paranoid"),
            kptr_restrict: number("/proc/sys/kernel/kptr_restrict"),
            bpf_stats_enabled: number("/proc/sys/kernel/bpf_stats_enabled"),
            bpf: probe::bpf_map().map_err(Refused::from),
            loops: kernel::has_loops().ok(),
            probing: Probing::of_this_kernel(),
            perf: probe::perf_event_system_wide().map_err(Refused::from),
            kernel_addresses: read("/proc/kallsyms")
                .ok()
                .as_deref()
                .and_then(shows_addresses),
            control_groups: kernel::control_groups().is_some(),
            tracefs: [
                "/sys/kernel/tracing/events",
                "/sys/kernel/debug/tracing/events",
            ]
            .iter()
            .any(|folder| Path::new(folder).read_dir().is_ok()),
            initial_pid_namespace: std::fs::read_link("/proc/self/ns/pid")
                .ok()
                .map(|link| link.as_os_str() == INITIAL_PID_NAMESPACE),
        }
    }
}

/// The beginning of a file as text.
fn read(path: &str) -> std::io::Result<String> {
    let mut bytes = Vec::new();
    std::fs::File::open(path)?
        .take(MAX_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

fn number(path: &str) -> Option<i64> {
    read(path).ok()?.trim().parse().ok()
}

/// The effective capabilities in the text of a status file.
pub(super) fn effective_capabilities(status: &str) -> Option<u64> {
    let digits = status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))?;
    u64::from_str_radix(digits.trim(), 16).ok()
}

/// Whether the first lines of the list of kernel symbols carry addresses; none for an empty list.
pub(super) fn shows_addresses(kallsyms: &str) -> Option<bool> {
    let mut addresses = kallsyms
        .lines()
        .filter_map(|line| line.split(' ').next())
        .peekable();
    addresses.peek()?;
    // The first symbols of per-processor data may truly be at 0.
    Some(addresses.any(|address| address.bytes().any(|digit| digit != b'0')))
}
