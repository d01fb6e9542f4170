//! Patterns, and functions of real files.

use std::collections::{BTreeSet, HashMap};
use std::fs::{self, File};

use super::*;
use crate::{
    symbols::elf_made::{self, GLOBAL_FUNCTION, LOCAL_FUNCTION, MadeSymbol},
    sys::memory_file::memory_file,
    unwind::made_files::{CODE_ADDRESS, MadeSection, program},
};

fn pattern(text: &str) -> Pattern {
    text.parse().unwrap()
}

#[test]
fn patterns_are_read() {
    let read = |text: &str| {
        text.parse::<Pattern>()
            .map(|read| (read.module, read.function))
    };
    let parts = |module: &str, function: &str| Ok((module.to_owned(), function.to_owned()));
    assert_eq!(read("libpq.so*:PQexec*"), parts("libpq.so*", "PQexec*"));
    assert_eq!(read("app:ns::Type::call"), parts("app", "ns::Type::call"));
    assert_eq!(read("/bin/app:+0x1f"), parts("/bin/app", "+0x1f"));
    for wrong in ["", ":", "app", "app:", ":main", "ns::main"] {
        assert!(read(wrong).is_err(), "{wrong}");
    }
    assert!(
        read("main")
            .unwrap_err()
            .to_string()
            .contains("MODULE:FUNCTION")
    );
}

#[test]
fn any_text_is_meant_by_a_star() {
    for (pattern, text, expected) in [
        ("main", "main", true),
        ("main", "main2", false),
        ("*", "", true),
        ("a*", "abc", true),
        ("*c", "abc", true),
        ("a*c", "ac", true),
        ("a*c", "abx", false),
        ("a*b*c", "a1b2c", true),
        ("ab*ba", "aba", false),
        ("*b*", "abc", true),
        ("**", "x", true),
    ] {
        assert_eq!(matches(pattern, text), expected, "{pattern} {text}");
    }
}

#[test]
fn names_as_people_type_them() {
    let meant = |function: &str, raw: &str| {
        let readable = demangle(raw);
        pattern(&format!("app:{function}")).is_of_function(raw, &readable, ModuleAddress::new(0x10))
    };
    assert!(meant("parse", "parse.constprop.0"));
    assert!(meant("parse", "parse.isra.0.part.1"));
    assert!(!meant("parse", "parse_all"));
    assert!(meant("memcpy", "memcpy@@GLIBC_2.14"));
    // void ns::work(int, char)
    assert!(meant("ns::work", "_ZN2ns4workEic"));
    assert!(meant("_ZN2ns4workEic", "_ZN2ns4workEic"));
    assert!(meant("+0x10", "anything"));
    assert!(!meant("+0x11", "anything"));
    assert!(pattern("libc.so*:malloc").is_of_module("/usr/lib/libc.so.6"));
    assert!(pattern("/usr/lib/*:malloc").is_of_module("/usr/lib/libc.so.6"));
    assert!(!pattern("libc:malloc").is_of_module("/usr/lib/libc.so.6"));
}

#[inline(never)]
fn profiler_chosen_test_function(depth: u32) -> u32 {
    if depth == 0 {
        return std::hint::black_box(1);
    }
    std::hint::black_box(profiler_chosen_test_function(depth - 1)) + depth
}

fn own_file() -> File {
    File::open(std::env::current_exe().unwrap()).unwrap()
}

