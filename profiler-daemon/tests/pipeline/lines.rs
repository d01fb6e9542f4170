//! Lines, instructions and inlined functions against the definition, computed stack by stack.

use std::collections::{BTreeMap, BTreeSet};

use profiler_common::ClassNs;
use profiler_daemon::{
    processes::mappings::Place,
    profile::{
        frames::FrameId,
        input::{StackDelta, ThreadState},
        limits::Limits,
        snapshot::Snapshot,
        values::{add_classes, sum},
    },
    report::{
        self, CodeQuery, Fold, ProcessSelector, ReportError, Scope, TableQuery, Window,
        completeness::Completeness, values::RowValues,
    },
    symbols::lines::{Code, LineTable, NoLine, SourceLine, Step},
    units::{ModuleAddress, ModuleOffset},
};
use proptest::prelude::*;

use crate::machine::SECOND_NS;
use crate::small::{self, ByName, PROCESS, Small, THREAD, TICK_NS, ran_and_waited};

const SCOPE: Scope = Scope::Process(ProcessSelector {
    pid: 42,
    start_ticks: None,
});

/// What a place is: the function whose symbol it is in, and what debug information says.
type Known = (&'static str, Result<&'static [Said], NoLine>);
/// Function, file and line.
type Said = (Option<&'static str>, Option<(&'static str, u32)>);

/// Two places on one line, another line, a function inlined twice into two others and into itself,
/// a step without a name and one without a line, and places about which nothing is known, for two
/// reasons.
const PLACES: [Known; 11] = [
    ("main", Ok(&[(Some("main"), Some(("main.c", 10)))])),
    ("main", Ok(&[(Some("main"), Some(("main.c", 10)))])),
    ("main", Ok(&[(Some("main"), Some(("main.c", 12)))])),
    (
        "main",
        Ok(&[
            (Some("main"), Some(("main.c", 14))),
            (Some("twice"), Some(("twice.h", 3))),
        ]),
    ),
    (
        "other",
        Ok(&[
            (Some("other"), Some(("other.c", 7))),
            (Some("twice"), Some(("twice.h", 3))),
            (Some("twice"), Some(("twice.h", 3))),
        ]),
    ),
    ("twice", Ok(&[(Some("twice"), Some(("twice.h", 3)))])),
    (
        "other",
        Ok(&[
            (Some("other"), Some(("other.c", 8))),
            (None, Some(("twice.h", 4))),
            (Some("last"), None),
        ]),
    ),
    ("other", Err(NoLine::NoLineThere)),
    ("other", Err(NoLine::Pending)),
    ("far", Err(NoLine::NoDebugInformation)),
    ("other", Ok(&[(Some("other"), None)])),
];

/// Places from the outermost on, samples, nanoseconds of waiting.
type Stack = (Vec<usize>, u64, u64);

fn stacks() -> impl Strategy<Value = Vec<Stack>> {
    let stack = (
        prop::collection::vec(0..PLACES.len(), 1..8),
        0..5u64,
        1..1000u64,
    );
    prop::collection::vec(stack, 1..40)
}

struct World {
    snapshot: Snapshot,
    names: ByName,
    lines: LineTable,
    frames: Vec<FrameId>,
}

fn code(index: usize) -> Code {
    let steps = PLACES[index].1.map(|said| {
        let step = |(function, source): &Said| Step {
            function: function.map(Into::into),
            source: source.map(|(file, line)| SourceLine {
                file: file.into(),
                line: Some(line),
            }),
        };
        said.iter().map(step).collect::<Vec<_>>().into()
    });
    Code {
        address: Some(ModuleAddress::new(0x5000 + index as u64)),
        steps,
    }
}

/// A profile of these stacks, each received in the second of its number.
fn world(passes: &[&[Stack]]) -> World {
    let mut small = Small::new(Limits {
        segment_ns: SECOND_NS,
        ..Limits::default()
    });
    let places: Vec<(FrameId, Place)> = PLACES
        .iter()
        .enumerate()
        .map(|(index, (function, _))| small.place(function, index as u64))
        .collect();
    let mut classes = ClassNs::default();
    for (second, stacks) in (1..).zip(passes) {
        let mut pass = small.pass(second);
        for (path, samples, ns) in *stacks {
            let time = ran_and_waited(*samples, *ns);
            pass.stacks.push(StackDelta {
                user: path.iter().map(|index| places[*index].0).collect(),
                ..small.delta(&[], &[], *samples, time)
            });
            add_classes(&mut classes, &time);
        }
        pass.processes.push(small::info(PROCESS));
        pass.threads.push(small::thread(
            PROCESS,
            THREAD,
            ThreadState::Running,
            classes,
        ));
        small.profile.apply(pass);
    }
    let lines = places
        .iter()
        .enumerate()
        .map(|(index, (_, place))| (*place, code(index)));
    World {
        snapshot: small.profile.snapshot(),
        names: small.names,
        lines: lines.collect(),
        frames: places.into_iter().map(|(frame, _)| frame).collect(),
    }
}

