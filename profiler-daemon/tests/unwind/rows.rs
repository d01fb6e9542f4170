//! Row by row: for random addresses in real files, a step by our row and one by the oracle, over
//! the same invented registers and memory.

use std::{fs, path::PathBuf};

use profiler_common::unwind::{Memory, Registers, StepResult, UnwindFailure, kind, step};
use profiler_daemon::units::ModuleAddress;
use profiler_daemon::unwind::{BuildLimits, build_file};

use crate::oracle::{self, Found, Unwinder};

const STACK: u64 = 0x7ffd_0000_0000;
/// Addresses looked at in each file.
const TRIES: u64 = 4_000;

/// Scrambles a number.
fn mixed(value: u64) -> u64 {
    let value = (value ^ (value >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (value ^ (value >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) ^ (value >> 33)
}

/// What lies at an address: always some address higher up the stack, so that no guard stops a step.
fn word(address: u64) -> u64 {
    STACK + 0x100_0000 + (mixed(address) & 0xff_fff8)
}

struct Invented {
    registers: oracle::Registers,
}

impl Memory for Invented {
    fn word(&mut self, address: u64) -> Option<u64> {
        Some(word(address))
    }

    fn pair(&mut self, address: u64) -> Option<[u64; 2]> {
        Some([word(address), word(address + 8)])
    }

    fn leaf_register(&mut self, register: u32) -> Option<u64> {
        self.registers[register as usize]
    }
}

/// Programs and libraries of this machine that are worth a look, as far as they are there: those
/// that this program uses, and the largest of the usual places.
fn files() -> Vec<PathBuf> {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let mut files: Vec<PathBuf> = maps
        .lines()
        .filter_map(|line| line.split_whitespace().nth(5))
        .filter(|path| path.starts_with('/'))
        .map(PathBuf::from)
        .collect();
    for folder in ["/usr/bin", "/usr/lib/x86_64-linux-gnu", "/usr/lib64"] {
        let Ok(entries) = fs::read_dir(folder) else {
            continue;
        };
        let mut sized: Vec<(u64, PathBuf)> = entries
            .filter_map(Result::ok)
            .filter_map(|entry| Some((fs::metadata(entry.path()).ok()?.len(), entry.path())))
            .filter(|(size, _)| (50_000..40_000_000).contains(size))
            .collect();
        sized.sort();
        // Evenly from small to large, and the crypto library, whose hand-written code has the
        // rarest rules.
        let step = (sized.len() / 25).max(1);
        let (some, rest): (Vec<_>, Vec<_>) = sized
            .into_iter()
            .enumerate()
            .partition(|(index, _)| index % step == 0);
        let crypto = rest
            .into_iter()
            .filter(|(_, (_, path))| path.to_string_lossy().contains("libcrypto.so"));
        files.extend(some.into_iter().chain(crypto).map(|(_, (_, path))| path));
    }
    files.sort();
    files.dedup();
    files
}

// Check that our row and the oracle's lead to the same caller, for random addresses in many files;
// the few that we say we do not support are counted.
#[test]
fn rows_agree_with_the_oracle() {
    let (mut files_seen, mut agreed, mut unsupported) = (0_u32, 0_u64, 0_u64);
    let mut kinds = [0_u64; 64];
    for path in files() {
        let Ok(bytes) = fs::read(&path) else { continue };
        let Some(oracle) = Unwinder::new(&bytes).filter(|oracle| !oracle.functions.is_empty())
        else {
            continue;
        };
        let table = build_file(&*bytes, &BuildLimits::default(), &mut || true)
            .unwrap_or_else(|why| panic!("{}: {}", path.display(), why.name()));
        files_seen += 1;
        let functions = &oracle.functions;
        for attempt in 0..TRIES {
            let random = mixed(attempt + 1);
            let function = &functions[(random % functions.len() as u64) as usize];
            let address = function.initial_address() + mixed(random) % function.len();
            let Some(row) = table.row_for(ModuleAddress::new(address)) else {
                let inside = table.segments.iter().any(|segment| {
                    address >= segment.address.get() && address < segment.end().get()
                });
                assert!(!inside, "{}: no row at {address:#x}", path.display());
                continue;
            };
            let mut registers: oracle::Registers = std::array::from_fn(|number| {
                Some(STACK + 0x1000 + (mixed(random + number as u64) & 0xff_fff8))
            });
            registers[7] = Some(STACK);
            // Some rules count in words by a register.
            registers[16] = Some(address);
            let expected = oracle.step(address, &registers, &mut |at| Some(word(at)));
            let mut ours = Registers::interrupted(address, STACK, registers[6].unwrap());
            let mut memory = Invented { registers };
            let result = step(row, &mut ours, &mut memory);
            kinds[usize::from(row.kind)] += 1;
            let place = format!("{} at {address:#x}: {row:?}", path.display());
            match (result, expected) {
                (StepResult::Caller, Found::Caller { registers, .. }) => {
                    assert_eq!(Some(ours.pc), registers[16], "{place}");
                    assert_eq!(Some(ours.sp), registers[7], "{place}");
                    assert_eq!(Some(ours.fp), registers[6], "{place}");
                    agreed += 1;
                }
                (StepResult::End, Found::Outermost) => agreed += 1,
                (StepResult::Failed(_), _) if row.kind == kind::UNSUPPORTED => unsupported += 1,
                // A guard: the invented registers do not suit the rule.
                (
                    StepResult::Failed(
                        UnwindFailure::StackNotGrowing
                        | UnwindFailure::StackMisaligned
                        | UnwindFailure::StackOutOfRange,
                    ),
                    Found::Caller { registers, .. },
                ) => {
                    let cfa = registers[7].unwrap();
                    assert!(cfa <= STACK || cfa & 7 != 0 || cfa >> 47 != 0, "{place}");
                }
                (result, expected) => panic!("{place}: {result:?}, but {expected:?}"),
            }
        }
    }
    println!("{files_seen} files, {agreed} agreed, {unsupported} unsupported, kinds {kinds:?}");
    assert!(files_seen >= 3 && agreed > u64::from(files_seen) * TRIES / 2);
    assert!(unsupported * 1000 < agreed, "{unsupported} of {agreed}");
}
