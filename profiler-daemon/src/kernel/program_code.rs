//! Where the machine code of a loaded program is.

use std::io;
use std::ops::Range;
use std::os::fd::{AsRawFd as _, BorrowedFd};

use super::bpf_call;
use crate::units::VirtualAddress;

const BPF_OBJ_GET_INFO_BY_FD: libc::c_long = 15;
/// Most functions of one program; the kernel takes 256.
const MAX_FUNCTIONS: usize = 256;

/// `union bpf_attr`, the member of `BPF_OBJ_GET_INFO_BY_FD`.
#[repr(C)]
struct InfoRequest {
    program: u32,
    info_bytes: u32,
    info: u64,
}

/// `struct bpf_prog_info`, up to what is asked for.
#[repr(C)]
struct ProgramCodeInfo {
    before: [u64; 13],
    function_count: u32,
    length_count: u32,
    functions: u64,
    lengths: u64,
}

/// The functions of a program, by their addresses. None where the kernel shows no addresses.
///
/// # Errors
/// What the kernel says.
pub(super) fn functions(program: BorrowedFd<'_>) -> io::Result<Vec<Range<VirtualAddress>>> {
    let mut addresses = [0_u64; MAX_FUNCTIONS];
    let mut lengths = [0_u32; MAX_FUNCTIONS];
    let mut info = ProgramCodeInfo {
        before: [0; 13],
        function_count: MAX_FUNCTIONS as u32,
        length_count: MAX_FUNCTIONS as u32,
        functions: addresses.as_mut_ptr() as u64,
        lengths: lengths.as_mut_ptr() as u64,
    };
    let mut request = InfoRequest {
        program: program.as_raw_fd().cast_unsigned(),
        info_bytes: size_of::<ProgramCodeInfo>() as u32,
        info: (&raw mut info) as u64,
    };
    bpf_call::ask(BPF_OBJ_GET_INFO_BY_FD, &mut request)?;
    // It takes the places back whose content it does not show.
    if info.functions == 0 || info.lengths == 0 {
        return Ok(Vec::new());
    }
    let count = info.function_count.min(info.length_count) as usize;
    let functions = addresses.iter().zip(lengths).take(count);
    Ok(functions
        .filter(|(address, _)| **address != 0)
        .map(|(address, length)| {
            let start = VirtualAddress::new(*address);
            start..start.saturating_add(u64::from(length))
        })
        .collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that the numbers that are asked for are where the kernel has them in its structure.
    #[test]
    fn its_layout_is_the_kernels() {
        use std::mem::offset_of;
        assert_eq!(offset_of!(ProgramCodeInfo, function_count), 104);
        assert_eq!(offset_of!(ProgramCodeInfo, length_count), 108);
        assert_eq!(offset_of!(ProgramCodeInfo, functions), 112);
        assert_eq!(offset_of!(ProgramCodeInfo, lengths), 120);
        assert_eq!(size_of::<ProgramCodeInfo>(), 128);
        assert_eq!(size_of::<InfoRequest>(), 16);
    }
}
