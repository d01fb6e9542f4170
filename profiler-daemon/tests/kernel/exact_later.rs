//! Functions of files that are mapped while it is measured: in the command, in what it starts, and
//! beside files that are no program.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::exact_functions::{is_refused_here, row, run};
use crate::exact_survival::compile;
use crate::instrumentations::{allowed, ask, begin, is, row as measured_row, until};
use crate::reads::{number, text};

const LOADER: &str = include_str!("later/loader.c");
const LIBRARY: &str = include_str!("survival/library.c");
/// What the program calls the function of the library, and how it ends.
const CALLS: u64 = 20;
const EXIT_CODE: i32 = 4;

/// The program, and its arguments: a file that is no program, and a library of the same name.
struct Loader {
    folder: tempfile::TempDir,
    words: [String; 3],
}

impl Loader {
    /// `None`: there is no compiler (said).
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        fs::create_dir(path("junk")).expect("a folder");
        let (program, junk) = (path("loader"), path("junk/libloaded.so"));
        let library = path("libloaded.so");
        fs::write(&junk, vec![b'x'; 4096]).expect("a file");
        let made = [
            (("loader.c", LOADER), &["-O1"][..], &program),
            (
                ("library.c", LIBRARY),
                &["-O1", "-shared", "-fPIC"],
                &library,
            ),
        ]
        .map(|(source, options, to)| compile(folder.path(), "cc", source, options, to));
        let text = |path: PathBuf| path.to_str().expect("the path is text").to_owned();
        let words = [program, junk, library].map(text);
        made.iter()
            .all(|made| *made)
            .then_some(Self { folder, words })
    }

    fn words(&self) -> [&str; 3] {
        self.words.each_ref().map(String::as_str)
    }
}

// Check that a library that a program loads in the middle of its run is measured, in the command
// itself and in what it starts; that a file of its name that is no program is told, and ends
// nothing; and that a USDT point that may be in any file meets it in silence.
#[test]
fn what_is_loaded_later_is_measured() {
    let Some(loader) = Loader::new() else { return };
    let report = loader.folder.path().join("report.json");
    let own = [
        "--trace",
        "libloaded.so:t_loaded",
        "--trace-usdt",
        "nobody:has_this",
        "-o",
        report.to_str().expect("the path is text"),
        "--",
    ];
    let in_a_child = ["sh", "-c", "\"$0\" \"$@\"; exit $?"];
    for before in [&[][..], &in_a_child] {
        let output = run(&[&own[..], before, &loader.words()].concat());
        if is_refused_here(&output) {
            return;
        }
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(EXIT_CODE), "{said}");
        let report = fs::read(&report).expect("the report was written");
        let report: Value = serde_json::from_slice(&report).expect("JSON");
        let row = row(&report, "t_loaded");
        assert_eq!(number(row, "/calls"), CALLS, "{row:#}");
        let junk = format!(
            "libloaded.so:t_loaded of {} is not measured: it is no 64-bit program",
            loader.words[1]
        );
        assert_eq!(said.matches(&junk).count(), 1, "{said}");
        assert_eq!(said.matches("is not measured").count(), 1, "{said}");
        assert!(said.contains("--trace-usdt nobody:has_this"), "{said}");
    }
}

// Check that a file whose path is given and that is no program is refused before anything runs.
#[test]
fn a_file_that_was_named_and_is_no_program() {
    let Some(loader) = Loader::new() else { return };
    let pattern = format!("{}:t_loaded", loader.words[1]);
    let output = run(&[&["--trace", &pattern, "--"], &loader.words()[..]].concat());
    if is_refused_here(&output) {
        return;
    }
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    let why = format!("{}: it is no 64-bit program", loader.words[1]);
    assert!(said.contains(&why), "{said}");
}

// Check that over HTTP a process that has mapped a file of that name that is no program refuses
// nothing: the file is a refused row, and the library is measured once it is loaded; and that the
// same file is an error where its path is given.
#[test]
fn what_is_no_program_is_a_refused_row() {
    let Some(daemon) = allowed() else { return };
    let Some(loader) = Loader::new() else { return };
    let mut program = Command::new(&loader.words[0]);
    program.args(&loader.words[1..]).stdin(Stdio::null());
    let mut program = program.spawn().expect("it runs");
    let has_mapped = || {
        let maps = fs::read_to_string(format!("/proc/{}/maps", program.id()));
        maps.is_ok_and(|maps| maps.contains(&loader.words[1]))
    };
    while !has_mapped() {
        std::thread::yield_now();
    }
    let mut body = json!({
        "functions": [format!("{}:t_loaded", loader.words[1])], "pids": [program.id()],
        "budget_percent": 100,
    });
    let refused = ask(
        &daemon,
        "POST",
        crate::instrumentations::PATH,
        Some(&body),
        409,
    );
    assert!(
        text(&refused, "/detail").contains("no 64-bit program"),
        "{refused:#}"
    );
    body["functions"] = json!(["libloaded.so:t_loaded"]);
    let path = begin(&daemon, &body);
    let exit_code = program.wait().expect("it ends").code();
    assert_eq!(exit_code, Some(EXIT_CODE));
    let one = until(&daemon, &path, is("ended"));
    let functions = one["functions"].as_array().expect("rows");
    let refused = functions.iter().find(|one| one["state"] == "refused");
    let refused = refused.unwrap_or_else(|| panic!("{one:#}"));
    assert_eq!(refused["module"], loader.words[1].as_str(), "{one:#}");
    assert!(
        text(refused, "/why").contains("no 64-bit program"),
        "{one:#}"
    );
    let row = measured_row(&one, "t_loaded");
    assert_eq!(number(row, "/calls"), CALLS, "{one:#}");
}
