//! The configuration: what the file means, once everything is known to be allowed. What was typed
//! beside it is for `args`.
//!
//! Two steps: as written (every key optional, unknown keys refused) and as meant ([`Config`], which
//! cannot hold a value out of bounds). Each setting is declared once, in `settings`. Nothing here
//! decides what a stage does with a value.

pub mod duration;
mod kinds;
mod sample;
mod section;
mod settings;
pub mod targets;

use std::fmt;
use std::io::Read as _;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use thiserror::Error;

use kinds::SettingKind;
pub use sample::{documentation, sample};
pub use section::SettingKey;
pub use settings::{
    Config, Http, InstrumentationSettings, LimitSettings, MAX_SESSION_SPANS, MAX_SESSIONS, Metrics,
    SystemCalls,
};
use settings::{ConfigWritten, FREQUENCY, LISTEN, MIN_INTERVAL};

/// The largest file that is read, in bytes.
const MAX_FILE_BYTES: u64 = 1 << 20;

/// Why there is no configuration.
#[derive(Debug, Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("cannot read the configuration file {}: {source}", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is a pipe, a folder or a device.
    #[error(
        "the configuration file {} is no plain file: write the settings to a file and name that",
        path.display()
    )]
    NotPlain {
        /// The file.
        path: PathBuf,
    },
    /// The file is larger than a configuration can be.
    #[error("the configuration file {} is larger than 1 MiB", path.display())]
    TooLarge {
        /// The file.
        path: PathBuf,
    },
    /// Something in the file is not allowed.
    #[error("{}", list(faults))]
    Refused {
        /// Every fault that was found, in the order of the file.
        faults: Vec<ConfigFault>,
    },
    /// An option of the command line is not allowed.
    #[error("{option}: {sentence}")]
    Option {
        /// The option.
        option: &'static str,
        /// What is allowed.
        sentence: String,
    },
}

/// Something in the file that is not allowed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConfigFault {
    /// The file as it was named.
    pub file: String,
    /// Its line, from 1.
    pub line: usize,
    /// The column in bytes, from 1.
    pub column: usize,
    /// What is wrong and what is allowed.
    pub sentence: String,
}

impl fmt::Display for ConfigFault {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            out,
            "{}:{}:{}: {}",
            self.file, self.line, self.column, self.sentence
        )
    }
}

fn list(faults: &[ConfigFault]) -> String {
    faults
        .iter()
        .map(ConfigFault::to_string)
        .collect::<Vec<_>>()
        .join("; ")
}

/// Reads an address and a port as typed.
pub(crate) fn parse_listen(text: &str) -> Result<SocketAddr, String> {
    LISTEN.read(&toml::Value::from(text))
}

/// Reads how often is sampled as typed; whether it is within bounds is checked with the rest.
pub(crate) fn parse_frequency(text: &str) -> Result<u64, String> {
    let form = || format!("must be {}", SettingKind::<u32>::allowed(&FREQUENCY));
    text.parse().map_err(|_| form())
}

/// Every setting, in the order of the sample file.
#[must_use]
pub fn keys() -> Vec<SettingKey> {
    ConfigWritten::keys()
}

impl Config {
    /// What a file means.
    ///
    /// # Errors
    ///
    /// When it cannot be read or holds something that is not allowed.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let unreadable = |source| ConfigError::Unreadable {
            path: path.to_owned(),
            source,
        };
        // A pipe would be waited for.
        if !path.metadata().map_err(unreadable)?.is_file() {
            return Err(ConfigError::NotPlain {
                path: path.to_owned(),
            });
        }
        let file = std::fs::File::open(path).map_err(unreadable)?;
        let mut text = String::new();
        file.take(MAX_FILE_BYTES + 1)
            .read_to_string(&mut text)
            .map_err(unreadable)?;
        if text.len() as u64 > MAX_FILE_BYTES {
            return Err(ConfigError::TooLarge {
                path: path.to_owned(),
            });
        }
        Self::parse(&path.display().to_string(), &text)
    }

    /// What a text means; `file` is the name that errors give it.
    ///
    /// # Errors
    ///
    /// When it is not TOML, names an unknown key, or holds values that are not allowed.
    pub fn parse(file: &str, text: &str) -> Result<Self, ConfigError> {
        let fault = |offset: usize, sentence: String| {
            let (line, column) = position(text, offset);
            ConfigFault {
                file: file.to_owned(),
                line,
                column,
                sentence,
            }
        };
        let written: ConfigWritten =
            toml::from_str(text).map_err(|error| ConfigError::Refused {
                faults: vec![fault(
                    error.span().map_or(0, |span| span.start),
                    error.message().replace('\n', ", "),
                )],
            })?;
        let mut refusals = Vec::new();
        let all_offset = written.targets_all_offset();
        let config = written.mean(&mut refusals);
        // Lists that were refused might have named something.
        if refusals.is_empty() && !config.targets.all && !config.targets.names_any() {
            refusals.push(section::InvalidValue {
                offset: all_offset.unwrap_or(0),
                key: section::full_name("targets", "all"),
                sentence: targets::NOTHING_IN_FILE.to_owned(),
            });
        }
        if refusals.is_empty() {
            return Ok(config);
        }
        refusals.sort_by_key(|refusal| refusal.offset);
        let faults = refusals.into_iter().map(|refusal| {
            fault(
                refusal.offset,
                format!("{}: {}", refusal.key, refusal.sentence),
            )
        });
        Err(ConfigError::Refused {
            faults: faults.collect(),
        })
    }

    /// Sets the shortest time between two stacks, where one was typed.
    pub(crate) fn set_min_interval(&mut self, typed: Option<u64>) -> Result<(), ConfigError> {
        if let Some(min_interval_ns) = typed {
            self.min_interval_ns =
                MIN_INTERVAL
                    .check(min_interval_ns)
                    .map_err(|sentence| ConfigError::Option {
                        option: "--min-interval",
                        sentence,
                    })?;
        }
        Ok(())
    }

    /// Sets how often is sampled, where that was typed.
    pub(crate) fn set_frequency(&mut self, typed: Option<u64>) -> Result<(), ConfigError> {
        if let Some(frequency_hz) = typed {
            let written = toml::Value::Integer(i64::try_from(frequency_hz).unwrap_or(i64::MAX));
            self.frequency_hz =
                SettingKind::<u32>::read(&FREQUENCY, &written).map_err(|sentence| {
                    ConfigError::Option {
                        option: "--frequency-hz",
                        sentence,
                    }
                })?;
        }
        Ok(())
    }
}

/// The line and the column, both from 1, of a byte of the text.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = &text.as_bytes()[..offset.min(text.len())];
    let line = before.iter().filter(|byte| **byte == b'\n').count() + 1;
    let column = before
        .iter()
        .rev()
        .take_while(|byte| **byte != b'\n')
        .count()
        + 1;
    (line, column)
}

#[cfg(test)]
mod tests;
