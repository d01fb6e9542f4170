//! What reads recorded profiles, for `crate::fuzzing`: what is taken is written again as it was,
//! and can be reported on.

use super::{Saved, head};
use crate::export::pprof::{self, Content};
use crate::export::{csv, flamegraph, folded, overview, text};
use crate::profile::snapshot::Snapshot;
use crate::report::{
    self, OverviewQuery, ProcessSelector, Scope, SectionMode, StackQuery, StackValue, TableQuery,
    TreeQuery, ViewQuery, Window,
};

const MAX_BYTES: u64 = 16 << 20;
const MAX_MEMORY_BYTES: u64 = 64 << 20;
/// Processes that are reported on one by one.
const PROCESSES: usize = 3;

/// A whole file.
pub(crate) fn file(file: &[u8]) {
    if let Ok(saved) = Saved::read_within(file, MAX_BYTES, MAX_MEMORY_BYTES) {
        check(&saved);
    }
}

/// What is in a file when it is unpacked.
pub(crate) fn content(bytes: &[u8]) {
    let Ok(saved) = Saved::decode(bytes, MAX_MEMORY_BYTES) else {
        return;
    };
    if saved.check().is_ok() {
        check(&saved);
    }
}

/// A profile of nothing, as a file and unpacked, for a corpus.
#[cfg(test)]
pub(crate) fn nothing() -> (Vec<u8>, Vec<u8>) {
    use super::SavedNames;
    use crate::profile::{Profile, frames::FrameId, limits::Limits};
    use crate::report::names::Names;
    use crate::symbols::names::{FunctionName, Unnamed};
    use crate::units::{MonoNs, UnixNs};

    struct NoNames;
    impl Names for NoNames {
        fn function(&self, _: FrameId) -> &FunctionName {
            unreachable!("no frame is named")
        }
        fn unnamed(&self, _: FrameId) -> Option<Unnamed> {
            None
        }
    }
    let saved = Saved {
        sampling_period_ns: 10_101_010,
        status: "{}".to_owned(),
        targets: "{}".to_owned(),
        snapshot: Profile::new(
            Limits::default(),
            MonoNs::new(1),
            UnixNs::new(1_700_000_000_000_000_000),
        )
        .snapshot()
        .into(),
        names: SavedNames::new(&[], &NoNames),
    };
    let mut file = Vec::new();
    saved.write(&mut file).expect("there is room in memory");
    let unpacked = postcard::to_stdvec(&saved).expect("it is small");
    (file, unpacked)
}

fn check(saved: &Saved) {
    let mut file = Vec::new();
    saved.write(&mut file).expect("there is room in memory");
    assert!(head(&file).is_ok());
    let again = Saved::read(&file).expect("what was written can be read");
    let mut second = Vec::new();
    again.write(&mut second).expect("there is room in memory");
    assert!(second == file, "it is not what was written");
    let keys = saved.snapshot.processes().keys();
    let processes = keys.take(PROCESSES).map(|key| {
        Scope::Process(ProcessSelector {
            pid: key.pid,
            start_ticks: Some(key.start_ticks()),
        })
    });
    for scope in std::iter::once(Scope::Session).chain(processes) {
        for window in [
            Window::Session,
            Window::Last {
                duration_ns: 5_000_000_000,
            },
        ] {
            report_on(saved, &scope, window);
        }
    }
}

/// Makes reports; that there is none for a window is an answer.
fn report_on(saved: &Saved, scope: &Scope, window: Window) {
    let snapshot: &Snapshot = &saved.snapshot;
    let names = &saved.names;
    let view = ViewQuery {
        window,
        ..ViewQuery::default()
    };
    let table = TableQuery {
        window,
        ..TableQuery::default()
    };
    let tree = TreeQuery {
        window,
        value: Some(StackValue::Elapsed),
        ..TreeQuery::default()
    };
    macro_rules! shown {
        ($report:expr) => {
            if let Ok(report) = $report {
                let mut out = serde_json::to_vec(&report).expect("a report is JSON");
                text::write(&report, &mut out).expect("there is room in memory");
            }
        };
    }
    let screen = OverviewQuery {
        window,
        ..OverviewQuery::default()
    };
    if let Ok(found) = report::overview(snapshot, &screen, names) {
        overview::write(&found, &mut Vec::new()).expect("there is room in memory");
    }
    shown!(report::session(snapshot, &view, names));
    shown!(report::processes(snapshot, &table, names));
    shown!(report::threads(snapshot, scope, &table, names));
    shown!(report::modules(snapshot, scope, &table, names));
    shown!(report::os_events(snapshot, scope, &view, names));
    shown!(report::calltree(snapshot, scope, &tree, names));
    if let Ok(functions) = report::functions(snapshot, scope, &table, names) {
        csv::write(&functions, &mut Vec::new()).expect("there is room in memory");
        shown!(Ok::<_, ()>(functions));
    }
    let stacks = StackQuery {
        tree,
        places: true,
        sections: SectionMode::Process,
    };
    if let Ok(stacks) = report::stacks(snapshot, scope, &stacks, names) {
        let value = StackValue::Elapsed;
        folded::write(&stacks, value, &mut Vec::new()).expect("there is room in memory");
        flamegraph::write(&stacks, value, &mut Vec::new()).expect("there is room in memory");
        pprof::write(&stacks, Content::All, 1, &mut Vec::new()).expect("there is room in memory");
    }
}
