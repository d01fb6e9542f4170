//! Tests of what says which file belongs to a program. That it is found in its places is tested
//! with compiled programs, in tests/lines.

use std::io::Write as _;

use super::*;

fn section(name: &[u8], checksum: u32) -> Vec<u8> {
    let mut section = name.to_vec();
    section.push(0);
    section.resize(section.len().next_multiple_of(4), 0);
    section.extend(checksum.to_le_bytes());
    section
}

// Check that name and checksum are read whatever the padding, and that a name that leads elsewhere
// is none.
#[test]
fn links() {
    for name in ["a", "ab", "abc", "abcd", "libc.so.6.debug"] {
        let found = debug_link(&section(name.as_bytes(), 0x1234_5678)).unwrap();
        assert_eq!((&*found.0, found.1), (name.as_bytes(), 0x1234_5678));
    }
    for name in ["", ".", "..", "/etc/passwd", "../x", "a/b"] {
        assert!(debug_link(&section(name.as_bytes(), 1)).is_none(), "{name}");
    }
    let cut = section(b"name", 1);
    assert!(debug_link(&cut[..cut.len() - 1]).is_none());
    assert!(debug_link(b"no end").is_none());
    assert!(debug_link(b"").is_none());
}

// Check that the path of a build ID is that of debug packages, and that what is too short has none.
#[test]
fn build_ids() {
    assert_eq!(
        build_id_path(&[0xab, 0x01, 0xff]).unwrap(),
        b"/usr/lib/debug/.build-id/ab/01ff.debug"
    );
    assert!(build_id_path(&[0xab]).is_none() && build_id_path(&[]).is_none());
}

// Check that the checksum is the one that debuggers compute, over more than one buffer, and that
// there is none of a file that claims to be huge.
#[test]
fn checksums() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"123456789").unwrap();
    assert_eq!(checksum(&file), Some(0xcbf4_3926));
    file.write_all(&vec![7; 3 << 20]).unwrap();
    let mut hasher = crc32fast::Hasher::new();
    hasher.update(b"123456789");
    hasher.update(&vec![7; 3 << 20]);
    assert_eq!(checksum(&file), Some(hasher.finalize()));
    file.set_len(MAX_CHECKED_BYTES + 1).unwrap();
    assert_eq!(checksum(&file), None);
}
