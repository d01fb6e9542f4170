//! Whole stacks of real programs, stopped at many moments: our walk by tables, and the oracle's by
//! gimli with all registers.

use std::{
    collections::{BTreeMap, HashMap},
    fs,
    time::{Duration, Instant},
};

use profiler_common::unwind::{
    Memory, Registers, StepResult, UnwindFailure, pt_regs_offset, step, step_by_frame_pointer,
};
use profiler_daemon::unwind::{BuildLimits, UnwindTable, build_file};

use crate::{
    oracle::{self, Found, Unwinder},
    programs,
    stopped::{self, Mapping, Stopped},
};
use profiler_daemon::units::{FileOffset, ModuleAddress, VirtualAddress};

const MAX_FRAMES: usize = 2048;
/// Stops of each program.
const STOPS: usize = 400;

struct Loaded {
    table: Option<UnwindTable>,
    oracle: Option<Unwinder>,
}

/// Tables of what programs have mapped, each made once.
#[derive(Default)]
struct Modules {
    by_path: HashMap<String, Loaded>,
}

impl Modules {
    fn load(&mut self, thread: &Stopped, mapping: &Mapping) -> &Loaded {
        self.by_path.entry(mapping.path.clone()).or_insert_with(|| {
            let bytes = if mapping.path == "[vdso]" {
                thread.bytes(mapping.start, (mapping.end - mapping.start) as usize)
            } else {
                fs::read(&mapping.path).ok()
            };
            let bytes = bytes.unwrap_or_default();
            Loaded {
                table: build_file(&*bytes, &BuildLimits::default(), &mut || true).ok(),
                oracle: Unwinder::new(&bytes),
            }
        })
    }
}

fn find(mappings: &[Mapping], address: u64) -> Option<&Mapping> {
    mappings
        .iter()
        .find(|mapping| (mapping.start..mapping.end).contains(&address))
}

struct Reader<'a> {
    thread: &'a Stopped,
}

impl Memory for Reader<'_> {
    fn word(&mut self, address: u64) -> Option<u64> {
        self.thread.word(address)
    }

    fn pair(&mut self, address: u64) -> Option<[u64; 2]> {
        Some([self.thread.word(address)?, self.thread.word(address + 8)?])
    }

    fn leaf_register(&mut self, register: u32) -> Option<u64> {
        Some(words(&self.thread.registers)[pt_regs_offset(register) as usize / 8])
    }
}

