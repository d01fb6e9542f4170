//! What was measured exactly, beside what was sampled: its row, its window, whether both agree.

use std::{collections::BTreeMap, sync::Arc};

use profiler_common::{
    kinds::Tick,
    measured::{Extremes, MeasuredRow, histogram::bucket},
};
use profiler_daemon::{
    export::saved::{Saved, SavedNames},
    kernel::ProbeCosts,
    processes::ids::ProcessKey,
    profile::{
        input::{DrainPass, ThreadState},
        limits::Limits,
        measured::{Calls, Counted, FunctionState, MeasuredCalls, ProbedFunction},
        sessions::At,
    },
    report::{
        self, FunctionRow, List, MeasuredGroup, ProcessSelector, Scope, TableQuery, Window,
        names::Names as _,
    },
    units::MonoNs,
};

use crate::{
    machine::{SECOND_NS, START_NS, START_UNIX_NS},
    small::{self, PROCESS, Small, THREAD},
};

const MS: u64 = 1_000_000;
/// Ticks a second.
const TICKS: u64 = 100;
/// Calls a second, and how long each takes.
const CALLS: u64 = 600;
const CALL_NS: u64 = MS;
/// When the probes are attached, seconds after the start.
const ATTACHED: u64 = 10;

/// A program of which `work` has 60 % of the time.
struct World {
    small: Small,
    now: u64,
    functions: Vec<FunctionState>,
    /// Calls so far, by function and process.
    counted: Counted,
    /// What probes cost, by instrumentation: each function has its own.
    costs: BTreeMap<u64, ProbeCosts>,
    /// What the ticks of `other` find.
    other_found: Tick,
}

fn at(seconds: u64) -> At {
    At {
        ns: START_NS + seconds * SECOND_NS - MS,
        unix_ns: START_UNIX_NS + seconds * SECOND_NS - MS,
    }
}

fn calls(count: u64, each_ns: u64) -> Calls {
    let mut row = MeasuredRow::EMPTY;
    row.calls = count;
    row.outermost = count;
    row.complete = count;
    row.inclusive[0] = count * each_ns;
    row.exclusive[0] = count * each_ns;
    row.inclusive_extremes = [Extremes {
        min_ns: each_ns,
        max_ns: each_ns,
    }; 2];
    for histogram in &mut row.histograms {
        histogram[bucket(each_ns)] = count as u32;
    }
    row.probes_own[7] = count;
    row.probes_outermost[7] = count;
    Calls::from(&row)
}

impl World {
    fn new() -> Self {
        Self {
            small: Small::new(Limits::default()),
            now: 0,
            functions: Vec::new(),
            counted: Counted::new(),
            costs: BTreeMap::new(),
            other_found: Tick::User,
        }
    }

    /// Measures a function from the next second on; its code is that of `row`.
    fn measure(&mut self, number: u32, name: &str, row: &str) {
        let frame = self.small.frames(&[row])[0];
        let address = self.small.names.function(frame).address.unwrap();
        let module = self.small.profile.snapshot().frame(frame).module;
        self.functions.push(FunctionState {
            function: Arc::new(ProbedFunction {
                number,
                instrumentation: u64::from(number),
                name: name.into(),
                aliases: vec!["another name".into()],
                module,
                address,
                counted_only: None,
                goroutines: name.starts_with("main."),
                attached: at(self.now + 1),
            }),
            detached: None,
            gave_up: None,
            borders: (None, None),
        });
    }

    fn count(&mut self, number: u32, process: ProcessKey, calls: Calls) {
        self.counted.insert((number, process), Arc::new(calls));
    }

    fn pass(&mut self) {
        self.now += 1;
        let mut pass: DrainPass = self.small.pass(self.now);
        pass.processes.push(small::info(PROCESS));
        pass.threads.push(small::thread(
            PROCESS,
            THREAD,
            ThreadState::Running,
            [self.now * SECOND_NS, 0, 0, 0, 0],
        ));
        for (function, share) in [("work", 60), ("other", 40)] {
            let ns = share * SECOND_NS / 100;
            let ticks = share * TICKS / 100;
            let mut stack = self
                .small
                .delta(&["main", function], &[], ticks, [ns, 0, 0, 0, 0]);
            if function == "other" {
                let of_ticks = &mut stack.primary.ticks;
                of_ticks.swap(Tick::User as usize, self.other_found as usize);
            }
            pass.stacks.push(stack);
        }
        pass.measured = MeasuredCalls {
            functions: Arc::new(self.functions.clone()),
            costs: self.costs.clone(),
            counted: Arc::new(self.counted.clone()),
        };
        self.small.profile.apply(pass);
    }

