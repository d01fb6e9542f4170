//! Reads `/proc/PID/maps`, executable mappings only. Pure; paths in it are chosen by others and may
//! hold anything.

use super::perf_record::Device;
use crate::units::{FileOffset, VirtualAddress};

/// One executable mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapsEntry {
    /// First address.
    pub start: VirtualAddress,
    /// Address behind the last one; larger than `start`.
    pub end: VirtualAddress,
    /// Where in the file it begins, bytes.
    pub file_offset: FileOffset,
    /// Device of the file; 0:0 without one.
    pub device: Device,
    /// Inode of the file; 0 without one.
    pub inode: u64,
    /// Path with its escapes undone, `[vdso]`, … or empty. ` (deleted)` at the end is left: it may
    /// be part of the name.
    pub path: Box<[u8]>,
}

/// The executable mappings of a process, in order of address.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ExecMaps {
    /// The mappings.
    pub entries: Vec<MapsEntry>,
    /// Lines that were not understood.
    pub malformed: u64,
    /// Whether mappings were left out because there were more than asked for.
    pub truncated: bool,
}

/// Reads the lines, keeping at most `limit` executable mappings.
#[must_use]
pub fn parse(text: &[u8], limit: usize) -> ExecMaps {
    let mut maps = ExecMaps::default();
    for line in text
        .split(|byte| *byte == b'\n')
        .filter(|line| !line.is_empty())
    {
        match parse_line(line) {
            None => maps.malformed += 1,
            Some(None) => {}
            Some(Some(_)) if maps.entries.len() >= limit => maps.truncated = true,
            Some(Some(entry)) => maps.entries.push(entry),
        }
    }
    maps
}

/// `None`: not a line of maps. `Some(None)`: not executable.
fn parse_line(line: &[u8]) -> Option<Option<MapsEntry>> {
    let (range, rest) = word(line)?;
    let (start, end) = hex_pair(range, b'-')?;
    let (permissions, rest) = word(rest)?;
    if permissions.len() != 4 || start >= end {
        return None;
    }
    let (offset, rest) = word(rest)?;
    let (device, rest) = word(rest)?;
    let (inode, rest) = word(rest)?;
    if permissions[2] != b'x' {
        return Some(None);
    }
    let (major, minor) = hex_pair(device, b':')?;
    let path = rest
        .iter()
        .position(|byte| *byte != b' ')
        .map_or(&[][..], |begin| &rest[begin..]);
    Some(Some(MapsEntry {
        start: VirtualAddress::new(start),
        end: VirtualAddress::new(end),
        file_offset: FileOffset::new(hex(offset)?),
        device: Device {
            major: u32::try_from(major).ok()?,
            minor: u32::try_from(minor).ok()?,
        },
        inode: std::str::from_utf8(inode).ok()?.parse().ok()?,
        path: unescape(path),
    }))
}

/// The first word and what follows the one space behind it.
fn word(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = line
        .iter()
        .position(|byte| *byte == b' ')
        .unwrap_or(line.len());
    if end == 0 {
        return None;
    }
    Some((&line[..end], line.get(end + 1..).unwrap_or_default()))
}

fn hex(digits: &[u8]) -> Option<u64> {
    u64::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()
}

fn hex_pair(text: &[u8], between: u8) -> Option<(u64, u64)> {
    let at = text.iter().position(|byte| *byte == between)?;
    Some((hex(&text[..at])?, hex(&text[at + 1..])?))
}

/// The kernel writes a line end inside a path as `\012`, and nothing else so.
fn unescape(path: &[u8]) -> Box<[u8]> {
    let mut plain = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((first, behind)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(b"\\012") {
            plain.push(b'\n');
            rest = behind;
        } else {
            plain.push(*first);
            rest = behind;
        }
    }
    plain.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Check that only executable lines are kept, with range, offset, device and inode.
    #[test]
    fn executable_only() {
        let text = b"55d0-55e0 r--p 00000000 fe:01 99    /usr/bin/a\n\
            55e0-5600 r-xp 00001000 fe:01 99                         /usr/bin/a\n\
            7f00-7f10 rwxp 00000000 00:00 0 \n\
            7fff-8000 r-xp 00000000 00:00 0                          [vdso]\n";
        let maps = parse(text, 10);
        assert_eq!(
            (maps.entries.len(), maps.malformed, maps.truncated),
            (3, 0, false)
        );
        assert_eq!(
            maps.entries[0],
            MapsEntry {
                start: VirtualAddress::new(0x55e0),
                end: VirtualAddress::new(0x5600),
                file_offset: FileOffset::new(0x1000),
                device: Device {
                    major: 0xfe,
                    minor: 1
                },
                inode: 99,
                path: (*b"/usr/bin/a").into(),
            }
        );
        assert!(maps.entries[1].path.is_empty());
        assert_eq!(&*maps.entries[2].path, b"[vdso]");
        assert!(parse(text, 2).truncated);
    }

    // Check that spaces, escaped line ends, deleted files and odd bytes in a path survive, and
    // broken lines are counted.
    #[test]
    fn hostile_paths() {
        let text = b"1-2 r-xp 0 0:1 5 /a b  c\n\
            2-3 r-xp 0 0:1 5 /x\\0121-2 r-xp 0 0:1 6 /fake\n\
            3-4 r-xp 0 0:1 5 /gone (deleted)\n\
            4-5 r-xp 0 0:1 5 /\xff\\101\n\
            9-8 r-xp 0 0:1 5 /backwards\n\
            nonsense\n";
        let maps = parse(text, 10);
        let paths: Vec<&[u8]> = maps.entries.iter().map(|entry| &*entry.path).collect();
        let expected: [&[u8]; 4] = [
            b"/a b  c",
            b"/x\n1-2 r-xp 0 0:1 6 /fake",
            b"/gone (deleted)",
            b"/\xff\\101",
        ];
        assert_eq!(paths, expected);
        assert_eq!(maps.malformed, 2);
    }

    // Check that this process finds its own code in its own maps.
    #[test]
    fn own_maps() {
        let here = VirtualAddress::new(own_maps as fn() as usize as u64);
        let maps = parse(&std::fs::read("/proc/self/maps").unwrap(), 1000);
        let mapping = maps
            .entries
            .iter()
            .find(|entry| (entry.start..entry.end).contains(&here))
            .unwrap();
        let own = std::env::current_exe().unwrap();
        assert_eq!(&*mapping.path, own.as_os_str().as_encoded_bytes());
        assert_eq!(maps.malformed, 0);
    }

    proptest! {
        // Check that no text makes the reader panic, and that ranges are never empty.
        #[test]
        fn any_text(text in "[0-9a-f rxwp:/\\\\\n-]{0,200}") {
            for entry in parse(text.as_bytes(), 100).entries {
                prop_assert!(entry.start < entry.end);
            }
        }
    }
}
