//! Takes the maps out of a loaded object: each once, as the type it is, or mapped.

use aya::maps::{Map, MapData, MapError};
use aya::{Ebpf, Pod};

use super::records::Records;
use super::refusal::StartError;

/// The maps that are still in the object. All that is taken lives on without it.
pub(super) struct Maps<'a>(&'a mut Ebpf);

impl<'a> Maps<'a> {
    pub(super) const fn of(ebpf: &'a mut Ebpf) -> Self {
        Self(ebpf)
    }

    /// A map as aya knows it.
    ///
    /// # Errors
    /// [`StartError::Map`] if the object has no such map, or one of another type.
    pub(super) fn typed<T>(&mut self, name: &'static str) -> Result<T, StartError>
    where
        T: TryFrom<Map, Error = MapError>,
    {
        T::try_from(self.take(name)?).map_err(|error| refused(name, &error.to_string()))
    }

    /// A hash map, whatever its keys and values are.
    ///
    /// # Errors
    /// [`StartError::Map`] if the object has no such map, or one of another type.
    pub(super) fn hash(&mut self, name: &'static str) -> Result<MapData, StartError> {
        match self.take(name)? {
            Map::HashMap(data) => Ok(data),
            _ => Err(refused(name, "it is no hash map")),
        }
    }

    /// The `len` elements of an array, mapped: the map itself is closed.
    ///
    /// # Errors
    /// [`StartError::Map`] if the object has no such array, or it cannot be mapped.
    pub(super) fn records<T: Pod>(
        &mut self,
        name: &'static str,
        len: u32,
    ) -> Result<Records<T>, StartError> {
        let Map::Array(data) = self.take(name)? else {
            return Err(refused(name, "it is no array"));
        };
        Records::map(data.fd(), len).map_err(|error| refused(name, &error.to_string()))
    }

    fn take(&mut self, name: &'static str) -> Result<Map, StartError> {
        let map = self.0.take_map(name);
        map.ok_or_else(|| refused(name, "it is not in the object"))
    }
}

fn refused(map: &'static str, reason: &str) -> StartError {
    StartError::Map {
        map,
        reason: reason.to_owned(),
    }
}
