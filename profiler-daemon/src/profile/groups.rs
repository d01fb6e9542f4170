//! Processes by what an operator calls them: systemd unit, else container, else program, else name.
//! Counters for a metrics system: they only rise, and there is a bounded number of them.
//!
//! The names come from the workload, so growth is treated as an attack: once the table is full, new
//! groups count under `other` from their first moment on. A group keeps its counters until it was
//! idle for long, and then goes whole; a value is never moved from one counter to another.
//!
//! What was in system calls that were not traced, and in page faults, only ticks tell: such time is
//! counted once there was a tick of the group in it, by what the ticks found since it was last
//! counted.

use std::{collections::BTreeMap, mem, sync::Arc};

use profiler_common::{
    Class, ClassNs,
    division::{Product, Stratum},
    kinds::{Kind, KindNs, Primary, TICKS, Tick},
};
use serde::{Deserialize, Serialize};

use super::{
    input::ProcessInfo,
    values::{Totals, add_classes, sum},
};
use crate::units::MonoNs;

/// Where groups beyond the bound are counted.
pub const OTHER: &str = "other";
/// Longest group name, in bytes.
const MAX_NAME_BYTES: usize = 128;

/// The counters of one group; they never fall.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct GroupCounters {
    /// Nanoseconds of all classes.
    pub elapsed_ns: u64,
    /// Nanoseconds per class. Untraced running time of which ticks have told nothing yet is in
    /// none.
    pub classes: ClassNs,
    /// Nanoseconds in user mode, page faults left out, of which ticks have told.
    pub application_ns: u64,
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

/// Counters that are being counted.
#[derive(Debug, Default)]
struct Group {
    counters: GroupCounters,
    /// Running time outside traced calls that was not divided yet: of [`RUNNING`].
    undivided: KindNs,
    /// The ticks since it last was.
    ticks: [u64; TICKS],
    gained_ns: MonoNs,
}

/// The kinds of running time that are divided by ticks alone, with those ticks.
const RUNNING: [(Kind, &[Tick]); 2] = [
    (Kind::User, &[Tick::User, Tick::Fault]),
    (
        Kind::Untraced,
        &[Tick::UntracedUser, Tick::UntracedFault, Tick::UntracedCall],
    ),
];

impl Group {
    fn gain(&mut self, gain: &Gain) {
        self.counters.elapsed_ns += sum(&gain.classes);
        self.counters.samples += gain.ticks.iter().sum::<u64>();
        for (to, from) in self.ticks.iter_mut().zip(gain.ticks) {
            *to += from;
        }
        let mut classes = gain.classes;
        let user_ns = &mut classes[Class::User as usize];
        let untraced_ns = gain.untraced_ns.min(*user_ns);
        *user_ns -= untraced_ns;
        self.undivided[Kind::User as usize] += *user_ns;
        self.undivided[Kind::Untraced as usize] += untraced_ns;
        add_classes(&mut self.counters.classes, &classes);
        for (kind, ticks) in RUNNING {
            self.divide(kind, ticks);
        }
    }

    /// Counts the time of a kind as its ticks found it, if there were any.
    fn divide(&mut self, kind: Kind, ticks: &[Tick]) {
        let mut found = Primary::default();
        for tick in ticks {
            found.ticks[*tick as usize] = self.ticks[*tick as usize];
        }
        if self.undivided[kind as usize] == 0 || found.samples() == 0 {
            return;
        }
        let mut kinds = KindNs::default();
        kinds[kind as usize] = mem::take(&mut self.undivided[kind as usize]);
        for tick in ticks {
            self.ticks[*tick as usize] = 0;
        }
        let product: Product = Stratum::new(&kinds, &found, 0).total_of(kind);
        self.counters.application_ns += product.application_ns();
        // Traced time's class was known before.
        if kind == Kind::Untraced {
            add_classes(&mut self.counters.classes, &product.classes);
        }
    }
}

/// What a process has already been counted for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Credited {
    classes: ClassNs,
    untraced_ns: u64,
    ticks: [u64; TICKS],
}

/// What a process gained beyond that.
#[derive(Clone, Copy, Debug, Default)]
struct Gain {
    classes: ClassNs,
    /// The part of class user in which system calls were not traced.
    untraced_ns: u64,
    ticks: [u64; TICKS],
}

impl Credited {
    /// What these totals have more than was counted, which is counted now. Numbers may fall for a
    /// moment (an open interval that changed its class); nothing is gained until they have caught
    /// up.
    fn gain(&mut self, totals: &Totals) -> Gain {
        let more = |counted: &mut u64, now: u64| {
            let gain = now.saturating_sub(*counted);
            *counted = (*counted).max(now);
            gain
        };
        let mut gain = Gain::default();
        for (class, gain) in gain.classes.iter_mut().enumerate() {
            *gain = more(&mut self.classes[class], totals.classes[class]);
        }
        for (tick, gain) in gain.ticks.iter_mut().enumerate() {
            *gain = more(&mut self.ticks[tick], totals.ticks[tick]);
        }
        let untraced_ns = totals.kinds[Kind::Untraced as usize];
        gain.untraced_ns = more(&mut self.untraced_ns, untraced_ns);
        gain
    }
}

