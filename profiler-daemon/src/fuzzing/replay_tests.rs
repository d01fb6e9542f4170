//! The corpora, each file given to its target.

use std::{fs, path::Path};

use super::TARGETS;

/// Most time of a processor that one input may take, nanoseconds: a thousand times what most take, optimized a little.
const MAX_NS: u64 = 3_000_000_000;
/// Most bytes of all corpora: they are for remembering, not for finding.
const MAX_BYTES: u64 = 200 << 10;

fn processor_ns() -> u64 {
    crate::sys::clock::thread_ns()
}

fn corpus() -> std::path::PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus")
}

// Check that each input of the corpora, among them every one that once broke its reader or held it up, is read in bounded
// time, and that every target has one.
#[test]
fn every_input_is_read_in_time() {
    let mut total_bytes = 0;
    for (name, target) in TARGETS {
        let folder = corpus().join(name);
        let mut files: Vec<_> = fs::read_dir(&folder)
            .unwrap_or_else(|error| panic!("{}: {error}", folder.display()))
            .map(|entry| entry.unwrap().path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has no corpus");
        for file in files {
            let bytes = fs::read(&file).unwrap();
            total_bytes += bytes.len() as u64;
            let start_ns = processor_ns();
            target(&bytes);
            let took_ns = processor_ns() - start_ns;
            assert!(took_ns < MAX_NS, "{} took {took_ns} ns", file.display());
        }
    }
    assert!(
        total_bytes <= MAX_BYTES,
        "the corpora have {total_bytes} bytes"
    );
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
