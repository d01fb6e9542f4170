//! Where the daemon's memory is: what its parts hold, what of it the heap keeps besides, and what
//! is no heap.

use crate::collect::MemoryPart;
use crate::sys::heap::HeapUse;
use crate::sys::own_cost::ResourceUsage;

/// The parts that are known, and what else is resident, so that all of them are what the system
/// sees: `other` is in use and in none of the parts, `free` was given back to the heap and not yet
/// to the system, `outside_heap` is stacks of threads and what was mapped by itself, `mapped` is
/// the program, libraries, and memory shared with the kernel. Parts are estimates: where they say
/// more than is resident, `other` is 0.
pub(super) fn parts(
    known: &[MemoryPart],
    heap: Option<HeapUse>,
    own: ResourceUsage,
) -> Vec<MemoryPart> {
    let known_bytes: u64 = known.iter().map(|(_, bytes)| bytes).sum();
    let mapped = own.resident_bytes.saturating_sub(own.anonymous_bytes);
    let mut parts = known.to_vec();
    match heap {
        Some(heap) => {
            let other = heap.in_use_bytes.saturating_sub(known_bytes);
            let in_heap = heap.in_use_bytes.max(known_bytes) + heap.free_bytes;
            parts.extend([
                ("other", other),
                ("free", heap.free_bytes),
                ("outside_heap", own.anonymous_bytes.saturating_sub(in_heap)),
            ]);
        }
        None => parts.push(("other", own.anonymous_bytes.saturating_sub(known_bytes))),
    }
    parts.push(("mapped", mapped));
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_what_is_resident() {
        // Check that the parts add up to what is resident, with and without a heap that tells of
        // itself.
        let own = ResourceUsage {
            resident_bytes: 1000,
            anonymous_bytes: 700,
            ..ResourceUsage::default()
        };
        let heap = HeapUse {
            in_use_bytes: 500,
            free_bytes: 120,
        };
        let known = [("frames", 300), ("names", 50)];
        for heap in [Some(heap), None] {
            let parts = parts(&known, heap, own);
            let sum: u64 = parts.iter().map(|(_, bytes)| bytes).sum();
            assert_eq!(sum, 1000, "{parts:?}");
        }
        let parts = parts(&known, Some(heap), own);
        let of = |name| parts.iter().find(|(part, _)| *part == name).unwrap().1;
        assert_eq!(
            ["other", "free", "outside_heap", "mapped"].map(of),
            [150, 120, 80, 300]
        );
    }
}
