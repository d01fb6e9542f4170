//! Tables kept on disk: one file per table in a folder of the daemon's own, found by what
//! identifies the file it was made from. The folder may vanish, fill up or hold nonsense at any
//! time: all of that is counted, and the table is built anew.
//!
//! It must not be given tables of files that someone else can write: whoever writes a file chooses
//! its build ID, and could put a wrong table in the place of another file's. The worker sees to
//! that.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    iter,
    os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _},
    path::{Path, PathBuf},
    time::SystemTime,
};

use super::{
    format::{self, Damage},
    table::UnwindTable,
};
use crate::{
    elf::{Segment, build_id::Build},
    processes::module::FileIdentity,
};

/// Most bytes of one table on disk: a table of the most rows, with pages.
const MAX_TABLE_BYTES: u64 = 80 << 20;
/// Most tables kept.
const MAX_TABLES: usize = 4096;
const ENDING: &str = "table";
const UNFINISHED: &str = "part";

/// What a table belongs to.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TableKey {
    /// A file that bears the linker's mark.
    Build(Build),
    /// A file without one.
    File(FileIdentity),
}

impl TableKey {
    /// The key as bytes, unlike for unlike keys.
    fn bytes(&self) -> Vec<u8> {
        match self {
            Self::Build(build) => {
                let id_bytes = build.id.len() as u64;
                let head = [build.size_bytes, id_bytes].into_iter();
                let code = build.code.iter().flat_map(|segment| {
                    let Segment {
                        address,
                        offset,
                        size_bytes,
                    } = *segment;
                    [address.get(), offset.get(), size_bytes]
                });
                let numbers = head.chain(code).flat_map(u64::to_le_bytes);
                let id = build.id.iter().copied();
                iter::once(b'b').chain(numbers).chain(id).collect()
            }
            Self::File(file) => [
                b"f",
                &file.device.to_le_bytes()[..],
                &file.inode.to_le_bytes(),
                &file.size_bytes.to_le_bytes(),
                &file.modified_unix_ns.to_le_bytes(),
            ]
            .concat(),
        }
    }
}

/// How the cache did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheCounts {
    /// Tables found.
    pub hits: u64,
    /// Tables not found.
    pub misses: u64,
    /// Tables written.
    pub written: u64,
    /// Files that were cut short or changed.
    pub corrupt: u64,
    /// Files of another version or of another table.
    pub foreign: u64,
    /// Tables that could not be written: the disk is full, or the folder is gone.
    pub not_written: u64,
    /// Tables dropped for room.
    pub evicted: u64,
}

/// The folder.
#[derive(Debug)]
pub struct TableCache {
    folder: PathBuf,
    max_bytes: u64,
    counts: CacheCounts,
}

impl TableCache {
    /// Makes the folder if it is not there, and clears what an earlier run left unfinished. Keeps
    /// at most `max_bytes`.
    ///
    /// # Errors
    ///
    /// The folder cannot be made or read.
    pub fn open(folder: &Path, max_bytes: u64) -> io::Result<Self> {
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(folder)?;
        for entry in fs::read_dir(folder)? {
            let path = entry?.path();
            if path.extension().is_some_and(|ending| ending == UNFINISHED) {
                fs::remove_file(path)?;
            }
        }
        Ok(Self {
            folder: folder.to_owned(),
            max_bytes,
            counts: CacheCounts::default(),
        })
    }

    /// How it did.
    #[must_use]
    pub const fn counts(&self) -> CacheCounts {
        self.counts
    }

    /// The table, if it is there and sound. It is then the one used last.
    pub fn get(&mut self, key: &TableKey) -> Option<UnwindTable> {
        let key = key.bytes();
        let path = self.path(&key, ENDING);
        let Ok(bytes) = read(&path) else {
            self.counts.misses += 1;
            return None;
        };
        match format::decode(&key, &bytes) {
            Ok(table) => {
                self.counts.hits += 1;
                let touched =
                    File::open(&path).and_then(|file| file.set_modified(SystemTime::now()));
                if touched.is_err() {
                    self.counts.not_written += 1;
                }
                Some(table)
            }
            Err(damage) => {
                match damage {
                    Damage::Foreign => self.counts.foreign += 1,
                    Damage::Corrupt => self.counts.corrupt += 1,
                }
                self.counts.misses += 1;
                None
            }
        }
    }

    /// Keeps the table, in place of those unused for longest.
    pub fn put(&mut self, key: &TableKey, table: &UnwindTable) {
        let key = key.bytes();
        let bytes = format::encode(&key, table);
        let size = bytes.len() as u64;
        if size > self.max_bytes.min(MAX_TABLE_BYTES) || self.write(&key, &bytes).is_err() {
            self.counts.not_written += 1;
        } else {
            self.counts.written += 1;
        }
    }

    fn write(&mut self, key: &[u8], bytes: &[u8]) -> io::Result<()> {
        self.make_room(bytes.len() as u64)?;
        let unfinished = self.path(key, UNFINISHED);
        let written = (|| {
            let mut file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .mode(0o600)
                .open(&unfinished)?;
            file.write_all(bytes)?;
            fs::rename(&unfinished, self.path(key, ENDING))
        })();
        if written.is_err() {
            // What could not be written whole takes no room. If it cannot be removed either, the
            // next start tries again.
            drop(fs::remove_file(&unfinished));
        }
        written
    }

