//! Compressed unwind information, whole, damaged and lying.

use std::io::Write as _;

use flate2::{Compression, write::ZlibEncoder};
use profiler_common::unwind::kind;

use crate::units::ModuleAddress;

use super::{
    BuildLimits, NoTable, UnwindTable, build_file,
    elf::Elf,
    made_files::{CODE_ADDRESS, MadeSection, program},
};

const SHF_COMPRESSED: u64 = 1 << 11;

/// `sub $24, %rsp; add $24, %rsp; ret`, and padding to 32 bytes.
fn code() -> Vec<u8> {
    let mut code = vec![0x48, 0x83, 0xec, 0x18, 0x48, 0x83, 0xc4, 0x18, 0xc3];
    code.resize(32, 0xcc);
    code
}

/// A `.debug_frame` that says of that code what the code does not say itself: 40 bytes more.
fn debug_frame() -> Vec<u8> {
    let entry = |body: &[u8]| {
        let mut body = body.to_vec();
        body.resize(body.len().next_multiple_of(4), 0);
        [(body.len() as u32).to_le_bytes().as_slice(), &body].concat()
    };
    // Version 3, code by 1, data by -8, returns to 16; CFA = rsp + 48, return address at CFA - 8.
    let shared = entry(&[
        0xff, 0xff, 0xff, 0xff, 3, 0, 1, 0x78, 16, 0x0c, 7, 48, 0x90, 1,
    ]);
    let mut function = 0_u32.to_le_bytes().to_vec();
    function.extend(CODE_ADDRESS.to_le_bytes());
    function.extend(32_u64.to_le_bytes());
    [shared, entry(&function)].concat()
}

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = ZlibEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A section as ELF has it compressed.
fn flagged(kind: u32, claims_bytes: u64, stream: &[u8]) -> MadeSection {
    let mut bytes = u64::from(kind).to_le_bytes().to_vec();
    bytes.extend(claims_bytes.to_le_bytes());
    bytes.extend(1_u64.to_le_bytes());
    bytes.extend(stream);
    MadeSection {
        flags: SHF_COMPRESSED,
        ..MadeSection::new(".debug_frame", bytes)
    }
}

/// A section as it was compressed before.
fn old(claims_bytes: u64, stream: &[u8]) -> MadeSection {
    let bytes = [b"ZLIB".as_slice(), &claims_bytes.to_be_bytes(), stream].concat();
    MadeSection::new(".zdebug_frame", bytes)
}

fn table(section: MadeSection) -> UnwindTable {
    let file = program(&code(), &[section]);
    build_file(&*file, &BuildLimits::default(), &mut || true).unwrap()
}

/// Why the section cannot be used; its code is followed by the rules read off it.
#[track_caller]
fn refused(section: MadeSection) -> NoTable {
    let table = table(section);
    let row = table.row_for(ModuleAddress::new(CODE_ADDRESS + 4)).unwrap();
    assert_eq!((row.kind, row.param), (kind::CFA_RSP, 32));
    table.without.unwrap()
}

// Check that a section is read the same whether it is compressed in one form, in the other, or not
// at all.
#[test]
fn read_as_if_it_were_not_compressed() {
    let section = debug_frame();
    let size_bytes = section.len() as u64;
    let plain = table(MadeSection::new(".debug_frame", section.clone()));
    assert_eq!(plain.without, None);
    let row = plain.row_for(ModuleAddress::new(CODE_ADDRESS)).unwrap();
    assert_eq!((row.kind, row.param), (kind::CFA_RSP, 48));
    assert_eq!(table(flagged(1, size_bytes, &packed(&section))), plain);
    assert_eq!(table(old(size_bytes, &packed(&section))), plain);
}

// Check that a section of several pieces is whole, and that each piece is asked for.
#[test]
fn many_pieces() {
    let mut section = debug_frame();
    let mut random = 1_u32;
    section.resize_with(5 << 20, || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (random >> 30) as u8
    });
    let made = flagged(1, section.len() as u64, &packed(&section));
    let file = program(&code(), &[made]);
    let mut asked = 0;
    let elf = Elf::read(&*file, 1 << 30, &mut || {
        asked += 1;
        true
    });
    assert!(elf.unwrap().frames.unwrap().bytes == section);
    assert_eq!(asked, 5);
    let slow = Elf::read(&*file, 1 << 30, &mut || false);
    assert_eq!(slow.unwrap().frames.unwrap_err(), NoTable::TooSlow);
    let small = Elf::read(&*file, 4 << 20, &mut || true);
    assert_eq!(small.unwrap().frames.unwrap_err(), NoTable::SectionTooLarge);
}

