//! Reads the kernel's type information (BTF) for two things: where a member of a struct lies, and
//! how large a struct is.
//!
//! Format: Documentation/bpf/btf.rst of the kernel. Not a general reader: sizes and names of other
//! kinds are skipped. Any bytes give an answer or an error, never a panic: every read is checked.

use thiserror::Error;

/// Why the type information could not be read.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum BtfError {
    /// The bytes are not BTF of this machine's byte order.
    #[error("this is no type information (BTF) of a little-endian kernel")]
    NotBtf,
    /// A reference leads outside.
    #[error("the type information (BTF) is cut short or damaged")]
    Damaged,
    /// The kernel has no such struct.
    #[error("the kernel has no struct {0}")]
    NoStruct(String),
    /// The kernel has no such member.
    #[error("the kernel has no member {member} in struct {structure}")]
    NoMember {
        /// The struct asked for.
        structure: String,
        /// The members asked for, any of which would have done.
        member: String,
    },
    /// The kernel's struct is another one than is known.
    #[error("struct {0} of the kernel is not laid out as it was")]
    OtherLayout(String),
}

const MAGIC: u16 = 0xeb9f;
const KIND_STRUCT: u32 = 4;
const KIND_UNION: u32 = 5;
/// Anonymous members within anonymous members: no kernel struct goes deeper.
const MAX_NESTING: usize = 8;

/// A struct or union: where its members' descriptions lie.
#[derive(Clone, Copy)]
struct Composite {
    name: u32,
    size: u32,
    members: usize,
    count: usize,
    /// Bit offsets hold a bit-field size in their top byte.
    packed: bool,
}

/// The type information of a kernel.
pub(super) struct Btf<'a> {
    types: &'a [u8],
    strings: &'a [u8],
    /// By type id; only structs and unions are kept.
    composites: Vec<Option<Composite>>,
}

impl<'a> Btf<'a> {
    /// Indexes the types.
    ///
    /// # Errors
    /// [`BtfError::NotBtf`] and [`BtfError::Damaged`].
    pub(super) fn parse(bytes: &'a [u8]) -> Result<Self, BtfError> {
        if bytes.len() < 24 || u16::from_le_bytes([bytes[0], bytes[1]]) != MAGIC {
            return Err(BtfError::NotBtf);
        }
        let header = |at| word(bytes, at).map(|value| value as usize);
        let (header_len, type_off, type_len, str_off, str_len) = (
            header(4)?,
            header(8)?,
            header(12)?,
            header(16)?,
            header(20)?,
        );
        let section = |off: usize, len: usize| {
            let start = header_len.checked_add(off).ok_or(BtfError::Damaged)?;
            let end = start.checked_add(len).ok_or(BtfError::Damaged)?;
            bytes.get(start..end).ok_or(BtfError::Damaged)
        };
        let types = section(type_off, type_len)?;
        let strings = section(str_off, str_len)?;
        let mut composites = vec![None];
        let mut at = 0;
        while at < types.len() {
            let name = word(types, at)?;
            let info = word(types, at + 4)?;
            let (count, kind, packed) =
                ((info & 0xffff) as usize, info >> 24 & 0x1f, info >> 31 == 1);
            let size = word(types, at + 8)?;
            at += 12;
            // The bytes behind the common head, by kind.
            let extra = match kind {
                1 | 14 | 17 => 4,                                 // int, variable, declaration tag
                3 => 12,                                          // array
                KIND_STRUCT | KIND_UNION | 15 | 19 => 12 * count, // also: data section, enum64
                6 | 13 => 8 * count,                              // enum, function prototype
                2 | 7..=12 | 16 | 18 => 0, // pointer, forward, typedef, qualifiers, function, float, type tag
                _ => return Err(BtfError::Damaged),
            };
            composites.push(
                (kind == KIND_STRUCT || kind == KIND_UNION).then_some(Composite {
                    name,
                    size,
                    members: at,
                    count,
                    packed,
                }),
            );
            at = at.checked_add(extra).ok_or(BtfError::Damaged)?;
        }
        Ok(Self {
            types,
            strings,
            composites,
        })
    }

    /// The offset in bytes of the first of `members` that `structure` has, through anonymous
    /// members.
    ///
    /// # Errors
    /// [`BtfError::NoMember`] if there is none, [`BtfError::Damaged`].
    pub(super) fn offset(&self, structure: &str, members: &[&str]) -> Result<u32, BtfError> {
        for member in members {
            // A name may stand for several types (a forward declaration elsewhere is not kept): the
            // first with the member.
            for composite in self.composites.iter().flatten() {
                if self.string(composite.name)? == structure.as_bytes()
                    && let Some(bits) = self.find(composite, member, 0)?
                {
                    return Ok(bits / 8);
                }
            }
        }
        Err(BtfError::NoMember {
            structure: structure.to_owned(),
            member: members.join(" or "),
        })
    }

    /// The size of `structure` in bytes.
    ///
    /// # Errors
    /// [`BtfError::NoStruct`] if there is none, [`BtfError::Damaged`].
    pub(super) fn size(&self, structure: &str) -> Result<u32, BtfError> {
        for composite in self.composites.iter().flatten() {
            if self.string(composite.name)? == structure.as_bytes() {
                return Ok(composite.size);
            }
        }
        Err(BtfError::NoStruct(structure.to_owned()))
    }

