//! Which names a file and its debug file have for one address.

use std::collections::{HashMap, HashSet};

use object::{Object as _, ObjectSymbol as _};
use profiler_daemon::symbols::demangle::demangle;

/// Addresses by readable name.
pub(crate) struct Aliases(HashMap<String, HashSet<u64>>);

/// A linker's name as people read it.
fn readable(name: &str) -> String {
    let name = name.split_once('@').map_or(name, |(plain, _)| plain);
    demangle(name).into()
}

impl Aliases {
    /// Those of a file; of what is none, none.
    pub(crate) fn read(path: &str) -> Self {
        let mut names = Self(HashMap::new());
        let Ok(bytes) = std::fs::read(path) else {
            return names;
        };
        names.add(&bytes);
        let file = object::File::parse(&*bytes);
        let id = file.as_ref().ok().and_then(|file| file.build_id().ok()?);
        if let Some((first, rest)) = id.and_then(|id| id.split_first()) {
            let rest: String = rest.iter().map(|byte| format!("{byte:02x}")).collect();
            let debug = format!("/usr/lib/debug/.build-id/{first:02x}/{rest}.debug");
            names.add(&std::fs::read(debug).unwrap_or_default());
        }
        names
    }

    fn add(&mut self, bytes: &[u8]) {
        let Ok(file) = object::File::parse(bytes) else {
            return;
        };
        for symbol in file.symbols().chain(file.dynamic_symbols()) {
            if let Ok(name) = symbol.name()
                && symbol.is_definition()
            {
                let addresses = self.0.entry(readable(name)).or_default();
                addresses.insert(symbol.address());
            }
        }
    }

    /// Whether perf's name, as linkers write it, and one that is shown here are those of one
    /// function.
    pub(crate) fn are_one(&self, theirs: &str, ours: &str) -> bool {
        let addresses = |name: &str| self.0.get(name);
        match (theirs.strip_suffix("@plt"), ours.strip_suffix("@plt")) {
            (Some(theirs), Some(ours)) => readable(theirs) == ours,
            (None, None) => {
                let theirs = readable(theirs);
                theirs == ours
                    || addresses(&theirs)
                        .zip(addresses(ours))
                        .is_some_and(|(theirs, ours)| !theirs.is_disjoint(ours))
            }
            _ => false,
        }
    }
}

// Check that names of one address are one function, in whatever way they are written, and others
// are not.
#[test]
fn names_of_one_address() {
    let names = [
        ("free", 1),
        ("cfree", 1),
        ("malloc", 2),
        ("a::b()", 3),
        ("a::c()", 3),
    ];
    let mut aliases = Aliases(HashMap::new());
    for (name, address) in names {
        aliases
            .0
            .entry(name.to_owned())
            .or_default()
            .insert(address);
    }
    for (theirs, ours, one) in [
        ("cfree@GLIBC_2.2.5", "free", true),
        ("cfree", "malloc", false),
        ("_ZN1a1cEv", "a::b()", true),
        ("elsewhere", "elsewhere", true),
        ("free@plt", "free@plt", true),
        ("free@plt", "free", false),
        ("free@plt", "malloc@plt", false),
        ("free", "free@plt", false),
    ] {
        assert_eq!(aliases.are_one(theirs, ours), one, "{theirs} {ours}");
    }
}
