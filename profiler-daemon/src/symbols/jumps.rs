//! Which function each entry of the procedure linkage table jumps to (`.plt`, `.plt.got`,
//! `.plt.sec`): no symbol says so. An entry jumps through a word that the loader fills in; the
//! relocation of that word names the function. x86-64 only.

use std::{collections::BTreeMap, fs::File};

use super::file_tables::{CodeSection, Deadline, FileTables, TooSlow};
use crate::elf::{self, LE, Relocation};
use crate::units::ModuleAddress;

/// Most bytes looked at of one section.
const MAX_SECTION_BYTES: usize = 1 << 20;
/// Most entries kept of one file. Those beyond have no name.
const MAX_ENTRIES: usize = 32_768;
/// `jmp *displacement(%rip)`.
const JUMP: [u8; 2] = [0xff, 0x25];
/// The mark of where indirect jumps may lead, at the begin of an entry.
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
/// `push number`: of the relocation that an entry is bound by when it is first called.
const PUSH: u8 = 0x68;

/// What an entry jumps to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Target {
    /// A function of that number among the symbols of the loader.
    Symbol(u32),
    /// Whatever the function at this address answers when the program is loaded.
    ChosenBy(ModuleAddress),
}

#[derive(Clone, Copy, Debug)]
struct JumpEntry {
    start: ModuleAddress,
    size_bytes: u64,
    target: Option<Target>,
}

/// The entries of a file, by address.
#[derive(Debug, Default)]
pub(super) struct Jumps {
    entries: Vec<JumpEntry>,
}

impl Jumps {
    /// Reads what the file's entries jump to.
    pub(super) fn read(
        tables: &FileTables,
        file: &File,
        deadline: Deadline,
    ) -> Result<Self, TooSlow> {
        let mut jumps = Self::default();
        // By the word that they jump through, and by the number of their relocation.
        let mut through: BTreeMap<ModuleAddress, Vec<usize>> = BTreeMap::new();
        let mut bound_by: BTreeMap<u64, Vec<usize>> = BTreeMap::new();
        for (code, bytes) in tables.jumps() {
            let Some(bytes) = bytes.read(file, MAX_SECTION_BYTES) else {
                continue;
            };
            deadline.check()?;
            let size_bytes = entry_bytes(code, &bytes);
            for (start, entry) in (code.start.get()..)
                .step_by(size_bytes)
                .map(ModuleAddress::new)
                .zip(bytes.chunks_exact(size_bytes))
                .take(MAX_ENTRIES - jumps.entries.len())
            {
                let index = jumps.entries.len();
                jumps.entries.push(JumpEntry {
                    start,
                    size_bytes: size_bytes as u64,
                    target: None,
                });
                let mut words = words(start, entry).peekable();
                if words.peek().is_none()
                    && let Some(number) = relocation_number(entry)
                {
                    bound_by.entry(number.into()).or_default().push(index);
                }
                for word in words {
                    through.entry(word).or_default().push(index);
                }
            }
        }
        tables.each_relocation(file, deadline, |number, relocation| {
            if let Some(target) = target(relocation) {
                let by_word = through.get(&ModuleAddress::new(relocation.r_offset.get(LE)));
                let by_number = number.and_then(|number| bound_by.get(&number));
                for index in by_word.into_iter().chain(by_number).flatten() {
                    jumps.entries[*index].target.get_or_insert(target);
                }
            }
        })?;
        jumps.entries.retain(|entry| entry.target.is_some());
        jumps.entries.sort_unstable_by_key(|entry| entry.start);
        jumps.entries.shrink_to_fit();
        Ok(jumps)
    }

    /// Memory held, bytes.
    pub(super) fn held_bytes(&self) -> u64 {
        (self.entries.len() * size_of::<JumpEntry>()) as u64
    }

    /// Where the entry around an address begins, and what it jumps to; `None` where that is not
    /// known.
    pub(super) fn find(&self, address: ModuleAddress) -> Option<(ModuleAddress, Target)> {
        let behind = self.entries.partition_point(|entry| entry.start <= address);
        let entry = self.entries.get(behind.checked_sub(1)?)?;
        (address - entry.start < entry.size_bytes).then_some((entry.start, entry.target?))
    }
}

/// How long the entries of a section are: 16 bytes, and 8 where there is nothing but the jump.
fn entry_bytes(code: &CodeSection, bytes: &[u8]) -> usize {
    if code.short && !bytes.starts_with(&LANDING) {
        8
    } else {
        16
    }
}

/// The words that an entry may jump through. Bytes of another instruction may look like a jump, but
/// no relocation is where that leads.
fn words(start: ModuleAddress, entry: &[u8]) -> impl Iterator<Item = ModuleAddress> {
    let jumps = entry.windows(6).zip(0_u64..);
    jumps.filter_map(move |(bytes, at)| {
        let displacement = bytes.strip_prefix(&JUMP)?.try_into().ok()?;
        let next = start.wrapping_add(at + 6);
        let distance = i64::from(i32::from_le_bytes(displacement));
        Some(next.wrapping_add(distance.cast_unsigned()))
    })
}

/// The number of the relocation in an entry that has another one, in `.plt.sec`, to jump by.
fn relocation_number(entry: &[u8]) -> Option<u32> {
    let entry = entry.strip_prefix(&LANDING).unwrap_or(entry);
    let (first, rest) = entry.split_first()?;
    let number = rest.first_chunk().filter(|_| *first == PUSH)?;
    Some(u32::from_le_bytes(*number))
}

/// What the loader writes into the word of a relocation.
fn target(relocation: &Relocation) -> Option<Target> {
    let symbol = relocation.r_sym(LE, false);
    match (relocation.r_type(LE, false), symbol) {
        (elf::R_X86_64_IRELATIVE, 0) => {
            let chooser = relocation.r_addend.get(LE).cast_unsigned();
            Some(Target::ChosenBy(ModuleAddress::new(chooser)))
        }
        (elf::R_X86_64_GLOB_DAT | elf::R_X86_64_JUMP_SLOT, 1..) => Some(Target::Symbol(symbol)),
        _ => None,
    }
}
