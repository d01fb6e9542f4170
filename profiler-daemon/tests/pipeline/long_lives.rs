//! Sessions of many threads over weeks: sums of nanoseconds near the end of their numbers.

use std::sync::Arc;

use profiler_common::Class;
use profiler_common::kinds::{Kind, Primary};
use profiler_daemon::export::saved::{Saved, SavedNames};
use profiler_daemon::processes::ids::ThreadKey;
use profiler_daemon::profile::input::{OpenStack, StackDelta, SyscallUpdate, ThreadState};
use profiler_daemon::profile::limits::Limits;
use profiler_daemon::report::{self, Scope, ViewQuery, Window};
use profiler_daemon::units::BootNs;

use crate::machine::{SECOND_NS, START_NS, START_UNIX_NS};
use crate::saved::{everything, file};
use crate::small::{PROCESS, Small, THREAD, asleep_in, info, thread};

/// How long each thread has lived: 36 years, as eight threads of that are as good as thousands of
/// weeks.
const LIFE_NS: u64 = 1 << 60;

#[test]
fn sessions_of_many_threads_over_weeks_are_reported_and_saved() {
    // Check that every report in every form can be made of a session whose threads have lived for
    // nearly as long as those of one session may, in each kind of time, that the session has their
    // time, and that it can be saved and read again.
    let mut small = Small::new(Limits::default());
    let key = |number: u32| ThreadKey {
        tid: THREAD.tid + number,
        start_ns: BootNs::new(990 * SECOND_NS),
    };
    let user = small.frames(&["f0", "f1"]);
    let delta = |number: u32, primary: Primary| StackDelta {
        thread: key(number),
        user: user.clone(),
        primary,
        process: PROCESS,
        kernel: Vec::new(),
        end: profiler_common::StackEnd::Complete,
        lost: None,
    };
    let mut passes = [small.pass(1), small.pass(1)];
    for (pass, life_ns) in passes.iter_mut().zip([SECOND_NS, LIFE_NS]) {
        pass.now_ns = START_NS + life_ns;
        pass.now_unix_ns = START_UNIX_NS + life_ns;
        pass.processes = vec![info(PROCESS)];
        let gained_ns = if life_ns == SECOND_NS {
            SECOND_NS
        } else {
            life_ns - SECOND_NS
        };
        let of = |class: Class| {
            let mut classes = [0; 5];
            classes[class as usize] = life_ns;
            classes
        };
        let mut primary = [Primary::default(); 6];
        primary[0].ticks[0] = gained_ns / 10_000_000;
        primary[1].marks[0] = gained_ns / 1_000_000;
        primary[2].weighted = [gained_ns, 0];
        primary[2].squares_ms2 = [u64::MAX, 0];
        primary[3].exact = [gained_ns, 0];
        primary[4].exact = [0, gained_ns];
        let classes = [
            Class::User,
            Class::Syscall,
            Class::Blocked,
            Class::Blocked,
            Class::Runnable,
            Class::Blocked,
        ];
        let kinds = [Kind::User, Kind::Call, Kind::OutsideBlocked];
        for (number, (class, primary)) in (0u32..).zip(classes.into_iter().zip(primary)) {
            let mut update = thread(PROCESS, key(number), ThreadState::Blocked, of(class));
            update.slot = number;
            update.kinds = Default::default();
            if let Some(kind) = kinds.get(number as usize) {
                update.kinds[*kind as usize] = life_ns;
            }
            if number == 5 {
                update.call = Some(asleep_in(7, START_NS, life_ns));
                pass.open.push(OpenStack {
                    thread: key(number),
                    process: PROCESS,
                    user: user.clone(),
                    kernel: Vec::new(),
                    end: profiler_common::StackEnd::Complete,
                    lost: None,
                    classes: of(class),
                });
            } else {
                pass.stacks.push(delta(number, primary));
            }
            pass.threads.push(update);
        }
        pass.syscalls = vec![SyscallUpdate {
            process: PROCESS,
            thread: key(1),
            number: 1,
            count: life_ns / 1_000,
            total_ns: life_ns,
            running_ns: life_ns,
            blocked_ns: 0,
            max_ns: life_ns / 2,
        }];
    }
    for pass in passes {
        small.profile.apply(pass);
    }
    let snapshot = small.profile.snapshot();
    let view = ViewQuery {
        window: Window::Session,
        ..ViewQuery::default()
    };
    let session = report::session(&snapshot, &view, &small.names).expect("the session");
    let answer = serde_json::to_value(&session).expect("it is JSON");
    assert_eq!(answer["elapsed_ns"], 6 * LIFE_NS, "{answer}");
    let frames = report::frames_needed(&snapshot, &Scope::Session).expect("the session");
    let saved = Saved {
        sampling_period_ns: 10_101_010,
        status: "{}".to_owned(),
        targets: "{}".to_owned(),
        names: SavedNames::new(&frames, &small.names),
        snapshot: Arc::new(snapshot),
    };
    assert!(!everything(&saved.snapshot, &saved.names).is_empty());
    let again = Saved::read(&file(&saved)).expect("it can be read");
    assert_eq!(file(&again), file(&saved));
}
