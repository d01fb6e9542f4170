//! Programs of three compilers, as they are.

use std::collections::BTreeSet;

use profiler_daemon::symbols::lines::{Code, NoLine};

use crate::programs::{self, LIMITS, ask, finder, shown};
use profiler_daemon::units::ModuleAddress;

const CPP: &str = "#include <vector>
volatile long sink;
namespace space {
template <typename T> inline __attribute__((always_inline)) void twice(T n) {
  sink = sink + n;
}
template <typename T> __attribute__((noinline)) void work(T n) {
  twice<T>(n);
  twice<long>(n + 1);
}
}
int main(int argc, char **) {
  space::work<int>(argc);
}
";

const RUST: &str = "use std::hint::black_box;
#[inline(always)]
fn inner(n: u64) -> u64 {
    black_box(n * 3)
}
#[inline(never)]
#[unsafe(no_mangle)]
pub fn outer(n: u64) -> u64 {
    inner(n) + 1
}
fn main() {
    black_box(outer(std::env::args().count() as u64));
}
";

fn distinct(codes: &[Code]) -> BTreeSet<String> {
    codes.iter().map(|code| shown(code).unwrap()).collect()
}

// Check that each place of a function has its line, and those of an inlined function both, from C.
#[test]
fn c() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = programs::c_program(folder.path(), &[]) else {
        return;
    };
    let requests = programs::requests(&program, "outer");
    let finder = finder(LIMITS);
    let codes = ask(&finder, &requests);
    let found = distinct(&codes);
    for expected in ["outer:6 inner:3", "outer:7", "outer:8"] {
        assert!(found.contains(expected), "{expected} is not in {found:?}");
    }
    assert_eq!(
        codes[0].address,
        Some(ModuleAddress::new(programs::function(&program, "outer").0))
    );
    let source = codes[0].source().unwrap();
    assert!(source.file.ends_with("/program.c"), "{source:?}");
    assert_eq!(finder.counts().workers, 1, "one worker for all places");
    let again = ask(&finder, &requests);
    assert_eq!(again, codes);
    let counts = finder.counts();
    assert_eq!((counts.workers, counts.hits), (1, requests.len() as u64));
    assert!(counts.worker_peak_bytes > 1 << 20 && counts.cache_bytes > 0);
}

// Check the same from C++, whose names are made readable, however the sections are compressed and
// in whichever version.
#[test]
fn cpp() {
    for flags in [
        &["-gdwarf-5"][..],
        &["-gdwarf-4"],
        &["-gdwarf-4", "-gz=zlib"],
        &["-gz=zlib"],
    ] {
        let folder = tempfile::tempdir().unwrap();
        let flags = [&["-g", "-O2"], flags].concat();
        let source = ("program.cc", CPP);
        let Some(program) = programs::compile(folder.path(), "c++", source, &flags) else {
            return;
        };
        let requests = programs::requests(&program, "void space::work<int>(int)");
        let found = distinct(&ask(&finder(LIMITS), &requests));
        for expected in [
            "void space::work<int>(int):8 void space::twice<int>(int):5",
            "void space::work<int>(int):9 void space::twice<long>(long):5",
        ] {
            assert!(
                found.contains(expected),
                "{flags:?}: {expected} is not in {found:?}"
            );
        }
    }
}

// Check the same from Rust.
#[test]
fn rust() {
    let folder = tempfile::tempdir().unwrap();
    let compiler = std::env::var("RUSTC").unwrap_or_else(|_| "rustc".to_owned());
    let flags = ["-g", "-O", "--edition=2024"];
    let source = ("program.rs", RUST);
    let Some(program) = programs::compile(folder.path(), &compiler, source, &flags) else {
        return;
    };
    let requests = programs::requests(&program, "outer");
    let found = distinct(&ask(&finder(LIMITS), &requests));
    let inner = |shown: &String| {
        let names: Vec<&str> = shown.split(' ').collect();
        names.len() >= 2 && names[0].ends_with("outer:9") && names[1].ends_with("::inner:4")
    };
    assert!(found.iter().any(inner), "{found:?}");
}

// Check that a place outside of all functions, and a program without debug information, are told as
// what they are, with the address where there is one.
#[test]
fn nothing_there() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = programs::c_program(folder.path(), &[]) else {
        return;
    };
    let finder = finder(LIMITS);
    let header = programs::ask_one(&finder, &programs::request(&program, 8));
    assert_eq!(shown(&header), Err(NoLine::NoLineThere));
    let beyond = programs::ask_one(&finder, &programs::request(&program, 1 << 40));
    assert_eq!(
        (beyond.address, shown(&beyond)),
        (None, Err(NoLine::NoLineThere))
    );
    let plain = tempfile::tempdir().unwrap();
    let Some(program) = programs::c_program(plain.path(), &["-g0"]) else {
        return;
    };
    let request = programs::requests(&program, "outer").remove(0);
    let finder = programs::finder(LIMITS);
    let code = programs::ask_one(&finder, &request);
    assert_eq!(shown(&code), Err(NoLine::NoDebugInformation));
    assert_eq!(
        code.address,
        Some(ModuleAddress::new(programs::function(&program, "outer").0))
    );
    let counts = finder.counts();
    assert_eq!(counts.workers, 0, "nothing is started for nothing");
    assert_eq!(counts.unknown[NoLine::NoDebugInformation as usize], 1);
}
