//! Functions of the made-up programs: a frame for each (module, name), and the name of each frame.

use std::collections::HashMap;

use profiler_daemon::processes::mappings::Place;
use profiler_daemon::processes::module::{
    Module, ModuleId, ModuleIdentity, ModuleKind, ModuleTable,
};
use profiler_daemon::profile::Profile;
use profiler_daemon::profile::frames::{Frame, FrameId};
use profiler_daemon::report::names::Names;
use profiler_daemon::symbols::lines::{Code, LineTable, NoLine, SourceLine, Step};
use profiler_daemon::symbols::names::{FunctionKind, FunctionName};
use profiler_daemon::units::{ModuleAddress, ModuleOffset};

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
    code: HashMap<Place, Code>,
    unknown: FunctionName,
}

impl Default for Functions {
    fn default() -> Self {
        Self {
            modules: ModuleTable::new(),
            frames: HashMap::new(),
            names: HashMap::new(),
            code: HashMap::new(),
            unknown: name("[unknown]", FunctionKind::Unknown, false),
        }
    }
}

fn name(text: &str, kind: FunctionKind, known: bool) -> FunctionName {
    FunctionName {
        name: text.into(),
        address: known.then_some(ModuleAddress::new(0x1000)),
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
        let offset = ModuleOffset::new(0x1000 + 16 * self.frames.len() as u64);
        let frame = profile.frames().intern(Frame { module: id, offset });
        let place = Place { module: id, offset };
        self.code
            .insert(place, code(module, function, offset.get()));
        let known = !function.contains("+0x");
        self.names.insert(frame, name(function, kind, known));
        self.frames.insert(key, frame);
        frame
    }
}

/// What debug information says of a function's only place: programs have some, libraries and the
/// kernel have none. What decodes was inlined into its caller's line.
fn code(module: &str, function: &str, offset: u64) -> Code {
    let steps = if module.starts_with("/usr/bin/") {
        let file = function.split("::").next().unwrap_or(function);
        let step = |function: &str, line: u64| Step {
            function: Some(function.into()),
            source: Some(SourceLine {
                file: format!("/src/app/{file}.rs").into(),
                line: u32::try_from(line).ok(),
            }),
        };
        let mut steps = vec![step(function, offset % 997)];
        if function.contains("decode") {
            steps.push(step("bits::read", 12));
        }
        Ok(steps.into())
    } else {
        Err(NoLine::NoDebugInformation)
    };
    Code {
        address: Some(ModuleAddress::new(offset)),
        steps,
    }
}

impl Functions {
    /// What debug information says of every place.
    pub(crate) fn lines(&self) -> LineTable {
        let known = self.code.iter();
        known.map(|(place, code)| (*place, code.clone())).collect()
    }
}

impl Names for Functions {
    fn function(&self, frame: FrameId) -> &FunctionName {
        self.names.get(&frame).unwrap_or(&self.unknown)
    }
}
