//! Which C++ names have nothing in them that takes long to parse.

use super::demangle::MAX_NESTING;

/// Whether a C++ name is of the kinds that `cpp_demangle` reads from the front to the end: its
/// parser tries one kind of thing after the other, and each that has a choice doubles the time if
/// what is in it cannot be read, however few letters it has (`St1aISt1aISt1aI...`). In names that
/// are whole, and have no expressions, it goes back by a few letters only.
pub(super) fn is_plain(raw: &str) -> bool {
    let name = raw.strip_prefix("_Z").or_else(|| raw.strip_prefix("__Z"));
    let mut reader = PlainName {
        rest: name.unwrap_or_default().as_bytes(),
        levels_left: MAX_NESTING,
        substitutions: 0,
        in_conversion: false,
        has_doubled: false,
    };
    // What an optimizer appends is read at the outermost level, once.
    reader.encoding().is_some() && matches!(reader.rest.first(), None | Some(b'.'))
}

/// Reads the C++ names that are plain; each function reads a production of the grammar, and never
/// goes back. What it accepts `cpp_demangle` must accept as well, so it leaves out what real names
/// rarely have, and what that crate reads in a way of its own.
struct PlainName<'a> {
    rest: &'a [u8],
    /// Each level here is at least one there.
    levels_left: u32,
    /// How many there are to refer to, at least.
    substitutions: usize,
    in_conversion: bool,
    /// Whether a conversion is to a template parameter and has arguments: these are parsed twice,
    /// and again in each that is in them.
    has_doubled: bool,
}

