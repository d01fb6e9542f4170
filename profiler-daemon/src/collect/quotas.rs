//! Which control groups' quota of processor time threw processes off the processors, and for how
//! long: a thread that is throttled is runnable, like one that waits for another's turn to end.
//!
//! Only groups around processes that were runnable for long are read, a few files a pass. A group
//! counts from when it was first read.

use std::collections::HashMap;
use std::sync::Arc;

use profiler_common::Class;

use crate::kernel::Pass;
use crate::processes::ids::ProcessKey;
use crate::profile::input::DrainPass;
use crate::sys::quota::{CpuGroup, throttled_ns};
use crate::units::MonoNs;

use super::convert::SlotOwner;

/// Of the processes whose threads were runnable for longest since the last pass, so many are looked
/// at,
const MAX_PROCESSES: usize = 4;
/// those that were for a twentieth of that time.
const WORTH: u64 = 20;
/// Files of groups that are read in one pass.
const MAX_READS: usize = 16;
/// Groups that are known.
const MAX_GROUPS: usize = 64;
/// A group that was not throttled gives way to others after so many passes: sooner, new ones would
/// displace each other before they are read a second time.
const IDLE_PASSES: u64 = 10;

/// Where groups are read.
pub(super) trait CpuGroups {
    /// The group of a process.
    fn of(&self, pid: u32) -> Option<CpuGroup>;
    /// For how long one was throttled since it was made.
    fn throttled_ns(&self, of: &CpuGroup, group: &str) -> Option<u64>;
}

/// This machine's.
pub(super) struct Mounted;

impl CpuGroups for Mounted {
    fn of(&self, pid: u32) -> Option<CpuGroup> {
        CpuGroup::of(pid)
    }

    fn throttled_ns(&self, of: &CpuGroup, group: &str) -> Option<u64> {
        throttled_ns(of.hierarchy(), group)
    }
}

/// A group that was read.
struct ReadGroup {
    /// Through which it is read: a group in it, or itself.
    through: CpuGroup,
    /// What its counter was last.
    last_ns: u64,
    /// For how long it was throttled since it was first read.
    throttled_ns: u64,
    /// The pass in which it was read last.
    pass: u64,
    /// For how long it was throttled between the last two times.
    grew_ns: u64,
}

/// See the module.
#[derive(Default)]
pub(super) struct Quotas {
    groups: HashMap<Arc<str>, ReadGroup>,
    /// How long the threads of each process had been runnable at the last pass, those that have
    /// ended since not counted.
    runnable_ns: HashMap<ProcessKey, u64>,
    at_ns: MonoNs,
    passes: u64,
    refused: u64,
}

impl Quotas {
    /// Times that a group was not read because too many are known.
    pub(super) const fn refused(&self) -> u64 {
        self.refused
    }

    /// Checks the groups of who waited long, and tells the profile how long groups were
    /// throttled, and whose groups they are.
    pub(super) fn pass(&mut self, pass: &Pass, from: &impl CpuGroups, to: &mut DrainPass) {
        let mut runnable_ns: HashMap<ProcessKey, u64> = HashMap::new();
        for thread in pass.threads.iter().filter(|thread| !thread.kernel_thread) {
            let of = runnable_ns
                .entry(SlotOwner::of(thread).process)
                .or_default();
            *of = of.saturating_add(thread.classes[Class::Runnable as usize]);
        }
        if pass.is_partial {
            // Who is left out sleeps, and waits for no processor.
            for (key, ns) in &self.runnable_ns {
                runnable_ns.entry(*key).or_insert(*ns);
            }
        }
        self.check(pass.at_ns, runnable_ns, from, to);
    }

    fn check(
        &mut self,
        at_ns: MonoNs,
        runnable_ns: HashMap<ProcessKey, u64>,
        from: &impl CpuGroups,
        to: &mut DrainPass,
    ) {
        self.passes += 1;
        let worth_ns = at_ns.saturating_since(self.at_ns) / WORTH;
        let grown = |(key, ns): (&ProcessKey, &u64)| {
            let before_ns = self.runnable_ns.get(key)?;
            let grown_ns = ns.saturating_sub(*before_ns);
            (grown_ns > 0 && grown_ns >= worth_ns).then_some((grown_ns, *key))
        };
        let mut waited: Vec<(u64, ProcessKey)> = runnable_ns.iter().filter_map(grown).collect();
        waited.sort_unstable_by(|one, other| other.cmp(one));
        waited.truncate(MAX_PROCESSES);
        (self.runnable_ns, self.at_ns) = (runnable_ns, at_ns);
        let mut reads = 0;
        for (_, key) in waited {
            let Some(group) = from.of(key.pid) else {
                continue;
            };
            let mut longest: Option<(u64, Arc<str>)> = None;
            for path in group.and_around() {
                if let Some((ns, path)) = self.read(&group, path, from, &mut reads)
                    && longest.as_ref().is_none_or(|(most_ns, _)| ns > *most_ns)
                {
                    longest = Some((ns, path));
                }
            }
            if let Some((_, path)) = longest {
                to.quota_groups.push((key, path));
            }
        }
        // What is throttled goes on being counted when others wait longer.
        let mut stale: Vec<(u64, Arc<str>, CpuGroup)> = self
            .groups
            .iter()
            .filter(|(_, known)| known.grew_ns > 0 && known.pass < self.passes)
            .map(|(path, known)| (known.pass, Arc::clone(path), known.through.clone()))
            .collect();
        stale.sort_unstable_by_key(|(pass, ..)| *pass);
        for (_, path, through) in stale {
            self.read(&through, &path, from, &mut reads);
        }
        let counted = self.groups.iter();
        let counted = counted.filter(|(_, known)| known.throttled_ns > 0);
        to.throttled = counted
            .map(|(path, known)| (path.to_string().into(), known.throttled_ns))
            .collect();
    }

