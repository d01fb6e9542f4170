//! Tests of the symbolizer with this process's own program, libraries, vDSO and kernel.

use std::{
    fs,
    os::unix::fs::{FileExt as _, MetadataExt as _},
};

use super::*;
use crate::{
    processes::{
        live::{ProcessOptions, Processes},
        mappings::Place,
        module::{FileIdentity, Module},
        source::ProcFs,
    },
    symbols::names::FunctionKind,
    units::BootNs,
    units::VirtualAddress,
};

const PATIENCE: Duration = Duration::from_secs(60);

/// All names, in order.
fn resolve(worker: &mut NameWorker, requests: &[Request], now_ns: u64) -> Vec<Named> {
    let mut names = vec![None; requests.len()];
    let until = Instant::now() + PATIENCE;
    worker.resolve(requests, MonoNs::new(now_ns), until, &mut |several| {
        for (index, named) in several {
            names[index] = Some(named);
        }
    });
    names.into_iter().map(Option::unwrap).collect()
}

/// This process, and where its own addresses are.
struct Own {
    processes: Processes,
    key: crate::processes::ids::ProcessKey,
}

impl Own {
    fn new() -> Self {
        let options = ProcessOptions {
            cmdline: false,
            open_files: 100,
        };
        let clocks = clock::ClockOffsets::now();
        let mut processes = Processes::new(Box::new(ProcFs), options, clocks);
        let pid = std::process::id();
        let ticks = crate::sys::proc_fs::stat(pid).unwrap().start_ticks;
        let start_ns = BootNs::new(ticks * crate::processes::ids::START_TICK_NS);
        let key = processes.link(pid, clocks.monotonic_from_boot(start_ns), start_ns);
        Self { processes, key }
    }

    fn request(&mut self, address: usize) -> Request {
        let place = self
            .processes
            .resolve(
                self.key,
                clock::monotonic_ns(),
                VirtualAddress::new(address as u64),
            )
            .unwrap();
        Request {
            place,
            module: self.processes.modules().share(place.module),
            file: self.processes.file(place.module),
            seen: self.processes.seen(place.module),
        }
    }
}

fn worker() -> NameWorker {
    NameWorker::new(
        SymbolOptions::default(),
        Heartbeat::new("symbols", LONGEST_PIECE),
    )
}

fn name(worker: &mut NameWorker, request: Request) -> Named {
    resolve(worker, &[request], 1).pop().unwrap()
}

#[inline(never)]
fn a_function_of_this_test() -> usize {
    std::hint::black_box(17)
}

fn file_request(path: &std::path::Path, offset: u64) -> Request {
    let file = fs::File::open(path).unwrap();
    let metadata = file.metadata().unwrap();
    let identity = FileIdentity {
        device: metadata.dev(),
        inode: metadata.ino(),
        size_bytes: metadata.size(),
        modified_unix_ns: 0,
    };
    let module = ModuleId(9);
    Request {
        place: Place {
            module,
            offset: ModuleOffset::new(offset),
        },
        module: Arc::new(Module::named("/x/broken.so", ModuleKind::User)),
        file: Some(Arc::new(ModuleFile {
            module,
            file,
            identity,
        })),
        seen: None,
    }
}

// Check that an address of this process becomes its Rust name without hash, through process,
// module, file and offset.
#[test]
fn own_function() {
    assert_eq!(a_function_of_this_test(), 17);
    let mut own = Own::new();
    let request = own.request(a_function_of_this_test as fn() -> usize as usize);
    let named = name(&mut worker(), request);
    assert!(
        named
            .function
            .name
            .ends_with("symbolizer::tests::a_function_of_this_test"),
        "{named:?}"
    );
    assert!(
        named.function.known && named.function.kind == FunctionKind::User && named.reason.is_none()
    );
}

// Check that a function of the C library is named, and two places in it share one function.
#[test]
fn library_function() {
    let mut own = Own::new();
    let mut worker = worker();
    let requests: Vec<_> = [0, 1]
        .map(|step| own.request(libc::getrlimit as *const () as usize + step))
        .into();
    let names = resolve(&mut worker, &requests, 1);
    assert!(names[0].function.name.contains("getrlimit"), "{names:?}");
    assert!(Arc::ptr_eq(&names[0].function, &names[1].function));
    assert_eq!(resolve(&mut worker, &requests, 2), names);
    assert_eq!((worker.counts.requests, worker.counts.hits), (4, 2));
}

