//! What is profiled: everything, or what is named by pid, comm or control group.
//!
//! Checked wherever it comes from: the configuration file, the command line, or a request. It says
//! what was asked for; which threads that is at a given moment is found out elsewhere.

use serde::{Deserialize, Serialize};
use toml::Value;

use super::settings::TargetsMeant;

/// Processes that may be named by number.
pub const MAX_PIDS: usize = 1_024;
/// Names of executables that may be given.
pub const MAX_COMMS: usize = 256;
/// Control groups that may be named.
pub const MAX_CGROUPS: usize = 256;
/// The longest name of an executable that the kernel keeps, in bytes.
pub const MAX_COMM_BYTES: usize = 15;
/// The longest path of a control group, in bytes.
pub const MAX_CGROUP_BYTES: usize = 1_023;
/// The largest process number that Linux can give.
pub const MAX_PID: u32 = 1 << 22;

/// Why a file is refused that says so.
pub(super) const NOTHING_IN_FILE: &str = "nothing would be profiled: leave it out or set it to true, \
     or name something in pids, comms or cgroups";

/// What is profiled. Read from JSON it is checked: unknown fields, values out of bounds and targets
/// that name nothing are refused with a sentence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, utoipa::ToSchema)]
#[serde(try_from = "TargetsAsked")]
pub struct Targets {
    /// Whether everything is profiled. The names below then only decide whose system calls are
    /// measured.
    pub all: bool,
    /// Processes by number, without repetition.
    pub pids: Vec<u32>,
    /// Processes by executable name.
    pub comms: Vec<String>,
    /// Processes by control group path, which begins with `/`.
    pub cgroups: Vec<String>,
    /// Whether children of the named processes are profiled too.
    pub children: bool,
}

impl Default for Targets {
    fn default() -> Self {
        Self {
            all: true,
            pids: Vec::new(),
            comms: Vec::new(),
            cgroups: Vec::new(),
            children: false,
        }
    }
}

/// Targets as a request writes them: pids from 1 to [`MAX_PID`], at most [`MAX_PIDS`]; names of 1
/// to [`MAX_COMM_BYTES`] bytes, at most [`MAX_COMMS`]; paths of at most [`MAX_CGROUP_BYTES`], at
/// most [`MAX_CGROUPS`].
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct TargetsAsked {
    all: bool,
    pids: Vec<u32>,
    comms: Vec<String>,
    cgroups: Vec<String>,
    children: bool,
}

impl Targets {
    /// Whether any process is named.
    #[must_use]
    pub fn names_any(&self) -> bool {
        !(self.pids.is_empty() && self.comms.is_empty() && self.cgroups.is_empty())
    }

    /// The targets by name, as the status shows them.
    #[must_use]
    pub fn in_force(&self) -> serde_json::Map<String, serde_json::Value> {
        match serde_json::to_value(self) {
            Ok(serde_json::Value::Object(shown)) => shown,
            _ => serde_json::Map::new(),
        }
    }

    /// Only the processes of these numbers and names.
    ///
    /// # Errors
    ///
    /// A sentence when there are none, too many, or one cannot be a process number or name.
    pub fn only(pids: Vec<u32>, comms: Vec<String>, children: bool) -> Result<Self, String> {
        TargetsAsked {
            all: false,
            pids,
            comms,
            children,
            ..TargetsAsked::default()
        }
        .try_into()
    }
}

impl TryFrom<TargetsAsked> for Targets {
    type Error = String;

    fn try_from(asked: TargetsAsked) -> Result<Self, String> {
        bounded("pids", asked.pids.len(), MAX_PIDS)?;
        bounded("comms", asked.comms.len(), MAX_COMMS)?;
        bounded("cgroups", asked.cgroups.len(), MAX_CGROUPS)?;
        for pid in &asked.pids {
            check_pid(u64::from(*pid)).map_err(|sentence| format!("pids: {pid}: {sentence}"))?;
        }
        for comm in &asked.comms {
            check_comm(comm).map_err(|sentence| format!("comms: {comm:?}: {sentence}"))?;
        }
        for cgroup in &asked.cgroups {
            check_cgroup(cgroup).map_err(|sentence| format!("cgroups: {cgroup:?}: {sentence}"))?;
        }
        let mut targets = Self {
            all: asked.all,
            pids: asked.pids,
            comms: asked.comms,
            cgroups: asked.cgroups,
            children: asked.children,
        };
        if !targets.all && !targets.names_any() {
            return Err("nothing would be profiled: set \"all\" to true, or name something in \"pids\", \"comms\" \
                        or \"cgroups\""
                .to_owned());
        }
        targets.tidy();
        Ok(targets)
    }
}

impl Targets {
    /// Removes repetition and the slash at the end of a control group's path.
    fn tidy(&mut self) {
        for cgroup in &mut self.cgroups {
            while cgroup.len() > 1 && cgroup.ends_with('/') {
                cgroup.pop();
            }
        }
        self.pids.sort_unstable();
        self.pids.dedup();
        self.comms.sort_unstable();
        self.comms.dedup();
        self.cgroups.sort_unstable();
        self.cgroups.dedup();
    }
}