/// What a row is told by: function, whether inlined, file and line, and why there is none.
type Key = (String, bool, Option<(String, u32)>, Option<&'static str>);
/// Inclusive and exclusive samples, inclusive elapsed and exclusive application time.
type Sums = BTreeMap<Key, [u64; 4]>;

/// The rows that a place stands for, outermost first, by the words of docs/http-api.md.
fn keys(index: usize, inlines: bool, by_line: bool) -> Vec<Key> {
    let (symbol, known) = PLACES[index];
    let source =
        |said: Option<(&'static str, u32)>| said.map(|(file, line)| (file.to_owned(), line));
    let lacks = |said: Option<(&'static str, u32)>| match said {
        None if by_line => Some("no_line_there"),
        _ => None,
    };
    let key = |name: &str, inlined, said| {
        let shown = if by_line { source(said) } else { None };
        (name.to_owned(), inlined, shown, lacks(said))
    };
    let said = match known {
        Err(why) => {
            return vec![(symbol.to_owned(), false, None, by_line.then(|| why.name()))];
        }
        Ok(said) => said,
    };
    if !inlines {
        return vec![key(symbol, false, said[said.len() - 1].1)];
    }
    let mut keys = vec![key(symbol, false, said[0].1)];
    for (function, source) in &said[1..] {
        keys.push(key(function.unwrap_or("[inlined]"), true, *source));
    }
    keys
}

fn expected(stacks: &[Stack], of: impl Fn(usize) -> Vec<Key>) -> Sums {
    let mut sums = Sums::new();
    for (path, samples, ns) in stacks {
        let path: Vec<Key> = path.iter().flat_map(|index| of(*index)).collect();
        let distinct: BTreeSet<&Key> = path.iter().collect();
        for key in distinct {
            let sum = sums.entry(key.clone()).or_default();
            sum[0] += samples;
            sum[2] += elapsed(*samples, *ns);
        }
        let own = sums.get_mut(&path[path.len() - 1]).unwrap();
        own[1] += samples;
        own[3] += samples * TICK_NS;
    }
    sums
}

fn elapsed(samples: u64, wait_ns: u64) -> u64 {
    sum(&ran_and_waited(samples, wait_ns))
}

fn values(values: &RowValues) -> [u64; 4] {
    [
        values.samples.inclusive,
        values.samples.exclusive,
        values.elapsed.inclusive_ns,
        values.application.exclusive_ns,
    ]
}

fn lines_of(world: &World, query: &CodeQuery) -> (Sums, Completeness) {
    let World {
        snapshot,
        names,
        lines,
        ..
    } = world;
    let list = report::lines(snapshot, &SCOPE, query, names, lines).unwrap();
    let total = list.rows.len();
    let rows = list.rows.iter().map(|row| {
        let source = row.file.clone().zip(row.line);
        let key = (row.function.clone(), row.inlined, source, row.line_unknown);
        (key, values(&row.values))
    });
    let sums: Sums = rows.collect();
    assert_eq!(sums.len(), total, "no two rows are the same");
    (sums, list.completeness)
}

fn query(inlines: bool) -> CodeQuery {
    CodeQuery {
        inlines,
        ..CodeQuery::default()
    }
}

proptest! {
    // Check that each line has what the definition says, with and without inlined functions, that
    // the rows sum to the total, and that the shares without a line sum to the whole share.
    #[test]
    fn lines(stacks in stacks()) {
        let world = world(&[&stacks]);
        let application_ns: u64 = stacks.iter().map(|stack| stack.1 * TICK_NS).sum();
        for inlines in [false, true] {
            let (found, completeness) = lines_of(&world, &query(inlines));
            prop_assert_eq!(&found, &expected(&stacks, |index| keys(index, inlines, true)));
            prop_assert_eq!(found.values().map(|sums| sums[3]).sum::<u64>(), application_ns);
            let shares = completeness.lines_unknown.unwrap();
            let (mut all, mut by_reason) = (0, BTreeMap::<&str, u64>::new());
            for (path, samples, ns) in &stacks {
                let ns = elapsed(*samples, *ns);
                for index in path {
                    all += ns;
                    if let Some(why) = keys(*index, false, true)[0].3 {
                        *by_reason.entry(why).or_default() += ns;
                    }
                }
            }
            prop_assert_eq!(shares.keys().copied().collect::<Vec<_>>(), by_reason.keys().copied().collect::<Vec<_>>());
            for (why, ns) in by_reason {
                prop_assert!((shares[why] - 100.0 * ns as f64 / all as f64).abs() < 1e-9);
            }
            let sum: f64 = shares.values().sum();
            prop_assert!((completeness.lines_unknown_percent.unwrap() - sum).abs() < 1e-9);
        }
    }

    // Check that functions with the inlined ones have what the definition says, and the same
    // without them as ever.
    #[test]
    fn functions(stacks in stacks()) {
        let World { snapshot, names, lines, .. } = world(&[&stacks]);
        let all = TableQuery::default();
        let with = report::functions_with_inlines(&snapshot, &SCOPE, &all, &names, &lines).unwrap();
        let without = report::functions(&snapshot, &SCOPE, &all, &names).unwrap();
        for (list, inlines) in [(with, true), (without, false)] {
            let rows = list.rows.iter().map(|row| {
                ((row.function.clone(), row.inlined, None, None), values(&row.values))
            });
            let found: Sums = rows.collect();
            let by_symbol = |index: usize| if inlines {
                keys(index, true, false)
            } else {
                vec![(PLACES[index].0.to_owned(), false, None, None)]
            };
            prop_assert_eq!(found, expected(&stacks, by_symbol));
            prop_assert_eq!(list.completeness.lines_unknown_percent.is_some(), inlines);
        }
    }

    // Check that each place has a row of its own as an instruction, with the line of its innermost
    // step.
    #[test]
    fn instructions(stacks in stacks()) {
        let World { snapshot, names, lines, .. } = world(&[&stacks]);
        let list = report::instructions(&snapshot, &SCOPE, &query(false), &names, &lines).unwrap();
        let found: BTreeMap<String, [u64; 4]> = list
            .rows
            .iter()
            .map(|row| (row.address.clone().unwrap(), values(&row.values)))
            .collect();
        let by_place = |index: usize| vec![(format!("{:#x}", 0x5000 + index), false, None, None)];
        let wanted = expected(&stacks, by_place);
        let wanted: BTreeMap<String, [u64; 4]> =
            wanted.into_iter().map(|(key, sums)| (key.0, sums)).collect();
        prop_assert_eq!(found, wanted);
        for row in &list.rows {
            let index = usize::from_str_radix(&row.address.as_deref().unwrap()[2..], 16).unwrap() - 0x5000;
            let (name, _, source, why) = keys(index, false, true).pop().unwrap();
            prop_assert_eq!(&row.function, &name);
            prop_assert_eq!(row.file.clone().zip(row.line), source);
            prop_assert_eq!(row.line_unknown, why);
        }
    }

    // Check that the places to be looked up are those on stacks, each once, those with most samples
    // first.
    #[test]
    fn needed(stacks in stacks()) {
        let world = world(&[&stacks]);
        let frames = report::lines_needed(&world.snapshot, &SCOPE, Window::Session, None).unwrap();
        let index = |frame: &FrameId| world.frames.iter().position(|known| known == frame).unwrap();
        let found: Vec<usize> = frames.iter().map(index).collect();
        let on_stacks: BTreeSet<usize> = stacks.iter().flat_map(|stack| stack.0.clone()).collect();
        prop_assert_eq!(found.iter().copied().collect::<BTreeSet<_>>(), on_stacks);
        prop_assert_eq!(found.len(), frames.len());
        let samples = |index: &usize| -> u64 {
            let on = |stack: &Stack| stack.0.iter().filter(|at| *at == index).count() as u64 * stack.1;
            stacks.iter().map(on).sum()
        };
        prop_assert!(found.is_sorted_by_key(|index| std::cmp::Reverse(samples(index))));
    }
}

// Check that a window counts only what passed in it, and asks only for the places of it.
#[test]
fn window() {
    let first = [(vec![0, 9], 1, SECOND_NS / 2)];
    let second = [(vec![2], 3, SECOND_NS / 4)];
    let world = world(&[&first, &second]);
    let window = Window::Last {
        duration_ns: SECOND_NS,
    };
    let frames = report::lines_needed(&world.snapshot, &SCOPE, window, None).unwrap();
    assert_eq!(frames, [world.frames[2]]);
    let mut query = query(false);
    query.table.window = window;
    let (found, completeness) = lines_of(&world, &query);
    assert_eq!(found, expected(&second, |index| keys(index, false, true)));
    assert_eq!(completeness.lines_unknown_percent, Some(0.0));
}

// Check that a function, a module and a text choose rows without changing them, that hidden modules
// go to their callers, and that names that are not there are refused with those that are.
#[test]
fn filters() {
    let stacks = [(vec![0, 3], 1, 100), (vec![0, 4], 2, 50), (vec![9], 1, 7)];
    let world = world(&[&stacks]);
    let all = expected(&stacks, |index| keys(index, true, true));
    let only = |change: &dyn Fn(&mut CodeQuery)| {
        let mut query = query(true);
        change(&mut query);
        lines_of(&world, &query).0
    };
    let of = |name: &str| -> Sums {
        let all = all.clone().into_iter();
        all.filter(|(key, _)| key.0 == name).collect()
    };
    assert_eq!(
        only(&|query| query.function = Some("twice".into())),
        of("twice")
    );
    assert_eq!(only(&|query| query.module = Some("app".into())), all);
    assert_eq!(
        only(&|query| query.table.q = Some("TWICE.H:3".into())),
        of("twice")
    );
    assert_eq!(only(&|query| query.table.q = Some("far".into())), of("far"));
    let hidden = only(&|query| {
        query.table.fold = Fold {
            hide: vec!["app".into()],
            ..Fold::default()
        };
    });
    assert_eq!(hidden.len(), 1);
    assert_eq!(
        hidden.values().next().unwrap()[2..],
        [157 + 4 * TICK_NS, 4 * TICK_NS]
    );
    let refused = |change: &dyn Fn(&mut CodeQuery)| {
        let mut query = query(true);
        change(&mut query);
        let World {
            snapshot,
            names,
            lines,
            ..
        } = &world;
        report::lines(snapshot, &SCOPE, &query, names, lines).unwrap_err()
    };
    assert_eq!(
        refused(&|query| query.function = Some("twic".into())),
        ReportError::UnknownFunction {
            given: "twic".into(),
            similar: vec!["twice".into()]
        }
    );
    assert_eq!(
        refused(&|query| query.module = Some("ap".into())),
        ReportError::UnknownModule {
            parameter: "module",
            given: "ap".into()
        }
    );
    let wanted = Some("libnothere");
    assert!(report::lines_needed(&world.snapshot, &SCOPE, Window::Session, wanted).is_err());
    let none = report::lines_needed(&world.snapshot, &SCOPE, Window::Session, Some("lib.so.1"));
    assert_eq!(none.unwrap(), []);
}

// Check that instructions whose files are gone are still told apart, by their places in them.
#[test]
fn places_of_files_that_are_gone() {
    let world = world(&[&[(vec![0], 1, 10), (vec![1], 2, 20), (vec![9, 2], 3, 30)]]);
    let gone = |frame: &FrameId| {
        let frame = world.snapshot.frame(*frame);
        let place = Place {
            module: frame.module,
            offset: frame.offset,
        };
        let code = Code {
            address: None,
            steps: Err(NoLine::NoFile),
        };
        (place, code)
    };
    let lines: LineTable = world.frames.iter().map(gone).collect();
    let mut query = query(false);
    query.table.sort = Some("file_offset".to_owned());
    query.table.order = report::Order::Asc;
    let list = report::instructions(&world.snapshot, &SCOPE, &query, &world.names, &lines).unwrap();
    let found: Vec<Option<String>> = list
        .rows
        .iter()
        .map(|row| row.file_offset.clone())
        .collect();
    let mut offsets: Vec<ModuleOffset> = [0, 1, 2, 9]
        .map(|index: usize| world.snapshot.frame(world.frames[index]).offset)
        .to_vec();
    offsets.sort_unstable();
    let expected: Vec<Option<String>> = offsets
        .iter()
        .map(|offset| Some(format!("{offset:#x}")))
        .collect();
    assert_eq!(found, expected);
    assert!(list.rows.iter().all(|row| row.address.is_none()));
}
