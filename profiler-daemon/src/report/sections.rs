//! Telling stacks of the session apart by whose they are: each process, or each group of processes, is the first step of its
//! stacks.

use super::scope::Member;
use crate::profile::groups::group_name;

/// Whether stacks are told apart by whose they are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Sections {
    /// Not at all.
    #[default]
    None,
    /// By group: systemd unit, else container, else program, else name. As in the metrics.
    Group,
    /// By process.
    Process,
}

/// Whose stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Section {
    /// What is shown as the first step: the group, or name and number of the process.
    pub name: String,
    /// The process's name; none for a group and for dropped processes.
    pub comm: Option<String>,
    /// The process's number.
    pub pid: Option<u32>,
}

impl Section {
    /// The section of an account; none where they are not told apart.
    pub(super) fn of(member: &Member<'_>, sections: Sections) -> Option<Self> {
        let plain = |name: String| Self {
            name,
            comm: None,
            pid: None,
        };
        match (sections, member.process) {
            (Sections::None, _) => None,
            (Sections::Process, None) => Some(plain(member.title())),
            (Sections::Group, None) => Some(plain(member.name())),
            (Sections::Group, Some((_, process))) => {
                Some(plain(group_name(&process.info).to_string()))
            }
            (Sections::Process, Some((key, process))) => Some(Self {
                name: format!("{} ({})", process.info.comm, key.pid),
                comm: Some(process.info.comm.to_string()),
                pid: Some(key.pid),
            }),
        }
    }
}