impl From<TargetsMeant> for Targets {
    /// What the file says. Where it says nothing of `all`, naming something means only that.
    fn from(meant: TargetsMeant) -> Self {
        let mut targets = Self {
            all: false,
            pids: meant.pids,
            comms: meant.comms,
            cgroups: meant.cgroups,
            children: meant.children,
        };
        targets.all = meant.all.unwrap_or(!targets.names_any());
        targets.tidy();
        targets
    }
}

fn bounded(list: &str, count: usize, max: usize) -> Result<(), String> {
    if count > max {
        Err(format!(
            "{list}: {count} are too many, at most {max} may be given"
        ))
    } else {
        Ok(())
    }
}

fn check_pid(pid: u64) -> Result<u32, String> {
    u32::try_from(pid)
        .ok()
        .filter(|pid| (1..=MAX_PID).contains(pid))
        .ok_or_else(|| format!("must be a process number from 1 to {MAX_PID}"))
}

fn check_comm(comm: &str) -> Result<(), String> {
    if comm.is_empty() || comm.len() > MAX_COMM_BYTES || comm.contains('\0') {
        Err(format!(
            "must be 1 to {MAX_COMM_BYTES} bytes, which is what the kernel keeps of a name"
        ))
    } else {
        Ok(())
    }
}

fn check_cgroup(cgroup: &str) -> Result<(), String> {
    let has_dots = cgroup.split('/').any(|part| part == "." || part == "..");
    if !cgroup.starts_with('/')
        || cgroup.len() > MAX_CGROUP_BYTES
        || cgroup.contains('\0')
        || has_dots
    {
        Err(format!(
            "must be a path of at most {MAX_CGROUP_BYTES} bytes that begins with / at the root of the hierarchy, without . and .."
        ))
    } else {
        Ok(())
    }
}

/// Reads a process number as typed.
pub(crate) fn parse_pid(text: &str) -> Result<u32, String> {
    check_pid(text.parse().unwrap_or(0))
}

/// Reads one process number of the configuration file.
pub(super) fn read_pid(written: &Value) -> Result<u32, String> {
    let number = written
        .as_integer()
        .and_then(|number| u64::try_from(number).ok())
        .unwrap_or(0);
    check_pid(number)
}

/// Reads one name of the configuration file.
pub(super) fn read_comm(written: &Value) -> Result<String, String> {
    let text = written.as_str().unwrap_or_default();
    check_comm(text).map(|()| text.to_owned())
}

/// Reads one control group of the configuration file.
pub(super) fn read_cgroup(written: &Value) -> Result<String, String> {
    let text = written.as_str().unwrap_or_default();
    check_cgroup(text).map(|()| text.to_owned())
}

#[cfg(test)]
mod tests {
    use super::{MAX_COMMS, MAX_PIDS, Targets};

    fn read(json: &str) -> Result<Targets, String> {
        serde_json::from_str(json).map_err(|error| error.to_string())
    }

    #[test]
    fn naming_something_means_only_that() {
        // Check that names alone leave out the rest, that everything can be asked for, and that
        // repetition vanishes.
        let targets =
            read(r#"{"pids":[7,3,7],"comms":["sshd"],"cgroups":["/a/"],"children":true}"#).unwrap();
        assert!(!targets.all && targets.children);
        assert_eq!(targets.pids, [3, 7]);
        assert_eq!(targets.cgroups, ["/a"]);
        assert_eq!(read(r#"{"all":true}"#).unwrap(), Targets::default());
        assert!(read(r#"{"all":true,"pids":[1]}"#).unwrap().names_any());
    }

    #[test]
    fn what_would_profile_nothing_is_refused() {
        // Check that an empty request is not mistaken for one that asks for everything or nothing.
        for json in [
            "{}",
            r#"{"all":false}"#,
            r#"{"children":true}"#,
            r#"{"pids":[]}"#,
        ] {
            assert!(
                read(json)
                    .unwrap_err()
                    .contains("nothing would be profiled"),
                "{json}"
            );
        }
    }

    #[test]
    fn every_bound_holds() {
        // Check that counts, process numbers, name lengths and paths beyond their bounds are
        // refused by name.
        let many_pids = format!(r#"{{"pids":{:?}}}"#, (1..=MAX_PIDS + 1).collect::<Vec<_>>());
        let many_comms = format!(r#"{{"comms":{:?}}}"#, vec!["a"; MAX_COMMS + 1]);
        for (json, part) in [
            (many_pids.as_str(), "at most 1024"),
            (many_comms.as_str(), "at most 256"),
            (r#"{"pids":[0]}"#, "pids: 0: must be a process number"),
            (r#"{"pids":[4194305]}"#, "from 1 to 4194304"),
            (r#"{"comms":["sixteen-bytes-xx"]}"#, "1 to 15 bytes"),
            (r#"{"comms":[""]}"#, "1 to 15 bytes"),
            (r#"{"cgroups":["a"]}"#, "begins with /"),
            (r#"{"cgroups":["/a/../b"]}"#, "without . and .."),
            (
                r#"{"pid":[1]}"#,
                "unknown field `pid`, expected one of `all`, `pids`",
            ),
        ] {
            let sentence = read(json).unwrap_err();
            assert!(sentence.contains(part), "{sentence}");
        }
    }
}