impl PlainName<'_> {
    fn next(&self) -> Option<u8> {
        self.rest.first().copied()
    }

    fn eat(&mut self, text: &[u8]) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn expect(&mut self, text: &[u8]) -> Option<()> {
        self.eat(text).then_some(())
    }

    /// The first two letters, when they are among these pairs.
    fn eat_pair_of(&mut self, pairs: &[u8]) -> bool {
        let pair = self.rest.get(..2).unwrap_or_default();
        let is_one = pairs.chunks_exact(2).any(|one| one == pair);
        self.rest = &self.rest[if is_one { 2 } else { 0 }..];
        is_one
    }

    fn deeper(&mut self, read: impl FnOnce(&mut Self) -> Option<()>) -> Option<()> {
        self.levels_left = self.levels_left.checked_sub(1)?;
        read(self)?;
        self.levels_left += 1;
        Some(())
    }

    fn encoding(&mut self) -> Option<()> {
        self.deeper(|it| {
            if it.eat_pair_of(b"TVTTTITS") {
                return it.type_();
            }
            if it.eat(b"TC") {
                it.type_()?;
                it.number()?;
                it.expect(b"_")?;
                return it.type_();
            }
            if it.eat(b"Tc") {
                it.call_offset()?;
                it.call_offset()?;
                return it.encoding();
            }
            if it.eat(b"T") {
                if it.eat(b"H") || it.eat(b"W") {
                    return it.name();
                }
                it.call_offset()?;
                return it.encoding();
            }
            if it.eat(b"GTn") || it.eat(b"GTt") {
                return it.encoding();
            }
            if it.eat(b"GV") {
                return it.name();
            }
            it.name()?;
            while !matches!(it.next(), None | Some(b'E' | b'.')) {
                it.type_()?;
            }
            Some(())
        })
    }

    fn call_offset(&mut self) -> Option<()> {
        let is_virtual = self.eat(b"v");
        if !is_virtual {
            self.expect(b"h")?;
        }
        for _ in 0..=usize::from(is_virtual) {
            self.eat(b"n");
            self.number()?;
            self.expect(b"_")?;
        }
        Some(())
    }

    fn name(&mut self) -> Option<()> {
        self.deeper(|it| {
            match (it.next()?, it.rest.get(1)) {
                (b'N', _) => return it.nested_name(),
                (b'Z', _) => return it.local_name(),
                (b'S', Some(b't')) => {
                    it.eat(b"St");
                    it.unqualified_name()?;
                }
                (b'S', _) => {
                    it.substitution()?;
                    return it.template_arguments();
                }
                _ => it.unqualified_name()?,
            }
            if it.next() == Some(b'I') {
                it.substitutions += 1;
                it.template_arguments()?;
            }
            Some(())
        })
    }

    fn nested_name(&mut self) -> Option<()> {
        self.expect(b"N")?;
        self.eat(b"V");
        self.eat(b"K");
        if !self.eat(b"R") {
            self.eat(b"O");
        }
        let (mut is_first, mut may_end, mut may_have_arguments) = (true, false, false);
        loop {
            match self.next()? {
                b'E' if may_end => return self.expect(b"E"),
                b'S' if is_first => {
                    may_have_arguments = !self.eat(b"St");
                    if may_have_arguments {
                        self.substitution()?;
                    }
                }
                b'I' if may_have_arguments => {
                    self.template_arguments()?;
                    (may_end, may_have_arguments) = (true, false);
                    self.substitutions += usize::from(self.next() != Some(b'E'));
                }
                // Taken for a qualifier, `restrict`, also where it begins an operator.
                b'r' if is_first => return None,
                first => {
                    if is_first && first == b'T' {
                        self.template_parameter()?;
                    } else {
                        self.unqualified_name()?;
                        may_end = true;
                    }
                    may_have_arguments = true;
                    self.substitutions += usize::from(self.next() != Some(b'E'));
                }
            }
            is_first = false;
        }
    }

    fn local_name(&mut self) -> Option<()> {
        self.expect(b"Z")?;
        self.encoding()?;
        self.expect(b"E")?;
        if !self.eat(b"s") {
            // In a default argument.
            if self.eat(b"d") {
                self.unnamed_number()?;
                return self.name();
            }
            self.name()?;
        }
        if self.eat(b"__") {
            // One digit has one `_`.
            if self.number()? < 10 {
                return None;
            }
            return self.expect(b"_");
        }
        if self.eat(b"_") {
            let digit = self.next().filter(u8::is_ascii_digit)?;
            self.eat(&[digit]);
        }
        Some(())
    }

    fn unqualified_name(&mut self) -> Option<()> {
        const OPERATORS: &[u8] =
            b"nwnadldapsngaddecoplmimldvrmanoreoaSpLmImLdVrMaNoReOlsrslSrSeqneltgtlegentaaooppmmcm\
            pmptclixquss";
        match self.next()? {
            b'0'..=b'9' => self.source_name()?,
            b'L' => {
                self.eat(b"L");
                self.source_name()?;
                if self.next() == Some(b'_') {
                    return None;
                }
            }
            b'C' => {
                if self.eat(b"CI1") || self.eat(b"CI2") {
                    self.type_()?;
                } else if !self.eat_pair_of(b"C1C2C3C4") {
                    return None;
                }
            }
            b'D' if self.eat_pair_of(b"D0D1D2D4") => {}
            b'U' if self.eat(b"Ut") => self.unnamed_number()?,
            b'U' if self.eat(b"Ul") => {
                if !self.eat(b"v") {
                    self.type_()?;
                    while self.next() != Some(b'E') {
                        self.type_()?;
                    }
                }
                self.expect(b"E")?;
                self.unnamed_number()?;
            }
            _ if self.eat_pair_of(OPERATORS) => {}
            _ if self.eat(b"li") => self.source_name()?,
            _ if self.eat(b"cv") => {
                let outer = std::mem::replace(&mut self.in_conversion, true);
                self.type_()?;
                self.in_conversion = outer;
            }
            _ => return None,
        }
        while self.eat(b"B") {
            self.source_name()?;
        }
        Some(())
    }

    fn unnamed_number(&mut self) -> Option<()> {
        if self.next() != Some(b'_') {
            self.number()?;
        }
        self.expect(b"_")
    }

    fn type_(&mut self) -> Option<()> {
        self.deeper(|it| {
            let second = it.rest.get(1).copied().unwrap_or_default();
            match it.next()? {
                first if b"vwbcahstijlmxynofdegz".contains(&first) => {
                    it.eat(&[first]);
                    return Some(());
                }
                b'u' => {
                    it.eat(b"u");
                    return it.source_name();
                }
                b'D' if it.eat_pair_of(b"DdDeDfDhDiDsDuDaDcDn") => return Some(()),
                b'D' if it.eat(b"Dp") => it.type_()?,
                b'D' if it.eat(b"Dv") => {
                    it.number()?;
                    it.expect(b"_")?;
                    it.type_()?;
                }
                b'D' | b'F' => it.function_type()?,
                b'r' | b'V' | b'K' => {
                    for qualifier in [b"r", b"V", b"K"] {
                        it.eat(qualifier);
                    }
                    // Not where an exception specification or the like may begin.
                    match (it.next()?, it.rest.get(1)) {
                        (b'F', _) | (b'D', Some(b'o')) => it.function_type()?,
                        (b'D', Some(b'O' | b'w' | b'x')) => return None,
                        _ => it.type_()?,
                    }
                }
                first @ (b'P' | b'R' | b'O') => {
                    it.eat(&[first]);
                    it.type_()?;
                }
                b'A' => {
                    it.eat(b"A");
                    it.unnamed_number()?;
                    it.type_()?;
                }
                b'M' => {
                    it.eat(b"M");
                    it.type_()?;
                    it.type_()?;
                }
                b'T' => {
                    it.template_parameter()?;
                    if it.next() == Some(b'I') {
                        if it.has_doubled {
                            return None;
                        }
                        if it.in_conversion {
                            // They are the operator's arguments.
                            it.has_doubled = true;
                        } else {
                            it.substitutions += 1;
                            it.template_arguments()?;
                        }
                    }
                }
                b'S' if second != b't' => {
                    it.substitution()?;
                    if it.next() != Some(b'I') {
                        return Some(());
                    }
                    it.template_arguments()?;
                }
                b'N' | b'Z' | b'S' | b'0'..=b'9' => it.name()?,
                _ => return None,
            }
            it.substitutions += 1;
            Some(())
        })
    }

    fn function_type(&mut self) -> Option<()> {
        self.eat(b"Do");
        self.expect(b"F")?;
        self.eat(b"Y");
        self.type_()?;
        loop {
            if self.eat(b"E") || self.eat(b"RE") || self.eat(b"OE") {
                return Some(());
            }
            self.type_()?;
        }
    }

    fn template_arguments(&mut self) -> Option<()> {
        self.expect(b"I")?;
        self.template_argument()?;
        while !self.eat(b"E") {
            self.template_argument()?;
        }
        Some(())
    }

    fn template_argument(&mut self) -> Option<()> {
        self.deeper(|it| {
            if it.eat(b"J") {
                while !it.eat(b"E") {
                    it.template_argument()?;
                }
                return Some(());
            }
            // The address of a function is the only expression that is read here: nothing in it has
            // a choice.
            if it.eat(b"XadL_Z") {
                it.encoding()?;
                return it.expect(b"EE");
            }
            if !it.eat(b"L") {
                return it.type_();
            }
            if it.eat(b"_Z") {
                it.encoding()?;
            } else {
                it.type_()?;
                let value = it.rest.iter();
                let value = value.take_while(|byte| b"0123456789abcdefn_".contains(byte));
                it.rest = &it.rest[value.count()..];
            }
            it.expect(b"E")
        })
    }

    fn template_parameter(&mut self) -> Option<()> {
        self.expect(b"T")?;
        self.unnamed_number()
    }

    /// One that is no abbreviation for `std`.
    fn substitution(&mut self) -> Option<()> {
        if self.eat_pair_of(b"SaSbSsSiSoSd") {
            return Some(());
        }
        self.expect(b"S")?;
        let digits = self
            .rest
            .iter()
            .take_while(|byte| byte.is_ascii_digit() || byte.is_ascii_uppercase());
        let (digits, rest) = self.rest.split_at(digits.count());
        let index = match digits {
            [] => 0,
            [b'0', _, ..] => return None,
            _ => 1 + usize::from_str_radix(std::str::from_utf8(digits).ok()?, 36).ok()?,
        };
        self.rest = rest;
        self.expect(b"_")?;
        (index < self.substitutions).then_some(())
    }

    fn source_name(&mut self) -> Option<()> {
        let length = self.number().filter(|length| *length > 0)?;
        let identifier = self.rest.get(..length)?;
        let is_one = |byte: &u8| byte.is_ascii_alphanumeric() || b"$_.".contains(byte);
        self.rest = &self.rest[length..];
        identifier.iter().all(is_one).then_some(())
    }

    fn number(&mut self) -> Option<usize> {
        let digits = self.rest.iter().take_while(|byte| byte.is_ascii_digit());
        let (digits, rest) = self.rest.split_at(digits.count());
        if digits.len() > 1 && digits[0] == b'0' {
            return None;
        }
        self.rest = rest;
        // No larger than what is signed there.
        let number: i32 = std::str::from_utf8(digits).ok()?.parse().ok()?;
        usize::try_from(number).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::{super::demangle::demangle, *};
    use proptest::prelude::*;

    /// Names that are plain, and have most of what such may have.
    const PLAIN: &[&str] = &[
        "_ZN3DTX4Args3AddEv",
        "_ZNSt9_Any_dataC1Ev",
        "_ZN1aILN9__gnu_cxx12_Lock_policyE2EEEvv",
        "_ZN1aIL3foo2EE1bEv",
        "_Z1fILi5ELb1EEvv",
        "_Z1fA3_i",
        "_ZN1XC1ERKS_",
        "_Z1fDv4_f",
        "_ZN12_GLOBAL__N_12ALEi",
        "_ZN17double_conversion8FastDtoaEd",
        "_ZN4llvm11Instruction15mergeDIAssignIDE",
        "_Z1fILNS_6Triple8ArchTypeE9EEvv",
        "_ZN2v88internal7MarkBit3SetILNS0_10AccessModeE0EEEbv",
        "_ZN1a1bIiLS_0EEEvv",
        "_Z1fILSt6launch1EEvv",
        "_ZN1aIXadL_ZNS_1bEvEEE1cEv",
        "_Z1fIL_Z1gEEvv",
        "_ZN1acvPT_IiEEv",
        "_ZN1aC2INS_1bEJRKS1_DnEEEDpOT0_",
        "_ZN1a1bCI1NS_1cEEi",
        "_ZNKR1a1bB5cxx11ILm0EEEMS_KDoFvzEPDoFviE",
        "_ZZ1fiEd0_NKUlvE_clEv",
        "_ZZN1aIiE1bEvENUt_C1ES0_",
        "_ZZ4mainE1a_0",
        "_ZGTtNSt11logic_errorC1EPKc",
        "_ZTv0_n24_N1aD1Ev",
        "_ZTch0_h8_N1a1bEv",
        "_ZTCN1a1bE16_NS_1cE",
        "_ZGVZ1fvE1a",
        "_ZN1aplIiEERS_OVKT_u3foo",
    ];

    fn is_read(raw: &str) -> bool {
        let parse = cpp_demangle::ParseOptions::default().recursion_limit(MAX_NESTING);
        let read = cpp_demangle::BorrowedSymbol::new_with_options(raw.as_bytes(), &parse);
        !matches!(read, Err(ref error) if *error != cpp_demangle::error::Error::TooMuchRecursion)
    }

    // Check that names are plain whatever letters their identifiers have, and that none is that has
    // an expression, or that ends where `cpp_demangle` expects more.
    #[test]
    fn plain_names_are_told_from_others() {
        for raw in PLAIN {
            assert!(is_plain(raw), "{raw}");
            assert_ne!(&*demangle(raw), *raw);
            for end in 2..raw.len() {
                let shorter = &raw[..end];
                assert!(!is_plain(shorter) || is_read(shorter), "{shorter}");
            }
        }
        for raw in [
            "_Z",
            "_Z1fDTcl1gEE",
            "_Z1fIXT_EEvv",
            "_Z1fILin5EXT_E",
            "_Z1fA2_AstS_1a_",
            "_Z1fLf9aEDT",
            "_ZZ1fvE3_aDT",
            "_Z1fIL3foo9abcE5DTnwE",
            "_Z1fDOLb1EFvvE",
            "_Z1fSt1aISt1aI?EE",
            "_Z1f1aS1_",
            "_Z1f01a",
            "_Z9999999999999999999999",
            "_ZNSt1aINS_EEE",
            "_ZNrsERi",
            "_ZNS_E",
            "_ZN1aIiEIiEE",
            "_ZNcvT_IcT_IiEEE",
        ] {
            assert!(!is_plain(raw), "{raw}");
        }
    }

    // Check that names nested as deep as those of large programs are read.
    #[test]
    fn deep_names_are_read() {
        let nested = |levels: usize| {
            let raw = format!("_Z1f{}i{}", "St1aI".repeat(levels), "E".repeat(levels));
            (demangle(&raw), raw)
        };
        let (readable, _) = nested(16);
        assert!(readable.starts_with("f(std::a<std::a<"), "{readable}");
        let (readable, raw) = nested(17);
        assert_eq!(*readable, *raw);
    }

    proptest! {
        // Check that `cpp_demangle` reads what is plain, but for its depth: what it cannot read
        // takes it for ever.
        #[test]
        fn plain_names_are_read(
            raw in prop::sample::select(PLAIN),
            other in prop::sample::select(PLAIN),
            at in 2_usize..60,
            from in 2_usize..60,
            bytes in 0_usize..12,
            dropped in 0_usize..3,
        ) {
            let (head, tail) = raw.split_at(at.min(raw.len()));
            let from = from.min(other.len());
            let more = &other[from..other.len().min(from + bytes)];
            let raw = format!("{head}{more}{}", &tail[dropped.min(tail.len())..]);
            prop_assert!(!is_plain(&raw) || is_read(&raw), "{}", raw);
        }
    }
}
