//! Tests of `files` with real files and real mappings of this process.

use super::*;
use crate::sys::perf_record::Device;
use crate::{processes::source::ProcFs, sys::proc_fs};
use std::{
    ffi::OsStr,
    fs,
    os::unix::{ffi::OsStrExt as _, fs::PermissionsExt as _},
    path::{Path, PathBuf},
};

fn mapped(path: &Path) -> Mapped {
    let metadata = fs::metadata(path).unwrap();
    Mapped {
        start: VirtualAddress::new(0x1000),
        end: VirtualAddress::new(0x2000),
        device: Device {
            major: libc::major(metadata.dev()),
            minor: libc::minor(metadata.dev()),
        },
        inode: metadata.ino(),
        path: path.as_os_str().as_bytes().into(),
    }
}

fn identify(files: &mut Files, table: &mut ModuleTable, mapped: &Mapped) -> Identified {
    files.identify(
        (table, Owner::System),
        &ProcFs,
        (std::process::id(), 1),
        mapped,
    )
}

/// The C library that this program runs with: it has a build ID.
fn library() -> PathBuf {
    let maps = proc_fs::exec_maps(std::process::id(), 100).unwrap();
    let mut paths = maps.entries.into_iter().map(|entry| entry.path);
    let path = paths.find(|path| path.windows(5).any(|part| part == b"libc."));
    OsStr::from_bytes(&path.unwrap()).into()
}

/// A copy of it that only its owner can write, or that others can write too.
fn copy(path: &Path, others_write: bool) -> Mapped {
    fs::copy(library(), path).unwrap();
    let mode = if others_write { 0o757 } else { 0o755 };
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    mapped(path)
}

// Check that two copies of a library are one module by build ID where only root can write them,
// that the first stays the one that is read while it is open, and that two files without a build ID
// are two.
#[test]
fn copies_are_one_module() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["one", "two"].map(|name| directory.path().join(name));
    let copies = [copy(&paths[0], false), copy(&paths[1], false)];
    let is_roots = only_root_writes(&fs::metadata(&paths[0]).unwrap());
    let (mut files, mut table) = (Files::new(10), ModuleTable::new());
    let first = identify(&mut files, &mut table, &copies[0]);
    // Another process, else only the first sight would count.
    let second = files.identify((&mut table, Owner::System), &ProcFs, (1, 1), &copies[1]);
    assert!(table.get(first.module).build_id.is_some());
    assert_eq!(first == second, is_roots);
    assert_eq!(
        *files.seen(first.module).unwrap().path,
        *paths[0].as_os_str().as_bytes()
    );
    assert_eq!(&*table.get(first.module).name, paths[0].to_str().unwrap());
    fs::write(&paths[0], "no program").unwrap();
    files.identify((&mut table, Owner::System), &ProcFs, (1, 1), &copies[1]);
    let now = files.seen(second.module).unwrap().path;
    assert_eq!(*now, *paths[1].as_os_str().as_bytes());
    let texts = ["one", "two"].map(|name| {
        let path = directory.path().join(name);
        fs::write(&path, "no program").unwrap();
        identify(&mut files, &mut table, &mapped(&path)).module
    });
    assert_ne!(texts[0], texts[1]);
    assert_eq!(files.counts().corrupt, 0);
}

// Check that a file that anybody can write is a module of its own, whatever build ID it bears, and
// that it is not read for the file that it copies.
#[test]
fn a_copied_build_id_takes_nothing_over() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["good", "false"].map(|name| directory.path().join(name));
    let copies = [copy(&paths[0], false), copy(&paths[1], true)];
    for order in [[0, 1], [1, 0]] {
        let (mut files, mut table) = (Files::new(10), ModuleTable::new());
        let mut modules = [ModuleId::UNKNOWN; 2];
        for index in order {
            modules[index] = identify(&mut files, &mut table, &copies[index]).module;
        }
        assert_ne!(modules[0], modules[1]);
        let ids = modules.map(|module| table.get(module).build_id.clone());
        assert_eq!(ids[0], ids[1]);
        for index in [0, 1] {
            let seen = files.seen(modules[index]).unwrap();
            assert_eq!(*seen.path, *paths[index].as_os_str().as_bytes());
            let file = files.file(&table, &ProcFs, modules[index]).unwrap();
            assert_eq!(file.identity.inode, copies[index].inode);
        }
    }
}

// Check that a copy whose code a tool moved is a module of its own though it has the library's
// build ID: its offsets mean other functions. So is one that was cut.
#[test]
fn a_changed_copy_is_no_copy() {
    let directory = tempfile::tempdir().unwrap();
    let image = fs::read(library()).unwrap();
    let copies = ["same", "moved", "cut"].map(|name| {
        let mut image = image.clone();
        match name {
            "moved" => move_code(&mut image),
            "cut" => image.truncate(image.len() - 1),
            _ => {}
        }
        let path = directory.path().join(name);
        fs::write(&path, image).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
        mapped(&path)
    });
    let (mut files, mut table) = (Files::new(10), ModuleTable::new());
    let modules = copies.map(|copy| identify(&mut files, &mut table, &copy).module);
    let ids = modules.map(|module| table.get(module).build_id.clone());
    assert!(ids[0].is_some() && ids.iter().all(|id| *id == ids[0]));
    assert!(modules[0] != modules[1] && modules[0] != modules[2] && modules[1] != modules[2]);
}