#[test]
fn a_function_of_this_program() {
    assert_eq!(profiler_chosen_test_function(3), 7);
    let file = own_file();
    let wanted = pattern("any:*::profiler_chosen_test_*");
    let chosen = choose(&file, &[&wanted]).unwrap();
    let [function] = chosen.as_slice() else {
        panic!("{chosen:?}");
    };
    assert!(function.name.ends_with("::profiler_chosen_test_function"));
    let points = function.points.as_ref().unwrap();
    let exits = points.exits.as_ref().unwrap();
    assert!(!exits.is_empty());
    // The byte at each exit is a return.
    let bytes = fs::read(std::env::current_exe().unwrap()).unwrap();
    for exit in exits {
        let byte = bytes[usize::try_from(exit.offset.get()).unwrap()];
        assert!(
            [0xc3, 0xc2, 0xe9, 0xeb].contains(&byte),
            "{byte:#x} at {exit:?}"
        );
    }
    // By its address as well.
    let by_address = pattern(&format!("any:+{:#x}", function.address));
    assert_eq!(choose(&file, &[&by_address]).unwrap(), chosen);
}

#[test]
fn functions_of_the_c_library() {
    let path = ["/lib/x86_64-linux-gnu/libc.so.6", "/lib64/libc.so.6"];
    let Some(file) = path.iter().find_map(|path| File::open(path).ok()) else {
        panic!("there is no C library at {path:?}");
    };
    let one = |name: &str| {
        let wanted = pattern(&format!("libc:{name}"));
        let mut chosen = choose(&file, &[&wanted]).unwrap();
        assert_eq!(chosen.len(), 1, "{name}: {chosen:?}");
        chosen.remove(0)
    };
    assert!(one("qsort").points.unwrap().exits.is_ok());
    let malloc = one("malloc");
    assert_eq!(malloc.name, "malloc");
    assert!(malloc.points.unwrap().exits.is_ok());
    assert_eq!(one("memmove").points, Err(NotMeasurable::ChosenAtStart));
    let all = pattern("libc:*");
    assert!(matches!(choose(&file, &[&all]), Err(NoChoice::TooMany(count)) if count > 1000));
}

// Check that a symbol that begins within another one's code is refused, which may be within an
// instruction; that Go's functions are known to be of goroutines; and that whatever files say,
// points are where instructions begin.
#[test]
fn functions_within_others_are_refused() {
    let text = [
        0x55, 0x48, 0x89, 0xe5, 0x5d, 0xc3, // push rbp; mov rbp, rsp; pop rbp; ret
        0x31, 0xc0, 0xc3, // xor eax, eax; ret
    ];
    let symbol = |name: u32, address: u64, size: u64| {
        let mut entry = name.to_le_bytes().to_vec();
        // A global function of the first section.
        entry.extend([0x12, 0, 1, 0]);
        entry.extend((CODE_ADDRESS + address).to_le_bytes());
        entry.extend(size.to_le_bytes());
        entry
    };
    let symbols = [symbol(1, 0, 6), symbol(5, 2, 2), symbol(9, 6, 3)].concat();
    let sections = |with_go: bool| {
        let mut sections = vec![
            MadeSection::new(".symtab", symbols.clone()),
            MadeSection::new(".strtab", b"\0one\0two\0a.b\0".to_vec()),
        ];
        if with_go {
            sections.push(MadeSection::new(".gopclntab", vec![0; 16]));
        }
        sections
    };
    let all = pattern("*:*");
    let points = |with_go: bool| {
        let file = memory_file(&program(&text, &sections(with_go))).unwrap();
        fuzzing::check(&file);
        let chosen = choose(&file, &[&all]).unwrap();
        let points = chosen.into_iter().map(|one| (one.name, one.points));
        points.collect::<HashMap<_, _>>()
    };
    let found = points(false);
    assert_eq!(found["one"], Err(NotMeasurable::Overlaps(2)));
    assert_eq!(found["two"], Err(NotMeasurable::Within(2)));
    let of_goroutines = |found: &HashMap<String, Result<ChosenPoints, NotMeasurable>>| {
        let points = found["a.b"].as_ref().unwrap();
        assert_eq!(points.exits.as_ref().unwrap().len(), 1);
        points.goroutines
    };
    assert!(!of_goroutines(&found));
    assert!(of_goroutines(&points(true)));
}

