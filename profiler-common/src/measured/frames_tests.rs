//! The frames against a plain telling of the same rules, on drawn programs: calls, returns,
//! exceptions across several frames, several stacks, lost entries, and depth beyond the bound.

use std::collections::HashMap;
use std::vec::Vec;

use proptest::prelude::*;

use super::*;
use crate::clock::{Class, ClassNs};
use crate::measured::{CallCost, add, call_frame::STACK_BYTES, callers, elapsed_ns};

/// Where calls return to, where it does not matter.
const CALLER: u64 = 0x1000;

#[derive(Default)]
struct Map(
    HashMap<u32, MeasuredRow>,
    HashMap<(u32, u64), callers::CallerRow>,
);

impl Rows for Map {
    fn row(&mut self, function: u32) -> Option<&mut MeasuredRow> {
        Some(self.0.entry(function).or_insert(MeasuredRow::EMPTY))
    }

    fn known(&mut self, function: u32) -> Option<&mut MeasuredRow> {
        self.0.get_mut(&function)
    }

    fn called_by(&mut self, function: u32, caller: u64) {
        self.1.entry((function, caller)).or_default().calls += 1;
    }

    fn completed_by(&mut self, function: u32, caller: u64, call: &CompleteCall<'_>) {
        let row = self.1.entry((function, caller)).or_default();
        row.complete(call, |to, more| *to += more);
    }
}

fn at(times: ClassNs) -> ThreadUsage {
    ThreadUsage {
        times,
        ..ThreadUsage::default()
    }
}

/// At so many nanoseconds of user time.
fn user(ns: u64) -> ThreadUsage {
    at([ns, 0, 0, 0, 0])
}

/// Probes cost nothing.
const FREE: CallCosts = CallCosts {
    of_kind: [CallCost {
        inside_ns: 0,
        outside_ns: 0,
    }; PROBE_KINDS],
};

fn call(function: u32, sp: u64, caller: u64) -> EnteredCall {
    EnteredCall {
        function,
        sp,
        caller,
        stepped: false,
    }
}

fn enter(frames: &mut ShadowStack, rows: &mut Map, function: u32, sp: u64, ns: u64) {
    frames.drop_dead(sp, rows);
    assert!(frames.enter(&call(function, sp, CALLER), rows));
    frames.started(&user(ns));
}

#[test]
fn recursion_is_counted_once() {
    let (mut frames, mut rows) = (ShadowStack::EMPTY, Map::default());
    for level in 0..4 {
        enter(&mut frames, &mut rows, 1, 1000 - 100 * level, 10 * level);
    }
    for level in (0..4).rev() {
        assert!(frames.exit(
            (1, 1000 - 100 * level),
            (3, &FREE),
            &user(100 - level),
            &mut rows
        ));
    }
    let row = rows.0[&1];
    assert_eq!((row.calls, row.outermost, row.complete), (4, 1, 4));
    assert_eq!((row.open, row.left_unseen, frames.depth), (0, 0, 0));
    assert_eq!((row.inclusive[0], row.exclusive[0]), (100, 100));
    assert_eq!(row.inclusive_extremes[0].min_ns, 100);
    assert_eq!((row.probes_below[3], row.probes_direct[3]), (3, 3));
    assert_eq!(row.histograms[0].iter().sum::<u32>(), 1);
}

#[test]
fn a_call_left_by_an_exception_leaves_its_time_to_its_caller() {
    let (mut frames, mut rows) = (ShadowStack::EMPTY, Map::default());
    enter(&mut frames, &mut rows, 1, 1000, 0);
    enter(&mut frames, &mut rows, 2, 900, 10);
    enter(&mut frames, &mut rows, 3, 800, 20);
    assert!(frames.exit((3, 800), (0, &FREE), &user(25), &mut rows));
    // 2 throws, 1 catches and calls 4.
    enter(&mut frames, &mut rows, 4, 900, 50);
    assert_eq!(rows.0[&2].left_unseen, 1);
    assert!(frames.exit((4, 900), (0, &FREE), &user(60), &mut rows));
    assert!(frames.exit((1, 1000), (0, &FREE), &user(100), &mut rows));
    assert_eq!(rows.0[&1].exclusive[0], 100 - 5 - 10);
    assert_eq!(rows.0[&2].complete, 0);
    assert_eq!(rows.0[&2].open, 0);
}