/// Writes into the program headers that code is loaded to a page further.
fn move_code(image: &mut [u8]) {
    let word = |image: &[u8], at: usize| {
        let bytes = image[at..at + 8].try_into().unwrap();
        u64::from_le_bytes(bytes)
    };
    let (first, count) = (word(image, 32) as usize, usize::from(image[56]));
    for program in (0..count).map(|index| first + index * 56) {
        let is_code = image[program] == 1 && image[program + 4] & 1 != 0;
        if is_code {
            let address = word(image, program + 16) + 4096;
            image[program + 16..program + 24].copy_from_slice(&address.to_le_bytes());
        }
    }
}

// Check that a vDSO that a process wrote the build ID of a file into does not become that file.
#[test]
fn a_vdso_is_no_file() {
    let (mut files, mut table) = (Files::new(4), ModuleTable::new());
    let image = fs::read(library()).unwrap();
    let ElfIdentity::BuildId(build) = build_id::of_bytes(&image) else {
        panic!("the library has a build ID");
    };
    let file = table.intern(ModuleIdentity::Build(build.clone()), || {
        Module::named("/lib/file", ModuleKind::User)
    });
    let vdso = files
        .vdso_image((&mut table, Owner::System), &image)
        .unwrap();
    assert_ne!(vdso, file);
    assert_eq!(table.get(vdso).build_id.as_deref(), Some(&*build.id));
    assert_eq!(
        files.vdso_image((&mut table, Owner::System), &image),
        Some(vdso)
    );
    assert!(files.file(&table, &ProcFs, file).is_none());
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

// Check that while events are read a file is looked at once, and again in the next reading.
#[test]
fn files_are_looked_at_once_in_a_reading() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("lib.so");
    fs::write(&path, "old").unwrap();
    let (mut files, mut table) = (Files::new(2), ModuleTable::new());
    files.reading = Some(1);
    let old = identify(&mut files, &mut table, &mapped(&path));
    assert_eq!(identify(&mut files, &mut table, &mapped(&path)), old);
    fs::write(&path, "new and longer").unwrap();
    assert_eq!(identify(&mut files, &mut table, &mapped(&path)), old);
    files.reading = Some(2);
    let new = identify(&mut files, &mut table, &mapped(&path));
    assert_ne!(old.module, new.module);
    fs::write(&path, "another one, longer still").unwrap();
    files.reading = None;
    let last = identify(&mut files, &mut table, &mapped(&path));
    assert_ne!(new.module, last.module);
}

// Check that what is mapped without a file is told apart: vDSO with its image, code made at run
// time, special pages, memory files, and a file that is gone.
#[test]
fn without_a_file() {
    let (mut files, mut table) = (Files::new(4), ModuleTable::new());
    let special = |path: &[u8], inode| Mapped {
        start: VirtualAddress::new(1 << 40),
        end: VirtualAddress::new((1 << 40) + 4096),
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

// Check that the paths by which files are opened again are counted with the text of their modules,
// and that there is an end to them.
#[test]
fn paths_are_bounded() {
    use crate::processes::module::MAX_MODULE_TEXT_BYTES;
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "text").unwrap();
    let (mut files, mut table) = (Files::new(2), ModuleTable::new());
    let short = mapped(&path);
    let module = identify(&mut files, &mut table, &short).module;
    let seen = |files: &Files| files.seen(module).unwrap().path;
    let long = Mapped {
        path: [&*short.path, &[b'/'; 1000]].concat().into(),
        ..short.clone()
    };
    while table.hold(&mut None, Owner::System, 1000) {}
    while table.hold(&mut None, Owner::System, 1) {}
    // On a file system without a disk of its own it is another file by its path.
    if short.device.major != 0 {
        files.identify((&mut table, Owner::System), &ProcFs, (1, 1), &long);
        assert_eq!(seen(&files), short.path);
    }
    let refused = table.refused();
    files.identify((&mut table, Owner::System), &ProcFs, (1, 1), &short);
    assert_eq!((seen(&files), table.refused()), (short.path, refused));
    let other = directory.path().join("other");
    fs::write(&other, "text").unwrap();
    let none = identify(&mut files, &mut table, &mapped(&other)).module;
    assert_eq!(none, ModuleId::UNKNOWN);
    let more = ModuleTable::new().hold(&mut None, Owner::System, MAX_MODULE_TEXT_BYTES + 1);
    assert!(!more);
}

// Check that who maps a file by a path of his own does not come in the place of root or of the
// file's owner, who come in his.
#[test]
fn who_leads_to_a_file() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "text").unwrap();
    let (mut files, mut table) = (Files::new(2), ModuleTable::new());
    let [mut other, root] = [mapped(&path), mapped(&path)];
    // On a file system without a disk of its own it is another file by its path.
    if other.device.major != 0 {
        other.path = [b"/", &*other.path].concat().into();
    }
    let of = |number, user| Owner::Process {
        number,
        user: Some(user),
    };
    let user = fs::metadata(&path).unwrap().uid() + 1;
    for (owner, pid, mapped, leads) in [
        (of(1, user), 1, &other, 1),
        (of(2, 0), 2, &root, 2),
        (of(3, user), 3, &other, 2),
        (of(4, user - 1), 4, &root, 4),
    ] {
        let found = files.identify((&mut table, owner), &ProcFs, (pid, 1), mapped);
        assert_eq!(files.seen(found.module).unwrap().pid, leads);
        assert_eq!(files.owner(found.module).unwrap().uid, user - 1);
    }
}

