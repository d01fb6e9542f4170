//! Stacks by id: frames as module + offset, resolved once, while the mappings at the time of the
//! walk are known.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use profiler_common::StackEnd;
use profiler_common::records::IMAGE_SHIFT;
use profiler_common::unwind::UnwindFailure;

use crate::kernel::RawStack;
use crate::processes::ids::ProcessKey;
use crate::processes::kernel_modules::KernelModules;
use crate::processes::live::Processes;
use crate::processes::module::{ModuleId, ModuleMarks};
use crate::processes::shares::{HolderId, RefusedCounts, Shares};
use crate::profile::frames::{Frame, FrameId, FrameTable, LiveFrames};
use crate::units::{BootNs, ModuleOffset, MonoNs};

use super::nameless_code::NamelessCode;
use super::own_frames::OwnFrames;

/// Passes for which an unused stack is kept. Its frames travel again when it is seen again, so this
/// only has to span the time between a walk and the pass that counts it; the stacks of sleeping
/// threads are used in every pass.
const KEEP_PASSES: u64 = 5;
/// Stacks kept at most, of each kind; the kernel side sends no more in one drain period unless
/// configured to.
pub(super) const MAX_STACKS: usize = 65_536;

/// A stack is cut off where so many of its frames found no room: whoever invents frames faster than
/// they leave does not keep the collector busy with them.
const MAX_REFUSED_FRAMES: u64 = 8;

/// From this part of these on, unused ones are kept for a single pass.
const CROWDED: usize = 4;

/// A user stack whose frames are known.
#[derive(Clone, Debug)]
pub(super) struct UserStack {
    /// Outermost first.
    pub(super) frames: Arc<[FrameId]>,
    /// How its walk ended, where resolving found it cut short.
    pub(super) end: Option<StackEnd>,
    /// The modules of its frames.
    modules: Box<[ModuleId]>,
    /// What the process had mapped when it was resolved.
    mapped: MappedState,
    /// Whether addresses of it were in no mapping: they may be in one that is heard of later.
    unmapped: bool,
    /// Whether frames of it found no room: they may find some when it travels again.
    cramped: bool,
    by: HolderId,
    used: u64,
}

/// A kernel stack whose frames are known.
#[derive(Clone, Debug)]
struct KernelStack {
    /// Outermost first.
    frames: Arc<[FrameId]>,
    by: HolderId,
    used: u64,
}

/// Which mappings of a process frames were resolved with.
#[derive(Clone, Copy, Debug, Default)]
struct MappedState {
    generation: u32,
    changes: u32,
}

impl UserStack {
    /// Whether it would be resolved as it was.
    fn holds(
        &self,
        key: ProcessKey,
        now: MappedState,
        time_ns: MonoNs,
        processes: &mut Processes,
    ) -> bool {
        !self.cramped
            && self.mapped.generation == now.generation
            && (!self.unmapped || self.mapped.changes == now.changes)
            && self
                .modules
                .iter()
                .all(|module| processes.holds_jit(key, time_ns, *module))
    }
}

/// Known stacks.
#[derive(Debug)]
pub(super) struct StackCache {
    /// By process, the program its thread was in, and id: equal addresses of two programs are two
    /// stacks.
    user: HashMap<(ProcessKey, u16, u64), UserStack>,
    user_shares: Shares,
    kernel: HashMap<u64, KernelStack>,
    kernel_shares: Shares,
    own: OwnFrames,
    modules: KernelModules,
    nameless: NamelessCode,
    pass: u64,
    /// Modules on the stacks that were used in this pass.
    on_stacks: HashSet<ModuleId>,
    /// Modules whose tables walks of this pass did not find.
    missed: HashSet<ModuleId>,
    /// Stacks that were not kept for want of room, of user and of kernel frames.
    refused: [RefusedCounts; 2],
}

impl Default for StackCache {
    fn default() -> Self {
        Self::new(OwnFrames::default())
    }
}

impl StackCache {
    pub(super) fn new(own: OwnFrames) -> Self {
        Self {
            user: HashMap::new(),
            user_shares: Shares::new(MAX_STACKS),
            kernel: HashMap::new(),
            kernel_shares: Shares::new(MAX_STACKS),
            own,
            modules: KernelModules::default(),
            nameless: NamelessCode::default(),
            pass: 0,
            on_stacks: HashSet::new(),
            missed: HashSet::new(),
            refused: <[RefusedCounts; 2]>::default(),
        }
    }

