//! Processes by what an operator calls them: systemd unit, else container, else program, else name.
//! Counters for a metrics system: they only rise, and there is a bounded number of them.
//!
//! The names come from the workload, so growth is treated as an attack: once the table is full, new
//! groups count under `other` from their first moment on. A group keeps its counters until it was
//! idle for long, and then goes whole; a value is never moved from one counter to another.

use std::{collections::BTreeMap, sync::Arc};

use profiler_common::ClassNs;
use serde::{Deserialize, Serialize};

use super::{
    input::ProcessInfo,
    values::{add_classes, sum},
};
use crate::units::MonoNs;

/// Where groups beyond the bound are counted.
pub const OTHER: &str = "other";
/// Longest group name, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// The counters of one group; they never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCounters {
    /// Nanoseconds per class.
    pub classes: ClassNs,
    /// Timer samples.
    pub samples: u64,
}

/// All groups as a metrics endpoint shows them.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct GroupsView {
    /// Every group with counters of its own, and `other`, by name.
    pub groups: BTreeMap<Arc<str>, GroupCounters>,
    /// Most groups that get counters of their own.
    pub limit: usize,
    /// Samples that went to `other` for want of room.
    pub overflow_samples: u64,
}

#[derive(Debug)]
struct Group {
    counters: GroupCounters,
    gained_ns: MonoNs,
}

/// What a process has already been counted for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Credited {
    classes: ClassNs,
    samples: u64,
}

/// The groups of a profile.
#[derive(Debug)]
pub struct Groups {
    groups: BTreeMap<Arc<str>, Group>,
    other: GroupCounters,
    limit: usize,
    idle_ns: u64,
    overflow_samples: u64,
}

impl Groups {
    /// At most `limit` groups beside `other`; one that gained nothing for `idle_ns` is dropped.
    #[must_use]
    pub fn new(limit: usize, idle_ns: u64) -> Self {
        Self {
            groups: BTreeMap::new(),
            other: GroupCounters::default(),
            limit,
            idle_ns,
            overflow_samples: 0,
        }
    }

    /// Counts what a process gained beyond what it was counted for. `classes` may fall for a moment
    /// (an open interval that changed its class); the counters wait until it has caught up.
    pub(super) fn credit(
        &mut self,
        name: &Arc<str>,
        now_ns: MonoNs,
        credited: &mut Credited,
        classes: &ClassNs,
        samples: u64,
    ) {
        let mut gain = GroupCounters::default();
        let gained = gain.classes.iter_mut().zip(classes);
        for ((gain, now), counted) in gained.zip(&mut credited.classes) {
            *gain = now.saturating_sub(*counted);
            *counted = (*counted).max(*now);
        }
        gain.samples = samples.saturating_sub(credited.samples);
        credited.samples = credited.samples.max(samples);
        if sum(&gain.classes) == 0 && gain.samples == 0 {
            return;
        }
        let fits = self.groups.len() < self.limit;
        let counters = if &**name == OTHER {
            &mut self.other
        } else if let Some(group) = self.groups.get_mut(name) {
            group.gained_ns = now_ns;
            &mut group.counters
        } else if fits {
            let group = Group {
                counters: GroupCounters::default(),
                gained_ns: now_ns,
            };
            &mut self
                .groups
                .entry(Arc::clone(name))
                .or_insert(group)
                .counters
        } else {
            self.overflow_samples += gain.samples;
            &mut self.other
        };
        add_classes(&mut counters.classes, &gain.classes);
        counters.samples += gain.samples;
    }

    /// Drops the groups that were idle for too long.
    pub fn drop_idle(&mut self, now_ns: MonoNs) {
        let idle_ns = self.idle_ns;
        self.groups
            .retain(|_, group| now_ns.saturating_since(group.gained_ns) < idle_ns);
    }

    /// All counters as of now.
    #[must_use]
    pub fn view(&self) -> GroupsView {
        let own = self
            .groups
            .iter()
            .map(|(name, group)| (Arc::clone(name), group.counters));
        let mut groups: BTreeMap<_, _> = own.collect();
        groups.insert(OTHER.into(), self.other);
        GroupsView {
            groups,
            limit: self.limit,
            overflow_samples: self.overflow_samples,
        }
    }
}

/// The group of a process.
#[must_use]
pub fn group_name(info: &ProcessInfo) -> Arc<str> {
    let program = || {
        let exe = info.exe.as_deref()?;
        let exe = exe.strip_suffix(" (deleted)").unwrap_or(exe);
        exe.rsplit('/').find(|part| !part.is_empty()).map(Arc::from)
    };
    let named = |name: &Option<Arc<str>>| name.clone().filter(|name| !name.is_empty());
    let name = named(&info.unit)
        .or_else(|| named(&info.container_id))
        .or_else(program)
        .unwrap_or_else(|| info.comm.to_string().into());
    if name.len() <= MAX_NAME_BYTES {
        return name;
    }
    let mut end = MAX_NAME_BYTES;
    while !name.is_char_boundary(end) {
        end -= 1;
    }
    name[..end].into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        processes::ids::ProcessKey,
        profile::input::CommName,
        units::{BootNs, UnixNs},
    };

    fn user(ns: u64) -> ClassNs {
        [ns, 0, 0, 0, 0]
    }

    // Check that a full table counts new groups under "other", keeps the admitted ones, and never
    // lets a counter fall.
    #[test]
    fn admission_is_sticky() {
        let mut groups = Groups::new(1, 1000);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let (mut of_a, mut of_b) = (Credited::default(), Credited::default());
        groups.credit(&a, MonoNs::ZERO, &mut of_a, &user(10), 1);
        groups.credit(&b, MonoNs::ZERO, &mut of_b, &user(500), 7);
        groups.credit(&a, MonoNs::new(500), &mut of_a, &user(8), 1);
        groups.credit(&a, MonoNs::new(600), &mut of_a, &user(15), 2);
        let view = groups.view();
        assert_eq!(
            view.groups["a"],
            GroupCounters {
                classes: user(15),
                samples: 2
            }
        );
        assert_eq!(
            view.groups[OTHER],
            GroupCounters {
                classes: user(500),
                samples: 7
            }
        );
        assert_eq!(view.overflow_samples, 7);
        groups.drop_idle(MonoNs::new(1599));
        assert!(groups.view().groups.contains_key("a"));
        groups.drop_idle(MonoNs::new(1600));
        assert!(!groups.view().groups.contains_key("a"));
        groups.credit(&b, MonoNs::new(1600), &mut of_b, &user(501), 7);
        assert_eq!(groups.view().groups["b"].classes, user(1));
        assert_eq!(groups.view().groups[OTHER].classes, user(500));
    }

    // Check the order in which a group gets its name, and that a long name is cut at a character.
    #[test]
    fn names() {
        let key = ProcessKey {
            pid: 1,
            start_ns: BootNs::new(2),
        };
        let mut info = ProcessInfo::unknown(key, CommName::new("sh"), UnixNs::ZERO);
        assert_eq!(&*group_name(&info), "sh");
        info.exe = Some("/usr/bin/dash (deleted)".into());
        assert_eq!(&*group_name(&info), "dash");
        info.container_id = Some("é".repeat(100).into());
        assert_eq!(group_name(&info).len(), 128);
        info.unit = Some("cron.service".into());
        assert_eq!(&*group_name(&info), "cron.service");
    }
}
