//! What is mapped at an address that the daemon has not told the walker of: as the kernel knows it.
//! Processes are walked so from their first instruction on, if their files are known.
//!
//! The tree of areas is read without its lock, while other threads of the process may change it: an
//! area that does not hold the address, or a file that is not known, is none.

use aya_ebpf::helpers::bpf_get_current_uid_gid;
use aya_ebpf::helpers::generated::{bpf_loop, bpf_probe_read_kernel};
use core::ffi::c_void;
use profiler_common::unwind::{
    ANY_USER, FileTable, MAX_DEPTH, MappedFile, Node, NodeRef, WalkState, is_area, mapping,
};

use crate::capture::forget;
use crate::probes::word;
use crate::settings;
use crate::table_maps::FILES;
use crate::task::Task;

/// `VM_EXEC`.
const EXECUTABLE: u64 = 4;
/// Bits of a page's size.
const PAGE_SHIFT: u32 = 12;

/// Readies a walk of the current thread.
#[inline(always)]
pub fn begin(walk: &mut WalkState) {
    let root = settings::memory_areas();
    walk.areas = match root {
        0 => 0,
        _ => {
            let memory: u64 = Task::current().field(settings::task_memory());
            memory.wrapping_add(u64::from(root))
        }
    };
}

/// What the loop passes to each node.
struct Descent {
    walk: *mut WalkState,
}

/// Makes the mapping that `pc` lies in the walk's; not true: there is none, or it is not known how
/// its code is unwound.
#[inline(always)]
pub fn enter(walk: &mut WalkState, pc: u64) -> Option<bool> {
    if walk.areas == 0 {
        return None;
    }
    walk.wanted_address = pc;
    walk.slot = word(walk.areas, 0);
    let mut descent = Descent { walk };
    // SAFETY: the callback takes a pointer to this context, which outlives the loop.
    unsafe {
        bpf_loop(
            MAX_DEPTH,
            descend as *mut c_void,
            (&raw mut descent).cast(),
            0,
        );
    }
    let area = forget(&raw const walk.slot);
    if !is_area(area) {
        return None;
    }
    let (start, end) = (
        word(area, settings::area_start()),
        word(area, settings::area_end()),
    );
    if pc < start || pc >= end || word(area, settings::area_flags()) & EXECUTABLE == 0 {
        return None;
    }
    walk.mapping.start = start;
    walk.mapping.end = end;
    let file = word(area, settings::area_file());
    if file == 0 {
        // Code made at run time; what the kernel maps has operations.
        walk.mapping.kind = mapping::FRAME_POINTER;
        return Some(word(area, settings::area_operations()) == 0);
    }
    let table = table_of(file, &mut walk.file)?;
    let offset = word(area, settings::area_offset()) << PAGE_SHIFT;
    walk.mapping.bias = table.bias(start, offset)?;
    walk.mapping.table = table.table;
    walk.mapping.kind = table.kind;
    Some(true)
}

/// The table of a mapped file. `place` is where it is noted what tells the file apart.
#[inline(always)]
fn table_of(file: u64, place: &mut MappedFile) -> Option<&'static FileTable> {
    identify(word(file, settings::file_inode()), place);
    find_table(place).or_else(|| {
        if settings::backing_entry() == 0 {
            return None;
        }
        // The file may lie behind one of an overlay, which is then the one that was heard of. The
        // flag that says so is not the same in all kernels. Where it does not, this leads to
        // anything, and to no file that is known.
        let entry = word(file, settings::backing_entry());
        identify(word(entry, settings::entry_inode()), place);
        find_table(place)
    })
}

/// The table of a file that is known for everybody, or for the current thread's user. One that is
/// replaced while it is read is another file's at worst: then one walk ends early or goes wrong.
#[inline(always)]
fn find_table(file: &mut MappedFile) -> Option<&'static FileTable> {
    let key: &MappedFile = file;
    // SAFETY: a lookup; what is found is only read, and stays a table.
    if let Some(table) = unsafe { FILES.get(key) } {
        return Some(table);
    }
    file.user = bpf_get_current_uid_gid() as u32;
    let key: &MappedFile = file;
    // SAFETY: as above.
    unsafe { FILES.get(key) }
}

/// One node of the tree: goes on to the slot that covers the address. Not 0 ends the loop.
#[inline(never)]
extern "C" fn descend(_index: u64, descent: *mut Descent) -> i64 {
    // SAFETY: the context that `enter` passes.
    let walk = unsafe { &mut *(*descent).walk };
    let reference = NodeRef(walk.slot);
    walk.slot = 0;
    // SAFETY: reads kernel memory with a fault-safe helper, into a field of this size.
    let failed = unsafe {
        bpf_probe_read_kernel(
            (&raw mut walk.node).cast(),
            size_of::<Node>() as u32,
            reference.address() as *const c_void,
        )
    };
    if failed != 0 {
        return 1;
    }
    let zero = forget(&raw const walk.slot);
    walk.slot = reference.slot(&walk.node, walk.wanted_address, zero);
    i64::from(reference.is_leaf())
}

/// Notes what tells a mapped file apart, as the kernel's records of mappings and the daemon's look
/// at the file do.
#[inline(always)]
fn identify(inode: u64, found: &mut MappedFile) {
    let file_system = word(inode, settings::inode_file_system());
    *found = MappedFile {
        inode: word(inode, settings::inode_number()),
        size_bytes: word(inode, settings::inode_size()),
        modified_s: word(inode, settings::inode_modified_s()) as i64,
        modified_ns: word(inode, settings::inode_modified_ns()) as u32,
        device: word(file_system, settings::file_system_device()) as u32,
        user: ANY_USER,
        padding: 0,
    };
}