/// An entry of a symbol table: a function of the first section.
fn function_symbol(name: u32, address: u64, size: u64) -> Vec<u8> {
    let mut entry = name.to_le_bytes().to_vec();
    entry.extend([0x12, 0, 1, 0]);
    entry.extend((CODE_ADDRESS + address).to_le_bytes());
    entry.extend(size.to_le_bytes());
    entry
}

// Check that decoding functions takes no more than the time for the file, however few symbols it
// has.
#[test]
fn decoding_ends_with_the_time_for_the_file() {
    const FUNCTIONS: u64 = 200;
    let size = MAX_FUNCTION_BYTES as u64;
    let code = vec![0x50; usize::try_from(FUNCTIONS * size).unwrap()];
    let symbols = (0..FUNCTIONS).flat_map(|number| function_symbol(1, number * size, size));
    let sections = [
        MadeSection::new(".symtab", symbols.collect()),
        MadeSection::new(".strtab", b"\0f\0".to_vec()),
    ];
    let file = memory_file(&program(&code, &sections)).unwrap();
    let all = pattern("*:f");
    let (budget_ns, began_ns) = (50_000_000, crate::sys::clock::thread_ns());
    let chosen = choose_within(&file, &[&all], budget_ns);
    let took_ns = crate::sys::clock::thread_ns() - began_ns;
    assert_eq!(chosen.err(), Some(NoChoice::TooSlow));
    // The function under way is done with.
    assert!(took_ns < 10 * budget_ns, "{took_ns}");
}

