//! Writes an archive that a Linux kernel unpacks into its first file system: cpio in the "newc"
//! format, not compressed.
//!
//! Format: Documentation/driver-api/early-userspace/buffer-format.rst of the kernel. Folders and
//! files only.

use std::collections::BTreeSet;

/// Folders may be entered, files read and executed, by everyone.
const FOLDER: u32 = 0o040_755;
const FILE: u32 = 0o100_755;

/// An archive under way.
#[derive(Default)]
pub(super) struct Archive {
    bytes: Vec<u8>,
    folders: BTreeSet<String>,
    entries: u32,
}

impl Archive {
    /// Adds a folder, and those it lies in, unless they are there. The path may begin with a slash.
    pub(super) fn folder(&mut self, path: &str) {
        let path = path.trim_matches('/');
        let ends = path.match_indices('/').map(|(at, _)| at);
        for end in ends.chain([path.len()]) {
            if end > 0 && self.folders.insert(path[..end].to_owned()) {
                self.entry(&path[..end], FOLDER, &[]);
            }
        }
    }

    /// Adds a file that may be executed, and the folders it lies in.
    pub(super) fn file(&mut self, path: &str, content: &[u8]) {
        let path = path.trim_start_matches('/');
        if let Some((folder, _)) = path.rsplit_once('/') {
            self.folder(folder);
        }
        self.entry(path, FILE, content);
    }

    /// The whole archive.
    pub(super) fn finish(mut self) -> Vec<u8> {
        self.entry("TRAILER!!!", 0, &[]);
        self.bytes
    }

    fn entry(&mut self, name: &str, mode: u32, content: &[u8]) {
        self.entries += 1;
        let name_bytes = name.len() + 1;
        // Inode, mode, user, group, links, time, size, device and that of a node (major, minor),
        // name's length, checksum.
        let fields = [
            self.entries as usize,
            mode as usize,
            0,
            0,
            1,
            0,
            content.len(),
            0,
            0,
            0,
            0,
            name_bytes,
            0,
        ];
        self.bytes.extend(b"070701");
        for field in fields {
            self.bytes.extend(format!("{field:08X}").bytes());
        }
        self.bytes.extend(name.bytes().chain([0]));
        self.pad();
        self.bytes.extend(content);
        self.pad();
    }

    /// Each head and each content begins at a multiple of four.
    fn pad(&mut self) {
        self.bytes.resize(self.bytes.len().next_multiple_of(4), 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_has_what_was_put_in() {
        // Check that folders come once and before what lies in them, and that heads, names and
        // contents are where they belong.
        let mut archive = Archive::default();
        archive.file("/a/b/c", b"hello");
        archive.file("a/d", b"");
        let bytes = archive.finish();
        let mut at = 0;
        let mut found = Vec::new();
        while at < bytes.len() {
            assert_eq!(&bytes[at..at + 6], b"070701");
            let field = |index: usize| {
                let start = at + 6 + 8 * index;
                let text = std::str::from_utf8(&bytes[start..start + 8]).expect("digits");
                usize::from_str_radix(text, 16).expect("a number")
            };
            let (mode, size, name_bytes) = (field(1), field(6), field(11));
            let name = at + 110;
            let content = (name + name_bytes).next_multiple_of(4);
            found.push((
                String::from_utf8_lossy(&bytes[name..name + name_bytes - 1]).into_owned(),
                mode & 0o170_000 == 0o040_000,
                bytes[content..content + size].to_vec(),
            ));
            at = (content + size).next_multiple_of(4);
        }
        let expected = [
            ("a", true, ""),
            ("a/b", true, ""),
            ("a/b/c", false, "hello"),
            ("a/d", false, ""),
            ("TRAILER!!!", false, ""),
        ]
        .map(|(name, folder, content)| (name.to_owned(), folder, content.as_bytes().to_vec()));
        assert_eq!(found, expected);
    }
}
