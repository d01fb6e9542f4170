//! The thread clock on drawn timelines, and under random events against the ledger.
//!
//! Legend: `u` user, `s` system call, `b` blocked, `r` runnable; one column is one nanosecond from
//! 100 on.

use super::*;
use crate::measured::ThreadUsage;
use proptest::prelude::*;
use std::vec;
use std::vec::Vec;

fn started() -> ThreadClock {
    let mut clock = ThreadClock::default();
    clock.start(100, Phase::Running, NO_CALL, 0);
    clock
}

fn classes(clock: &ThreadClock) -> (u64, u64, u64, u64, u64) {
    let [user, syscall, blocked, runnable, kernel] = clock.totals;
    (user, syscall, blocked, runnable, kernel)
}

#[test]
fn a_call_that_waits() {
    // Check that a system call which sleeps is split into running, blocked and runnable time.
    //   100  110  115       125 128  130  140
    //   uuuuuussssbbbbbbbbbbrrrsssssuuuuu
    let mut clock = started();
    assert!(!clock.enter_call(110, 7));
    clock.switch_out(115, true);
    clock.woken_ns = 125;
    let off_cpu = clock.switch_in(128, None);
    assert_eq!(
        off_cpu,
        OffCpuInterval {
            blocked_ns: 10,
            runnable_ns: 3,
            wake: Wake::Seen
        }
    );
    let call = clock.leave_call(130).expect("its entry was seen");
    assert_eq!(
        call,
        FinishedCall {
            number: 7,
            total_ns: 20,
            running_ns: 7,
            blocked_ns: 10
        }
    );
    clock.tick(140);
    assert_eq!(classes(&clock), (20, 7, 10, 3, 0));
    assert_eq!((clock.elapsed_ns(), clock.switches_missed), (40, 0));
}

#[test]
fn preempted_in_user_mode() {
    // Check that a thread which did not give its processor up is runnable all the time that
    // it is off it, woken or not.
    //   uuuurrrrrrrruuu
    let mut clock = started();
    clock.switch_out(104, false);
    assert_eq!(
        clock.switch_in(112, None),
        OffCpuInterval {
            blocked_ns: 0,
            runnable_ns: 8,
            wake: Wake::NotNeeded
        }
    );
    clock.tick(115);
    assert_eq!(classes(&clock), (7, 0, 0, 8, 0));
}

#[test]
fn the_waker_is_faster_than_the_switch_out() {
    // Check that a wake which comes while the thread is on its way out makes the whole off-CPU
    // interval runnable.
    //   uuuu(wake)u rrrrrr u      and nobody wakes it again
    let mut clock = started();
    clock.woken_ns = 104;
    clock.switch_out(105, true);
    assert_eq!(
        clock.switch_in(111, None),
        OffCpuInterval {
            blocked_ns: 0,
            runnable_ns: 6,
            wake: Wake::Early
        }
    );
}

#[test]
fn the_scheduler_tells_how_long_a_thread_was_queued() {
    // Check that the end of a wait for which the thread was in run queues is runnable, that all of
    // it is if it was preempted, that an account which is a hair too long takes no more than the
    // wait, and that a wake which was noted on the way changes none of it.
    //   uuuubbbbbbbbrrruurrrru
    let mut clock = started();
    clock.switch_out(104, true);
    clock.woken_ns = 106;
    let off_cpu = clock.switch_in(115, Some(3));
    assert_eq!(
        off_cpu,
        OffCpuInterval {
            blocked_ns: 8,
            runnable_ns: 3,
            wake: Wake::Seen
        }
    );
    clock.switch_out(117, false);
    assert_eq!(clock.switch_in(121, Some(0)).waited(), [0, 4]);
    clock.switch_out(122, true);
    assert_eq!(clock.switch_in(125, Some(4)).waited(), [0, 3]);
    assert_eq!(classes(&clock), (7, 0, 8, 10, 0));
    assert_eq!((clock.elapsed_ns(), clock.switches_missed), (25, 0));
}

#[test]
fn who_comes_unseen_was_queued_before() {
    // Check that a thread which is found on a processor, not seen to come, came with the last
    // switch there and was in run queues just before; that one which comes though it was not seen
    // to leave is counted as such; and that one which runs on is left alone.
    let mut clock = started();
    assert_eq!(clock.arrive_unseen(103, 102, || Some(9)), None);
    clock.switch_out(104, true);
    let off_cpu = clock
        .arrive_unseen(120, 112, || Some(3))
        .expect("it had left");
    assert_eq!(off_cpu.waited(), [5, 3]);
    clock.tick(120);
    assert_eq!(classes(&clock), (12, 0, 5, 3, 0));
    assert_eq!(clock.switches_missed, 1);
    let off_cpu = clock.switch_in(126, Some(2));
    assert_eq!((off_cpu.wake, off_cpu.waited()), (Wake::NeverLeft, [4, 2]));
    assert_eq!((clock.elapsed_ns(), clock.switches_missed), (26, 2));
}

