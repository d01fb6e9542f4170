//! Names that change, and names that are meant to break whoever prints them.

use crate::daemon;
use crate::reads::{self, function, number, rows, text};
use crate::surface::promtool_accepts;
use crate::workload::{self, Workload};

#[test]
fn a_new_name_is_shown() {
    // Check that a process that renames itself is shown under its last name, with all of its time.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let finished = workload::run("comm --seconds 1");
    let process = reads::ended(daemon, &finished);
    assert_eq!(process["comm"], finished.truth["last_comm"]);
    let functions = reads::table(daemon, &finished, "functions");
    function(&functions, "comm_work");
}

#[test]
fn hostile_names_break_nothing() {
    // Check that newlines, quotes, escapes, markup and bad UTF-8 in names leave JSON, text and
    // metrics well-formed.
    let Some(daemon) = daemon::shared() else {
        return;
    };
    let directory = tempfile::tempdir().expect("a temporary directory");
    let workload = Workload::start(&format!(
        "hostile --seconds 1 --hold --path {}",
        directory.path().display()
    ));
    let held = workload.truth();
    let list = reads::until(daemon, "/processes?limit=0", held.unix_ns, |_| true);
    let pid = u64::from(workload.pid());
    let row = rows(&list)
        .iter()
        .find(|row| row["pid"] == pid)
        .expect("the process is listed");
    assert!(
        text(row, "/comm").contains('b'),
        "something of the name is shown: {row}"
    );
    for table in [
        "processes",
        &format!("processes/{pid}/functions"),
        &format!("processes/{pid}/modules"),
    ] {
        // First: there may be more by the time of the text.
        let total_rows = number(&daemon.get(&format!("/{table}?limit=0")), "/total_rows");
        let answer = daemon.try_get(&format!("/api/v1/{table}?limit=0&format=text"));
        assert_eq!(answer.status, 200, "{table} as text: {}", answer.text());
        assert!(
            !answer.body.contains(&0x1b),
            "an escape byte reaches the terminal: {table} as text"
        );
        assert!(
            std::str::from_utf8(&answer.body).is_ok(),
            "{table} as text is not UTF-8"
        );
        let csv = daemon.try_get(&format!("/api/v1/{table}?limit=0&format=csv"));
        assert!(
            !csv.body.contains(&0x1b),
            "an escape byte reaches the terminal: {table} as csv"
        );
        assert!(
            answer.text().lines().count() as u64 >= total_rows,
            "a row of {table} is missing in the text: {}",
            answer.text()
        );
    }
    promtool_accepts(&daemon.try_get("/metrics").text());
    assert!(daemon.get(&format!("/processes/{pid}"))["exe"].is_string());
}
