//! Who shares exact totals: the strata of a report (docs/semantics.md section 4).
//!
//! A process that has enough time of a kind is a stratum of it; what is left of one image is one
//! together, because most processes of some milliseconds have no mark at all. Chosen by exact time,
//! never by marks, which would select.

use std::{collections::BTreeMap, sync::Arc};

use profiler_common::{
    Class,
    division::{
        Column, Estimate, Interval, Stratum, shares,
        strata::{KindSet, MarkPeriods, PERIODS, others, own_kinds, part_of, totals_of},
    },
    kinds::{KINDS, Kind, KindNs, Primary},
};

use super::member::Member;
use super::product::Values;
use crate::profile::{
    input::Image,
    values::{Totals, add_kinds},
};

/// What is divided together.
#[derive(Debug, Default)]
pub(super) struct Shared {
    /// The members by their place in the view, each with the kinds of which it is a part of this.
    pub(super) members: Vec<(u32, KindSet)>,
    /// The exact totals of these kinds.
    pub(super) kinds: KindNs,
}

/// Whom small processes are put together with.
#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Pool<'a> {
    Image(Option<&'a Arc<Image>>),
    KernelThreads,
}

/// The strata of a report over `members`, whose exact totals are `kinds`. Each kind of each member
/// is in one of them.
pub(super) fn strata(
    members: &[Member<'_>],
    kinds: &[KindNs],
    periods: MarkPeriods,
) -> Vec<Shared> {
    let mut strata = Vec::new();
    let mut pools: BTreeMap<Pool<'_>, Shared> = BTreeMap::new();
    for (index, (member, kinds)) in (0u32..).zip(members.iter().zip(kinds)) {
        let own = match (members.len(), member.process) {
            (1, _) => [true; KINDS],
            (_, Some(_)) => own_kinds(kinds, periods),
            // Many processes that are an image's together.
            (_, None) => [false; KINDS],
        };
        if own.contains(&true) {
            strata.push(Shared {
                members: vec![(index, own)],
                kinds: totals_of(&own, kinds),
            });
        }
        let rest = others(&own);
        if rest.contains(&true) {
            let pool = pools.entry(pool(member)).or_default();
            pool.members.push((index, rest));
            add_kinds(&mut pool.kinds, &totals_of(&rest, kinds));
        }
    }
    strata.extend(pools.into_values());
    strata
}

fn pool<'a>(member: &Member<'a>) -> Pool<'a> {
    if member.kernel_thread {
        Pool::KernelThreads
    } else {
        Pool::Image(member.image)
    }
}

/// Totals as rows show them: what ticks say of their class and of faults is an estimate.
#[derive(Clone, Copy, Debug)]
pub(super) struct TotalFigures {
    pub(super) values: Values,
    /// Of application time.
    pub(super) application: Interval,
}

/// The totals of each member, and of all together, over `span_ns`. The members' sum to that of all.
pub(super) fn totals(
    strata: &[Shared],
    exact: &[Totals],
    span_ns: u64,
) -> (Vec<TotalFigures>, TotalFigures) {
    let mut values: Vec<Values> = exact.iter().map(as_measured).collect();
    let mut applications = vec![Estimate::default(); exact.len()];
    let mut relative = vec![(1.0, 1.0); exact.len()];
    let mut whole = Estimate::default();
    for shared in strata {
        let ns = |kind: Kind| -> Vec<u64> {
            let of = |(member, set): &(u32, KindSet)| {
                totals_of(set, &exact[*member as usize].kinds)[kind as usize]
            };
            shared.members.iter().map(of).collect()
        };
        let mut ticks = Primary::default();
        for (member, set) in &shared.members {
            let all = Primary {
                ticks: exact[*member as usize].ticks,
                tick_excess: exact[*member as usize].tick_excess,
                ..Primary::default()
            };
            ticks.add(&part_of(set, false, &all));
        }
        let stratum = Stratum::new(&shared.kinds, &ticks, span_ns);
        let estimate = stratum.total_estimate(Column::Application);
        whole.add(&estimate);
        if let [(member, _)] = shared.members.as_slice() {
            applications[*member as usize].add(&estimate);
        } else {
            // What is one together is known as well as the whole of it is.
            let ns = stratum.total().application_ns();
            let interval = estimate.interval(ns);
            let share = |of_ns: u64| of_ns as f64 / (ns as f64).max(1.0);
            let users = shared
                .members
                .iter()
                .filter(|(_, set)| set[Kind::User as usize]);
            for (member, _) in users {
                relative[*member as usize] = (share(interval.low_ns), share(interval.high_ns));
            }
        }
        for kind in [Kind::User, Kind::Untraced] {
            let product = stratum.total_of(kind);
            let of_members = ns(kind);
            let give = |total_ns: u64, among: &[u64]| {
                shares(total_ns, among).unwrap_or_else(|| vec![0; among.len()])
            };
            let calls = give(product.classes[Class::Syscall as usize], &of_members);
            let rest: Vec<u64> = of_members
                .iter()
                .zip(&calls)
                .map(|(ns, call)| ns - call)
                .collect();
            let faults = give(product.fault_ns, &rest);
            for (index, (member, _)) in shared.members.iter().enumerate() {
                let to = &mut values[*member as usize];
                let user_ns = &mut to.classes[Class::User as usize];
                *user_ns = user_ns.saturating_sub(calls[index]);
                to.classes[Class::Syscall as usize] += calls[index];
                to.fault_ns += faults[index];
                if kind == Kind::Untraced {
                    to.estimated_ns += of_members[index];
                }
            }
        }
    }
    let mut all = Values::default();
    values.iter().for_each(|values| all.add(values));
    let members = values.iter().zip(applications.iter().zip(&relative));
    let members = members.map(|(values, (estimate, (low, high)))| {
        let ns = values.application_ns();
        let known = estimate.interval(ns);
        let scaled = |factor: f64| (ns as f64 * factor) as u64;
        let application = Interval {
            low_ns: known.low_ns.min(scaled(*low)),
            high_ns: known.high_ns.max(scaled(*high)),
        };
        TotalFigures {
            values: *values,
            application,
        }
    });
    let application = whole.interval(all.application_ns());
    let whole = TotalFigures {
        values: all,
        application,
    };
    (members.collect(), whole)
}