// Check that the vDSO, which is no file, has names.
#[test]
fn vdso_function() {
    let mut own = Own::new();
    let maps = crate::sys::proc_fs::exec_maps(std::process::id(), 10_000).unwrap();
    let mut entries = maps.entries.iter();
    let vdso = entries.find(|entry| &*entry.path == b"[vdso]").unwrap();
    let mut worker = worker();
    let mut found = Vec::new();
    for step in (0..0x2000).step_by(16) {
        let named = name(
            &mut worker,
            own.request(usize::try_from(vdso.start.get()).unwrap() + step),
        );
        if named.function.known {
            found.push(named.function.name.clone());
        }
    }
    assert!(
        found.iter().any(|name| name.contains("clock_gettime")),
        "{found:?}"
    );
}

// Check that kernel addresses become kernel functions, with the module where they are in one, or
// say that they are hidden.
#[test]
fn kernel_function() {
    let table = fs::read_to_string("/proc/kallsyms").unwrap();
    let line = table
        .lines()
        .find(|line| line.ends_with(" T schedule"))
        .unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    let request = Request {
        place: Place {
            module: ModuleId::KERNEL,
            offset: ModuleOffset::new(address + 4),
        },
        module: Arc::new(Module::named("[kernel]", ModuleKind::Kernel)),
        file: None,
        seen: None,
    };
    let named = name(&mut worker(), request);
    if address == 0 {
        assert_eq!(named.reason, Some(Unnamed::Restricted));
    } else {
        assert_eq!(
            (&*named.function.name, named.function.address),
            ("schedule", Some(ModuleAddress::new(address)))
        );
        assert_eq!(named.function.kind, FunctionKind::Kernel);
    }
}

// Check that a deleted program still has names, through the descriptor kept open.
#[test]
fn deleted_file() {
    let directory = tempfile::tempdir().unwrap();
    let copy = directory.path().join("copy");
    fs::copy(std::env::current_exe().unwrap(), &copy).unwrap();
    let mut own = Own::new();
    let offset = own
        .request(a_function_of_this_test as fn() -> usize as usize)
        .place
        .offset;
    let request = file_request(&copy, offset.get());
    fs::remove_file(&copy).unwrap();
    let named = name(&mut worker(), request);
    assert!(
        named.function.name.ends_with("a_function_of_this_test"),
        "{named:?}"
    );
}

// Check that files that are no programs, cut ones, and ones that shrank say why they give no name,
// and keep the offset.
#[test]
fn broken_files() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("broken");
    let mut worker = worker();
    fs::write(&path, "no program at all").unwrap();
    let named = name(&mut worker, file_request(&path, 0x10));
    assert_eq!(
        (named.reason, &*named.function.name),
        (Some(Unnamed::Unreadable), "broken.so+0x10")
    );
    let mut request = file_request(&path, 0x20);
    let grown = Arc::get_mut(request.file.as_mut().unwrap()).unwrap();
    grown.identity.size_bytes += 1;
    assert_eq!(name(&mut worker, request).reason, Some(Unnamed::NoFile));
    let exe = fs::read(std::env::current_exe().unwrap()).unwrap();
    for keep in [64, 1000, exe.len() / 2, exe.len() - 100] {
        let mut worker = NameWorker::new(
            SymbolOptions::default(),
            Heartbeat::new("symbols", LONGEST_PIECE),
        );
        fs::write(&path, &exe[..keep]).unwrap();
        let named = name(&mut worker, file_request(&path, 0x2000));
        assert!(
            named.reason.is_some_and(|reason| reason != Unnamed::NoFile),
            "{keep} {named:?}"
        );
    }
}

