//! What is chosen of files, and what is left out.

use super::*;
use crate::sys::memory_file::memory_file;

fn junk(path: &str) -> CodeFile {
    CodeFile::made_up(path, memory_file(b"no program").unwrap())
}

fn chooser(patterns: &[&str], budget_ns: u64) -> Chooser {
    let patterns = patterns.iter().map(|pattern| pattern.parse().unwrap());
    Chooser::new(patterns.collect(), Exits::None, budget_ns)
}

/// What is chosen of a file.
fn of(chooser: &mut Chooser, module: &CodeFile) -> MoreFunctions {
    let mut more = MoreFunctions::default();
    chooser.choose(module, &mut more).unwrap();
    more
}

// Check that a file that the whole time of a look is not enough for is refused and left alone,
// and that one that had only a part of it is looked at again.
#[test]
fn looking_takes_no_more_than_it_may() {
    let pattern = "app:*sought_by_tests";
    let own = CodeFile::own("/usr/bin/app");
    let mut slow = chooser(&[pattern], 0);
    let refused = of(&mut slow, &own).refused;
    assert_eq!(
        (refused[0].module.as_str(), refused[0].why.as_str()),
        ("/usr/bin/app", "looking through its symbols takes too long")
    );
    slow.allow(u64::MAX);
    let again = of(&mut slow, &own);
    assert!(again.functions.is_empty() && again.refused.is_empty());
    let mut late = chooser(&[pattern], u64::MAX);
    late.time = LookTime::spent(u64::MAX);
    let mut more = MoreFunctions::default();
    assert_eq!(late.choose(&own, &mut more), Err(PutOff));
    assert!(more.refused.is_empty() && late.take_failure().is_none());
    late.allow(u64::MAX);
    assert!(!of(&mut late, &own).functions.is_empty());
}

// Check that a file that is no program is a refused row, or nothing where the pattern means any
// file, beside functions of others; and that it is a failure only where its path was given and
// the function is nowhere else.
#[test]
fn what_is_no_program_is_left_out() {
    let function = "*sought_by_tests";
    let pattern = format!("app:{function}");
    let mut by_name = chooser(&[&pattern], u64::MAX);
    let refused = of(&mut by_name, &junk("/tmp/app")).refused;
    assert_eq!(refused.len(), 1);
    assert_eq!(
        (refused[0].name.as_str(), refused[0].module.as_str()),
        (pattern.as_str(), "/tmp/app")
    );
    assert!(refused[0].why.contains("no 64-bit program"));
    assert!(by_name.take_failure().is_none() && by_name.missing().len() == 1);
    let own = of(&mut by_name, &CodeFile::own("/usr/bin/app"));
    assert!(!own.functions.is_empty() && by_name.missing().is_empty());

    let mut of_any = chooser(&[&format!("*:{function}")], u64::MAX);
    assert!(of(&mut of_any, &junk("/tmp/app")).refused.is_empty());

    let pattern = format!("/usr/bin/app:{function}");
    let mut by_path = chooser(&[&pattern], u64::MAX);
    assert_eq!(of(&mut by_path, &junk("/usr/bin/app")).refused.len(), 1);
    let failure = by_path.take_failure().unwrap();
    assert!(
        matches!(failure, NotChosen::File(path, NoChoice::NoProgram) if path == "/usr/bin/app")
    );
    // The same path elsewhere, in a container say.
    let mut elsewhere = chooser(&[&pattern], u64::MAX);
    of(&mut elsewhere, &junk("/usr/bin/app"));
    of(&mut elsewhere, &CodeFile::own("/usr/bin/app"));
    assert!(elsewhere.take_failure().is_none());
}

// Check that a file with more functions than may be is left out whole, with the number, and
// that it is a failure where nothing else is chosen, or its path was given.
#[test]
fn more_than_may_be_is_left_out() {
    let one = "app:*sought_by_tests";
    let mut alone = chooser(&["app:*"], u64::MAX);
    let many = of(&mut alone, &CodeFile::own("/usr/bin/app"));
    assert!(many.functions.is_empty() && many.refused.len() == 1);
    assert!(
        many.refused[0].why.contains("at most 256"),
        "{:?}",
        many.refused
    );
    let failure = alone.take_failure().unwrap();
    assert!(matches!(failure, NotChosen::File(_, NoChoice::TooMany(_))));
    let beside = |pattern| {
        let mut beside = chooser(&[one, pattern], u64::MAX);
        let more = of(&mut beside, &CodeFile::own("/usr/bin/app"));
        assert!(!more.functions.is_empty() && more.refused.len() == 1);
        beside.take_failure()
    };
    assert!(beside("app:*").is_none() && beside("/usr/bin/app:*").is_some());
    // 256 are there already.
    let mut full = chooser(&[one], u64::MAX);
    full.chosen = MAX_FUNCTIONS;
    let more = of(&mut full, &CodeFile::own("/usr/bin/app"));
    assert!(more.functions.is_empty() && full.chosen == MAX_FUNCTIONS);
    assert!(
        more.refused[0].why.contains("at most 256"),
        "{:?}",
        more.refused
    );
    let mut full = chooser(&[one], u64::MAX);
    full.files = MAX_FILES;
    let more = of(&mut full, &CodeFile::own("/usr/bin/app"));
    assert!(
        more.refused[0].why.contains("more than 16 files"),
        "{:?}",
        more.refused
    );
}

// Check that a function of a mapped file is found once, that its program is told apart from
// libraries, and that what no pattern means is not opened.
#[test]
fn what_this_program_has_mapped() {
    let own = std::fs::read_link("/proc/self/exe").unwrap();
    let path = own.to_str().unwrap();
    let mut chooser = chooser(&[&format!("{path}:*sought_by_tests")], u64::MAX);
    let pid = proc_fs::own_pid(std::process::id()).unwrap();
    let modules = mapped(pid, |path| chooser.is_meant(path));
    assert_eq!(modules.len(), 1);
    assert!(modules[0].is_program);
    let more = of(&mut chooser, &modules[0]);
    assert!(!more.functions.is_empty());
    assert!(
        more.functions
            .iter()
            .all(|one| !one.shared && one.exits.is_err())
    );
    assert!(chooser.missing().is_empty());
    let again = mapped(pid, |path| chooser.is_meant(path));
    assert!(of(&mut chooser, &again[0]).functions.is_empty());
}

// Check that each path of one file is found by the pattern that names it, and each function once.
#[test]
fn a_file_of_several_paths_is_measured_once() {
    let own = |path: &str| format!("{path}:*sought_by_tests");
    let mut chooser = chooser(&[&own("/one/app"), &own("/other/app")], u64::MAX);
    let first = of(&mut chooser, &CodeFile::own("/one/app"));
    assert!(!first.functions.is_empty());
    assert_eq!(chooser.missing().len(), 1);
    let files = chooser.files;
    let more = of(&mut chooser, &CodeFile::own("/other/app"));
    assert!(more.functions.is_empty() && chooser.missing().is_empty());
    assert_eq!(chooser.files, files);
}
