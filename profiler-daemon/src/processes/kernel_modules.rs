//! Which kernel module a kernel address is in, from the text of `/proc/modules`. Pure: the text is
//! an argument. Everything outside of modules is `[kernel]`, also when the kernel hides its
//! addresses.

use super::{
    mappings::Place,
    module::{Module, ModuleId, ModuleIdentity, ModuleKind, ModuleTable},
};
use crate::units::{ModuleOffset, VirtualAddress};

/// Most kernel modules looked at.
const MAX_KERNEL_MODULES: usize = 4096;

/// Where the kernel's modules are loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelModules {
    /// (first address, address behind the last, module), by address.
    ranges: Vec<(VirtualAddress, VirtualAddress, ModuleId)>,
}

impl KernelModules {
    /// Reads lines of `name size references users state address`, and gives each module its number.
    /// A kernel without loadable modules has no such file: pass no text.
    #[must_use]
    pub fn parse(text: &[u8], table: &mut ModuleTable) -> Self {
        let text = String::from_utf8_lossy(text);
        let lines = text.lines().filter_map(parse_line).take(MAX_KERNEL_MODULES);
        let mut ranges: Vec<_> = lines
            .map(|(name, start, end)| {
                let name: Box<str> = format!("[{name}]").into();
                let identity = ModuleIdentity::Named(name.clone());
                let id = table.intern(identity, || Module::named(&name, ModuleKind::KernelModule));
                (VirtualAddress::new(start), VirtualAddress::new(end), id)
            })
            .collect();
        ranges.sort_unstable();
        Self { ranges }
    }

    /// All of them.
    pub fn modules(&self) -> impl Iterator<Item = ModuleId> {
        self.ranges.iter().map(|(_, _, module)| *module)
    }

    /// Where a kernel address is; its offset is the address itself.
    #[must_use]
    pub fn place(&self, address: VirtualAddress) -> Place {
        let at = self
            .ranges
            .partition_point(|(start, _, _)| *start <= address);
        let range = at.checked_sub(1).and_then(|at| self.ranges.get(at));
        let module = match range {
            Some((_, end, module)) if address < *end => *module,
            _ => ModuleId::KERNEL,
        };
        Place {
            module,
            offset: ModuleOffset::of_address(address),
        }
    }
}

fn parse_line(line: &str) -> Option<(&str, u64, u64)> {
    let mut words = line.split_ascii_whitespace();
    let name = words.next()?;
    let size_bytes: u64 = words.next()?.parse().ok()?;
    let start = u64::from_str_radix(words.nth(3)?.strip_prefix("0x")?, 16).ok()?;
    (start != 0).then_some((name, start, start.checked_add(size_bytes)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that addresses inside a module get it, those around it the kernel, and hidden addresses
    // no module.
    #[test]
    fn finds_modules() {
        let text = b"nf_tables 4096 2 nft_ct,nft_nat, Live 0xffffffffc0002000 (O)\n\
            dm_mod 8192 0 - Live 0xffffffffc0000000\nhidden 4096 0 - Live 0x0000000000000000\nbad line\n";
        let mut table = ModuleTable::new();
        let modules = KernelModules::parse(text, &mut table);
        let name = |address| table.get(modules.place(address).module).name.to_string();
        assert_eq!(name(VirtualAddress::new(0xffff_ffff_c000_0000)), "[dm_mod]");
        assert_eq!(
            name(VirtualAddress::new(0xffff_ffff_c000_2fff)),
            "[nf_tables]"
        );
        assert_eq!(name(VirtualAddress::new(0xffff_ffff_c000_3000)), "[kernel]");
        assert_eq!(name(VirtualAddress::new(0x10)), "[kernel]");
        assert_eq!(modules.place(VirtualAddress::new(77)).offset.get(), 77);
    }
}
