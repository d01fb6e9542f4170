//! Tests of what the facts mean, and that this machine can be asked.

use super::checks::version;
use super::facts::{Refused, effective_capabilities, shows_addresses};
use super::{Check, MachineFacts, Outcome, diagnose, examine};
use crate::kernel::Probing;

const SIX: u64 = 1 << 39 | 1 << 38 | 1 << 19 | 1 << 40 | 1 << 34 | 1 << 2;

fn refused(errno: i32) -> Refused {
    std::io::Error::from_raw_os_error(errno).into()
}

/// A machine where everything is as it should be.
fn good() -> MachineFacts {
    MachineFacts {
        release: Some("6.12.9-1-amd64".to_owned()),
        btf: Ok(()),
        lockdown: Some("[none] integrity confidentiality\n".to_owned()),
        capabilities: Some(SIX),
        perf_event_paranoid: Some(2),
        kptr_restrict: Some(0),
        bpf_stats_enabled: Some(0),
        bpf: Ok(()),
        loops: Some(true),
        probing: Probing::Many { of_processes: true },
        perf: Ok(()),
        kernel_addresses: Some(true),
        control_groups: true,
        tracefs: true,
        initial_pid_namespace: Some(true),
    }
}

fn check(facts: &MachineFacts, name: &str) -> Check {
    examine(facts)
        .checks
        .into_iter()
        .find(|check| check.name == name)
        .unwrap()
}

#[test]
fn a_good_machine_needs_nothing() {
    // Check that six capabilities on a current kernel are enough, and that the exit code says so.
    let diagnosis = examine(&good());
    assert!(
        diagnosis
            .checks
            .iter()
            .all(|check| check.outcome == Outcome::Ok && check.fix.is_none()),
        "{diagnosis:?}"
    );
    assert_eq!(diagnosis.exit_code(), 0);
    assert!(
        diagnosis
            .to_text()
            .ends_with("Everything the daemon needs is here.\n")
    );
}

#[test]
fn what_is_required_makes_the_exit_code() {
    // Check that each thing the daemon cannot do without is MISSING with a fix, and makes the exit
    // code non-zero.
    let cases: [(&str, MachineFacts, &str); 11] = [
        (
            "kernel",
            MachineFacts {
                release: Some("5.4.0-150-generic".to_owned()),
                ..good()
            },
            "5.10 or later",
        ),
        (
            "type-information",
            MachineFacts {
                btf: Err(refused(libc::ENOENT)),
                ..good()
            },
            "CONFIG_DEBUG_INFO_BTF",
        ),
        (
            "lockdown",
            MachineFacts {
                lockdown: Some("none integrity [confidentiality]".to_owned()),
                ..good()
            },
            "lockdown=integrity",
        ),
        (
            "CAP_BPF",
            MachineFacts {
                capabilities: Some(SIX & !(1 << 39)),
                ..good()
            },
            "CAP_BPF",
        ),
        (
            "CAP_PERFMON",
            MachineFacts {
                capabilities: Some(SIX & !(1 << 38)),
                ..good()
            },
            "AmbientCapabilities=",
        ),
        (
            "bpf",
            MachineFacts {
                bpf: Err(refused(libc::EPERM)),
                ..good()
            },
            "grant CAP_BPF",
        ),
        (
            "bpf",
            MachineFacts {
                release: Some("5.10.0-32-cloud-amd64".to_owned()),
                bpf: Err(refused(libc::EPERM)),
                ..good()
            },
            "LimitMEMLOCK=infinity",
        ),
        (
            "bpf",
            MachineFacts {
                bpf: Err(refused(libc::ENOSYS)),
                ..good()
            },
            "CONFIG_BPF_SYSCALL",
        ),
        (
            "perf-events",
            MachineFacts {
                perf: Err(refused(libc::EACCES)),
                ..good()
            },
            "grant CAP_PERFMON",
        ),
        (
            "perf-events",
            MachineFacts {
                perf: Err(refused(libc::EACCES)),
                perf_event_paranoid: Some(3),
                ..good()
            },
            "perf_event_paranoid=2",
        ),
        (
            "process-numbers",
            MachineFacts {
                initial_pid_namespace: Some(false),
                ..good()
            },
            "hostPID",
        ),
    ];
    for (name, facts, fix) in cases {
        let check = check(&facts, name);
        assert_eq!(check.outcome, Outcome::Missing, "{check:?}");
        assert!(
            check.fix.as_deref().is_some_and(|text| text.contains(fix)),
            "{check:?}"
        );
        assert_eq!(examine(&facts).exit_code(), 1);
        assert!(examine(&facts).to_text().contains("MISSING"));
    }
}

