//! Functions of files that several overlay mounts share, as containers of one image do.

use std::fs;
use std::path::{Path, PathBuf};

use rustix::mount::{MountFlags, UnmountFlags, mount, unmount};
use serde_json::Value;

use crate::daemon::{privileged, say};
use crate::exact_functions::{is_refused_here, run};
use crate::exact_survival::compile;
use crate::reads::{number, text};

const SOURCE: &str = "__attribute__((noipa)) int t_shared(int x) { return x; }\n\
    int main(int count, char **words) { (void)words; int sum = 0;\n\
    for (int n = 0; n < 100; n++) sum += t_shared(count); return sum != 100 * count; }\n";

/// An overlay mount that is taken away again.
pub(crate) struct Overlay(PathBuf);

impl Overlay {
    /// Of a folder; `None` where none can be mounted.
    pub(crate) fn new(below: &Path, at: PathBuf) -> Option<Self> {
        let upper = [at.with_extension("upper"), at.with_extension("work")];
        for folder in upper.iter().chain([&at]) {
            fs::create_dir(folder).expect("a folder");
        }
        let [upper, work] = upper.map(|folder| folder.display().to_string());
        let options = format!(
            "lowerdir={},upperdir={upper},workdir={work}",
            below.display()
        );
        let options = std::ffi::CString::new(options).expect("no zero");
        match mount(
            "overlay",
            &at,
            "overlay",
            MountFlags::empty(),
            Some(&*options),
        ) {
            Ok(()) => Some(Self(at)),
            Err(error) => {
                say(&format!("skipped: no overlay can be mounted here: {error}"));
                None
            }
        }
    }
}

impl Drop for Overlay {
    fn drop(&mut self) {
        if let Err(error) = unmount(&self.0, UnmountFlags::DETACH) {
            say(&format!("{} stays mounted: {error}", self.0.display()));
        }
    }
}

// Check that each call is counted once, and measured from entry to exit, of a program that runs
// from two overlay mounts of one folder, and from the folder itself.
#[test]
fn calls_of_one_image_are_counted_once() {
    if !privileged() {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let below = folder.path().join("below");
    fs::create_dir(&below).expect("a folder");
    let options = ["-O1"];
    if !compile(
        &below,
        "cc",
        ("shared.c", SOURCE),
        &options,
        &below.join("program"),
    ) {
        return;
    }
    let mounts = ["one", "other"].map(|name| Overlay::new(&below, folder.path().join(name)));
    let [Some(one), Some(other)] = &mounts else {
        return;
    };
    let programs = [&one.0, &below, &other.0].map(|at| at.join("program").display().to_string());
    let report = folder.path().join("report.json");
    let path = report.to_str().expect("the path is text");
    let traced = programs
        .each_ref()
        .map(|program| format!("--trace={program}:t_shared"));
    let mut arguments: Vec<&str> = traced.iter().map(String::as_str).collect();
    let script = "\"$0\" && \"$1\" && \"$2\"";
    arguments.extend(["-o", path, "--", "sh", "-c", script]);
    arguments.extend(programs.iter().map(String::as_str));
    let output = run(&arguments);
    if is_refused_here(&output) {
        return;
    }
    assert!(output.status.success(), "{output:?}");
    let report = fs::read(report).expect("the report was written");
    let report: Value = serde_json::from_slice(&report).expect("JSON");
    let measured = report["measured"]["functions"]
        .as_array()
        .expect("functions");
    let [row] = &measured[..] else {
        panic!("{measured:#?}");
    };
    assert_eq!(text(row, "/function"), "t_shared");
    let counts = ["/calls", "/outermost", "/left_unseen", "/exits_unmatched"];
    let counts = counts.map(|count| number(row, count));
    assert_eq!(counts, [300, 300, 0, 0], "{row:#}");
}