    /// Thirty seconds, in the last twenty of which `work` is measured: so many calls a second were.
    fn thirty(calls_a_second: u64) -> Self {
        let mut world = Self::new();
        for _ in 0..30 {
            if world.now == ATTACHED {
                world.measure(20, "work", "work");
            }
            if world.now >= ATTACHED {
                let seconds = world.now + 1 - ATTACHED;
                world.count(20, PROCESS, calls(seconds * calls_a_second, CALL_NS));
            }
            world.pass();
        }
        world
    }

    fn ask(&self, scope: &Scope, query: &TableQuery) -> List<FunctionRow> {
        let snapshot = self.small.profile.snapshot();
        report::functions(&snapshot, scope, query, &self.small.names).unwrap()
    }

    fn list(&self, window: Window) -> List<FunctionRow> {
        let query = TableQuery {
            window,
            ..TableQuery::default()
        };
        self.ask(&Scope::Session, &query)
    }
}

/// Rows of functions of a process, the first of which is measured.
pub(crate) fn rows() -> Vec<FunctionRow> {
    let one = Scope::Process(ProcessSelector {
        pid: PROCESS.pid,
        start_ticks: None,
    });
    let query = TableQuery {
        sort: Some("measured.calls".to_owned()),
        ..TableQuery::default()
    };
    World::thirty(CALLS).ask(&one, &query).rows
}

fn measured<'l>(list: &'l List<FunctionRow>, function: &str) -> Option<&'l MeasuredGroup> {
    let row = list.rows.iter().find(|row| row.function == function);
    row.unwrap_or_else(|| panic!("{function} has no row"))
        .measured
        .as_deref()
}

// Check that a function that is measured has both values in one row, with shares of the same
// wholes, that others have none, and that both agree although it was measured for a part of the
// time alone.
#[test]
fn both_values_stand_in_one_row() {
    let world = World::thirty(CALLS);
    let list = world.list(Window::Session);
    let work = measured(&list, "work").unwrap();
    assert!(measured(&list, "other").is_none() && measured(&list, "main").is_none());
    // What was called between the border and the attachment counts as well: 20 s of calls.
    assert_eq!(work.values.calls, 20 * CALLS);
    assert_eq!(work.values.elapsed.inclusive_ns, 20 * CALLS * CALL_NS);
    assert_eq!(work.values.elapsed.mean_ns, Some(CALL_NS));
    assert_eq!(work.values.elapsed.inclusive_percent, Some(40.0));
    assert_eq!(work.values.elapsed.inclusive_percent_of_process, None);
    let sampled = list.rows.iter().find(|row| row.function == "work").unwrap();
    assert_eq!(sampled.values.elapsed.inclusive_ns, 18 * SECOND_NS);
    assert_eq!(work.agrees, Some(true), "{work:?}");
    let compared = work.compared.unwrap();
    assert_eq!(compared.span_ns, 19 * SECOND_NS);
    assert_eq!(compared.measured_low_ns, 19 * CALLS * CALL_NS);
    assert!(compared.sampled_low_ns < compared.measured_low_ns);
    assert!(compared.sampled_high_ns > compared.measured_low_ns);
    assert_eq!(list.completeness.probes_ns, Some(0));
    let one = Scope::Process(ProcessSelector {
        pid: PROCESS.pid,
        start_ticks: None,
    });
    let of_process = world.ask(&one, &TableQuery::default());
    let work = measured(&of_process, "work").unwrap();
    assert_eq!(work.values.elapsed.inclusive_percent_of_process, Some(40.0));
}

// Check that what was measured less, or more, than what was sampled of the same time is said to
// disagree, though it would fit the whole session.
#[test]
fn disagreement_is_told() {
    for calls_a_second in [CALLS / 2, 900] {
        let world = World::thirty(calls_a_second);
        let list = world.list(Window::Session);
        let work = measured(&list, "work").unwrap();
        assert_eq!(work.agrees, Some(false), "{work:?}");
        assert!(work.agrees_why.is_some());
    }
}