/// The totals of the threads of a member as rows show them, whose own are `of`, exact and as shown:
/// theirs add up to it. What ticks say of a thread is said by its own where it has enough time for
/// some; the others share what these leave of their process's.
pub(super) fn thread_values(
    threads: &[Totals],
    of: (&Totals, &Values),
    periods: MarkPeriods,
) -> Vec<Values> {
    let (process, shown) = of;
    let calls_ns = (shown.classes[Class::Syscall as usize])
        .saturating_sub(process.classes[Class::Syscall as usize]);
    let mut values: Vec<Values> = threads.iter().map(as_measured).collect();
    let told: Vec<Option<OwnTicks>> = threads
        .iter()
        .map(|of| told_by_ticks(of, periods))
        .collect();
    let told = |ns: fn(&OwnTicks) -> u64| -> Vec<Option<u64>> {
        told.iter().map(|told| told.as_ref().map(ns)).collect()
    };
    let untraced: Vec<u64> = threads
        .iter()
        .map(|of| of.kinds[Kind::Untraced as usize])
        .collect();
    let calls = within(calls_ns, &told(|told| told.calls_ns), &untraced);
    let room = threads.iter().zip(&calls);
    let room: Vec<u64> = room
        .map(|(of, call_ns)| of.classes[Class::User as usize].saturating_sub(*call_ns))
        .collect();
    let faults = within(shown.fault_ns, &told(|told| told.fault_ns), &room);
    for (index, values) in values.iter_mut().enumerate() {
        values.classes[Class::User as usize] =
            values.classes[Class::User as usize].saturating_sub(calls[index]);
        values.classes[Class::Syscall as usize] += calls[index];
        values.fault_ns = faults[index];
        values.estimated_ns = untraced[index];
    }
    values
}

/// What a thread's own ticks say of its running time.
struct OwnTicks {
    /// Of untraced time, what was in calls, nanoseconds.
    calls_ns: u64,
    /// What was in kernel mode outside calls, nanoseconds.
    fault_ns: u64,
}

/// What is said of a thread by its own ticks; nothing of one with little time, all of which is as
/// likely as any other's.
fn told_by_ticks(thread: &Totals, periods: MarkPeriods) -> Option<OwnTicks> {
    let running_ns = thread.classes[Class::User as usize];
    let untraced_ns = thread.kinds[Kind::Untraced as usize];
    if running_ns < PERIODS.saturating_mul(periods.tick_ns) {
        return None;
    }
    let mut kinds = KindNs::default();
    kinds[Kind::Untraced as usize] = untraced_ns;
    kinds[Kind::User as usize] = running_ns.saturating_sub(untraced_ns);
    let ticks = Primary {
        ticks: thread.ticks,
        ..Primary::default()
    };
    let total = Stratum::new(&kinds, &ticks, 0).total();
    Some(OwnTicks {
        calls_ns: total.classes[Class::Syscall as usize],
        fault_ns: total.fault_ns,
    })
}

