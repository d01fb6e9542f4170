//! Which waits are looked at when, and that memory that does not come costs its process, and nobody
//! else.

use super::walk::Walked;
use super::*;
use crate::kernel::OutsideLook;
use crate::sys::memory_reader::tests::{page_in_memory, pages_that_never_come, range, reader};
use profiler_common::outside::{LookHead, SAVED_REGISTERS};
use profiler_common::unwind::OutOfLine;

const S: u64 = 1_000_000_000;

fn outside() -> Outside {
    Outside {
        reader: reader("careless_child"),
        ..Outside::new("/nonexistent".into(), 64)
    }
}

/// A wait of a thread.
fn wait(
    slot: u32,
    pid: u32,
    since_ns: MonoNs,
    begin_seen: bool,
) -> (u32, u32, Option<UnwalkedWait>) {
    let wait = UnwalkedWait {
        since_ns,
        begin_seen,
        cut_short: false,
    };
    (slot, pid, Some(wait))
}

#[test]
fn walks_that_lacked_mappings_are_made_anew_when_there_are_others() {
    // Check that a wait whose walk was cut short is due after a second if its process has had other
    // rows since it began, and if not as soon as it has; and that what is remembered of processes
    // for that is forgotten again.
    let mut outside = outside();
    let cut_short = |slot, pid, since_ns| {
        let (slot, pid, mut wait) = wait(slot, pid, since_ns, true);
        wait.as_mut().unwrap().cut_short = true;
        (slot, pid, wait)
    };
    outside.renew(MonoNs::new(5 * S), &HashSet::from([11, 12]));
    let waits = [
        cut_short(1, 10, MonoNs::new(5 * S)),
        cut_short(2, 11, MonoNs::new(5 * S - 1)),
        cut_short(3, 12, MonoNs::new(5 * S + 1)),
    ];
    outside.note_waits(MonoNs::new(5 * S + S / 2), waits.into_iter());
    assert!(
        outside.due(MonoNs::new(6 * S - 2)).is_empty(),
        "they have not lasted a second"
    );
    outside.note_waits(MonoNs::new(6 * S + 1), waits.into_iter());
    assert_eq!(outside.due(MonoNs::new(6 * S + 1)), [2]);
    outside.waits.get_mut(&2).unwrap().next_ns = None;
    outside.renew(MonoNs::new(7 * S), &HashSet::from([10]));
    assert_eq!(outside.due(MonoNs::new(7 * S)), [1]);
    outside.note_waits(MonoNs::new(16 * S), waits.into_iter());
    assert_eq!(outside.renewed, HashMap::from([(10, MonoNs::new(7 * S))]));
    outside.note_waits(MonoNs::new(17 * S), waits.into_iter());
    assert!(outside.renewed.is_empty());
}

#[test]
fn waits_are_looked_at_when_their_time_has_come() {
    // Check that a wait whose begin was not seen is due at once, another one after a second; that
    // one that was looked at is not due again until its process has other rows; and that the next
    // wait of the same thread is another one.
    let mut outside = outside();
    let waits = [
        wait(1, 10, MonoNs::new(5 * S), false),
        wait(2, 10, MonoNs::new(5 * S), true),
        wait(3, 11, MonoNs::new(4 * S), true),
    ];
    outside.note_waits(MonoNs::new(5 * S + S / 2), waits.into_iter());
    assert_eq!(outside.due(MonoNs::new(6 * S - 1)), [3, 1]);
    for slot in [1, 3] {
        let wait = outside.waits.get_mut(&slot).unwrap();
        wait.next_ns = None;
        wait.lacks_rows = slot == 1;
    }
    outside.note_waits(MonoNs::new(6 * S), waits.into_iter());
    assert_eq!(
        outside.due(MonoNs::new(6 * S)),
        [2],
        "it has lasted a second"
    );
    outside.waits.get_mut(&2).unwrap().next_ns = None;
    outside.renew(MonoNs::new(6 * S), &HashSet::from([10, 11]));
    assert_eq!(
        outside.due(MonoNs::new(6 * S)),
        [1],
        "its stack lacked rows"
    );
    // Who is not told waits on.
    let told = [wait(3, 11, MonoNs::new(6 * S), true), (1, 10, None)];
    outside.note_waits(MonoNs::new(7 * S), told.into_iter());
    assert_eq!(outside.due(MonoNs::new(7 * S)), [3]);
    assert!(outside.waits.contains_key(&2) && !outside.waits.contains_key(&1));
    for (last, together) in [(100, 100), (1_000, 500), (10_000, *BATCH.end())] {
        let many = (1..=last).map(|slot| wait(slot, 1, MonoNs::new(S + u64::from(last)), false));
        outside.note_waits(MonoNs::new(8 * S), many);
        assert_eq!(outside.due(MonoNs::new(8 * S)).len(), together);
    }
}

