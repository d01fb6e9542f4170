//! The open files in which processes name the code that they make at run time: few, and a user who
//! has many of them keeps out none of another user's.

use std::{
    collections::{HashMap, VecDeque},
    sync::Arc,
};

use super::{files::ModuleFile, module::ModuleId, shares::Owner};

/// Most of them open at a time.
const MAX_OPEN: usize = 64;

#[derive(Debug)]
struct OpenMap {
    /// Whose process it is.
    user: Option<u32>,
    file: Arc<ModuleFile>,
}

/// See the module. Oldest first.
#[derive(Debug, Default)]
pub(super) struct PerfMapFiles(VecDeque<OpenMap>);

impl PerfMapFiles {
    /// How many are open.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    /// The modules they belong to.
    pub(super) fn modules(&self) -> impl Iterator<Item = ModuleId> {
        self.0.iter().map(|open| open.file.module)
    }

    /// The file of a module, if it is open.
    pub(super) fn get(&self, module: ModuleId) -> Option<Arc<ModuleFile>> {
        let open = self.0.iter().find(|open| open.file.module == module);
        open.map(|open| Arc::clone(&open.file))
    }

    /// Keeps a file open, in the place of the one that its module had before. Where there are too
    /// many, the oldest of the user who has most is closed; answers whether one was.
    pub(super) fn keep(&mut self, owner: Owner, file: Arc<ModuleFile>) -> bool {
        self.0.retain(|open| open.file.module != file.module);
        let user = owner.user();
        self.0.push_back(OpenMap { user, file });
        self.0.len() > MAX_OPEN && self.close_one()
    }

    /// Closes the files of modules that this chooses.
    pub(super) fn close(&mut self, is_gone: impl Fn(ModuleId) -> bool) {
        self.0.retain(|open| !is_gone(open.file.module));
    }

    fn close_one(&mut self) -> bool {
        let mut of_user: HashMap<Option<u32>, usize> = HashMap::new();
        for open in &self.0 {
            *of_user.entry(open.user).or_default() += 1;
        }
        let most = of_user.values().copied().max();
        let oldest = self
            .0
            .iter()
            .position(|open| of_user.get(&open.user).copied() == most);
        oldest.and_then(|at| self.0.remove(at)).is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::module::FileIdentity;

    fn file(module: u64) -> Arc<ModuleFile> {
        Arc::new(ModuleFile {
            module: ModuleId(module),
            file: std::fs::File::open("/dev/null").unwrap(),
            identity: FileIdentity {
                device: 0,
                inode: 0,
                size_bytes: 0,
                modified_unix_ns: 0,
            },
        })
    }

    fn of(user: u32) -> Owner {
        Owner::Process {
            number: 1,
            user: Some(user),
        }
    }

    // Check that a user with ever more files closes his own oldest and nobody else's, that where
    // all have as many the oldest of all is closed, and that a module has one file.
    #[test]
    fn who_has_most_gives_way() {
        let mut maps = PerfMapFiles::default();
        for module in 0..3 {
            assert!(!maps.keep(of(7), file(module)));
        }
        let closed = (100..300).filter(|module| maps.keep(of(8), file(*module)));
        assert_eq!(closed.count(), 200 + 3 - MAX_OPEN);
        assert_eq!(maps.len(), MAX_OPEN);
        assert!((0..3).all(|module| maps.get(ModuleId(module)).is_some()));
        assert!(maps.get(ModuleId(100)).is_none() && maps.get(ModuleId(299)).is_some());
        assert!(!maps.keep(of(7), file(1)), "it takes its own place");
        for user in 100..200 {
            assert!(maps.keep(of(user), file(u64::from(user) * 1000)));
        }
        assert!((0..3).all(|module| maps.get(ModuleId(module)).is_none()));
        maps.close(|module| module == ModuleId(199_000));
        assert!(maps.len() == MAX_OPEN - 1 && maps.modules().count() == MAX_OPEN - 1);
    }
}
