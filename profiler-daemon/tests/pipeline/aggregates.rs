//! What aggregates hold of primary data, checked without a report: whatever random machines did is
//! all there, in the session and in every window, and no class of any thread has more of a place
//! than it has time.

use profiler_common::{
    CLASS_COUNT, Class, ClassNs,
    kinds::{Kind, KindNs, MARK_BLOCKED, Primary},
};
use profiler_daemon::profile::{
    Profile,
    aggregate::AggregateView,
    budget::{CELL_BYTES, NODE_BYTES},
    input::ThreadState,
    limits::Limits,
    over::{Gain, Span},
    snapshot::Snapshot,
    tree::{NodeId, NodePlace},
    values::{Totals, WAIT_CLASSES, add_kinds, class_of},
};
use proptest::prelude::*;

use crate::{
    ledger::{config, tight},
    machine::{Machine, PassPlan, SECOND_NS, START_NS, START_UNIX_NS, plans},
    small::{self, PROCESS, Small, THREAD},
};
use profiler_daemon::units::MonoNs;

/// Sums over aggregates.
#[derive(Default)]
struct Sums {
    totals: Totals,
    primary: Primary,
}

fn aggregates(snapshot: &Snapshot) -> impl Iterator<Item = &AggregateView> {
    let kept = snapshot
        .processes()
        .values()
        .map(|process| &process.aggregate);
    kept.chain(snapshot.images().iter().map(|image| &image.aggregate))
}

/// What all nodes hold.
fn sum(aggregate: &AggregateView, span: Span) -> Primary {
    let mut sum = Primary::default();
    aggregate
        .held_over(span)
        .values()
        .for_each(|cell| sum.add(cell));
    sum
}

/// Every rule of one aggregate over one span; adds it to the sums.
fn check(aggregate: &AggregateView, span: Span, sums: &mut Sums) {
    let over = aggregate.threads_over(span);
    let rows = over.rows.iter().map(|(_, _, totals)| totals);
    for totals in rows.chain([&over.folded]) {
        for class in 0..CLASS_COUNT {
            assert!(totals.attributed[class] <= totals.classes[class]);
        }
    }
    let total = over.total();
    let kinds = aggregate.kinds_over(span);
    assert_eq!(total.kinds, kinds);
    let untraced = |kinds: &KindNs| kinds[Kind::Untraced as usize];
    let of_rows = over
        .rows
        .iter()
        .map(|(_, _, totals)| untraced(&totals.kinds));
    assert_eq!(
        of_rows.sum::<u64>() + untraced(&over.folded.kinds),
        untraced(&kinds)
    );
    let primary = sum(aggregate, span);
    // Time by kind and exact waits are all that has a place.
    let mut placed = ClassNs::default();
    for kind in Kind::ALL {
        placed[class_of(kind) as usize] += kinds[kind as usize];
    }
    for (class, ns) in WAIT_CLASSES.into_iter().zip(primary.exact) {
        placed[class as usize] += ns;
    }
    assert_eq!(placed, total.attributed, "{span:?}");
    assert_eq!(primary.ticks, total.ticks, "{span:?}");
    sums.totals.add(&total);
    sums.primary.add(&primary);
}

/// Neighbouring spans part what there is in all of them.
fn check_parts(aggregate: &AggregateView, borders_ns: &[MonoNs]) {
    let (Some(from_ns), Some(to_ns)) = (borders_ns.first(), borders_ns.last()) else {
        return;
    };
    let between = |from_ns, to_ns| Span::Between { from_ns, to_ns };
    let (mut kinds, mut primary) = (KindNs::default(), Primary::default());
    for pair in borders_ns.windows(2) {
        add_kinds(&mut kinds, &aggregate.kinds_over(between(pair[0], pair[1])));
        primary.add(&sum(aggregate, between(pair[0], pair[1])));
    }
    let whole = between(*from_ns, *to_ns);
    assert_eq!(kinds, aggregate.kinds_over(whole));
    assert_eq!(primary, sum(aggregate, whole));
    let (mut ticks, mut untraced_ns) = (0, 0);
    aggregate.gains_by_span(borders_ns, |_, _, gain| match gain {
        Gain::Ticks(_, count) => ticks += count,
        Gain::Untraced(ns) => untraced_ns += ns,
        Gain::Time(_)
        | Gain::MinorFaults(_)
        | Gain::MajorFaults(_)
        | Gain::SwitchesMissed(_)
        | Gain::ProfilerCost(_)
        | Gain::TickExcess(_) => {}
    });
    assert_eq!(ticks, primary.samples());
    assert_eq!(untraced_ns, kinds[Kind::Untraced as usize]);
}

