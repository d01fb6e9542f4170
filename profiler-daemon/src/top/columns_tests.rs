//! Which columns there are on screens of several widths, and that what is drawn in them is whole.

use super::{ScreenRow, ScreenView, ShownColumn, TopSort, columns, taken};
use crate::args::{TopArgs, TopWindow};
use crate::top::answer::ScreenAnswer;
use crate::top::draw::as_text;
use crate::top::state::State;

const SORTS: [TopSort; 6] = [
    TopSort::Samples,
    TopSort::Elapsed,
    TopSort::Application,
    TopSort::Syscall,
    TopSort::Runnable,
    TopSort::Blocked,
];

fn views() -> [ScreenView; 3] {
    let process = || "processes/7.1".to_owned();
    [
        ScreenView::Processes,
        ScreenView::Functions(process()),
        ScreenView::Threads(process()),
    ]
}

/// Rows whose numbers are `seconds` long, one of them beside a short one.
fn rows(view: &ScreenView, seconds: &str) -> Vec<ScreenRow> {
    let time = |digit: u32| format!("{seconds}{digit}.549 ms");
    let (pid, samples, percent) = ("4194304", "123456789", "100.0");
    let times = (1..6).map(time);
    let cells: Vec<String> = match view {
        ScreenView::Processes => [pid, samples, percent]
            .map(str::to_owned)
            .into_iter()
            .chain(times)
            .chain(["16384", "running", "kworker/u256:99", "postgresql.service"].map(str::to_owned))
            .collect(),
        ScreenView::Functions(_) => [samples, percent]
            .map(str::to_owned)
            .into_iter()
            .chain(times.take(3))
            .chain(["std::vector::push_back(int)", "libstdc++.so.6.0.30"].map(str::to_owned))
            .collect(),
        ScreenView::Threads(_) => [pid, samples, percent]
            .map(str::to_owned)
            .into_iter()
            .chain(times)
            .chain(["blocked", "kworker/u256:99"].map(str::to_owned))
            .collect(),
    };
    let mut short = cells.clone();
    for cell in &mut short {
        if cell.ends_with("ms") {
            *cell = "7 ns".to_owned();
        }
    }
    let row = |key: &str, cells| ScreenRow {
        key: key.to_owned(),
        cells,
    };
    vec![row("a", short), row("b", cells)]
}

fn drawn(view: &ScreenView, sort: TopSort, rows: Vec<ScreenRow>, width: u16) -> String {
    let args = TopArgs {
        connect: None,
        window: TopWindow::Session,
        sort,
        every: 1,
        once: false,
        config: None,
    };
    let mut state = State::new(&args, String::new());
    state.view = view.clone();
    state.take(Ok(ScreenAnswer {
        view: view.clone(),
        as_of: String::new(),
        covers: String::new(),
        title: String::new(),
        replay: None,
        classes_ns: [1; 5],
        lacks: String::new(),
        cost: String::new(),
        total_rows: 2,
        rows,
    }));
    as_text(&mut state, width, 30)
}

/// What a line has in a column.
fn part(line: &str, before: &[ShownColumn], width: u16) -> String {
    let begin = before.iter().map(|column| usize::from(column.width) + 1);
    let characters = line.chars().skip(begin.sum());
    let part: String = characters.take(width.into()).collect();
    part.trim().to_owned()
}

fn titles(shown: &[ShownColumn]) -> Vec<&str> {
    shown.iter().map(|column| column.title.as_str()).collect()
}

