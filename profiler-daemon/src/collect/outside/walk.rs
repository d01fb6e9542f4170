//! The walk of a user stack from outside, over copies of the thread's memory: the steps of the
//! kernel's walker, on what was read so far. Says which page it lacks; with that one it is begun
//! anew.

use std::collections::HashMap;

use profiler_common::StackEnd;
use profiler_common::outside::LookHead;
use profiler_common::unwind::{
    HASH_SEED, KnownProbes, Memory, PendingReturn, Registers, StepResult, UnwindFailure, UnwindRow,
    hash_frame, is_in_probes, kind, leave_probes, pt_regs_offset, stack_id, step,
};

use crate::sys::memory_reader::{PAGE_BYTES, Page};
use crate::units::VirtualAddress;

/// The code segment of 32-bit programs on a 64-bit kernel.
const USER_32_CODE: u64 = 0x23;

/// Words of `pt_regs`.
mod register {
    pub(super) const RBP: usize = 4;
    pub(super) const RCX: usize = 11;
    pub(super) const ORIG_RAX: usize = 15;
    pub(super) const RIP: usize = 16;
    pub(super) const CS: usize = 17;
    pub(super) const RSP: usize = 19;
}

/// What is known of a thread's memory: pages by number; `None` for one that is not to be had.
#[derive(Debug, Default)]
pub(super) struct Copies(HashMap<u64, Option<Box<Page>>>);

impl Copies {
    /// Takes in a page, or that it is not to be had.
    pub(super) fn add(&mut self, number: u64, page: Option<&Page>) {
        self.0.insert(number, page.map(|page| Box::new(*page)));
    }

    /// How many pages are known.
    pub(super) fn len(&self) -> usize {
        self.0.len()
    }
}

/// What a walk has to go on.
struct Reader<'a> {
    copies: &'a Copies,
    head: &'a LookHead,
    /// The first page that was asked for and is not known yet.
    lacks: Option<u64>,
}

impl Reader<'_> {
    /// The walk ends here, or for want of a page.
    fn failed(&self, addresses: Vec<VirtualAddress>, failure: UnwindFailure) -> Progress {
        let end = StackEnd::Incomplete(failure);
        let walked = Walked { addresses, end };
        match self.lacks {
            Some(page) => Progress::Lacks(page, walked),
            None => Progress::Done(walked),
        }
    }

    fn read<const BYTES: usize>(&mut self, address: u64) -> Option<[u8; BYTES]> {
        let mut bytes = [0; BYTES];
        let mut done = 0;
        while done < BYTES {
            let at = address.checked_add(done as u64)?;
            let (number, offset) = (at / PAGE_BYTES as u64, at as usize % PAGE_BYTES);
            let Some(page) = self.copies.0.get(&number) else {
                self.lacks.get_or_insert(number);
                return None;
            };
            let rest = &page.as_ref()?[offset..];
            let count = rest.len().min(BYTES - done);
            bytes[done..done + count].copy_from_slice(&rest[..count]);
            done += count;
        }
        Some(bytes)
    }
}

impl Memory for Reader<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.read(address).map(u64::from_ne_bytes)
    }

    fn pair(&mut self, address: u64) -> Option<[u64; 2]> {
        let [low, high] = [self.word(address)?, self.word(address.checked_add(8)?)?];
        Some([low, high])
    }

    fn leaf_register(&mut self, register: u32) -> Option<u64> {
        let index = pt_regs_offset(register) as usize / 8;
        self.head.registers.get(index).copied()
    }
}

/// A user stack.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Walked {
    /// Addresses as the kernel's walker notes them, innermost first.
    pub(super) addresses: Vec<VirtualAddress>,
    /// How it ended.
    pub(super) end: StackEnd,
}

impl Walked {
    /// Its id, as the kernel's walker makes it.
    pub(super) fn id(&self) -> u64 {
        let addresses = self.addresses.iter();
        stack_id(addresses.fold(HASH_SEED, |hash, address| hash_frame(hash, address.get())))
    }
}

/// Where a walk has got to.
pub(super) enum Progress {
    /// To its end.
    Done(Walked),
    /// It lacks the page of this number. The walk up to there, in case that it is not to be had.
    Lacks(u64, Walked),
}