#[test]
fn an_exit_without_an_entry_is_told() {
    let (mut frames, mut rows) = (ShadowStack::EMPTY, Map::default());
    enter(&mut frames, &mut rows, 1, 1000, 0);
    assert!(!frames.exit((1, 1100), (0, &FREE), &user(5), &mut rows));
    assert!(!frames.exit((2, 1000), (0, &FREE), &user(5), &mut rows));
    assert!(frames.exit((1, 1000), (0, &FREE), &user(9), &mut rows));
    assert_eq!(rows.0[&1].exits_unmatched, 1);
    assert_eq!(rows.0[&2].exits_unmatched, 1);
    assert_eq!(rows.0[&1].inclusive[0], 9);
}

#[test]
fn another_program_has_no_open_calls() {
    let (mut frames, mut rows) = (ShadowStack::EMPTY, Map::default());
    enter(&mut frames, &mut rows, 1, 1000, 0);
    enter(&mut frames, &mut rows, 1, 900, 1);
    frames.exec(1, &mut rows);
    assert_eq!((frames.depth, rows.0[&1].open), (0, 0));
    assert_eq!(rows.0[&1].left_exec, 2);
}

#[test]
fn beyond_the_depth_calls_are_counted_only() {
    let (mut frames, mut rows) = (ShadowStack::EMPTY, Map::default());
    let mut entered = 0;
    for level in 0..40 {
        frames.drop_dead(10_000 - 100 * level, &mut rows);
        entered += u32::from(frames.enter(&call(1, 10_000 - 100 * level, CALLER), &mut rows));
        frames.started(&user(0));
    }
    let row = rows.0[&1];
    assert_eq!((entered, row.calls, row.too_deep), (32, 40, 8));
    for level in (0..40).rev() {
        frames.exit((1, 10_000 - 100 * level), (0, &FREE), &user(7), &mut rows);
    }
    let row = rows.0[&1];
    assert_eq!((row.complete, row.exits_unmatched), (32, 0));
    assert_eq!((row.open, frames.depth), (0, 0));
    // One more is of no call.
    frames.exit((1, 20_000), (0, &FREE), &user(8), &mut rows);
    assert_eq!(rows.0[&1].exits_unmatched, 1);
}

// Check that the probes of calls without a place are in the innermost call that has one, so that
// they can be subtracted: of a recursion of 40, where 32 have one, 31 below the outermost count as
// measured; of the other 8 each entry and each exit is a hit in the 32nd's own time.
#[test]
fn probes_of_calls_without_a_place_are_in_those_that_have_one() {
    let (mut frames, mut rows) = (ShadowStack::EMPTY, Map::default());
    for level in 0..40 {
        frames.drop_dead(10_000 - 100 * level, &mut rows);
        frames.enter(&call(1, 10_000 - 100 * level, CALLER), &mut rows);
        frames.started(&user(0));
    }
    for level in (0..40).rev() {
        frames.exit((1, 10_000 - 100 * level), (5, &FREE), &user(7), &mut rows);
    }
    let row = rows.0[&1];
    assert_eq!(row.probes_below, [8, 8, 0, 0, 0, 31, 0, 0]);
    assert_eq!(row.probes_direct, row.probes_below);
}

