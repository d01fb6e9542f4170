//! One thread that is looked at from outside: its stack, as far as it has been followed, and what
//! of its memory that takes.

use profiler_common::StackEnd;
use profiler_common::records::StackHead;
use profiler_common::unwind::{HASH_SEED, hash_frame, stack_id};

use super::walk::{Copies, Progress, Walked, walk};
use crate::kernel::{OutsideLook, RawStack, RowFinder};
use crate::sys::memory_reader::{FoundPages, PageRange, RANGE_PAGES};
use crate::units::MonoNs;

/// Pages that are read with the first that a walk lacks, itself included: what most stacks that
/// sleep have.
const FIRST_PAGES: u32 = 4;
/// Pages of one thread that are read at most.
const MAX_PAGES: usize = 4 * RANGE_PAGES;

/// A thread that is looked at.
pub(super) struct Subject {
    pub(super) look: OutsideLook,
    pub(super) copies: Copies,
    /// How many pages were copied.
    pub(super) pages: usize,
    /// The walk, as far as it has got.
    pub(super) walked: Option<Walked>,
    /// The page that it lacks.
    pub(super) lacks: Option<u64>,
    pub(super) late: bool,
    pub(super) unreadable: bool,
}

impl Subject {
    pub(super) fn new(look: OutsideLook) -> Self {
        Self {
            look,
            copies: Copies::default(),
            pages: 0,
            walked: None,
            lacks: None,
            late: false,
            unreadable: false,
        }
    }

    /// Follows the stack on what is known. True if it lacks memory that may be had.
    pub(super) fn step(&mut self, rows: &mut RowFinder<'_>, max_frames: usize) -> bool {
        let is_over = self.walked.is_some() && self.lacks.is_none();
        if self.look.head.kernel_thread != 0 || is_over || self.unreadable || self.late {
            return false;
        }
        rows.enter_process(self.look.head.pid);
        let of = (&self.look.head, &*self.look.returns);
        let progress = walk(of, &self.copies, max_frames, |pc| rows.row(pc));
        let (walked, lacks) = match progress {
            Progress::Done(walked) => {
                self.copies = Copies::default();
                (walked, None)
            }
            Progress::Lacks(page, walked) => (walked, Some(page)),
        };
        self.walked = Some(walked);
        self.lacks = lacks;
        lacks.is_some() && !self.is_at_its_bound()
    }

    /// It was not followed, or lacks memory that nobody has tried to read.
    pub(super) fn is_unfinished(&self) -> bool {
        let is_followed = self.walked.is_some() || self.look.head.kernel_thread != 0;
        let lacks_memory = self.lacks.is_some() && !self.is_at_its_bound();
        !self.late && !self.unreadable && (lacks_memory || !is_followed)
    }

    /// As much of its memory was read as may be.
    pub(super) fn is_at_its_bound(&self) -> bool {
        self.pages >= MAX_PAGES
    }

    /// What to read next.
    pub(super) fn range(&self) -> Option<PageRange> {
        let count = if self.pages == 0 {
            FIRST_PAGES
        } else {
            RANGE_PAGES as u32
        };
        self.lacks.map(|first| PageRange {
            tid: self.look.head.tid,
            first,
            count,
        })
    }

    /// Takes in what was read.
    pub(super) fn take(&mut self, range: PageRange, found: FoundPages<'_>) {
        match found {
            FoundPages::Refused => self.unreadable = true,
            FoundPages::Pages(pages) => {
                for (number, page) in (range.first..).zip(pages) {
                    self.copies.add(number, page.as_ref());
                }
                self.pages = self.copies.len();
            }
        }
    }

    pub(super) fn end(&self) -> StackEnd {
        let walked = self.walked.as_ref();
        walked.map_or(StackEnd::None, |walked| walked.end)
    }

    /// As if it had travelled.
    pub(super) fn raw(&self, now_ns: MonoNs) -> RawStack {
        let head = &self.look.head;
        let kernel = &self.look.kernel;
        let kernel_id = if kernel.is_empty() {
            0
        } else {
            let hash = kernel.iter();
            stack_id(hash.fold(HASH_SEED, |hash, address| hash_frame(hash, address.get())))
        };
        let (user_id, user) = match &self.walked {
            Some(walked) => (walked.id(), walked.addresses.as_slice()),
            None => (0, [].as_slice()),
        };
        RawStack {
            head: StackHead {
                user: user_id,
                kernel: kernel_id,
                time_ns: now_ns.ns(),
                process_start_boot_ns: head.process_start_boot_ns,
                process_start_ns: head.process_start_ns,
                pid: head.pid,
                user_len: u16::try_from(user.len()).unwrap_or(u16::MAX),
                kernel_len: u16::try_from(kernel.len()).unwrap_or(u16::MAX),
                end: self.end().to_u32(),
                image: head.image,
            },
            user: user.into(),
            kernel: kernel.clone(),
        }
    }
}
