//! Profiles as files: what was written is read again to the last number, and whatever else a file
//! holds, it is refused or can be reported on.

use std::io::{Read, Write as _};
use std::sync::Arc;

use flate2::Compression;
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use profiler_daemon::export::pprof::{self, Content};
use profiler_daemon::export::saved::{Saved, SavedError, SavedNames};
use profiler_daemon::export::{csv, firefox, flamegraph, folded, speedscope, text};
use profiler_daemon::profile::{Profile, limits::Limits, snapshot::Snapshot};
use profiler_daemon::report::names::Names;
use profiler_daemon::report::{
    self, ComparedWindow, DiffQuery, DiffSide, FrameScope, NeighbourQuery, ProcessDiffQuery,
    ProcessSelector, Scope, SectionMode, StackQuery, StackValue, TableQuery, TreeQuery, ViewQuery,
    Window,
};
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;
use proptest::test_runner::{Config, RngAlgorithm, TestRng, TestRunner};

use crate::ledger::config;
use crate::machine::{ByOffset, Machine, PassPlan, SECOND_NS, START_NS, START_UNIX_NS, plans};

/// Bytes of the head: the mark, the format, and the version with its length.
const HEAD_BYTES: usize = 8 + 2 + 1 + env!("CARGO_PKG_VERSION").len();

fn saved(limits: Limits, plans: &[PassPlan]) -> Saved {
    let mut profile = Profile::new(limits, START_NS, START_UNIX_NS);
    let mut machine = Machine::new(&mut profile);
    for plan in plans {
        let pass = machine.pass(plan);
        profile.apply(pass);
    }
    let names = ByOffset::new(&mut profile);
    let snapshot = profile.snapshot();
    let frames = report::frames_needed(&snapshot, &Scope::Session).unwrap();
    Saved {
        sampling_period_ns: 10_101_010,
        status: "{\"version\":\"1\"}".to_owned(),
        targets: "{\"all\":true}".to_owned(),
        names: SavedNames::new(&frames, &names),
        snapshot: Arc::new(snapshot),
    }
}

pub(crate) fn file(saved: &Saved) -> Vec<u8> {
    let mut file = Vec::new();
    saved.write(&mut file).unwrap();
    file
}

/// Every report on a snapshot in every form, one after another.
pub(crate) fn everything(snapshot: &Snapshot, names: &dyn Names) -> Vec<u8> {
    let mut out = Vec::new();
    let processes = snapshot.processes().keys().map(|key| {
        Scope::Process(ProcessSelector {
            pid: key.pid,
            start_ticks: Some(key.start_ticks()),
        })
    });
    let scopes: Vec<Scope> = std::iter::once(Scope::Session).chain(processes).collect();
    let windows = [
        Window::Session,
        Window::Last { duration_ns: 1 },
        Window::Last {
            duration_ns: 25 * SECOND_NS,
        },
    ];
    for window in windows {
        for frames in [FrameScope::User, FrameScope::All] {
            for scope in &scopes {
                one_scope(snapshot, names, scope, window, frames, &mut out);
            }
        }
    }
    out
}

