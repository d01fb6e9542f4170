//! A small profile made by hand, for tests that need to know every number.

use std::collections::BTreeMap;

use profiler_common::{ClassNs, StackEnd};
use profiler_daemon::{
    processes::{
        ids::{ProcessKey, ThreadKey},
        mappings::Place,
        module::{Module, ModuleId, ModuleIdentity, ModuleKind, ModuleTable},
    },
    profile::{
        Profile,
        calls::CallTime,
        frames::{Frame, FrameId},
        input::{
            CommName, DrainPass, OpenCall, OpenStack, ProcessInfo, StackDelta, SyscallUpdate,
            ThreadState, ThreadUpdate,
        },
        limits::Limits,
    },
    report::names::Names,
    symbols::names::{FunctionKind, FunctionName},
    units::{BootNs, ModuleAddress, ModuleOffset, MonoNs},
};

use crate::{
    machine::{SECOND_NS, START_NS, START_UNIX_NS},
    primary::{kinds, primary},
};

pub(crate) const PROCESS: ProcessKey = ProcessKey {
    pid: 42,
    start_ns: BootNs::new(990 * SECOND_NS),
};
pub(crate) const THREAD: ThreadKey = ThreadKey {
    tid: 42,
    start_ns: BootNs::new(990 * SECOND_NS),
};

/// A profile whose functions have names of their own.
pub(crate) struct Small {
    pub(crate) profile: Profile,
    pub(crate) names: ByName,
    modules: ModuleTable,
    app: ModuleId,
    lib: ModuleId,
    libc: ModuleId,
}

#[derive(Default)]
pub(crate) struct ByName(BTreeMap<FrameId, FunctionName>);

impl Names for ByName {
    fn function(&self, frame: FrameId) -> &FunctionName {
        &self.0[&frame]
    }
}

impl Small {
    pub(crate) fn new(limits: Limits) -> Self {
        let mut modules = ModuleTable::new();
        let app = Module {
            build_id: Some(vec![0xab, 0x01].into()),
            ..Module::named("/usr/bin/app", ModuleKind::User)
        };
        let app = modules.intern(ModuleIdentity::Named("app".into()), || app);
        let lib = modules.intern(ModuleIdentity::Named("lib".into()), || {
            Module::named("/usr/lib/lib.so.1", ModuleKind::User)
        });
        let libc = modules.intern(ModuleIdentity::Named("libc".into()), || {
            Module::named("/usr/lib/libc.so.6", ModuleKind::User)
        });
        let mut small = Self {
            profile: Profile::new(limits, START_NS, START_UNIX_NS),
            names: ByName::default(),
            modules,
            app,
            lib,
            libc,
        };
        let unknown = FunctionName {
            name: "[unknown]".into(),
            address: None,
            kind: FunctionKind::Unknown,
            known: false,
        };
        small.names.0.insert(FrameId::UNKNOWN, unknown);
        small
    }

    /// The frames of functions with these names; `k:` marks kernel functions, `lib:` those of a
    /// library, `libc:` of the C library, `?` one without a name.
    pub(crate) fn frames(&mut self, names: &[&str]) -> Vec<FrameId> {
        names.iter().map(|name| self.frame(name)).collect()
    }

    fn frame(&mut self, name: &str) -> FrameId {
        let kernel = name.starts_with("k:");
        let module = match name.split_once(':') {
            Some(("k", _)) => ModuleId::KERNEL,
            Some(("lib", _)) => self.lib,
            Some(("libc", _)) => self.libc,
            _ => self.app,
        };
        let hash = |sum, byte| sum * 31 % 0xffff + u64::from(byte);
        let mut offset = ModuleOffset::new(name.bytes().fold(0x1000, hash));
        let prefixes = ["k:", "lib:", "libc:"];
        let plain = prefixes
            .into_iter()
            .find_map(|prefix| name.strip_prefix(prefix))
            .unwrap_or(name);
        let mut id = self.profile.frames().intern(Frame { module, offset });
        // Another name was there first.
        while self
            .names
            .0
            .get(&id)
            .is_some_and(|known| *known.name != *plain)
        {
            offset += 0x1_0000;
            id = self.profile.frames().intern(Frame { module, offset });
        }
        let function = FunctionName {
            name: plain.into(),
            address: Some(ModuleAddress::new(offset.get())),
            kind: if kernel {
                FunctionKind::Kernel
            } else {
                FunctionKind::User
            },
            known: !name.contains('?'),
        };
        self.names.0.insert(id, function);
        id
    }