// Check that the entry of a call that was left by an exception is in what its caller's time is
// lessened by, with all that it had made; and so are exits that are no call's, and jumps that were
// not taken.
#[test]
fn every_hit_within_a_call_is_a_part_of_its_cost() {
    let (mut frames, mut rows) = (ShadowStack::EMPTY, Map::default());
    enter(&mut frames, &mut rows, 1, 1000, 0);
    frames.drop_dead(900, &mut rows);
    let stepped = EnteredCall {
        stepped: true,
        ..call(2, 900, CALLER)
    };
    assert!(frames.enter(&stepped, &mut rows));
    frames.started(&user(0));
    enter(&mut frames, &mut rows, 3, 800, 20);
    assert!(frames.exit((3, 800), (7, &FREE), &user(25), &mut rows));
    // 2 throws, and 1 meets a jump out of it that is not taken, and the exit of nobody.
    frames.drop_dead(900, &mut rows);
    frames.passed(false);
    assert!(!frames.exit((2, 500), (5, &FREE), &user(30), &mut rows));
    assert!(!frames.exit((2, 500), (3, &FREE), &user(30), &mut rows));
    assert!(frames.exit((1, 1000), (4, &FREE), &user(40), &mut rows));
    let row = rows.0[&1];
    // The jump; the entry of 2 and both exits, stepped; the call of 3.
    assert_eq!(row.probes_below, [1, 3, 0, 0, 0, 0, 0, 1]);
    assert_eq!(row.probes_direct, [1, 3, 0, 0, 0, 0, 0, 1]);
}

// Check that another turn of a loop around a whole function is told from a call: by its place on
// the stack, and by where it returns to.
#[test]
fn turns_of_a_loop_are_no_calls() {
    let (mut frames, mut rows) = (ShadowStack::EMPTY, Map::default());
    assert!(!frames.is_turn(&call(1, 1000, CALLER)));
    enter(&mut frames, &mut rows, 1, 1000, 0);
    assert!(frames.is_turn(&call(1, 1000, CALLER)));
    for other in [
        call(1, 900, CALLER),
        call(1, 1000, CALLER + 1),
        call(2, 1000, CALLER),
    ] {
        assert!(!frames.is_turn(&other), "{other:?}");
    }
    assert!(frames.exit((1, 1000), (0, &FREE), &user(5), &mut rows));
    assert!(!frames.is_turn(&call(1, 1000, CALLER)));
}

// Check that hits that are no calls count for the budget where exits are probed; where calls are
// counted alone each is a call, and counts once.
#[test]
fn hits_are_calls_and_what_is_none() {
    let mut row = MeasuredRow::EMPTY;
    row.calls = 3;
    row.exits_unmatched = 1;
    row.pass(false);
    row.pass(true);
    row.pass(true);
    assert_eq!((row.hits(true), row.sequence), (7, 6));
    assert_eq!(row.probes_own[..2], [1, 2]);
    let (mut frames, mut rows) = (ShadowStack::EMPTY, Map::default());
    frames.count(1, CALLER, 0, &mut rows);
    assert_eq!(rows.0[&1].hits(false), 1);
}

// Check that each call is told less what its own probes took and those of what it called, and that
// sums are not: what a short call did not have is not subtracted from it.
#[test]
fn shortest_and_longest_are_less_their_own_probes() {
    let mut costs = CallCosts::default();
    costs.of_kind[4] = CallCost {
        inside_ns: 100,
        outside_ns: 900,
    };
    let (mut frames, mut rows) = (ShadowStack::EMPTY, Map::default());
    // 300 ns in it, with its probe.
    enter(&mut frames, &mut rows, 1, 1000, 0);
    assert!(frames.exit((1, 1000), (4, &costs), &user(400), &mut rows));
    // 50 us, with its probe and ten calls.
    enter(&mut frames, &mut rows, 1, 1000, 1_000);
    for _ in 0..10 {
        enter(&mut frames, &mut rows, 2, 900, 2_000);
        assert!(frames.exit((2, 900), (4, &costs), &user(2_050), &mut rows));
    }
    assert!(frames.exit((1, 1000), (4, &costs), &user(61_100), &mut rows));
    let row = rows.0[&1];
    assert_eq!(row.inclusive[0], 400 + 60_100);
    let elapsed = row.inclusive_extremes[0];
    assert_eq!((elapsed.min_ns, elapsed.max_ns), (300, 50_000));
    assert_eq!(row.inclusive_extremes[1], elapsed);
    // One that is all probe took nothing.
    assert_eq!(rows.0[&2].inclusive_extremes[0].max_ns, 0);
}

/// The rows of a thread that runs one of several goroutines.
struct RowsOfGoroutines<'a>(&'a mut Map);

