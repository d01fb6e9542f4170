//! The kernel's function names by address, from `/proc/kallsyms`, in one compact table: some 12
//! bytes a function and its name. Only text symbols are kept. Reading is bounded; the file is the
//! kernel's own, but its module names are not.

use std::io::{self, BufRead};

use crate::units::VirtualAddress;

/// Most functions kept; a kernel with all modules loaded has about 250 000.
const MAX_FUNCTIONS: usize = 1_000_000;
/// Most bytes of names kept.
const MAX_TEXT_BYTES: usize = 64 << 20;
/// Longest line looked at.
const MAX_LINE_BYTES: u64 = 4096;
/// An address farther than this behind the start of a function is not in it: no kernel function is
/// that long.
const MAX_FUNCTION_BYTES: u64 = 1 << 20;

/// The functions of the running kernel.
#[derive(Debug, Default)]
pub struct Kallsyms {
    /// Start addresses, sorted, no two equal.
    starts: Vec<VirtualAddress>,
    /// For each start, where its name begins in `text`.
    names: Vec<u32>,
    /// Each name with its module, if any, ended by a line end.
    text: String,
    restricted: bool,
}

/// A function of the kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KernelFunction<'a> {
    /// Name.
    pub name: &'a str,
    /// Kernel module it belongs to; `bpf` for kernel programs.
    pub module: Option<&'a str>,
    /// First address.
    pub start: VirtualAddress,
}

impl Kallsyms {
    /// Reads the table.
    ///
    /// # Errors
    ///
    /// The file cannot be read.
    pub fn load() -> io::Result<Self> {
        let file = std::fs::File::open("/proc/kallsyms")?;
        Self::read(&mut io::BufReader::with_capacity(64 << 10, file))
    }

    /// Reads lines of `address type name [module]`.
    ///
    /// # Errors
    ///
    /// Reading failed.
    pub fn read(lines: &mut impl BufRead) -> io::Result<Self> {
        use io::Read as _;
        let mut found: Vec<(VirtualAddress, u8, u32)> = Vec::new();
        let mut text = String::new();
        let mut zeros = false;
        let mut line = Vec::new();
        while found.len() < MAX_FUNCTIONS && text.len() < MAX_TEXT_BYTES {
            line.clear();
            if lines
                .by_ref()
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut line)?
                == 0
            {
                break;
            }
            let Some((address, symbol, module)) =
                std::str::from_utf8(&line).ok().and_then(parse_line)
            else {
                continue;
            };
            if address == VirtualAddress::ZERO {
                zeros = true;
                continue;
            }
            let (kind, name) = symbol;
            let at = u32::try_from(text.len()).map_err(io::Error::other)?;
            found.push((address, rank(kind, name), at));
            text.push_str(name);
            if let Some(module) = module {
                text.push('\t');
                text.push_str(module);
            }
            text.push('\n');
        }
        found.sort_unstable();
        found.dedup_by_key(|(address, _, _)| *address);
        text.shrink_to_fit();
        Ok(Self {
            restricted: zeros && found.is_empty(),
            starts: found.iter().map(|(address, _, _)| *address).collect(),
            names: found.iter().map(|(_, _, at)| *at).collect(),
            text,
        })
    }

    /// Whether the kernel hides its addresses from this process.
    #[must_use]
    pub fn restricted(&self) -> bool {
        self.restricted
    }

    /// How many functions are known.
    #[must_use]
    pub fn len(&self) -> usize {
        self.starts.len()
    }

    /// Whether none is known.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.starts.is_empty()
    }

    /// Memory held, bytes.
    #[must_use]
    pub fn held_bytes(&self) -> usize {
        self.starts.capacity() * size_of::<VirtualAddress>()
            + self.names.capacity() * size_of::<u32>()
            + self.text.capacity()
    }

    /// The function an address is in.
    #[must_use]
    pub fn find(&self, address: VirtualAddress) -> Option<KernelFunction<'_>> {
        let at = self
            .starts
            .partition_point(|start| *start <= address)
            .checked_sub(1)?;
        let start = *self.starts.get(at)?;
        if address - start >= MAX_FUNCTION_BYTES {
            return None;
        }
        let line = self
            .text
            .get(*self.names.get(at)? as usize..)?
            .lines()
            .next()?;
        let (name, module) = match line.split_once('\t') {
            Some((name, module)) => (name, Some(module)),
            None => (line, None),
        };
        Some(KernelFunction {
            name,
            module,
            start,
        })
    }
}

type SymbolLine<'a> = (VirtualAddress, (u8, &'a str), Option<&'a str>);

/// Text symbols only.
fn parse_line(line: &str) -> Option<SymbolLine<'_>> {
    let mut words = line.split_ascii_whitespace();
    let address = VirtualAddress::new(u64::from_str_radix(words.next()?, 16).ok()?);
    let kind = *words.next()?.as_bytes().first()?;
    if !matches!(kind, b't' | b'T' | b'w' | b'W') {
        return None;
    }
    let name = words.next()?;
    let module = words
        .next()
        .and_then(|word| word.strip_prefix('[')?.strip_suffix(']'));
    Some((address, (kind, name), module))
}

/// Of several names for one address the smallest rank wins: a global one, then the one with fewer
/// leading underscores.
fn rank(kind: u8, name: &str) -> u8 {
    let underscores = name
        .bytes()
        .take_while(|byte| *byte == b'_')
        .count()
        .min(15);
    let kind = match kind {
        b'T' => 0,
        b'W' => 1,
        b't' => 2,
        _ => 3,
    };
    kind * 16 + u8::try_from(underscores).unwrap_or(15)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(text: &str) -> Kallsyms {
        Kallsyms::read(&mut text.as_bytes()).unwrap()
    }

    // Check that addresses inside functions find them, data is no function, and the plainest of
    // several names wins.
    #[test]
    fn finds() {
        let table = table(
            "ffffffff81000000 T _stext\nffffffff81000000 T plain\nffffffff81000000 t aaa\n\
             ffffffff81000800 D data\nffffffff81001000 t helper\nffffffffc0001000 t hook\t[nf_tables]\n\
             bad line\nffffffffc0002000 t\n",
        );
        assert_eq!(table.len(), 3);
        let find = |address| table.find(VirtualAddress::new(address));
        let name = |address| find(address).map(|function| function.name);
        assert_eq!(name(0xffff_ffff_8100_0000), Some("plain"));
        assert_eq!(name(0xffff_ffff_8100_0900), Some("plain"));
        assert_eq!(name(0xffff_ffff_8100_1001), Some("helper"));
        assert_eq!(name(0xffff_ffff_80ff_ffff), None);
        assert_eq!(name(0xffff_ffff_a000_0000), None);
        let hook = find(0xffff_ffff_c000_1010).unwrap();
        assert_eq!(
            (hook.module, hook.start.get()),
            (Some("nf_tables"), 0xffff_ffff_c000_1000)
        );
    }

    // Check that a kernel that hides its addresses is told from one without symbols.
    #[test]
    fn hidden() {
        assert!(table("0000000000000000 T a\n0000000000000000 t b\n").restricted());
        assert!(!table("").restricted());
    }

    // Check that the running kernel's table is read and stays small.
    #[test]
    fn running_kernel() {
        let table = Kallsyms::load().unwrap();
        assert!(table.restricted() || table.len() > 1000);
        assert!(table.held_bytes() < 15 << 20, "{}", table.held_bytes());
    }
}
