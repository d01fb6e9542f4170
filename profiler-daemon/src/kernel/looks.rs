//! Looks at threads from outside: asks the kernel programs about threads that are off their
//! processor, and hands over the stacks that were found for their waits.

use std::sync::atomic::{Ordering, fence};

use profiler_common::outside::{
    ASKED_AGAIN, ASKED_ALL, ASKED_NOTHING, Look, LookHead, OutsideStack,
};
use profiler_common::records::{NO_SLOT, StackHead};
use profiler_common::unwind::PendingReturn;

use super::maps::Maps;
use super::programs::Programs;
use super::records::Records;
use super::refusal::StartError;
use super::settings::KernelSettings;
use super::task_iter;
use crate::units::{MonoNs, VirtualAddress};

/// A thread that is off its processor, as seen from outside.
#[derive(Clone, Debug)]
pub struct OutsideLook {
    /// Who, since when, and its saved registers.
    pub head: LookHead,
    /// Kernel addresses, innermost first, all of them behind a call.
    pub kernel: Box<[VirtualAddress]>,
    /// Return addresses that the kernel replaced, innermost first.
    pub returns: Box<[PendingReturn]>,
}

/// What is asked about each thread, and what was found for its wait.
pub struct Looks {
    outside: Records<OutsideStack>,
    /// Begin of the latest wait that a stack was handed over for.
    latest_ns: MonoNs,
    /// Whether the threads of one process can be gone through alone.
    by_process: bool,
}

/// Whom to look at.
#[derive(Clone, Copy, Debug)]
pub struct Asked<'a> {
    /// Their slots.
    pub slots: &'a [u32],
    /// Their processes, each once.
    pub pids: &'a [u32],
    /// How many threads there are.
    pub of_threads: usize,
}

/// To make an iterator over a process takes as long as to go through so many threads.
const THREADS_PER_PROCESS: usize = 16;

impl Looks {
    /// Nothing asked, nothing found.
    ///
    /// # Errors
    /// [`StartError::Map`] if the map is missing, or cannot be mapped.
    pub(super) fn new(maps: &mut Maps<'_>, settings: &KernelSettings) -> Result<Self, StartError> {
        Ok(Self {
            outside: maps.records("OUTSIDE", settings.max_threads)?,
            latest_ns: MonoNs::ZERO,
            by_process: task_iter::is_supported(),
        })
    }

    /// Looks at threads. Who is on a processor, or gone, is not in the answer.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses.
    pub fn look(
        &mut self,
        asked: Asked<'_>,
        programs: &mut Programs,
    ) -> Result<Vec<OutsideLook>, StartError> {
        self.ask(asked, ASKED_ALL, programs)
    }

    /// Looks at them again: of the answer only slot, thread, begin of the wait and count of
    /// switches mean something.
    ///
    /// # Errors
    /// [`StartError`] if the kernel refuses.
    pub fn look_again(
        &mut self,
        asked: Asked<'_>,
        programs: &mut Programs,
    ) -> Result<Vec<OutsideLook>, StartError> {
        self.ask(asked, ASKED_AGAIN, programs)
    }

    fn ask(
        &mut self,
        asked: Asked<'_>,
        what: u32,
        programs: &mut Programs,
    ) -> Result<Vec<OutsideLook>, StartError> {
        let known = |slot: &&u32| (**slot as usize) < self.outside.len();
        let slots: Vec<u32> = asked.slots.iter().filter(known).copied().collect();
        for slot in &slots {
            self.set_asked(*slot, what);
        }
        let mut bytes = Vec::new();
        // A task that is made or ends meanwhile does not make it come twice: twice as many is more
        // than enough.
        let most = 2 * slots.len() as u64 * size_of::<Look>() as u64;
        let is_small = asked.pids.len() * THREADS_PER_PROCESS < asked.of_threads;
        let read = if self.by_process && is_small {
            let mut pids = asked.pids.iter();
            pids.try_for_each(|pid| programs.iterate("look", Some(*pid), &mut bytes, most))
        } else {
            programs.iterate("look", None, &mut bytes, most)
        };
        for slot in &slots {
            self.set_asked(*slot, ASKED_NOTHING);
        }
        read.map(|()| decode(&bytes))
    }