    fn find(
        &self,
        composite: &Composite,
        member: &str,
        nesting: usize,
    ) -> Result<Option<u32>, BtfError> {
        if nesting > MAX_NESTING {
            return Ok(None);
        }
        for index in 0..composite.count {
            let at = composite.members + 12 * index;
            let name = self.string(word(self.types, at)?)?;
            let kind = word(self.types, at + 4)? as usize;
            let raw = word(self.types, at + 8)?;
            let bits = if composite.packed {
                raw & 0x00ff_ffff
            } else {
                raw
            };
            if name == member.as_bytes() {
                return Ok(Some(bits));
            }
            if name.is_empty()
                && let Some(Some(inner)) = self.composites.get(kind)
                && let Some(inside) = self.find(inner, member, nesting + 1)?
            {
                return Ok(Some(bits.checked_add(inside).ok_or(BtfError::Damaged)?));
            }
        }
        Ok(None)
    }

    fn string(&self, offset: u32) -> Result<&'a [u8], BtfError> {
        let tail = self
            .strings
            .get(offset as usize..)
            .ok_or(BtfError::Damaged)?;
        let end = tail
            .iter()
            .position(|byte| *byte == 0)
            .ok_or(BtfError::Damaged)?;
        Ok(&tail[..end])
    }
}

fn word(bytes: &[u8], at: usize) -> Result<u32, BtfError> {
    let end = at.checked_add(4).ok_or(BtfError::Damaged)?;
    let word = bytes.get(at..end).ok_or(BtfError::Damaged)?;
    Ok(u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
}

/// Types of one struct with one member, an integer at offset 8, for tests.
#[cfg(test)]
pub(super) fn made_up(structure: &str, member: &str) -> Vec<u8> {
    let strings = format!("\0{structure}\0{member}\0");
    let kind = |kind: u32, count: u32| kind << 24 | count;
    let member_name = 2 + structure.len() as u32;
    let int = [0, kind(1, 0), 4, 0x20];
    let outer = [1, kind(4, 1), 16, member_name, 1, 64];
    let types: Vec<u32> = int.into_iter().chain(outer).collect();
    let len = 4 * types.len() as u32;
    let mut bytes = MAGIC.to_le_bytes().to_vec();
    bytes.extend([1, 0]);
    for value in [24, 0, len, len, strings.len() as u32]
        .into_iter()
        .chain(types)
    {
        bytes.extend(value.to_le_bytes());
    }
    bytes.extend(strings.as_bytes());
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// `struct outer { int a; union { int b; struct { int c; int d; }; }; int e : 3; }`
    fn sample() -> Vec<u8> {
        let strings = b"\0outer\0a\0b\0c\0d\0e\0int\0";
        let mut types: Vec<u32> = Vec::new();
        let kind = |kind: u32, count: u32, flag: u32| kind << 24 | count | flag << 31;
        types.extend([17, kind(1, 0, 0), 4, 0x20]); // 1: int
        types.extend([1, kind(4, 3, 1), 16, 7, 1, 0, 0, 3, 32, 15, 1, 3 << 24 | 96]); // 2: outer, bit sizes in offsets
        types.extend([0, kind(5, 2, 0), 8, 9, 1, 0, 0, 4, 0]); // 3: anonymous union
        types.extend([0, kind(4, 2, 0), 8, 11, 1, 0, 13, 1, 32]); // 4: anonymous struct
        let mut bytes = MAGIC.to_le_bytes().to_vec();
        bytes.extend([1, 0]);
        for value in [
            24,
            0,
            4 * types.len() as u32,
            4 * types.len() as u32,
            strings.len() as u32,
        ] {
            bytes.extend(value.to_le_bytes());
        }
        for value in types {
            bytes.extend(value.to_le_bytes());
        }
        bytes.extend(strings);
        bytes
    }

    #[test]
    fn members_are_found_through_anonymous_ones() {
        // Check that a member's offset is right where it lies in an anonymous union or struct, or
        // is a bit field; and a size.
        let bytes = sample();
        let btf = Btf::parse(&bytes).expect("a hand-made BTF");
        for (member, offset) in [("a", 0), ("b", 4), ("c", 4), ("d", 8), ("e", 12)] {
            assert_eq!(btf.offset("outer", &[member]), Ok(offset), "{member}");
        }
        assert_eq!(btf.offset("outer", &["renamed", "d"]), Ok(8));
        assert_eq!(btf.size("outer"), Ok(16));
        assert!(matches!(btf.size("nothing"), Err(BtfError::NoStruct(_))));
        assert!(matches!(
            btf.offset("outer", &["x"]),
            Err(BtfError::NoMember { .. })
        ));
        assert!(matches!(
            btf.offset("nothing", &["a"]),
            Err(BtfError::NoMember { .. })
        ));
        let bytes = made_up("one", "member");
        let btf = Btf::parse(&bytes).expect("a hand-made BTF");
        assert_eq!(btf.offset("one", &["member"]), Ok(8));
    }

    #[test]
    fn this_kernel_has_the_members_we_need() {
        // Check the reader on a real kernel's type information, against a fact that holds on all of
        // them: a name of 16 bytes.
        let bytes =
            std::fs::read("/sys/kernel/btf/vmlinux").expect("every supported kernel has it");
        let btf = Btf::parse(&bytes).expect("the kernel's own BTF");
        let tid = btf.offset("task_struct", &["pid"]).expect("a thread id");
        assert_eq!(btf.offset("task_struct", &["tgid"]), Ok(tid + 4));
    }

    proptest! {
        #[test]
        fn damaged_bytes_never_panic(cut in 0usize..400, at in 0usize..400, value: u8) {
            // Check that type information cut short or changed anywhere gives an answer or an
            // error.
            let mut bytes = sample();
            let len = bytes.len();
            bytes[at % len] = value;
            bytes.truncate(len - cut % len);
            if let Ok(btf) = Btf::parse(&bytes) {
                for member in ["a", "d", "zzz"] {
                    prop_assert!(btf.offset("outer", &[member]).map_or(true, |offset| offset < 1 << 30));
                }
            }
        }
    }
}