/// `total_ns` in parts, none larger than its `room`: what is `told`, in proportion where that is
/// too much together. What is left goes by room to those of whom nothing is told, and what they
/// have no room for to the others.
fn within(total_ns: u64, told: &[Option<u64>], room: &[u64]) -> Vec<u64> {
    let known = told.iter().zip(room);
    let known: Vec<u64> = known
        .map(|(told, room)| told.unwrap_or_default().min(*room))
        .collect();
    let known_ns = known.iter().copied().fold(0, u64::saturating_add);
    let mut parts = if known_ns <= total_ns {
        known
    } else {
        shares(total_ns, &known).unwrap_or(known)
    };
    for only_untold in [true, false] {
        let free = parts.iter().zip(told).zip(room);
        let free: Vec<u64> = free
            .map(|((part, told), room)| match told {
                Some(_) if only_untold => 0,
                _ => room - part,
            })
            .collect();
        let sum = |parts: &[u64]| parts.iter().copied().fold(0, u64::saturating_add);
        let rest_ns = total_ns.saturating_sub(sum(&parts)).min(sum(&free));
        for (part, more) in parts
            .iter_mut()
            .zip(shares(rest_ns, &free).unwrap_or_default())
        {
            *part += more;
        }
    }
    parts
}

/// Exact totals as they were measured: untraced time counts as user mode.
fn as_measured(totals: &Totals) -> Values {
    Values {
        samples: totals.samples(),
        classes: totals.classes,
        ..Values::default()
    }
}

#[cfg(test)]
mod tests {
    use profiler_common::kinds::Tick;

    use super::*;

    const MS: u64 = 1_000_000;
    const PERIODS_OF_10_MS: MarkPeriods = MarkPeriods {
        tick_ns: 10 * MS,
        gap_ns: MS,
    };

    fn thread(user_ms: u64, untraced_ms: u64, ticks: &[(Tick, u64)]) -> Totals {
        let mut totals = Totals::default();
        totals.classes[Class::User as usize] = user_ms * MS;
        totals.kinds[Kind::Untraced as usize] = untraced_ms * MS;
        for (tick, count) in ticks {
            totals.ticks[*tick as usize] = *count;
        }
        totals
    }

    /// Values by thread, in milliseconds: of calls, of faults.
    fn shown(threads: &[Totals], calls_ms: u64, fault_ms: u64) -> Vec<[u64; 2]> {
        let mut process = Totals::default();
        threads.iter().for_each(|of| process.add(of));
        let mut values = as_measured(&process);
        values.classes[Class::User as usize] -= calls_ms * MS;
        values.classes[Class::Syscall as usize] += calls_ms * MS;
        values.fault_ns = fault_ms * MS;
        let of_threads = thread_values(threads, (&process, &values), PERIODS_OF_10_MS);
        let calls_ns = |of: &Values| of.classes[Class::Syscall as usize];
        assert_eq!(of_threads.iter().map(calls_ns).sum::<u64>(), calls_ms * MS);
        let faults = of_threads.iter().map(|of| of.fault_ns);
        assert_eq!(faults.sum::<u64>(), fault_ms * MS);
        let of_threads = of_threads.iter();
        of_threads
            .map(|of| [calls_ns(of) / MS, of.fault_ns / MS])
            .collect()
    }

    // Check that a thread with enough time has what its own ticks say, however much its process has
    // besides, and that those with little time share the rest.
    #[test]
    fn own_ticks_are_not_scaled_up() {
        let main = thread(1000, 0, &[(Tick::User, 90), (Tick::Fault, 10)]);
        let worker = thread(50, 0, &[]);
        let mut threads = vec![main];
        threads.extend([worker; 200]);
        let shown_faults = shown(&threads, 0, 3000);
        assert_eq!(shown_faults[0], [0, 100]);
        assert!(shown_faults[1..].iter().all(|of| *of == [0, 14]));

        let main = thread(
            1000,
            1000,
            &[(Tick::UntracedUser, 90), (Tick::UntracedCall, 10)],
        );
        let mut threads = vec![main];
        threads.extend([thread(50, 50, &[]); 40]);
        let shown_calls = shown(&threads, 2000, 0);
        assert_eq!(shown_calls[0], [100, 0]);
        assert!(shown_calls[1..].iter().all(|of| *of == [47, 0]));
    }

    // Check that what threads' ticks say is cut to what there is, and that time for which the
    // others have no room is somewhere.
    #[test]
    fn parts_add_up() {
        let told = [Some(30), Some(10), None];
        assert_eq!(within(20, &told, &[100, 100, 100]), [15, 5, 0]);
        assert_eq!(within(45, &told, &[100, 100, 100]), [30, 10, 5]);
        assert_eq!(within(60, &told, &[30, 30, 5]), [30, 25, 5]);
        assert_eq!(within(60, &told, &[20, 10, 0]), [20, 10, 0]);
        assert_eq!(within(0, &[], &[]), [0u64; 0]);
    }
}
