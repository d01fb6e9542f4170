//! A program file made by hand: one loadable segment, machine code of which nothing is ever run,
//! and unwind information.

/// Where the code lies in the file and in memory.
const CODE_AT: usize = 0x1000;

fn u16s(out: &mut Vec<u8>, values: &[u16]) {
    values
        .iter()
        .for_each(|value| out.extend(value.to_le_bytes()));
}

fn u32s(out: &mut Vec<u8>, values: &[u32]) {
    values
        .iter()
        .for_each(|value| out.extend(value.to_le_bytes()));
}

fn u64s(out: &mut Vec<u8>, values: &[u64]) {
    values
        .iter()
        .for_each(|value| out.extend(value.to_le_bytes()));
}

/// A shared library of `functions` functions of four bytes, all under one CIE whose instructions
/// take `cie_bytes`.
pub(super) fn with_one_cie(functions: u32, cie_bytes: usize) -> Vec<u8> {
    let code_bytes = functions as usize * 4;
    let frame_at = (CODE_AT + code_bytes).next_multiple_of(16);
    let frame = eh_frame(functions, cie_bytes, frame_at);
    let names = b"\0.text\0.eh_frame\0.shstrtab\0";
    let names_at = frame_at + frame.len();
    let sections_at = (names_at + names.len()).next_multiple_of(8);
    let mut file = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    u16s(&mut file, &[3, 62]);
    u32s(&mut file, &[1]);
    u64s(&mut file, &[0, 64, sections_at as u64]);
    u32s(&mut file, &[0]);
    u16s(&mut file, &[64, 56, 1, 64, 4, 3]);
    // The segment: the whole file, readable and executable.
    u32s(&mut file, &[1, 5]);
    u64s(
        &mut file,
        &[0, 0, 0, sections_at as u64, sections_at as u64, 0x1000],
    );
    file.resize(CODE_AT, 0);
    file.resize(CODE_AT + code_bytes, 0x90);
    file.resize(frame_at, 0);
    file.extend(frame);
    file.extend(names);
    file.resize(sections_at, 0);
    file.resize(sections_at + 64, 0);
    for (name, kind, flags, at, bytes) in [
        (1, 1, 6, CODE_AT, code_bytes),
        (7, 1, 2, frame_at, names_at - frame_at),
        (17, 3, 0, names_at, names.len()),
    ] {
        u32s(&mut file, &[name, kind]);
        u64s(&mut file, &[flags, at as u64, at as u64, bytes as u64]);
        u32s(&mut file, &[0, 0]);
        u64s(&mut file, &[1, 0]);
    }
    file
}

/// One CIE, and an FDE for each function, which lie at `CODE_AT` where this lies at `at`.
fn eh_frame(functions: u32, cie_bytes: usize, at: usize) -> Vec<u8> {
    // Version 1, augmentation zR, code alignment 1, data alignment -8, return address in 16,
    // pointers relative to themselves.
    let mut cie = vec![0, 0, 0, 0, 1, b'z', b'R', 0, 1, 0x78, 16, 1, 0x1b];
    // The frame lies at rsp + 8, return address below it; then it is said to lie there again and
    // again.
    cie.extend([0x0c, 7, 8, 0x90, 1]);
    while cie.len() + 2 < cie_bytes {
        cie.extend([0x0e, 8]);
    }
    cie.resize(cie.len().next_multiple_of(8) + 4, 0);
    let mut out = Vec::new();
    u32s(&mut out, &[cie.len() as u32]);
    out.extend(cie);
    for function in 0..functions {
        let start = CODE_AT as i64 + i64::from(function) * 4;
        let to_cie = out.len() as u32 + 4;
        let field_at = (at + out.len() + 8) as i64;
        u32s(&mut out, &[16, to_cie, (start - field_at) as u32, 4, 0]);
    }
    u32s(&mut out, &[0]);
    out
}
