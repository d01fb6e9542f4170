//! What the facts mean: a check each, as functions of the facts alone.

use super::facts::{MachineFacts, Refused};
use super::{Check, Diagnosis, Outcome};
use crate::kernel::{MAX_SINGLE_POINTS, Probing};

/// The oldest kernel that the programs are written for.
const OLDEST: (u32, u32) = (5, 10);

const CAP_SYS_ADMIN: u32 = 21;
const CAP_BPF: u32 = 39;

/// A capability, what it is for, and whether the daemon works without it.
struct Capability {
    bit: u32,
    name: &'static str,
    without: &'static str,
    required: bool,
}

const CAPABILITIES: [Capability; 6] = [
    Capability {
        bit: CAP_BPF,
        name: "CAP_BPF",
        without: "no kernel program can be loaded",
        required: true,
    },
    Capability {
        bit: 38,
        name: "CAP_PERFMON",
        without: "nothing can be sampled or traced",
        required: true,
    },
    Capability {
        bit: 19,
        name: "CAP_SYS_PTRACE",
        without: "programs of other users stay unnamed",
        required: false,
    },
    Capability {
        bit: 40,
        name: "CAP_CHECKPOINT_RESTORE",
        without: "files that were replaced or deleted while mapped stay unnamed",
        required: false,
    },
    Capability {
        bit: 34,
        name: "CAP_SYSLOG",
        without: "kernel functions stay unnamed",
        required: false,
    },
    Capability {
        bit: 2,
        name: "CAP_DAC_READ_SEARCH",
        without: "files that only other users may read stay unnamed",
        required: false,
    },
];

/// Decides what the facts mean.
#[must_use]
pub fn examine(facts: &MachineFacts) -> Diagnosis {
    let mut checks = vec![kernel_release(facts), btf(facts), lockdown(facts)];
    checks.extend(capabilities(facts));
    checks.extend([
        bpf(facts),
        user_stacks(facts),
        measured_functions(facts),
        perf(facts),
        pid_namespace(facts),
        kernel_addresses(facts),
        control_groups(facts),
        tracefs(facts),
        bpf_statistics(facts),
    ]);
    let usable = checks.iter().all(|check| check.outcome != Outcome::Missing);
    Diagnosis { usable, checks }
}

fn ok(name: &'static str, found: impl Into<String>) -> Check {
    Check {
        name,
        outcome: Outcome::Ok,
        found: found.into(),
        fix: None,
    }
}

