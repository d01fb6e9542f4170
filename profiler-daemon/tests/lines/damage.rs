//! Debug information that makes no sense.

use std::fs;
use std::ops::Range;
use std::path::Path;

use profiler_daemon::symbols::lines::NoLine;

use crate::programs::{self, LIMITS, ask, finder, shown, tool};

/// Where a section is in the file, by readelf.
fn section(program: &Path, name: &str) -> Range<usize> {
    let path = program.to_str().unwrap();
    let text = tool("readelf", &["-SW", path], Path::new("/")).unwrap();
    let line = text
        .lines()
        .find(|line| line.contains(&format!(" {name} ")));
    let line = line.unwrap_or_else(|| panic!("no {name} in {text}"));
    let after = line.split(name).nth(1).unwrap();
    let parts: Vec<&str> = after.split_whitespace().collect();
    let number = |at: usize| usize::from_str_radix(parts[at], 16).unwrap();
    number(2)..number(2) + number(3)
}

/// Numbers that look random and are always the same.
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self
            .0
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1);
        (self.0 >> 33) as usize % bound
    }
}

// Check that bits flipped anywhere in debug information leave an answer for each place: a line, or
// a reason that has to do with the file or the worker; and that the finder goes on with the next
// file.
#[test]
fn flipped_bits() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = programs::c_program(folder.path(), &["-gdwarf-5"]) else {
        return;
    };
    let requests = programs::requests(&program, "outer");
    let whole: Vec<_> = ask(&finder(LIMITS), &requests).iter().map(shown).collect();
    let good = fs::read(&program).unwrap();
    let sections = [".debug_info", ".debug_abbrev", ".debug_line", ".debug_str"];
    let sections = sections.map(|name| section(&program, name));
    let mut numbers = Numbers(7);
    let mut differing = 0;
    for round in 0..24 {
        let mut image = good.clone();
        for _ in 0..1 + round % 4 {
            let section = &sections[numbers.below(sections.len())];
            let at = section.start + numbers.below(section.len());
            image[at] ^= 1 << numbers.below(8);
        }
        let damaged = folder.path().join(format!("damaged{round}"));
        fs::write(&damaged, image).unwrap();
        let damaged = requests
            .iter()
            .map(|request| programs::request(&damaged, request.place.offset.get()));
        let codes = ask(&finder(LIMITS), &damaged.collect::<Vec<_>>());
        let found: Vec<_> = codes.iter().map(shown).collect();
        differing += usize::from(found != whole);
        for found in found {
            assert!(
                matches!(
                    found,
                    Ok(_)
                        | Err(NoLine::Unreadable
                            | NoLine::NoLineThere
                            | NoLine::WorkerMemory
                            | NoLine::WorkerTime
                            | NoLine::WorkerDied)
                ),
                "round {round}: {found:?}"
            );
        }
    }
    assert!(differing > 4, "the damage is seen");
}

// Check that a compressed section that claims more than can have been packed into it ends in a
// reason, as does one that does not hold what it says or is compressed in an unknown way.
#[test]
fn compressed_nonsense() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = programs::c_program(folder.path(), &["-gz=zlib"]) else {
        return;
    };
    let request = programs::requests(&program, "outer").remove(0);
    let at = section(&program, ".debug_info").start;
    let good = fs::read(&program).unwrap();
    let with = |place: usize, bytes: &[u8]| {
        let mut image = good.clone();
        image[at + place..at + place + bytes.len()].copy_from_slice(bytes);
        let damaged = folder.path().join("damaged");
        fs::write(&damaged, image).unwrap();
        let request = programs::request(&damaged, request.place.offset.get());
        shown(&programs::ask_one(&finder(LIMITS), &request))
    };
    assert!(with(0, &[]).is_ok());
    let huge = 1_u64 << 40;
    assert_eq!(with(8, &huge.to_le_bytes()), Err(NoLine::Unreadable));
    assert_eq!(with(8, &5_u64.to_le_bytes()), Err(NoLine::Unreadable));
    assert_eq!(with(0, &[9]), Err(NoLine::Unreadable));
    assert_eq!(with(30, &[0xff; 8]), Err(NoLine::Unreadable));
}

// Check that a file that shrank since it was mapped is not read, and that what is no program is
// told as such.
#[test]
fn other_files() {
    let folder = tempfile::tempdir().unwrap();
    let Some(program) = programs::c_program(folder.path(), &[]) else {
        return;
    };
    let request = programs::requests(&program, "outer").remove(0);
    let file = fs::OpenOptions::new().write(true).open(&program).unwrap();
    file.set_len(4096).unwrap();
    let finder = finder(LIMITS);
    let code = programs::ask_one(&finder, &request);
    assert_eq!(shown(&code), Err(NoLine::NoFile));
    let text = folder.path().join("text");
    fs::write(&text, "no program").unwrap();
    let finder = programs::finder(LIMITS);
    let code = programs::ask_one(&finder, &programs::request(&text, 3));
    assert_eq!(shown(&code), Err(NoLine::Unreadable));
}