fn one_scope(
    snapshot: &Snapshot,
    names: &dyn Names,
    scope: &Scope,
    window: Window,
    frames: FrameScope,
    out: &mut Vec<u8>,
) {
    let view = ViewQuery { frames, window };
    let table = TableQuery {
        frames,
        window,
        ..TableQuery::default()
    };
    let tree = TreeQuery {
        frames,
        window,
        ..TreeQuery::default()
    };
    let mut add = |bytes: Result<Vec<u8>, String>| match bytes {
        Ok(bytes) => out.extend(bytes),
        Err(sentence) => out.extend(sentence.into_bytes()),
    };
    macro_rules! answer {
        ($report:expr) => {{
            let report = $report.map_err(|error| error.to_string());
            add(report.map(|report| {
                let mut bytes = serde_json::to_vec(&report).unwrap();
                text::write(&report, &mut bytes).unwrap();
                bytes
            }));
        }};
    }
    macro_rules! table {
        ($report:expr) => {{
            let report = $report;
            if let Ok(report) = &report {
                let mut bytes = Vec::new();
                csv::write(report, &mut bytes).unwrap();
                add(Ok(bytes));
            }
            answer!(report);
        }};
    }
    match scope {
        Scope::Session => {
            answer!(report::session(snapshot, &view, names));
            table!(report::processes(snapshot, &table, names));
            let changed = ProcessDiffQuery {
                base: ComparedWindow {
                    window,
                    name: "base".to_owned(),
                },
                table: table.clone(),
                ..ProcessDiffQuery::default()
            };
            table!(report::process_diff(snapshot, &changed, names));
        }
        Scope::Image(_) | Scope::Named(_) => {
            answer!(report::process(snapshot, scope, &view, names));
        }
        Scope::Process(selector) => {
            answer!(report::process(
                snapshot,
                &Scope::Process(*selector),
                &view,
                names
            ));
            let diff = DiffQuery {
                base: DiffSide::Process(*selector),
                table: table.clone(),
                ..DiffQuery::default()
            };
            table!(report::diff(snapshot, &diff, names));
        }
    }
    table!(report::functions(snapshot, scope, &table, names));
    table!(report::modules(snapshot, scope, &table, names));
    table!(report::threads(snapshot, scope, &table, names));
    table!(report::os_events(snapshot, scope, &view, names));
    answer!(report::calltree(snapshot, scope, &tree, names));
    let neighbours = NeighbourQuery {
        function: "f0".to_owned(),
        table: table.clone(),
        ..NeighbourQuery::default()
    };
    table!(report::callers(snapshot, scope, &neighbours, names));
    table!(report::callees(snapshot, scope, &neighbours, names));
    let value = StackValue::Elapsed;
    let query = StackQuery {
        tree: TreeQuery {
            value: Some(value),
            ..tree
        },
        places: true,
        sections: SectionMode::Process,
    };
    let stacks = report::stacks(snapshot, scope, &query, names);
    add(stacks.map_err(|error| error.to_string()).map(|stacks| {
        let mut bytes = Vec::new();
        folded::write(&stacks, value, &mut bytes).unwrap();
        speedscope::write(&stacks, value, &mut bytes).unwrap();
        firefox::write(&stacks, value, &mut bytes).unwrap();
        flamegraph::write(&stacks, value, &mut bytes).unwrap();
        pprof::write(&stacks, Content::All, 1, &mut bytes).unwrap();
        bytes
    }));
}

fn check(saved: &Saved) {
    let first = file(saved);
    let again = Saved::read(&first).unwrap();
    assert_eq!(file(&again), first, "what was read is what was written");
    assert_eq!(again.status, saved.status);
    assert_eq!(again.targets, saved.targets);
    assert_eq!(
        everything(&again.snapshot, &again.names),
        everything(&saved.snapshot, &saved.names)
    );
}

/// A profile with everything in it that random machines have.
fn rich() -> Saved {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let mut plan = Vec::new();
    while plan.len() < 30 {
        plan.extend(plans().new_tree(&mut runner).unwrap().current());
    }
    let limits = Limits {
        exited_processes: 2,
        exited_threads: 2,
        ..Limits::default()
    };
    saved(limits, &plan)
}

// Check that what fuzzing begins with is a profile of this format, whole and unpacked.
// UPDATE_GENERATED=1 writes it.
#[test]
fn the_corpus_is_current() {
    let rng = TestRng::deterministic_rng(RngAlgorithm::ChaCha);
    let mut runner = TestRunner::new_with_rng(Config::default(), rng);
    let plan = plans().new_tree(&mut runner).unwrap().current();
    let packed = file(&saved(Limits::default(), &plan[..plan.len().min(3)]));
    let mut unpacked = Vec::new();
    GzDecoder::new(&packed[HEAD_BYTES..])
        .read_to_end(&mut unpacked)
        .unwrap();
    let corpus = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus");
    for (name, bytes) in [
        ("saved_profile/few_passes", packed),
        ("saved_content/few_passes", unpacked),
    ] {
        let file = corpus.join(name);
        if std::env::var_os("UPDATE_GENERATED").is_some() {
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(&file, &bytes).unwrap();
        }
        let kept = std::fs::read(&file).unwrap_or_default();
        assert!(kept == bytes, "{name}: set UPDATE_GENERATED=1 to write it");
        assert!(bytes.len() < 32 << 10, "{name} has {} bytes", bytes.len());
    }
}

/// Numbers that look random and are the same each time.
fn numbers() -> impl FnMut(usize) -> usize {
    let mut state = 1u64;
    move |below| {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as usize % below
    }
}

