//! What a function is called, as reports see it, and why one has no name. Nothing here reads a
//! file.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use crate::processes::{
    mappings::Place,
    module::{Module, ModuleId, ModuleKind},
};
use crate::units::{ModuleAddress, ModuleOffset};

/// Where a function runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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

impl From<ModuleKind> for FunctionKind {
    fn from(kind: ModuleKind) -> Self {
        match kind {
            ModuleKind::User | ModuleKind::Vdso => Self::User,
            ModuleKind::Kernel | ModuleKind::KernelModule => Self::Kernel,
            ModuleKind::Jit => Self::Jit,
            ModuleKind::Unknown => Self::Unknown,
        }
    }
}

/// The name of the function a frame is in.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FunctionName {
    /// Demangled; where the frame cannot be named `module+0xoffset`, or `[jit] program` for code
    /// made at run time.
    pub name: Box<str>,
    /// Start of the function, module-relative virtual address (the address itself in the kernel).
    pub address: Option<ModuleAddress>,
    /// Where it runs.
    pub kind: FunctionKind,
    /// Whether the name is that of a function.
    pub known: bool,
}

impl FunctionName {
    /// Of a frame that was never asked for.
    #[must_use]
    pub fn unknown() -> Self {
        Self {
            name: "[unknown]".into(),
            address: None,
            kind: FunctionKind::Unknown,
            known: false,
        }
    }
}

profiler_common::named_enum! {
    /// Why a frame has no function's name.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
    pub enum Unnamed {
        /// Nobody knows what was mapped there.
        UnknownModule => "unknown_module",
        /// Code made at run time, that its process does not name in `/tmp/perf-PID.map`.
        Jit => "jit",
        /// The file was gone before it could be opened, or changed since.
        NoFile => "no_file",
        /// The file is no ELF file, or makes no sense.
        Unreadable => "unreadable",
        /// The file has no symbols, and no separate debug file was found.
        NoSymbols => "no_symbols",
        /// The place is in no function that the symbols tell of.
        NoSymbolThere => "no_symbol_there",
        /// The kernel does not show its addresses (`kernel.kptr_restrict`, `CAP_SYSLOG`).
        Restricted => "restricted",
        /// The reader broke over the file.
        Panicked => "panicked",
        /// Finding names in the file took longer than the bound, and it was given up.
        TooSlow => "too_slow",
        /// It is still being looked for: ask again. Counted at each answer without it.
        Pending => "pending",
    }
}

/// The answer for one place.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Named {
    /// The function, or the stand-in for its name.
    pub function: Arc<FunctionName>,
    /// Why it has no name; `None` if it has.
    pub reason: Option<Unnamed>,
}

impl Named {
    /// The stand-in for a place that has no function's name: the place. What a process makes at run
    /// time and does not name is one function, since each of its addresses may be code of many
    /// functions one after the other.
    #[must_use]
    pub fn unnamed(place: Place, module: &Module, reason: Unnamed) -> Self {
        let is_one = place.module == ModuleId::UNKNOWN && place.offset == ModuleOffset::ZERO
            || module.kind == ModuleKind::Jit && reason == Unnamed::Jit;
        let name = if is_one {
            module.name.clone()
        } else {
            format!("{}+0x{:x}", module.basename(), place.offset).into()
        };
        Self {
            function: Arc::new(FunctionName {
                name,
                address: None,
                kind: module.kind.into(),
                known: false,
            }),
            reason: Some(reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that a place without a name stays visible as module and offset, and says why.
    #[test]
    fn stand_ins() {
        let module = Module::named("/usr/lib/libfoo.so.1", ModuleKind::User);
        let place = Place {
            module: ModuleId(5),
            offset: ModuleOffset::new(0x12f0),
        };
        let named = Named::unnamed(place, &module, Unnamed::NoSymbols);
        assert_eq!(&*named.function.name, "libfoo.so.1+0x12f0");
        assert!(!named.function.known && named.function.kind == FunctionKind::User);
        let jit = Place {
            module: ModuleId::JIT,
            offset: ModuleOffset::new(0x7f00),
        };
        let jit_named = Named::unnamed(jit, &Module::named("[jit]", ModuleKind::Jit), Unnamed::Jit);
        assert_eq!(&*jit_named.function.name, "[jit]");
        assert_eq!(named.reason, Some(Unnamed::NoSymbols));
        assert_eq!(jit_named.function.kind, FunctionKind::Jit);
        assert_eq!(&*FunctionName::unknown().name, "[unknown]");
    }
}
