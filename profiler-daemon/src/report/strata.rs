//! Who shares exact totals: the strata of a report (docs/semantics.md section 4).
//!
//! A process that has enough time of a kind is a stratum of it; what is left of one image is one together, because most
//! processes of some milliseconds have no mark at all. Chosen by exact time, never by marks, which would select.

use std::{collections::BTreeMap, sync::Arc};

use profiler_common::{
    Class,
    division::{
        Column, Estimate, Interval, Stratum, shares,
        strata::{KindSet, MarkPeriods, PERIODS, others, own_kinds, part_of, totals_of},
    },
    kinds::{KINDS, Kind, KindNs, Primary},
};

use super::product::Values;
use super::scope::Member;
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

/// The strata of a report over `members`, whose exact totals are `kinds`. Each kind of each member is in one of them.
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

/// The totals of the threads of a member as rows show them, whose own are `of`, exact and as shown: theirs add up to it. What ticks
/// say of a thread is said by its own where it has enough time for some, else by those of its process.
pub(super) fn thread_values(
    threads: &[Totals],
    of: (&Totals, &Values),
    periods: MarkPeriods,
) -> Vec<Values> {
    let (process, shown) = of;
    let calls_ns = (shown.classes[Class::Syscall as usize])
        .saturating_sub(process.classes[Class::Syscall as usize]);
    let mut values: Vec<Values> = threads.iter().map(as_measured).collect();
    let told: Vec<(u64, u64)> = threads
        .iter()
        .map(|of| told_by_ticks(of, periods))
        .collect();
    let untraced: Vec<u64> = threads
        .iter()
        .map(|of| of.kinds[Kind::Untraced as usize])
        .collect();
    let calls: Vec<u64> = told.iter().map(|(call_ns, _)| *call_ns).collect();
    let calls = within(calls_ns, &calls, &untraced);
    let room = threads.iter().zip(&calls);
    let room: Vec<u64> = room
        .map(|(of, call_ns)| of.classes[Class::User as usize].saturating_sub(*call_ns))
        .collect();
    let faults: Vec<u64> = told.iter().map(|(_, fault_ns)| *fault_ns).collect();
    let faults = within(shown.fault_ns, &faults, &room);
    for (index, values) in values.iter_mut().enumerate() {
        values.classes[Class::User as usize] -= calls[index];
        values.classes[Class::Syscall as usize] += calls[index];
        values.fault_ns = faults[index];
        values.estimated_ns = untraced[index];
    }
    values
}

/// What a thread's own ticks say was in calls, of untraced time, and in kernel mode outside them; of one with little time all of it is as
/// likely as any other's.
fn told_by_ticks(thread: &Totals, periods: MarkPeriods) -> (u64, u64) {
    let running_ns = thread.classes[Class::User as usize];
    let untraced_ns = thread.kinds[Kind::Untraced as usize];
    if running_ns < PERIODS.saturating_mul(periods.tick_ns) {
        return (0, 0);
    }
    let mut kinds = KindNs::default();
    kinds[Kind::Untraced as usize] = untraced_ns;
    kinds[Kind::User as usize] = running_ns.saturating_sub(untraced_ns);
    let ticks = Primary {
        ticks: thread.ticks,
        ..Primary::default()
    };
    let total = Stratum::new(&kinds, &ticks, 0).total();
    (total.classes[Class::Syscall as usize], total.fault_ns)
}

/// `total_ns` in parts like `wanted`, none larger than its `room`; what is left goes by the room that is left.
fn within(total_ns: u64, wanted: &[u64], room: &[u64]) -> Vec<u64> {
    let mut parts: Vec<u64> = match shares(total_ns, wanted) {
        Some(parts) => parts
            .iter()
            .zip(room)
            .map(|(part, room)| *part.min(room))
            .collect(),
        None => vec![0; wanted.len()],
    };
    let given = parts
        .iter()
        .fold(0u64, |sum, part| sum.saturating_add(*part));
    let free: Vec<u64> = room
        .iter()
        .zip(&parts)
        .map(|(room, part)| room - part)
        .collect();
    if let Some(rest) = shares(total_ns.saturating_sub(given), &free) {
        for ((part, rest), free) in parts.iter_mut().zip(rest).zip(&free) {
            *part += rest.min(*free);
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
