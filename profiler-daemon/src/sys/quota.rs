//! Control groups that have a quota of processor time: which ones a process is in, and for how long
//! they were throttled, from their `cpu.stat`. Of version 2, or the `cpu` hierarchy of version 1.
//! Names of groups are chosen by others.

use std::path::{Path, PathBuf};

use super::proc_fs::read_bounded;

/// Where control groups are mounted.
pub const ROOT: &str = "/sys/fs/cgroup";
/// Most bytes read of one file.
const MAX_BYTES: usize = 16 << 10;
/// The longest path of a group, bytes.
const MAX_PATH_BYTES: usize = 1_023;
/// Groups around a process that are looked at, the innermost first.
const MAX_LEVELS: usize = 8;

/// The control group by which a process has its processor time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuGroup {
    hierarchy: PathBuf,
    path: String,
}

impl CpuGroup {
    /// That of a process; `None` where it is gone, in no group but the outermost, or in one that
    /// cannot be seen from here.
    #[must_use]
    pub fn of(pid: u32) -> Option<Self> {
        let text = read_bounded(format!("/proc/{pid}/cgroup"), MAX_BYTES).ok()?;
        Self::parse(&text, Path::new(ROOT))
    }

    /// One of that path, in no hierarchy that there is.
    #[cfg(test)]
    pub(crate) fn made_up(path: &str) -> Self {
        Self {
            hierarchy: PathBuf::new(),
            path: path.to_owned(),
        }
    }

    /// From the text of `/proc/PID/cgroup`; groups are mounted at `root`.
    fn parse(text: &[u8], root: &Path) -> Option<Self> {
        let text = String::from_utf8_lossy(text);
        let lines = text.lines().filter_map(|line| {
            let mut parts = line.splitn(3, ':');
            Some((parts.next()?, parts.next()?, parts.next()?))
        });
        // A controller that version 1 has is not in version 2.
        let mut of_version_2 = None;
        let mut of_version_1 = None;
        for (number, controllers, path) in lines {
            if number == "0" && controllers.is_empty() {
                of_version_2 = Some(path);
            } else if controllers.split(',').any(|name| name == "cpu") {
                of_version_1 = Some((controllers, path));
            }
        }
        let (hierarchy, path) = match (of_version_1, of_version_2) {
            (Some((controllers, path)), _) => (root.join(controllers), path),
            (None, Some(path)) => (root.to_path_buf(), path),
            (None, None) => return None,
        };
        // Beyond the outermost group of this namespace nothing can be read, and nothing outside the
        // hierarchy is.
        let is_inside = path.starts_with('/') && path.split('/').all(|part| part != "..");
        (is_inside && path.len() > 1 && path.len() <= MAX_PATH_BYTES).then(|| Self {
            hierarchy,
            path: path.to_owned(),
        })
    }

    /// It and those around it but for the outermost, which has no quota.
    pub fn and_around(&self) -> impl Iterator<Item = &str> {
        let around = std::iter::successors(Some(self.path.as_str()), |path| {
            let end = path.rfind('/').filter(|end| *end > 0)?;
            Some(&path[..end])
        });
        around.take(MAX_LEVELS)
    }

    /// The folder of the hierarchy that it is in.
    #[must_use]
    pub fn hierarchy(&self) -> &Path {
        &self.hierarchy
    }
}

/// For how long a group has been throttled since it was made, nanoseconds, all processors together;
/// `None` where there is no such group or nothing of the kind is counted for it.
#[must_use]
pub fn throttled_ns(hierarchy: &Path, group: &str) -> Option<u64> {
    let file = hierarchy
        .join(group.trim_start_matches('/'))
        .join("cpu.stat");
    parse_stat(&read_bounded(file, MAX_BYTES).ok()?)
}

fn parse_stat(text: &[u8]) -> Option<u64> {
    let text = std::str::from_utf8(text).ok()?;
    text.lines().find_map(|line| {
        let (name, value) = line.split_once(' ')?;
        let value: u64 = value.trim().parse().ok()?;
        match name {
            "throttled_usec" => Some(value.saturating_mul(1_000)),
            "throttled_time" => Some(value),
            _ => None,
        }
    })
}

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing {
    use super::*;

    /// Reads what groups a process is in, and what a group counts: no path leads out of the
    /// hierarchy.
    pub(crate) fn check(text: &[u8]) {
        if let Some(group) = CpuGroup::parse(text, Path::new("/r")) {
            assert!(group.and_around().count() <= MAX_LEVELS);
            for path in group.and_around() {
                assert!(path.starts_with('/') && path.len() <= MAX_PATH_BYTES);
                assert!(path.split('/').all(|part| part != ".."));
            }
        }
        let is_said = text.windows(9).any(|part| part == b"throttled");
        assert!(parse_stat(text).is_none() || is_said);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(text: &str) -> Option<(String, String)> {
        let group = CpuGroup::parse(text.as_bytes(), Path::new("/r"))?;
        Some((group.hierarchy.display().to_string(), group.path))
    }

    // Check that the group is taken from the hierarchy that has the controller, and that the
    // outermost group and paths that lead out are none.
    #[test]
    fn groups() {
        let found = |hierarchy: &str, path: &str| Some((hierarchy.to_owned(), path.to_owned()));
        assert_eq!(group("0::/a.slice/b\n"), found("/r", "/a.slice/b"));
        let mixed = "3:cpuset:/c\n2:cpu,cpuacct:/a/b\n1:name=systemd:/s\n0::/u\n";
        assert_eq!(group(mixed), found("/r/cpu,cpuacct", "/a/b"));
        assert_eq!(group("1:cpu:/a:b\n"), found("/r/cpu", "/a:b"));
        let long = format!("0::/{}\n", "x".repeat(MAX_PATH_BYTES));
        for text in [
            "0::/\n",
            "0::/../x\n",
            "0::x\n",
            "2:cpu:/\n0::/x\n",
            "3:cpuset:/c\n",
            &long,
            "",
        ] {
            assert_eq!(group(text), None, "{text}");
        }
    }

    // Check that the groups around one are told, innermost first, without the outermost, and not
    // too many.
    #[test]
    fn around() {
        let of = |text: &str| -> Vec<String> {
            let group = CpuGroup::parse(text.as_bytes(), Path::new("/r")).unwrap();
            group.and_around().map(str::to_owned).collect()
        };
        assert_eq!(of("0::/a/b/c"), ["/a/b/c", "/a/b", "/a"]);
        assert_eq!(of(&format!("0::{}", "/x".repeat(100))).len(), MAX_LEVELS);
    }

    // Check that both versions' counters are read from made-up folders, as nanoseconds, and that a
    // group without a quota, one that is gone, and nonsense say nothing.
    #[test]
    fn counters() {
        let root = tempfile::TempDir::new().unwrap();
        for (group, stat) in [
            ("two", "usage_usec 9\nnr_throttled 3\nthrottled_usec 12\n"),
            ("one", "nr_periods 4\nnr_throttled 3\nthrottled_time 13\n"),
            ("none", "usage_usec 9\nuser_usec 1\n"),
            ("odd", "throttled_usec\nthrottled_time -3\n\u{1}"),
        ] {
            std::fs::create_dir(root.path().join(group)).unwrap();
            std::fs::write(root.path().join(group).join("cpu.stat"), stat).unwrap();
        }
        let of = |group: &str| throttled_ns(root.path(), group);
        assert_eq!((of("/two"), of("/one")), (Some(12_000), Some(13)));
        assert_eq!((of("/none"), of("/odd"), of("/gone")), (None, None, None));
    }
}
