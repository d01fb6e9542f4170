//! Which frames must be named, or have lines, before a report can be made.

use std::collections::{BTreeSet, HashMap};

use super::{
    error::ReportError,
    fold::Folding,
    member::members,
    places::Places,
    product::Values,
    query::{Scope, Window},
    scope::View,
    walks::undecided,
};
use crate::profile::{frames::FrameId, snapshot::Snapshot, tree::NodePlace};

/// The frames that must have names before a report with names can be made.
///
/// # Errors
/// When the scope names no process.
pub fn frames_needed(snapshot: &Snapshot, scope: &Scope) -> Result<Vec<FrameId>, ReportError> {
    let mut frames = BTreeSet::new();
    for member in members(snapshot, scope)? {
        for node in member.aggregate.nodes().iter().skip(1) {
            if let NodePlace::User(frame) | NodePlace::Kernel(frame) = node.place {
                frames.insert(frame);
            }
        }
    }
    Ok(frames.into_iter().collect())
}

/// The frames that must have lines before a report with lines can be made, those first that were on
/// stacks longest. With `wanted`, only frames of these modules.
///
/// # Errors
/// No such process or window, or no module of that name.
pub fn lines_needed(
    snapshot: &Snapshot,
    scope: &Scope,
    window: Window,
    wanted: Option<&str>,
) -> Result<Vec<FrameId>, ReportError> {
    let only = wanted
        .map(|module| Folding::only(snapshot, module))
        .transpose()?
        .unwrap_or_default();
    let mut weights: HashMap<FrameId, Values> = HashMap::new();
    let view = View::new(snapshot, scope, window)?;
    let places = Places::new(&view);
    for (index, member) in view.members.iter().enumerate() {
        let totals = places.inclusive(index, member);
        for (node, total) in member.aggregate.nodes().iter().zip(totals).skip(1) {
            let (NodePlace::User(frame) | NodePlace::Kernel(frame)) = node.place else {
                continue;
            };
            if total != Values::default() && !only.hides(snapshot.frame(frame).module) {
                weights.entry(frame).or_default().add(&total);
            }
        }
    }
    let mut frames: Vec<(FrameId, Values)> = weights.into_iter().collect();
    frames.sort_unstable_by_key(|(frame, values)| {
        std::cmp::Reverse((
            values.samples,
            values.elapsed_ns(),
            std::cmp::Reverse(*frame),
        ))
    });
    Ok(frames.into_iter().map(|(frame, _)| frame).collect())
}

/// The frames that decide whether stacks are complete: the outermost ones of walks that the kernel
/// did not see end.
///
/// # Errors
/// When the scope names no process.
pub fn outermost_frames(snapshot: &Snapshot, scope: &Scope) -> Result<Vec<FrameId>, ReportError> {
    let mut frames = BTreeSet::new();
    for member in members(snapshot, scope)? {
        frames.extend(undecided(member.aggregate));
    }
    Ok(frames.into_iter().collect())
}