    /// Reads a group, once in a pass: for how long it was throttled since it was read before, if it
    /// was, and its path.
    fn read(
        &mut self,
        through: &CpuGroup,
        path: &str,
        from: &impl CpuGroups,
        reads: &mut usize,
    ) -> Option<(u64, Arc<str>)> {
        if let Some((path, known)) = self.groups.get_key_value(path)
            && known.pass == self.passes
        {
            return (known.grew_ns > 0).then(|| (known.grew_ns, Arc::clone(path)));
        }
        if *reads >= MAX_READS {
            return None;
        }
        *reads += 1;
        let now_ns = from.throttled_ns(through, path);
        let pass = self.passes;
        if let Some(known) = self.groups.get_mut(path) {
            let Some(now_ns) = now_ns else {
                // It is gone: nothing is read of it until there is one of its path again.
                (known.last_ns, known.grew_ns, known.pass) = (0, 0, pass);
                return None;
            };
            // A group that was made anew under the same path begins at 0 again.
            let grew_ns = now_ns.checked_sub(known.last_ns).unwrap_or(now_ns);
            known.grew_ns = grew_ns;
            known.throttled_ns = known.throttled_ns.saturating_add(grew_ns);
            (known.last_ns, known.pass) = (now_ns, pass);
            return (grew_ns > 0).then(|| (grew_ns, path.into()));
        }
        let now_ns = now_ns?;
        if self.groups.len() >= MAX_GROUPS {
            self.forget_one();
        }
        if self.groups.len() >= MAX_GROUPS {
            self.refused += 1;
            return None;
        }
        let known = ReadGroup {
            through: through.clone(),
            last_ns: now_ns,
            throttled_ns: 0,
            pass,
            grew_ns: 0,
        };
        self.groups.insert(path.into(), known);
        None
    }