// Check that a program with bytes overwritten in its headers and tables never takes the thread
// down.
#[test]
fn damaged_headers() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("damaged");
    let libc = crate::sys::proc_fs::exec_maps(std::process::id(), 100).unwrap();
    let libc = libc
        .entries
        .iter()
        .find(|entry| entry.path.windows(5).any(|part| part == b"libc."))
        .unwrap();
    let good = fs::read(std::str::from_utf8(&libc.path).unwrap()).unwrap();
    let tables = usize::try_from(u64::from_le_bytes(good[40..48].try_into().unwrap())).unwrap();
    let mut seed = 1_u64;
    let mut next = |below: usize| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(seed >> 33).unwrap() % below
    };
    let mut answers = 0;
    for _ in 0..40 {
        fs::write(&path, &good).unwrap();
        let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
        for _ in 0..8 {
            let at = if next(2) == 0 {
                next(1024)
            } else {
                tables + next(good.len() - tables)
            };
            file.write_all_at(&[u8::try_from(next(256)).unwrap()], at.max(6) as u64)
                .unwrap();
        }
        let named = name(
            &mut worker(),
            file_request(&path, (libc.file_offset + 0x1000).get()),
        );
        assert!(!named.function.name.is_empty());
        answers += 1;
    }
    assert_eq!(answers, 40);
}

// Check that a sparse file whose symbol table claims more symbols than any machine has memory for
// gives no name, and neither ends the process nor keeps the thread from naming what follows.
#[test]
fn endless_symbol_table() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("endless");
    let image = fs::read(std::env::current_exe().unwrap()).unwrap();
    let long_at = |at: usize| u64::from_le_bytes(image[at..at + 8].try_into().unwrap());
    let sections_at = usize::try_from(long_at(40)).unwrap();
    let symbol_table = (sections_at..image.len())
        .step_by(64)
        .find(|at| image[at + 4..at + 8] == 2_u32.to_le_bytes())
        .unwrap();
    fs::write(&path, &image).unwrap();
    let file = fs::OpenOptions::new().write(true).open(&path).unwrap();
    file.set_len(1 << 43).unwrap();
    let endless = (1_u64 << 43) - long_at(symbol_table + 24);
    file.write_all_at(&(endless / 24 * 24).to_le_bytes(), symbol_table as u64 + 32)
        .unwrap();
    let mut worker = worker();
    let named = name(&mut worker, file_request(&path, 0x2000));
    assert_eq!(named.reason, Some(Unnamed::Unreadable));
    let known = Own::new().request(libc::getrlimit as *const () as usize);
    assert!(name(&mut worker, known).function.known);
}

// Check that idle files are unloaded, and that a name is found again afterwards.
#[test]
fn unloads_idle_files() {
    let mut own = Own::new();
    let mut worker = worker();
    let first = own.request(libc::getrlimit as *const () as usize);
    let second = own.request(libc::getrlimit as *const () as usize + 1);
    let now_ns = 1_000_000_000_000;
    let named = resolve(&mut worker, &[first], now_ns);
    worker.elf.unload(MonoNs::new(now_ns + 1_000_000_000));
    assert_eq!(worker.elf.loaded(), 1);
    worker.elf.unload(MonoNs::new(now_ns + 60_000_000_000));
    assert_eq!(worker.elf.loaded(), 0);
    assert_eq!(resolve(&mut worker, &[second], now_ns), named);
}

// Check that a file whose tables are larger than the room for them is unloaded after the answer,
// and read again for the next.
#[test]
fn unloads_large_files() {
    let mut own = Own::new();
    let mut worker = worker();
    worker.elf = ElfNames::with_room(1_000);
    let first = own.request(libc::getrlimit as *const () as usize);
    let second = own.request(libc::getrlimit as *const () as usize + 1);
    let named = resolve(&mut worker, &[first], 1);
    assert!(named[0].function.known);
    assert_eq!(worker.elf.loaded(), 0);
    assert_eq!(resolve(&mut worker, &[second], 2), named);
}