// Check that the path by which a file was mapped takes room of whoever mapped it so: that a user
// who has no room left keeps nobody else from being remembered, and gets his room back then.
#[test]
fn a_path_is_paid_by_who_maps_by_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("file");
    fs::write(&path, "text").unwrap();
    let of = |number, user| Owner::Process {
        number,
        user: Some(user),
    };
    let (mut files, mut table) = (Files::new(2), ModuleTable::new());
    let (attacker, short) = (of(1, 1000), mapped(&path));
    let mut long = short.clone();
    // On a file system without a disk of its own it is another file by its path.
    if short.device.major != 0 {
        long.path = [b"/", &*short.path].concat().into();
    }
    let more = long.path.len() - short.path.len();
    let mut identify = |table: &mut ModuleTable, owner, pid, mapped| {
        let found = files.identify((table, owner), &ProcFs, (pid, 1), mapped);
        files.seen(found.module).unwrap().pid
    };
    assert_eq!(identify(&mut table, attacker, 1, &short), 1);
    while table.hold(&mut None, attacker, 1000) {}
    while table.hold(&mut None, attacker, 1) {}
    let before = table.text_bytes();
    assert_eq!(identify(&mut table, of(2, 0), 2, &long), 2);
    assert_eq!(table.text_bytes(), before + more);
    assert!(table.hold(&mut None, attacker, 1));
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

// Check that a module that left has its file closed and its path forgotten, and that the same file
// mapped again is another module with a name.
#[test]
fn what_left_is_closed() {
    let directory = tempfile::tempdir().unwrap();
    let paths = ["stays", "leaves"].map(|name| directory.path().join(name));
    let (mut files, mut table) = (Files::new(10), ModuleTable::new());
    let [stays, leaves] = [0, 1].map(|index| {
        fs::write(&paths[index], "text").unwrap();
        identify(&mut files, &mut table, &mapped(&paths[index])).module
    });
    let gone = table.sweep(|marks| marks.keep(stays));
    files.forget(&mut table, &gone);
    assert_eq!(gone, HashSet::from([leaves]));
    assert!(files.open_files() == 1 && files.seen(leaves).is_none());
    assert!(files.file(&table, &ProcFs, leaves).is_none());
    assert!(files.file(&table, &ProcFs, stays).is_some());
    let again = identify(&mut files, &mut table, &mapped(&paths[1])).module;
    assert!(again != leaves && &*table.get(again).name == paths[1].to_str().unwrap());
}

// Check that a file that changes again and again while it is mapped fills no table: few of its
// versions are modules at a time, they leave, and meanwhile the files of others are modules with
// names.
#[test]
fn a_file_that_changes_without_end() {
    const VERSIONS: u64 = 70_000;
    let attacker = Owner::Process {
        number: 1,
        user: Some(1000),
    };
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("changes");
    fs::write(&path, "text").unwrap();
    let file = File::options().write(true).open(&path).unwrap();
    let (mut files, mut table) = (Files::new(10), ModuleTable::new());
    let (mapped_now, caller) = (mapped(&path), (std::process::id(), 1));
    let (mut given, mut sweeps) = (0, 0);
    for version in 0..VERSIONS {
        let changed = std::time::UNIX_EPOCH + std::time::Duration::from_secs(version);
        file.set_modified(changed).unwrap();
        let now = files.identify((&mut table, attacker), &ProcFs, caller, &mapped_now);
        given += u64::from(!now.found_no_room());
        assert!(table.len() < 1_200 && files.open_files() <= 10);
        if version % 1_000 == 0 {
            let other = directory.path().join(version.to_string());
            fs::write(&other, "text").unwrap();
            let module = identify(&mut files, &mut table, &mapped(&other)).module;
            assert_eq!(&*table.get(module).name, other.to_str().unwrap());
        }
        if version % 100 == 0 && table.wants_sweep() {
            sweeps += 1;
            let gone = table.sweep(|marks| marks.keep(now.module));
            files.forget(&mut table, &gone);
        }
    }
    assert!(sweeps > 20 && given > VERSIONS / 4, "{given} in {sweeps}");
    assert!(table.refused().over_share > 0 && table.refused().full == 0);
}
