//! The element by which the programs are told what to do. Nobody else writes it, so it is written
//! whole.

use aya::maps::{Array, MapData};
use profiler_common::records::{Control, FIRST_GENERATION};

use super::maps::Maps;
use super::refusal::StartError;
use super::settings::TracedSystemCalls;

/// The element, and what it is to be.
pub(super) struct ControlElement {
    map: Array<MapData, Control>,
    /// In force once it is written.
    pub(super) value: Control,
}

impl ControlElement {
    /// Not written yet: the programs do nothing.
    ///
    /// # Errors
    /// [`StartError::Map`] if the map is missing.
    pub(super) fn new(maps: &mut Maps<'_>, calls: TracedSystemCalls) -> Result<Self, StartError> {
        Ok(Self {
            map: maps.typed("CONTROL")?,
            value: Control {
                generation: FIRST_GENERATION,
                system_calls: calls.number(),
                ..Control::default()
            },
        })
    }

    /// Tells the programs.
    ///
    /// # Errors
    /// [`StartError::Map`] if the kernel refuses; what is to be is then told by the next writing.
    pub(super) fn write(&mut self) -> Result<(), StartError> {
        self.map
            .set(0, self.value, 0)
            .map_err(|error| StartError::map("CONTROL", error))
    }

    /// Threads are evaluated anew at their next event, once this is written.
    pub(super) const fn next_generation(&mut self) {
        let next = self.value.generation.wrapping_add(1);
        self.value.generation = if next == 0 { 1 } else { next };
    }

    /// Has sums go to the other buffer from now on, and returns which of the two they went to: it
    /// is quiet once no program runs any more that ran by now.
    ///
    /// # Errors
    /// [`StartError::Map`] if the kernel refuses.
    pub(super) fn flip_half(&mut self) -> Result<usize, StartError> {
        let full = self.value.buffer as usize;
        self.value.buffer = 1 - self.value.buffer;
        self.write()?;
        Ok(full)
    }
}