// Check that an answer over several modules does not have the tables of all loaded, when there is
// room for those of one.
#[test]
fn unloads_between_modules() {
    let mut own = Own::new();
    let mut worker = worker();
    let library = own.request(libc::getrlimit as *const () as usize);
    let room_bytes =
        crate::elf::symbol_tables::bytes_of(&library.file.as_ref().unwrap().file).unwrap();
    worker.elf = ElfNames::with_room(room_bytes);
    let copies = (100..103).map(|number| {
        let mut request = library.clone();
        let file = request.file.as_ref().unwrap();
        let file = ModuleFile {
            module: ModuleId(number),
            file: file.file.try_clone().unwrap(),
            identity: file.identity,
        };
        request.place.module = file.module;
        request.file = Some(Arc::new(file));
        request
    });
    let names = resolve(&mut worker, &copies.collect::<Vec<_>>(), 1);
    assert!(names.iter().all(|named| named.function.known), "{names:?}");
    assert!(worker.elf.loaded() <= 1);
}

// Check that the thread answers in the order asked, fills a table, and counts what it could not
// name.
#[test]
fn thread_answers() {
    let symbolizer = Symbolizer::spawn(SymbolOptions::default()).unwrap();
    let mut own = Own::new();
    let known = own.request(libc::getrlimit as *const () as usize);
    let jit = Request {
        place: Place {
            module: ModuleId::JIT,
            offset: ModuleOffset::new(0x1234),
        },
        module: own.processes.modules().share(ModuleId::JIT),
        file: None,
        seen: None,
    };
    let names = symbolizer.names(vec![jit, known.clone()], PATIENCE);
    assert_eq!(&*names[0].function.name, "[jit]");
    assert!(names[1].function.known);
    // The thread publishes its counts after each answer, so those of the first are there with the
    // second.
    drop(symbolizer.names(vec![known], PATIENCE));
    let counts = symbolizer.counts();
    assert!(
        counts.requests >= 2 && counts.unnamed[Unnamed::Jit as usize] == 1,
        "{counts:?}"
    );
}

// Check that whoever does not wait is told that names are pending, and that they are there for
// whoever asks again; and that no file is looked at once a question's time is over.
#[test]
fn names_that_are_not_there_in_time() {
    let symbolizer = Symbolizer::spawn(SymbolOptions::default()).unwrap();
    let mut own = Own::new();
    let known = own.request(libc::getrlimit as *const () as usize);
    let one = |patience| symbolizer.names(vec![known.clone()], patience).remove(0);
    let early = one(Duration::ZERO);
    // The thread may be quicker than whoever does not wait.
    match early.reason {
        None => assert!(early.function.known),
        reason => {
            assert_eq!(reason, Some(Unnamed::Pending));
            assert_eq!(symbolizer.counts().unnamed[Unnamed::Pending as usize], 1);
            assert!(early.function.name.contains("+0x"));
        }
    }
    assert!(one(PATIENCE).function.known);
    let mut told = 0;
    let mut worker = worker();
    worker.resolve(&[known], MonoNs::new(1), Instant::now(), &mut |several| {
        told += several.len()
    });
    assert_eq!(told, 0);
}

// Check that a file whose names take longer than its time is given up and left alone from then on,
// that its places say so and count, and that other files have their names.
#[test]
fn a_file_that_takes_too_long() {
    let (mut worker, mut own) = (worker(), Own::new());
    let places = [
        a_function_of_this_test as *const () as usize,
        library_function as *const () as usize,
    ];
    let [first, second] = places.map(|address| own.request(address));
    assert_eq!(first.place.module, second.place.module);
    worker.elf.give_no_time(true);
    let given_up = name(&mut worker, first);
    assert_eq!(given_up.reason, Some(Unnamed::TooSlow));
    assert!(given_up.function.name.contains("+0x"));
    worker.elf.give_no_time(false);
    let left_alone = name(&mut worker, second);
    assert_eq!(left_alone.reason, Some(Unnamed::TooSlow));
    let other = own.request(libc::getrlimit as *const () as usize);
    assert!(name(&mut worker, other).function.known);
    assert_eq!(worker.counts().unnamed[Unnamed::TooSlow as usize], 2);
}