impl Rows for RowsOfGoroutines<'_> {
    fn row(&mut self, function: u32) -> Option<&mut MeasuredRow> {
        self.0.row(function)
    }

    fn known(&mut self, function: u32) -> Option<&mut MeasuredRow> {
        self.0.row(function)
    }

    fn called_by(&mut self, function: u32, caller: u64) {
        self.0.called_by(function, caller);
    }

    fn completed_by(&mut self, function: u32, caller: u64, call: &CompleteCall<'_>) {
        self.0.completed_by(function, caller, call);
    }
}

#[test]
fn calls_of_goroutines_end_on_other_threads() {
    // Check that calls of two goroutines that two threads take turns to run are outermost each for
    // itself, that one may end, or be found to be over, on a thread that never began one, and that
    // none is open in the end, whichever thread's row is looked at first.
    let mut goroutines = [ShadowStack::EMPTY; 2];
    let mut threads = [Map::default(), Map::default()];
    let mut enter = |goroutine: usize, thread: usize, sp: u64, ns: u64| {
        let mut rows = RowsOfGoroutines(&mut threads[thread]);
        let frames = &mut goroutines[goroutine];
        frames.drop_dead(sp, &mut rows);
        let is_within = frames.is_in(1);
        assert!(frames.enter_within(&call(1, sp, CALLER), Some(is_within), &mut rows));
        frames.started(&user(ns));
        is_within
    };
    assert!(!enter(0, 0, 1000, 0));
    assert!(!enter(1, 0, 1000, 10));
    assert!(enter(0, 0, 900, 20));
    // The inner call of the first is left by a panic.
    assert!(enter(0, 1, 950, 30));
    for (goroutine, sp, ns) in [(0, 950, 40), (0, 1000, 50), (1, 1000, 110)] {
        let mut rows = RowsOfGoroutines(&mut threads[1]);
        assert!(goroutines[goroutine].exit((1, sp), (3, &FREE), &user(ns), &mut rows));
    }
    let [one, other] = [threads[0].0[&1], threads[1].0[&1]];
    assert_eq!((one.open(), other.open()), (3, 0));
    let mut all = other;
    all.merge(&one);
    assert_eq!((all.calls, all.complete, all.left_unseen), (4, 3, 1));
    assert_eq!((all.open(), all.outermost), (0, 2));
    assert_eq!((all.inclusive[0], all.exclusive[0]), (150, 150));
    assert_eq!(goroutines.map(|frames| frames.depth), [0, 0]);
}

#[test]
fn an_exception_through_all_that_can_be_open_leaves_none() {
    // Check that a function that is called again from the same place after an exception through as
    // many calls as can be open, itself among them, is timed from its second entry on, and that
    // what the left calls had made is with the one that caught it.
    let (mut frames, mut rows) = (ShadowStack::EMPTY, Map::default());
    enter(&mut frames, &mut rows, 1, 10_000, 0);
    for level in 1..=30 {
        enter(&mut frames, &mut rows, 2, 10_000 - 100 * level, 10);
    }
    enter(&mut frames, &mut rows, 3, 6_000, 20);
    assert!(frames.exit((3, 6_000), (4, &FREE), &user(25), &mut rows));
    for (entered, again) in [(50, 0), (60, 1)] {
        enter(&mut frames, &mut rows, 2, 9_900, entered);
        assert_eq!((rows.0[&2].left_unseen, rows.0[&2].open), (30, 1));
        assert!(frames.exit((2, 9_900), (0, &FREE), &user(entered + 3), &mut rows));
        assert_eq!(rows.0[&2].complete, 1 + again);
    }
    assert_eq!((rows.0[&2].inclusive[0], rows.0[&2].outermost), (6, 2));
    assert_eq!(rows.0[&2].exits_unmatched, 0);
    assert!(frames.exit((1, 10_000), (0, &FREE), &user(100), &mut rows));
    assert_eq!(rows.0[&1].exclusive[0], 100 - 5 - 6);
    assert_eq!(rows.0[&1].probes_below[4], 1);
    assert_eq!(frames.depth, 0);
}

/// What a program does next.
#[derive(Clone, Copy, Debug)]
enum CallAct {
    Call {
        function: u32,
        caller: u64,
        counted: bool,
    },
    Return,
    /// So many frames are left at once, without a return.
    Throw(usize),
    /// It goes on on another stack.
    Switch(usize),
    /// A call whose entry is not seen.
    CallUnseen {
        function: u32,
    },
    Pass(ClassNs),
}

