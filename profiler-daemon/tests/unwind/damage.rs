//! Damaged files: bounded time, no panic, and a table or a reason.

use std::time::{Duration, Instant};

use profiler_daemon::unwind::{
    BuildLimits, build, build_file,
    elf::{Elf, FrameForm},
};
use proptest::prelude::*;

const PATIENCE: Duration = Duration::from_secs(2);

fn own_libc() -> Vec<u8> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    let line = maps.lines().find(|line| line.contains("/libc.so")).unwrap();
    std::fs::read(line.split_whitespace().nth(5).unwrap()).unwrap()
}

/// An entry that others share, with these instructions.
fn shared(instructions: &[u8]) -> Vec<u8> {
    let mut body = vec![0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b];
    body.extend(instructions);
    entry(body)
}

fn entry(body: Vec<u8>) -> Vec<u8> {
    let mut bytes = (body.len() as u32).to_le_bytes().to_vec();
    bytes.extend(body);
    bytes
}

/// Builds from a section of one's own in the place of libc's.
fn build_section(bytes: Vec<u8>, form: FrameForm) -> Duration {
    let file = own_libc();
    let mut elf = Elf::read(&*file, 1 << 30, &mut || true).unwrap();
    let frames = elf.frames.as_mut().unwrap();
    frames.bytes = bytes;
    frames.form = form;
    let start = Instant::now();
    let mut keep_going = || start.elapsed() < PATIENCE;
    // A table or a reason: both are fine.
    drop(build(
        &elf,
        &*file,
        &BuildLimits::default(),
        &mut keep_going,
    ));
    start.elapsed()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]

    // Check that a real section with any bytes overwritten and cut anywhere never panics the reader
    // nor holds it up.
    #[test]
    fn damaged_section(
        changes in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..200),
        cut in any::<prop::sample::Index>(),
        form in prop::sample::select(vec![FrameForm::EhFrame, FrameForm::EhFrameToTerminator, FrameForm::DebugFrame]),
    ) {
        let file = own_libc();
        let mut bytes = Elf::read(&*file, 1 << 30, &mut || true).unwrap().frames.unwrap().bytes;
        for (place, byte) in changes {
            let place = place.index(bytes.len());
            bytes[place] = byte;
        }
        let keep = cut.index(2 * bytes.len());
        bytes.truncate(keep);
        prop_assert!(build_section(bytes, form) < 2 * PATIENCE);
    }

    // Check the same for the headers of the file.
    #[test]
    fn damaged_headers(changes in prop::collection::vec((0_usize..1200, any::<u8>()), 1..20)) {
        let mut file = own_libc();
        for (place, byte) in changes {
            // The tables of sections lie at the end.
            let length = file.len();
            let place = if place < 800 { place } else { length - (place - 799) };
            file[place] = byte;
        }
        let start = Instant::now();
        let mut keep_going = || start.elapsed() < PATIENCE;
        drop(build_file(&*file, &BuildLimits::default(), &mut keep_going));
        prop_assert!(start.elapsed() < 2 * PATIENCE);
    }
}

// Check that sections made to take long are given up in time: long instructions shared by many
// functions, a function that remembers its rows without end, lengths that lead nowhere, entries in
// one another.
#[test]
fn made_to_be_slow() {
    let file = own_libc();
    let elf = Elf::read(&*file, 1 << 30, &mut || true).unwrap();
    let code = elf.segments[0].address.get();
    let section = elf.frames.as_ref().unwrap().address.get();
    let function = |at: usize, to_shared: usize, instructions: &[u8]| {
        let mut body = ((at + 4 - to_shared) as u32).to_le_bytes().to_vec();
        let start = code + 16 * (at as u64 % 4096);
        let relative = start.wrapping_sub(section + at as u64 + 8) as u32;
        body.extend(relative.to_le_bytes());
        body.extend(8_u32.to_le_bytes());
        body.push(0);
        body.extend(instructions);
        entry(body)
    };
    // DW_CFA_advance_loc4 by nothing, as long as is allowed for a shared entry.
    let mut many = shared(&[0x04, 0, 0, 0, 0].repeat(700));
    while many.len() < 16 << 20 {
        let next = function(many.len(), 0, &[]);
        many.extend(next);
    }
    let remember: Vec<u8> = [0x0a, 0x0b].repeat(250_000);
    let mut remembering = shared(&[0x0c, 7, 8, 0x90, 1]);
    while remembering.len() < 16 << 20 {
        let next = function(remembering.len(), 0, &remember);
        remembering.extend(next);
    }
    let nothing = vec![0; 16 << 20];
    let ones = vec![0xff; 1 << 20];
    let tiny = [1, 0, 0, 0, 7].repeat(1 << 20);
    for (name, bytes) in [
        ("many", many),
        ("remembering", remembering),
        ("nothing", nothing),
        ("ones", ones),
        ("tiny", tiny),
    ] {
        let took = build_section(bytes, FrameForm::EhFrame);
        println!("{name}: {took:?}");
        assert!(took < PATIENCE + Duration::from_secs(1), "{name}: {took:?}");
    }
}
