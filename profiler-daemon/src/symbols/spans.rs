//! What is typed of USDT points and spans, and the places in a file that are meant by it.

use std::fmt;
use std::fs::File;
use std::str::FromStr;

use profiler_common::spans::Argument;
use thiserror::Error;

use super::chosen::{self, FilePoint, NoChoice, NotAPattern, Pattern};
use super::usdt::{self, NotAUsdtPattern, UsdtPattern, UsdtPlace, UsdtRefused};
use crate::units::FileOffset;
use crate::unwind::points::NoProbe;

/// Arguments that may be named: 0 to this, not included. A function has so many in registers.
pub const MAX_ARGUMENTS: u8 = 6;
/// Longest name of a span, bytes.
pub const MAX_SPAN_NAME_BYTES: usize = 100;

/// `[MODULE:]PROVIDER:NAME[,argN]`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UsdtText {
    /// Which points.
    pub pattern: UsdtPattern,
    /// Whose values are taken.
    pub argument: Option<u8>,
}

impl FromStr for UsdtText {
    type Err = NotTraceable;

    fn from_str(text: &str) -> Result<Self, NotTraceable> {
        let (pattern, argument) = match text.rsplit_once(',') {
            Some((pattern, argument)) => (pattern, Some(argument_number(argument)?)),
            None => (text, None),
        };
        Ok(Self {
            pattern: pattern.parse()?,
            argument,
        })
    }
}

/// Where a span starts or ends: `MODULE:FUNCTION`, or `usdt:[MODULE:]PROVIDER:NAME`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SpanEndpoint {
    /// At the entries of functions.
    Function(Pattern),
    /// At USDT points.
    Usdt(UsdtPattern),
}

impl FromStr for SpanEndpoint {
    type Err = NotTraceable;

    fn from_str(text: &str) -> Result<Self, NotTraceable> {
        Ok(match text.strip_prefix("usdt:") {
            Some(point) => Self::Usdt(point.parse()?),
            None => Self::Function(text.parse()?),
        })
    }
}

impl fmt::Display for SpanEndpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Function(pattern) => f.write_str(&pattern.text()),
            Self::Usdt(pattern) => write!(f, "usdt:{}", pattern.text()),
        }
    }
}

impl SpanEndpoint {
    /// The path, where it is a whole one without `*`.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Function(pattern) => pattern.path(),
            Self::Usdt(pattern) => pattern.path(),
        }
    }

    /// Is that file meant?
    #[must_use]
    pub fn is_of_module(&self, path: &str) -> bool {
        match self {
            Self::Function(pattern) => pattern.is_of_module(path),
            Self::Usdt(pattern) => pattern.is_of_module(path),
        }
    }
}

/// What the start and the end of one span have in common.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SpanKey {
    /// They are in the same thread.
    Thread,
    /// The same argument has the same value, in the same process.
    Argument(u8),
}

impl FromStr for SpanKey {
    type Err = NotTraceable;

    fn from_str(text: &str) -> Result<Self, NotTraceable> {
        match text {
            "tid" => Ok(Self::Thread),
            text => argument_number(text).map(Self::Argument),
        }
    }
}

impl fmt::Display for SpanKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Thread => f.write_str("tid"),
            Self::Argument(number) => write!(f, "arg{number}"),
        }
    }
}

/// `NAME=START,END,KEY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SpanText {
    /// What it is called.
    pub name: String,
    /// Where it starts.
    pub start: SpanEndpoint,
    /// Where it ends.
    pub end: SpanEndpoint,
    /// What they have in common.
    pub key: SpanKey,
}

impl SpanText {
    /// A span out of its parts.
    ///
    /// # Errors
    /// What of it cannot be understood.
    pub fn of_parts(name: &str, start: &str, end: &str, key: &str) -> Result<Self, NotTraceable> {
        if name.is_empty() || name.len() > MAX_SPAN_NAME_BYTES || name.contains(char::is_control) {
            return Err(NotTraceable::Name(name.chars().take(200).collect()));
        }
        Ok(Self {
            name: name.to_owned(),
            start: start.parse()?,
            end: end.parse()?,
            key: key.parse()?,
        })
    }
}

impl FromStr for SpanText {
    type Err = NotTraceable;

