//! StackTree in the formats of other tools, byte for byte, and that their sums are those of the
//! reports.

use profiler_daemon::{
    export::{firefox, flamegraph, folded, speedscope},
    profile::{input::ThreadState, limits::Limits},
    report::{self, FrameScope, Scope, SectionMode, StackQuery, StackTree, StackValue, TreeQuery},
};
use serde_json::Value;

use crate::{
    golden::{OF_PROCESS, compare, service},
    small::{self, PROCESS, Small, THREAD},
};

type Writer = fn(&StackTree, StackValue, &mut Vec<u8>) -> std::io::Result<()>;

fn text(write: Writer, stacks: &StackTree, value: StackValue) -> String {
    let mut out = Vec::new();
    write(stacks, value, &mut out).unwrap();
    String::from_utf8(out).unwrap()
}

fn of_process(frames: FrameScope) -> StackQuery {
    StackQuery {
        tree: TreeQuery {
            frames,
            ..TreeQuery::default()
        },
        ..StackQuery::default()
    }
}

/// A process with names that mean something to every format.
fn hostile() -> StackTree {
    let mut small = Small::new(Limits::default());
    let names = [
        "</text><script>alert(1)</script>",
        "a;b \"c\" & 7",
        "\u{1b}[31m\n9",
        "=1+1",
        "größe λ",
    ];
    let mut pass = small.pass(10);
    let mut info = small::info(PROCESS);
    info.comm = profiler_daemon::profile::input::CommName::new("<&\u{1b};\">");
    pass.processes.push(info);
    let classes = [2_000, 0, 300, 40, 0];
    pass.threads.push(small::thread(
        PROCESS,
        THREAD,
        ThreadState::Running,
        classes,
    ));
    pass.stacks.push(small.delta(&names, &[], 5, classes));
    small.profile.apply(pass);
    let snapshot = small.profile.snapshot();
    let query = StackQuery {
        sections: SectionMode::Process,
        ..of_process(FrameScope::All)
    };
    report::stacks(&snapshot, &Scope::Session, &query, &small.names).unwrap()
}

// Check every format of a small process and of hostile names, byte for byte, twice.
#[test]
fn every_format() {
    let (snapshot, names) = service();
    let query = of_process(FrameScope::All);
    let service = report::stacks(&snapshot, &OF_PROCESS, &query, &names).unwrap();
    let writers: [(&str, Writer); 4] = [
        ("folded", folded::write),
        ("svg", flamegraph::write),
        ("speedscope.json", speedscope::write),
        ("firefox.json", firefox::write),
    ];
    for (name, stacks) in [("stacks", &service), ("stacks-hostile", &hostile())] {
        for (extension, write) in writers {
            let found = text(write, stacks, StackValue::Elapsed);
            assert_eq!(found, text(write, stacks, StackValue::Elapsed));
            compare(&format!("{name}.{extension}"), &found);
        }
    }
}

// Check that the values of each format sum to what the call tree has, whichever value it is.
#[test]
fn sums() {
    let (snapshot, names) = service();
    let query = of_process(FrameScope::User);
    let stacks = report::stacks(&snapshot, &OF_PROCESS, &query, &names).unwrap();
    let root = report::calltree(&snapshot, &OF_PROCESS, &query.tree, &names)
        .unwrap()
        .root;
    for value in StackValue::ALL {
        let lines = text(folded::write, &stacks, value);
        let amount = |line: &str| line.rsplit(' ').next().unwrap().parse::<u64>().unwrap();
        let total: u64 = lines.lines().map(amount).sum();
        match value {
            StackValue::Samples => assert_eq!(total, root.values.samples.inclusive),
            StackValue::Elapsed => assert_eq!(total, root.values.elapsed.inclusive_ns),
            StackValue::Application => assert_eq!(total, root.values.application.inclusive_ns),
            StackValue::Running => {
                assert_eq!(total, root.values.elapsed.inclusive_ns - 4_400_000_000);
            }
            StackValue::OffProcessor => assert_eq!(total, 4_400_000_000),
            StackValue::Blocked => assert_eq!(total, root.values.classes.blocked_ns),
            StackValue::Runnable => assert_eq!(total, root.values.classes.runnable_ns),
            StackValue::Syscall => assert_eq!(total, root.values.classes.syscall_ns),
        }
        let json = |write: Writer| -> Value {
            serde_json::from_str(&text(write, &stacks, value)).unwrap()
        };
        let scope = json(speedscope::write);
        assert_eq!(scope["profiles"][0]["endValue"], total);
        let fox = json(firefox::write);
        let weights = fox["threads"][0]["samples"]["weight"].as_array().unwrap();
        let sum: f64 = weights.iter().map(|weight| weight.as_f64().unwrap()).sum();
        let unit = if value == StackValue::Samples {
            1.0
        } else {
            1e6
        };
        assert!(
            (sum * unit - total as f64).abs() < 1e-3 * total as f64,
            "{sum} {total}"
        );
    }
}

