//! Telling stacks of the session apart by whose they are: each process, or each group of processes,
//! is the first step of its stacks; and what threads that idle have, from what others have.

use super::member::Member;
use super::query::SectionMode;
use crate::profile::groups::group_name;

/// The first step of what is put together of threads that idle.
const IDLE: &str = "[idle threads]";

/// Whose stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackSection {
    /// What is shown as the first step: the group, or name and number of the process.
    pub name: String,
    /// What it stands for: `process` or `idle`.
    pub kind: &'static str,
    /// The process's name; none for a group and for dropped processes.
    pub comm: Option<String>,
    /// The process's number.
    pub pid: Option<u32>,
}

impl StackSection {
    /// That of all threads that idle.
    pub(super) fn idle() -> Self {
        Self {
            name: IDLE.to_owned(),
            kind: "idle",
            comm: None,
            pid: None,
        }
    }

    /// The section of an aggregate; none where they are not told apart.
    pub(super) fn of(member: &Member<'_>, sections: SectionMode) -> Option<Self> {
        let plain = |name: String| Self {
            name,
            kind: "process",
            comm: None,
            pid: None,
        };
        match (sections, member.process) {
            (SectionMode::None, _) => None,
            (SectionMode::Process, None) => Some(plain(member.title())),
            (SectionMode::Group, None) | (SectionMode::Name, _) => Some(plain(member.name())),
            (SectionMode::Group, Some((_, process))) => {
                Some(plain(group_name(&process.info).to_string()))
            }
            (SectionMode::Process, Some((key, process))) => Some(Self {
                name: format!("{} ({})", process.info.comm, key.pid),
                kind: "process",
                comm: Some(process.info.comm.to_string()),
                pid: Some(key.pid),
            }),
        }
    }
}