/// Exits of the functions that are meant, from the first byte of the code.
fn exits_of(
    code: &[u8],
    symbols: &[MadeSymbol<'_>],
    meant: &str,
) -> Vec<Result<Vec<u64>, NoExits>> {
    let symbols = symbols.iter().map(|(name, binding, address, size)| {
        let address = CODE_ADDRESS + address;
        (*name, *binding, address, *size)
    });
    let (table, strings) = elf_made::table(&symbols.collect::<Vec<_>>());
    let sections = [
        MadeSection::new(".symtab", table),
        MadeSection::new(".strtab", strings),
    ];
    let file = memory_file(&program(code, &sections)).unwrap();
    fuzzing::check(&file);
    let chosen = choose(&file, &[&pattern(meant)]).unwrap().into_iter();
    let exits = chosen.map(|one| {
        one.points.unwrap().exits.map(|exits| {
            let at = exits.iter().map(|exit| exit.offset.get() - 0x1000);
            at.collect::<BTreeSet<_>>().into_iter().collect()
        })
    });
    exits.collect()
}

/// Two functions of nine bytes that each jump to a part of three, at 20 and at 23: test edi, edi;
/// jne to the part; ret. The parts: xor eax, eax; ret.
const WITH_PARTS: [u8; 26] = [
    0x85, 0xff, 0x0f, 0x85, 12, 0, 0, 0, 0xc3, // to 20
    0x85, 0xff, 0x0f, 0x85, 6, 0, 0, 0, 0xc3, // to 23
    0x90, 0x90, 0x31, 0xc0, 0xc3, 0x31, 0xc0, 0xc3,
];

// Check that of two functions of one name each has the code apart that it leads into, also where
// one alone is meant; and that calls of both are counted only where their code does not tell.
#[test]
fn functions_of_one_name_have_their_own_parts() {
    let symbols = [
        ("get", LOCAL_FUNCTION, 0, 9),
        ("get.cold", LOCAL_FUNCTION, 20, 3),
        ("get", LOCAL_FUNCTION, 9, 9),
        ("get.cold", LOCAL_FUNCTION, 23, 3),
    ];
    let own = [Ok(vec![8, 22]), Ok(vec![17, 25])];
    assert_eq!(exits_of(&WITH_PARTS, &symbols, "*:get"), own);
    for (address, own) in ["0x401000", "0x401009"].into_iter().zip(own) {
        let meant = format!("*:+{address}");
        assert_eq!(exits_of(&WITH_PARTS, &symbols, &meant), [own]);
    }
    // Both lead into the first.
    let mut both = WITH_PARTS;
    both[13] = 3;
    let shared = [Err(NoExits::SharedPart), Err(NoExits::SharedPart)];
    assert_eq!(exits_of(&both, &symbols, "*:get"), shared);
    // By a call rather than a jump: nop; call; test edi, edi in place of the first test and jne.
    let mut calls = WITH_PARTS;
    calls[..8].copy_from_slice(&[0x90, 0xe8, 14, 0, 0, 0, 0x85, 0xff]);
    let own = [Ok(vec![8, 22]), Ok(vec![17, 25])];
    assert_eq!(exits_of(&calls, &symbols, "*:get"), own);
}

// Check that code apart has any of the names of its function, whichever of them was meant.
#[test]
fn parts_are_found_by_every_name() {
    let symbols = [
        ("impl.cold", LOCAL_FUNCTION, 20, 3),
        ("impl", LOCAL_FUNCTION, 0, 9),
        ("api", GLOBAL_FUNCTION, 0, 9),
    ];
    for meant in ["*:api", "*:impl", "*:+0x401000"] {
        assert_eq!(exits_of(&WITH_PARTS, &symbols, meant), [Ok(vec![8, 22])]);
    }
}

// Check that code apart that has the names of two functions is of the one that leads into it; and
// that calls of both are counted only where neither does.
#[test]
fn a_part_is_of_one_function() {
    let symbols = [
        ("one", GLOBAL_FUNCTION, 0, 9),
        ("two", GLOBAL_FUNCTION, 9, 9),
        ("one.cold", LOCAL_FUNCTION, 23, 3),
        ("two.cold", LOCAL_FUNCTION, 23, 3),
    ];
    let mut code = WITH_PARTS;
    // ret in place of what the first begins with.
    code[2..9].fill(0xc3);
    let exits = exits_of(&code, &symbols, "*:*");
    assert_eq!(exits[1], Ok(vec![17, 25]));
    assert!(exits[0].as_ref().is_ok_and(|exits| !exits.contains(&25)));
    code[11..18].fill(0xc3);
    let shared = [Err(NoExits::SharedPart), Err(NoExits::SharedPart)];
    assert_eq!(exits_of(&code, &symbols, "*:*"), shared);
}

// Check that calls of a function with more code apart than is looked at are counted only.
#[test]
fn too_many_parts_are_none() {
    let mut symbols = vec![("get", LOCAL_FUNCTION, 0, 9)];
    let mut code = WITH_PARTS.to_vec();
    for part in 0..17 {
        symbols.push(("get.cold", LOCAL_FUNCTION, 20 + part * 3, 3));
        code.extend([0x31, 0xc0, 0xc3]);
    }
    assert_eq!(exits_of(&code, &symbols, "*:get"), [Err(NoExits::Part)]);
    symbols.pop();
    assert!(exits_of(&code, &symbols, "*:get")[0].is_ok());
}

#[test]
fn damaged_files() {
    let image = fs::read(std::env::current_exe().unwrap()).unwrap();
    let wanted = pattern("any:*::profiler_chosen_test_*");
    let copy = tempfile::NamedTempFile::new().unwrap();
    let mut random = 0x9e37_79b9_7f4a_7c15_u64;
    for _ in 0..20 {
        let mut damaged = image.clone();
        // The headers, where a change matters.
        for _ in 0..8 {
            random = random
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1);
            let at = (random >> 33) as usize % 0x400;
            damaged[at] ^= (random >> 20) as u8;
        }
        fs::write(copy.path(), &damaged).unwrap();
        let file = File::open(copy.path()).unwrap();
        if let Ok(chosen) = choose(&file, &[&wanted]) {
            assert!(chosen.len() <= 1);
        }
    }
    fs::write(copy.path(), b"#!/bin/sh\n").unwrap();
    let file = File::open(copy.path()).unwrap();
    assert_eq!(choose(&file, &[&wanted]), Err(NoChoice::NoProgram));
}
