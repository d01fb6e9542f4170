//! The kinds of value that a setting can have: what may be written, how it is read, how it is
//! shown.
//!
//! Each kind answers in sentences that say what is allowed. It knows neither files nor keys.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde::Serialize;
use serde_json::Value as Json;
use toml::Value;

use super::duration;

/// A kind of value: its default, its bounds and its spelling in the configuration file.
pub(super) trait SettingKind<T> {
    /// The value when nothing is written.
    fn default_value(&self) -> T;
    /// The value that was written, or a sentence (without subject) that says what is allowed.
    fn read(&self, written: &Value) -> Result<T, String>;
    /// What is allowed, for the sample file and the documentation.
    fn allowed(&self) -> String;
    /// The default as it would be written in the file.
    fn sample(&self) -> String;
    /// A value as the status shows it.
    fn show(&self, value: &T) -> Json;
}

/// A whole number with a unit.
pub(super) struct WholeNumber {
    pub(super) default: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) unit: &'static str,
}

impl<T: TryFrom<u64> + Serialize> SettingKind<T> for WholeNumber {
    fn default_value(&self) -> T {
        fitting(self.default)
    }

    fn read(&self, written: &Value) -> Result<T, String> {
        written
            .as_integer()
            .and_then(|number| u64::try_from(number).ok())
            .filter(|number| (self.min..=self.max).contains(number))
            .map(fitting)
            .ok_or_else(|| format!("must be {}", SettingKind::<T>::allowed(self)))
    }

    fn allowed(&self) -> String {
        format!(
            "a whole number from {} to {} ({})",
            self.min, self.max, self.unit
        )
    }

    fn sample(&self) -> String {
        self.default.to_string()
    }

    fn show(&self, value: &T) -> Json {
        plain(value)
    }
}

/// A whole number with a unit, or `None`: whatever suits the machine.
pub(super) struct WholeNumberOrAuto {
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) unit: &'static str,
}

/// What is written for whatever suits the machine.
const AUTO: &str = "auto";

impl WholeNumberOrAuto {
    const fn number(&self) -> WholeNumber {
        WholeNumber {
            default: self.min,
            min: self.min,
            max: self.max,
            unit: self.unit,
        }
    }
}

impl<T: TryFrom<u64> + Serialize> SettingKind<Option<T>> for WholeNumberOrAuto {
    fn default_value(&self) -> Option<T> {
        None
    }

    fn read(&self, written: &Value) -> Result<Option<T>, String> {
        if written.as_str() == Some(AUTO) {
            return Ok(None);
        }
        let number = self.number().read(written);
        number
            .map(Some)
            .map_err(|sentence| format!("{sentence} or \"{AUTO}\""))
    }

    fn allowed(&self) -> String {
        format!(
            "{} or \"{AUTO}\"",
            SettingKind::<T>::allowed(&self.number())
        )
    }

    fn sample(&self) -> String {
        format!("\"{AUTO}\"")
    }

    fn show(&self, value: &Option<T>) -> Json {
        value.as_ref().map_or_else(|| Json::from(AUTO), plain)
    }
}

/// A value as it is. Numbers, words and lists of them can always be shown.
fn plain<T: Serialize>(value: &T) -> Json {
    serde_json::to_value(value).unwrap_or(Json::Null)
}

/// A number within a setting's bounds as the setting's type, which is chosen to hold them.
fn fitting<T: TryFrom<u64>>(number: u64) -> T {
    T::try_from(number)
        .ok()
        .expect("the bounds of a setting fit its type")
}

/// A length of time, held in nanoseconds. `zero` says what 0 means, where it is allowed below
/// `min_ns`.
pub(super) struct Time {
    pub(super) default_ns: u64,
    pub(super) min_ns: u64,
    pub(super) max_ns: u64,
    pub(super) zero: Option<&'static str>,
}

impl Time {
    /// The same check for a length of time that was not written in the file.
    pub(super) fn check(&self, length_ns: u64) -> Result<u64, String> {
        if (self.min_ns..=self.max_ns).contains(&length_ns)
            || (length_ns == 0 && self.zero.is_some())
        {
            Ok(length_ns)
        } else {
            Err(format!("must be {}", self.allowed()))
        }
    }
}

impl SettingKind<u64> for Time {
    fn default_value(&self) -> u64 {
        self.default_ns
    }

    fn read(&self, written: &Value) -> Result<u64, String> {
        match written {
            Value::String(text) => {
                duration::parse(text).and_then(|length_ns| self.check(length_ns))
            }
            Value::Integer(0) if self.zero.is_some() => Ok(0),
            _ => Err(format!(
                "must be {} between quotation marks",
                duration::FORM
            )),
        }
    }