    /// Takes in where the kernel's modules are loaded now.
    pub(super) fn set_kernel_modules(&mut self, modules: KernelModules) {
        if self.modules != modules {
            self.modules = modules;
            self.kernel.clear();
            self.kernel_shares = Shares::new(MAX_STACKS);
        }
    }

    /// Takes the frames of a walk.
    pub(super) fn add(
        &mut self,
        raw: &RawStack,
        processes: &mut Processes,
        table: &mut FrameTable,
    ) {
        let head = &raw.head;
        if head.user != 0 {
            self.add_user(raw, processes, table);
        }
        if head.kernel != 0 && !self.kernel.contains_key(&head.kernel) {
            let key = processes.link(
                head.pid,
                MonoNs::new(head.process_start_ns),
                BootNs::new(head.process_start_boot_ns),
            );
            let by = match self.kernel_shares.take(processes.owner(key), 1) {
                Ok(by) => by,
                Err(why) => {
                    self.refused[1].count(why);
                    return;
                }
            };
            let mut frames: Vec<FrameId> = self
                .own
                .cut(&raw.kernel)
                .iter()
                .enumerate()
                // Each but the innermost is where a call returns to: one less lies inside the call.
                .map(|(index, address)| {
                    if index == 0 {
                        *address
                    } else {
                        address.wrapping_sub(1)
                    }
                })
                .map(|address| {
                    let place = self.modules.place(address);
                    table.intern(Frame {
                        module: place.module,
                        offset: place.offset,
                    })
                })
                .collect();
            frames.reverse();
            let stack = KernelStack {
                frames: frames.into(),
                by,
                used: self.pass,
            };
            self.kernel.insert(head.kernel, stack);
        }
    }

    fn add_user(&mut self, raw: &RawStack, processes: &mut Processes, table: &mut FrameTable) {
        let head = &raw.head;
        let key = processes.link(
            head.pid,
            MonoNs::new(head.process_start_ns),
            BootNs::new(head.process_start_boot_ns),
        );
        let mapped = processes
            .mappings(key)
            .map_or_else(MappedState::default, |mappings| MappedState {
                generation: mappings.generation(),
                changes: mappings.changes(),
            });
        let id = (key, (head.image >> IMAGE_SHIFT) as u16, head.user);
        let known = self.user.get(&id);
        if known.is_some_and(|stack| stack.holds(key, mapped, MonoNs::new(head.time_ns), processes))
        {
            return;
        }
        let owner = processes.owner(key);
        let by = match known {
            Some(known) => known.by,
            None => match self.user_shares.take(owner, 1) {
                Ok(by) => by,
                Err(why) => {
                    self.refused[0].count(why);
                    return;
                }
            },
        };
        let refused_before = table.refused();
        let mut frames = Vec::with_capacity(raw.user.len());
        let mut end = None;
        let mut unmapped = false;
        for (index, address) in raw.user.iter().copied().enumerate() {
            if table.refused().total() - refused_before.total() >= MAX_REFUSED_FRAMES {
                end = Some(StackEnd::TRUNCATED);
                break;
            }
            match processes.resolve(key, MonoNs::new(head.time_ns), address) {
                Some(place) => {
                    let inner = frames.last().map(|inner| table.get(*inner).module);
                    let frame = if processes.is_nameless(place.module) {
                        self.nameless
                            .frame((place.module, place.offset), inner, table)
                    } else {
                        Some(Frame {
                            module: place.module,
                            offset: place.offset,
                        })
                    };
                    frames.extend(frame.map(|frame| table.intern_for(owner, frame)));
                }
                None if index == 0 => {
                    unmapped = true;
                    let frame = Frame {
                        module: ModuleId::UNKNOWN,
                        offset: ModuleOffset::of_address(address),
                    };
                    frames.push(table.intern_for(owner, frame));
                }
                // A caller that is no code: the frame pointer was none, and what lies beyond is
                // invented.
                None => {
                    unmapped = true;
                    end = Some(StackEnd::Incomplete(UnwindFailure::NoMapping));
                    break;
                }
            }
        }
        let modules: HashSet<ModuleId> = frames
            .iter()
            .map(|frame| table.get(*frame).module)
            .collect();
        if head.end == StackEnd::Incomplete(UnwindFailure::NoTable).to_u32()
            && let Some(outermost) = frames.last()
        {
            self.missed.insert(table.get(*outermost).module);
        }
        frames.reverse();
        let stack = UserStack {
            frames: frames.into(),
            end,
            modules: modules.into_iter().collect(),
            mapped,
            unmapped,
            cramped: table.refused() != refused_before,
            by,
            used: self.pass,
        };
        self.user.insert(id, stack);
    }

