//! Names that clients give to sessions and spans.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use thiserror::Error;

/// The longest name, in bytes.
pub const MAX_NAME_BYTES: usize = 64;

/// A name of 1 to 64 letters, digits, blanks, dots, underscores and hyphens, that begins with a
/// letter and does not end with a blank. It lies in place, so that questions that hold one can be
/// copied.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Name {
    bytes: [u8; MAX_NAME_BYTES],
    len: u8,
}

/// Text that is no name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error(
    "must have 1 to {MAX_NAME_BYTES} characters, begin with a letter, and hold only letters (a to z, A to Z), digits, \".\", \"_\", \"-\" and, within it, blanks"
)]
pub struct NotAName;

impl TryFrom<String> for Name {
    type Error = NotAName;

    fn try_from(text: String) -> Result<Self, NotAName> {
        text.parse()
    }
}

impl From<Name> for String {
    fn from(name: Name) -> Self {
        name.as_str().to_owned()
    }
}

impl FromStr for Name {
    type Err = NotAName;

    fn from_str(text: &str) -> Result<Self, NotAName> {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b" ._-".contains(&byte);
        let is_name = text.len() <= MAX_NAME_BYTES
            && text.starts_with(|first: char| first.is_ascii_alphabetic())
            && !text.ends_with(' ')
            && text.bytes().all(allowed);
        is_name.then(|| Self::of(text)).ok_or(NotAName)
    }
}

impl Name {
    /// A text known to be a name.
    pub(super) fn of(text: &str) -> Self {
        let mut bytes = [0; MAX_NAME_BYTES];
        let len = text.len().min(MAX_NAME_BYTES);
        bytes[..len].copy_from_slice(&text.as_bytes()[..len]);
        Self {
            bytes,
            len: len as u8,
        }
    }

    /// The name with a number behind it, cut where there is no room for both.
    pub(super) fn numbered(self, number: u64) -> Self {
        let number = format!(".{number}");
        let room = MAX_NAME_BYTES - number.len();
        let name = self.as_str();
        Self::of(&format!("{}{number}", &name[..name.len().min(room)]))
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.bytes[..usize::from(self.len)])
            .expect("a name is made of whole ASCII characters")
    }
}

impl PartialEq<str> for Name {
    fn eq(&self, other: &str) -> bool {
        self.as_str() == other
    }
}

impl PartialEq<&str> for Name {
    fn eq(&self, other: &&str) -> bool {
        self.as_str() == *other
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that names are read back as they were given, that a number always has room, and that
    // nothing else is a name: above all nothing that is a number of a process, a length of time or
    // a part of a path.
    #[test]
    fn names() {
        let longest = "n".repeat(MAX_NAME_BYTES);
        for text in ["a", "checkout", "Warm-up done", "v1.2_3", &longest] {
            let name: Name = text.parse().expect("a name");
            assert_eq!(name.as_str(), text);
            let numbered = name.numbered(u64::MAX);
            assert!(numbered.as_str().ends_with(&format!(".{}", u64::MAX)));
            assert_eq!(numbered.as_str().parse(), Ok(numbered));
        }
        let too_long = "n".repeat(MAX_NAME_BYTES + 1);
        for text in [
            "", "1234", "30s", "-a", "a ", " a", "a/b", "a\tb", "a\u{e9}", "..", &too_long,
        ] {
            assert_eq!(text.parse::<Name>(), Err(NotAName), "{text:?}");
        }
    }
}
