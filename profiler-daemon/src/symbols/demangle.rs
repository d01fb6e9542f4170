//! From linker names to the names people write, within bounds: a few hundred bytes of a hostile C++
//! name can stand for gigabytes.

use std::{
    borrow::Cow,
    fmt::{self, Write as _},
};

/// Longest name kept, bytes; what is longer loses its end.
pub const MAX_NAME_BYTES: usize = 2048;

/// Deepest nesting of a C++ name that is read. Of 6000 names of real programs five are nested
/// deeper.
const MAX_NESTING: u32 = 32;
/// The same of a name with an expression in it. What it takes to parse nested ones doubles with
/// each level: some names of 1300 bytes take more than a second at 26, and half a minute at 32;
/// none takes 10 ms here.
const MAX_NESTING_OF_EXPRESSIONS: u32 = 18;

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
    let parse = cpp_demangle::ParseOptions::default().recursion_limit(
        if may_have_expression(raw.as_bytes()) {
            MAX_NESTING_OF_EXPRESSIONS
        } else {
            MAX_NESTING
        },
    );
    let symbol = cpp_demangle::BorrowedSymbol::new_with_options(raw.as_bytes(), &parse).ok()?;
    let mut out = BoundedText {
        text: String::new(),
    };
    let options = cpp_demangle::DemangleOptions::new();
    symbol.structured_demangle(&mut out, &options).ok()?;
    Some(out.text)
}

/// Whether an expression may begin somewhere in a C++ name. Identifiers, of which the length is
/// written before them, are passed over, but where a number may be something else than a length: a
/// name that is made to deceive this has its letters read as well.
fn may_have_expression(raw: &[u8]) -> bool {
    let at_before = |at: usize, back: usize| at.checked_sub(back).map_or(0, |at| raw[at]);
    let mut at = 0;
    while let Some(byte) = raw.get(at) {
        let next = raw.get(at + 1).copied().unwrap_or_default();
        if byte.is_ascii_digit() {
            let digits = raw[at..].iter().take_while(|byte| byte.is_ascii_digit());
            let (mut end, mut length) = (at, 0_usize);
            for digit in digits {
                length = length
                    .saturating_mul(10)
                    .saturating_add(usize::from(digit - b'0'));
                end += 1;
            }
            let (first, second) = (at_before(at, 1), at_before(at, 2));
            let is_number = b"STLCDA.vhpn".contains(&first)
                || (first == b'_' && b"E_s".contains(&second))
                || (first == b'I' && second == b'C');
            // An identifier, with what follows it: letters that begin in one and end behind it are
            // no part of it.
            let identifier = raw.get(end..end.saturating_add(length).saturating_add(1));
            let identifier = identifier.or_else(|| raw.get(end..end.saturating_add(length)));
            let may_be_number = raw.get(end).is_none_or(|byte| b"_E".contains(byte));
            at = match identifier {
                Some(letters) if !is_number => {
                    if may_be_number && holds_letters_of_expression(letters) {
                        end
                    } else {
                        end + length
                    }
                }
                _ => end,
            };
            continue;
        }
        match byte {
            b'X' => return true,
            b'D' if b"TtO".contains(&next) => return true,
            b'D' if next == b'v' && !at_digit(raw, at + 2) => return true,
            b'A' if begins_expression(&raw[at + 1..]) => return true,
            // A literal of a built-in type reaches to the next `E`, whatever is in it.
            b'L' if next.is_ascii_lowercase() => {
                let value = raw[at..].iter().position(|byte| *byte == b'E');
                at += value.unwrap_or(raw.len());
            }
            // What is in others, but those of enumerations, cannot be told from lengths.
            b'L' if at_before(at, 1) != b'Z' => match enumerator(&raw[at..]) {
                Some(bytes) => {
                    at += bytes;
                    continue;
                }
                None => return holds_letters_of_expression(raw),
            },
            _ => {}
        }
        at += 1;
    }
    false
}

/// How long the literal of an enumeration at the beginning is: its type, of which the names'
/// lengths are written before them, and its value.
fn enumerator(raw: &[u8]) -> Option<usize> {
    let digits = |at: usize| {
        let rest = raw.get(at..).unwrap_or_default();
        rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
    };
    let is_nested = raw.get(1) == Some(&b'N');
    let mut at = 1 + usize::from(is_nested);
    loop {
        let behind = at + digits(at);
        let length: usize = std::str::from_utf8(&raw[at..behind]).ok()?.parse().ok()?;
        at = behind.checked_add(length).filter(|at| *at < raw.len())?;
        if !is_nested || raw[at] == b'E' {
            break;
        }
    }
    at += usize::from(is_nested);
    at += usize::from(raw.get(at) == Some(&b'n'));
    let value = digits(at);
    (value > 0 && raw.get(at + value) == Some(&b'E')).then_some(at + value + 1)
}

/// Whether an expression may begin here, as the length of an array: with an operator, a literal, a
/// parameter.
fn begins_expression(raw: &[u8]) -> bool {
    const OPERATORS: &[u8] =
        b"aNaSaaadanatawazccclcmcocpcvdVdadcdedldndsdtdveOeoeqfLfRflfpfrgegsgtil\
        ixlSleltlsmImLmimlmmnangnentnwnxonoRooorpLplpmpppsptqurMrSrcrmrssPsZscspsrssstszteti\
        tltrtsttwtxuu";
    match raw {
        [b'L' | b'T' | b'X' | b'u', ..] => true,
        [first, second, ..] => OPERATORS
            .chunks_exact(2)
            .any(|pair| pair == [*first, *second]),
        _ => false,
    }
}

fn at_digit(raw: &[u8], at: usize) -> bool {
    raw.get(at).is_some_and(u8::is_ascii_digit)
}

/// The same where identifiers cannot be told from the rest.
fn holds_letters_of_expression(raw: &[u8]) -> bool {
    raw.contains(&b'X')
        || raw
            .windows(2)
            .any(|pair| matches!(pair, b"DT" | b"Dt" | b"DO" | b"Dv"))
        || (0..raw.len()).any(|at| raw[at] == b'A' && begins_expression(&raw[at + 1..]))
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
        ] {
            for steps in [20, 40, 60, 200, 900] {
                let raw = format!("{head}{}", step.repeat(steps));
                assert_eq!(&*demangle(&raw), cut(&raw));
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
        // Ten times as much, because tests are not compiled for speed.
        assert!(slowest_ns < 100_000_000, "{slowest_ns} ns");
    }

    // Check that expressions are found in types and literals, and that letters of identifiers are
    // taken for none.
    #[test]
    fn expressions_are_told_from_identifiers() {
        for raw in [
            "_Z1fDTcl1gEE",
            "_Z1fIXadL_Z1gvEEEvv",
            "_Z1fILin5EXT_E",
            "_Z1fA2_AstS_1a_",
            "_Z1fLf9aEDT",
            "_ZZ1fvE3_aDT",
            "_Z1fIL3foo9abcE5DTnwE",
        ] {
            assert!(may_have_expression(raw.as_bytes()), "{raw}");
        }
        for raw in [
            "_ZN3DTX4Args3AddEv",
            "_ZNSt9_Any_dataC1Ev",
            "_ZN1aILN9__gnu_cxx12_Lock_policyE2EEvv",
            "_ZN1aIL3foo2EE1bEv",
            "_Z1fILi5ELb1EEvv",
            "_Z1fA3_i",
            "_ZN1XC1ERKS_",
            "_Z1fDv4_f",
            "_Z",
            "_Z9999999999999999999999",
        ] {
            assert!(!may_have_expression(raw.as_bytes()), "{raw}");
        }
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