// Check that a window has the calls that ended in it, compared with what was sampled in it, and
// that one from before the function was measured has none.
#[test]
fn windows_have_their_own_calls() {
    let world = World::thirty(CALLS);
    let list = world.list(Window::Last {
        duration_ns: 5 * SECOND_NS,
    });
    let work = measured(&list, "work").unwrap();
    assert_eq!(work.values.calls, 5 * CALLS);
    assert_eq!(work.values.elapsed.inclusive_percent, Some(60.0));
    assert_eq!(work.values.elapsed.max_ns, None, "it may be an earlier one");
    let calls: u64 = work
        .values
        .elapsed
        .histogram
        .iter()
        .map(|of| of.calls)
        .sum();
    assert_eq!(calls, 5 * CALLS);
    assert_eq!(work.compared.unwrap().span_ns, 5 * SECOND_NS);
    assert_eq!(work.agrees, Some(true));
    let list = world.list(Window::Between {
        from: report::Moment::At {
            unix_ns: START_UNIX_NS + SECOND_NS,
        },
        to: Some(report::Moment::At {
            unix_ns: START_UNIX_NS + 6 * SECOND_NS,
        }),
    });
    assert!(measured(&list, "work").is_none());
}

// Check that a function without a sample has a row, that one under another name of the same code
// goes with the row that the code has, and that of two measurements of one process the later one
// counts.
#[test]
fn rows_are_found_by_their_code() {
    let mut world = World::thirty(CALLS);
    world.measure(21, "never sampled", "never sampled");
    world.count(21, PROCESS, calls(3, 10_000));
    world.measure(22, "work by another name", "work");
    world.count(22, PROCESS, calls(7, CALL_NS));
    world.pass();
    world.pass();
    let list = world.list(Window::Session);
    let rare = measured(&list, "never sampled").unwrap();
    assert_eq!(rare.values.calls, 3);
    let row = list.rows.iter().find(|row| row.function == "never sampled");
    let row = row.unwrap();
    assert_eq!(row.values.samples.inclusive, 0);
    assert_eq!(row.module, "/usr/bin/app");
    assert_eq!(rare.agrees, Some(true), "no sample of 30 us is as expected");
    let work = measured(&list, "work").unwrap();
    assert_eq!(work.values.calls, 7);
    assert!(
        list.rows
            .iter()
            .all(|row| row.function != "work by another name")
    );
}

// Check that a process that is not measured has nothing of it, and that tables sort by what was
// measured, rows without it last.
#[test]
fn others_have_none_and_tables_sort_by_it() {
    let mut world = World::thirty(CALLS);
    world.measure(21, "rare", "rare");
    world.count(21, PROCESS, calls(3, 2 * CALL_NS));
    world.pass();
    let sorted = |column: &str| {
        let query = TableQuery {
            sort: Some(column.to_owned()),
            ..TableQuery::default()
        };
        let rows = world.ask(&Scope::Session, &query).rows.into_iter();
        let names = rows.map(|row| row.function);
        names.take(2).collect::<Vec<_>>()
    };
    assert_eq!(sorted("measured.calls"), ["work", "rare"]);
    assert_eq!(sorted("measured.elapsed.mean_ns"), ["rare", "work"]);
    assert_eq!(sorted("measured.elapsed.inclusive_ns"), ["work", "rare"]);
    let snapshot = world.small.profile.snapshot();
    let nobody = snapshot.only(MonoNs::ZERO, |_| false);
    let query = TableQuery::default();
    let list = report::functions(&nobody, &Scope::Session, &query, &world.small.names).unwrap();
    assert!(list.rows.iter().all(|row| row.measured.is_none()));
}

