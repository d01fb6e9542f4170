//! Tests of the walk budget: storms, and places that take turns.

use super::*;

const SECOND_NS: u64 = 1_000_000_000;
/// Half of a hundredth, of walks at switches and of those of ticks.
const SHARE: WalkShares = WalkShares {
    others: (WHOLE_SHARE / 200) as u32,
    ticks: (WHOLE_SHARE / 200) as u32,
};
/// Nothing is bounded.
const ANY: WalkShares = WalkShares {
    others: 0,
    ticks: 0,
};

/// Numbers that are as good as drawn, and the same each time.
struct Draws(u64);

impl Draws {
    fn next(&mut self) -> u32 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32
    }

    fn is_drawn(&mut self, shift: u32) -> bool {
        self.next() & ((1 << shift) - 1) == 0
    }
}

fn shift(budget: &mut WalkBudget, now_ns: u64, shares: WalkShares) -> u32 {
    budget.refresh(now_ns, shares);
    u32::try_from(budget.shift).expect("a shift")
}

/// Events every `apart_ns`, each a walk of `walk_ns` if it is drawn with the chance that `shift`
/// says of the moment: what was spent, and what the walks stood for.
fn events(
    budget: &mut WalkBudget,
    (apart_ns, walk_ns, count): (u64, u64, u64),
    of_tick: bool,
    shift: impl Fn(&mut WalkBudget, u64) -> u32,
) -> (u64, u64) {
    let mut draws = Draws(0x9e37_79b9_7f4a_7c15);
    let (mut spent_ns, mut stood_for) = (0, 0);
    for event in 1..=count {
        let shift = shift(budget, event * apart_ns);
        if draws.is_drawn(shift) {
            budget.spend(walk_ns, of_tick);
            spent_ns += walk_ns;
            stood_for += 1 << shift;
        }
    }
    (spent_ns, stood_for)
}

/// Switches or calls.
fn storm(budget: &mut WalkBudget, apart_ns: u64, walk_ns: u64, count: u64) -> (u64, u64) {
    events(
        budget,
        (apart_ns, walk_ns, count),
        false,
        |budget, now_ns| shift(budget, now_ns, SHARE),
    )
}

/// Ticks of a processor at work.
fn ticks(budget: &mut WalkBudget, apart_ns: u64, walk_ns: u64, count: u64, max: u32) -> (u64, u64) {
    events(
        budget,
        (apart_ns, walk_ns, count),
        true,
        |budget, now_ns| {
            budget.earn(now_ns, SHARE);
            budget.tick_shift(SHARE, max)
        },
    )
}

// Check that a storm of events, from its first microsecond on, has no more walked than what was
// saved up and the share of the time, and that walks stand for about as many events as there were.
#[test]
fn a_storm_is_bounded_and_stood_for() {
    for (apart_ns, walk_ns) in [(1_000, 8_000), (10_000, 5_000), (200, 40_000)] {
        let mut budget = WalkBudget::default();
        budget.rest(1);
        let events = SECOND_NS / apart_ns;
        let (first_ns, _) = storm(&mut budget.clone(), apart_ns, walk_ns, events / 1000);
        assert!(first_ns <= CAPACITY_NS as u64 + walk_ns, "{first_ns}");
        let (spent_ns, stood_for) = storm(&mut budget, apart_ns, walk_ns, 10 * events);
        let most_ns = CAPACITY_NS as u64 + 10 * SECOND_NS / 200;
        assert!(spent_ns <= most_ns + most_ns / 20, "{apart_ns}: {spent_ns}");
        assert!(spent_ns >= most_ns / 2, "{apart_ns}: {spent_ns}");
        let share = stood_for as f64 / (10 * events) as f64;
        assert!((0.9..1.1).contains(&share), "{apart_ns}: {share}");
    }
}

// Check that two places that take turns, one always right after the other, stand for as much each:
// the first is met with what was earned in a pause before it, and the second with what the first
// has left.
#[test]
fn turns_are_told_alike() {
    let mut budget = WalkBudget::default();
    budget.rest(1);
    let mut draws = Draws(0x0123_4567_89ab_cdef);
    let mut stood_for = [0_u64; 2];
    let rounds = 2_000_000_u64;
    for round in 1..=rounds {
        for (place, after_ns) in [(0, 0), (1, 100)] {
            let shift = shift(&mut budget, round * 50_000 + after_ns, SHARE);
            if draws.is_drawn(shift) {
                budget.spend(30_000, false);
                stood_for[place] += 1 << shift;
            }
        }
    }
    for place in stood_for {
        let share = place as f64 / rounds as f64;
        assert!((0.93..1.07).contains(&share), "{stood_for:?}");
    }
}

