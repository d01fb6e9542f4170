//! Marks on drawn timelines whose answer is known, with random numbers from fixed seeds.

use super::*;
use crate::clock::Phase;
use proptest::prelude::*;
use std::vec::Vec;

const MS: u64 = 1_000_000;

/// A generator of 32 random bits with a fixed start (splitmix64).
fn drawn(seed: u64) -> impl FnMut() -> u32 {
    let mut state = seed;
    move || {
        state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut word = state;
        word = (word ^ (word >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        word = (word ^ (word >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        (word >> 32) as u32
    }
}

fn running() -> ThreadClock {
    let mut clock = ThreadClock::default();
    clock.start(1, Phase::Running, NO_CALL, 0);
    clock
}

/// `expected` marks on average; sigma of a stretch of them is less than that of a Poisson process.
fn assert_near(found: u64, expected: f64, what: &str) {
    let sigma = expected.sqrt().max(1.0);
    assert!(
        (found as f64 - expected).abs() < 4.0 * sigma,
        "{what}: {found} marks, {expected:.1} expected"
    );
}

#[test]
fn each_nanosecond_of_a_short_thread_has_the_same_chance() {
    // Check that threads of less than a mean gap get marks in their first nanoseconds as often as
    // in their last ones.
    let mut random = drawn(1);
    let mut marks_of = [0; 8];
    let threads: u32 = 40_000;
    for _ in 0..threads {
        let (mut clock, mut marks, mut now_ns) = (running(), ThreadMarks::default(), 1);
        marks.start(1, MS, &mut random);
        for count in &mut marks_of {
            clock.enter_call(now_ns, 7);
            now_ns += MS / 4;
            clock.leave_call(now_ns);
            if marks.is_due(&clock) {
                *count += marks.take_fallen(&clock, MS, &mut random)[MARK_CALL];
            }
        }
    }
    for (call, count) in marks_of.iter().enumerate() {
        assert_near(
            *count,
            f64::from(threads) / 4.0,
            &std::format!("call {call}"),
        );
    }
}

#[test]
fn calls_have_marks_by_their_length() {
    // Check that calls of 0.3 us, 90 us, 3 ms and 200 ms that alternate get marks in proportion to
    // their running time.
    let lengths_ns = [300, 90_000, 3 * MS, 200 * MS];
    let mut found = [0; 4];
    let rounds: u32 = 2000;
    let mut random = drawn(2);
    let (mut clock, mut marks, mut now_ns) = (running(), ThreadMarks::default(), 1);
    marks.start(1, MS, &mut random);
    for _ in 0..rounds {
        for (length_ns, count) in lengths_ns.iter().zip(&mut found) {
            now_ns += 700_000;
            clock.enter_call(now_ns, 7);
            now_ns += length_ns;
            clock.leave_call(now_ns);
            if marks.is_due(&clock) {
                *count += marks.take_fallen(&clock, MS, &mut random)[MARK_CALL];
            }
        }
    }
    for (length_ns, count) in lengths_ns.iter().zip(found) {
        let expected = f64::from(rounds) * *length_ns as f64 / MS as f64;
        assert_near(count, expected, &std::format!("{length_ns} ns"));
    }
}

#[test]
fn looks_within_a_call_take_what_is_due_and_no_more() {
    // Check that ticks within a long call leave as many marks as its exit alone would, and none
    // twice.
    let mut random = drawn(3);
    let mut found = 0;
    for _ in 0..200 {
        let (mut clock, mut marks) = (running(), ThreadMarks::default());
        marks.start(1, MS, &mut random);
        clock.enter_call(1, 7);
        for step in 1..=50 {
            clock.tick(1 + step * 10 * MS);
            found += marks.take_fallen(&clock, MS, &mut random)[MARK_CALL];
            assert!(!marks.is_due(&clock), "all that was due is taken");
        }
    }
    assert_near(found, 200.0 * 500.0, "ticks of 10 ms");
}

#[test]
fn the_points_of_an_unwalked_wait_fall_where_they_fall() {
    // Check that short, middle and long waits get marks in proportion to their blocked and their
    // runnable parts.
    let waits: [WaitNs; 4] = [
        [10_000, 2_000],
        [100_000, 400_000],
        [2 * MS, MS],
        [40 * MS, 13 * MS + 500_000],
    ];
    let mut found = [[0; WAITS]; 4];
    let rounds: u32 = 4000;
    let mut random = drawn(4);
    let (mut clock, mut marks) = (running(), ThreadMarks::default());
    marks.start(1, MS, &mut random);
    clock.enter_call(2, 7);
    for _ in 0..rounds {
        for (wait, count) in waits.iter().zip(&mut found) {
            let ended = marks.end_wait(true, *wait, MS, &mut random);
            assert_eq!(ended, Ended::Divided);
            let [call, blocked, runnable] = marks.take_fallen(&clock, MS, &mut random);
            assert_eq!(call, 0, "nothing ran");
            count[BLOCKED] += blocked;
            count[RUNNABLE] += runnable;
        }
    }
    for (wait, count) in waits.iter().zip(found) {
        for class in 0..WAITS {
            let expected = f64::from(rounds) * wait[class] as f64 / MS as f64;
            assert_near(
                count[class],
                expected,
                &std::format!("{wait:?}, class {class}"),
            );
        }
    }
    let all: u64 = waits.iter().flatten().sum::<u64>() * u64::from(rounds);
    assert_eq!(marks.unwalked.iter().sum::<u64>(), all);
}

#[test]
fn no_stretch_has_more_points_than_the_loop_takes() {
    // Check that after any stretch, however long, the next mark lies behind it: nothing is left to
    // catch up with.
    let mut random = drawn(5);
    for min_interval_ns in [1_000, 1_001, MS, 10_000 * MS] {
        let (mut clock, mut marks, mut now_ns) = (running(), ThreadMarks::default(), 1);
        marks.start(1, min_interval_ns, &mut random);
        for step in 0..3000_u64 {
            let length_ns = min_interval_ns * (step % 97) / 11 + step * step % 1013;
            clock.enter_call(now_ns, 7);
            now_ns += length_ns;
            clock.leave_call(now_ns);
            marks.take_fallen(&clock, min_interval_ns, &mut random);
            marks.end_wait(
                true,
                [length_ns, length_ns / 3],
                min_interval_ns,
                &mut random,
            );
            marks.take_fallen(&clock, min_interval_ns, &mut random);
            assert!(marks.next_call_ns > clock.totals[Class::Syscall as usize]);
            assert!(marks.next_wait_ns > marks.unwalked.iter().sum());
        }
    }
}

#[test]
fn without_an_interval_all_is_exact() {
    // Check that an interval of zero has a mark per nanosecond, every switch-out walked and every
    // wait counted once.
    let mut random = drawn(6);
    let (mut clock, mut marks) = (running(), ThreadMarks::default());
    marks.start(1, 0, &mut random);
    let mut now_ns = 1;
    for length_ns in [1, 700, 0, 5 * MS, 90_000 * MS] {
        clock.enter_call(now_ns, 7);
        assert!(!marks.is_due(&clock));
        now_ns += length_ns;
        clock.leave_call(now_ns);
        assert_eq!(marks.is_due(&clock), length_ns > 0);
        assert_eq!(marks.take_fallen(&clock, 0, &mut random), [length_ns, 0, 0]);
    }
    for step in 0..500 {
        assert!(marks.leave(true, now_ns + step, || 0, 0, &mut random));
        marks.keep();
        let ended = marks.end_wait(true, [3, 4], 0, &mut random);
        assert_eq!(ended, Ended::Walked(WaitSums::of_exact([3, 4])));
        assert!(marks.leave(false, now_ns + step, || 0, 0, &mut random));
        marks.keep();
        let Ended::Walked(sums) = marks.end_wait(false, [3, 4], 0, &mut random) else {
            panic!("every wait is walked");
        };
        assert_eq!(sums.weighted, [3, 4]);
    }
    // One whose walk found no room inside a call has its nanoseconds at the next walk.
    marks.leave(true, now_ns, || 0, 0, &mut random);
    marks.end_wait(true, [3, 4], 0, &mut random);
    assert_eq!(marks.take_fallen(&clock, 0, &mut random), [0, 3, 4]);
    assert_eq!(marks.outside, [1500, 2000]);
}

#[test]
fn some_switch_outs_in_quick_succession_are_walked_then_one_per_interval() {
    // Check that a rested thread is walked at eight switch-outs in a row, and in the long run once
    // per interval.
    let mut marks = ThreadMarks::default();
    let mut random = drawn(7);
    let mut walks = [0, 0];
    for step in 0..10_000 {
        let walked = marks.leave(true, 50 * MS + step * 10_000, || 0, MS, &mut random);
        walks[usize::from(step >= 100)] += u32::from(walked);
    }
    assert_eq!(
        walks,
        [8, 99],
        "in the first millisecond, in the 99 after it"
    );
}

#[test]
fn drawn_waits_stand_for_all() {
    // Check that of many waits outside calls few are walked, that their weights add up to the
    // total, and that two places with waits of different lengths have their shares.
    let mut random = drawn(8);
    let mut marks = ThreadMarks::default();
    let (mut now_ns, mut walks) = (1, 0_u64);
    let (mut weighted, mut squares) = ([0_u64; 2], 0.0);
    let lengths_ns = [12_000, 48_000];
    for step in 0..400_000 {
        let place = step % 2;
        let walked = marks.leave(false, now_ns, || 0, MS, &mut random);
        if walked {
            walks += 1;
            marks.keep();
        }
        let wait = [0, lengths_ns[place]];
        now_ns += lengths_ns[place] + 10_000;
        match marks.end_wait(false, wait, MS, &mut random) {
            Ended::Walked(sums) if walked => {
                weighted[place] += sums.weighted[RUNNABLE];
                squares += sums.squares_ms2[RUNNABLE] as f64;
            }
            Ended::Divided if !walked => {}
            other => panic!("{other:?}, walked: {walked}"),
        }
    }
    assert_eq!(marks.outside, [0, 200_000 * 60_000]);
    let allowed = now_ns / MS;
    assert!(
        walks < 2 * allowed && walks > allowed / 4,
        "{walks} of {allowed}"
    );
    let sigma_ns = squares.sqrt() * 1e6;
    for (place, length_ns) in lengths_ns.iter().enumerate() {
        let off = weighted[place] as f64 - 200_000.0 * *length_ns as f64;
        assert!(
            off.abs() < 4.0 * sigma_ns,
            "place {place}: off by {off}, sigma {sigma_ns}"
        );
    }
}

#[test]
fn rare_waits_outside_calls_are_all_walked() {
    // Check that up to one wait per interval is walked without a draw, and that the weight goes
    // back to one after a rest.
    let mut marks = ThreadMarks::default();
    let mut never = || panic!("nothing is drawn");
    for step in 0..2000 {
        assert!(marks.leave(false, (1 + step) * MS, || 0, MS, &mut never));
        assert_eq!(marks.wait_shift, 0);
    }
    let mut random = drawn(9);
    for step in 0..5000 {
        marks.leave(false, 2001 * MS + step * 10_000, || 0, MS, &mut random);
    }
    assert!(marks.rate_shift > 2, "{}", marks.rate_shift);
    assert!(marks.leave(false, 3000 * MS, || 0, MS, &mut never));
    assert_eq!(marks.wait_shift, 0);
}

#[test]
fn long_waits_are_exact_or_not_sampled() {
    // Check that a wait outside calls of more than any that is divided is exactly its stack's if it
    // was walked, whatever it would stand for, and is never stood for by shorter ones.
    let long = [LONG_WAIT_NS - 1, 1];
    let short = [LONG_WAIT_NS - 2, 1];
    let mut random = drawn(10);
    let mut end = |known, waited| {
        let mut marks = ThreadMarks {
            wait: known,
            wait_shift: 3,
            ..ThreadMarks::default()
        };
        let ended = marks.end_wait(false, waited, MS, &mut random);
        (ended, marks.outside)
    };
    let none = [0; WAITS];
    let exact = WaitSums::of_exact(long);
    let eight = WaitSums::of_drawn(short, [0; WAITS], 3, &mut || 0);
    assert_eq!(eight.weighted, [8 * short[0], 8]);
    assert_eq!(end(wait::DRAWN, long), (Ended::Walked(exact), none));
    assert_eq!(end(wait::UNKEPT, long), (Ended::NotKept(exact), none));
    assert_eq!(end(wait::PASSED, long), (Ended::NotSampled(long), none));
    assert_eq!(end(wait::UNSEEN, long), (Ended::NotSampled(long), none));
    assert_eq!(end(wait::UNSEEN, short), (Ended::NotSampled(short), none));
    assert_eq!(end(wait::DRAWN, short), (Ended::Walked(eight), short));
    assert_eq!(end(wait::UNKEPT, short), (Ended::NotKept(eight), short));
    assert_eq!(end(wait::PASSED, short), (Ended::Divided, short));
}

#[test]
fn what_is_found_from_outside_stands_for_itself() {
    // Check that a wait that is found is exactly its stack's whether it was drawn or not, and
    // whatever it would have stood for; and that each may be found but who has all of its stack.
    let mut random = drawn(11);
    for (known, shift, may_be_found) in [
        (wait::UNSEEN, 0, true),
        (wait::PASSED, 0, true),
        (wait::UNKEPT, 3, true),
        (wait::DRAWN, 3, true),
        (wait::DRAWN, 0, false),
        (wait::EXACT, 0, false),
    ] {
        let mut marks = ThreadMarks {
            wait: known,
            wait_shift: shift,
            ..ThreadMarks::default()
        };
        assert_eq!(marks.may_be_found(), may_be_found, "{known} {shift}");
        marks.find();
        let waited = [2 * MS, MS];
        let ended = marks.end_wait(false, waited, MS, &mut random);
        assert_eq!(ended, Ended::Walked(WaitSums::of_exact(waited)));
        assert_eq!(marks.outside, [0; WAITS]);
    }
}

#[test]
fn squares_of_small_weights_have_their_sum() {
    // Check that the squares of many weights of microseconds add up in square milliseconds, and
    // that nothing has none.
    let mut random = drawn(12);
    for (us, count) in [(20, 400_000_u64), (300, 20_000), (5_000, 100)] {
        let waited = [us * 1000, 0];
        let mut sums = WaitSums::default();
        for _ in 0..count {
            sums.add(&WaitSums::of_drawn(waited, [0; WAITS], 0, &mut random));
        }
        let expected = (us * us * count) as f64 / 1e6;
        let off = (sums.squares_ms2[0] as f64 - expected).abs();
        assert!(
            off <= 4.0 * expected.sqrt(),
            "{us}: off by {off} of {expected}"
        );
        assert_eq!(sums.squares_ms2[1], 0);
    }
}

#[test]
fn weights_that_cannot_be_squared_saturate() {
    // Check that the largest weight of the longest drawn wait overflows nothing, and has a square
    // that says so.
    let mut never = || panic!("nothing is rounded");
    let largest_ms = u64::from(u32::MAX);
    let squared = WaitSums::of_drawn([largest_ms * MS; WAITS], [0; WAITS], 0, &mut never);
    assert_eq!(squared.squares_ms2[0], largest_ms.pow(2));
    let longest = [LONG_WAIT_NS - 1; WAITS];
    let mut sums = WaitSums::of_drawn(longest, [0; WAITS], MAX_RATE_SHIFT, &mut never);
    let one = sums;
    assert_eq!(sums.squares_ms2[0], u64::MAX);
    sums.add(&one);
    assert_eq!(sums.squares_ms2[0], u64::MAX);
    assert_eq!(sums.weighted[0], 2 * one.weighted[0]);
}

#[test]
fn ticks_are_told_apart() {
    // Check what a tick is by mode, thread and call, and that saved registers are asked where calls
    // are not traced only.
    let mut clock = running();
    let never = || panic!("the clock knows");
    assert_eq!(tick_kind(&clock, true, never), Tick::User);
    assert_eq!(tick_kind(&clock, false, never), Tick::Fault);
    clock.enter_call(2, 7);
    assert_eq!(tick_kind(&clock, false, never), Tick::Call);
    assert_eq!(tick_kind(&clock, true, never), Tick::User);
    clock.leave_call(3);
    clock.set_flags(UNTRACED);
    assert_eq!(tick_kind(&clock, true, never), Tick::UntracedUser);
    assert_eq!(tick_kind(&clock, false, || true), Tick::UntracedCall);
    assert_eq!(tick_kind(&clock, false, || false), Tick::UntracedFault);
    clock.set_flags(KERNEL_THREAD);
    assert_eq!(tick_kind(&clock, false, never), Tick::Kernel);
}

/// An event of a thread, some time after the one before.
#[derive(Clone, Copy, Debug)]
enum MarkEvent {
    Enter,
    Leave,
    Tick(bool),
    OffCpu { gave_up: bool, wake: bool },
    Trace(bool),
}

fn event() -> impl Strategy<Value = MarkEvent> {
    prop_oneof![
        Just(MarkEvent::Enter),
        Just(MarkEvent::Leave),
        any::<bool>().prop_map(MarkEvent::Tick),
        (any::<bool>(), any::<bool>())
            .prop_map(|(gave_up, wake)| MarkEvent::OffCpu { gave_up, wake }),
        any::<bool>().prop_map(MarkEvent::Trace),
    ]
}

proptest! {
    #[test]
    fn every_nanosecond_has_one_kind_or_one_stack(
        events in prop::collection::vec((event(), -50_000_i64..3_000_000, any::<bool>()), 1..300),
        seed in any::<u64>(),
        min_interval_ns in prop_oneof![Just(0), Just(1000), Just(MS)],
    ) {
        // Check, under random events of clocks that may step back, that the kinds and what stacks
        // have exactly are the classes to the nanosecond, and that nothing falls due outside calls.
        let mut random = drawn(seed);
        let (mut clock, mut marks) = (running(), ThreadMarks::default());
        marks.start(1, min_interval_ns, &mut random);
        let mut exact: Vec<WaitNs> = Vec::new();
        let mut now_ns = 1_000_000_u64;
        for (event, step_ns, room) in events {
            now_ns = now_ns.saturating_add_signed(step_ns);
            match event {
                MarkEvent::Enter => {
                    clock.tick(now_ns);
                    if is_inside(&clock) {
                        marks.take_fallen(&clock, min_interval_ns, &mut random);
                    }
                    if clock.flags & UNTRACED == 0 {
                        clock.enter_call(now_ns, 7);
                    }
                }
                MarkEvent::Leave => {
                    clock.leave_call(now_ns);
                    marks.take_fallen(&clock, min_interval_ns, &mut random);
                }
                MarkEvent::Tick(user) => {
                    clock.tick(now_ns);
                    let missed = user && clock.end_missed_call();
                    if missed || is_inside(&clock) {
                        marks.take_fallen(&clock, min_interval_ns, &mut random);
                    }
                }
                MarkEvent::OffCpu { gave_up, wake } => {
                    clock.switch_out(now_ns, gave_up);
                    let inside = is_inside(&clock);
                    if marks.leave(inside, now_ns, || 0, min_interval_ns, &mut random) && room {
                        marks.keep();
                        if inside {
                            marks.take_fallen(&clock, min_interval_ns, &mut random);
                        }
                    }
                    now_ns = now_ns.saturating_add_signed(step_ns);
                    if wake {
                        clock.woken_ns = now_ns;
                    }
                    let waited = clock.switch_in(now_ns + 700, None).waited();
                    match marks.end_wait(inside, waited, min_interval_ns, &mut random) {
                        Ended::Divided => {}
                        Ended::Walked(sums) if inside && !room => {
                            marks.cannot_keep(inside, &sums, min_interval_ns, &mut random);
                        }
                        Ended::Walked(sums) | Ended::NotKept(sums) => exact.push(sums.exact),
                        Ended::NotSampled(waited) => exact.push(waited),
                    }
                }
                MarkEvent::Trace(traced) => {
                    let flags = if traced { 0 } else { UNTRACED };
                    clock.assume_call(now_ns, NO_CALL, flags);
                    marks.take_fallen(&clock, min_interval_ns, &mut random);
                    clock.begin_assumed_call();
                }
            }
            let kinds = marks.kinds(&clock);
            let of = |kind: Kind| kinds[kind as usize];
            let exact_of = |class: usize| exact.iter().map(|wait| wait[class]).sum::<u64>();
            prop_assert_eq!(of(Kind::User) + of(Kind::Untraced), clock.totals[Class::User as usize]);
            prop_assert_eq!(of(Kind::Call), clock.totals[Class::Syscall as usize]);
            prop_assert_eq!(
                of(Kind::CallBlocked) + of(Kind::OutsideBlocked) + exact_of(BLOCKED),
                clock.totals[Class::Blocked as usize]
            );
            prop_assert_eq!(
                of(Kind::CallRunnable) + of(Kind::OutsideRunnable) + exact_of(RUNNABLE),
                clock.totals[Class::Runnable as usize]
            );
            prop_assert!(is_inside(&clock) || !marks.is_due(&clock));
        }
    }
}

#[test]
fn the_walk_of_a_drawn_wait_stands_for_nothing() {
    // Check that the time by which a walk delayed its thread is that stack's once, and is neither
    // weighted nor divided; and that a walk delays nobody who is woken after it.
    let mut random = || 0;
    for (waited, walk_ns, woken_behind, own) in [
        ([4000, 7000], 10_000, 0, [0, 6000]),
        ([4000, 3000], 10_000, 0, [0, 3000]),
        ([0, 12_000], 10_000, 0, [0, 10_000]),
        ([50_000, 7000], 10_000, 0, [0, 0]),
        ([50_000, 7000], 10_000, 1, [10_000, 0]),
        ([4000, 7000], 10_000, 1, [4000, 6000]),
        ([4000, 7000], 0, 0, [0, 0]),
    ] {
        let mut marks = ThreadMarks {
            wait: wait::DRAWN,
            wait_shift: 3,
            walk_ns,
            woken_behind,
            ..ThreadMarks::default()
        };
        let Ended::Walked(sums) = marks.end_wait(false, waited, MS, &mut random) else {
            panic!("a drawn wait is its stack's");
        };
        let divided = [waited[0] - own[0], waited[1] - own[1]];
        assert_eq!(sums.exact, own);
        assert_eq!(sums.weighted, divided.map(|ns| 8 * ns));
        assert_eq!(marks.outside, divided);
        let mut passed = ThreadMarks {
            wait: wait::PASSED,
            ..ThreadMarks::default()
        };
        assert_eq!(
            passed.end_wait(false, waited, MS, &mut random),
            Ended::Divided
        );
        assert_eq!(passed.outside, waited);
    }
}

#[test]
fn a_thread_that_is_walked_is_in_no_run_queue() {
    // Check that, where a wait is blocked until a run queue had the thread, what its walk delayed
    // is blocked: all of the walk where the waker had to wait for it, what was left of it where the
    // wake came in the middle, and nothing where that came later or is not known.
    let mut random = || 0;
    for (behind, after_ns, own_ns) in [
        (1, Some(14_000), 10_000),
        (1, None, 10_000),
        (0, Some(4000), 6000),
        (0, Some(14_000), 0),
        (0, None, 0),
    ] {
        let mut marks = ThreadMarks {
            wait: wait::DRAWN,
            wait_shift: 3,
            walk_ns: 10_000,
            woken_behind: behind,
            ..ThreadMarks::default()
        };
        marks.queued_late(after_ns);
        let Ended::Walked(sums) = marks.end_wait(false, [15_000, 2000], MS, &mut random) else {
            panic!("a drawn wait is its stack's");
        };
        assert_eq!(sums.exact, [own_ns, 0]);
        assert_eq!(sums.weighted, [8 * (15_000 - own_ns), 8 * 2000]);
    }
}