fn act() -> impl Strategy<Value = CallAct> {
    prop_oneof![
        6 => (1..5_u32, 1..4_u64, prop::bool::weighted(0.1))
            .prop_map(|(function, caller, counted)| CallAct::Call { function, caller, counted }),
        5 => Just(CallAct::Return),
        1 => (1..4_usize).prop_map(CallAct::Throw),
        1 => (0..3_usize).prop_map(CallAct::Switch),
        1 => (1..5_u32).prop_map(|function| CallAct::CallUnseen { function }),
        6 => prop::array::uniform5(0..50_u64).prop_map(CallAct::Pass),
    ]
}

/// An open call, told plainly.
struct OpenCall {
    id: usize,
    function: u32,
    sp: u64,
    from: u64,
    entered: ClassNs,
    outermost: bool,
    caller: Option<usize>,
    below: ClassNs,
}

#[derive(Default)]
struct Told {
    open: Vec<OpenCall>,
    next: usize,
    inclusive: HashMap<u32, u64>,
    exclusive: HashMap<u32, u64>,
    unseen: HashMap<u32, u64>,
    /// By function and place: calls, outermost ones, their time and the part in user mode.
    callers: HashMap<(u32, u64), [u64; 4]>,
    /// Of calls without a caller.
    roots_ns: u64,
}

impl Told {
    fn innermost(&self) -> Option<usize> {
        self.open.last().map(|open| open.id)
    }

    fn give(&mut self, caller: Option<usize>, times: &ClassNs) {
        let caller = caller.and_then(|id| self.open.iter_mut().find(|open| open.id == id));
        if let Some(caller) = caller {
            add(&mut caller.below, times);
        }
    }

    fn leave_unseen(&mut self, index: usize) {
        let gone = self.open.remove(index);
        *self.unseen.entry(gone.function).or_default() += 1;
        for open in &mut self.open {
            if open.caller == Some(gone.id) {
                open.caller = gone.caller;
            }
        }
        if gone.caller.is_none() {
            // What it called has no caller: its time is nobody's part.
            self.roots_ns += elapsed_ns(&gone.below);
        }
        self.give(gone.caller, &gone.below);
    }

    fn enter(&mut self, function: u32, sp: u64, from: u64, now: ClassNs) {
        while let Some(last) = self.open.last()
            && last.sp <= sp
            && sp - last.sp < STACK_BYTES
        {
            self.leave_unseen(self.open.len() - 1);
        }
        if function == 0 {
            return;
        }
        self.callers.entry((function, from)).or_default()[0] += 1;
        if self.open.len() == MAX_DEPTH {
            return;
        }
        self.next += 1;
        let caller = self.innermost();
        self.open.push(OpenCall {
            id: self.next,
            function,
            sp,
            from,
            entered: now,
            outermost: self.open.iter().all(|open| open.function != function),
            caller,
            below: [0; 5],
        });
    }