    fn make_room(&mut self, wanted: u64) -> io::Result<()> {
        let mut kept = Vec::new();
        let mut total = wanted;
        for entry in fs::read_dir(&self.folder)? {
            let entry = entry?;
            let path = entry.path();
            if path.extension().is_none_or(|ending| ending != ENDING) {
                continue;
            }
            let metadata = entry.metadata()?;
            total = total.saturating_add(metadata.len());
            kept.push((metadata.modified()?, path, metadata.len()));
        }
        kept.sort_unstable();
        let mut left = kept.len();
        for (_, path, size) in kept {
            if total <= self.max_bytes && left < MAX_TABLES {
                break;
            }
            fs::remove_file(path)?;
            self.counts.evicted += 1;
            total -= size;
            left -= 1;
        }
        Ok(())
    }

    /// Two keys may share a name: the key itself stands in the file.
    fn path(&self, key: &[u8], ending: &str) -> PathBuf {
        let (first, second) =
            key.iter()
                .fold((0xcbf2_9ce4_8422_2325_u64, 0_u64), |(a, b), byte| {
                    let a = (a ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
                    (a, b.rotate_left(7) ^ a)
                });
        self.folder
            .join(format!("{first:016x}{second:016x}.{ending}"))
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?
        .take(MAX_TABLE_BYTES)
        .read_to_end(&mut bytes)?;
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::unwind::{BuildLimits, build_file};

    fn own_table() -> UnwindTable {
        let file = File::open("/proc/self/exe").unwrap();
        build_file(&file, &BuildLimits::default(), &mut || true).unwrap()
    }

    fn key(first: u8) -> TableKey {
        TableKey::Build(Build {
            id: [first; 20].into(),
            size_bytes: 1,
            code: Box::default(),
        })
    }

    // Check that a table comes back as it was, also in the next run, and only under its own key.
    #[test]
    fn comes_back() {
        let folder = tempfile::tempdir().unwrap();
        let table = own_table();
        let mut cache = TableCache::open(folder.path(), 1 << 30).unwrap();
        assert_eq!(cache.get(&key(1)), None);
        cache.put(&key(1), &table);
        let mut cache = TableCache::open(folder.path(), 1 << 30).unwrap();
        assert!(cache.get(&key(1)) == Some(table));
        assert_eq!(cache.get(&key(2)), None);
        let counts = cache.counts();
        assert_eq!((counts.hits, counts.misses), (1, 1));
    }

    // Check that any damage is noticed: each byte near the beginning and the end changed, and every
    // kind of cut.
    #[test]
    fn damage() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = TableCache::open(folder.path(), 1 << 30).unwrap();
        cache.put(&key(1), &own_table());
        let path = cache.path(&key(1).bytes(), ENDING);
        let good = fs::read(&path).unwrap();
        let places = (0..400).chain(good.len() - 40..good.len());
        for place in places.clone() {
            let mut bad = good.clone();
            bad[place] ^= 0x41;
            fs::write(&path, &bad).unwrap();
            assert_eq!(cache.get(&key(1)), None, "byte {place}");
        }
        for length in places {
            fs::write(&path, &good[..length]).unwrap();
            assert_eq!(cache.get(&key(1)), None, "cut at {length}");
        }
        let counts = cache.counts();
        assert_eq!(counts.corrupt + counts.foreign, 880);
        // The table of another file under this name.
        fs::write(&path, format::encode(b"other", &own_table())).unwrap();
        assert_eq!(cache.get(&key(1)), None);
        assert_eq!(cache.counts().foreign - counts.foreign, 1);
    }

    // Check that the folder stays within its bound, and that the tables unused for longest go
    // first.
    #[test]
    fn evicts() {
        let folder = tempfile::tempdir().unwrap();
        let table = own_table();
        let size = format::encode(&key(0).bytes(), &table).len() as u64;
        let mut cache = TableCache::open(folder.path(), 3 * size + 10).unwrap();
        for first in 0..3 {
            cache.put(&key(first), &table);
            let old = SystemTime::now() - std::time::Duration::from_secs(100 - u64::from(first));
            let path = cache.path(&key(first).bytes(), ENDING);
            File::open(path).unwrap().set_modified(old).unwrap();
        }
        assert!(cache.get(&key(0)).is_some());
        cache.put(&key(3), &table);
        let kept: Vec<_> = (0..4)
            .map(|first| cache.get(&key(first)).is_some())
            .collect();
        assert_eq!(kept, [true, false, true, true]);
        assert_eq!(cache.counts().evicted, 1);
    }

    // Check that without a folder, and with a table larger than all room, nothing breaks and it is
    // counted.
    #[test]
    fn no_room() {
        let folder = tempfile::tempdir().unwrap();
        let mut cache = TableCache::open(folder.path(), 100).unwrap();
        cache.put(&key(1), &own_table());
        assert_eq!(cache.counts().not_written, 1);
        let mut cache = TableCache::open(folder.path(), 1 << 30).unwrap();
        drop(folder);
        cache.put(&key(1), &own_table());
        assert_eq!(cache.get(&key(1)), None);
        assert_eq!(cache.counts().not_written, 1);
    }

    // Check that what an interrupted run left is cleared.
    #[test]
    fn unfinished() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("0.part"), b"x").unwrap();
        TableCache::open(folder.path(), 1 << 30).unwrap();
        assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 0);
    }
}