/// Follows the user stack of a thread, at most so many frames. `returns`: return addresses that
/// the kernel replaced; `find_row`: the unwind row for a code address of its process.
pub(super) fn walk(
    (head, returns): (&LookHead, &[PendingReturn]),
    copies: &Copies,
    max_frames: usize,
    mut find_row: impl FnMut(VirtualAddress) -> Result<UnwindRow, UnwindFailure>,
) -> Progress {
    let of = |word: usize| head.registers[word];
    let (pc, sp, fp) = (of(register::RIP), of(register::RSP), of(register::RBP));
    let done = |addresses, end| Progress::Done(Walked { addresses, end });
    if of(register::CS) == USER_32_CODE {
        let failure = UnwindFailure::Compat32;
        let addresses = vec![VirtualAddress::new(pc)];
        return done(addresses, StackEnd::Incomplete(failure));
    }
    let (number, rcx) = (of(register::ORIG_RAX), of(register::RCX));
    let mut registers = if Registers::is_elsewhere(number, rcx, pc) {
        Registers::interrupted(pc, sp, fp)
    } else {
        Registers::in_system_call(pc, sp, fp)
    };
    let mut reader = Reader {
        copies,
        head,
        lacks: None,
    };
    let mut probes = KnownProbes {
        returns,
        out_of_line: head.out_of_line,
    };
    let mut addresses = Vec::new();
    while addresses.len() < max_frames {
        let left = if is_in_probes(&registers, head.probes_page) {
            leave_probes(&mut registers, head.probes_page, &mut probes, &mut reader)
        } else {
            Ok(())
        };
        let found = left.map(|()| find_row(VirtualAddress::new(registers.lookup_pc())));
        let kind = match &found {
            Ok(Ok(row)) => row.kind,
            _ => kind::GAP,
        };
        addresses.push(VirtualAddress::new(registers.shown_pc(kind)));
        let row = match found {
            Ok(Ok(row)) => row,
            Ok(Err(failure)) => return done(addresses, StackEnd::Incomplete(failure)),
            Err(failure) => return reader.failed(addresses, failure),
        };
        match step(row, &mut registers, &mut reader) {
            StepResult::Caller => {}
            StepResult::End => return done(addresses, StackEnd::Complete),
            StepResult::Failed(failure) => return reader.failed(addresses, failure),
        }
    }
    done(addresses, StackEnd::TRUNCATED)
}

#[cfg(test)]
mod tests {
    use super::*;
    use profiler_common::outside::SAVED_REGISTERS;
    use profiler_common::unwind::OutOfLine;

    const STACK: u64 = 0x7fff_0000_0000;
    const CODE: u64 = 0x40_1000;

    fn head(words: &[(usize, u64)]) -> LookHead {
        let mut registers = [0; SAVED_REGISTERS];
        for (word, value) in words {
            registers[*word] = *value;
        }
        LookHead {
            slot: 1,
            tid: 1,
            since_ns: 1,
            switches: 1,
            registers,
            pid: 1,
            kernel_thread: 0,
            process_start_boot_ns: 0,
            process_start_ns: 0,
            kernel_len: 0,
            image: 0,
            probes_page: 0,
            out_of_line: OutOfLine::default(),
            returns_len: 0,
            padding: 0,
        }
    }

    /// Where a walk noted code.
    fn noted<const COUNT: usize>(addresses: [u64; COUNT]) -> [VirtualAddress; COUNT] {
        addresses.map(VirtualAddress::new)
    }

    /// Each frame of 24 bytes; the code from `CODE + 0x100` on is the outermost function.
    fn row(pc: VirtualAddress) -> Result<UnwindRow, UnwindFailure> {
        Ok(UnwindRow {
            kind: if pc.get() >= CODE + 0x100 {
                kind::STOP
            } else {
                kind::CFA_RSP
            },
            param: 24,
            frame: profiler_common::unwind::FRAME_UNCHANGED,
            ..UnwindRow::default()
        })
    }

