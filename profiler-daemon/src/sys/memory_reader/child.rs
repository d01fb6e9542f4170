//! The child: gives up all privileges but those that reading takes, and answers until nobody asks
//! any more.

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::FileExt as _;

use rustix::thread::{CapabilitySet, set_name};

use super::super::confine::confine_to;
use super::super::limited_child::inherited_file;
use super::PageRange;
use super::shared::{PAGE_BYTES, RANGE_PAGES, RangeState, SharedPages};

/// Files that the child may open: three standard ones, its own three, and the list of pages of one
/// process. (A new one gets the lowest number that is free.)
const OPEN_FILES: u64 = 8;
/// Bit of an entry of `pagemap`: the page is in memory.
const PRESENT: u64 = 1 << 63;

/// Reads what is asked for in the memory that is open under the first of these numbers. A question
/// is a byte from the second, its answer one to the third. The answer is the process's exit code.
#[must_use]
pub fn run(files: &[i32]) -> u8 {
    let Ok(files) = files.try_into() else {
        return 1;
    };
    // What its process list shows: it was started as the program that runs already.
    if set_name(c"memory-reader").is_err() {
        return 1;
    }
    let kept = CapabilitySet::SYS_PTRACE | CapabilitySet::DAC_READ_SEARCH;
    let confined = confine_to(kept, OPEN_FILES);
    u8::from(
        confined
            .and_then(|()| serve(files, Pages::Present))
            .is_err(),
    )
}

/// Which pages are read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Pages {
    /// Those that are in memory.
    Present,
    /// All, so that tests can make the child wait.
    #[cfg(test)]
    All,
}

/// Answers until nobody asks any more.
pub(super) fn serve(files: [i32; 3], which: Pages) -> io::Result<()> {
    let [shared, questions, answers] = files;
    let shared = SharedPages::map(&inherited_file(shared)?)?;
    let (mut questions, mut answers) = (inherited_file(questions)?, inherited_file(answers)?);
    while questions.read_exact(&mut [0]).is_ok() {
        let mut lists = Lists::default();
        for (index, range) in shared.asked().iter().enumerate() {
            let wanted = match which {
                Pages::Present => lists.present(range),
                #[cfg(test)]
                Pages::All => Some((1 << range.count) - 1),
            };
            let answer = match wanted {
                Some(wanted) => RangeState::Read(read(range, wanted, shared.pages(index).cast())),
                None => RangeState::Refused,
            };
            shared.set_answer(index, answer);
        }
        answers.write_all(&[0])?;
    }
    Ok(())
}

/// The list of pages of the process that was looked at last.
#[derive(Default)]
struct Lists(Option<(u32, File)>);

impl Lists {
    /// Which pages of a range are in memory: a bit for each. `None`: the process does not tell.
    fn present(&mut self, range: &PageRange) -> Option<u32> {
        if self.0.as_ref().is_none_or(|(tid, _)| *tid != range.tid) {
            let list = File::open(format!("/proc/{}/pagemap", range.tid)).ok()?;
            self.0 = Some((range.tid, list));
        }
        let (_, list) = self.0.as_ref()?;
        let mut entries = [0; 8 * RANGE_PAGES];
        let entries = &mut entries[..8 * range.count as usize];
        // Shorter at the end of the address space; nothing for a process that has no memory any
        // more.
        let length = list.read_at(entries, range.first.checked_mul(8)?).ok()?;
        let mut present = 0;
        for (page, entry) in entries[..length].chunks_exact(8).enumerate() {
            let entry = u64::from_ne_bytes(entry.try_into().unwrap_or_default());
            present |= u32::from(entry & PRESENT != 0) << page;
        }
        Some(present)
    }
}

/// Reads these pages of a range to their place. Returns those that were read whole.
fn read(range: &PageRange, wanted: u32, to: *mut u8) -> u32 {
    let (mut local, mut remote) = (Vec::new(), Vec::new());
    let pages = (0..range.count).filter(|page| wanted & (1 << page) != 0);
    for page in pages.clone() {
        let offset = page as usize * PAGE_BYTES;
        let piece = |base: *mut u8| libc::iovec {
            iov_base: base.cast(),
            iov_len: PAGE_BYTES,
        };
        local.push(piece(to.wrapping_add(offset)));
        let address = range.first.wrapping_mul(PAGE_BYTES as u64) as usize;
        remote.push(piece(std::ptr::without_provenance_mut(
            address.wrapping_add(offset),
        )));
    }
    if local.is_empty() {
        return 0;
    }
    // SAFETY: the local pieces lie in the range's place; the others are of another process, and
    // checked by the kernel.
    let length = unsafe {
        libc::process_vm_readv(
            range.tid.cast_signed(),
            local.as_ptr(),
            local.len() as libc::c_ulong,
            remote.as_ptr(),
            remote.len() as libc::c_ulong,
            0,
        )
    };
    let whole = usize::try_from(length).unwrap_or(0) / PAGE_BYTES;
    pages.take(whole).fold(0, |read, page| read | 1 << page)
}
