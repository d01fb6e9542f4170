//! A saved profile in place of the made-up machine: the program that serves it, and that it answers
//! as the machine did.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use axum::body::{Body, to_bytes};
use axum::http::{Request, header};
use profiler_daemon::api::ENDPOINTS;
use profiler_daemon::api::Source;
use profiler_daemon::backends::Replay;
use profiler_daemon::export::saved::SavedNames;
use profiler_daemon::http::app;
use profiler_daemon::report::{Scope, frames_needed};
use tower::ServiceExt as _;

use crate::backend::Machine;
use crate::world::{BUSY, DROPPED, HOSTILE};

/// What a server answers to a `GET`: status, type and body.
async fn get(backend: Arc<dyn Source>, target: &str) -> (u16, String, Vec<u8>) {
    let request = Request::get(target)
        .header(header::HOST, "localhost")
        .body(Body::empty())
        .unwrap();
    let response = app(backend, crate::options())
        .oneshot(request)
        .await
        .unwrap();
    let status = response.status().as_u16();
    let kind = response.headers().get(header::CONTENT_TYPE);
    let kind = kind.map_or("", |kind| kind.to_str().unwrap()).to_owned();
    let body = to_bytes(response.into_body(), 64 << 20).await.unwrap();
    (status, kind, body.to_vec())
}

/// The file of the machine as it is.
pub(crate) async fn saved(machine: &Machine) -> Vec<u8> {
    let snapshot = machine.snapshot().await.unwrap();
    let names = machine.names(Arc::clone(&snapshot), Vec::new()).await;
    let frames = frames_needed(&snapshot, &Scope::Session).unwrap();
    let names = SavedNames::new(&frames, &*names);
    let period_ns = crate::options().sampling_period_ns;
    let mut file = Vec::new();
    let saved = profiler_daemon::api::saved(machine, snapshot, names, period_ns).unwrap();
    saved.write(&mut file).unwrap();
    file
}

/// `profiler-daemon --replay`, ended when dropped.
pub(crate) struct Program {
    child: Child,
    url: String,
}

impl Program {
    pub(crate) fn start(file: &Path) -> Self {
        let mut child = Command::new(env!("CARGO_BIN_EXE_profiler-daemon"))
            .args(["--listen=127.0.0.1:0", "--replay"])
            .arg(file)
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        // It says where it answers.
        let mut line = String::new();
        let mut said = BufReader::new(child.stderr.take().unwrap());
        said.read_line(&mut line).unwrap();
        let url = line.split("; ").last().unwrap_or_default().trim();
        assert!(url.starts_with("http://127.0.0.1:"), "{line}");
        Self {
            child,
            url: url.trim_end_matches('/').to_owned(),
        }
    }

