//! Names in files made by hand, and in the libraries of this machine against what binutils says of
//! them.

use std::{collections::BTreeMap, fs, io::Write as _, process::Command};

use object::{Object as _, ObjectSegment as _, ObjectSymbol as _};

use super::*;
use crate::{
    processes::module::FileIdentity,
    symbols::{
        debug_files::Has,
        elf_made::{
            GLOBAL_FUNCTION, JUMPS, LABEL, LOCAL_FUNCTION, MadeSymbol, WEAK_FUNCTION, jumps, table,
        },
    },
    sys::memory_file::memory_file,
    unwind::made_files::{CODE_ADDRESS, MadeSection, program},
};

/// Where the code of made files stands in them.
const CODE_OFFSET: u64 = 0x1000;

fn own(file: File) -> Part {
    let size_bytes = file.metadata().unwrap().size();
    let identity = FileIdentity {
        device: 0,
        inode: 0,
        size_bytes,
        modified_unix_ns: 0,
    };
    Part::Own(Arc::new(ModuleFile {
        module: ModuleId(7),
        file,
        identity,
    }))
}

fn debug(file: File) -> Part {
    let size_bytes = file.metadata().unwrap().size();
    let has = Has::default();
    let debug = DebugFile {
        file,
        size_bytes,
        has,
    };
    Part::Debug(ModuleId(7), Arc::new(debug))
}

/// Names and where they begin, at file offsets of a mapped file, and at addresses of another.
fn names(part: Part, places: &[u64]) -> Vec<Result<(String, u64), Unnamed>> {
    let offsets: Vec<FileOffset> = places.iter().copied().map(FileOffset::new).collect();
    let addresses: Vec<ModuleAddress> = places.iter().copied().map(ModuleAddress::new).collect();
    let places = match part {
        Part::Own(_) => FilePlaces::Offsets(&offsets),
        Part::Debug(..) => FilePlaces::Addresses(&addresses),
    };
    let found = ElfNames::new().names(part, places, MonoNs::ZERO);
    let found = found.into_iter();
    found
        .map(|found| found.map(|found| (found.name.into(), found.address.get())))
        .collect()
}

/// A file with a symbol table, and one for the loader.
fn with_symbols(symbols: &[MadeSymbol<'_>], of_loader: &[MadeSymbol<'_>]) -> File {
    let (symbols, strings) = table(symbols);
    let (of_loader, loader_strings) = table(of_loader);
    let file = program(
        &[0xc3; 1024],
        &[
            MadeSection::code(".init", 0x50_0000, vec![0xc3; 16]),
            MadeSection::code(".behind", 0x50_0010, vec![0xc3; 256]),
            MadeSection::new(".symtab", symbols),
            MadeSection::new(".strtab", strings),
            MadeSection::new(".dynsym", of_loader),
            MadeSection::new(".dynstr", loader_strings),
        ],
    );
    memory_file(&file).unwrap()
}

// Check that of the names of one address, in both tables, the one that people know wins, whatever
// their order, and that versions are cut off; but not what else stands behind an @.
#[test]
fn the_name_that_people_know() {
    let at = CODE_ADDRESS;
    for (names_there, known) in [
        (
            &["cfree@GLIBC_2.2.5", "__libc_free", "free@@GLIBC_2.2.5"],
            "free",
        ),
        (&["__GI___send", "__send", "-send"], "send"),
        (&["__libc_malloc", "malloc", "__GI___libc_malloc"], "malloc"),
        (&["-index", "strchr", "__strchr"], "strchr"),
        (&["+local", "-weak_one", "global_one"], "global_one"),
        (&["llseek@V_1", "-lseek", "__lseek"], "lseek"),
        (&["fopen64", "_IO_fopen", "fopen"], "fopen"),
        (&["__x", "_ZN1a1bEv", "_c_name"], "a::b()"),
        (&["_a@V 1", "__b", "__c"], "_a@V 1"),
    ] {
        for rotation in 0..6 {
            let mut order: Vec<_> = names_there
                .iter()
                .map(|name| {
                    let bare = name.trim_start_matches(['-', '+']);
                    let binding = match name.as_bytes()[0] {
                        b'-' => WEAK_FUNCTION,
                        b'+' => LOCAL_FUNCTION,
                        _ => GLOBAL_FUNCTION,
                    };
                    (bare, binding, at, 32)
                })
                .collect();
            order.rotate_left(rotation % 3);
            let (symbols, of_loader) = order.split_at(rotation / 2 + 1);
            let file = with_symbols(symbols, of_loader);
            let found = names(debug(file), &[at, at + 31, at + 32]);
            let expected = Ok((known.to_owned(), at));
            assert_eq!(found[..2], [expected.clone(), expected], "{order:?}");
            assert_eq!(found[2], Err(Unnamed::NoSymbolThere));
        }
    }
}