    fn allowed(&self) -> String {
        let bounds = format!(
            "a length of time from \"{}\" to \"{}\"",
            duration::format(self.min_ns),
            duration::format(self.max_ns)
        );
        match self.zero {
            Some(meaning) => format!("{bounds}, or 0 ({meaning})"),
            None => bounds,
        }
    }

    fn sample(&self) -> String {
        format!("\"{}\"", duration::format(self.default_ns))
    }

    fn show(&self, value: &u64) -> Json {
        Json::String(duration::format(*value))
    }
}

/// An amount of memory in bytes, written as a number or with KiB, MiB or GiB.
pub(super) struct ByteSize {
    pub(super) default: u64,
    pub(super) min: u64,
    pub(super) max: u64,
    pub(super) power_of_two: bool,
}

const BYTE_UNITS: [(&str, u64); 3] = [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)];

fn show_bytes(bytes: u64) -> String {
    BYTE_UNITS
        .iter()
        .find(|(_, size)| bytes >= *size && bytes.is_multiple_of(*size))
        .map_or_else(
            || format!("{bytes}"),
            |(unit, size)| format!("\"{}{unit}\"", bytes / size),
        )
}

fn read_bytes(text: &str) -> Option<u64> {
    let (number, size) = BYTE_UNITS
        .iter()
        .find_map(|(unit, size)| text.strip_suffix(unit).map(|number| (number, *size)))?;
    if !number.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    number.parse::<u64>().ok()?.checked_mul(size)
}

impl<T: TryFrom<u64> + Serialize> SettingKind<T> for ByteSize {
    fn default_value(&self) -> T {
        fitting(self.default)
    }

    fn read(&self, written: &Value) -> Result<T, String> {
        let bytes = match written {
            Value::Integer(number) => u64::try_from(*number).ok(),
            Value::String(text) => read_bytes(text),
            _ => None,
        };
        bytes
            .filter(|bytes| (self.min..=self.max).contains(bytes))
            .filter(|bytes| !self.power_of_two || bytes.is_power_of_two())
            .map(fitting)
            .ok_or_else(|| format!("must be {}", SettingKind::<T>::allowed(self)))
    }

    fn allowed(&self) -> String {
        let power = if self.power_of_two {
            ", a power of two"
        } else {
            ""
        };
        format!(
            "bytes, as a number or like \"4MiB\", from {} to {}{power}",
            show_bytes(self.min),
            show_bytes(self.max)
        )
    }

    fn sample(&self) -> String {
        show_bytes(self.default)
    }

    fn show(&self, value: &T) -> Json {
        plain(value)
    }
}

/// A part of a whole, or none: written as a percentage, held in millionths.
pub(super) struct Percent {
    pub(super) default: &'static str,
    pub(super) min: f64,
    pub(super) max: f64,
}

/// What is written for none.
const OFF: &str = "off";

impl Percent {
    fn parse(&self, text: &str) -> Result<Option<u32>, String> {
        if text == OFF {
            return Ok(None);
        }
        text.strip_suffix('%')
            .and_then(|number| number.trim_end().parse::<f64>().ok())
            .filter(|percent| (self.min..=self.max).contains(percent))
            .map(|percent| Some((percent * 1e4).round() as u32))
            .ok_or_else(|| format!("must be {}", self.allowed()))
    }
}

impl SettingKind<Option<u32>> for Percent {
    fn default_value(&self) -> Option<u32> {
        self.parse(self.default)
            .expect("the default is a percentage within the bounds")
    }

    fn read(&self, written: &Value) -> Result<Option<u32>, String> {
        self.parse(written.as_str().unwrap_or_default())
    }

    fn allowed(&self) -> String {
        format!("\"{}%\" to \"{}%\" or \"{OFF}\"", self.min, self.max)
    }

    fn sample(&self) -> String {
        format!("\"{}\"", self.default)
    }

    fn show(&self, value: &Option<u32>) -> Json {
        let percent = |millionths: u32| format!("{}%", f64::from(millionths) / 1e4);
        Json::String(value.map_or_else(|| OFF.to_owned(), percent))
    }
}

/// Yes or no.
pub(super) struct Flag {
    pub(super) default: bool,
}

impl SettingKind<bool> for Flag {
    fn default_value(&self) -> bool {
        self.default
    }

    fn read(&self, written: &Value) -> Result<bool, String> {
        written
            .as_bool()
            .ok_or_else(|| "must be true or false".to_owned())
    }

    fn allowed(&self) -> String {
        "true or false".to_owned()
    }

    fn sample(&self) -> String {
        self.default.to_string()
    }

    fn show(&self, value: &bool) -> Json {
        plain(value)
    }
}

