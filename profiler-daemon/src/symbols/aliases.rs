//! Which name of a function people know, and how far a symbol without a size reaches. A file may
//! have many names for one address (`free`, `cfree`, `__libc_free`) in two tables; the symbolizer
//! answers any, and takes a symbol without a size for all that follows.

use std::{cmp::Reverse, fs::File, rc::Rc};

use super::{
    file_tables::{Binding, Deadline, FileTables, SymbolEntry, TooSlow},
    names::Unnamed,
};
use crate::units::ModuleAddress;

/// Names of one function that are kept.
pub(super) const MAX_NAMES: usize = 16;

/// A symbol, as the file has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct NamedSymbol {
    /// As linkers write it.
    pub(super) name: Rc<str>,
    /// Where it begins.
    pub(super) address: ModuleAddress,
    /// 0 where it is not known.
    pub(super) size_bytes: u64,
}

/// The name of a symbol without the version that linkers add (`memcpy@@GLIBC_2.14`).
pub(super) fn without_version(name: &str) -> &str {
    let Some((plain, version)) = name.split_once('@') else {
        return name;
    };
    let version = version.strip_prefix('@').unwrap_or(version);
    let is_version = version
        .bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || b"._-+".contains(&byte));
    if is_version && !version.is_empty() && !plain.is_empty() {
        plain
    } else {
        name
    }
}

/// A symbol that is compared with others.
#[derive(Clone, Debug)]
struct AliasCandidate {
    name: Rc<str>,
    is_old: bool,
    binding: Binding,
    address: ModuleAddress,
    size_bytes: u64,
}

impl AliasCandidate {
    /// In which order people know names: without underscores in front, then those that programs can
    /// be linked with, then those that other files see, then short ones.
    fn rank(&self) -> impl Ord {
        let name = without_version(&self.name);
        // Those of C++ and Rust say the language.
        let is_mangled = name.starts_with("_Z") || name.starts_with("_R");
        let underscores = name.len() - name.trim_start_matches('_').len();
        let underscores = if is_mangled { 0 } else { underscores };
        (underscores, self.is_old, self.binding, name.len(), name)
    }

    /// Takes the place of a symbol that begins earlier, or at the same address with a name that is
    /// known less.
    fn compete(self, best: &mut Option<Self>) {
        let wins = best.as_ref().is_none_or(|best| {
            let order = (Reverse(self.address), self.rank());
            order < (Reverse(best.address), best.rank())
        });
        if wins {
            *best = Some(self);
        }
    }
}

/// A place that no symbol with a size was found for.
struct OpenPlace {
    place: ModuleAddress,
    /// The innermost function around it.
    around: Option<AliasCandidate>,
    /// Where the last function before it begins.
    last_start: ModuleAddress,
}

/// Corrects what the symbolizer found at these addresses: the best known one of all names, and no
/// symbol without a size for code of another section or behind the begin of a function.
pub(super) fn correct(
    tables: &FileTables,
    file: &File,
    addresses: &[ModuleAddress],
    answers: &mut [Result<NamedSymbol, Unnamed>],
    deadline: Deadline,
) -> Result<(), TooSlow> {
    let mut known: Vec<(ModuleAddress, u64, Option<AliasCandidate>)> = Vec::new();
    let mut open: Vec<ModuleAddress> = Vec::new();
    for (address, answer) in addresses.iter().zip(&*answers) {
        match answer {
            Ok(symbol) if symbol.size_bytes > 0 => {
                known.push((symbol.address, symbol.size_bytes, None));
            }
            Ok(_) | Err(Unnamed::NoSymbolThere | Unnamed::NoSymbols) => open.push(*address),
            Err(_) => {}
        }
    }
    if known.is_empty() && open.is_empty() {
        return Ok(());
    }
    known.sort_unstable_by_key(|(start, size, _)| (*start, *size));
    known.dedup_by_key(|(start, size, _)| (*start, *size));
    open.sort_unstable();
    open.dedup();
    let mut open: Vec<OpenPlace> = open
        .into_iter()
        .map(|place| OpenPlace {
            place,
            around: None,
            last_start: ModuleAddress::ZERO,
        })
        .collect();
    tables.each_symbol(file, deadline, |symbol| {
        look_at(symbol, file, &mut known, &mut open);
    })?;
    // So far each knows only of functions that begin between the place before it and itself.
    let mut last_start = ModuleAddress::ZERO;
    for place in &mut open {
        last_start = place.last_start.max(last_start);
        place.last_start = last_start;
    }
    for (address, answer) in addresses.iter().zip(answers) {
        match answer {
            Ok(symbol) if symbol.size_bytes > 0 => {
                let key = (symbol.address, symbol.size_bytes);
                let found = known.binary_search_by_key(&key, |(start, size, _)| (*start, *size));
                if let Some(best) = found.ok().and_then(|index| known[index].2.as_ref()) {
                    symbol.name = Rc::clone(&best.name);
                }
            }
            Ok(_) | Err(Unnamed::NoSymbolThere | Unnamed::NoSymbols) => {
                let found = open.binary_search_by_key(address, |open| open.place);
                if let Ok(index) = found {
                    close(tables, &open[index], answer);
                }
            }
            Err(_) => {}
        }
    }
    Ok(())
}

/// Notes what one symbol says of what is looked for.
fn look_at(
    symbol: &SymbolEntry,
    file: &File,
    known: &mut [(ModuleAddress, u64, Option<AliasCandidate>)],
    open: &mut [OpenPlace],
) {
    let mut read = None;
    let mut candidate = || {
        let name = read.get_or_insert_with(|| symbol.name(file)).clone()?;
        // Tables of linkers have it in the name: one @ rather than two.
        let in_name = name
            .split_once('@')
            .is_some_and(|(_, version)| !version.starts_with('@'));
        Some(AliasCandidate {
            is_old: in_name || symbol.is_old(file),
            name,
            binding: symbol.binding,
            address: symbol.address,
            size_bytes: symbol.size_bytes,
        })
    };
    let key = (symbol.address, symbol.size_bytes);
    let same = known.binary_search_by_key(&key, |(start, size, _)| (*start, *size));
    if let Ok(index) = same
        && let Some(candidate) = candidate()
    {
        candidate.compete(&mut known[index].2);
    }
    if !symbol.is_function {
        return;
    }
    let from = open.partition_point(|open| open.place < symbol.address);
    if let Some(first) = open.get_mut(from) {
        first.last_start = first.last_start.max(symbol.address);
    }
    for place in &mut open[from..] {
        if place.place >= symbol.end() {
            break;
        }
        let is_inner = |best: &AliasCandidate| best.address <= symbol.address;
        if place.around.as_ref().is_none_or(is_inner)
            && let Some(candidate) = candidate()
        {
            candidate.compete(&mut place.around);
        }
    }
}

/// What is at a place for which no symbol with a size was found.
fn close(tables: &FileTables, open: &OpenPlace, answer: &mut Result<NamedSymbol, Unnamed>) {
    if let Some(around) = &open.around {
        *answer = Ok(NamedSymbol {
            name: Rc::clone(&around.name),
            address: around.address,
            size_bytes: around.size_bytes,
        });
        return;
    }
    let reaches = |symbol: &NamedSymbol| {
        let code = tables.code_at(symbol.address);
        code.is_some_and(|code| open.place < code.end) && open.last_start <= symbol.address
    };
    if answer.as_ref().is_ok_and(|symbol| !reaches(symbol)) {
        *answer = Err(Unnamed::NoSymbolThere);
    }
}
