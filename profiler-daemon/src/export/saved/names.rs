//! The names of frames as a file keeps them: each function once, each frame by the number of its
//! function.

use std::collections::{BTreeMap, HashMap};

use serde::{Deserialize, Serialize};

use crate::profile::frames::FrameId;
use crate::report::names::Names;
use crate::symbols::names::{FunctionKind, FunctionName, Unnamed};

/// See the module.
#[derive(Debug, Serialize, Deserialize)]
pub struct SavedNames {
    /// The first stands for frames that are not in `frames`.
    functions: Vec<FunctionName>,
    /// The function of a frame, and why it has no name.
    frames: BTreeMap<FrameId, (u32, Option<Unnamed>)>,
}

impl SavedNames {
    /// The names of `frames`; all others are unknown.
    #[must_use]
    pub fn new(frames: &[FrameId], names: &dyn Names) -> Self {
        let unknown = FunctionName {
            name: "[unknown]".into(),
            address: None,
            kind: FunctionKind::Unknown,
            known: false,
        };
        let mut numbers: HashMap<&FunctionName, u32> = HashMap::new();
        let mut functions = vec![unknown];
        let mut named = BTreeMap::new();
        for frame in frames {
            let function = names.function(*frame);
            let next = functions.len() as u32;
            let number = *numbers.entry(function).or_insert_with(|| {
                functions.push(function.clone());
                next
            });
            named.insert(*frame, (number, names.unnamed(*frame)));
        }
        Self {
            functions,
            frames: named,
        }
    }

    /// Whether every frame's function is there.
    pub(super) fn is_whole(&self) -> bool {
        let known = |(number, _): &(u32, _)| (*number as usize) < self.functions.len();
        !self.functions.is_empty() && self.frames.values().all(known)
    }
}

impl Names for SavedNames {
    fn function(&self, frame: FrameId) -> &FunctionName {
        let number = self.frames.get(&frame).map_or(0, |(number, _)| *number);
        &self.functions[number as usize]
    }

    fn unnamed(&self, frame: FrameId) -> Option<Unnamed> {
        self.frames.get(&frame).and_then(|(_, reason)| *reason)
    }
}