/// Yes, no or not said; not saying means the same as `unsaid` where nothing else decides.
pub(super) struct OptionalFlag {
    pub(super) unsaid: bool,
}

impl SettingKind<Option<bool>> for OptionalFlag {
    fn default_value(&self) -> Option<bool> {
        None
    }

    fn read(&self, written: &Value) -> Result<Option<bool>, String> {
        Flag {
            default: self.unsaid,
        }
        .read(written)
        .map(Some)
    }

    fn allowed(&self) -> String {
        "true or false".to_owned()
    }

    fn sample(&self) -> String {
        self.unsaid.to_string()
    }

    fn show(&self, value: &Option<bool>) -> Json {
        plain(value)
    }
}

/// An absolute path of a folder.
pub(super) struct Folder {
    pub(super) default: &'static str,
}

impl SettingKind<PathBuf> for Folder {
    fn default_value(&self) -> PathBuf {
        self.default.into()
    }

    fn read(&self, written: &Value) -> Result<PathBuf, String> {
        let path = written.as_str().map(Path::new);
        path.filter(|path| path.is_absolute())
            .map(Path::to_owned)
            .ok_or_else(|| "must be a path that begins with /".to_owned())
    }

    fn allowed(&self) -> String {
        "a path that begins with /".to_owned()
    }

    fn sample(&self) -> String {
        format!("{:?}", self.default)
    }

    fn show(&self, value: &PathBuf) -> Json {
        plain(value)
    }
}

/// One of a few words.
pub(super) struct Choice<T: 'static> {
    pub(super) default: &'static str,
    pub(super) words: &'static [(&'static str, T)],
}

impl<T: Copy + PartialEq> Choice<T> {
    fn find(&self, word: &str) -> Option<T> {
        self.words
            .iter()
            .find(|(name, _)| *name == word)
            .map(|(_, value)| *value)
    }
}

impl<T: Copy + PartialEq> SettingKind<T> for Choice<T> {
    fn default_value(&self) -> T {
        self.find(self.default)
            .expect("the default is one of the words")
    }

    fn read(&self, written: &Value) -> Result<T, String> {
        written
            .as_str()
            .and_then(|word| self.find(word))
            .ok_or_else(|| format!("must be {}", self.allowed()))
    }

    fn allowed(&self) -> String {
        let words: Vec<_> = self
            .words
            .iter()
            .map(|(word, _)| format!("\"{word}\""))
            .collect();
        words.join(" or ")
    }

    fn sample(&self) -> String {
        format!("\"{}\"", self.default)
    }

    fn show(&self, value: &T) -> Json {
        let word = self.words.iter().find(|(_, known)| known == value);
        word.map_or(Json::Null, |(word, _)| Json::from(*word))
    }
}

/// An address and a port.
pub(super) struct Address {
    pub(super) default: &'static str,
}

impl SettingKind<SocketAddr> for Address {
    fn default_value(&self) -> SocketAddr {
        self.default.parse().expect("the default is an address")
    }

    fn read(&self, written: &Value) -> Result<SocketAddr, String> {
        written
            .as_str()
            .and_then(|text| text.parse().ok())
            .ok_or_else(|| format!("must be {}", self.allowed()))
    }

    fn allowed(&self) -> String {
        "a numeric address and a port, like \"127.0.0.1:9797\" or \"[::1]:9797\"".to_owned()
    }

    fn sample(&self) -> String {
        format!("\"{}\"", self.default)
    }

    fn show(&self, value: &SocketAddr) -> Json {
        plain(value)
    }
}

/// A list, empty by default, of at most `max_count` items that each pass `item`.
pub(super) struct ListOf<T> {
    pub(super) max_count: usize,
    /// What one item is, in the plural.
    pub(super) what: &'static str,
    pub(super) item: fn(&Value) -> Result<T, String>,
}

impl<T: Serialize> SettingKind<Vec<T>> for ListOf<T> {
    fn default_value(&self) -> Vec<T> {
        Vec::new()
    }

    fn read(&self, written: &Value) -> Result<Vec<T>, String> {
        let items = written
            .as_array()
            .filter(|items| items.len() <= self.max_count)
            .ok_or_else(|| format!("must be {}", self.allowed()))?;
        items
            .iter()
            .map(|item| (self.item)(item).map_err(|sentence| format!("{item}: {sentence}")))
            .collect()
    }

    fn allowed(&self) -> String {
        format!("a list of at most {} {}", self.max_count, self.what)
    }

    fn sample(&self) -> String {
        "[]".to_owned()
    }

    fn show(&self, value: &Vec<T>) -> Json {
        plain(value)
    }
}