// Check that application time is told as a share of what was measured alike, page faults included:
// a function that has all of a process's time has 100 % of it, however much of that were faults,
// and never more, also where its calls began before the window.
#[test]
fn no_share_is_more_than_all() {
    let mut world = World::new();
    world.other_found = Tick::Fault;
    world.measure(20, "main", "main");
    for second in 1..=10 {
        world.count(20, PROCESS, calls(second, SECOND_NS));
        world.pass();
    }
    let one = Scope::Process(ProcessSelector {
        pid: PROCESS.pid,
        start_ticks: None,
    });
    let main = |world: &World, window: Window| {
        let query = TableQuery {
            window,
            ..TableQuery::default()
        };
        let list = world.ask(&one, &query);
        let row = list.rows.iter().find(|row| row.function == "main").unwrap();
        let application = measured(&list, "main").unwrap().values.application.as_ref();
        let application = application.unwrap();
        let shares = [
            application.inclusive_percent,
            application.exclusive_percent,
            application.inclusive_percent_of_process,
            application.exclusive_percent_of_process,
        ];
        (row.values.application.inclusive_ns, shares)
    };
    let (sampled_ns, shares) = main(&world, Window::Session);
    assert_eq!(sampled_ns, 6 * SECOND_NS, "less the faults");
    assert_eq!(shares, [Some(100.0); 4]);
    world.count(20, PROCESS, calls(20, SECOND_NS));
    world.pass();
    let last = Window::Last {
        duration_ns: 5 * SECOND_NS,
    };
    assert_eq!(main(&world, last).1, [Some(100.0); 4], "14 s ended in 5 s");
    // Half of it is half of it.
    let mut world = World::new();
    world.other_found = Tick::Fault;
    world.measure(20, "main", "main");
    world.count(20, PROCESS, calls(5, SECOND_NS));
    (0..10).for_each(|_| world.pass());
    assert_eq!(main(&world, Window::Session).1, [Some(50.0); 4]);
}

// Check that from each function is subtracted what probes cost while it was measured, whatever they
// cost another, and in a row of two measurements from each its own.
#[test]
fn each_has_the_cost_of_its_own_time() {
    let mut world = World::thirty(CALLS);
    let mut cost = |number: u64, ns: f64| {
        let mut costs = ProbeCosts::default();
        costs[7].inside_ns = ns;
        world.costs.insert(number, costs);
    };
    cost(20, 0.0);
    cost(21, 1_000.0);
    cost(22, 2_000.0);
    let other = ProcessKey {
        pid: PROCESS.pid + 1,
        ..PROCESS
    };
    for number in [21, 22] {
        world.measure(number, "twice", "twice");
    }
    world.count(21, PROCESS, calls(100, 10_000));
    world.count(22, other, calls(10, 10_000));
    world.pass();
    let list = world.list(Window::Session);
    let work = &measured(&list, "work").unwrap().values;
    assert_eq!((work.probe_ns, work.elapsed.mean_ns), (0, Some(CALL_NS)));
    let twice = &measured(&list, "twice").unwrap().values;
    assert_eq!((twice.calls, twice.probe_ns), (110, 120_000));
    assert_eq!(twice.elapsed.inclusive_ns, 1_100_000 - 120_000);
    assert_eq!(list.completeness.probes_ns, Some(120_000));
}

// Check that of a function of Go elapsed time alone is told, in none of whose wholes it is, and
// that it is not compared with what was sampled of threads.
#[test]
fn of_goroutines_elapsed_time_alone_is_told() {
    let mut world = World::thirty(CALLS);
    world.measure(21, "main.wait", "main.wait");
    world.count(21, PROCESS, calls(3, 100 * SECOND_NS));
    world.pass();
    let list = world.list(Window::Session);
    let wait = measured(&list, "main.wait").unwrap();
    assert_eq!(wait.values.elapsed.mean_ns, Some(100 * SECOND_NS));
    assert_eq!(wait.values.elapsed.inclusive_percent, None);
    assert!(wait.values.application.is_none() && wait.values.classes.is_none());
    assert!(wait.values.exclusive_classes.is_none());
    assert_eq!((wait.agrees, wait.compared.is_none()), (None, true));
    assert!(wait.agrees_why.as_deref().unwrap().contains("Go's"));
}

// Check that a saved profile has what was measured, and answers the same.
#[test]
fn it_is_kept_in_saved_profiles() {
    let world = World::thirty(CALLS);
    let before = world.list(Window::Session);
    let snapshot = world.small.profile.snapshot();
    let frames = report::frames_needed(&snapshot, &Scope::Session).unwrap();
    let saved = Saved {
        sampling_period_ns: SECOND_NS / TICKS,
        status: "{}".to_owned(),
        targets: "{}".to_owned(),
        names: SavedNames::new(&frames, &world.small.names),
        snapshot: Arc::new(snapshot),
    };
    let mut file = Vec::new();
    saved.write(&mut file).unwrap();
    let read = Saved::read(&file).unwrap();
    let query = TableQuery {
        window: Window::Session,
        ..TableQuery::default()
    };
    let after = report::functions(&read.snapshot, &Scope::Session, &query, &read.names).unwrap();
    assert_eq!(
        serde_json::to_string(&after).unwrap(),
        serde_json::to_string(&before).unwrap()
    );
}