proptest! {
    #![proptest_config(config(24))]

    // Check that any profile is read as it was written, and that every report on it has the same
    // bytes.
    #[test]
    fn read_as_written(plans in plans()) {
        check(&saved(Limits::default(), &plans));
    }

    // Check the same where room is short: folded stacks, dropped processes, threads without rows.
    #[test]
    fn read_as_written_where_room_is_short(plans in plans()) {
        let limits = Limits {
            exited_processes: 1,
            exited_threads: 1,
            tree_bytes: 20 * profiler_daemon::profile::budget::NODE_BYTES,
            recent_past_ns: 2_000_000_000,
            ..Limits::default()
        };
        check(&saved(limits, &plans));
    }
}

// Check that a file of which any byte was changed, or the end is missing, is refused, or is what it
// was before.
#[test]
fn damaged_files() {
    let whole = file(&rich());
    let as_written = |damaged: &[u8]| match Saved::read(damaged) {
        Ok(saved) => file(&saved) == whole,
        Err(error) => !error.to_string().is_empty(),
    };
    let mut number = numbers();
    for at in (0..whole.len()).filter(|at| *at < 64 || at % 37 == 0) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1 << number(8);
        assert!(as_written(&damaged), "byte {at}");
    }
    for length in (0..whole.len()).filter(|length| *length < 64 || length % 37 == 0) {
        assert!(
            Saved::read(&whole[..length]).is_err(),
            "{length} bytes are not all of it"
        );
    }
    let mut longer = whole.clone();
    longer.push(0);
    assert!(matches!(Saved::read(&longer), Err(SavedError::Damaged(_))));
}

// Check that hostile contents under a right checksum are refused, or make reports without a panic,
// an overflow or an index out of bounds.
#[test]
fn hostile_contents() {
    let whole = file(&rich());
    let mut contents = Vec::new();
    GzDecoder::new(&whole[HEAD_BYTES..])
        .read_to_end(&mut contents)
        .unwrap();
    let mut number = numbers();
    let (mut refused, mut reported) = (0, 0);
    for _ in 0..400 {
        let mut hostile = contents.clone();
        for _ in 0..=number(3) {
            let at = number(hostile.len());
            match number(5) {
                0 => hostile[at] = number(256) as u8,
                1 => hostile[at] ^= 1 << number(8),
                2 => hostile.insert(at, number(256) as u8),
                3 => {
                    hostile.remove(at);
                }
                // The longest number there is.
                _ => hostile
                    .splice(at..at, [[0xff; 9].as_slice(), &[1]].concat())
                    .for_each(drop),
            }
        }
        let mut packed = whole[..HEAD_BYTES].to_vec();
        let mut gzip = GzEncoder::new(&mut packed, Compression::fast());
        gzip.write_all(&hostile).unwrap();
        gzip.finish().unwrap();
        match Saved::read(&packed) {
            Ok(saved) => {
                reported += 1;
                everything(&saved.snapshot, &saved.names);
            }
            Err(error) => {
                refused += 1;
                assert!(!error.to_string().is_empty());
            }
        }
    }
    // Else nothing was tested.
    assert!(refused > 40 && reported > 40, "{refused} {reported}");
}

// Check that another format is told with the version that reads it, without what would reach a
// terminal, and that other files are told apart from damaged ones.
#[test]
fn other_files() {
    let mut other = file(&rich());
    other[8] = 200;
    other[11] = 0x1b;
    let sentence = Saved::read(&other).unwrap_err().to_string();
    assert!(sentence.contains("format 200"), "{sentence}");
    assert!(!sentence.contains('\u{1b}'), "{sentence:?}");
    for bytes in [&b""[..], b"{}", b"\x1f\x8b\x08", b"\x89profil"] {
        assert!(matches!(Saved::read(bytes), Err(SavedError::Foreign)));
    }
}

// Check that a few bytes cannot ask for memory without bound: a file that unpacks to endless zeros,
// and one whose lists say that they are longer than the file.
#[test]
fn memory_is_bounded() {
    let whole = file(&rich());
    let pack = |contents: &mut dyn Read| {
        let mut packed = whole[..HEAD_BYTES].to_vec();
        let mut gzip = GzEncoder::new(&mut packed, Compression::fast());
        std::io::copy(contents, &mut gzip).unwrap();
        gzip.finish().unwrap();
        packed
    };
    let zeros = pack(&mut std::io::repeat(0).take(300 << 20));
    assert!(matches!(Saved::read(&zeros), Err(SavedError::TooLarge(_))));
    let mut longest = [[0xff; 9].as_slice(), &[1]].concat();
    longest.extend([1; 100]);
    assert!(Saved::read(&pack(&mut longest.as_slice())).is_err());
}
