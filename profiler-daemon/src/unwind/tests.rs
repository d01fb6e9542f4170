//! Tables of real files, of files made by hand, and of files with damage.

use std::{fs::File, time::Instant};

use profiler_common::unwind::{UnwindFailure, kind};

use super::{
    BuildLimits, NoTable, UnwindTable, build_file,
    made_files::{CODE_ADDRESS, MadeSection, program},
};
use crate::sys::clock::thread_ns;

/// Files that any machine with these tests has some of.
fn real_files() -> Vec<std::path::PathBuf> {
    let mut files: Vec<std::path::PathBuf> = vec!["/proc/self/exe".into()];
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    for path in maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
    {
        if path.starts_with('/') && path.contains(".so") && !files.contains(&path.into()) {
            files.push(path.into());
        }
    }
    files
}

fn table_of(path: &std::path::Path) -> UnwindTable {
    build_file(
        &File::open(path).unwrap(),
        &BuildLimits::default(),
        &mut || true,
    )
    .unwrap_or_else(|why| panic!("{}: {}", path.display(), why.name()))
}

// Check that the tables of this program and its libraries hold what is known of them: almost all
// rows can be unwound, pages begin at 0 and are sorted, and libc's signal trampoline is found.
#[test]
fn own_files() {
    for path in real_files() {
        let table = table_of(&path);
        let share = table.stats.unsupported_rows as f64 / table.rows.len() as f64;
        assert!(share < 0.0005, "{}: {share} unsupported", path.display());
        assert_eq!(table.stats.dense_pages, 0);
        let mut next = 0;
        for page in &table.pages {
            assert_eq!(page.first, next);
            next += u32::from(page.count);
            let rows = &table.rows[page.first as usize..next as usize];
            assert_eq!(rows[0].pc, 0);
            assert!(rows.is_sorted_by_key(|row| row.pc));
        }
        assert_eq!(next as usize, table.rows.len());
        if path.to_string_lossy().contains("libc.so") {
            let signal = table.rows.iter().filter(|row| row.kind == kind::SIGNAL);
            assert!(signal.count() > 0, "no signal trampoline");
        }
    }
}

/// Prints what the choice of kinds rests on: for files named in `UNWIND_FILES` (separated by
/// colons).
#[test]
#[ignore = "a measurement, for files of one's choice"]
#[expect(clippy::print_stdout, reason = "a person asked for the figures")]
fn measure() {
    let files = std::env::var("UNWIND_FILES").unwrap_or_default();
    let mut totals = (0, 0, 0, 0.0);
    for path in files.split(':').filter(|path| !path.is_empty()) {
        let Ok(file) = File::open(path) else {
            continue;
        };
        let start = Instant::now();
        match build_file(&file, &BuildLimits::default(), &mut || true) {
            Ok(table) => {
                let seconds = start.elapsed().as_secs_f64();
                let gaps = table.rows.iter().filter(|row| row.kind == kind::GAP);
                let mut why = [0; 12];
                for row in table
                    .rows
                    .iter()
                    .filter(|row| row.kind == kind::UNSUPPORTED)
                {
                    why[row.param as usize] += 1;
                }
                let why: Vec<String> = UnwindFailure::ALL
                    .iter()
                    .filter(|failure| why.get(**failure as usize).is_some_and(|count| *count > 0))
                    .map(|failure| format!("{} {}", why[*failure as usize], failure.name()))
                    .collect();
                let densest = table.pages.iter().map(|page| page.count).max();
                println!(
                    "{path}: {} rows in {} pages (most {densest:?}), {} gaps, {why:?}, {:.3} s, {:.0} raw rows/s, {:?}",
                    table.rows.len(),
                    table.pages.len(),
                    gaps.count(),
                    seconds,
                    table.stats.rows_read as f64 / seconds,
                    table.stats,
                );
                totals.0 += table.rows.len();
                totals.1 += table.stats.unsupported_rows;
                totals.2 += table.stats.rows_read;
                totals.3 += seconds;
            }
            Err(why) => println!("{path}: {}", why.name()),
        }
    }
    println!("{totals:?}");
}

// Check that what is no file for a table is refused with its own reason.
#[test]
fn other_files() {
    let limits = BuildLimits::default();
    let reason = |bytes: &[u8]| build_file(bytes, &limits, &mut || true).map(|_| ());
    assert_eq!(reason(b"#!/bin/sh"), Err(NoTable::NotElf));
    assert_eq!(reason(b""), Err(NoTable::NotElf));
    let own = std::fs::read("/proc/self/exe").unwrap();
    let mut wide = own[..64].to_vec();
    assert_eq!(reason(&wide), Err(NoTable::Corrupt));
    wide[4] = 1;
    assert_eq!(reason(&wide), Err(NoTable::OtherMachine));
    let mut calls = 0;
    let slow = build_file(&*own, &limits, &mut || {
        calls += 1;
        calls < 3
    });
    assert_eq!(slow.map(|_| ()), Err(NoTable::TooSlow));
    let few = BuildLimits {
        max_rows: 100,
        ..limits
    };
    assert_eq!(
        build_file(&*own, &few, &mut || true).map(|_| ()),
        Err(NoTable::TooManyRows)
    );
}

/// A program of 40 000 functions whose unwind information shares one entry with so many bytes of
/// instructions.
fn functions_that_share(bytes: usize) -> Vec<u8> {
    const FUNCTIONS: u64 = 40_000;
    let entry = |id: u32, body: &[u8]| {
        let length = (body.len() + 4) as u32;
        [&length.to_le_bytes(), &id.to_le_bytes(), body].concat()
    };
    // Version 1, no augmentation; units of 1 and -8 bytes; rip at the stack address less 8.
    let mut shared = vec![1, 0, 1, 0x78, 16, 0x0c, 7, 8, 0x90, 1];
    while shared.len() < bytes {
        // The stack address is 8 or 16 bytes above rsp.
        shared.extend([0x0e, 16, 0x0e, 8]);
    }
    let mut section = entry(0, &shared);
    for function in 0..FUNCTIONS {
        let start = CODE_ADDRESS + function * 16;
        let body = [start.to_le_bytes(), 16_u64.to_le_bytes()].concat();
        let back = section.len() as u32 + 4;
        section.extend(entry(back, &body));
    }
    let code = vec![0xc3; FUNCTIONS as usize * 16];
    program(&code, &[MadeSection::new(".eh_frame", section)])
}

// Check that forty thousand functions under one entry that is far longer than real ones cost
// little, because such an entry is refused, and that they do not under the longest one that is
// taken, which means what it says.
#[test]
fn functions_under_one_long_entry() {
    for (bytes, is_taken) in [(4000, false), (480, true)] {
        let file = functions_that_share(bytes);
        let before_ns = thread_ns();
        let table = build_file(&*file, &BuildLimits::default(), &mut || true).unwrap();
        let took_ns = thread_ns() - before_ns;
        assert!(took_ns < 3_000_000_000, "{bytes} bytes took {took_ns} ns");
        assert_eq!(table.without.is_none(), is_taken);
        assert_eq!(table.stats.functions, if is_taken { 40_000 } else { 0 });
    }
}
