//! Whose code is that lies apart: what compilers move out of a function, as seldom executed, has a
//! symbol of the function's name with `.cold` behind it. Several functions of a file may have that
//! name (`static` ones of different sources): of these the one has it whose code leads into it.
//! Hostile bytes: the work ends at a deadline.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    fs::File,
};

use super::{
    aliases::{MAX_NAMES, without_version},
    file_tables::{Deadline, FileTables, SymbolEntry, TooSlow},
};
use crate::units::ModuleAddress;
use crate::unwind::points::{MAX_FUNCTION_BYTES, targets};

/// Most functions that may be chosen at a time.
pub const MAX_FUNCTIONS: usize = 256;
/// Parts of one function that are looked at.
const MAX_PARTS: usize = 16;
/// The same of all functions that are meant.
const MAX_ALL_PARTS: usize = MAX_FUNCTIONS * MAX_PARTS;

/// The function of whose name `.cold` was made.
pub(super) fn part_of(raw: &str) -> Option<&str> {
    let at = raw.find(".cold")?;
    let rest = &raw[at + ".cold".len()..];
    (rest.is_empty() || rest.starts_with('.')).then(|| &raw[..at])
}

/// Functions by their names as linkers write them: those that are meant, and others of these names.
#[derive(Default)]
pub(super) struct Named {
    functions: HashMap<String, BTreeSet<ModuleAddress>>,
    /// How many names of a function that is meant are among these.
    counts: HashMap<ModuleAddress, usize>,
}

impl Named {
    /// A name of a function that is meant.
    pub(super) fn add(&mut self, raw: &str, address: ModuleAddress) {
        let count = self.counts.entry(address).or_default();
        if *count < MAX_NAMES {
            let name = without_version(raw).to_owned();
            let is_new = self.functions.entry(name).or_default().insert(address);
            *count += usize::from(is_new);
        }
    }

    /// Another function that may have one of these names.
    fn add_other(&mut self, raw: &str, address: ModuleAddress) {
        if let Some(known) = self.functions.get_mut(without_version(raw))
            && known.len() < MAX_FUNCTIONS
        {
            known.insert(address);
        }
    }
}

/// Code of one function that lies apart.
#[derive(Default)]
pub(super) struct Parts {
    /// Address and size, bytes.
    pub(super) known: Vec<(ModuleAddress, u64)>,
    /// Some of it may be another function's.
    pub(super) shared: bool,
    /// There is more than is looked at.
    pub(super) too_many: bool,
}

/// A part, before it is known whose it is.
#[derive(Default)]
struct Claimed {
    size_bytes: u64,
    /// The functions whose name it has.
    by: BTreeSet<ModuleAddress>,
    /// Those of them whose code leads into it.
    reached_from: BTreeSet<ModuleAddress>,
}

/// The parts of the functions of these names, by the function's address. A part is of one function
/// at most, so that it is decoded once. `sizes`: how long each function is.
pub(super) fn parts_of(
    (file, tables): (&File, &FileTables),
    mut named: Named,
    sizes: &BTreeMap<ModuleAddress, u64>,
    deadline: Deadline,
) -> Result<HashMap<ModuleAddress, Parts>, TooSlow> {
    let mut found: HashMap<ModuleAddress, Parts> = HashMap::new();
    let mut parts: BTreeSet<(ModuleAddress, u64, String)> = BTreeSet::new();
    tables.each_symbol(file, deadline, |symbol: &SymbolEntry| {
        let Some(raw) = symbol.name(file).filter(|_| symbol.is_function) else {
            return;
        };
        let Some(name) = part_of(&raw) else {
            named.add_other(&raw, symbol.address);
            return;
        };
        let Some(functions) = named.functions.get(name) else {
            return;
        };
        if parts.len() < MAX_ALL_PARTS {
            parts.insert((symbol.address, symbol.size_bytes, name.to_owned()));
        } else {
            for function in functions {
                found.entry(*function).or_default().too_many = true;
            }
        }
    })?;
    let mut claimed: BTreeMap<ModuleAddress, Claimed> = BTreeMap::new();
    for (address, size_bytes, name) in parts {
        deadline.check()?;
        let part = claimed.entry(address).or_default();
        part.size_bytes = part.size_bytes.max(size_bytes);
        part.by
            .extend(named.functions.get(&name).into_iter().flatten());
    }
    find_reached((file, tables), &mut claimed, sizes, deadline)?;
    for (address, part) in claimed {
        let owners = if part.by.len() == 1 {
            &part.by
        } else {
            &part.reached_from
        };
        if let Some(owner) = owners.first().filter(|_| owners.len() == 1) {
            let owner = found.entry(*owner).or_default();
            if owner.known.len() < MAX_PARTS {
                owner.known.push((address, part.size_bytes));
            } else {
                owner.too_many = true;
            }
        } else {
            for function in part.by {
                found.entry(function).or_default().shared = true;
            }
        }
    }
    Ok(found)
}

/// Finds which functions lead into those parts that several of them may have.
fn find_reached(
    (file, tables): (&File, &FileTables),
    claimed: &mut BTreeMap<ModuleAddress, Claimed>,
    sizes: &BTreeMap<ModuleAddress, u64>,
    deadline: Deadline,
) -> Result<(), TooSlow> {
    let several = claimed.values().filter(|part| part.by.len() > 1);
    let functions: BTreeSet<ModuleAddress> =
        several.flat_map(|part| part.by.iter().copied()).collect();
    for function in functions {
        deadline.check()?;
        let size_bytes = sizes.get(&function).copied().unwrap_or_default();
        let size = usize::try_from(size_bytes).unwrap_or(usize::MAX);
        // What is longer is not measured.
        let code = (size <= MAX_FUNCTION_BYTES)
            .then(|| tables.code_bytes(file, function, size))
            .flatten();
        let Some((code, _)) = code else {
            continue;
        };
        for target in targets(&code, function) {
            let before = claimed.range_mut(..=target).next_back();
            if let Some((_, part)) = before.filter(|(start, part)| {
                target - **start < part.size_bytes && part.by.contains(&function)
            }) {
                part.reached_from.insert(function);
            }
        }
    }
    Ok(())
}
