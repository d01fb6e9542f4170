//! From linker names to the names people write, within bounds: a few hundred bytes of a hostile C++ name can stand for
//! gigabytes.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

/// Longest name kept, bytes; what is longer loses its end.
pub const MAX_NAME_BYTES: usize = 2048;

/// Deepest nesting of a C++ name that is read. The time it takes to parse one doubles with each level: some names of 127 bytes would take
/// for ever at 40, none a millisecond here; of 6000 names of real programs five are nested deeper.
const MAX_NESTING: u32 = 32;

/// Collects text up to a limit, and then fails.
struct Bounded {
    text: String,
}

impl fmt::Write for Bounded {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.text.len() + more.len() > MAX_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.text.push_str(more);
        Ok(())
    }
}

/// The readable form of a linker name: Rust without its hash, C++ with its parameters, anything else as it is. A form that
/// would be too long is not made; the linker name stands for it then.
#[must_use]
pub fn demangle(raw: &str) -> Box<str> {
    let readable = if raw.len() > MAX_NAME_BYTES {
        None
    } else {
        rust(raw).or_else(|| cpp(raw))
    };
    let name = readable.unwrap_or_else(|| cut(raw).to_owned());
    match without_control(&name) {
        Cow::Borrowed(_) => name.into(),
        // What replaces a control character is longer than it.
        Cow::Owned(harmless) => cut(&harmless).into(),
    }
}

/// Text that steers no terminal: each control character is replaced.
#[must_use]
pub fn without_control(text: &str) -> Cow<'_, str> {
    if !text.chars().any(char::is_control) {
        return Cow::Borrowed(text);
    }
    let harmless = text.chars().map(|c| {
        if c.is_control() {
            char::REPLACEMENT_CHARACTER
        } else {
            c
        }
    });
    Cow::Owned(harmless.collect())
}

fn rust(raw: &str) -> Option<String> {
    let symbol = rustc_demangle::try_demangle(raw).ok()?;
    let mut out = Bounded {
        text: String::new(),
    };
    write!(out, "{symbol:#}").ok()?;
    Some(out.text)
}

fn cpp(raw: &str) -> Option<String> {
    // Anything else would be taken for an abbreviated type: `f` for float.
    if !raw.starts_with("_Z") && !raw.starts_with("__Z") && !raw.starts_with("_GLOBAL__") {
        return None;
    }
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(MAX_NESTING);
    let symbol = cpp_demangle::BorrowedSymbol::new_with_options(raw.as_bytes(), &parse).ok()?;
    let mut out = Bounded {
        text: String::new(),
    };
    let options = cpp_demangle::DemangleOptions::new();
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(out.text)
}

fn cut(raw: &str) -> &str {
    let mut end = raw.len().min(MAX_NAME_BYTES);
    while !raw.is_char_boundary(end) {
        end -= 1;
    }
    &raw[..end]
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // Check that Rust names of both kinds lose their hash, C++ names keep their parameters, and C names stay.
    #[test]
    fn languages() {
        for (raw, readable) in [
            (
                "_ZN4core3fmt9Formatter3pad17h0123456789abcdefE",
                "core::fmt::Formatter::pad",
            ),
            ("_RNvNtCs1234_7mycrate3foo3bar", "mycrate::foo::bar"),
            ("_ZN3foo3barEi", "foo::bar(int)"),
            (
                "_ZNSt6vectorIiSaIiEE9push_backERKi",
                "std::vector<int, std::allocator<int> >::push_back(int const&)",
            ),
            ("main", "main"),
            ("f", "f"),
            ("_Znot_a_name", "_Znot_a_name"),
            ("", ""),
        ] {
            assert_eq!(&*demangle(raw), readable);
        }
    }

    // Check that a C++ name that would grow without end is left as it is, quickly.
    #[test]
    fn explosions() {
        let mut raw = String::from("_Z1fI1aE");
        for step in 0..40 {
            raw.push_str(if step == 0 { "St4pairIS_S_E" } else { "S0_" });
            raw.push_str(&format!("St4pairIS{}_S{}_E", step % 10, step % 10));
        }
        assert!(demangle(&raw).len() <= MAX_NAME_BYTES.max(raw.len()));
        assert!(demangle(&"\n".repeat(MAX_NAME_BYTES)).len() <= MAX_NAME_BYTES);
        let long = format!("_Z{}", "é".repeat(MAX_NAME_BYTES));
        assert!(demangle(&long).len() <= MAX_NAME_BYTES);
    }

    // Check that names that nest as deep as their length allows are left as they are, and not parsed for ever.
    #[test]
    fn nested_names_take_no_time() {
        for (head, step) in [
            ("_Z1fDT", "nw"),
            ("_Z1fDT", "cl"),
            ("_Z1fIXT", "nw"),
            ("_Z1f", "PFv"),
            ("_Z1fDT", "qu"),
            ("_Z1fDT", "cv"),
            ("_Z1fDT", "dtpT"),
            ("_Z1fI", "N1aI"),
            ("_Z", "ZN1aI"),
        ] {
            for steps in [20, 40, 60, 200, 900] {
                let raw = format!("{head}{}", step.repeat(steps));
                assert_eq!(&*demangle(&raw), cut(&raw));
            }
        }
    }

    proptest! {
        // Check that no name makes the demanglers panic, that the result is bounded and steers no terminal.
        #[test]
        fn any_name(raw in "(_ZN|_Z|_R|)[0-9A-Za-z_.$\u{1b}]{0,80}") {
            let name = demangle(&raw);
            prop_assert!(name.len() <= MAX_NAME_BYTES);
            prop_assert!(!name.chars().any(char::is_control));
        }
    }
}
