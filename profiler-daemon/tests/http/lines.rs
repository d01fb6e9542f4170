//! Lines, instructions and inlined functions over HTTP.

use std::sync::Arc;
use std::time::Duration;

use profiler_daemon::http::app;
use serde_json::Value;

use super::backend::{FUNCTIONS, Fake, RUNNING};
use super::{ask, get, hasty, request};

async fn rows(question: &str) -> Vec<Value> {
    let answer = get(&format!("/api/v1/processes/{RUNNING}/{question}")).await;
    assert_eq!(answer.status, 200, "{}", answer.text());
    answer.json()["rows"].as_array().unwrap().clone()
}

#[tokio::test]
async fn lines() {
    // Check that lines have their rows, those without one a reason, and that the answer says what
    // share that is.
    let all = rows("lines?limit=0").await;
    assert_eq!(all.len(), FUNCTIONS, "a line of each function");
    let one = all.iter().find(|row| row["function"] == "function_0x1004");
    let one = one.unwrap();
    assert_eq!(
        (&one["file"], &one["line"]),
        (&"/src/example.c".into(), &1003.into())
    );
    assert_eq!(
        (&one["inlined"], &one["line_unknown"]),
        (&false.into(), &Value::Null)
    );
    let none = all.iter().find(|row| row["function"] == "function_0x1007");
    let none = none.unwrap();
    assert_eq!((&none["file"], &none["line"]), (&Value::Null, &Value::Null));
    assert_eq!(none["line_unknown"], "no_debug_information");
    let answer = get("/api/v1/lines").await.json();
    let lacks = &answer["completeness"];
    assert_eq!(
        lacks["lines_unknown_percent"],
        lacks["lines_unknown"]["no_debug_information"]
    );
    assert!(lacks["lines_unknown_percent"].as_f64().unwrap() > 0.0);
    let plain = get("/api/v1/functions").await.json();
    assert!(plain["completeness"].get("lines_unknown_percent").is_none());
    let text = get("/api/v1/lines?format=text&inlines=true").await;
    for part in [
        " example.c:1003",
        "in_line (inlined)",
        "(no_debug_information)",
        "# without a line",
    ] {
        assert!(
            text.text().contains(part),
            "{part} is missing in {}",
            text.text()
        );
    }
}

#[tokio::test]
async fn inlined() {
    // Check that inlines=true makes rows of inlined functions, in lines and in functions, and false
    // none.
    let of = |rows: Vec<Value>| {
        rows.into_iter()
            .filter(|row| row["inlined"] == true)
            .count()
    };
    assert_eq!(of(rows("lines?limit=0&inlines=true").await), 20);
    assert_eq!(of(rows("lines?limit=0&inlines=false").await), 0);
    assert_eq!(of(rows("functions?limit=0&inlines=true").await), 1);
    assert_eq!(of(rows("functions?limit=0").await), 0);
    let chosen = rows("lines?inlines=true&function=in_line&q=1005").await;
    assert_eq!((chosen.len(), &chosen[0]["line"]), (1, &1005.into()));
}

#[tokio::test]
async fn instructions() {
    // Check that each place is a row with its address, and that they are sorted by it as by a
    // number.
    let all = rows("instructions?limit=0&sort=address&order=asc").await;
    let addresses: Vec<&str> = all
        .iter()
        .filter_map(|row| row["address"].as_str())
        .collect();
    let expected: Vec<String> = (0..FUNCTIONS)
        .map(|at| format!("{:#x}", 0x1000 + at))
        .collect();
    assert_eq!(addresses, expected);
    let one = rows("instructions?function=function_0x1004&module=%5Bjit%5D").await;
    assert_eq!((one.len(), &one[0]["line"]), (1, &1003.into()));
    let csv = get("/api/v1/instructions?format=csv&limit=1").await;
    assert!(csv.text().starts_with(
        "address,file_offset,function,offset,module,build_id,file,line,kind,line_unknown,"
    ));
}

#[tokio::test]
async fn what_is_not_there_is_refused() {
    // Check that unknown functions, modules, columns and values are refused and say what there is.
    for (question, part) in [
        ("lines?function=function_0x100", "function_0x1000"),
        ("lines?module=nothing", "/api/v1/modules"),
        ("instructions?sort=lines", "address"),
        ("lines?inlines=yes", "true or false"),
        ("instructions?inlines=true", "not known here"),
    ] {
        let answer = get(&format!("/api/v1/{question}")).await;
        let problem = answer.problem(400);
        assert!(problem.to_string().contains(part), "{question}: {problem}");
    }
}

#[tokio::test]
async fn who_waits_for_the_turn_of_lines_is_counted() {
    // Check that no more reports with lines wait for their turn than may wait for any, that one
    // more is told so at once, and that reports without lines go on meanwhile.
    let delay = Duration::from_secs(20);
    let mut options = hasty();
    options.max_connections = 8;
    options.max_line_reports = 1;
    options.max_reports = 4;
    options.request_timeout = delay;
    let fake = Fake {
        delay,
        ..Fake::default()
    };
    let router = app(Arc::new(fake), options);
    let asked = |target: &str| {
        let request = request("GET", target);
        tokio::spawn(ask(router.clone(), request))
    };
    // One is being made, two wait: a quarter of the connections.
    let mut waiting: Vec<_> = (0..3).map(|_| asked("/api/v1/lines")).collect();
    let one_more = async {
        loop {
            let last = asked("/api/v1/lines");
            tokio::time::sleep(Duration::from_millis(50)).await;
            if last.is_finished() {
                return last.await.unwrap();
            }
            waiting.push(last);
        }
    };
    let one_more = tokio::time::timeout(delay / 2, one_more).await;
    let problem = one_more.expect("one is refused").problem(503);
    assert_eq!(problem["detail"], "too many reports are waited for already");
    assert_eq!(waiting.len(), 3);
    let plain = asked("/api/v1/functions");
    tokio::time::sleep(Duration::from_millis(200)).await;
    assert!(!plain.is_finished(), "it is being made");
    waiting.push(plain);
    waiting.iter().for_each(tokio::task::JoinHandle::abort);
}