#[test]
fn a_wait_that_was_accounted_for_as_it_ended_has_no_race() {
    // Check that a thread which slept as tracing changed, and is accounted for as it comes, is not
    // told of as woken early or by nobody.
    //   uuuubbbbb(wake)rr u
    let mut clock = started();
    clock.switch_out(104, true);
    clock.woken_ns = 109;
    clock.assume_call(111, NO_CALL, 0);
    assert_eq!(
        clock.switch_in(111, None),
        OffCpuInterval {
            blocked_ns: 0,
            runnable_ns: 0,
            wake: Wake::NotNeeded
        }
    );
    clock.tick(112);
    assert_eq!(classes(&clock), (5, 0, 5, 2, 0));
}

#[test]
fn a_wake_that_came_to_nothing_does_not_hide_the_sleep() {
    // Check that a thread woken before it slept, which then sleeps for long, is blocked until the
    // wake that counts.
    //   uu(wake)uuu bbbbbbbbbbb(wake)rr
    let mut clock = started();
    clock.woken_ns = 102;
    clock.switch_out(105, true);
    assert_eq!(
        clock.view(1_000).totals[Class::Blocked as usize],
        895,
        "blocked as far as can be told"
    );
    clock.woken_ns = 2_000;
    assert_eq!(
        clock.switch_in(2_002, None),
        OffCpuInterval {
            blocked_ns: 1_895,
            runnable_ns: 2,
            wake: Wake::Seen
        }
    );
}

#[test]
fn an_old_wake_is_none() {
    // Check that the wake that ended the sleep before this one is not taken for an early wake.
    let mut clock = started();
    clock.switch_out(110, true);
    clock.woken_ns = 115;
    clock.switch_in(120, None);
    clock.switch_out(130, true);
    assert_eq!(
        clock.switch_in(140, None),
        OffCpuInterval {
            blocked_ns: 10,
            runnable_ns: 0,
            wake: Wake::Missed
        }
    );
}

#[test]
fn a_switch_out_that_was_not_seen() {
    // Check that a thread which comes without having left was off its processor: blocked
    // until it was woken, runnable if it never was.
    //   uuuu ?????????(wake)?? u ???? u
    let mut clock = started();
    clock.tick(104);
    clock.woken_ns = 114;
    assert_eq!(
        clock.switch_in(116, None),
        OffCpuInterval {
            blocked_ns: 10,
            runnable_ns: 2,
            wake: Wake::NeverLeft
        }
    );
    assert_eq!(
        clock.switch_in(120, None),
        OffCpuInterval {
            blocked_ns: 0,
            runnable_ns: 4,
            wake: Wake::NeverLeft
        }
    );
    assert_eq!(classes(&clock), (4, 0, 10, 6, 0));
    assert_eq!(clock.switches_missed, 2);
}

#[test]
fn an_arrival_that_was_not_seen() {
    // Check that a thread found at work without having been seen to come is taken to have come as
    // soon as it can have: when it was woken, or at the last switch that was seen on its processor,
    // whichever is later.
    //   uuuu bbbb(wake)|uuu        uuuu bbbb(wake)rr|u
    for (since_ns, expected) in [(105, (10 + 3, 0, 4, 0, 0)), (116, (10 + 1, 0, 4, 2, 0))] {
        let mut clock = started();
        clock.switch_out(110, true);
        clock.woken_ns = 114;
        assert!(clock.arrive_unseen(117, since_ns, || None).is_some());
        clock.tick(117);
        assert_eq!(classes(&clock), expected);
        assert_eq!(clock.switches_missed, 1);
        assert_eq!(
            clock.arrive_unseen(118, since_ns, || None),
            None,
            "it is here now"
        );
        assert_eq!(clock.switches_missed, 1);
    }
}

#[test]
fn a_thread_that_left_unseen_does_not_run_on() {
    // Check that a thread whose processor was found with another is not shown as running, until it
    // has an event again.
    let mut clock = started();
    clock.gone_ns = 130;
    assert_eq!(classes(&clock.view(150)), (0, 0, 50, 0, 0));
    clock.woken_ns = 160;
    assert_eq!(classes(&clock.view(170)), (0, 0, 60, 10, 0));
    // What is closed from outside is what was told.
    let (mut suspended, mut assumed) = (clock, clock);
    assert_eq!(suspended.suspend(170), [60, 10]);
    assert_eq!(assumed.assume_call(170, 3, 0).0, [60, 10]);
    assert_eq!(classes(&suspended), (0, 0, 60, 10, 0));
    assert_eq!(classes(&assumed), (0, 0, 60, 10, 0));
    clock.switch_in(170, None);
    assert_eq!(classes(&clock.view(180)), (10, 0, 60, 10, 0));
}

