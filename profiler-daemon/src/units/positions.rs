//! Places in files and in memory, a type for each space. Each is a number of bytes and is written
//! and read as that number. What lies between two of one space is a plain number of bytes.

use std::fmt;

use super::number::number;

/// Defines places of one space.
macro_rules! position {
    ($(#[$doc:meta])* $name:ident) => {
        number! {
            $(#[$doc])*
            $name, get
        }

        impl $name {
            /// So many bytes further on; nothing where there is no such place.
            #[must_use]
            pub const fn checked_add(self, bytes: u64) -> Option<Self> {
                match self.0.checked_add(bytes) {
                    Some(number) => Some(Self(number)),
                    None => None,
                }
            }

            /// So many bytes further on, modulo 2^64.
            #[must_use]
            pub const fn wrapping_add(self, bytes: u64) -> Self {
                Self(self.0.wrapping_add(bytes))
            }

            /// So many bytes before, modulo 2^64.
            #[must_use]
            pub const fn wrapping_sub(self, bytes: u64) -> Self {
                Self(self.0.wrapping_sub(bytes))
            }

            /// Bytes from `start` to here; nothing if that is behind.
            #[must_use]
            pub const fn checked_from(self, start: Self) -> Option<u64> {
                self.0.checked_sub(start.0)
            }

            /// Bytes from `start` to here, modulo 2^64.
            #[must_use]
            pub const fn wrapping_from(self, start: Self) -> u64 {
                self.0.wrapping_sub(start.0)
            }
        }

        impl fmt::LowerHex for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::LowerHex::fmt(&self.0, f)
            }
        }
    };
}

position! {
    /// A place in a file: bytes from its beginning.
    FileOffset
}

position! {
    /// A place in the memory of a process, or of the kernel.
    VirtualAddress
}

position! {
    /// A virtual address as the file of a module gives it and disassemblers show it: before loading
    /// moves it. Of what is no file (the kernel, code made at run time) the address itself.
    ModuleAddress
}

position! {
    /// A place in a module, as stacks have it: [`FileOffset`] where the module is a file; of what
    /// is none (the kernel, code made at run time) the [`VirtualAddress`].
    ModuleOffset
}

impl ModuleAddress {
    /// An address in what is no file.
    #[must_use]
    pub const fn of_address(address: VirtualAddress) -> Self {
        Self(address.get())
    }
}

impl ModuleOffset {
    /// A place in a module that is a file.
    #[must_use]
    pub const fn of_file(offset: FileOffset) -> Self {
        Self(offset.get())
    }

    /// A place in a module that is no file.
    #[must_use]
    pub const fn of_address(address: VirtualAddress) -> Self {
        Self(address.get())
    }

    /// Where it is in the file that the module is.
    #[must_use]
    pub const fn in_file(self) -> FileOffset {
        FileOffset(self.0)
    }

    /// Where it is in memory: the module is no file.
    #[must_use]
    pub const fn in_memory(self) -> VirtualAddress {
        VirtualAddress(self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that what leaves the range is told, stopped or wrapped, each as its name says.
    #[test]
    fn arithmetic_at_the_end() {
        let (first, last) = (FileOffset::new(3), FileOffset::new(u64::MAX));
        assert_eq!(first + 7, FileOffset::new(10));
        assert_eq!((first + 7) - first, 7);
        assert_eq!((first + 7) - 7, first);
        assert_eq!(last.checked_add(1), None);
        assert_eq!(last.saturating_add(1), last);
        assert_eq!(last.wrapping_add(4), first);
        assert_eq!(first.wrapping_sub(4), last);
        assert_eq!(first.checked_from(last), None);
        assert_eq!(first.wrapping_from(last), 4);
        assert_eq!(format!("{first:#x}"), "0x3");
    }
}
