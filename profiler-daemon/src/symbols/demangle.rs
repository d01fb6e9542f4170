//! From linker names to the names people write, within bounds: a few hundred bytes of a hostile C++
//! name can stand for gigabytes.

use super::plain_names::is_plain;
use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

/// Longest name kept, bytes; what is longer loses its end.
pub const MAX_NAME_BYTES: usize = 2048;

/// Deepest nesting of a C++ name that is read if it is plain: what `cpp_demangle` has by itself.
pub(super) const MAX_NESTING: u32 = 96;
/// The same of any other: one with an expression in it, or that is no name at all. What it takes to
/// parse nested expressions doubles with each level: some names of 1300 bytes take more than a
/// second at 26, and half a minute at 32; none takes 10 ms here.
const MAX_NESTING_OF_OTHERS: u32 = 18;

/// Collects text up to a limit, and then fails.
struct BoundedText {
    text: String,
}

impl fmt::Write for BoundedText {
    fn write_str(&mut self, more: &str) -> fmt::Result {
        if self.text.len() + more.len() > MAX_NAME_BYTES {
            return Err(fmt::Error);
        }
        self.text.push_str(more);
        Ok(())
    }
}

/// The readable form of a linker name: Rust without its hash, C++ with its parameters, anything
/// else as it is. A form that would be too long is not made; the linker name stands for it then.
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
    let mut out = BoundedText {
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
    let max_nesting = if is_plain(raw) {
        MAX_NESTING
    } else {
        MAX_NESTING_OF_OTHERS
    };
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(max_nesting);
    let symbol = cpp_demangle::BorrowedSymbol::new_with_options(raw.as_bytes(), &parse).ok()?;
    let mut out = BoundedText {
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
    use crate::sys::clock::thread_ns;
    use proptest::prelude::*;

    // Check that Rust names of both kinds lose their hash, C++ names keep their parameters, and C
    // names stay.
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
            (
                "_ZNSt17_Function_handlerIFvvEZ4mainEUlvE_E9_M_invokeERKSt9_Any_data",
                "std::_Function_handler<void (), main::{lambda()#1}>::_M_invoke(std::_Any_data const&)",
            ),
            (
                "_ZNSt23_Sp_counted_ptr_inplaceI11ApplicationSaIvELN9__gnu_cxx12_Lock_policyE2EE10_M_disposeEv",
                "std::_Sp_counted_ptr_inplace<Application, std::allocator<void>, (__gnu_cxx::_Lock_policy)2>::_M_dispose()",
            ),
            (
                "_ZN12_GLOBAL__N_1L8FastDtoaEN17double_conversion12FastDtoaModeE",
                "(anonymous namespace)::FastDtoa(double_conversion::FastDtoaMode)",
            ),
            (
                "_ZN2v88internal7MarkBit3SetILNS0_10AccessModeE0EEEbv",
                "bool v8::internal::MarkBit::Set<(v8::internal::AccessMode)0>()",
            ),
            (
                "_ZN4node10StreamBase8JSMethodIXadL_ZNS0_9ReadStartERKNS_4ArgsEEEEEvS4_",
                "void node::StreamBase::JSMethod<&node::StreamBase::ReadStart(node::Args const&)>(node::Args const&)",
            ),
            (
                "_ZN1a1bC2EPKNS_1cIJiDnEEEOFvRS_zE.cold",
                "a::b::b(a::c<int, std::nullptr_t> const*, void (&&)(a&, ...)) [clone .cold]",
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

    // Check that names that nest as deep as their length allows are left as they are, and not
    // parsed for ever.
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
            ("_Z1f", "St1aI"),
            ("_Z1f", "SaI"),
            ("_Z1fI", "L1aI"),
            ("_Z1fI", "CI1"),
            ("_Z1f", "StcvT_I"),
            ("_Z1f", "Mi"),
            ("_ZTV", "DpDv4_A3_"),
            ("_Z", "Thn8_GV"),
        ] {
            for steps in [8, 14, 16, 20, 40, 60, 200, 900] {
                let raw = format!("{head}{}", step.repeat(steps));
                let before_ns = thread_ns();
                assert_eq!(&*demangle(&raw), cut(&raw));
                assert!(thread_ns() - before_ns < 100_000_000, "{raw}");
            }
        }
    }

    // Check that names that are made to take long are left as they are within 10 ms, also where an
    // expression hides behind what looks like the length of an identifier.
    #[test]
    fn no_name_takes_long() {
        let chain = |step: &str, times: usize, tail: &str| {
            format!("{}{}", step.repeat(times), tail.repeat(450))
        };
        let mut slowest_ns = 0;
        for times in [7, 12, 15, 20, 25] {
            for (step, tail) in [
                ("nw", "onaN"),
                ("da", "ngS1_T1_"),
                ("nw", "fp_Dp"),
                ("cl", "nw"),
            ] {
                for head in [
                    "_Z1fDT",
                    "_Z1fIX",
                    "_Z1fA",
                    "_Z1fv9DT",
                    "_Z1fLf40aEDT",
                    "_Z1fL3foo99xEDT",
                    "_ZZ1fvE_9DT",
                    "_Z1fLi99EDT",
                ] {
                    let mut raw = format!("{head}{}", chain(step, times, tail));
                    raw.truncate(1400);
                    let before_ns = thread_ns();
                    assert_eq!(&*demangle(&raw), raw);
                    slowest_ns = slowest_ns.max(thread_ns() - before_ns);
                }
            }
        }
        // What is read to its end in a few ms, and in seconds where it has one letter too many: all
        // of it is read again for each level.
        for (head, step, back) in [
            ("_Z1f", "St1aI", "E"),
            ("_Z1f", "1aIS_I", "EE"),
            ("_Z1fI", "L1aI", "E0E"),
            ("_Z", "NSt1aCI1", "E"),
            ("_ZNcvT_I", "cvT_I", "EE"),
            ("_Z1f", "StcvMT_I", "EIiE"),
            ("_ZNcvT_I", "cT_I", "EEv"),
        ] {
            for levels in 6..20 {
                for innermost in ["i", "i?"] {
                    let mut raw = format!("{head}{}", step.repeat(levels));
                    raw.push_str(&"S_".repeat(400));
                    raw.push_str(innermost);
                    raw.push_str(&back.repeat(levels));
                    let before_ns = thread_ns();
                    assert!(demangle(&raw).len() <= MAX_NAME_BYTES);
                    slowest_ns = slowest_ns.max(thread_ns() - before_ns);
                }
            }
        }
        // Ten times as much, because tests are not compiled for speed.
        assert!(slowest_ns < 100_000_000, "{slowest_ns} ns");
    }

    proptest! {
        // Check that no name makes the demanglers panic, that the result is bounded and steers no
        // terminal.
        #[test]
        fn any_name(raw in "(_ZN|_Z|_R|)[0-9A-Za-z_.$\u{1b}]{0,80}") {
            let name = demangle(&raw);
            prop_assert!(name.len() <= MAX_NAME_BYTES);
            prop_assert!(!name.chars().any(char::is_control));
        }
    }
}