    #[test]
    fn goes_on_where_a_page_was_lacking() {
        // Check that a walk names the first page that it lacks, that it gets as far as its memory
        // goes, and that memory that is not to be had ends it with the reason.
        let number = STACK / PAGE_BYTES as u64;
        let mut memory = [[0; PAGE_BYTES]; 2];
        // Frames of 24 bytes; the return address of the first one is the last word of the first
        // page.
        let sp = STACK + PAGE_BYTES as u64 - 24;
        let mut write = |at: usize, to: u64| {
            let page = &mut memory[at / PAGE_BYTES];
            page[at % PAGE_BYTES..][..8].copy_from_slice(&to.to_ne_bytes());
        };
        write(PAGE_BYTES - 8, CODE + 0x21);
        write(PAGE_BYTES + 16, CODE + 0x142);
        let in_call = head(&[
            (register::RIP, CODE),
            (register::RCX, CODE),
            (register::RSP, sp),
        ]);
        let mut copies = Copies::default();
        let lacks = |copies: &Copies| match walk((&in_call, &[]), copies, 64, row) {
            Progress::Lacks(page, walked) => (page, walked.addresses.len()),
            Progress::Done(walked) => panic!("{walked:?}"),
        };
        let walked = |head: &LookHead, copies: &Copies, most: usize| match walk(
            (head, &[]),
            copies,
            most,
            row,
        ) {
            Progress::Done(walked) => walked,
            Progress::Lacks(page, walked) => panic!("{page:x} {walked:?}"),
        };
        assert_eq!(lacks(&copies), (number, 1));
        copies.add(number, Some(&memory[0]));
        assert_eq!(lacks(&copies), (number + 1, 2));
        copies.add(number + 1, None);
        let failed = walked(&in_call, &copies, 64);
        assert_eq!(failed.addresses, noted([CODE - 1, CODE + 0x20]));
        let failure = UnwindFailure::ReadReturn;
        assert_eq!(failed.end, StackEnd::Incomplete(failure));
        copies.add(number + 1, Some(&memory[1]));
        let whole = walked(&in_call, &copies, 64);
        assert_eq!(
            whole.addresses,
            noted([CODE - 1, CODE + 0x20, CODE + 0x141])
        );
        assert_eq!(whole.end, StackEnd::Complete);
        assert_ne!(whole.id(), failed.id());
        let cut = walked(&in_call, &copies, 2);
        assert_eq!((cut.addresses.len(), cut.end), (2, StackEnd::TRUNCATED));
        let interrupted = head(&[(register::RIP, CODE), (register::RSP, sp)]);
        assert_eq!(
            walked(&interrupted, &copies, 64).addresses[..1],
            noted([CODE])
        );
        let narrow = head(&[(register::RIP, 5), (register::CS, USER_32_CODE)]);
        let failure = UnwindFailure::Compat32;
        assert_eq!(
            walked(&narrow, &copies, 64),
            Walked {
                addresses: noted([5]).into(),
                end: StackEnd::Incomplete(failure)
            }
        );
    }

    #[test]
    fn functions_with_return_probes_are_passed() {
        // Check that a frame whose return address the kernel replaced leads to the one it had, and
        // that without it the walk ends with the reason.
        let page_address: u64 = 0x7fff_ffff_e000;
        let sp = STACK + 64;
        let mut page = [0; PAGE_BYTES];
        page[64 + 16..][..8].copy_from_slice(&page_address.to_ne_bytes());
        let mut copies = Copies::default();
        copies.add(STACK / PAGE_BYTES as u64, Some(&page));
        let registers = [
            (register::RIP, CODE),
            (register::RCX, CODE),
            (register::RSP, sp),
        ];
        let in_call = LookHead {
            probes_page: page_address,
            ..head(&registers)
        };
        let pending = PendingReturn {
            slot: sp + 16,
            returns_to: CODE + 0x142,
        };
        let walked = |returns: &[PendingReturn]| match walk((&in_call, returns), &copies, 64, row) {
            Progress::Done(walked) => walked,
            Progress::Lacks(page, walked) => panic!("{page:x} {walked:?}"),
        };
        let whole = walked(&[pending]);
        assert_eq!(whole.addresses, noted([CODE - 1, CODE + 0x141]));
        assert_eq!(whole.end, StackEnd::Complete);
        let failure = UnwindFailure::ReturnProbe;
        assert_eq!(walked(&[]).end, StackEnd::Incomplete(failure));
    }
}