    /// The user stack of that id, walked in that program of its thread.
    pub(super) fn user(&mut self, key: ProcessKey, image: u16, id: u64) -> Option<UserStack> {
        let stack = self.user.get_mut(&(key, image, id))?;
        stack.used = self.pass;
        self.on_stacks.extend(&stack.modules);
        Some(stack.clone())
    }

    /// The kernel stack of that id, outermost first.
    pub(super) fn kernel(&mut self, id: u64) -> Option<Arc<[FrameId]>> {
        let stack = self.kernel.get_mut(&id)?;
        stack.used = self.pass;
        Some(Arc::clone(&stack.frames))
    }

    /// Modules on the stacks used since the last call, and those whose tables walks did not find.
    pub(super) fn take_modules(&mut self) -> (HashSet<ModuleId>, HashSet<ModuleId>) {
        (
            std::mem::take(&mut self.on_stacks),
            std::mem::take(&mut self.missed),
        )
    }

    /// Whether those that are not used are to leave soon.
    pub(super) fn is_crowded(&self) -> bool {
        self.user.len().max(self.kernel.len()) > MAX_STACKS / CROWDED
    }

    /// A pass over all there is, so over all who may name a stack, is over: forgets what has not
    /// been used for some.
    pub(super) fn end_pass(&mut self) {
        let keep = if self.is_crowded() { 1 } else { KEEP_PASSES };
        let oldest = self.pass.saturating_sub(keep);
        let room = &mut self.user_shares;
        self.user.retain(|_, stack| {
            let stays = stack.used >= oldest;
            if !stays {
                room.give_back(stack.by, 1);
            }
            stays
        });
        let room = &mut self.kernel_shares;
        self.kernel.retain(|_, stack| {
            let stays = stack.used >= oldest;
            if !stays {
                room.give_back(stack.by, 1);
            }
            stays
        });
        self.pass += 1;
    }

    /// Marks the frames of all stacks that are known.
    pub(super) fn mark(&self, marks: &mut LiveFrames) {
        let user = self.user.values().flat_map(|stack| stack.frames.iter());
        let kernel = self.kernel.values().flat_map(|stack| stack.frames.iter());
        user.chain(kernel).for_each(|frame| marks.keep(*frame));
    }

    /// Marks the modules that kernel code is loaded in.
    pub(super) fn mark_modules(&self, marks: &mut ModuleMarks) {
        self.modules.modules().for_each(|id| marks.keep(id));
    }

    /// Memory held, bytes, roughly.
    pub(super) fn held_bytes(&self) -> usize {
        let user = self
            .user
            .values()
            .map(|stack| size_of_val(&*stack.frames) + size_of_val(&*stack.modules));
        let kernel = self
            .kernel
            .values()
            .map(|stack| size_of_val(&*stack.frames));
        user.sum::<usize>()
            + kernel.sum::<usize>()
            + self.user.capacity() * size_of::<((ProcessKey, u16, u64), UserStack)>()
            + self.kernel.capacity() * size_of::<(u64, KernelStack)>()
    }

    /// How many stacks are known, of user and of kernel frames.
    pub(super) fn known(&self) -> [usize; 2] {
        [self.user.len(), self.kernel.len()]
    }

    /// Stacks that were not kept for want of room.
    pub(super) const fn refused(&self) -> RefusedCounts {
        let [user, kernel] = self.refused;
        RefusedCounts {
            full: user.full + kernel.full,
            over_share: user.over_share + kernel.over_share,
        }
    }

    /// The same, of user and of kernel frames.
    pub(super) const fn refused_of_each(&self) -> [RefusedCounts; 2] {
        self.refused
    }
}

#[cfg(test)]
#[path = "stacks_tests.rs"]
mod tests;
