//! What a function is called, as reports see it. Nothing here reads a file.

use crate::profile::frames::FrameId;

/// Where a function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FunctionKind {
    /// A mapped file.
    User,
    /// The kernel or one of its modules.
    Kernel,
    /// Code made at run time.
    Jit,
    /// Not known.
    Unknown,
}

/// The name of the function a frame is in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionName {
    /// Demangled; `module+0xoffset` when the frame cannot be named.
    pub name: Box<str>,
    /// Start of the function, module-relative virtual address.
    pub address: Option<u64>,
    /// Where it runs.
    pub kind: FunctionKind,
    /// Whether the name is that of a function.
    pub known: bool,
}

/// Answers with the name of any frame.
pub trait Names {
    /// The function that `frame` is in.
    fn function(&self, frame: FrameId) -> &FunctionName;
}
