//! What reads requests, for `crate::fuzzing`: whatever is asked, it is within bounds or refused
//! with a short answer.

use std::sync::Arc;

use axum::http::{HeaderMap, HeaderValue, Uri, header};
use serde::de::DeserializeOwned;

use super::accept::accepted;
use super::guard::{head_problem, meant_host};
use super::options::HttpOptions;
use crate::api::change::{Mark, SessionStart, checked_object};
use crate::api::endpoint::{Does, Sending};
use crate::api::endpoints::ENDPOINTS;
use crate::api::format::Format;
use crate::api::parameter::Declarations;
use crate::api::problem::{Problem, shown};
use crate::api::query::{
    DIFF, FUNCTIONS, INSTRUCTIONS, LINES, NEIGHBOURS, PPROF, PROCESS_DIFF, RECORDING, SCREEN,
    TABLE, TIMELINE, TREE, VIEW,
};
use crate::api::query_string::Params;
use crate::config::Config;
use crate::config::targets::{MAX_CGROUPS, MAX_COMMS, MAX_PIDS, Targets};
use crate::report::query::{ImageId, ProcessSelector, TableQuery, TreeQuery};

/// Longest text of an answer that refuses a request, as it is written for programmers.
const MAX_ANSWER_BYTES: usize = 256 << 10;

/// An address, then lines with what is accepted and which host is meant.
pub(crate) fn query(text: &[u8]) {
    let mut lines = text.split(|byte| *byte == b'\n');
    let mut line = || lines.next().unwrap_or_default();
    let (address, accept, host) = (line(), line(), line());
    let address = String::from_utf8_lossy(address);
    let (path, query) = address.split_once('?').unwrap_or(("", &address));
    let mut headers = HeaderMap::new();
    for (name, value) in [(header::ACCEPT, accept), (header::HOST, host)] {
        if let Ok(value) = HeaderValue::from_bytes(value) {
            headers.append(name, value);
        }
    }
    for endpoint in ENDPOINTS {
        let (Some(Does::Report(_, described)) | Some(Does::Now(_, described))) = endpoint.get
        else {
            continue;
        };
        let formats = described.formats;
        let accepted = |formats: &[Format]| accepted(&headers, formats);
        let read = endpoint.read_with_format(Some(query), formats, accepted, |_| ());
        match read {
            Ok(((), Sending::Once(format))) => assert!(formats.contains(&format)),
            Ok(((), Sending::Events { interval_ns })) => {
                assert!(formats.contains(&Format::Events));
                assert!((500_000_000..=3_600_000_000_000).contains(&interval_ns));
            }
            Err(problem) => check_problem(Some(&problem)),
        }
    }
    read(query, VIEW, |params| {
        let _view = params.view();
    });
    read(query, SCREEN, |params| {
        let _window = params.recent();
    });
    read(query, TABLE, |params| check_table(&params.table()));
    read(query, FUNCTIONS, |params| {
        check_table(&params.table());
        let _inlines: bool = params.inlines();
    });
    read(query, LINES, |params| check_table(&params.code().table));
    read(query, INSTRUCTIONS, |params| {
        check_table(&params.code().table)
    });
    read(query, NEIGHBOURS, |params| {
        check_table(&params.neighbours().table)
    });
    read(query, TIMELINE, |params| {
        let (table, spans) = params.timeline();
        check_table(&table);
        assert!(spans.is_none_or(|spans| (1..=600).contains(&spans)));
    });
    read(query, DIFF, |params| check_table(&params.diff().table));
    read(query, PROCESS_DIFF, |params| {
        check_table(&params.process_diff().table)
    });
    read(query, TREE, |params| check_tree(&params.tree()));
    read(query, PPROF, |params| check_tree(&params.pprof().tree));
    read(query, RECORDING, |params| {
        let recording = params.recording();
        assert!((1..=300).contains(&recording.seconds));
        check_tree(&recording.stacks.tree);
    });
    for part in path.split('/') {
        assert!(shown(part).len() <= 70);
        if let Ok(process) = part.parse::<ProcessSelector>() {
            assert_eq!(process.to_string().parse(), Ok(process));
        }
        if let Ok(image) = part.parse::<ImageId>() {
            assert_eq!(image.to_string().parse(), Ok(image));
        }
    }
    if let Ok(uri) = address.parse::<Uri>() {
        let options = HttpOptions::new(&Config::default(), Arc::default());
        check_problem(head_problem(&headers, &uri).as_ref());
        check_problem(meant_host(&headers, &uri, &options).err().as_ref());
    }
}

/// The body of a request that changes something.
pub(crate) fn body(body: &[u8]) {
    if let Some(targets) = object::<Targets>(body) {
        assert!(targets.all || targets.names_any());
        assert!(targets.pids.len() <= MAX_PIDS && targets.comms.len() <= MAX_COMMS);
        assert!(targets.cgroups.len() <= MAX_CGROUPS);
        let written = serde_json::to_vec(&targets).expect("targets are JSON");
        assert_eq!(object::<Targets>(&written), Some(targets));
    }
    drop(object::<SessionStart>(body));
    drop(object::<Mark>(body));
}

fn object<T: DeserializeOwned>(body: &[u8]) -> Option<T> {
    match checked_object(body, "{}") {
        Ok(object) => Some(object),
        Err(problem) => {
            check_problem(Some(&problem));
            None
        }
    }
}

fn read(query: &str, allowed: Declarations, take: impl FnOnce(&mut Params)) {
    let mut params = Params::parse(Some(query), allowed);
    take(&mut params);
    check_problem(params.finish().err().as_ref());
}

fn check_table(table: &TableQuery) {
    assert!(table.limit <= 1_000_000);
    assert!(
        table
            .q
            .as_ref()
            .is_none_or(|text| (1..=256).contains(&text.chars().count()))
    );
    assert!(table.fold.modules.len() <= 32 && table.fold.hide.len() <= 32);
}

fn check_tree(tree: &TreeQuery) {
    assert!(
        tree.depth
            .is_none_or(|levels| (1..=10_000).contains(&levels))
    );
    assert!((0.0..=100.0).contains(&tree.min_percent));
}

fn check_problem(problem: Option<&Problem>) {
    let text = format!("{problem:?}");
    assert!(text.len() <= MAX_ANSWER_BYTES, "{} bytes", text.len());
}