/// The groups of a profile.
#[derive(Debug)]
pub struct Groups {
    groups: BTreeMap<Arc<str>, Group>,
    other: Group,
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
            other: Group::default(),
            limit,
            idle_ns,
            overflow_samples: 0,
        }
    }

    /// Counts what a process gained beyond what it was counted for.
    pub(super) fn credit(
        &mut self,
        name: &Arc<str>,
        now_ns: MonoNs,
        credited: &mut Credited,
        totals: &Totals,
    ) {
        let gain = credited.gain(totals);
        let samples: u64 = gain.ticks.iter().sum();
        if sum(&gain.classes) == 0 && samples == 0 {
            return;
        }
        let fits = self.groups.len() < self.limit;
        let group = if &**name == OTHER {
            &mut self.other
        } else if self.groups.contains_key(name) || fits {
            self.groups.entry(Arc::clone(name)).or_default()
        } else {
            self.overflow_samples += samples;
            &mut self.other
        };
        group.gained_ns = now_ns;
        group.gain(&gain);
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
        groups.insert(OTHER.into(), self.other.counters);
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

    /// Traced running time in user mode.
    fn user(ns: u64, ticks: u64) -> Totals {
        let mut totals = Totals::default();
        totals.classes[Class::User as usize] = ns;
        totals.kinds[Kind::User as usize] = ns;
        totals.ticks[Tick::User as usize] = ticks;
        totals
    }

    fn counters(ns: u64, samples: u64) -> GroupCounters {
        GroupCounters {
            elapsed_ns: ns,
            classes: [ns, 0, 0, 0, 0],
            application_ns: ns,
            samples,
        }
    }

    // Check that a full table counts new groups under "other", keeps the admitted ones, and never
    // lets a counter fall.
    #[test]
    fn admission_is_sticky() {
        let mut groups = Groups::new(1, 1000);
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let (mut of_a, mut of_b) = (Credited::default(), Credited::default());
        groups.credit(&a, MonoNs::ZERO, &mut of_a, &user(10, 1));
        groups.credit(&b, MonoNs::ZERO, &mut of_b, &user(500, 7));
        groups.credit(&a, MonoNs::new(500), &mut of_a, &user(8, 1));
        groups.credit(&a, MonoNs::new(600), &mut of_a, &user(15, 2));
        let view = groups.view();
        assert_eq!(view.groups["a"], counters(15, 2));
        assert_eq!(view.groups[OTHER], counters(500, 7));
        assert_eq!(view.overflow_samples, 7);
        groups.drop_idle(MonoNs::new(1599));
        assert!(groups.view().groups.contains_key("a"));
        groups.drop_idle(MonoNs::new(1600));
        assert!(!groups.view().groups.contains_key("a"));
        groups.credit(&b, MonoNs::new(1600), &mut of_b, &user(501, 8));
        assert_eq!(groups.view().groups["b"], counters(1, 1));
        assert_eq!(groups.view().groups[OTHER], counters(500, 7));
    }

    // Check that running time is counted as ticks found it: untraced time in calls is in calls, and
    // page faults are no application time; that what no tick was in waits for one, whichever
    // process of the group has it; and that elapsed time does not wait.
    #[test]
    fn ticks_tell_what_running_time_was() {
        let mut groups = Groups::new(1, 1000);
        let a: Arc<str> = "a".into();
        let mut credited = [Credited::default(); 2];
        let mut totals = user(1000, 0);
        totals.classes[Class::Blocked as usize] = 7;
        totals.kinds[Kind::Untraced as usize] = 900;
        totals.kinds[Kind::User as usize] = 100;
        groups.credit(&a, MonoNs::ZERO, &mut credited[0], &totals);
        let mut expected = GroupCounters {
            elapsed_ns: 1007,
            classes: [100, 0, 7, 0, 0],
            ..GroupCounters::default()
        };
        assert_eq!(groups.view().groups["a"], expected);
        // Another process of it.
        let mut totals = Totals::default();
        totals.classes[Class::User as usize] = 100;
        totals.kinds[Kind::Untraced as usize] = 100;
        totals.ticks[Tick::UntracedUser as usize] = 1;
        totals.ticks[Tick::UntracedFault as usize] = 1;
        totals.ticks[Tick::UntracedCall as usize] = 2;
        totals.ticks[Tick::User as usize] = 3;
        totals.ticks[Tick::Fault as usize] = 1;
        groups.credit(&a, MonoNs::ZERO, &mut credited[1], &totals);
        expected = GroupCounters {
            elapsed_ns: 1107,
            classes: [100 + 500, 500, 7, 0, 0],
            application_ns: 75 + 250,
            samples: 8,
        };
        assert_eq!(groups.view().groups["a"], expected);
        // Ticks of before say nothing of what comes.
        totals.classes[Class::User as usize] += 40;
        totals.kinds[Kind::Untraced as usize] += 40;
        totals.ticks[Tick::UntracedUser as usize] += 1;
        groups.credit(&a, MonoNs::ZERO, &mut credited[1], &totals);
        expected.elapsed_ns += 40;
        expected.classes[Class::User as usize] += 40;
        expected.application_ns += 40;
        expected.samples += 1;
        assert_eq!(groups.view().groups["a"], expected);
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
