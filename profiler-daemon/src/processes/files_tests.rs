//! Tests of `files` with real files and real mappings of this process.

use super::*;
use crate::{processes::source::ProcFs, sys::proc_fs};
use std::{fs, os::unix::ffi::OsStrExt as _, path::Path};

fn mapped(path: &Path) -> Mapped {
    let metadata = fs::metadata(path).unwrap();
    Mapped {
        start: 0x1000,
        end: 0x2000,
        device: Device {
            major: libc::major(metadata.dev()),
            minor: libc::minor(metadata.dev()),
        },
        inode: metadata.ino(),
        path: path.as_os_str().as_bytes().into(),
    }
}

fn identify(files: &mut Files, table: &mut ModuleTable, mapped: &Mapped) -> Identified {
    files.identify(table, &ProcFs, std::process::id(), 1, mapped)
}

// Check that two copies of a program are one module by build ID, and two files without one are two.
#[test]
fn copies_are_one_module() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    let exe = std::env::current_exe().unwrap();
    fs::copy(&exe, &copy).unwrap();
    let (mut files, mut table) = (Files::new(10), ModuleTable::new());
    let first = identify(&mut files, &mut table, &mapped(&exe));
    let second = identify(&mut files, &mut table, &mapped(&copy));
    if table.get(first.module).build_id.is_some() {
        assert_eq!(first, second);
    }
    assert_eq!(&*table.get(first.module).name, exe.to_str().unwrap());
    let texts = ["one", "two"].map(|name| {
        let path = directory.path().join(name);
        fs::write(&path, "no program").unwrap();
        identify(&mut files, &mut table, &mapped(&path)).module
    });
    assert_ne!(texts[0], texts[1]);
    assert_eq!(files.counts().corrupt, 0);
}

// Check that a file closed for want of room is opened again, and not if another one took its place.
#[test]
fn closed_files_are_opened_again() {
    let directory = tempfile::tempdir().unwrap();
    let (mut files, mut table) = (Files::new(2), ModuleTable::new());
    let paths: Vec<_> = (0..4)
        .map(|index| directory.path().join(format!("file {index}")))
        .collect();
    let modules: Vec<_> = paths
        .iter()
        .map(|path| {
            fs::write(path, "text").unwrap();
            identify(&mut files, &mut table, &mapped(path)).module
        })
        .collect();
    assert!(files.open_files() <= 2 && files.counts().evicted >= 2);
    assert_eq!(
        files.file(&table, &ProcFs, modules[0]).unwrap().module,
        modules[0]
    );
    fs::write(&paths[1], "other text").unwrap();
    assert!(files.file(&table, &ProcFs, modules[1]).is_none());
    assert!(files.file(&table, &ProcFs, ModuleId::JIT).is_none());
}

// Check that a file overwritten in place becomes another module.
#[test]
fn overwritten_files_change() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lib.so");
    fs::write(&path, "old").unwrap();
    let (mut files, mut table) = (Files::new(2), ModuleTable::new());
    let old = identify(&mut files, &mut table, &mapped(&path));
    fs::write(&path, "new and longer").unwrap();
    let new = identify(&mut files, &mut table, &mapped(&path));
    assert_ne!(old.module, new.module);
    assert_eq!(files.counts().changed, 1);
}

// Check that what is mapped without a file is told apart: vDSO with its image, code made at run time, special pages,
// memory files, and a file that is gone.
#[test]
fn without_a_file() {
    let (mut files, mut table) = (Files::new(4), ModuleTable::new());
    let special = |path: &[u8], inode| Mapped {
        start: 1 << 40,
        end: (1 << 40) + 4096,
        device: Device::default(),
        inode,
        path: path.into(),
    };
    let vdso = identify(&mut files, &mut table, &special(b"[vdso]", 0));
    assert_eq!(table.get(vdso.module).kind, ModuleKind::Vdso);
    assert!(files.file(&table, &ProcFs, vdso.module).is_some());
    for path in [&b"//anon"[..], b"", b"[heap]", b"[anon:code]"] {
        assert_eq!(
            identify(&mut files, &mut table, &special(path, 0)).module,
            ModuleId::JIT
        );
    }
    let vsyscall = identify(&mut files, &mut table, &special(b"[vsyscall]", 0));
    assert_eq!(
        (&*table.get(vsyscall.module).name, vsyscall.is_file),
        ("[vsyscall]", false)
    );
    let gone = identify(
        &mut files,
        &mut table,
        &special(b"/no/such\x1b[1m\xff (deleted)", 9),
    );
    assert_eq!(&*table.get(gone.module).name, "/no/such\u{fffd}[1m\u{fffd}");
    assert!(gone.is_file && files.counts().not_opened == 1);
}

// Check that a second sight of this process's own mappings opens nothing more.
#[test]
fn known_files_stay_open() {
    let (mut files, mut table) = (Files::new(100), ModuleTable::new());
    let maps = proc_fs::exec_maps(std::process::id(), 100).unwrap();
    let mut rounds = (0..2).map(|_| {
        let all = maps.entries.iter().map(|entry| {
            let mapped = Mapped {
                start: entry.start,
                end: entry.end,
                device: entry.device,
                inode: entry.inode,
                path: entry.path.clone(),
            };
            identify(&mut files, &mut table, &mapped)
        });
        (all.collect::<Vec<_>>(), files.counts().opened)
    });
    let (first, second) = (rounds.next().unwrap(), rounds.next().unwrap());
    assert_eq!(first, second);
    assert!(first.1 > 1);
}
