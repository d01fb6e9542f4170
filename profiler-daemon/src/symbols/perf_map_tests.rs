//! Tests of `perf_map`: what its lines mean, and files made to be expensive.

use super::*;
use proptest::prelude::*;

fn name(map: &Map, address: u64) -> Option<String> {
    let function = map.find(VirtualAddress::new(address));
    function.map(|function| function.name.to_string())
}

#[test]
fn later_lines_hold_and_nonsense_is_passed_over() {
    // Check names with spaces, prefixed numbers, an overlap in the middle, bad lines, and a last
    // line without its end.
    let map = Map::parse(
        b"1000 100 LazyCompile:*outer /app/main.js:1\n\
          not a line\n\
          zz 10 bad\n\
          1040 0 empty\n\
          ffffffffffffffff 10 beyond\n\
          0x1040 0x20 inner\x1b[31m\n\
          3000 10\n\
          2000 10 last"
            .to_vec(),
    );
    assert_eq!(
        name(&map, 0x1000).as_deref(),
        Some("LazyCompile:*outer /app/main.js:1")
    );
    assert_eq!(name(&map, 0x105f).as_deref(), Some("inner\u{fffd}[31m"));
    assert_eq!(
        map.find(VirtualAddress::new(0x1060))
            .map(|function| function.address),
        Some(Some(ModuleAddress::new(0x1000)))
    );
    assert_eq!(name(&map, 0x200f).as_deref(), Some("last"));
    for nowhere in [0xfff, 0x1100, 0x2010, 0x3000, u64::MAX] {
        assert_eq!(name(&map, nowhere), None, "{nowhere:x}");
    }
}

// Check that a file of as many functions as it has room for, under lines that each cover all of
// them, takes a bounded number of functions and pieces; visiting each piece for each line would
// take days.
#[test]
fn many_small_functions_under_many_large_ones() {
    use std::fmt::Write as _;
    let mut text = String::new();
    for function in 0..MAX_FUNCTIONS / 2 {
        writeln!(text, "{:x} 1 s", function * 2).unwrap();
    }
    text.push_str(&"0 4000000 a\n".repeat(MAX_FUNCTIONS / 2));
    assert!(text.len() < usize::try_from(MAX_FILE_BYTES).unwrap());
    let map = Map::parse(text.into_bytes());
    assert_eq!((map.functions.len(), map.cut), (MAX_FUNCTIONS, false));
    assert!(map.bounds.len() <= 2 * MAX_FUNCTIONS && map.owners.len() == map.bounds.len());
    assert!(map.held_bytes() <= usize::try_from(MAX_FILE_BYTES).unwrap() + 48 * MAX_FUNCTIONS);
    for address in [0, 1, 0x3ff_ffff] {
        assert_eq!(name(&map, address).as_deref(), Some("a"), "{address:x}");
    }
    assert_eq!(name(&map, 0x400_0000), None);
}

// Check that a large function over small ones that were written later is not cut into more pieces
// than there is room for, and that of too many functions those written last stay.
#[test]
fn a_large_function_with_many_holes() {
    use std::fmt::Write as _;
    let mut text = String::from("0 4000000 a\n");
    for function in 0..MAX_FUNCTIONS {
        writeln!(text, "{:x} 1 s", function * 2).unwrap();
    }
    let map = Map::parse(text.clone().into_bytes());
    assert_eq!((map.functions.len(), map.cut), (MAX_FUNCTIONS, true));
    assert_eq!((name(&map, 2).as_deref(), name(&map, 3)), (Some("s"), None));
    // Of three more it is the last.
    text.insert_str(0, "5000000 1 b\n");
    let begin = text.find("0 1 s\n").unwrap();
    text.replace_range(begin..begin + 6, "");
    let map = Map::parse(text.into_bytes());
    assert_eq!((map.functions.len(), map.cut), (MAX_FUNCTIONS, true));
    assert_eq!(name(&map, 3).as_deref(), Some("a"));
    assert_eq!(name(&map, 0x500_0000), None);
    assert!(map.bounds.len() <= 2 * MAX_FUNCTIONS);
}

// Check that files that take much memory are not kept together, and that one that was cut is
// counted.
#[test]
fn large_files_go() {
    let line = format!("1000 10 {}\n", "x".repeat(1000));
    let text = line.repeat(usize::try_from(MAX_FILE_BYTES).unwrap() / line.len() + 1);
    let mut maps = PerfMaps::default();
    for number in 0..3 {
        let mut file = tempfile::tempfile().unwrap();
        std::io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        let file = Arc::new(ModuleFile {
            module: ModuleId(10 + number),
            file,
            identity: crate::processes::module::FileIdentity {
                device: 0,
                inode: 0,
                size_bytes: 0,
                modified_unix_ns: 0,
            },
        });
        let (places, now_ns) = ([0x1000, 0x1010], MonoNs::new(number));
        assert!(maps.look_again(&file, now_ns));
        let names = maps.names(&file, &places.map(VirtualAddress::new), now_ns);
        assert!(names[0].is_ok() && names[1].is_err());
    }
    let held: usize = maps.loaded.values().map(|each| each.map.held_bytes()).sum();
    assert!(held <= MAX_LOADED_BYTES && maps.loaded.contains_key(&ModuleId(12)));
    assert_eq!(maps.cut(), 3);
}

// Check that of files beyond those that are remembered names are found anew, and that nothing is
// remembered of more.
#[test]
fn no_more_files_are_remembered_than_may_be() {
    let file = tempfile::tempfile().unwrap();
    let mut maps = PerfMaps::default();
    let mut look = |number: usize, now_ns: u64| {
        let file = ModuleFile {
            module: ModuleId(number as u64),
            file: file.try_clone().unwrap(),
            identity: crate::processes::module::FileIdentity {
                device: 0,
                inode: 0,
                size_bytes: 0,
                modified_unix_ns: 0,
            },
        };
        let is_new = maps.look_again(&file, MonoNs::new(now_ns));
        (is_new, maps.known.len())
    };
    for number in 0..MAX_KNOWN {
        assert_eq!(look(number, number as u64), (true, number + 1));
    }
    assert_eq!(look(MAX_KNOWN, AGAIN_NS), (true, MAX_KNOWN));
    assert_eq!(look(1, 2 * AGAIN_NS), (false, MAX_KNOWN));
    assert_eq!(look(0, 2 * AGAIN_NS), (true, MAX_KNOWN));
}

proptest! {
    // Check against a linear look from the end, for any overlaps.
    #[test]
    fn as_a_linear_look(lines in prop::collection::vec((0..200_u64, 1..50_u64), 0..40), address in 0..260_u64) {
        let text: String = lines.iter().enumerate().map(|(index, (start, size))| format!("{start:x} {size:x} f{index}\n")).collect();
        let map = Map::parse(text.into_bytes());
        let linear = lines.iter().rposition(|(start, size)| (*start..start + size).contains(&address));
        prop_assert_eq!(name(&map, address), linear.map(|index| format!("f{index}")));
    }

    // Check that no bytes break the reader.
    #[test]
    fn any_bytes(text in prop::collection::vec(any::<u8>(), 0..400), address in any::<u64>()) {
        let map = Map::parse(text);
        let found = map.find(VirtualAddress::new(address));
        prop_assert!(found.is_none_or(|function| function.name.len() <= 3 * MAX_NAME_BYTES));
    }
}