// Check that a function of a stripped file is named once its debug file is there, though it had no
// name before: after a minute.
#[test]
fn a_debug_file_that_comes_later() {
    let folder = tempfile::tempdir().unwrap();
    let source = "static int __attribute__((noinline)) hidden(int n) { return n * 3; }\nint shown(int n) { return hidden(n) + hidden(n + 1); }\n";
    fs::write(folder.path().join("lib.c"), source).unwrap();
    let run = |program: &str, arguments: &[&str]| {
        let mut command = std::process::Command::new(program);
        let output = command
            .args(arguments)
            .current_dir(folder.path())
            .output()
            .ok()?;
        assert!(output.status.success(), "{program} {arguments:?}");
        Some(String::from_utf8(output.stdout).unwrap())
    };
    let flags = [
        "-O1",
        "-shared",
        "-nostdlib",
        "-fPIC",
        "-o",
        "lib.so",
        "lib.c",
    ];
    run("cc", &flags).expect("a C compiler, which the tests need anyway");
    let names = run("nm", &["lib.so"]).unwrap();
    let line = names
        .lines()
        .find(|line| line.ends_with(" t hidden"))
        .unwrap();
    let address = u64::from_str_radix(line.split(' ').next().unwrap(), 16).unwrap();
    run("objcopy", &["--only-keep-debug", "lib.so", "lib.debug"]).unwrap();
    let link = "--add-gnu-debuglink=lib.debug";
    run("objcopy", &["--strip-all", link, "lib.so", "stripped.so"]).unwrap();
    let away = folder.path().join("away");
    let here = folder.path().join("lib.debug");
    fs::rename(&here, &away).unwrap();
    // Code of so small a library stands in the file where it stands in memory.
    let stripped = folder.path().join("stripped.so");
    let mut request = file_request(&stripped, address);
    request.module = Arc::new(Module::named(stripped.to_str().unwrap(), ModuleKind::User));
    let mut worker = worker();
    let mut named_at = |now_ns| {
        let named = resolve(&mut worker, std::slice::from_ref(&request), now_ns).remove(0);
        named.function.name.to_string()
    };
    let (before, minute_ns) = (named_at(1), 60_000_000_000);
    assert_ne!(before, "hidden");
    fs::rename(&away, &here).unwrap();
    assert_eq!(named_at(minute_ns), before);
    assert_eq!(named_at(minute_ns + 1), "hidden");
}

// Check that code made at run time has the name that was written last for its address, also where
// an earlier one was told before: for what was told once, and for what is asked for the first time.
// Names are remembered as long as nothing is written, and are there once the file is loaded no
// more.
#[test]
fn code_made_where_other_code_was() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("perf-7.map");
    let write = |text: &str| {
        let mut options = fs::OpenOptions::new();
        let mut file = options.append(true).create(true).open(&path).unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
    };
    write("1000 100 first\n");
    let request = |offset| {
        let mut request = file_request(&path, offset);
        request.module = Arc::new(Module::named("[jit] /tmp/perf-7.map", ModuleKind::Jit));
        request
    };
    let requests = [request(0x1010), request(0x1050), request(0x2000)];
    let mut worker = worker();
    let seconds = |count: u64| count * 1_000_000_000;
    let names = |worker: &mut NameWorker, of: &[Request], now_s| -> Vec<String> {
        let names = resolve(worker, of, seconds(now_s)).into_iter();
        names.map(|named| named.function.name.to_string()).collect()
    };
    let nameless = "[jit] /tmp/perf-7.map";
    assert_eq!(names(&mut worker, &requests[..1], 1), ["first"]);
    write("1040 20 second\n");
    // Too soon: what was written is not read yet, not for new places either.
    assert_eq!(
        names(&mut worker, &requests, 2),
        ["first", "first", nameless]
    );
    assert_eq!(
        names(&mut worker, &requests, 4),
        ["first", "second", nameless]
    );
    write("1000 10 third\n1010 10 fourth\n2000 1 fifth\n");
    worker.unload(MonoNs::new(seconds(100)));
    assert_eq!(names(&mut worker, &requests[1..], 101), ["second", "fifth"]);
    assert_eq!(
        names(&mut worker, &requests, 102),
        ["fourth", "second", "fifth"]
    );
    let (hits, evicted) = (worker.counts.hits, worker.cache.evicted());
    worker.unload(MonoNs::new(seconds(200)));
    assert_eq!(
        names(&mut worker, &requests, 201),
        ["fourth", "second", "fifth"]
    );
    assert_eq!(
        (worker.counts.hits, worker.cache.evicted()),
        (hits + 3, evicted)
    );
}
