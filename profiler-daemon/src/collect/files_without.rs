//! Files whose unwind information could not be used: why, and by what their code is followed
//! instead.

use std::collections::BTreeMap;

use crate::unwind::NoTable;

/// Files that are listed by name; the others are only counted.
const MAX_LISTED: usize = 256;

profiler_common::named_enum! {
    /// By what code is followed.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum FollowedBy {
        /// Rules read off the code, and frame pointers where it could not be understood.
        Code => "code",
        /// Frame pointers: there is no table.
        FramePointers => "frame_pointers",
    }
}

/// One file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileWithout {
    /// Its path.
    pub path: Box<str>,
    /// Why its unwind information could not be used.
    pub why: NoTable,
    /// What is used instead.
    pub by: FollowedBy,
}

/// All of them that were met.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FilesWithout {
    /// How many, by reason.
    pub reasons: BTreeMap<NoTable, u64>,
    /// Those met first, by path: 256 at most.
    pub files: Vec<FileWithout>,
}

impl FilesWithout {
    /// Adds files in the order in which they were met.
    pub(super) fn of(files: impl Iterator<Item = FileWithout>) -> Self {
        let mut found = Self::default();
        for file in files {
            *found.reasons.entry(file.why).or_default() += 1;
            if found.files.len() < MAX_LISTED {
                found.files.push(file);
            }
        }
        found.files.sort_by(|one, other| one.path.cmp(&other.path));
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that a crowd of files is counted whole and listed in part, by path.
    #[test]
    fn a_crowd() {
        let file = |number: usize| FileWithout {
            path: format!("/lib/{:04}", 9_999 - number).into(),
            why: if number.is_multiple_of(2) {
                NoTable::NotElf
            } else {
                NoTable::Corrupt
            },
            by: FollowedBy::FramePointers,
        };
        let found = FilesWithout::of((0..2 * MAX_LISTED).map(file));
        let each = MAX_LISTED as u64;
        assert_eq!(
            found.reasons,
            [(NoTable::NotElf, each), (NoTable::Corrupt, each)].into()
        );
        assert_eq!(found.files.len(), MAX_LISTED);
        assert_eq!(&*found.files[MAX_LISTED - 1].path, "/lib/9999");
        assert!(found.files.is_sorted_by_key(|file| file.path.clone()));
    }
}
