//! Program files made by hand, for tests and fuzzing: one segment of code, and sections.

/// Where the code of made files lies.
pub(crate) const CODE_ADDRESS: u64 = 0x40_1000;
/// Offset of the code in the file.
const CODE_OFFSET: usize = 0x1000;

/// A section of a made file.
pub(crate) struct MadeSection {
    pub(crate) name: &'static str,
    pub(crate) flags: u64,
    pub(crate) address: u64,
    pub(crate) bytes: Vec<u8>,
}

impl MadeSection {
    pub(crate) fn new(name: &'static str, bytes: Vec<u8>) -> Self {
        Self {
            name,
            flags: 0,
            address: 0,
            bytes,
        }
    }

    /// Code, loaded at that address besides the rest.
    pub(crate) fn code(name: &'static str, address: u64, bytes: Vec<u8>) -> Self {
        Self {
            name,
            flags: 6,
            address,
            bytes,
        }
    }
}

/// A linked 64-bit program with that code, and `.text` for it besides the sections.
pub(crate) fn program(code: &[u8], sections: &[MadeSection]) -> Vec<u8> {
    let mut file = vec![0; CODE_OFFSET];
    file.extend(code);
    let mut names = b"\0.text\0.shstrtab\0".to_vec();
    let mut headers = vec![[0; 8], [1, 1, 6, CODE_ADDRESS, CODE_OFFSET as u64, 0, 0, 0]];
    headers[1][5] = code.len() as u64;
    // The symbolizer wants tables where their numbers are aligned.
    let align = |file: &mut Vec<u8>| file.resize(file.len().next_multiple_of(8), 0);
    for section in sections {
        align(&mut file);
        let name = names.len() as u64;
        names.extend(section.name.as_bytes());
        names.push(0);
        let (offset, size_bytes) = (file.len() as u64, section.bytes.len() as u64);
        headers.push([
            name,
            1,
            section.flags,
            section.address,
            offset,
            size_bytes,
            0,
            0,
        ]);
        file.extend(&section.bytes);
    }
    headers.push([7, 3, 0, 0, file.len() as u64, names.len() as u64, 0, 0]);
    file.extend(&names);
    align(&mut file);
    let table = file.len() as u64;
    for [name, kind, flags, address, offset, size_bytes, _, _] in &headers {
        file.extend((*name as u32).to_le_bytes());
        file.extend((*kind as u32).to_le_bytes());
        for word in [flags, address, offset, size_bytes, &0, &0, &0] {
            file.extend(word.to_le_bytes());
        }
    }
    let put = |file: &mut Vec<u8>, at: usize, bytes: &[u8]| {
        file[at..at + bytes.len()].copy_from_slice(bytes);
    };
    put(&mut file, 0, b"\x7fELF\x02\x01\x01");
    for (at, half) in [
        (16, 2_u16),
        (18, 62),
        (52, 64),
        (54, 56),
        (56, 1),
        (58, 64),
        (60, headers.len() as u16),
        (62, headers.len() as u16 - 1),
    ] {
        put(&mut file, at, &half.to_le_bytes());
    }
    let length = code.len() as u64;
    for (at, word) in [
        (32, 64),
        (40, table),
        (72, CODE_OFFSET as u64),
        (80, CODE_ADDRESS),
        (96, length),
        (104, length),
    ] {
        put(&mut file, at, &word.to_le_bytes());
    }
    // Loaded, readable, with code.
    put(&mut file, 64, &1_u32.to_le_bytes());
    put(&mut file, 68, &5_u32.to_le_bytes());
    file
}

/// Jumps to calls that lie within padding, so that each has all that follows behind it.
#[cfg(test)]
pub(crate) fn shared_padding(calls: usize) -> Vec<u8> {
    // A long nop whose operand is a call that ends within the next nop, behind its first byte.
    const NOP: [u8; 9] = [0x66, 0x0f, 0x1f, 0x84, 0x00, 0xe8, 0, 0, 0];
    let mut code = Vec::new();
    for number in 0..calls {
        let target = (calls * 6 + number * NOP.len() + 5) as i32;
        code.extend([0x0f, 0x84]);
        code.extend((target - (code.len() as i32 + 4)).to_le_bytes());
    }
    code.extend(NOP.repeat(calls));
    code
}
