//! Takes the maps out of a loaded object: each once, as the type it is, or mapped.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use aya::maps::{HashMap, Map, MapData, MapError};
use aya::{Ebpf, Pod};
use thiserror::Error;

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
        T::try_from(self.take(name)?).map_err(|error| StartError::map(name, error))
    }

    /// A hash map, whatever its keys and values are.
    ///
    /// # Errors
    /// [`StartError::Map`] if the object has no such map, or one of another type.
    pub(super) fn hash(&mut self, name: &'static str) -> Result<MapData, StartError> {
        match self.take(name)? {
            Map::HashMap(data) => Ok(data),
            _ => Err(StartError::map(name, "it is no hash map")),
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
        let data = self.array(name)?;
        Records::map(data.fd(), len).map_err(|error| StartError::map(name, error))
    }

    /// The same of an array of which most is rarely in use: only the first elements are mapped at
    /// first.
    ///
    /// # Errors
    /// [`StartError::Map`] if the object has no such array, or it cannot be mapped.
    pub(super) fn first_records<T: Pod>(
        &mut self,
        name: &'static str,
        len: u32,
    ) -> Result<Records<T>, StartError> {
        let data = self.array(name)?;
        let map = data.fd().as_fd().try_clone_to_owned();
        map.and_then(|map| Records::map_first(map, len))
            .map_err(|error| StartError::map(name, error))
    }

    fn array(&mut self, name: &'static str) -> Result<MapData, StartError> {
        match self.take(name)? {
            Map::Array(data) => Ok(data),
            _ => Err(StartError::map(name, "it is no array")),
        }
    }

    /// The maps by name, each with a descriptor of its own, and as the object defines it: those
    /// that are still there.
    ///
    /// # Errors
    /// [`StartError::Map`] if there is no descriptor to be had.
    pub(super) fn all(&self) -> Result<Vec<SharedMap>, StartError> {
        let known = self.0.maps().filter_map(|(name, map)| match map {
            Map::Array(data)
            | Map::ArrayOfMaps(data)
            | Map::HashMap(data)
            | Map::LruHashMap(data)
            | Map::PerCpuArray(data)
            | Map::RingBuf(data)
            | Map::Stack(data)
            | Map::PerfEventArray(data)
            | Map::ProgramArray(data)
            | Map::Unsupported(data) => Some((name, data)),
            _ => None,
        });
        let shared = known.map(|(name, data)| {
            let descriptor = data.fd().as_fd().try_clone_to_owned();
            let descriptor = descriptor.map_err(|error| {
                let name = name.to_owned();
                StartError::map("of the programs", NotShared { name, error })
            })?;
            Ok(SharedMap {
                name: name.to_owned(),
                descriptor,
            })
        });
        shared.collect()
    }

    fn take(&mut self, name: &'static str) -> Result<Map, StartError> {
        let map = self.0.take_map(name);
        map.ok_or_else(|| StartError::map(name, "it is not in the object"))
    }
}

/// A map has no descriptor more.
#[derive(Debug, Error)]
#[error("{name}: {error}")]
struct NotShared {
    name: String,
    #[source]
    error: io::Error,
}

/// A map of the running programs, for a program that is loaded later.
pub(super) struct SharedMap {
    pub(super) name: String,
    pub(super) descriptor: OwnedFd,
}

/// A hash map whose elements all exist from the beginning, with a descriptor of its own: in place
/// of one that is not like that.
///
/// # Errors
/// [`MapError`] if there is no memory for it.
pub(super) fn preallocated<K: Pod, V: Pod>(
    name: &'static str,
    most: u32,
) -> Result<(HashMap<MapData, K, V>, SharedMap), MapError> {
    /// `BPF_MAP_TYPE_HASH`.
    const HASH: u32 = 1;
    let (key_bytes, value_bytes) = (size_of::<K>() as u32, size_of::<V>() as u32);
    let defined = aya_obj::Map::new_from_params(HASH, key_bytes, value_bytes, most, 0);
    let data = MapData::create(defined, name, None)?;
    let descriptor = data.fd().as_fd().try_clone_to_owned();
    let shared = SharedMap {
        name: name.to_owned(),
        descriptor: descriptor.map_err(MapError::IoError)?,
    };
    Ok((HashMap::try_from(Map::HashMap(data))?, shared))
}