    /// A place in a function of the program, told apart from its other places by a number below
    /// 0x1000.
    pub(crate) fn place(&mut self, function: &str, number: u64) -> (FrameId, Place) {
        let of_function = self.frame(function);
        let start = self.names.0[&of_function].address.unwrap();
        let place = Place {
            module: self.app,
            offset: ModuleOffset::new(0x1000_0000 + start.get() * 0x1000 + number),
        };
        let id = self.profile.frames().intern(Frame {
            module: place.module,
            offset: place.offset,
        });
        let name = self.names.0[&of_function].clone();
        self.names.0.insert(id, name);
        (id, place)
    }

    /// An empty pass at so many seconds after the start.
    pub(crate) fn pass(&self, seconds: u64) -> DrainPass {
        DrainPass {
            now_ns: START_NS + seconds * SECOND_NS,
            processors: 2,
            now_unix_ns: START_UNIX_NS + seconds * SECOND_NS,
            boot_unix_ns: START_UNIX_NS - START_NS.ns(),
            modules: self.modules.clone(),
            ..DrainPass::default()
        }
    }

    /// What one stack of [`THREAD`] received.
    pub(crate) fn delta(
        &mut self,
        user: &[&str],
        kernel: &[&str],
        samples: u64,
        classes: ClassNs,
    ) -> StackDelta {
        StackDelta {
            process: PROCESS,
            thread: THREAD,
            user: self.frames(user),
            kernel: self.frames(kernel),
            end: StackEnd::Complete,
            lost: None,
            primary: primary(samples, &classes),
        }
    }

    /// The open interval of [`THREAD`].
    pub(crate) fn open(&mut self, user: &[&str], kernel: &[&str], classes: ClassNs) -> OpenStack {
        OpenStack {
            process: PROCESS,
            thread: THREAD,
            user: self.frames(user),
            kernel: self.frames(kernel),
            end: StackEnd::Complete,
            lost: None,
            classes,
        }
    }
}

/// User time of one tick, where a test makes time by them.
pub(crate) const TICK_NS: u64 = 1_000;

/// The time of a stack that was found running so often, and waited so long.
pub(crate) const fn ran_and_waited(ticks: u64, wait_ns: u64) -> ClassNs {
    [ticks * TICK_NS, 0, wait_ns, 0, 0]
}

/// A process as its collector describes it.
pub(crate) fn info(key: ProcessKey) -> ProcessInfo {
    ProcessInfo {
        ppid: 1,
        exe: Some("/usr/bin/app".into()),
        uid: Some(1000),
        cgroup: Some("/system.slice/app.service".into()),
        unit: Some("app.service".into()),
        ..ProcessInfo::unknown(key, CommName::new("app"), START_UNIX_NS - START_NS.ns())
    }
}

/// A call in which a thread has slept for so long.
pub(crate) fn asleep_in(number: u32, since_ns: MonoNs, ns: u64) -> OpenCall {
    OpenCall {
        number,
        since_ns,
        entry_seen: true,
        time: CallTime {
            total_ns: ns,
            running_ns: 0,
            blocked_ns: ns,
        },
    }
}

/// A thread observed since the session began, without gaps.
pub(crate) fn thread(
    process: ProcessKey,
    thread: ThreadKey,
    state: ThreadState,
    classes: ClassNs,
) -> ThreadUpdate {
    ThreadUpdate {
        thread,
        process,
        comm: CommName::new("app"),
        state,
        first_event_ns: START_NS,
        last_event_ns: START_NS + classes.iter().sum::<u64>(),
        unobserved_ns: 0,
        classes,
        kinds: kinds(&classes),
        minor_faults: 0,
        major_faults: 0,
        switches_missed: 0,
        profiler_cost_ns: 0,
        call: None,
        slot: 0,
    }
}

/// Calls of one number by [`THREAD`].
pub(crate) fn calls(
    number: u32,
    count: u64,
    total_ns: u64,
    blocked_ns: u64,
    max_ns: u64,
) -> SyscallUpdate {
    SyscallUpdate {
        process: PROCESS,
        thread: THREAD,
        number,
        count,
        total_ns,
        running_ns: total_ns - blocked_ns,
        blocked_ns,
        max_ns,
    }
}
