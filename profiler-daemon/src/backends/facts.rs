//! What does not change while the daemon runs, and what works less well than it should.

use std::fs;

use crate::config::{Config, SystemCalls};
use crate::http::Degraded;
use crate::sys::clock::unix_ns;

/// See the module.
#[derive(Clone, Debug)]
pub(super) struct Facts {
    pub(super) version: String,
    pub(super) kernel_release: String,
    pub(super) started_unix_ns: u64,
    pub(super) degraded: Vec<Degraded>,
}

impl Facts {
    pub(super) fn gather(config: &Config) -> Self {
        let mut facts = Self {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            // Reads what `uname -r` says; a system without it is still profiled.
            kernel_release: fs::read_to_string("/proc/sys/kernel/osrelease")
                .unwrap_or_default()
                .trim()
                .to_owned(),
            started_unix_ns: unix_ns(),
            degraded: Vec::new(),
        };
        if config.system_calls != SystemCalls::All {
            facts.degrade(
                "system calls",
                format!(
                    "system_calls is \"{}\": time in untraced system calls that run without waiting counts as user time",
                    config.system_calls.as_str()
                ),
            );
        }
        facts
    }

    pub(super) fn degrade(&mut self, what: &str, why: String) {
        self.degraded.push(Degraded {
            what: what.to_owned(),
            why,
        });
    }
}