// Check that idle time earns nothing, that a full bucket does not overflow, that one walk without
// end is not held against all that follow, and that no share means no bound.
#[test]
fn edges() {
    let mut budget = WalkBudget::default();
    for _ in 0..1000 {
        budget.spend(10_000, false);
    }
    let empty = budget;
    budget.rest(SECOND_NS);
    assert_eq!(shift(&mut budget, SECOND_NS, SHARE), MAX_SHIFT);
    assert_eq!(budget.missing_ns, empty.missing_ns, "it rested");
    budget.spend(u64::MAX, false);
    assert_eq!(budget.missing_ns, 2 * CAPACITY_NS);
    assert_eq!(shift(&mut budget, 2 * SECOND_NS, SHARE), 0);
    assert_eq!(shift(&mut budget, u64::MAX, SHARE), 0);
    assert_eq!(budget.missing_ns, 0);
    assert_eq!(
        shift(&mut budget, SECOND_NS, SHARE),
        0,
        "time runs backwards"
    );
    for _ in 0..1000 {
        budget.spend(10_000, false);
    }
    assert_eq!(shift(&mut budget, SECOND_NS, ANY), 0);
}

// Check that ticks of very deep stacks come to cost the share of the time, and stand for as many as
// there were; that they do not give way beyond the least rate; and that those of ordinary stacks do
// not, even while walks at switches do.
#[test]
fn ticks_give_way_last() {
    const TICK_NS: u64 = SECOND_NS / 99;
    let max = max_tick_shift(99);
    assert_eq!(
        [
            max,
            max_tick_shift(999),
            max_tick_shift(37),
            max_tick_shift(1)
        ],
        [2, 5, 0, 0]
    );
    let count = 99 * 600;
    let allowed_ns = 600 * SECOND_NS / 200;
    for walk_ns in [70_000, 100_000, 150_000] {
        let mut budget = WalkBudget::default();
        budget.rest(1);
        let (spent_ns, stood_for) = ticks(&mut budget, TICK_NS, walk_ns, count, max);
        assert!(
            spent_ns <= allowed_ns + allowed_ns / 20,
            "{walk_ns}: {spent_ns}"
        );
        assert!(
            spent_ns >= allowed_ns - allowed_ns / 20,
            "{walk_ns}: {spent_ns}"
        );
        let share = stood_for as f64 / count as f64;
        assert!((0.95..1.05).contains(&share), "{walk_ns}: {share}");
    }
    let mut budget = WalkBudget::default();
    budget.rest(1);
    let (spent_ns, _) = ticks(&mut budget, TICK_NS, 1_000_000, count, max);
    let least_ns = count / 4 * 1_000_000;
    assert!(spent_ns.abs_diff(least_ns) < least_ns / 20, "{spent_ns}");
    let mut budget = WalkBudget::default();
    budget.rest(1);
    let (spent_ns, stood_for) = ticks(&mut budget, TICK_NS, 49_000, count, max);
    assert_eq!((spent_ns, stood_for), (count * 49_000, count));
    // A storm of walks that are made in any case, as those of processes that end.
    for _ in 0..1000 {
        budget.spend(10_000, false);
    }
    let now_ns = count * TICK_NS;
    assert_eq!(shift(&mut budget, now_ns, SHARE), MAX_SHIFT);
    assert_eq!(budget.tick_shift(SHARE, max), 0, "it is not theirs");
    budget.spend(2 * CAPACITY_NS as u64, true);
    assert_eq!(budget.tick_shift(SHARE, max), max);
    assert_eq!(budget.tick_shift(ANY, max), 0, "nothing is bounded");
}

// Check that a smaller share thins out walks at switches and leaves those of ticks as they were,
// that the two are told apart in what was spent, and that however dear ticks are, switches are
// walked as often.
#[test]
fn a_smaller_share_is_that_of_switches() {
    const EVENTS: u64 = 100_000;
    let spent_ns = |others: u32, tick_ns: u64| {
        let shares = WalkShares { others, ..SHARE };
        let mut budget = WalkBudget::default();
        budget.rest(1);
        let mut draws = Draws(0x9e37_79b9_7f4a_7c15);
        for event in 1..=EVENTS {
            let now_ns = event * 100_000;
            if draws.is_drawn(shift(&mut budget, now_ns, shares)) {
                budget.spend(10_000, false);
            }
            if event % 100 == 0 {
                let gives_way = budget.tick_shift(shares, 2) > 0;
                assert!(!gives_way || tick_ns > 10_000, "{others}: ticks give way");
                budget.spend(tick_ns, true);
            }
        }
        assert_eq!(budget.ticks_spent_ns, EVENTS / 100 * tick_ns);
        budget.spent_ns - budget.ticks_spent_ns
    };
    let whole_ns = spent_ns(SHARE.others, 10_000);
    let part_ns = spent_ns(SHARE.others / 2, 10_000);
    let beside_dear_ns = spent_ns(SHARE.others / 2, 400_000);
    let worked_ns = EVENTS * 100_000;
    let expected = [worked_ns / 200, worked_ns / 400, worked_ns / 400];
    for (ns, expected_ns) in [whole_ns, part_ns, beside_dear_ns]
        .into_iter()
        .zip(expected)
    {
        let most_ns = expected_ns + CAPACITY_NS as u64 + expected_ns / 20;
        assert!(
            ns >= expected_ns * 19 / 20 && ns <= most_ns,
            "{ns} of {expected_ns}"
        );
    }
}