// Check that of any view, sorted by anything, every number that is drawn is whole at the usual
// widths, in rows and titles, that the name has a useful width, and that what rows are sorted by is
// there.
#[test]
fn numbers_are_whole_and_names_are_there() {
    for (view, sort, seconds) in views().iter().flat_map(|view| {
        let sorts = SORTS.iter().map(move |sort| (view, *sort));
        sorts.flat_map(|(view, sort)| ["78", "123456789"].map(|seconds| (view, sort, seconds)))
    }) {
        for width in [60, 80, 100, 120] {
            let rows = rows(view, seconds);
            let shown = columns(view, sort, &rows, width);
            let text = drawn(view, sort, rows.clone(), width);
            let lines: Vec<&str> = text.lines().skip(5).collect();
            let about = format!("{view:?} by {sort:?} at {width}:\n{text}");
            for (at, column) in shown.iter().enumerate() {
                let before = &shown[..at];
                assert_eq!(
                    part(lines[0], before, column.width),
                    column.title,
                    "{about}"
                );
                for (row, line) in rows.iter().zip(&lines[1..]) {
                    let drawn = part(line, before, column.width);
                    let whole = &row.cells[column.place];
                    if column.is_number {
                        assert_eq!(&drawn, whole, "{about}");
                    } else {
                        assert!(whole.starts_with(&drawn) && drawn.len() >= 7, "{about}");
                    }
                }
            }
            let of_name = |column: &&ShownColumn| matches!(&*column.title, "NAME" | "FUNCTION");
            let name = shown.iter().find(of_name).expect(&about);
            assert!(name.width >= 20, "{about}");
            assert!(
                titles(&shown).iter().any(|title| title.ends_with('▾')),
                "{about}"
            );
        }
    }
}

// Check that nothing is left out where all fits, and that what is left out on narrower screens is
// what matters least, whatever the width, and comes back on wider ones.
#[test]
fn what_is_left_out() {
    let [processes, functions, threads] = views();
    let at = |view: &ScreenView, sort, width| {
        let shown = columns(view, sort, &rows(view, "78"), width);
        titles(&shown).join(" ")
    };
    let all = "PID SAMPLES▾ % ELAPSED APPLICATION BLOCKED THREADS STATE NAME UNIT";
    assert_eq!(at(&processes, TopSort::Samples, 120), all);
    assert_eq!(
        at(&processes, TopSort::Syscall, 80),
        "PID % ELAPSED APPLICATION SYSCALL▾ NAME"
    );
    assert_eq!(
        at(&processes, TopSort::Samples, 60),
        "PID SAMPLES▾ % ELAPSED NAME"
    );
    let all = "SAMPLES % ELAPSED▾ WITH CALLED APPLICATION FUNCTION MODULE";
    // Functions have no time by class.
    assert_eq!(at(&functions, TopSort::Runnable, 100), all);
    assert_eq!(
        at(&functions, TopSort::Samples, 80),
        "SAMPLES▾ % ELAPSED WITH CALLED FUNCTION MODULE"
    );
    assert_eq!(
        at(&threads, TopSort::Samples, 100),
        "TID SAMPLES▾ % ELAPSED APPLICATION BLOCKED STATE NAME"
    );
    for (view, sort) in views()
        .iter()
        .flat_map(|view| SORTS.map(|sort| (view, sort)))
    {
        let rows = rows(view, "78");
        let mut narrower = 0;
        for width in 24..200 {
            let shown = columns(view, sort, &rows, width);
            assert!(
                shown.len() >= narrower && shown.len() >= 2,
                "{view:?} at {width}"
            );
            narrower = shown.len();
        }
    }
}

// Check that on a screen of any width columns take no more than there is, and that a number that
// would be cut is not there.
#[test]
fn any_width() {
    for view in &views() {
        let rows = rows(view, "123456789");
        for width in 0..=40 {
            let shown = columns(view, TopSort::Elapsed, &rows, width);
            let sum: u16 = shown.iter().map(|column| column.width + 1).sum();
            assert!(sum <= width + 1, "{shown:?} at {width}");
            for column in shown.iter().filter(|column| column.is_number) {
                assert!(column.width >= 17, "{column:?} at {width}");
            }
        }
        let shown = columns(view, TopSort::Elapsed, &[], 4);
        assert_eq!(shown.len(), 1, "{shown:?}");
    }
    assert_eq!(taken(&[]), 0);
}
