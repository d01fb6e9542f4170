//! The aggregates that a question is about: processes, and what ended ones left to their image.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::Arc,
};

use super::{
    error::ReportError,
    query::{ImageId, ProcessSelector, Scope},
};
use crate::{
    processes::ids::ProcessKey,
    profile::{
        aggregate::AggregateView,
        input::{CommName, Image},
        snapshot::{ImageView, ProcessView, Snapshot},
    },
    units::BootNs,
};

/// One aggregate in scope.
#[derive(Clone, Copy)]
pub(super) struct Member<'a> {
    /// The process; `None` for what dropped ones were.
    pub(super) process: Option<(ProcessKey, &'a ProcessView)>,
    pub(super) aggregate: &'a AggregateView,
    /// It has no user mode: its kernel frames are always shown.
    pub(super) kernel_thread: bool,
    /// The file executed last.
    pub(super) image: Option<&'a Arc<Image>>,
    /// Of processes that ended and are one together: how many.
    pub(super) ended: u64,
}

/// The process a selector names.
pub(super) fn find<'a>(
    snapshot: &'a Snapshot,
    selector: &ProcessSelector,
) -> Result<(ProcessKey, &'a ProcessView), ReportError> {
    let pid = selector.pid;
    let of_pid = ProcessKey {
        pid,
        start_ns: BootNs::ZERO,
    }..=ProcessKey {
        pid,
        start_ns: BootNs::MAX,
    };
    let found = snapshot.processes().range(of_pid).rev().find(|(key, _)| {
        selector
            .start_ticks
            .is_none_or(|ticks| key.start_ticks() == ticks)
    });
    let selector = *selector;
    match found {
        Some((key, process)) => Ok((*key, process)),
        None if snapshot.was_dropped(pid, selector.start_ticks) => {
            Err(ReportError::DroppedProcess { selector })
        }
        None => Err(ReportError::UnknownProcess { selector }),
    }
}

pub(super) fn members<'a>(
    snapshot: &'a Snapshot,
    scope: &Scope,
) -> Result<Vec<Member<'a>>, ReportError> {
    match scope {
        Scope::Session => Ok(all_members(snapshot)),
        Scope::Process(selector) => find(snapshot, selector).map(|found| vec![member(found)]),
        Scope::Image(image) => {
            let ended = snapshot.images().iter().map(ended);
            let found: Vec<_> = ended.filter(|of| of.image_id() == Some(*image)).collect();
            if found.is_empty() {
                Err(ReportError::UnknownImage { image: *image })
            } else {
                Ok(found)
            }
        }
        Scope::Named(comm) => {
            let mut found = all_members(snapshot);
            found.retain(|member| member.comm() == comm.as_str());
            if found.is_empty() {
                Err(ReportError::UnknownName { comm: *comm })
            } else {
                Ok(found)
            }
        }
    }
}

impl Member<'_> {
    /// What processes that ended and are one are named by.
    pub(super) fn image_id(&self) -> Option<ImageId> {
        match (self.process, self.image) {
            (Some(_), _) => None,
            (None, Some(image)) => Some(ImageId::of(image)),
            (None, None) if self.kernel_thread => Some(ImageId::Kernel),
            (None, None) => Some(ImageId::Other),
        }
    }

    /// The same with how many there were.
    pub(super) fn title(&self) -> String {
        match self.process {
            Some(_) => self.name(),
            None => format!("{} ({} ended)", self.name(), self.ended),
        }
    }

    /// The name of its processes: of those that are one by the file that they executed, what the
    /// kernel names them by it.
    pub(super) fn comm(&self) -> String {
        match (self.process, self.image) {
            (None, Some(_)) => CommName::new(&self.name()).to_string(),
            _ => self.name(),
        }
    }

    /// How its row is called: the name of a process, of the file that ended ones executed.
    pub(super) fn name(&self) -> String {
        match (self.process, self.image) {
            (Some((_, process)), _) => process.info.comm.to_string(),
            (None, Some(image)) => {
                let path = image.path.trim_end_matches('/');
                path.rsplit('/').next().unwrap_or(path).to_owned()
            }
            (None, None) if self.kernel_thread => "[kernel threads]".to_owned(),
            (None, None) => "[other images]".to_owned(),
        }
    }
}

impl ImageId {
    /// The one of a file.
    fn of(image: &Image) -> Self {
        let mut hasher = DefaultHasher::new();
        image.hash(&mut hasher);
        Self::File(hasher.finish())
    }
}

fn member<'a>((key, process): (ProcessKey, &'a ProcessView)) -> Member<'a> {
    Member {
        process: Some((key, process)),
        aggregate: &process.aggregate,
        kernel_thread: process.info.kernel_thread,
        image: process.info.image.as_ref(),
        ended: 0,
    }
}

fn ended(image: &ImageView) -> Member<'_> {
    Member {
        process: None,
        aggregate: &image.aggregate,
        kernel_thread: image.kernel_thread,
        image: image.image.as_ref(),
        ended: image.ended,
    }
}

pub(super) fn all_members(snapshot: &Snapshot) -> Vec<Member<'_>> {
    snapshot
        .processes()
        .iter()
        .map(|(key, process)| member((*key, process)))
        .chain(snapshot.images().iter().map(ended))
        .collect()
}
