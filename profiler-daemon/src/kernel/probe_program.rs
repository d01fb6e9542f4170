//! Loads a program for user probes, from the object of the running programs and with their maps:
//! aya knows neither links of many probes nor programs that come later.

use std::collections::{HashMap, HashSet};
use std::io;
use std::os::fd::{AsRawFd as _, OwnedFd};

use aya_obj::Object;

use super::bpf_call::bpf;
use super::maps::SharedMap;
use super::refusal::VerifierRefusal;
use crate::units::FileOffset;

const BPF_PROG_LOAD: libc::c_long = 5;
/// `BPF_PROG_TYPE_KPROBE`.
const PROGRAM_TYPE: u32 = 2;
/// `BPF_TRACE_UPROBE_MULTI` (6.6).
pub(super) const UPROBE_MULTI: u32 = 48;
/// Bytes of what the verifier says of a program that it refuses: kernels before 6.4 keep the
/// beginning of it alone where that is too little.
const LOG_BYTES: usize = 8 << 20;

/// One probe of a file.
#[derive(Clone, Copy, Debug)]
pub(super) struct Probe {
    /// Where, from the start of the file, bytes.
    pub(super) offset: FileOffset,
    /// What the program is told there.
    pub(super) cookie: u64,
    /// A counter in the program's memory that is raised while the probe is there, as USDT points
    /// have them: where, from the start of the file.
    pub(super) counter: Option<FileOffset>,
}

/// `union bpf_attr`, the member of `BPF_PROG_LOAD`, up to what is used.
#[repr(C)]
#[derive(Default)]
struct ProgramLoad {
    program_type: u32,
    instruction_count: u32,
    instructions: u64,
    license: u64,
    log_level: u32,
    log_bytes: u32,
    log: u64,
    kernel_version: u32,
    program_flags: u32,
    name: [u8; 16],
    interface: u32,
    expected_attach_type: u32,
}

/// The program `name` of an object whose maps exist: those of the running programs, but for those
/// that come before them in `maps`. For links of many probes, or for perf events of one each.
///
/// # Errors
/// What does not fit, or what the kernel says, the end of the verifier's log included.
pub(super) fn load<'a, M: Iterator<Item = &'a SharedMap>>(
    object: &[u8],
    name: &str,
    maps: impl Fn() -> M,
    for_many: bool,
) -> Result<OwnedFd, Box<dyn std::error::Error + Send + Sync>> {
    let mut object = Object::parse(object)?;
    let sections: HashSet<usize> = object
        .functions
        .keys()
        .map(|(section, _)| *section)
        .collect();
    let program = object.programs.get(name).cloned();
    let program = program.ok_or_else(|| format!("the object has no program {name}"))?;
    let defined: HashMap<String, aya_obj::Map> = object.maps.clone();
    // Programs that are not loaded here use maps that are not there: of those no map is known, and
    // a program that did use one is refused.
    let known = defined.iter().map(|(name, defined)| {
        let map = maps().find(|map| map.name == *name);
        let descriptor = map.map_or(-1, |map| map.descriptor.as_raw_fd());
        (name.as_str(), descriptor, defined)
    });
    object.relocate_maps(known, &sections)?;
    object.relocate_calls(&sections)?;
    let function = object.functions.get(&program.function_key());
    let function = function.ok_or_else(|| format!("the program {name} has no code"))?;
    let mut log = vec![0_u8; LOG_BYTES];
    let load = ProgramLoad {
        program_type: PROGRAM_TYPE,
        instruction_count: u32::try_from(function.instructions.len())?,
        instructions: function.instructions.as_ptr() as u64,
        license: program.license.as_ptr() as u64,
        name: program_name(name),
        expected_attach_type: attach_type(for_many),
        ..ProgramLoad::default()
    };
    bpf(BPF_PROG_LOAD, &load).or_else(|error| {
        // Again, for its reasons.
        let told = ProgramLoad {
            log_level: 1,
            log_bytes: log.len() as u32,
            log: log.as_mut_ptr() as u64,
            ..load
        };
        bpf(BPF_PROG_LOAD, &told).map_err(|_| {
            let end = log.iter().position(|byte| *byte == 0);
            let text = String::from_utf8_lossy(&log[..end.unwrap_or(log.len())]);
            VerifierRefusal::new(error, &text).into()
        })
    })
}

/// A program for links of many probes that does nothing, to ask the kernel with.
///
/// # Errors
/// What the kernel says.
pub(super) fn load_empty() -> io::Result<OwnedFd> {
    /// `r0 = 0`, `exit`.
    const INSTRUCTIONS: [u64; 2] = [0xb7, 0x95];
    let load = ProgramLoad {
        program_type: PROGRAM_TYPE,
        instruction_count: INSTRUCTIONS.len() as u32,
        instructions: INSTRUCTIONS.as_ptr() as u64,
        license: c"GPL".as_ptr() as u64,
        expected_attach_type: attach_type(true),
        ..ProgramLoad::default()
    };
    bpf(BPF_PROG_LOAD, &load)
}

const fn attach_type(for_many: bool) -> u32 {
    if for_many { UPROBE_MULTI } else { 0 }
}

fn program_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    bytes
}
