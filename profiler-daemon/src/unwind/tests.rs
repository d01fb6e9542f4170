//! Tables of real files, of files made by hand, and of files with damage.

use std::{fs::File, time::Instant};

use profiler_common::unwind::{UnwindFailure, kind};

use super::{BuildLimits, NoTable, UnwindTable, build_file};

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

// Check that the tables of this program and its libraries hold what is known of them: almost all rows can be unwound, pages
// begin at 0 and are sorted, and libc's signal trampoline is found.
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

/// Prints what the choice of kinds rests on: for files named in `UNWIND_FILES` (separated by colons).
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