    fn from_str(text: &str) -> Result<Self, NotTraceable> {
        let refused = || NotTraceable::Span(text.chars().take(200).collect());
        let (name, rest) = text.split_once('=').ok_or_else(refused)?;
        let parts = split_at_commas(rest);
        let [start, end, key] = parts.as_slice() else {
            return Err(refused());
        };
        Self::of_parts(name, start, end, key).map_err(|why| match why {
            NotTraceable::Name(_) => refused(),
            why => why,
        })
    }
}

/// At commas that are in no brackets: names of functions may have their parameters.
fn split_at_commas(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut from) = (0_usize, 0);
    for (at, letter) in text.char_indices() {
        match letter {
            '(' | '<' | '[' | '{' => depth += 1,
            ')' | '>' | ']' | '}' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// `arg0` to `arg5`.
fn argument_number(text: &str) -> Result<u8, NotTraceable> {
    let number = text
        .strip_prefix("arg")
        .and_then(|number| number.parse().ok());
    let known = number.filter(|number| *number < MAX_ARGUMENTS);
    known.ok_or_else(|| NotTraceable::Key(text.chars().take(100).collect()))
}

/// What cannot be understood.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotTraceable {
    /// No function.
    #[error(transparent)]
    Function(#[from] NotAPattern),
    /// No USDT point.
    #[error(transparent)]
    Usdt(#[from] NotAUsdtPattern),
    /// No key, and no argument.
    #[error("{0:?} is none of tid, arg0, arg1, arg2, arg3, arg4 and arg5")]
    Key(String),
    /// No name of a span.
    #[error(
        "{0:?} is no name of a span: it has 1 to {MAX_SPAN_NAME_BYTES} bytes, no control characters"
    )]
    Name(String),
    /// No span.
    #[error(
        "{0:?} is no span: give NAME=START,END,KEY, as in 'request=app:begin,app:end,arg0', where START and END are MODULE:FUNCTION or usdt:MODULE:PROVIDER:NAME, and KEY is tid or arg0 to arg5"
    )]
    Span(String),
}

/// Where a span starts or ends in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpanPlace {
    /// Where to probe it.
    pub point: FilePoint,
    /// See [`UsdtPlace::semaphore`].
    pub semaphore: Option<FileOffset>,
    /// Where its key is.
    pub key: Argument,
}

/// The places of the file that are meant, and sentences about those that cannot be probed, or not
/// well. It takes no more than `budget_ns` of processor time.
///
/// # Errors
/// [`NoChoice`].
pub fn places(
    file: &File,
    endpoint: &SpanEndpoint,
    key: SpanKey,
    budget_ns: u64,
) -> Result<(Vec<SpanPlace>, Vec<String>), NoChoice> {
    let mut places = Vec::new();
    let mut said = Vec::new();
    match endpoint {
        SpanEndpoint::Function(pattern) => {
            let key = match key {
                SpanKey::Thread => Some(Argument::THREAD),
                SpanKey::Argument(number) => Argument::of_function(number.into()),
            };
            for chosen in chosen::choose_within(file, &[pattern], budget_ns)? {
                let points = match chosen.points {
                    // Turns of a loop start no spans, and end none.
                    Ok(points) if points.loops => Err(NoProbe::Loop.into()),
                    points => points,
                };
                match (points, key) {
                    (Ok(points), Some(key)) => places.push(SpanPlace {
                        point: points.entry,
                        semaphore: None,
                        key,
                    }),
                    (Err(why), _) => said.push(format!("{}: {why}", chosen.name)),
                    (_, None) => said.push(format!("{}: it has no such argument", chosen.name)),
                }
            }
        }
        SpanEndpoint::Usdt(pattern) => {
            for chosen in usdt::choose_within(file, &[pattern], budget_ns)? {
                for place in &chosen.places {
                    let key = match key {
                        SpanKey::Thread => Ok(Argument::THREAD),
                        SpanKey::Argument(number) => argument_of(place, number),
                    };
                    match place.point.clone().and_then(|point| Ok((point, key?))) {
                        Ok((point, key)) => {
                            places.push(SpanPlace {
                                point,
                                semaphore: place.semaphore,
                                key,
                            });
                            if place.is_unraised {
                                said.push(format!(
                                    "{}:{}: {}",
                                    chosen.provider,
                                    chosen.name,
                                    usdt::UNRAISED
                                ));
                            }
                        }
                        Err(why) => said.push(format!(
                            "{}:{} at {:#x}: {why}",
                            chosen.provider, chosen.name, place.address
                        )),
                    }
                }
            }
        }
    }
    Ok((places, said))
}

