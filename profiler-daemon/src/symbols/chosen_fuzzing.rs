//! Checks what is chosen of any file.

use std::collections::BTreeSet;

use super::*;

/// Every point is where an instruction begins, counted from its function's first byte or from the
/// first of a part of it that lies apart; and none is a nop of five bytes.
pub(in crate::symbols) fn check(file: &File) {
    let all: Pattern = "*:*".parse().expect("a pattern");
    let Ok(chosen) = choose(file, &[&all]) else {
        return;
    };
    assert!(chosen.len() <= MAX_FUNCTIONS);
    let tables = FileTables::read(file).expect("functions were found in it");
    let mut parts = Vec::new();
    let mut take = |symbol: &SymbolEntry| {
        if symbol.name(file).is_some_and(|raw| part_of(&raw).is_some()) {
            parts.push((symbol.address, symbol.size_bytes));
        }
    };
    if tables
        .each_symbol(file, Deadline::after(BUDGET_NS), &mut take)
        .is_err()
    {
        return;
    }
    for function in &chosen {
        let Ok(points) = &function.points else {
            continue;
        };
        // It is as long as any of its symbols says that has a name.
        let mut size_bytes = 0;
        let mut take = |symbol: &SymbolEntry| {
            let is_own = symbol.address == function.address && symbol.is_function;
            if is_own && symbol.name(file).is_some_and(|raw| part_of(&raw).is_none()) {
                size_bytes = symbol.size_bytes.max(size_bytes);
            }
        };
        let read = tables.each_symbol(file, Deadline::after(BUDGET_NS), &mut take);
        if read.is_err() {
            return;
        }
        let own = borders(file, &tables, function.address, size_bytes);
        assert!(
            own.contains(&points.entry.offset),
            "{points:?} of {function:?}"
        );
        for exit in points.exits.iter().flatten() {
            let is_border = own.contains(&exit.offset)
                || parts.iter().any(|(start, size)| {
                    borders(file, &tables, *start, *size).contains(&exit.offset)
                });
            assert!(is_border, "{exit:?} of {function:?}");
        }
    }
}

/// Where instructions of a function begin that may be probed, from the start of the file.
fn borders(
    file: &File,
    tables: &FileTables,
    address: ModuleAddress,
    size_bytes: u64,
) -> BTreeSet<FileOffset> {
    let size = usize::try_from(size_bytes.min(MAX_FUNCTION_BYTES as u64)).unwrap_or_default();
    let Some((code, offset)) = tables.code_bytes(file, address, size) else {
        return BTreeSet::new();
    };
    let borders = points::borders(&code, address).into_iter();
    borders.map(|at| offset + (at - address)).collect()
}