#[test]
fn what_makes_reports_poorer_does_not_stop_the_daemon() {
    // Check that what only costs names or safety is limited, carries its fix, and leaves the exit
    // code at 0.
    let cases: [(&str, MachineFacts, &str); 9] = [
        (
            "CAP_SYS_PTRACE",
            MachineFacts {
                capabilities: Some(SIX & !(1 << 19)),
                ..good()
            },
            "CAP_SYS_PTRACE",
        ),
        (
            "CAP_SYSLOG",
            MachineFacts {
                capabilities: Some(SIX & !(1 << 34)),
                ..good()
            },
            "CAP_SYSLOG",
        ),
        (
            "kernel-names",
            MachineFacts {
                kernel_addresses: Some(false),
                kptr_restrict: Some(2),
                ..good()
            },
            "kptr_restrict=1",
        ),
        (
            "kernel-names",
            MachineFacts {
                kernel_addresses: Some(false),
                ..good()
            },
            "CAP_SYSLOG",
        ),
        (
            "kernel-names",
            MachineFacts {
                kernel_addresses: None,
                ..good()
            },
            "ProtectKernelTunables=no",
        ),
        (
            "measured-functions",
            MachineFacts {
                probing: Probing::Single,
                ..good()
            },
            "6.6 or later for more",
        ),
        (
            "measured-functions",
            MachineFacts {
                probing: Probing::Nothing,
                ..good()
            },
            "or of 5.15 for a few",
        ),
        (
            "user-stacks",
            MachineFacts {
                release: Some("5.10.0-32-cloud-amd64".to_owned()),
                loops: Some(false),
                ..good()
            },
            "5.17 or later",
        ),
        (
            "perf-events",
            MachineFacts {
                perf: Err(refused(libc::ENODEV)),
                ..good()
            },
            "processor 0",
        ),
    ];
    for (name, facts, fix) in cases {
        let check = check(&facts, name);
        assert_eq!(check.outcome, Outcome::Limited, "{check:?}");
        assert!(
            check.fix.as_deref().is_some_and(|text| text.contains(fix)),
            "{check:?}"
        );
        assert_eq!(examine(&facts).exit_code(), 0, "{name}");
    }
}

#[test]
fn the_administrator_has_what_it_includes() {
    // Check that CAP_SYS_ADMIN stands in for CAP_BPF but not for CAP_SYS_PTRACE.
    let facts = MachineFacts {
        capabilities: Some(1 << 21),
        ..good()
    };
    assert_eq!(check(&facts, "CAP_BPF").outcome, Outcome::Ok);
    assert_eq!(check(&facts, "CAP_SYS_PTRACE").outcome, Outcome::Limited);
    let paranoid = MachineFacts {
        perf: Err(refused(libc::EACCES)),
        perf_event_paranoid: Some(3),
        ..facts
    };
    assert!(
        !check(&paranoid, "perf-events")
            .found
            .contains("CAP_SYS_ADMIN"),
        "it is granted already"
    );
}

#[test]
fn what_is_optional_is_never_a_fault() {
    // Check that missing trace points, statistics and lockdown are fine.
    let facts = MachineFacts {
        tracefs: false,
        bpf_stats_enabled: None,
        lockdown: None,
        ..good()
    };
    assert!(
        examine(&facts)
            .checks
            .iter()
            .all(|check| check.outcome == Outcome::Ok)
    );
}

#[test]
fn statistics_are_promised_only_to_who_may_switch_them_on() {
    // Check that the cost of the programs is promised with CAP_SYS_ADMIN or the setting, and not
    // without both.
    let found = |capabilities, enabled| {
        let facts = MachineFacts {
            capabilities: Some(capabilities),
            bpf_stats_enabled: Some(enabled),
            ..good()
        };
        check(&facts, "bpf-statistics").found
    };
    assert!(found(SIX, 0).contains("not shown"));
    for shown in [found(SIX | 1 << 21, 0), found(SIX, 1)] {
        assert!(
            shown.contains("200 ms") && !shown.contains("not shown"),
            "{shown}"
        );
    }
}

#[test]
fn files_are_read_as_the_kernel_writes_them() {
    // Check that releases, capabilities and symbol lists are understood, and that nonsense is not.
    assert_eq!(version("5.10.223"), Some((5, 10)));
    assert_eq!(version("6.18-rc1"), Some((6, 18)));
    assert_eq!(version("unknown"), None);
    assert_eq!(
        effective_capabilities("Name:\tx\nCapEff:\t000001ffffffffff\n"),
        Some(0x1ff_ffff_ffff)
    );
    assert_eq!(effective_capabilities("CapEff:\tzz\n"), None);
    assert_eq!(shows_addresses(""), None);
    assert_eq!(
        shows_addresses("0000000000000000 A a\n0000000000000000 T b\n"),
        Some(false)
    );
    assert_eq!(
        shows_addresses("0000000000000000 A a\nffffffff81000000 T b\n"),
        Some(true)
    );
}

#[test]
fn this_machine_can_be_asked() {
    // Check that asking the machine that runs the test answers every check, in text and in JSON.
    let diagnosis = diagnose();
    assert!(
        check(&MachineFacts::gather(), "kernel")
            .found
            .starts_with("Linux ")
    );
    let json: serde_json::Value = serde_json::from_str(&diagnosis.to_json().unwrap()).unwrap();
    assert_eq!(
        json["checks"].as_array().unwrap().len(),
        diagnosis.checks.len()
    );
    assert!(diagnosis.to_text().lines().count() > diagnosis.checks.len());
}
