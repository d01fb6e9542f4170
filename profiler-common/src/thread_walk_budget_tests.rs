//! Tests of what a process may spend on walks: threads that switch much, those that seldom run, and
//! places that take turns.

use super::*;

const SECOND_NS: u64 = 1_000_000_000;
/// Three hundredths of the running time, in units of one of [`WHOLE_SHARE`].
const SHARE: u32 = (3 * WHOLE_SHARE / 100) as u32;
const WALK_NS: u64 = 5_000;

/// Numbers that are as good as drawn, and the same each time.
struct Draws(u64);

impl Draws {
    fn is_drawn(&mut self, shift: u32) -> bool {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 16) as u32 & ((1 << shift) - 1) == 0
    }
}

/// A thread that is switched out every `every_ns` for `seconds`, after it has run for `run_ns` each
/// time; a switch takes `switch_ns` of it. What its walks cost of the second half of the time, and
/// what they stood for, as a part of all switches.
fn storm(times_ns: (u64, u64), threads: u32, share: (u32, u32), seconds: u64) -> (u64, f64) {
    storm_with_ticks(times_ns, threads, share, seconds, 0)
}

/// The same, where walks of ticks take so many thousandths of what it runs.
fn storm_with_ticks(
    (every_ns, run_ns): (u64, u64),
    threads: u32,
    (share, switch_ns): (u32, u32),
    seconds: u64,
    ticks: u64,
) -> (u64, f64) {
    let share = ProcessShare { share, switch_ns };
    let mut budget = ThreadWalkBudget::default();
    let mut draws = Draws(0x9e37_79b9_7f4a_7c15);
    let mut work = ThreadWork {
        now_ns: SECOND_NS,
        ..ThreadWork::default()
    };
    budget.start(work.now_ns);
    let (mut half_ns, mut stood_for, mut switches) = (0, 0_u64, 0_u64);
    while work.now_ns + every_ns <= (1 + seconds) * SECOND_NS {
        work.now_ns += every_ns;
        work.running_ns += run_ns;
        work.switches = work.switches.wrapping_add(1);
        switches += 1;
        let shift = budget.shift(&work, || threads, share);
        if draws.is_drawn(shift) {
            work.walked_ns += WALK_NS;
            budget.spend(WALK_NS);
            stood_for += 1 << shift;
        }
        if work.now_ns <= (1 + seconds / 2) * SECOND_NS {
            half_ns = budget.spent_ns;
        }
        // A tick now and then.
        work.walked_ns += run_ns * ticks / 1000;
    }
    (
        budget.spent_ns - half_ns,
        stood_for as f64 / switches as f64,
    )
}

fn near(found: f64, expected: f64, error: f64) {
    assert!((found / expected - 1.0).abs() < error, "{found} {expected}");
}

// Check that walks take four tenths of the budget where switches leave it, what these leave where
// that is less, and a tenth of it where they leave nothing; and that what is walked stands for all.
#[test]
fn walks_take_what_switches_leave() {
    // Runs for a fifth of the time: 2 s of 10, of which 60 ms may be spent.
    let often = (100_000, 20_000);
    let (spent_ns, stood_for) = storm(often, 1, (SHARE, 0), 20);
    near(spent_ns as f64, 24e6, 0.05);
    near(stood_for, 1.0, 0.05);
    let (spent_ns, _) = storm(often, 1, (SHARE, 460), 20);
    near(spent_ns as f64, 14e6, 0.05);
    let (spent_ns, stood_for) = storm(often, 1, (SHARE, 2_000), 20);
    near(spent_ns as f64, 6e6, 0.05);
    near(stood_for, 1.0, 0.1);
}

// Check that walks of ticks leave less for others, but a tenth of the budget in any case.
#[test]
fn ticks_leave_a_part_to_others() {
    let often = (100_000, 20_000);
    // Of 60 ms.
    let (spent_ns, _) = storm_with_ticks(often, 1, (SHARE, 0), 20, 23);
    near(spent_ns as f64, 14e6, 0.05);
    let (spent_ns, stood_for) = storm_with_ticks(often, 1, (SHARE, 0), 20, 200);
    near(spent_ns as f64, 6e6, 0.05);
    near(stood_for, 1.0, 0.1);
}

// Check that where nothing is bounded everything is walked; and so it is where a thread's walks
// take less than they may.
#[test]
fn what_is_little_is_walked() {
    let (spent_ns, stood_for) = storm((100_000, 10_000), 1, (0, 500), 2);
    assert_eq!((spent_ns, stood_for), (10_000 * WALK_NS, 1.0));
    let (spent_ns, stood_for) = storm((10_000_000, 5_000_000), 1, (SHARE, 500), 20);
    assert_eq!((spent_ns, stood_for), (1_000 * WALK_NS, 1.0));
}

// Check that a process that hardly runs may be walked as if it ran for a twentieth of the time, its
// threads together.
#[test]
fn who_seldom_runs_is_walked_all_the_same() {
    // Of a twentieth of 10 s, 15 ms may be spent, and 6 ms of these on walks. It runs for a
    // thousandth of the time: 1 000 walks are within that, 2 000 are not.
    let (spent_ns, stood_for) = storm((10_000_000, 10_000), 1, (SHARE, 500), 20);
    assert_eq!((spent_ns, stood_for), (1_000 * WALK_NS, 1.0));
    let (spent_ns, stood_for) = storm((5_000_000, 5_000), 1, (SHARE, 500), 60);
    near(spent_ns as f64, 18e6, 0.05);
    near(stood_for, 1.0, 0.05);
    // Ten threads have a tenth of that each.
    let (spent_ns, stood_for) = storm((1_000_000, 1_000), 10, (SHARE, 500), 60);
    near(spent_ns as f64, 1.8e6, 0.1);
    near(stood_for, 1.0, 0.1);
}

// Check that who rests saves up no more than a storm's begin takes, and that a walk that was
// interrupted for long is no debt for ever.
#[test]
fn neither_credit_nor_debt_grows() {
    let share = ProcessShare {
        share: SHARE,
        switch_ns: 0,
    };
    let mut budget = ThreadWalkBudget::default();
    budget.start(0);
    let mut work = ThreadWork {
        now_ns: 1 << 50,
        running_ns: 1 << 49,
        ..ThreadWork::default()
    };
    assert_eq!(budget.shift(&work, || 1, share), 0);
    budget.spend(CAPACITY_NS);
    work.walked_ns = CAPACITY_NS;
    assert_eq!(budget.shift(&work, || 1, share), MAX_SHIFT);
    budget.spend(SECOND_NS);
    work.walked_ns += SECOND_NS;
    assert_eq!(budget.shift(&work, || 1, share), MAX_SHIFT);
    // 4 ms are 4 tenths of 3 hundredths of this: what was owed, and as much again.
    work.running_ns += 334_000_000;
    assert_eq!(budget.shift(&work, || 1, share), 0);
    // A clock that seems to go back earns nothing.
    work.now_ns -= 1;
    work.running_ns -= 1;
    assert_eq!(budget.shift(&work, || 1, share), 0);
}
