//! Which calls of measured functions a view covers.

use std::collections::{BTreeMap, HashSet};

use super::{
    call_values::{cost, total_ns},
    scope::View,
};
use crate::{
    processes::ids::ProcessKey,
    profile::{
        measured::{Calls, FunctionState},
        over::Span,
    },
    units::BootNs,
};

/// The calls of one function that a view covers.
pub(super) struct Covered<'a> {
    pub(super) state: &'a FunctionState,
    /// By process, with how many were under way when the time covered began.
    pub(super) calls: BTreeMap<ProcessKey, Calls>,
}

/// All that a view covers; nothing where the time covered begins or ends where it is forgotten.
pub(super) fn covered<'a>(view: &View<'a>) -> Vec<Covered<'a>> {
    let measured = view.snapshot.measured();
    if measured.is_empty() {
        return Vec::new();
    }
    let coverage = &view.coverage;
    let (then, now) = match coverage.span {
        Span::Session => (None, Some(&*measured.counted)),
        Span::Between { .. } => {
            let then = view.snapshot.counted_at(coverage.from_ns);
            let Some(then) = then else { return Vec::new() };
            (Some(then), view.snapshot.counted_at(coverage.to_ns))
        }
    };
    let Some(now) = now else { return Vec::new() };
    let overlaps = |of: &FunctionState| {
        of.function.attached.ns < coverage.to_ns
            && of.detached.is_none_or(|at| at.ns > coverage.from_ns)
    };
    let states = measured.functions.iter().filter(|of| overlaps(of));
    let in_scope = scope(view);
    let of_state = |state: &'a FunctionState| {
        let number = state.function.number;
        let first = ProcessKey {
            pid: 0,
            start_ns: BootNs::ZERO,
        };
        let last = ProcessKey {
            pid: u32::MAX,
            start_ns: BootNs::MAX,
        };
        let rows = now.range((number, first)..=(number, last));
        let rows = rows.filter(|((_, key), _)| in_scope(*key));
        let calls = rows.map(|((_, key), calls)| {
            let earlier = then.and_then(|then| then.get(&(number, *key)));
            let since = earlier.map_or_else(|| (**calls).clone(), |earlier| calls.since(earlier));
            (*key, since)
        });
        Covered {
            state,
            calls: calls.collect(),
        }
    };
    let covered = states.map(of_state);
    covered.filter(|of| !of.calls.is_empty()).collect()
}

/// Whose calls are in the scope of a view.
fn scope<'a>(view: &View<'a>) -> impl Fn(ProcessKey) -> bool {
    let is_session = view.is_session();
    let snapshot = view.snapshot;
    let keys: HashSet<ProcessKey> = view
        .members
        .iter()
        .filter_map(|member| member.process.map(|(key, _)| key))
        .collect();
    let ended: Vec<*const _> = view
        .members
        .iter()
        .filter(|member| member.process.is_none())
        .map(|member| std::ptr::from_ref(member.aggregate))
        .collect();
    move |key| {
        is_session
            || keys.contains(&key)
            || snapshot
                .merged_with(key)
                .is_some_and(|image| ended.contains(&std::ptr::from_ref(&image.aggregate)))
    }
}

/// What probes took of what a view covers, nanoseconds; `None` where nothing was measured.
pub(super) fn probes_ns(view: &View<'_>) -> Option<u64> {
    let covered = covered(view);
    let measured = view.snapshot.measured();
    let costs = covered.iter().flat_map(|of| {
        let costs = measured.costs_of(&of.state.function);
        let calls = of.calls.values();
        calls.map(move |of| cost(&of.probes_own, |kind| total_ns(&costs, kind)))
    });
    (!covered.is_empty()).then(|| costs.sum::<f64>() as u64)
}