// Check that a symbol without a size ends with its section and where a function begins, and names
// nothing that a function is around.
#[test]
fn symbols_without_size() {
    let file = with_symbols(
        &[
            ("_init", GLOBAL_FUNCTION, 0x50_0000, 0),
            ("outer", GLOBAL_FUNCTION, CODE_ADDRESS, 64),
            ("label", LABEL, CODE_ADDRESS + 16, 0),
            ("inner", LOCAL_FUNCTION, CODE_ADDRESS + 32, 8),
            ("open", LABEL, CODE_ADDRESS + 128, 0),
        ],
        &[("known", GLOBAL_FUNCTION, CODE_ADDRESS + 160, 16)],
    );
    let at = |offset: u64| CODE_ADDRESS + offset;
    let places = [
        0x50_0000,
        0x50_000f,
        0x50_0010,
        0x50_0090,
        at(0),
        at(16),
        at(20),
        at(33),
        at(41),
        at(63),
        at(64),
        at(128),
        at(159),
        at(160),
        at(175),
        at(176),
        at(1023),
        at(1024),
    ];
    let found = names(debug(file), &places);
    let found = found
        .into_iter()
        .map(|found| found.map(|found| found.0).ok());
    let found: Vec<Option<String>> = found.collect();
    let expected = [
        "_init", "_init", "", "", "outer", "outer", "outer", "inner", "outer", "outer", "", "open",
        "open", "known", "known", "", "", "",
    ];
    let expected = expected.map(|name| (!name.is_empty()).then(|| name.to_owned()));
    assert_eq!(found, expected);
}

// Check that jumps to functions of elsewhere have the functions' names, however they are written,
// and the first entry none.
#[test]
fn made_jumps() {
    let made = jumps();
    let (late, short) = made.entries.split_at(80);
    let file = program(
        &[0xc3; 1024],
        &[
            MadeSection::code(".plt", CODE_ADDRESS, late.to_vec()),
            MadeSection::code(".plt.got", CODE_ADDRESS + 80, short.to_vec()),
            MadeSection::new(".rela.plt", made.relocations),
            MadeSection::new(".dynsym", made.symbols),
            MadeSection::new(".dynstr", made.strings),
        ],
    );
    let places: Vec<u64> = (0..100).map(|offset| CODE_OFFSET + offset).collect();
    let found = names(own(memory_file(&file).unwrap()), &places);
    for (offset, found) in (0..).zip(found) {
        let (start, name) = JUMPS
            .into_iter()
            .rfind(|(start, _)| *start <= offset)
            .unwrap();
        let name = name.filter(|_| offset < 88);
        let expected = name.map(|name| (name.to_owned(), CODE_ADDRESS + start));
        assert_eq!(found, expected.ok_or(Unnamed::NoSymbolThere), "{offset}");
    }
}

// Check that jumps that a file has no time for leave it alone as too slow, and so do its symbols.
#[test]
fn tables_that_take_too_long() {
    let made = jumps();
    let sections = [
        MadeSection::code(".plt", CODE_ADDRESS, made.entries),
        MadeSection::new(".rela.plt", made.relocations),
    ];
    let file = program(&[0xc3; 1024], &sections);
    for offset in [CODE_OFFSET + 16, CODE_OFFSET + 512] {
        let offset = FileOffset::new(offset);
        let mut names = ElfNames::new();
        names.give_no_time(true);
        let part = own(memory_file(&file).unwrap());
        assert_eq!(
            names.names(part.clone(), FilePlaces::Offsets(&[offset]), MonoNs::ZERO),
            [Err(Unnamed::TooSlow)]
        );
        names.give_no_time(false);
        assert_eq!(
            names.names(part, FilePlaces::Offsets(&[offset]), MonoNs::ZERO),
            [Err(Unnamed::TooSlow)]
        );
    }
}