    fn exit(&mut self, function: u32, sp: u64, now: &ClassNs) {
        let is_it = |open: &OpenCall| open.function == function && open.sp == sp;
        let Some(index) = self.open.iter().rposition(is_it) else {
            return;
        };
        for above in (index + 1..self.open.len()).rev() {
            if self.open[above].sp <= sp && sp - self.open[above].sp < STACK_BYTES {
                self.leave_unseen(above);
            }
        }
        let ended = self.open.remove(index);
        for open in &mut self.open {
            if open.caller == Some(ended.id) {
                open.caller = None;
            }
        }
        let inclusive = less(now, &ended.entered);
        for (class, below) in ended.below.iter().enumerate() {
            assert!(
                *below <= inclusive[class],
                "{class}: a part is larger than the whole"
            );
        }
        self.give(ended.caller, &inclusive);
        let elapsed = elapsed_ns(&inclusive);
        if ended.caller.is_none() {
            self.roots_ns += elapsed;
        }
        if ended.outermost {
            *self.inclusive.entry(function).or_default() += elapsed;
            let by = self.callers.entry((function, ended.from)).or_default();
            let values = [0, 1, elapsed, inclusive[Class::User as usize]];
            for (to, more) in by.iter_mut().zip(values) {
                *to += more;
            }
        }
        *self.exclusive.entry(function).or_default() += elapsed - elapsed_ns(&ended.below);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2048))]
    #[test]
    fn frames_are_as_told(acts in prop::collection::vec(act(), 0..300)) {
        const STACKS: [u64; 3] = [1 << 40, 2 << 40, (2 << 40) + (3 << 20)];
        let (mut frames, mut rows) = (ShadowStack::EMPTY, Map::default());
        let mut told = Told::default();
        let mut now: ClassNs = [0; 5];
        // What the program itself knows of its stacks: function, stack pointer.
        let mut stacks: [Vec<(u32, u64)>; 3] = [Vec::new(), Vec::new(), Vec::new()];
        let mut stack = 0;
        for act in acts {
            let top = stacks[stack].last().map_or(STACKS[stack], |(_, sp)| *sp);
            match act {
                CallAct::Pass(times) => add(&mut now, &times),
                CallAct::Switch(to) => stack = to,
                CallAct::Throw(count) => {
                    let left = stacks[stack].len().saturating_sub(count);
                    stacks[stack].truncate(left);
                }
                CallAct::Call { function, caller, counted: true } => {
                    told.enter(0, top - 64, caller, now);
                    told.callers.entry((function, caller)).or_default()[0] += 1;
                    frames.drop_dead(top - 64, &mut rows);
                    frames.count(function, caller, 4, &mut rows);
                }
                CallAct::Call { function, caller, counted: false } => {
                    stacks[stack].push((function, top - 64));
                    told.enter(function, top - 64, caller, now);
                    frames.drop_dead(top - 64, &mut rows);
                    if frames.enter(&call(function, top - 64, caller), &mut rows) {
                        frames.started(&at(now));
                    }
                }
                CallAct::CallUnseen { function } => stacks[stack].push((function, top - 64)),
                CallAct::Return => {
                    if let Some((function, sp)) = stacks[stack].pop() {
                        told.exit(function, sp, &now);
                        frames.exit((function, sp), (0, &FREE), &at(now), &mut rows);
                    }
                }
            }
            // Places of calls that are over among others can make it full a little earlier.
            prop_assume!((frames.depth as usize) < MAX_DEPTH);
        }
        let mut exclusive_ns = 0;
        for (function, row) in &rows.0 {
            let of = |values: &HashMap<u32, u64>| values.get(function).copied().unwrap_or(0);
            prop_assert_eq!(elapsed_ns(&row.inclusive), of(&told.inclusive));
            prop_assert_eq!(elapsed_ns(&row.exclusive), of(&told.exclusive));
            prop_assert_eq!(row.left_unseen, of(&told.unseen));
            prop_assert!(row.inclusive[Class::User as usize] <= elapsed_ns(&row.inclusive));
            let open = told.open.iter().filter(|open| open.function == *function).count();
            prop_assert_eq!(row.open as usize, open);
            prop_assert_eq!(row.calls, row.complete + row.left_unseen + u64::from(row.open)
                + row.probes_own[4]);
            prop_assert_eq!(row.sequence % 2, 0);
            exclusive_ns += elapsed_ns(&row.exclusive);
        }
        let callers: HashMap<(u32, u64), [u64; 4]> = rows.1.iter().map(|(key, row)| {
            (*key, [row.calls, row.outermost, row.elapsed_ns, row.application_ns])
        }).collect();
        prop_assert_eq!(callers, told.callers);
        for (function, row) in &rows.0 {
            let mut all = callers::CallerRow::EMPTY;
            for (_, by) in rows.1.iter().filter(|((of, _), _)| of == function) {
                all.merge(by);
            }
            prop_assert_eq!(all.probes_outermost, row.probes_outermost);
            prop_assert_eq!(all.probes_below, row.probes_below);
        }
        // What calls without a caller took, and what is within calls that are still open, is what
        // all calls took themselves.
        let within_open: u64 = told.open.iter().map(|open| elapsed_ns(&open.below)).sum();
        prop_assert_eq!(exclusive_ns, told.roots_ns + within_open);
    }
}
