//! From `/proc/PID/cgroup` to what people call it: systemd unit, container. Cgroup names are chosen
//! by others.

use std::path::Path;

use rustix::fs::statfs;

/// Whether a folder is in a hierarchy of version 2.
#[must_use]
pub fn is_version_2(folder: &Path) -> bool {
    statfs(folder).is_ok_and(|about| about.f_type == libc::CGROUP2_SUPER_MAGIC)
}

/// Where a process is filed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CgroupFacts {
    /// Path of its control group, from the hierarchy that says most.
    pub path: Option<Box<str>>,
    /// The innermost systemd service or scope.
    pub unit: Option<Box<str>>,
    /// The container's 64 hexadecimal digits (docker, containerd, cri-o, podman, kubernetes), or
    /// its LXC name.
    pub container_id: Option<Box<str>>,
}

impl CgroupFacts {
    /// Reads the file's text. Unknown shapes leave fields empty.
    #[must_use]
    pub fn parse(text: &[u8]) -> Self {
        let text = String::from_utf8_lossy(text);
        let Some(path) = choose(&text) else {
            return Self::default();
        };
        Self {
            path: Some(path.into()),
            unit: unit(path).map(Into::into),
            container_id: container(path).map(Into::into),
        }
    }
}

/// The unified hierarchy where it says anything; on mixed systems the named one of systemd, then
/// whichever is deepest.
fn choose(text: &str) -> Option<&str> {
    let mut best: Option<((bool, bool, usize), &str)> = None;
    for line in text.lines() {
        let mut parts = line.splitn(3, ':');
        let (Some(number), Some(controllers), Some(path)) =
            (parts.next(), parts.next(), parts.next())
        else {
            continue;
        };
        if !path.starts_with('/') || number.parse::<u32>().is_err() {
            continue;
        }
        let named = (number == "0" && controllers.is_empty()) || controllers == "name=systemd";
        let depth = path.split('/').filter(|part| !part.is_empty()).count();
        let rank = (depth > 0, named, depth);
        if best.is_none_or(|(so_far, _)| rank > so_far) {
            best = Some((rank, path));
        }
    }
    best.map(|(_, path)| path)
}

fn unit(path: &str) -> Option<&str> {
    path.rsplit('/')
        .find(|part| part.ends_with(".service") || part.ends_with(".scope"))
}

fn container(path: &str) -> Option<&str> {
    for part in path.rsplit('/') {
        if let Some(name) = part.strip_prefix("lxc.payload.") {
            return Some(name);
        }
        let stem = part.strip_suffix(".scope").unwrap_or(part);
        let id = stem.rsplit([':', '-']).next().unwrap_or(stem);
        let is_id = id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
        // The monitor beside a container has a scope with the same number but runs outside of it.
        if is_id && !stem.contains("conmon") {
            return Some(id);
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const ID: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

    fn facts(text: &str) -> (Option<String>, Option<String>) {
        let facts = CgroupFacts::parse(text.replace("ID", ID).as_bytes());
        (
            facts.unit.map(String::from),
            facts.container_id.map(String::from),
        )
    }

    // Check that each container runtime's way of naming its groups gives the container.
    #[test]
    fn containers() {
        for line in [
            "0::/system.slice/docker-ID.scope",
            "0::/docker/ID",
            "0::/docker/ID/inner/group",
            "0::/kubepods/burstable/pod0a1b/ID",
            "0::/kubepods.slice/kubepods-pod1.slice/cri-containerd-ID.scope",
            "0::/kubepods.slice/kubepods-pod1.slice/crio-ID.scope",
            "0::/system.slice/containerd.service/kubepods-besteffort-pod1.slice:cri-containerd:ID",
            "0::/machine.slice/libpod-ID.scope/container",
            "12:memory:/kubepods/pod1/ID\n1:name=systemd:/kubepods/pod1/ID\n0::/",
        ] {
            assert_eq!(facts(line).1.as_deref(), Some(ID), "{line}");
        }
        assert_eq!(
            facts("0::/lxc.payload.web/init.scope").1.as_deref(),
            Some("web")
        );
        for line in [
            "0::/machine.slice/libpod-conmon-ID.scope",
            "0::/kubepods.slice/crio-conmon-ID.scope",
            "0::/system.slice/ssh.service",
            "0::/docker/short",
            "0::/",
        ] {
            assert_eq!(facts(line).1, None, "{line}");
        }
    }

    // Check that the innermost service or scope is the unit, and that slices alone are none.
    #[test]
    fn units() {
        let unit = |line| facts(line).0;
        assert_eq!(
            unit("0::/system.slice/ssh.service").as_deref(),
            Some("ssh.service")
        );
        assert_eq!(
            unit("0::/user.slice/user-1000.slice/user@1000.service/app.slice/app-a.service")
                .as_deref(),
            Some("app-a.service")
        );
        assert_eq!(
            unit("0::/user.slice/user-0.slice/session-3.scope").as_deref(),
            Some("session-3.scope")
        );
        assert_eq!(unit("0::/user.slice"), None);
    }

    // Check that a mixed system is read from the hierarchy that says most, and that nonsense says
    // nothing.
    #[test]
    fn mixed_hierarchies() {
        let text = b"9:memory:/a/b/c\n1:name=systemd:/system.slice/x.service\n0::/\n";
        assert_eq!(
            CgroupFacts::parse(text).path.as_deref(),
            Some("/system.slice/x.service")
        );
        assert_eq!(
            CgroupFacts::parse(b"9:memory:/a/b\n8:cpu:/a\n0::/")
                .path
                .as_deref(),
            Some("/a/b")
        );
        assert_eq!(CgroupFacts::parse(b"0::/\n").path.as_deref(), Some("/"));
        assert_eq!(
            CgroupFacts::parse(b"\xff:x\n::\nno"),
            CgroupFacts::default()
        );
    }

    proptest! {
        // Check that no bytes make the reader panic, and that a unit is always part of the path.
        #[test]
        fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
            let facts = CgroupFacts::parse(&bytes);
            if let Some(unit) = facts.unit {
                prop_assert!(facts.path.is_some_and(|path| path.contains(&*unit)));
            }
        }
    }
}
