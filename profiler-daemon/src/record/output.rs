//! Where the report goes: standard output, or a file that is there whole or not at all.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, anyhow};

/// Where the report goes.
#[derive(Debug)]
pub(super) enum Output {
    /// Standard output.
    Standard,
    /// A file.
    File(Replacement),
}

/// A file that takes the place of another only when it is complete. Dropped before, it leaves
/// nothing.
#[derive(Debug)]
pub(super) struct Replacement {
    file: Option<File>,
    temporary: PathBuf,
    path: PathBuf,
}

/// Whether a path means standard output.
pub(super) fn is_standard(path: &Path) -> bool {
    path == Path::new("-")
}

impl Output {
    /// Gets ready to write.
    ///
    /// # Errors
    /// A sentence why nothing can be written there.
    pub(super) fn open(path: Option<&Path>) -> anyhow::Result<Self> {
        match path {
            Some(path) if !is_standard(path) => Replacement::open(path).map(Self::File),
            _ => Ok(Self::Standard),
        }
    }

    /// Whether a person reads it as it is written.
    pub(super) fn is_terminal(&self) -> bool {
        matches!(self, Self::Standard) && io::stdout().is_terminal()
    }

    /// Writes all of it. Answers the file, where it is one.
    ///
    /// # Errors
    /// A sentence why it cannot be written; a file that was there stays as it was.
    pub(super) fn write(self, bytes: &[u8]) -> anyhow::Result<Option<PathBuf>> {
        match self {
            Self::Standard => {
                let mut out = io::stdout().lock();
                match out.write_all(bytes).and_then(|()| out.flush()) {
                    // Whoever reads has seen enough.
                    Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(None),
                    result => result
                        .map(|()| None)
                        .context("cannot write to standard output"),
                }
            }
            Self::File(replacement) => replacement.write(bytes).map(Some),
        }
    }
}

impl Replacement {
    fn open(path: &Path) -> anyhow::Result<Self> {
        // What a link points to is replaced, not the link.
        let path = match fs::canonicalize(path) {
            Ok(target) => target,
            Err(error) if error.kind() == io::ErrorKind::NotFound => path.to_owned(),
            Err(error) => return Err(error).with_context(|| cannot_write(path)),
        };
        match fs::metadata(&path) {
            Ok(found) if found.is_dir() => {
                return Err(anyhow!("cannot write {}: it is a folder", path.display()));
            }
            Ok(found) if !found.is_file() => {
                return Err(anyhow!(
                    "cannot write {}: it is no plain file; leave -o out and redirect standard output instead",
                    path.display()
                ));
            }
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                return Err(error).with_context(|| cannot_write(&path));
            }
            _ => {}
        }
        let Some(name) = path.file_name() else {
            return Err(anyhow!("cannot write {}: it is a folder", path.display()));
        };
        let mut hidden = std::ffi::OsString::from(".");
        hidden.push(name);
        hidden.push(format!(".{}.tmp", std::process::id()));
        let temporary = path.with_file_name(hidden);
        let file = OpenOptions::new()
            .write(true)
            .create_new(true)
            .open(&temporary)
            .with_context(|| cannot_write(&path))?;
        Ok(Self {
            file: Some(file),
            temporary,
            path,
        })
    }

    fn write(mut self, bytes: &[u8]) -> anyhow::Result<PathBuf> {
        let result = match &mut self.file {
            Some(file) => file.write_all(bytes).and_then(|()| file.sync_all()),
            None => Ok(()),
        };
        result
            .and_then(|()| fs::rename(&self.temporary, &self.path))
            .with_context(|| cannot_write(&self.path))?;
        self.file = None;
        Ok(self.path.clone())
    }
}

impl Drop for Replacement {
    fn drop(&mut self) {
        if self.file.is_some()
            && let Err(error) = fs::remove_file(&self.temporary)
        {
            tracing::warn!("{} stays: {error}", self.temporary.display());
        }
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write {}", path.display())
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::path::Path;

    use tempfile::TempDir;

    use super::Output;

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder).unwrap();
        let mut names: Vec<String> = entries
            .map(|entry| entry.unwrap().file_name().to_string_lossy().into_owned())
            .collect();
        names.sort();
        names
    }

    // Check that a file is replaced whole, through a link as well, and that nothing else stays in
    // the folder.
    #[test]
    fn replaced_whole() {
        let folder = TempDir::new().unwrap();
        let (file, link) = (folder.path().join("a.txt"), folder.path().join("link"));
        fs::write(&file, "a longer text than before").unwrap();
        std::os::unix::fs::symlink("a.txt", &link).unwrap();
        for (path, text) in [(&file, "one"), (&link, "two")] {
            let output = Output::open(Some(path)).unwrap();
            assert_ne!(fs::read_to_string(&file).unwrap(), text, "not yet");
            output.write(text.as_bytes()).unwrap();
            assert_eq!(fs::read_to_string(&file).unwrap(), text);
        }
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names(folder.path()), ["a.txt", "link"]);
    }

    // Check that a recording that comes to nothing leaves the file as it was, and no other.
    #[test]
    fn given_up() {
        let folder = TempDir::new().unwrap();
        let file = folder.path().join("a.txt");
        fs::write(&file, "before").unwrap();
        drop(Output::open(Some(&file)).unwrap());
        drop(Output::open(Some(&folder.path().join("b.txt"))).unwrap());
        assert_eq!(fs::read_to_string(&file).unwrap(), "before");
        assert_eq!(names(folder.path()), ["a.txt"]);
    }

    // Check that folders, devices and places that are not there are refused in one sentence before
    // anything is recorded.
    #[test]
    fn refused() {
        let folder = TempDir::new().unwrap();
        for (path, part) in [
            (folder.path().to_owned(), "it is a folder"),
            ("..".into(), "it is a folder"),
            ("/dev/null".into(), "no plain file"),
            (folder.path().join("no/such/a.txt"), "No such file"),
        ] {
            let sentence = format!("{:#}", Output::open(Some(&path)).unwrap_err());
            assert!(sentence.contains(part), "{sentence}");
        }
        assert!(matches!(Output::open(None), Ok(Output::Standard)));
        assert!(matches!(
            Output::open(Some(Path::new("-"))),
            Ok(Output::Standard)
        ));
    }
}