// Check that streams cut short or changed, and headers that say too little or too much, are damage.
#[test]
fn damaged() {
    let section = debug_frame();
    let size_bytes = section.len() as u64;
    let stream = packed(&section);
    let damaged = NoTable::CompressionDamaged;
    for length in 0..stream.len() {
        let why = refused(flagged(1, size_bytes, &stream[..length]));
        // Of a few bytes it is too much to ask.
        assert!(why == damaged || length < 2 && why == NoTable::CompressionRatio);
    }
    let mut wrong_sum = stream.clone();
    *wrong_sum.last_mut().unwrap() ^= 1;
    assert_eq!(refused(flagged(1, size_bytes, &wrong_sum)), damaged);
    for claim in [0, 1, size_bytes - 1, size_bytes + 1, 2 * size_bytes] {
        assert_eq!(refused(flagged(1, claim, &stream)), damaged, "{claim}");
        assert_eq!(refused(old(claim, &stream)), damaged, "{claim}");
    }
    let mut header = flagged(1, size_bytes, &stream);
    header.bytes.truncate(20);
    assert_eq!(refused(header), damaged);
    let mut mark = old(size_bytes, &stream);
    mark.bytes[0] = b'z';
    assert_eq!(refused(mark), damaged);
}

// Check that a section which claims gigabytes, or unpacks to much more than it is, is refused
// before it is unpacked, and that another method than zlib's has a reason of its own.
#[test]
fn claims() {
    let stream = packed(&debug_frame());
    for claim in [1 << 20, 8 << 30, u64::MAX] {
        assert_eq!(
            refused(flagged(1, claim, &stream)),
            NoTable::CompressionRatio
        );
        assert_eq!(refused(old(claim, &stream)), NoTable::CompressionRatio);
    }
    let zeros = vec![0; 8 << 20];
    let bomb = packed(&zeros);
    assert!(bomb.len() < 16 << 10);
    let file = program(&code(), &[flagged(1, 8 << 20, &bomb)]);
    let elf = Elf::read(&*file, 1 << 30, &mut || panic!("nothing is unpacked"));
    assert_eq!(elf.unwrap().frames.unwrap_err(), NoTable::CompressionRatio);
    let size_bytes = debug_frame().len() as u64;
    assert_eq!(
        refused(flagged(2, size_bytes, &stream)),
        NoTable::Compressed
    );
}

// Check that code without any unwind information has rules read off it, the reason kept, and that
// where nothing is known of it a frame pointer of zero is no end; and that a file without code that
// could be read has no table.
#[test]
fn code_alone() {
    let mut file = program(&code(), &[]);
    let table = build_file(&*file, &BuildLimits::default(), &mut || true).unwrap();
    assert_eq!(table.without, Some(NoTable::NoUnwindInformation));
    let at = |offset: u64| {
        table
            .row_for(ModuleAddress::new(CODE_ADDRESS + offset))
            .unwrap()
    };
    assert_eq!((at(0).param, at(4).param, at(8).param), (8, 32, 8));
    assert_eq!(at(0x40).kind, kind::FRAME_POINTER);
    let little = BuildLimits {
        max_scan_bytes: 0,
        ..BuildLimits::default()
    };
    let nothing = build_file(&*file, &little, &mut || true);
    assert_eq!(nothing.unwrap_err(), NoTable::NoUnwindInformation);
    file.truncate(0x1000);
    let nothing = build_file(&*file, &BuildLimits::default(), &mut || true);
    assert_eq!(nothing.unwrap_err(), NoTable::NoUnwindInformation);
}

// Check that few functions with much to say are asked about as often as many with little, so that
// they are given up in time.
#[test]
fn long_functions_are_asked_about() {
    const FUNCTIONS: u64 = 8;
    let mut section = debug_frame();
    section.truncate(20);
    let instructions = [0x0a, 0x0b].repeat(500_000);
    for number in 0..FUNCTIONS {
        let mut function = 0_u32.to_le_bytes().to_vec();
        function.extend((CODE_ADDRESS + number * 4).to_le_bytes());
        function.extend(4_u64.to_le_bytes());
        function.extend(&instructions);
        section.extend((function.len() as u32).to_le_bytes());
        section.extend(function);
    }
    let file = program(&code(), &[MadeSection::new(".debug_frame", section)]);
    let mut asked = 0;
    let mut keep_going = || {
        asked += 1;
        asked < FUNCTIONS / 4
    };
    let refused = build_file(&*file, &BuildLimits::default(), &mut keep_going);
    assert_eq!(refused.unwrap_err(), NoTable::TooSlow);
}