#[test]
fn tracing_of_system_calls_begins_and_ends() {
    // Check that time before a change of what is traced keeps its class, that a call of which
    // nobody saw the entry is time of class syscall, but not counted, and that one that was entered
    // is counted as far as it was seen.
    let mut clock = started();
    clock.enter_call(110, 1);
    let (_, finished) = clock.assume_call(115, NO_CALL, UNTRACED);
    assert_eq!(
        finished.map(|call| (call.number, call.total_ns, call.running_ns)),
        Some((1, 5, 5)),
        "its exit will not be seen"
    );
    assert_eq!(clock.leave_call(120), None);
    assert_eq!(clock.assume_call(130, 7, 0).1, None);
    clock.begin_assumed_call();
    assert_eq!(
        clock.call_running_base_ns, 5,
        "what ran before is no part of it"
    );
    assert_eq!(clock.leave_call(134), None);
    assert_eq!(classes(&clock), (10 + 15, 5 + 4, 0, 0, 0));
    assert_eq!(clock.untraced_ns(), 15);
}

#[test]
fn a_wake_from_a_processor_whose_clock_is_ahead() {
    // Check that a wake time after the switch-in cannot make more blocked time than there was.
    let mut clock = started();
    clock.switch_out(110, true);
    clock.woken_ns = 125;
    assert_eq!(
        clock.switch_in(120, None),
        OffCpuInterval {
            blocked_ns: 10,
            runnable_ns: 0,
            wake: Wake::Seen
        }
    );
    clock.tick(119);
    assert_eq!(clock.elapsed_ns(), 20, "time does not run backwards");
}

#[test]
fn a_sleeping_thread_grows_in_each_report() {
    // Check that reading does not change the clock and that the open interval is in the view, split
    // at the wake.
    let mut clock = started();
    clock.enter_call(110, 0);
    clock.switch_out(120, true);
    assert_eq!(classes(&clock.view(150)), (10, 10, 30, 0, 0));
    assert_eq!(classes(&clock.view(170)), (10, 10, 50, 0, 0));
    clock.woken_ns = 180;
    assert_eq!(classes(&clock.view(190)), (10, 10, 60, 10, 0));
    assert_eq!(clock.switch_in(190, None).blocked_ns, 60);
    assert_eq!(classes(&clock), (10, 10, 60, 10, 0));
}

#[test]
fn a_kernel_thread_has_no_user_time() {
    // Check that all running time of a kernel thread is of class kernel.
    let mut clock = ThreadClock::default();
    clock.start(100, Phase::Blocked, NO_CALL, KERNEL_THREAD);
    clock.woken_ns = 130;
    clock.switch_in(140, None);
    clock.switch_out(150, true);
    assert_eq!(classes(&clock), (0, 0, 30, 10, 10));
}

#[test]
fn a_child_leaves_the_call_that_made_it() {
    // Check that a new thread's way out of clone is system-call time, but no call of its own.
    let mut clock = ThreadClock::default();
    clock.start(100, Phase::Blocked, 56, 0);
    clock.woken_ns = 101;
    clock.switch_in(110, None);
    assert_eq!(clock.leave_call(113), None);
    clock.tick(120);
    assert_eq!(classes(&clock), (7, 3, 1, 9, 0));
}

#[test]
fn a_missed_exit_of_a_call_is_noticed() {
    // Check that entering a call inside a call closes the first one's time as system-call time.
    let mut clock = started();
    clock.enter_call(110, 1);
    assert!(clock.enter_call(120, 2));
    assert_eq!(
        clock
            .leave_call(125)
            .map(|call| (call.number, call.total_ns)),
        Some((2, 5))
    );
    assert_eq!(classes(&clock), (10, 15, 0, 0, 0));
}

#[test]
fn time_outside_the_targets_is_not_in_the_ledger() {
    // Check that a thread which stops being a target and becomes one again has a gap, which no
    // class contains.
    let mut clock = started();
    clock.suspend(110);
    assert_eq!(clock.view(500).elapsed_ns(), 10);
    clock.resume(600, Phase::Blocked, 3, 0);
    assert_eq!(clock.unobserved_ns, 490);
    clock.exit(620);
    assert_eq!(classes(&clock), (10, 0, 20, 0, 0));
    assert_eq!(
        clock.elapsed_ns(),
        clock.last_ns - clock.first_ns - clock.unobserved_ns
    );
    assert_eq!(clock.view(9_000), clock, "the dead do not age");
}