    /// Makes room: forgets the group that was read longest ago, if that is some time and it was not
    /// throttled then; one that was never seen throttled before others.
    fn forget_one(&mut self) {
        let idle = self.groups.iter();
        let idle =
            idle.filter(|(_, known)| known.grew_ns == 0 && known.pass + IDLE_PASSES < self.passes);
        let oldest = idle.min_by_key(|(_, known)| (known.throttled_ns > 0, known.pass));
        if let Some(path) = oldest.map(|(path, _)| Arc::clone(path)) {
            self.groups.remove(&path);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};

    use super::*;
    use crate::units::BootNs;

    const S: u64 = 1_000_000_000;

    /// Groups that are made up: their counters by path, and how many were read.
    #[derive(Default)]
    struct MadeUp {
        of: HashMap<u32, CpuGroup>,
        counters: RefCell<HashMap<String, u64>>,
        reads: Cell<usize>,
    }

    impl MadeUp {
        fn process(&mut self, pid: u32, path: &str) {
            self.of.insert(pid, CpuGroup::made_up(path));
        }

        fn set(&self, path: &str, ns: u64) {
            self.counters.borrow_mut().insert(path.to_owned(), ns);
        }
    }

    impl CpuGroups for MadeUp {
        fn of(&self, pid: u32) -> Option<CpuGroup> {
            self.of.get(&pid).cloned()
        }

        fn throttled_ns(&self, _: &CpuGroup, group: &str) -> Option<u64> {
            self.reads.set(self.reads.get() + 1);
            self.counters.borrow().get(group).copied()
        }
    }

    fn key(pid: u32) -> ProcessKey {
        ProcessKey {
            pid,
            start_ns: BootNs::new(1),
        }
    }

    /// For how long groups were throttled, and whose they are.
    type Told = (Vec<(String, u64)>, Vec<(u32, String)>);

    /// One pass: what it tells. `runnable`: pid and how long it has been runnable in all.
    fn check(quotas: &mut Quotas, second: u64, runnable: &[(u32, u64)], from: &MadeUp) -> Told {
        let mut to = DrainPass::default();
        let runnable = runnable.iter().map(|(pid, ns)| (key(*pid), *ns));
        quotas.check(MonoNs::new(second * S), runnable.collect(), from, &mut to);
        let throttled = to.throttled.into_iter();
        let members = to.quota_groups.into_iter();
        (
            throttled.map(|(path, ns)| (path.to_string(), ns)).collect(),
            members
                .map(|(key, path)| (key.pid, path.to_string()))
                .collect(),
        )
    }

    // Check that the group around a process which waits is found, that it counts from when it was
    // first read and goes on when its processes wait no more, also if it was made anew, and that
    // who is in no group, or does not wait, is not checked.
    #[test]
    fn who_is_throttled() {
        let (mut quotas, mut from) = (Quotas::default(), MadeUp::default());
        from.process(7, "/pod/inner");
        from.process(8, "/other");
        from.set("/pod", 100 * S);
        from.set("/pod/inner", 0);
        let none = Told::default();
        assert_eq!(
            check(&mut quotas, 1, &[(7, 0), (8, 0), (9, 0)], &from),
            none
        );
        assert_eq!(from.reads.get(), 0, "nobody has waited");
        let waits = [(7, S / 2), (8, S / 100), (9, S)];
        assert_eq!(check(&mut quotas, 2, &waits, &from), none);
        assert_eq!(from.reads.get(), 2, "the groups of the one that waits");
        from.set("/pod", 101 * S);
        let (throttled, members) = check(&mut quotas, 3, &[(7, S), (8, S / 50)], &from);
        assert_eq!(throttled, [("/pod".to_owned(), S)]);
        assert_eq!(members, [(7, "/pod".to_owned())]);
        from.set("/pod", 103 * S);
        let (throttled, members) = check(&mut quotas, 4, &[(7, S)], &from);
        assert_eq!(throttled, [("/pod".to_owned(), 3 * S)]);
        assert!(members.is_empty());
        from.set("/pod", S);
        let (throttled, _) = check(&mut quotas, 5, &[(7, S)], &from);
        assert_eq!(throttled, [("/pod".to_owned(), 4 * S)]);
    }

    // Check that groups that were throttled and are gone are not read for ever, and give way to
    // others after some time, those first that were never throttled.
    #[test]
    fn groups_that_are_gone() {
        const GROUPS: u32 = 2 * MAX_GROUPS as u32;
        let (mut quotas, mut from) = (Quotas::default(), MadeUp::default());
        let mut second = 0;
        let mut waited = Vec::new();
        for pid in 1..=GROUPS {
            let path = format!("/{pid}");
            from.process(pid, &path);
            waited.push((pid, 0));
            for pass in 0..3 {
                second += 1;
                from.set(&path, pass * S);
                waited[pid as usize - 1].1 += S;
                check(&mut quotas, second, &waited, &from);
            }
            from.counters.borrow_mut().remove(&path);
        }
        assert_eq!(quotas.refused(), 0);
        second += 1;
        let (throttled, _) = check(&mut quotas, second, &waited, &from);
        assert!(throttled.contains(&(format!("/{GROUPS}"), S)));
        from.reads.set(0);
        check(&mut quotas, second + 1, &waited, &from);
        assert_eq!(from.reads.get(), 0);
    }

    // Check that a pass reads no more than its bound, however many groups there are and however
    // deep they lie, that no more are known, and that those which are not taken in are counted.
    #[test]
    fn bounded() {
        const PROCESSES: u32 = 100;
        let (mut quotas, mut from) = (Quotas::default(), MadeUp::default());
        let mut paths: Vec<String> = Vec::new();
        for pid in 1..=PROCESSES {
            from.process(pid, &format!("/{pid}/b/c/d/e/f"));
            paths.extend(from.of[&pid].and_around().map(str::to_owned));
        }
        let mut most = 0;
        for second in 1..=u64::from(PROCESSES) {
            paths.iter().for_each(|path| from.set(path, second * S));
            // Each waits for two seconds, one after the other, so that its groups are seen to be
            // throttled.
            let waited_ns = |pid: u32| S * (second + 1).saturating_sub(pid.into()).min(2);
            let waits: Vec<(u32, u64)> = (1..=PROCESSES).map(|pid| (pid, waited_ns(pid))).collect();
            from.reads.set(0);
            check(&mut quotas, second, &waits, &from);
            most = most.max(from.reads.get());
            assert!(quotas.groups.len() <= MAX_GROUPS);
        }
        assert_eq!(most, MAX_READS);
        assert_eq!(quotas.groups.len(), MAX_GROUPS);
        assert!(quotas.refused() > 0);
    }
}
