//! What maps of a daemon hold, as the kernel has them.

use std::collections::HashSet;
use std::fs;

use aya::Pod;
use aya::maps::{HashMap, Map, MapData, loaded_maps};

use crate::daemon::Daemon;

/// The keys of a hash map of this name, which is at most 15 bytes of it.
pub(crate) fn keys<K: Pod, V: Pod>(daemon: &Daemon, name: &str) -> Vec<K> {
    let own = ids(daemon);
    let maps = loaded_maps().filter_map(Result::ok);
    let mut named = maps.filter(|map| own.contains(&map.id()) && map.name_as_str() == Some(name));
    // Where it is made anew for whole maps there are two, of which one is empty.
    let found = named.by_ref().flat_map(|map| {
        let map = Map::HashMap(MapData::from_id(map.id()).expect("it is open"));
        let map = HashMap::<_, K, V>::try_from(map).expect("keys and values of this size");
        map.keys()
            .map(|key| key.expect("a key"))
            .collect::<Vec<K>>()
    });
    found.collect()
}

/// The maps that a daemon has open, by the kernel's numbers.
fn ids(daemon: &Daemon) -> HashSet<u32> {
    let folder = fs::read_dir(format!("/proc/{}/fdinfo", daemon.pid())).expect("its descriptors");
    let infos = folder.filter_map(|entry| fs::read_to_string(entry.ok()?.path()).ok());
    let of = |info: String| {
        let id = info.lines().find_map(|line| line.strip_prefix("map_id:"))?;
        id.trim().parse().ok()
    };
    let ids: HashSet<u32> = infos.filter_map(of).collect();
    assert!(!ids.is_empty(), "the daemon has maps");
    ids
}