    pub(crate) fn url(&self) -> &str {
        &self.url
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Questions for every report: of each kind of process, over each kind of window, in each format.
fn questions() -> Vec<String> {
    let mut questions = Vec::new();
    for endpoint in ENDPOINTS
        .iter()
        .filter(|one| one.path.starts_with("/api/v1/"))
    {
        for pid in [BUSY, HOSTILE, DROPPED, 999_999] {
            let path = endpoint.path.replace("{pid}", &pid.to_string());
            let takes = |name: &str| endpoint.takes(name);
            let mut all = vec![Vec::new()];
            let mut choose = |name: &str, values: &[&str]| {
                if takes(name) {
                    let with = |rest: &Vec<String>| {
                        let rest = rest.clone();
                        values.iter().map(move |value| {
                            let mut rest = rest.clone();
                            rest.push(format!("{name}={value}"));
                            rest
                        })
                    };
                    all = all.iter().flat_map(with).collect();
                }
            };
            choose("frames", &["user", "all"]);
            choose("window", &["session", "1s", "15s"]);
            choose("function", &["handlers::search"]);
            choose("base", &[&BUSY.to_string()]);
            choose("other", &[&HOSTILE.to_string()]);
            choose("value", &["samples", "off_processor"]);
            let formats: &[&str] = match endpoint.handler {
                "calltree" => &["folded", "svg", "speedscope", "firefox"],
                _ => &["json", "text", "csv"],
            };
            choose("format", formats);
            questions.extend(
                all.iter()
                    .map(|query| format!("{path}?{}", query.join("&"))),
            );
        }
    }
    questions.push("/api/v1/calltree?format=json&frames=all".to_owned());
    questions.push("/api/v1/calltree?format=text".to_owned());
    questions.sort();
    questions.dedup();
    questions
}

#[tokio::test]
async fn same_answers() {
    // Check that every report in every format has the same bytes from a replay as from what was
    // saved, refusals included, and that only the status says which it is.
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("world.profile");
    let machine = Arc::new(Machine::new(false));
    std::fs::write(&file, saved(&machine).await).unwrap();
    let replay = Arc::new(Replay::open(&file).unwrap());
    let questions = questions();
    assert!(questions.len() > 400, "{}", questions.len());
    let (mut good, mut not_saved) = (0, 0);
    for question in &questions {
        let was = get(Arc::<Machine>::clone(&machine), question).await;
        let is = get(Arc::<Replay>::clone(&replay), question).await;
        good += u32::from(was.0 == 200);
        if question.starts_with("/api/v1/instrumentations") {
            // Those of a daemon that runs are not saved, and that is what is said of them.
            let expected = if was.0 == 200 { 409 } else { was.0 };
            assert_eq!(is.0, expected, "{question}");
            continue;
        }
        if question.contains("/lines")
            || question.contains("/instructions")
            || question.contains("inlines=true")
        {
            // Debug information is not saved, and that is what is said of it.
            assert_eq!(was.0, is.0, "{question}");
            if is.0 == 200 && question.contains("/lines?") && question.contains("json") {
                let answer: serde_json::Value = serde_json::from_slice(&is.2).unwrap();
                let unknown = answer["completeness"]["lines_unknown"].as_object().unwrap();
                let known = ["no_program", "not_saved"];
                assert!(
                    unknown.keys().all(|why| known.contains(&why.as_str())),
                    "{question}: {unknown:?}"
                );
                not_saved += u32::from(unknown.contains_key("not_saved"));
            }
            continue;
        }
        if was.0 == 200 && question.starts_with("/api/v1/status") {
            let text = String::from_utf8(is.2).unwrap();
            assert!(
                text.contains("world.profile") && text.contains("sched_switch"),
                "{text}"
            );
        } else {
            let bodies =
                [&was.2, &is.2].map(|body| String::from_utf8_lossy(&body[..body.len().min(900)]));
            assert!(was == is, "{question}: {bodies:?}");
        }
    }
    assert!(not_saved > 4, "{not_saved} answers say so");
    assert!(good > 250, "{good} of {} were answered", questions.len());
}

#[tokio::test]
async fn what_a_replay_lacks() {
    // Check that what takes a kernel is refused in a sentence that names the file, and that a
    // replay is ready and says so.
    let folder = tempfile::TempDir::new().unwrap();
    let file = folder.path().join("\u{1b}[31mworld.profile");
    std::fs::write(&file, saved(&Machine::new(false)).await).unwrap();
    let replay = Arc::new(Replay::open(&file).unwrap());
    for target in [
        "/metrics",
        "/debug/pprof/profile?seconds=1",
        "/debug/pprof/wall?seconds=1",
    ] {
        let (status, kind, body) = get(Arc::<Replay>::clone(&replay), target).await;
        let text = String::from_utf8(body).unwrap();
        assert_eq!(
            (status, kind.as_str()),
            (409, "application/problem+json"),
            "{text}"
        );
        assert!(text.contains("world.profile, saved at 20"), "{text}");
    }
    for (target, expected) in [("/readyz", 200), ("/healthz", 200), ("/", 200)] {
        let (status, _, body) = get(Arc::<Replay>::clone(&replay), target).await;
        assert_eq!(status, expected);
        assert!(!body.contains(&0x1b));
        if target == "/readyz" {
            assert!(body.starts_with(b"replay of "));
        }
    }
}

#[test]
fn refused_files() {
    // Check that a file that is missing, no profile or a folder is refused in a sentence that says
    // which it is.
    let folder = tempfile::TempDir::new().unwrap();
    let text = folder.path().join("a.profile");
    std::fs::write(&text, "no profile").unwrap();
    for (file, part) in [
        (folder.path().to_owned(), "no plain file"),
        (folder.path().join("none"), "No such file"),
        (text, "no recorded profile"),
    ] {
        let output = Command::new(env!("CARGO_BIN_EXE_profiler-daemon"))
            .arg("--replay")
            .arg(&file)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && said.contains(part), "{said}");
    }
}