/// The registers that the kernel's `pt_regs` begins with, in its order.
fn words(registers: &libc::user_regs_struct) -> [u64; 15] {
    let r = registers;
    [
        r.r15, r.r14, r.r13, r.r12, r.rbp, r.rbx, r.r11, r.r10, r.r9, r.r8, r.rax, r.rcx, r.rdx,
        r.rsi, r.rdi,
    ]
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum End {
    Outermost,
    Failed(UnwindFailure),
    NoTable,
}

/// Our walk: addresses to look up, and how it ended.
fn ours(modules: &mut Modules, mappings: &[Mapping], thread: &Stopped) -> (Vec<u64>, End) {
    let user = &thread.registers;
    let mut registers = if (user.orig_rax as i64) < 0 {
        Registers::interrupted(user.rip, user.rsp, user.rbp)
    } else {
        Registers::in_system_call(user.rip, user.rsp, user.rbp)
    };
    let mut frames = Vec::new();
    loop {
        let address = registers.lookup_pc();
        let Some(mapping) = find(mappings, address) else {
            return (frames, End::Failed(UnwindFailure::NoMapping));
        };
        frames.push(address);
        if frames.len() == MAX_FRAMES {
            return (frames, End::Failed(UnwindFailure::Truncated));
        }
        let memory = &mut Reader { thread };
        let result = match &modules.load(thread, mapping).table {
            Some(table) => {
                let bias = table
                    .bias(
                        VirtualAddress::new(mapping.start),
                        FileOffset::new(mapping.offset),
                    )
                    .unwrap();
                let row = table.row_for(ModuleAddress::new(address - bias)).unwrap();
                step(row, &mut registers, memory)
            }
            None if mapping.path.is_empty() => step_by_frame_pointer(&mut registers, memory),
            None => return (frames, End::NoTable),
        };
        match result {
            StepResult::Caller => {}
            StepResult::End => return (frames, End::Outermost),
            StepResult::Failed(failure) => return (frames, End::Failed(failure)),
        }
    }
}

/// The oracle's walk; true if it reached the outermost frame.
fn theirs(modules: &mut Modules, mappings: &[Mapping], thread: &Stopped) -> (Vec<u64>, bool) {
    let user = &thread.registers;
    let mut registers: oracle::Registers = [
        user.rax, user.rdx, user.rcx, user.rbx, user.rsi, user.rdi, user.rbp, user.rsp, user.r8,
        user.r9, user.r10, user.r11, user.r12, user.r13, user.r14, user.r15, user.rip,
    ]
    .map(Some);
    let mut exact = (user.orig_rax as i64) < 0;
    let mut frames = Vec::new();
    while frames.len() < MAX_FRAMES {
        // The caller of a thread's first frame may be 0, which is in no mapping.
        let address = registers[16].unwrap().wrapping_sub(u64::from(!exact));
        let Some(mapping) = find(mappings, address) else {
            return (frames, false);
        };
        frames.push(address);
        let loaded = modules.load(thread, mapping);
        let (Some(oracle), Some(table)) = (&loaded.oracle, &loaded.table) else {
            return (frames, false);
        };
        let bias = table
            .bias(
                VirtualAddress::new(mapping.start),
                FileOffset::new(mapping.offset),
            )
            .unwrap();
        // The register that stubs look at is the file's, as all of its expressions are.
        let mut view = registers;
        view[16] = registers[16].map(|pc| pc - bias);
        match oracle.step(address - bias, &view, &mut |at| thread.word(at)) {
            Found::Caller {
                registers: caller,
                signal,
            } => {
                registers = caller;
                exact = signal;
            }
            Found::Outermost => return (frames, true),
            Found::Unknown => return (frames, false),
        }
    }
    (frames, false)
}

#[derive(Default)]
struct Tally {
    stops: u64,
    complete: u64,
    compared: u64,
    frames: u64,
    deepest: usize,
    ends: BTreeMap<End, u64>,
}

// Check that stacks of real programs, stopped at many moments, are the oracle's frame by frame
// wherever the oracle reaches the end, and that at least 99 of 100 reach the end.
#[test]
fn stacks_agree_with_the_oracle() {
    let folder = tempfile::tempdir().unwrap();
    let programs = programs::start_all(folder.path());
    assert!(programs.iter().any(|program| program.own));
    let mut modules = Modules::default();
    let mut tallies: Vec<Tally> = programs.iter().map(|_| Tally::default()).collect();
    for program in &programs {
        // Others than our own may have ended by now: there is no telling what is installed under a
        // name.
        let seized = stopped::seize(program.child.id() as i32);
        assert!(
            seized.is_ok() || !program.own,
            "{}: {seized:?}",
            program.name
        );
    }
    let mut mappings: Vec<Vec<Mapping>> = vec![Vec::new(); programs.len()];
    let start = Instant::now();
    for round in 0..STOPS {
        for (index, program) in programs.iter().enumerate() {
            let Some(thread) = Stopped::stop(program.child.id() as i32) else {
                continue;
            };
            mappings[index] = thread.code();
            let mappings = &mappings[index];
            let (ours, end) = ours(&mut modules, mappings, &thread);
            let (theirs, reached) = theirs(&mut modules, mappings, &thread);
            drop(thread);
            let tally = &mut tallies[index];
            tally.stops += 1;
            tally.frames += ours.len() as u64;
            tally.deepest = tally.deepest.max(ours.len());
            tally.complete += u64::from(end == End::Outermost);
            *tally.ends.entry(end).or_default() += 1;
            // Only deeper frames than those that the walk knows such registers of have them.
            let register_unknown = End::Failed(UnwindFailure::LeafRegisterAboveLeaf);
            if reached && end != register_unknown {
                tally.compared += 1;
                assert_eq!(ours, theirs, "{} stop {round}: {end:?}", program.name);
                assert_eq!(end, End::Outermost, "{} stop {round}", program.name);
            } else {
                let shared = ours.len().min(theirs.len());
                assert_eq!(ours[..shared], theirs[..shared], "{}", program.name);
            }
        }
        // Moments apart that no program's rhythm has.
        std::thread::sleep(Duration::from_micros(300 + (round as u64 * 7919) % 1500));
        if start.elapsed() > Duration::from_secs(120) {
            break;
        }
    }
    let (mut stops, mut complete) = (0, 0);
    for (program, tally) in programs.iter().zip(&tallies) {
        println!(
            "{}: {} stops, {} complete, {} as the oracle, {} frames, deepest {}, {:?}",
            program.name,
            tally.stops,
            tally.complete,
            tally.compared,
            tally.frames,
            tally.deepest,
            tally.ends
        );
        stops += tally.stops;
        complete += tally.complete;
    }
    for (program, tally) in programs.iter().zip(&tallies) {
        if program.own {
            assert!(
                tally.stops > 20 && tally.compared * 100 >= tally.stops * 95,
                "{}",
                program.name
            );
            // In the Rust program it is the first thread that is stopped, which waits for the one
            // that works.
            let depth = if program.name == "rust" { 8 } else { 400 };
            assert!(tally.deepest > depth, "{}", program.name);
        }
    }
    assert!(complete * 100 >= stops * 99, "{complete} of {stops}");
}
