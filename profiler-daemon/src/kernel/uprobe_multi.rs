//! Loads a program for many user probes at once, and attaches it, for which aya has no call: it
//! only makes one perf event for each probe, and the kernel takes a tenth of a second to close one.

use std::collections::{HashMap, HashSet};
use std::ffi::{CString, c_char};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, OwnedFd};

use aya_obj::Object;

use super::bpf_call::bpf;
use super::maps::SharedMap;

const BPF_PROG_LOAD: libc::c_long = 5;
const BPF_LINK_CREATE: libc::c_long = 28;
/// `BPF_PROG_TYPE_KPROBE`.
const PROGRAM_TYPE: u32 = 2;
/// `BPF_TRACE_UPROBE_MULTI` (6.6).
const UPROBE_MULTI: u32 = 48;
/// Bytes of what the verifier says of a program that it refuses.
const LOG_BYTES: usize = 1 << 20;

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

/// `union bpf_attr`, the member of `BPF_LINK_CREATE` for user probes.
#[repr(C)]
#[derive(Default)]
struct LinkCreate {
    program: u32,
    target: u32,
    attach_type: u32,
    flags: u32,
    path: u64,
    offsets: u64,
    counters: u64,
    cookies: u64,
    count: u32,
    probe_flags: u32,
    pid: u32,
    padding: u32,
}

/// The program `name` of an object whose maps exist: those of the running programs.
///
/// # Errors
/// What does not fit, or what the kernel says, the end of the verifier's log included.
pub(super) fn load(
    object: &[u8],
    name: &str,
    maps: &[SharedMap],
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
        let map = maps.iter().find(|map| map.name == *name);
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
        expected_attach_type: UPROBE_MULTI,
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
            let lines: Vec<&str> = text.lines().rev().take(12).collect();
            let lines: Vec<&str> = lines.into_iter().rev().collect();
            format!("{error}; the verifier says: {}", lines.join(" / ")).into()
        })
    })
}

/// Probes of one file.
pub(super) struct Probes<'a> {
    /// Any path that leads to the file.
    pub(super) path: &'a str,
    /// Where, from the start of the file, bytes.
    pub(super) offsets: &'a [u64],
    /// What the program is told at each.
    pub(super) cookies: &'a [u64],
    /// Counters in the program's memory that are raised while a probe is there, as USDT points have
    /// them: where, from the start of the file; 0: none. Or nothing for all of them.
    pub(super) counters: &'a [u64],
    /// In the memory of this process alone.
    pub(super) pid: Option<u32>,
}

/// Attaches a program: as long as the link is open.
///
/// # Errors
/// What the kernel says.
pub(super) fn attach(program: BorrowedFd<'_>, probes: &Probes<'_>) -> io::Result<OwnedFd> {
    assert_eq!(probes.offsets.len(), probes.cookies.len(), "one for each");
    let counters = match probes.counters {
        [] => 0,
        counters => {
            assert_eq!(probes.offsets.len(), counters.len(), "one for each");
            counters.as_ptr() as u64
        }
    };
    let path = CString::new(probes.path)?;
    let create = LinkCreate {
        program: program.as_raw_fd().cast_unsigned(),
        attach_type: UPROBE_MULTI,
        path: path.as_ptr().cast::<c_char>() as u64,
        offsets: probes.offsets.as_ptr() as u64,
        counters,
        cookies: probes.cookies.as_ptr() as u64,
        count: u32::try_from(probes.offsets.len()).map_err(io::Error::other)?,
        pid: probes.pid.unwrap_or(0),
        ..LinkCreate::default()
    };
    bpf(BPF_LINK_CREATE, &create)
}

fn program_name(name: &str) -> [u8; 16] {
    let mut bytes = [0; 16];
    for (to, from) in bytes.iter_mut().take(15).zip(name.bytes()) {
        *to = from;
    }
    bytes
}