fn run(limits: Limits, plans: &[PassPlan]) {
    let tree_bytes = limits.tree_bytes;
    let mut profile = Profile::new(limits, START_NS, START_UNIX_NS);
    let mut machine = Machine::new(&mut profile);
    for plan in plans {
        let pass = machine.pass(plan);
        profile.apply(pass);
        let snapshot = profile.snapshot();
        let mut session = Sums::default();
        aggregates(&snapshot).for_each(|aggregate| check(aggregate, Span::Session, &mut session));
        let mut classes = ClassNs::default();
        for reported in machine.reported.values() {
            for (to, ns) in classes.iter_mut().zip(reported) {
                *to += ns;
            }
        }
        assert_eq!(session.totals.classes, classes);
        let mut kinds = KindNs::default();
        machine
            .kinds
            .values()
            .for_each(|of| add_kinds(&mut kinds, of));
        assert_eq!(session.totals.kinds, kinds);
        let mut received = Primary::default();
        machine.primary.values().for_each(|of| received.add(of));
        // Exact waits may be deferred until their thread's total has come.
        let held = |found: &Primary| Primary {
            exact: [0; 2],
            ..*found
        };
        assert_eq!(held(&session.primary), held(&received));
        let since_ns = snapshot.kept_since_ns();
        let mut borders: Vec<MonoNs> = snapshot
            .borders(since_ns, MonoNs::MAX)
            .map(|(from_ns, _)| from_ns)
            .collect();
        borders.push(MonoNs::MAX);
        for first in [0, borders.len() / 2, borders.len() - 2] {
            let span = Span::Between {
                from_ns: borders[first],
                to_ns: MonoNs::MAX,
            };
            let mut window = Sums::default();
            aggregates(&snapshot).for_each(|aggregate| check(aggregate, span, &mut window));
            let all = session.primary.numbers().into_iter();
            // What sleeps now is exact for a while, and of another kind once it is known.
            assert!(
                window
                    .primary
                    .numbers()
                    .into_iter()
                    .zip(all)
                    .all(|(part, all)| part <= all)
            );
        }
        aggregates(&snapshot).for_each(|aggregate| check_parts(aggregate, &borders));
        check_bytes(&snapshot, tree_bytes);
    }
}

/// The bytes charged for the call trees are what these have, and within the bound but for the rows
/// of lost stacks.
fn check_bytes(snapshot: &Snapshot, tree_bytes: usize) {
    let (mut nodes, mut numbers, mut lost_bytes) = (0, 0, 0);
    for aggregate in aggregates(snapshot) {
        let cells = aggregate.held_over(Span::Session);
        for (number, node) in (0..).zip(aggregate.nodes()).skip(1) {
            let cell = cells.get(&NodeId(number)).copied().unwrap_or_default();
            let held = cell.numbers().iter().filter(|number| **number > 0).count();
            nodes += 1;
            numbers += held;
            if matches!(node.place, NodePlace::Lost(_)) {
                lost_bytes += NODE_BYTES + held * CELL_BYTES;
            }
        }
    }
    // Open waits are shown, but not stored.
    let charged = usize::try_from(snapshot.stack_bytes()).unwrap();
    assert!(nodes * NODE_BYTES <= charged && charged <= nodes * NODE_BYTES + numbers * CELL_BYTES);
    assert!(
        charged <= tree_bytes + lost_bytes,
        "{charged}: {lost_bytes} of lost stacks"
    );
}

proptest! {
    #![proptest_config(config(64))]

    // Check that every number is kept and lies where it passed, with room for everything.
    #[test]
    fn accounts_hold_with_room(plans in plans()) {
        run(Limits::default(), &plans);
    }

    // Check the same while trees, threads, processes, images and segments overflow all the time.
    #[test]
    fn accounts_hold_without_room(plans in plans()) {
        run(Limits { images: 1, ..tight() }, &plans);
    }
}

/// Ten seconds of sleep that turn out to be of a kind: seconds, marks and weight between two of
/// these seconds.
fn slept(kind: Kind, primary: Primary, from_s: u64, to_s: u64) -> (u64, u64, u64) {
    let mut small = Small::new(Limits::default());
    for now in 1..=10 {
        let mut pass = small.pass(now);
        let mut classes = ClassNs::default();
        classes[Class::Blocked as usize] = now * SECOND_NS;
        let mut update = small::thread(PROCESS, THREAD, ThreadState::Blocked, classes);
        if now == 10 {
            update.kinds[kind as usize] = 10 * SECOND_NS;
            let mut delta = small.delta(&["main", "wait"], &[], 0, ClassNs::default());
            delta.primary = primary;
            pass.stacks.push(delta);
        }
        pass.threads.push(update);
        small.profile.apply(pass);
    }
    let snapshot = small.profile.snapshot();
    let aggregate = &snapshot.processes()[&PROCESS].aggregate;
    let span = Span::Between {
        from_ns: START_NS + from_s * SECOND_NS,
        to_ns: START_NS + to_s * SECOND_NS,
    };
    let sum = sum(aggregate, span);
    let ns = aggregate.kinds_over(span)[kind as usize];
    (ns / SECOND_NS, sum.marks[MARK_BLOCKED], sum.weighted[0])
}

// Check that marks of a wait over several pieces lie in these in proportion, and that its weight
// does to the nanosecond.
#[test]
fn marks_lie_where_their_wait_passed() {
    let mut marks = Primary::default();
    marks.marks[MARK_BLOCKED] = 1_000;
    let weight = Primary {
        weighted: [7_777, 0],
        ..Primary::default()
    };
    assert_eq!(slept(Kind::CallBlocked, marks, 0, 10), (10, 1_000, 0));
    assert_eq!(slept(Kind::CallBlocked, marks, 2, 5), (3, 300, 0));
    assert_eq!(slept(Kind::OutsideBlocked, weight, 0, 10), (10, 0, 7_777));
    let (seconds, _, weighted) = slept(Kind::OutsideBlocked, weight, 2, 5);
    assert_eq!(seconds, 3);
    assert!((2_332..=2_334).contains(&weighted), "{weighted}");
}
