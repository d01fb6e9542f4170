//! Which program a command begins with: its file as the shell finds it, or, of a script, the
//! interpreter that its first line names.

use std::ffi::OsStr;
use std::fs::{self, File};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::Context as _;

use crate::elf;

/// How many interpreters of interpreters the kernel follows.
const MAX_INTERPRETERS: usize = 5;
/// Bytes of a file that the kernel looks at to tell what it is.
const HEAD: usize = 256;

/// The file whose code the command begins with. `None`: there is none, or it is of a kind of which
/// nothing is known before it runs.
///
/// # Errors
/// A file on the way cannot be read.
pub(super) fn begins_with(command: &OsStr) -> anyhow::Result<Option<(PathBuf, File)>> {
    let mut found = find(command);
    for _ in 0..=MAX_INTERPRETERS {
        let Some(path) = found else {
            return Ok(None);
        };
        let cannot = || format!("cannot read {}", path.display());
        let file = File::open(&path).with_context(cannot)?;
        let mut head = [0; HEAD];
        let length = read_head(&file, &mut head).with_context(cannot)?;
        let head = &head[..length];
        if head.starts_with(&elf::ELFMAG) {
            return Ok(Some((path, file)));
        }
        found = interpreter(head).and_then(|path| existing(Path::new(path)));
    }
    Ok(None)
}

/// The file of a command, as the shell finds it.
fn find(command: &OsStr) -> Option<PathBuf> {
    let path = Path::new(command);
    if path.components().count() > 1 {
        return existing(path);
    }
    let places = std::env::var_os("PATH")?;
    std::env::split_paths(&places).find_map(|place| existing(&place.join(path)))
}

fn existing(path: &Path) -> Option<PathBuf> {
    let is_file = fs::metadata(path).is_ok_and(|metadata| metadata.is_file());
    fs::canonicalize(path).ok().filter(|_| is_file)
}

fn read_head(file: &File, head: &mut [u8; HEAD]) -> io::Result<usize> {
    let mut length = 0;
    while length < HEAD {
        match file.read_at(&mut head[length..], length as u64)? {
            0 => break,
            read => length += read,
        }
    }
    Ok(length)
}

/// What the first line of a script says that it is executed by.
fn interpreter(head: &[u8]) -> Option<&OsStr> {
    let line = head.strip_prefix(b"#!")?;
    let line = line.split(|byte| *byte == b'\n').next()?;
    let is_blank = |byte: &u8| matches!(byte, b' ' | b'\t');
    let mut words = line.split(is_blank).filter(|word| !word.is_empty());
    words.next().map(OsStr::from_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt;

    fn script(folder: &Path, name: &str, text: &[u8]) -> PathBuf {
        let path = folder.join(name);
        fs::write(&path, text).expect("a file");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("executable");
        path
    }

    // Check that a script begins with its interpreter, also through another script, that a program
    // is itself, and that what names none, names itself or is cut is no program.
    #[test]
    fn scripts_begin_with_their_interpreters() {
        let own = std::env::current_exe().expect("a path");
        let own = fs::canonicalize(own).expect("a file");
        let folder = tempfile::tempdir().expect("a folder");
        let begins = |path: &Path| {
            let found = begins_with(path.as_os_str()).expect("readable");
            found.map(|(path, _)| path)
        };
        assert_eq!(begins(&own), Some(own.clone()));
        let line = [b"#! \t", own.as_os_str().as_bytes(), b" -x\nrest"].concat();
        let first = script(folder.path(), "first", &line);
        assert_eq!(begins(&first), Some(own.clone()));
        let line = [b"#!", first.as_os_str().as_bytes()].concat();
        let second = script(folder.path(), "second", &line);
        assert_eq!(begins(&second), Some(own));
        let itself = folder.path().join("itself");
        let line = [b"#!", itself.as_os_str().as_bytes(), b"\n"].concat();
        script(folder.path(), "itself", &line);
        assert_eq!(begins(&itself), None);
        for text in [
            &b""[..],
            b"#!",
            b"#!\n/bin/sh",
            b"echo\n",
            b"#!/no/such/file\n",
        ] {
            let path = script(folder.path(), "other", text);
            assert_eq!(begins(&path), None, "{text:?}");
        }
        assert_eq!(begins(folder.path()), None);
        assert_eq!(begins(Path::new("no-such-program")), None);
    }
}