#[test]
fn waits_that_were_seen_to_begin_are_looked_at_as_far_as_is_saved() {
    // Check that what is saved grows by a share of the time, up to its bound, also while there is
    // debt; that nobody whose begin was seen is looked at while there is none, whoever else is due;
    // and that without a bound all are.
    let mut outside = outside();
    let waits = [
        wait(1, 10, MonoNs::new(5 * S), true),
        wait(2, 10, MonoNs::new(6 * S), false),
        wait(3, 11, MonoNs::new(5 * S), true),
    ];
    outside.note_waits(MonoNs::new(6 * S), waits.into_iter());
    outside.save(MonoNs::new(6 * S), Some(0.01));
    assert_eq!(outside.saved_ns, SAVED_NS, "no more, at first too");
    assert_eq!(outside.due(MonoNs::new(6 * S)), [1, 2, 3]);
    assert_eq!(outside.part_seen(&[1, 3, 2]), 2.0 / 3.0);
    outside.saved_ns = -0.5 * S as f64;
    assert_eq!(outside.due(MonoNs::new(7 * S)), [2]);
    outside.waits.get_mut(&2).unwrap().next_ns = None;
    assert!(outside.due(MonoNs::new(7 * S)).is_empty());
    assert!(!outside.has_unseen);
    outside.note_waits(
        MonoNs::new(8 * S),
        [wait(4, 12, MonoNs::new(8 * S), false)].into_iter(),
    );
    assert_eq!(outside.due(MonoNs::new(8 * S)), [4]);
    outside.save(MonoNs::new(46 * S), Some(0.01));
    assert!((outside.saved_ns / S as f64 + 0.1).abs() < 1e-6);
    outside.save(MonoNs::new(66 * S), Some(0.01));
    assert_eq!(outside.due(MonoNs::new(66 * S)), [1, 3, 4]);
    outside.saved_ns = -1.0;
    outside.save(MonoNs::new(66 * S), None);
    assert!(outside.saved_ns > 0.0);
}

fn subject(pid: u32) -> Subject {
    Subject::new(OutsideLook {
        head: LookHead {
            slot: pid,
            tid: std::process::id(),
            since_ns: 1,
            switches: 1,
            registers: [0; SAVED_REGISTERS],
            pid,
            kernel_thread: 0,
            process_start_boot_ns: 0,
            process_start_ns: 0,
            kernel_len: 0,
            image: 0,
            probes_page: 0,
            out_of_line: OutOfLine::default(),
            returns_len: 0,
            padding: 0,
        },
        kernel: Box::default(),
        returns: Box::default(),
    })
}

#[test]
fn who_keeps_the_reader_waiting_is_left_alone() {
    // Check that memory that never comes is given up in time, that its process alone is not asked
    // again, for longer each time, and that what was read before it is kept.
    let Some(never) = pages_that_never_come(1) else {
        return;
    };
    let here = page_in_memory();
    let mut outside = outside();
    let mut subjects = [subject(21), subject(22), subject(23)];
    let wanted = [
        (0, range(here, 1)),
        (1, range(never, 1)),
        (2, range(here, 1)),
    ];
    assert!(!outside.read(&wanted, &mut subjects));
    let known: Vec<usize> = subjects
        .iter()
        .map(|subject| subject.copies.len())
        .collect();
    assert_eq!(known, [1, 0, 0]);
    let late: Vec<bool> = subjects.iter().map(|subject| subject.late).collect();
    assert_eq!(late, [false, true, false]);
    // Each lacked memory: the first has it now, and only the last was not looked at because of
    // another. So it is with who was not followed at all.
    let walked = Walked {
        addresses: Vec::new(),
        end: StackEnd::None,
    };
    for subject in &mut subjects {
        subject.walked = Some(walked.clone());
        subject.lacks = Some(1);
    }
    subjects[0].lacks = None;
    let unfinished = subjects.each_ref().map(Subject::is_unfinished);
    assert_eq!(unfinished, [false, false, true]);
    assert!(subject(24).is_unfinished());
    assert!(outside.read(&wanted[2..], &mut subjects), "another child");
    assert_eq!(outside.counts().reader.late, 1);

    let now_ns = monotonic_ns();
    let waits = [21, 22, 23].map(|pid| wait(pid, pid, now_ns, false));
    outside.note_waits(now_ns, waits.into_iter());
    assert_eq!(outside.due(now_ns), [21, 23]);
    assert_eq!(outside.counts().late, 1);
    let until_ns = outside.barred[&22].until_ns;
    assert!(until_ns > now_ns && until_ns <= monotonic_ns() + BARRED_NS);
    assert_eq!(
        outside.due(until_ns),
        [21, 23, 22],
        "who waits longest first"
    );
    outside.bar(22);
    assert!(
        outside.barred[&22].until_ns > now_ns + 3 * BARRED_NS / 2,
        "longer"
    );
}