#[derive(Clone, Copy, Debug)]
enum ClockEvent {
    Tick,
    Out(bool),
    In,
    InQueued(u64),
    Wake,
    Enter(u32),
    Leave,
    Suspend,
    Resume(u32),
    Assume(u32),
    Gone,
    ArriveUnseen,
    ArriveUnseenQueued(u64),
}

fn event() -> impl Strategy<Value = ClockEvent> {
    prop_oneof![
        Just(ClockEvent::Tick),
        any::<bool>().prop_map(ClockEvent::Out),
        Just(ClockEvent::In),
        Just(ClockEvent::Wake),
        (0u32..5).prop_map(ClockEvent::Enter),
        Just(ClockEvent::Leave),
        Just(ClockEvent::Suspend),
        Just(ClockEvent::Gone),
        Just(ClockEvent::ArriveUnseen),
        (0u64..60).prop_map(ClockEvent::InQueued),
        (0u64..60).prop_map(ClockEvent::ArriveUnseenQueued),
        (1u32..4).prop_map(ClockEvent::Resume),
        Just(ClockEvent::Assume(NO_CALL)),
        (0u32..5).prop_map(ClockEvent::Assume),
    ]
}

proptest! {
    #[test]
    fn the_ledger_adds_up(events in prop::collection::vec((event(), 0u64..50), 0..200), flags in 0u32..2) {
        // Check that any sequence of events, sensible or not, in any order and with clocks that run
        // backwards by a hair, leaves classes that sum to last - first - unobserved, and totals
        // that never shrink.
        let mut clock = ThreadClock::default();
        clock.start(1_000, Phase::Running, NO_CALL, flags);
        let mut now = 1_000u64;
        let mut seen: Vec<ClassNs> = Vec::new();
        for (event, dt) in events {
            // One event in eight comes from a processor whose clock is behind.
            now = if dt % 8 == 7 { now - 1 } else { now + dt };
            match event {
                ClockEvent::Tick => clock.tick(now),
                ClockEvent::Gone => clock.gone_ns = now,
                ClockEvent::ArriveUnseen => { clock.arrive_unseen(now, now.saturating_sub(dt), || None); }
                ClockEvent::InQueued(queued_ns) => { clock.switch_in(now, Some(queued_ns)); }
                ClockEvent::ArriveUnseenQueued(queued_ns) => {
                    clock.arrive_unseen(now, now.saturating_sub(dt), || Some(queued_ns));
                }
                ClockEvent::Assume(call) => { clock.assume_call(now, call, 0); }
                ClockEvent::Out(gave_up) => clock.switch_out(now, gave_up),
                ClockEvent::In => {
                    let before = clock;
                    let off_cpu = clock.switch_in(now, None);
                    let passed_ns = off_cpu.blocked_ns + off_cpu.runnable_ns;
                    prop_assert_eq!(clock.last_ns - before.last_ns, passed_ns);
                }
                ClockEvent::Wake => clock.woken_ns = now,
                ClockEvent::Enter(number) => { clock.enter_call(now, number); }
                ClockEvent::Leave => {
                    if let Some(call) = clock.leave_call(now) {
                        prop_assert!(call.running_ns + call.blocked_ns <= call.total_ns);
                    }
                }
                ClockEvent::Suspend => { clock.suspend(now); }
                ClockEvent::Resume(phase) => {
                    let phase = Phase::from_u32(phase).expect("1 to 3 are phases");
                    clock.resume(now, phase, NO_CALL, flags);
                }
            }
            prop_assert_eq!(clock.totals.iter().sum::<u64>(), clock.elapsed_ns());
            let view = clock.view(now + 5);
            prop_assert_eq!(view.totals.iter().sum::<u64>(), view.elapsed_ns());
            // A measured function that begins or ends now: as the next tick would have it.
            if flags == 0 && let Some(snapshot) = ThreadUsage::of(&clock, [0; 2], now + 5, now) {
                let mut ticked = clock;
                ticked.arrive_unseen(now + 5, now, || None);
                ticked.tick(now + 5);
                prop_assert_eq!(snapshot.times, ticked.totals);
            }
            if let Some(before) = seen.last() {
                prop_assert!(before.iter().zip(&clock.totals).all(|(old, new)| old <= new));
            }
            seen.push(clock.totals);
        }
    }
}
