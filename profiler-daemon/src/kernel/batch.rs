//! A system call that aya has no call for: reading a hash map in batches, emptying it or not.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

use aya::Pod;

/// `BPF_MAP_LOOKUP_BATCH` (5.6).
const LOOKUP_BATCH: libc::c_long = 24;
/// `BPF_MAP_LOOKUP_AND_DELETE_BATCH` (5.6).
const LOOKUP_AND_DELETE_BATCH: libc::c_long = 25;

/// `union bpf_attr`, the member for batch operations.
#[repr(C)]
#[derive(Default)]
struct BatchAttributes {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    map_fd: u32,
    elem_flags: u64,
    flags: u64,
}

/// Removes all elements of a hash map that nobody is writing to, and hands them over.
///
/// # Errors
/// What the kernel says; the elements handed over by then are gone from the map.
pub(super) fn drain<K: Pod, V: Pod>(
    map: impl AsFd,
    capacity: u32,
    each: impl FnMut(K, V),
) -> io::Result<()> {
    in_batches(LOOKUP_AND_DELETE_BATCH, map, capacity, each)
}

/// Hands over all elements of a hash map, as they are while others may write to it. An element that
/// is made or removed meanwhile may be left out, or come twice.
///
/// # Errors
/// What the kernel says.
pub(super) fn read<K: Pod, V: Pod>(
    map: impl AsFd,
    capacity: u32,
    each: impl FnMut(K, V),
) -> io::Result<()> {
    in_batches(LOOKUP_BATCH, map, capacity, each)
}

fn in_batches<K: Pod, V: Pod>(
    command: libc::c_long,
    map: impl AsFd,
    capacity: u32,
    mut each: impl FnMut(K, V),
) -> io::Result<()> {
    // A bucket is taken whole: room for all elements, or a full bucket might never fit.
    let room = capacity.max(64) as usize;
    let (mut keys, mut values) = (zeroes::<K>(room), zeroes::<V>(room));
    let mut cursor = [0u8; 8];
    let mut next_cursor = [0u8; 8];
    let mut first = true;
    loop {
        let mut attributes = BatchAttributes {
            in_batch: if first { 0 } else { cursor.as_ptr() as u64 },
            out_batch: next_cursor.as_mut_ptr() as u64,
            keys: keys.as_mut_ptr() as u64,
            values: values.as_mut_ptr() as u64,
            count: room as u32,
            map_fd: map.as_fd().as_raw_fd().cast_unsigned(),
            ..BatchAttributes::default()
        };
        // SAFETY: the buffers live through the call and have room for `count` elements each.
        let result = unsafe {
            libc::syscall(
                libc::SYS_bpf,
                command,
                &raw mut attributes,
                size_of::<BatchAttributes>(),
            )
        };
        let error = (result < 0).then(io::Error::last_os_error);
        for index in 0..(attributes.count as usize).min(room) {
            each(keys[index], values[index]);
        }
        match error {
            // The end of the map.
            Some(error) if error.raw_os_error() == Some(libc::ENOENT) => return Ok(()),
            Some(error) => return Err(error),
            None => {
                cursor = next_cursor;
                first = false;
            }
        }
    }
}

/// So many elements, all of them zero. Memory that nobody writes to is never touched: most passes
/// need little of it.
fn zeroes<T: Pod>(len: usize) -> Box<[T]> {
    // SAFETY: plain data, of which zeroes are a value.
    unsafe { Box::new_zeroed_slice(len).assume_init() }
}