// Check that a call tree that is too small for all is cut by the value that it was asked for, and
// has most of that first.
#[test]
fn cut_by_value() {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(10);
    pass.processes.push(small::info(PROCESS));
    let classes = [9_000_000, 0, 1_000_000, 0, 0];
    pass.threads.push(small::thread(
        PROCESS,
        THREAD,
        ThreadState::Running,
        classes,
    ));
    let [busy, waits] = [[9_000_000, 0, 900, 0, 0], [0, 0, 999_100, 0, 0]];
    pass.stacks
        .push(small.delta(&["main", "busy"], &[], 9, busy));
    pass.stacks
        .push(small.delta(&["main", "waits"], &[], 0, waits));
    small.profile.apply(pass);
    let snapshot = small.profile.snapshot();
    let shown = |value, min_percent| -> Vec<String> {
        let query = TreeQuery {
            value,
            min_percent,
            ..TreeQuery::default()
        };
        let tree = report::calltree(&snapshot, &OF_PROCESS, &query, &small.names).unwrap();
        let main = &tree.root.children[0];
        main.children.iter().map(|n| n.function.clone()).collect()
    };
    let blocked = Some(StackValue::Blocked);
    assert_eq!(shown(None, 0.0), ["busy", "waits"]);
    assert_eq!(shown(blocked, 0.0), ["waits", "busy"]);
    assert_eq!(shown(Some(StackValue::Samples), 20.0), ["busy", "(cut)"]);
    assert_eq!(shown(blocked, 20.0), ["waits", "(cut)"]);
}

// Check that no name leaves its place: no markup, no other stack, no control character.
#[test]
fn hostile_names() {
    let stacks = hostile();
    let svg = text(flamegraph::write, &stacks, StackValue::Elapsed);
    assert!(!svg.contains("<script>alert"), "{svg}");
    assert!(!svg.contains('\u{1b}'));
    let lines = text(folded::write, &stacks, StackValue::Elapsed);
    assert_eq!(lines.lines().count(), 1, "{lines}");
    assert_eq!(lines.matches(';').count(), 5, "{lines}");
}

// Check that a profile without stacks is an answer in every format.
#[test]
fn nothing() {
    let mut small = Small::new(Limits::default());
    let mut pass = small.pass(1);
    pass.processes.push(small::info(PROCESS));
    small.profile.apply(pass);
    let snapshot = small.profile.snapshot();
    let query = of_process(FrameScope::All);
    let stacks = report::stacks(&snapshot, &OF_PROCESS, &query, &small.names).unwrap();
    let of = |write: Writer| text(write, &stacks, StackValue::Samples);
    assert_eq!(of(folded::write), "");
    assert!(of(flamegraph::write).contains("[no samples]"));
    for write in [(speedscope::write) as Writer, firefox::write] {
        let json: Value = serde_json::from_str(&of(write)).unwrap();
        assert!(json.is_object());
    }
}

// Check that what small nodes had is kept under one name, and that the depth is bounded.
#[test]
fn cut() {
    let (snapshot, names) = service();
    let mut query = of_process(FrameScope::User);
    let whole = report::stacks(&snapshot, &OF_PROCESS, &query, &names).unwrap();
    query.tree.depth = Some(2);
    let cut = report::stacks(&snapshot, &OF_PROCESS, &query, &names).unwrap();
    assert!(cut.cut_nodes > 0 && cut.nodes.len() < whole.nodes.len());
    let total = |stacks: &StackTree| stacks.nodes.iter().map(|n| n.own.elapsed_ns()).sum::<u64>();
    assert_eq!(total(&cut), total(&whole));
    let lines = text(folded::write, &cut, StackValue::Samples);
    assert!(lines.contains("_start;main;(cut) "), "{lines}");
}
