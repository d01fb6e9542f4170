//! Symbols, relocations and jumps to elsewhere, made by hand for tests.

use crate::unwind::made_files::CODE_ADDRESS;

/// Kind and binding of symbols as a file has them.
pub(crate) const GLOBAL_FUNCTION: u8 = 1 << 4 | 2;
pub(crate) const WEAK_FUNCTION: u8 = 2 << 4 | 2;
pub(crate) const LOCAL_FUNCTION: u8 = 2;
pub(crate) const LABEL: u8 = 0;

/// A symbol: name, kind and binding, address, size in bytes.
pub(crate) type MadeSymbol<'a> = (&'a str, u8, u64, u64);

/// A table of these, and their strings.
pub(crate) fn table(symbols: &[MadeSymbol<'_>]) -> (Vec<u8>, Vec<u8>) {
    let (mut table, mut strings) = (vec![0; 24], vec![0]);
    for (name, info, address, size_bytes) in symbols {
        // Defined somewhere, unless it is at no address.
        let section = u16::from(*address != 0);
        table.extend((strings.len() as u32).to_le_bytes());
        table.extend([*info, 0]);
        table.extend(section.to_le_bytes());
        table.extend(address.to_le_bytes());
        table.extend(size_bytes.to_le_bytes());
        strings.extend(name.as_bytes());
        strings.push(0);
    }
    (table, strings)
}

/// What each entry of a procedure linkage table stands in.
pub(crate) struct MadeJumps {
    /// Five entries of 16 bytes: the first, one that is bound late, one that jumps, one with a
    /// mark, one that is bound late elsewhere; then one of 8 bytes, and two of that length of
    /// nothing.
    pub(crate) entries: Vec<u8>,
    pub(crate) relocations: Vec<u8>,
    pub(crate) symbols: Vec<u8>,
    pub(crate) strings: Vec<u8>,
}

/// The words that entries jump through.
const WORDS: u64 = CODE_ADDRESS + 0x5000;
/// What [`jumps`] are called, by the address of the entry behind [`CODE_ADDRESS`].
pub(crate) const JUMPS: [(u64, Option<&str>); 6] = [
    (0, None),
    (16, Some("late@plt")),
    (32, Some("jumps@plt")),
    (48, Some("std::marked()@plt")),
    (64, Some("elsewhere@plt")),
    (80, Some("chosen@plt")),
];

pub(crate) fn jumps() -> MadeJumps {
    let (symbols, strings) = table(&[
        ("late", GLOBAL_FUNCTION, 0, 0),
        ("jumps", GLOBAL_FUNCTION, 0, 0),
        ("_ZSt6markedv", WEAK_FUNCTION, 0, 0),
        ("elsewhere@@V_1", GLOBAL_FUNCTION, 0, 0),
        ("chosen", 1 << 4 | 10, CODE_ADDRESS + 0x200, 16),
    ]);
    let mut entries: Vec<u8> = Vec::new();
    let jump = |entries: &mut Vec<u8>, word: u64| {
        let next = CODE_ADDRESS + entries.len() as u64 + 6;
        entries.extend([0xff, 0x25]);
        entries.extend(((WORDS + word * 8 - next) as u32).to_le_bytes());
    };
    let fill = |entries: &mut Vec<u8>, to: usize| entries.resize(to, 0x90);
    // To the loader, by words that it keeps for itself.
    entries.extend([0xff, 0x35, 2, 0x50, 0, 0]);
    jump(&mut entries, 100);
    fill(&mut entries, 16);
    jump(&mut entries, 0);
    entries.extend([0x68, 0, 0, 0, 0, 0xe9, 0, 0, 0, 0]);
    jump(&mut entries, 1);
    fill(&mut entries, 48);
    entries.extend([0xf3, 0x0f, 0x1e, 0xfa, 0xf2]);
    jump(&mut entries, 2);
    fill(&mut entries, 64);
    entries.extend([
        0xf3, 0x0f, 0x1e, 0xfa, 0x68, 3, 0, 0, 0, 0xf2, 0xe9, 0, 0, 0, 0,
    ]);
    fill(&mut entries, 80);
    jump(&mut entries, 4);
    fill(&mut entries, 160);
    let mut relocations = Vec::new();
    for (word, kind, symbol, addend) in [
        (0, 7_u32, 1_u32, 0),
        (1, 6, 2, 0),
        (2, 7, 3, 0),
        (3, 7, 4, 0),
        (4, 37, 0, CODE_ADDRESS + 0x200),
        // An address within the file itself.
        (100, 8, 0, CODE_ADDRESS),
    ] {
        relocations.extend((WORDS + word * 8).to_le_bytes());
        relocations.extend(kind.to_le_bytes());
        relocations.extend(symbol.to_le_bytes());
        relocations.extend(addend.to_le_bytes());
    }
    MadeJumps {
        entries,
        relocations,
        symbols,
        strings,
    }
}