/// An argument of a place.
///
/// # Errors
/// It has none of that number, or what is said of it is not understood.
pub fn argument_of(place: &UsdtPlace, number: u8) -> Result<Argument, UsdtRefused> {
    match place.arguments.get(usize::from(number)) {
        Some(Some(argument)) => Ok(*argument),
        Some(None) => Err(UsdtRefused::NoInteger(number)),
        None => Err(UsdtRefused::NoArgument {
            count: place.arguments.len(),
            number,
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::symbols::elf_made::{self, GLOBAL_FUNCTION};
    use crate::sys::memory_file::memory_file;
    use crate::unwind::made_files::{CODE_ADDRESS, MadeSection, program};

    // Check that no span starts or ends at a function that jumps back to its first instruction,
    // and that the reason is told, where one without a loop around it is probed.
    #[test]
    fn turns_of_a_loop_are_no_spans() {
        // cmp byte [rdi], 0; lea rdi, [rdi+1]; jne to the begin; ret. push rbp; pop rbp; ret.
        let code = [
            0x80, 0x3f, 0x00, 0x48, 0x8d, 0x7f, 0x01, 0x75, 0xf7, 0xc3, 0x55, 0x5d, 0xc3,
        ];
        let (symbols, strings) = elf_made::table(&[
            ("turns", GLOBAL_FUNCTION, CODE_ADDRESS, 10),
            ("once", GLOBAL_FUNCTION, CODE_ADDRESS + 10, 3),
        ]);
        let sections = [
            MadeSection::new(".symtab", symbols),
            MadeSection::new(".strtab", strings),
        ];
        let file = memory_file(&program(&code, &sections)).expect("a file");
        let endpoint: SpanEndpoint = "*:*".parse().expect("an endpoint");
        for key in [SpanKey::Thread, SpanKey::Argument(0)] {
            let (places, said) =
                places(&file, &endpoint, key, chosen::BUDGET_NS).expect("functions");
            let places = places.iter().map(|place| place.point.offset.get());
            assert_eq!(places.collect::<Vec<_>>(), [0x100a]);
            assert_eq!(
                said,
                [
                    "turns: its code jumps back to its first instruction: calls cannot be told from turns of that loop"
                ]
            );
        }
    }

    // Check that a span is read with functions that have parameters, with USDT points, and with
    // each key, and that each thing that is wrong is refused with the form that is right.
    #[test]
    fn spans_are_read() {
        let span: SpanText =
            "request=app:ns::begin(int, std::map<int, int>),usdt:app:app:done,arg1"
                .parse()
                .expect("a span");
        assert_eq!(span.name, "request");
        assert_eq!(
            span.start.to_string(),
            "app:ns::begin(int, std::map<int, int>)"
        );
        assert_eq!(span.end.to_string(), "usdt:app:app:done");
        assert_eq!(
            (span.key, span.key.to_string()),
            (SpanKey::Argument(1), "arg1".to_owned())
        );
        let by_thread: SpanText = "a=./b:c,b:d,tid".parse().expect("a span");
        assert_eq!(by_thread.key, SpanKey::Thread);
        assert!(by_thread.start.is_of_module("/usr/bin/b"));
        for wrong in [
            "",
            "a",
            "a=b:c,d:e",
            "=b:c,d:e,tid",
            "a=b:c,d:e,f:g,tid",
            "a=b:c,d:e,",
        ] {
            assert!(wrong.parse::<SpanText>().is_err(), "{wrong}");
        }
        let why = |text: &str| text.parse::<SpanText>().expect_err("refused").to_string();
        assert!(why("a=b:c,d:e,arg6").contains("none of tid"));
        assert!(why("a=b,d:e,tid").contains("MODULE:FUNCTION"));
        assert!(why("a=usdt:b,d:e,tid").contains("PROVIDER:NAME"));
    }

    // Check that a USDT point may be named with one of its arguments.
    #[test]
    fn points_are_read_with_an_argument() {
        let read = |text: &str| text.parse::<UsdtText>();
        let plain = read("python:function__entry").expect("a point");
        assert_eq!(plain.argument, None);
        let second = read("libpython*:python:gc__*,arg1").expect("a point");
        assert_eq!(second.argument, Some(1));
        assert_eq!(second.pattern.text(), "libpython*:python:gc__*");
        for wrong in ["", "a:b,arg", "a:b,arg9", "a:b,1", "a,arg0"] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}