    fn set_asked(&self, slot: u32, asked: u32) {
        let element = self.found(slot);
        self.outside
            .write(slot as usize, OutsideStack { asked, ..element });
    }

    /// What was found of the thread in `slot`, for the wait that it names.
    pub(super) fn found(&self, slot: u32) -> OutsideStack {
        self.outside.read(slot as usize)
    }

    /// The wait of the thread in `slot` that began at `since_ns` has this stack; its frames are
    /// known. The switch that ends the wait finds it.
    pub fn hand_over(&mut self, slot: u32, since_ns: MonoNs, stack: &StackHead) {
        let index = slot as usize;
        if index >= self.outside.len() {
            return;
        }
        self.outside.write_first_long(index, 0);
        fence(Ordering::SeqCst);
        self.outside.write(
            index,
            OutsideStack {
                since_ns: 0,
                user: stack.user,
                kernel: stack.kernel,
                end: stack.end | stack.image,
                asked: ASKED_NOTHING,
            },
        );
        if since_ns > self.latest_ns {
            self.latest_ns = since_ns;
            let no_thread = NO_SLOT as usize;
            self.outside.write_first_long(no_thread, since_ns.ns());
        }
        // The time last: whoever finds it finds all the rest.
        fence(Ordering::SeqCst);
        self.outside.write_first_long(index, since_ns.ns());
    }
}

/// What the iterator wrote, up to the first record that makes no sense.
fn decode(mut bytes: &[u8]) -> Vec<OutsideLook> {
    const HEAD: usize = size_of::<LookHead>();
    let mut looks = Vec::new();
    while let Some((head, rest)) = bytes.split_first_chunk::<HEAD>() {
        // SAFETY: as many bytes as the struct has; plain data, of which any bytes are a value; read
        // unaligned.
        let head = unsafe { head.as_ptr().cast::<LookHead>().read_unaligned() };
        let Some((frames, rest)) = rest.split_at_checked(8 * head.kernel_len as usize) else {
            break;
        };
        let word = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().unwrap_or_default());
        const RETURN: usize = size_of::<PendingReturn>();
        let Some((returns, rest)) = rest.split_at_checked(RETURN * head.returns_len as usize)
        else {
            break;
        };
        let kernel = frames.chunks_exact(8).map(word).map(VirtualAddress::new);
        let pending = |bytes: &[u8]| PendingReturn {
            slot: word(&bytes[..8]),
            returns_to: word(&bytes[8..]),
        };
        looks.push(OutsideLook {
            head,
            kernel: kernel.collect(),
            returns: returns.chunks_exact(RETURN).map(pending).collect(),
        });
        bytes = rest;
    }
    looks
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn looks_are_read_one_behind_the_other() {
        // Check that looks with and without kernel frames are told apart, and that one that was cut
        // short ends the list. SAFETY: plain numbers.
        let mut head: LookHead = unsafe { std::mem::zeroed() };
        let mut bytes = Vec::new();
        for (slot, frames) in [(3_u32, 2_u32), (4, 0), (5, 1)] {
            head.slot = slot;
            head.kernel_len = frames;
            // SAFETY: as many bytes as the struct has, none of them padding.
            let raw = unsafe {
                std::slice::from_raw_parts((&raw const head).cast::<u8>(), size_of::<LookHead>())
            };
            bytes.extend(raw);
            for frame in 0..u64::from(frames) {
                bytes.extend((0xffff_0000 + frame).to_ne_bytes());
            }
        }
        let slots = |bytes: &[u8]| -> Vec<(u32, usize)> {
            let looks = decode(bytes);
            looks
                .iter()
                .map(|look| (look.head.slot, look.kernel.len()))
                .collect()
        };
        assert_eq!(slots(&bytes), [(3, 2), (4, 0), (5, 1)]);
        assert_eq!(slots(&bytes[..bytes.len() - 1]), [(3, 2), (4, 0)]);
        let frames = [0xffff_0000, 0xffff_0001].map(VirtualAddress::new);
        assert_eq!(*decode(&bytes)[0].kernel, frames);
        assert!(slots(&[]).is_empty());
    }
}
