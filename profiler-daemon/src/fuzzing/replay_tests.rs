//! The corpora, each file given to its target.

use std::{
    fs,
    panic::catch_unwind,
    path::{Path, PathBuf},
};

use super::{FuzzTarget, TARGETS};

/// Most bytes of all corpora: they are for remembering, not for finding.
const MAX_BYTES: usize = 200 << 10;

fn corpus() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

/// The inputs of a target.
fn inputs(name: &str) -> Vec<(PathBuf, Vec<u8>)> {
    let folder = corpus().join(name);
    let mut files: Vec<_> = fs::read_dir(&folder)
        .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
        .map(|entry| entry.unwrap().path())
        .collect();
    files.sort();
    let read = |file: PathBuf| {
        let bytes = fs::read(&file).unwrap();
        (file, bytes)
    };
    files.into_iter().map(read).collect()
}

/// Gives an input to its target, which also bounds the time it takes; `what` says which it is.
fn give(target: FuzzTarget, bytes: &[u8], what: impl Fn() -> String) {
    let read = catch_unwind(|| target(bytes));
    assert!(read.is_ok(), "{} broke its reader", what());
}

// Check that each input of the corpora, among them every one that once broke its reader or held it
// up, is read in bounded time, and that every target has one.
#[test]
fn every_input_is_read_in_time() {
    let mut total_bytes = 0;
    for (name, target) in TARGETS {
        let inputs = inputs(name);
        assert!(!inputs.is_empty(), "{name} has no corpus");
        for (file, bytes) in inputs {
            total_bytes += bytes.len();
            give(*target, &bytes, || file.display().to_string());
        }
    }
    assert!(
        total_bytes <= MAX_BYTES,
        "the corpora have {total_bytes} bytes"
    );
}

/// Gives so many changed copies of each input to its target, the same ones each time.
fn give_changed(rounds: u64) {
    for (name, target) in TARGETS {
        for (file, bytes) in inputs(name) {
            for round in 0..rounds {
                let changed = changed(&bytes, round);
                give(*target, &changed, || {
                    let input = std::env::temp_dir().join(format!("{name}-{round}"));
                    fs::write(&input, &changed).unwrap();
                    format!("{}, changed: {}", file.display(), input.display())
                });
            }
        }
    }
}

/// A copy with some bytes changed, put in, taken out, or repeated.
fn changed(bytes: &[u8], seed: u64) -> Vec<u8> {
    const ODD: [u8; 8] = [0, 1, 0x7f, 0x80, 0xff, b'\n', b' ', b'9'];
    let mut state = seed.wrapping_add(0x9e37_79b9_7f4a_7c15);
    let mut number = |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state % below.max(1) as u64) as usize
    };
    let mut changed = bytes.to_vec();
    for _ in 0..=number(6) {
        let at = number(changed.len());
        let end = (at + 1 + number(16)).min(changed.len());
        match number(6) {
            _ if changed.is_empty() => changed.push(ODD[number(8)]),
            0 => changed[at] ^= 1 << number(8),
            1 => changed[at] = ODD[number(8)],
            2 => changed[at..end].fill(ODD[number(8)]),
            3 => drop(changed.drain(at..end)),
            4 => {
                let piece = changed[at..end].repeat(1 + number(20));
                changed.splice(at..at, piece).for_each(drop);
            }
            _ => {
                let from = number(changed.len() - (end - at) + 1);
                changed.copy_within(at..end, from);
            }
        }
    }
    changed
}

// Check that inputs a little unlike those of the corpora are read in bounded time, too: what can be
// had of fuzzing on any machine.
#[test]
fn changed_inputs_are_read_in_time() {
    give_changed(40);
}

#[test]
#[ignore = "takes some minutes"]
fn changed_inputs_are_read_in_time_at_length() {
    give_changed(4000);
}

// Check that each target has a program in `fuzz/`, and none is there without.
#[test]
fn every_target_has_a_program() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/fuzz_targets");
    let programs = fs::read_dir(folder).unwrap().map(|entry| {
        let path = entry.unwrap().path();
        path.file_stem().unwrap().to_str().unwrap().to_owned()
    });
    let mut programs: Vec<String> = programs.collect();
    programs.sort();
    let mut targets: Vec<&str> = TARGETS.iter().map(|(name, _)| *name).collect();
    targets.sort_unstable();
    assert_eq!(programs, targets);
}