fn say(sentence: &str) {
    writeln!(std::io::stderr(), "skipped: {sentence}").expect("standard error takes text");
}

/// The C library that this process has.
fn libc_path() -> String {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains("/libc.so")).unwrap();
    line[line.find('/').unwrap()..].to_owned()
}

// Check that functions of this machine's C library have the names that people know, at their first
// byte and at their last.
#[test]
fn known_names_of_the_c_library() {
    let path = libc_path();
    let bytes = fs::read(&path).unwrap();
    let library = object::File::parse(&*bytes).unwrap();
    let mut places = Vec::new();
    for name in [
        "free",
        "malloc",
        "calloc",
        "send",
        "write",
        "read",
        "poll",
        "pthread_mutex_unlock",
        "pthread_mutex_lock",
        "fwrite",
        "fopen",
        "lseek",
        "strtol",
        "getpid",
    ] {
        let mut symbols = library.dynamic_symbols();
        let symbol = symbols.find(|symbol| symbol.name() == Ok(name)).unwrap();
        let segment = library.segments().find(|segment| {
            (segment.address()..segment.address() + segment.size()).contains(&symbol.address())
        });
        let segment = segment.unwrap();
        let offset = symbol.address() - segment.address() + segment.file_range().0;
        places.extend([(name, offset), (name, offset + symbol.size() - 1)]);
    }
    let offsets: Vec<u64> = places.iter().map(|place| place.1).collect();
    let found = names(own(File::open(&path).unwrap()), &offsets);
    for ((name, _), found) in places.iter().zip(found) {
        assert_eq!(found.unwrap().0, *name);
    }
}

// Check that every entry of the procedure linkage tables of this machine's programs has the name
// that objdump gives it.
#[test]
fn jumps_of_programs_as_objdump_has_them() {
    let programs = [
        "/usr/bin/perl",
        "/usr/bin/openssl",
        "/usr/bin/python3",
        "/usr/bin/git",
    ];
    let mut compared = 0;
    for path in programs.map(str::to_owned).into_iter().chain([libc_path()]) {
        let Ok(bytes) = fs::read(&path) else {
            say(&format!("the jumps of {path}, which is not here"));
            continue;
        };
        let Some(truth) = objdump_jumps(&path) else {
            return say("the jumps of programs, since there is no objdump");
        };
        let program = object::File::parse(&*bytes).unwrap();
        let offset_of = |address: u64| {
            let segment = program.segments().find(|segment| {
                (segment.address()..segment.address() + segment.size()).contains(&address)
            });
            segment.map(|segment| address - segment.address() + segment.file_range().0)
        };
        let truth: Vec<(u64, String)> = truth.into_iter().collect();
        let offsets: Vec<u64> = truth
            .iter()
            .map(|(at, _)| offset_of(*at).unwrap() + 3)
            .collect();
        let found = names(own(File::open(&path).unwrap()), &offsets);
        for ((address, name), found) in truth.iter().zip(found) {
            let plain = without_version(name.strip_suffix("@plt").unwrap());
            match plain.strip_prefix("*ABS*+0x") {
                // Chosen when the program is loaded. objdump has where, and no name.
                Some(_) => {
                    let found = found.as_ref().unwrap();
                    assert!(
                        found.0.ends_with("@plt") && found.1 == *address,
                        "{path} {found:?}"
                    );
                }
                None => {
                    let expected = Ok((format!("{}@plt", demangle(plain)), *address));
                    assert_eq!(found, expected, "{path}");
                }
            }
            compared += 1;
        }
    }
    assert!(compared > 40, "{compared}");
}

/// What objdump calls the entries, by address; `None` where there is no objdump.
fn objdump_jumps(path: &str) -> Option<BTreeMap<u64, String>> {
    let sections = [".plt", ".plt.got", ".plt.sec"].map(|name| format!("--section={name}"));
    let mut command = Command::new("objdump");
    let output = command.arg("-d").args(sections).arg(path).output().ok()?;
    let text = String::from_utf8(output.stdout).unwrap();
    let jumps = text.lines().filter_map(|line| {
        let (address, name) = line.strip_suffix(">:")?.split_once(" <")?;
        // What it gives a distance belongs to the entry before.
        let is_entry = name.ends_with("@plt");
        is_entry.then(|| (u64::from_str_radix(address, 16).unwrap(), name.to_owned()))
    });
    Some(jumps.collect())
}