fn limited(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Check {
    Check {
        name,
        outcome: Outcome::Limited,
        found: found.into(),
        fix: Some(fix.into()),
    }
}

fn missing(name: &'static str, found: impl Into<String>, fix: impl Into<String>) -> Check {
    Check {
        name,
        outcome: Outcome::Missing,
        found: found.into(),
        fix: Some(fix.into()),
    }
}

/// The first two numbers of a kernel release.
pub(super) fn version(release: &str) -> Option<(u32, u32)> {
    let mut numbers = release.split(|c: char| !c.is_ascii_digit());
    Some((numbers.next()?.parse().ok()?, numbers.next()?.parse().ok()?))
}

fn kernel_release(facts: &MachineFacts) -> Check {
    const NAME: &str = "kernel";
    let Some(release) = &facts.release else {
        return limited(NAME, "the release cannot be read", "mount /proc");
    };
    match version(release) {
        Some(version) if version >= OLDEST => ok(NAME, format!("Linux {release}")),
        Some(_) => missing(
            NAME,
            format!("Linux {release} is older than {}.{}", OLDEST.0, OLDEST.1),
            format!("use a kernel of {}.{} or later", OLDEST.0, OLDEST.1),
        ),
        None => limited(
            NAME,
            format!("Linux {release}: the version is not understood"),
            "see whether the daemon starts",
        ),
    }
}

fn btf(facts: &MachineFacts) -> Check {
    const NAME: &str = "type-information";
    match &facts.btf {
        Ok(()) => ok(NAME, "the kernel describes its own types (BTF)"),
        Err(refused) => missing(
            NAME,
            format!(
                "/sys/kernel/btf/vmlinux cannot be read: {}",
                refused.sentence
            ),
            "use a kernel built with CONFIG_DEBUG_INFO_BTF=y, and make /sys visible to the daemon",
        ),
    }
}

fn lockdown(facts: &MachineFacts) -> Check {
    const NAME: &str = "lockdown";
    let mode = facts
        .lockdown
        .as_deref()
        .and_then(|text| text.split_once('['))
        .and_then(|(_, rest)| rest.split_once(']'))
        .map(|(mode, _)| mode);
    match mode {
        Some("confidentiality") => missing(
            NAME,
            "the kernel is locked down for confidentiality: programs may not read memory",
            "boot with lockdown=integrity or without lockdown",
        ),
        Some(mode) => ok(NAME, format!("{mode}: programs may read memory")),
        None => ok(NAME, "this kernel is not locked down"),
    }
}

fn has(facts: &MachineFacts, bit: u32) -> Option<bool> {
    facts
        .capabilities
        .map(|capabilities| capabilities & (1 << bit) != 0)
}

fn capabilities(facts: &MachineFacts) -> Vec<Check> {
    let Some(is_admin) = has(facts, CAP_SYS_ADMIN) else {
        return vec![limited(
            "capabilities",
            "/proc/self/status cannot be read",
            "mount /proc",
        )];
    };
    // CAP_SYS_ADMIN stands in for these; the kernel asks for CAP_SYS_PTRACE and CAP_DAC_READ_SEARCH
    // by name.
    let replaced =
        |name: &str| is_admin && !matches!(name, "CAP_SYS_PTRACE" | "CAP_DAC_READ_SEARCH");
    let check = |capability: &Capability| {
        if has(facts, capability.bit) == Some(true) {
            return ok(capability.name, "granted");
        }
        if replaced(capability.name) {
            return ok(
                capability.name,
                "not granted, but CAP_SYS_ADMIN is, which includes it",
            );
        }
        let found = format!("not granted: {}", capability.without);
        let fix = format!(
            "run as root, or add {} to AmbientCapabilities= of the service",
            capability.name
        );
        if capability.required {
            missing(capability.name, found, fix)
        } else {
            limited(capability.name, found, fix)
        }
    };
    CAPABILITIES.iter().map(check).collect()
}

/// Whether maps count towards the limit on locked memory (RLIMIT_MEMLOCK).
fn counts_locked_memory(facts: &MachineFacts) -> bool {
    let release = facts.release.as_deref();
    release
        .and_then(version)
        .is_some_and(|version| version < (5, 11))
}

fn bpf(facts: &MachineFacts) -> Check {
    const NAME: &str = "bpf";
    match &facts.bpf {
        Ok(()) => ok(NAME, "a map can be created"),
        Err(Refused {
            errno: libc::ENOSYS,
            ..
        }) => missing(
            NAME,
            "the kernel has no bpf() system call",
            "use a kernel built with CONFIG_BPF_SYSCALL=y, and allow bpf in the service's system call filter",
        ),
        // The reason may be that other programs of this user have used the limit up.
        Err(Refused {
            errno: libc::EPERM, ..
        }) if counts_locked_memory(facts) && has(facts, CAP_BPF) == Some(true) => missing(
            NAME,
            "bpf() is refused: on this kernel, older than 5.11, maps count towards the limit on locked memory",
            "set LimitMEMLOCK=infinity in the service, or run as root",
        ),
        Err(refused) => missing(
            NAME,
            format!("bpf() is refused: {}", refused.sentence),
            "grant CAP_BPF, and allow bpf in the service's or the container's system call filter",
        ),
    }
}

fn user_stacks(facts: &MachineFacts) -> Check {
    const NAME: &str = "user-stacks";
    match facts.loops {
        Some(true) => ok(NAME, "followed by unwind information"),
        Some(false) => limited(
            NAME,
            "followed by frame pointers alone, for want of bpf_loop (Linux 5.17): stacks of code built without end early",
            "use a kernel of 5.17 or later; times, samples and the executing functions are exact on this one too",
        ),
        None => limited(
            NAME,
            "not tried, since no program can be loaded",
            "mend what is MISSING first",
        ),
    }
}

fn measured_functions(facts: &MachineFacts) -> Check {
    const NAME: &str = "measured-functions";
    match facts.probing {
        Probing::Nothing => limited(
            NAME,
            "every call of chosen functions cannot be measured (record --trace), for want of attach cookies (Linux 5.15)",
            "use a kernel of 6.6 or later, or of 5.15 for a few; sampling is the same on this one",
        ),
        Probing::Single => limited(
            NAME,
            format!(
                "every call of a few chosen functions can be measured: at most {MAX_SINGLE_POINTS} points at a time, for want of links of many (Linux 6.6)"
            ),
            "use a kernel of 6.6 or later for more; sampling is the same on this one",
        ),
        Probing::Many {
            of_processes: false,
        } => ok(
            NAME,
            "every call of chosen functions can be measured; probes in a library slow all that have it mapped (Linux 6.10)",
        ),
        Probing::Many { of_processes: true } => {
            ok(NAME, "every call of chosen functions can be measured")
        }
    }
}

fn perf(facts: &MachineFacts) -> Check {
    const NAME: &str = "perf-events";
    let paranoid = facts.perf_event_paranoid;
    let setting = paranoid.map_or_else(String::new, |level| {
        format!(" (kernel.perf_event_paranoid is {level})")
    });
    match &facts.perf {
        Ok(()) => ok(NAME, format!("the whole machine can be sampled{setting}")),
        // Debian and Ubuntu add levels from 3 on, which ask for more than other kernels do.
        Err(_)
            if paranoid.is_some_and(|level| level >= 3)
                && has(facts, CAP_SYS_ADMIN) == Some(false) =>
        {
            missing(
                NAME,
                format!(
                    "sampling is refused{setting}: from level 3 on, this kernel wants CAP_SYS_ADMIN for it"
                ),
                "set kernel.perf_event_paranoid=2 with sysctl, or grant the service CAP_SYS_ADMIN",
            )
        }
        Err(Refused {
            errno: libc::ENODEV,
            ..
        }) => limited(
            NAME,
            "processor 0 is offline: not tried",
            "put processor 0 online, or see whether the daemon starts",
        ),
        Err(refused) => missing(
            NAME,
            format!("sampling is refused: {}{setting}", refused.sentence),
            "grant CAP_PERFMON, and allow perf_event_open in the service's or the container's system call filter",
        ),
    }
}

fn pid_namespace(facts: &MachineFacts) -> Check {
    const NAME: &str = "process-numbers";
    match facts.initial_pid_namespace {
        Some(true) => ok(NAME, "this is the machine's own process namespace"),
        Some(false) => missing(
            NAME,
            "this is a process namespace of its own: the kernel's process numbers mean nothing in /proc here",
            "run in the machine's process namespace (hostPID: true, or --pid=host)",
        ),
        None => limited(NAME, "the process namespace cannot be read", "mount /proc"),
    }
}

fn kernel_addresses(facts: &MachineFacts) -> Check {
    const NAME: &str = "kernel-names";
    match (facts.kernel_addresses, facts.kptr_restrict) {
        (Some(true), _) => ok(NAME, "kernel functions can be named"),
        (Some(false), Some(level)) if level >= 2 => limited(
            NAME,
            format!(
                "kernel functions stay unnamed: kernel.kptr_restrict is {level}, which hides addresses from everyone"
            ),
            "set kernel.kptr_restrict=1 with sysctl",
        ),
        (Some(false), _) => limited(
            NAME,
            "kernel functions stay unnamed: /proc/kallsyms hides addresses",
            "grant CAP_SYSLOG, and set ProtectKernelLogs=no in the service",
        ),
        (None, _) => limited(
            NAME,
            "kernel functions stay unnamed: /proc/kallsyms cannot be read",
            "set ProtectKernelTunables=no in the service, and use a kernel built with CONFIG_KALLSYMS=y",
        ),
    }
}

fn control_groups(facts: &MachineFacts) -> Check {
    const NAME: &str = "control-groups";
    if facts.control_groups {
        ok(NAME, "there are groups of version 2: they can be targets")
    } else {
        limited(
            NAME,
            "there are no groups of version 2 at /sys/fs/cgroup: groups cannot be targets",
            "boot with systemd.unified_cgroup_hierarchy=1, or mount one at /sys/fs/cgroup/unified (mount -t cgroup2)",
        )
    }
}

fn tracefs(facts: &MachineFacts) -> Check {
    const NAME: &str = "tracefs";
    if facts.tracefs {
        ok(NAME, "trace points can be listed")
    } else {
        // Not a limit: the programs attach without it.
        ok(NAME, "trace points cannot be listed, and need not be")
    }
}

fn bpf_statistics(facts: &MachineFacts) -> Check {
    const NAME: &str = "bpf-statistics";
    match (facts.bpf_stats_enabled, has(facts, CAP_SYS_ADMIN)) {
        (None, _) => ok(NAME, "unknown to this kernel"),
        (Some(0), Some(false)) => ok(
            NAME,
            "off, and only CAP_SYS_ADMIN may switch them on: what the daemon's own kernel programs cost is not shown (kernel.bpf_stats_enabled=1 shows it, at some 30 ns a run)",
        ),
        (Some(0), _) => ok(
            NAME,
            "off: the daemon switches them on for 200 ms in each 10 s, and scales up what its own kernel programs cost",
        ),
        (Some(_), _) => ok(
            NAME,
            "on all the time (kernel.bpf_stats_enabled), for some 30 ns a run of every program of this machine; the daemon looks at 200 ms in each 10 s, and scales up",
        ),
    }
}
