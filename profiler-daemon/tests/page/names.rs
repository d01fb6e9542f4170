//! Functions of the made-up programs: a frame for each (module, name), and the name of each frame.

use std::collections::HashMap;

use profiler_daemon::processes::module::{
    Module, ModuleId, ModuleIdentity, ModuleKind, ModuleTable,
};
use profiler_daemon::profile::Profile;
use profiler_daemon::profile::frames::{Frame, FrameId};
use profiler_daemon::report::names::Names;
use profiler_daemon::symbols::names::{FunctionKind, FunctionName};

/// The module of functions of the kernel.
pub(crate) const KERNEL: &str = "[kernel]";
/// The module of code made at run time.
pub(crate) const JIT: &str = "[jit]";

/// All functions met so far.
#[derive(Clone)]
pub(crate) struct Functions {
    pub(crate) modules: ModuleTable,
    frames: HashMap<(String, String), FrameId>,
    names: HashMap<FrameId, FunctionName>,
    unknown: FunctionName,
}

impl Default for Functions {
    fn default() -> Self {
        Self {
            modules: ModuleTable::new(),
            frames: HashMap::new(),
            names: HashMap::new(),
            unknown: name("[unknown]", FunctionKind::Unknown, false),
        }
    }
}

fn name(text: &str, kind: FunctionKind, known: bool) -> FunctionName {
    FunctionName {
        name: text.into(),
        address: known.then_some(0x1000),
        kind,
        known,
    }
}

impl Functions {
    /// The frame of a function.
    pub(crate) fn frame(&mut self, profile: &mut Profile, module: &str, function: &str) -> FrameId {
        let key = (module.to_owned(), function.to_owned());
        if let Some(frame) = self.frames.get(&key) {
            return *frame;
        }
        let (id, kind) = match module {
            KERNEL => (ModuleId::KERNEL, FunctionKind::Kernel),
            JIT => (ModuleId::JIT, FunctionKind::Jit),
            path => {
                let identity = ModuleIdentity::Named(path.into());
                let made = || Module::named(path, ModuleKind::User);
                (self.modules.intern(identity, made), FunctionKind::User)
            }
        };
        let offset = 0x1000 + 16 * self.frames.len() as u64;
        let frame = profile.frames().intern(Frame { module: id, offset });
        let known = !function.contains("+0x");
        self.names.insert(frame, name(function, kind, known));
        self.frames.insert(key, frame);
        frame
    }
}

impl Names for Functions {
    fn function(&self, frame: FrameId) -> &FunctionName {
        self.names.get(&frame).unwrap_or(&self.unknown)
    }
}
