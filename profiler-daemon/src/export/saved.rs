//! A whole profile as a file, and back: what every report needs, names included, so that it can be
//! made again elsewhere without privileges, a kernel or the profiled files. Pure: bytes in, bytes
//! out.
//!
//! The file is a head in plain sight (a mark, the number of the format, the version of the program
//! that wrote it) and a gzip member, whose checksum covers the rest: the types of [`Saved`] field
//! by field. These carry no names of fields, so a file is read by programs with the same number of
//! the format only. Whoever changes a type that is in it adds one to [`FORMAT`].
//!
//! A file is hostile: bytes and memory are bounded while it is read (`meter`), and what was read
//! is checked as a whole before anybody sees it ([`Snapshot::check`]).

#[cfg(any(test, feature = "fuzzing"))]
pub(crate) mod fuzzing;
mod meter;
mod names;

use std::error::Error;
use std::io::{self, BufWriter, IntoInnerError, Read as _, Write};
use std::sync::Arc;

use flate2::bufread::GzDecoder;
use flate2::{Compression, GzBuilder};
use serde::{Deserialize, Serialize};

use crate::profile::check::Flaw;
use crate::profile::snapshot::Snapshot;

pub use names::SavedNames;

/// What every such file begins with. The first byte is no text, so that nothing takes it for text.
const MARK: [u8; 8] = *b"\x89profile";
/// The number of the format.
pub const FORMAT: u16 = 13;
/// What the names of such files end in.
pub const ENDING: &str = ".profile";
/// The longest name of a version, bytes.
const MAX_VERSION_BYTES: usize = 64;
/// The most bytes that are behind the head, before compression. A profile beyond that is not
/// written.
const MAX_BYTES: u64 = 256 << 20;
/// Bytes that are packed at a time.
const BUFFER_BYTES: usize = 64 << 10;
/// The most memory that what is read may take, roughly, bytes.
const MAX_MEMORY_BYTES: u64 = 3 << 30;

/// What a file holds.
#[derive(Debug, Serialize, Deserialize)]
pub struct Saved {
    /// Time between two samples of one processor, nanoseconds.
    pub sampling_period_ns: u64,
    /// How the daemon was, as JSON.
    pub status: String,
    /// What was profiled, as JSON.
    pub targets: String,
    /// The profile.
    pub snapshot: Arc<Snapshot>,
    /// The name of every frame that a report can show.
    pub names: SavedNames,
}

/// Why a file cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum SavedError {
    /// It begins otherwise.
    #[error(
        "it is no recorded profile: a file that `record --format profile` or /api/v1/profile wrote begins otherwise"
    )]
    Foreign,
    /// Another format.
    #[error("it has format {format} and was written by version {version}; this is version {own}, which reads format {FORMAT}: use that version", own = env!("CARGO_PKG_VERSION"))]
    Format {
        /// Its format.
        format: u16,
        /// What wrote it; without control characters.
        version: String,
    },
    /// Its bytes are not what was written.
    #[error("it is damaged or incomplete: {0}")]
    Damaged(#[source] Box<dyn Error + Send + Sync>),
    /// It has too much in it.
    #[error("it is larger than any profile: {0}")]
    TooLarge(&'static str),
    /// It does not hold together.
    #[error("it does not hold together: {0}")]
    Flawed(#[from] Flaw),
}

impl Saved {
    /// Writes the file.
    ///
    /// # Errors
    /// When `out` cannot be written to, or the profile is larger than such a file may be.
    pub fn write(&self, out: impl Write) -> io::Result<()> {
        self.write_as(env!("CARGO_PKG_VERSION"), out)
    }

    fn write_as(&self, version: &str, mut out: impl Write) -> io::Result<()> {
        out.write_all(&MARK)?;
        out.write_all(&FORMAT.to_le_bytes())?;
        let version = &version.as_bytes()[..version.len().min(MAX_VERSION_BYTES)];
        out.write_all(&[version.len() as u8])?;
        out.write_all(version)?;
        let packed = GzBuilder::new().write(out, Compression::default());
        // What is written comes a few bytes at a time, and packing has a price by the write.
        let bounded = Bounded {
            out: BufWriter::with_capacity(BUFFER_BYTES, packed),
            left: MAX_BYTES,
        };
        let bounded = postcard::to_io(self, bounded).map_err(io::Error::other)?;
        let packed = bounded
            .out
            .into_inner()
            .map_err(IntoInnerError::into_error)?;
        packed.finish().map(drop)
    }

    /// Reads a file.
    ///
    /// # Errors
    /// [`SavedError`]: whatever the bytes are, there is an answer, and it takes bounded memory.
    pub fn read(file: &[u8]) -> Result<Self, SavedError> {
        Self::read_within(file, MAX_BYTES, MAX_MEMORY_BYTES)
    }

    /// The same, with so many bytes behind the head and so much memory at most.
    fn read_within(file: &[u8], max_bytes: u64, memory_bytes: u64) -> Result<Self, SavedError> {
        let packed = head(file)?;
        let mut unpacked = Vec::new();
        let mut decoder = GzDecoder::new(packed);
        decoder
            .by_ref()
            .take(max_bytes + 1)
            .read_to_end(&mut unpacked)
            .map_err(|error| SavedError::Damaged(error.into()))?;
        if unpacked.len() as u64 > max_bytes {
            return Err(SavedError::TooLarge("there are too many bytes in it"));
        }
        if !decoder.into_inner().is_empty() {
            return Err(SavedError::Damaged("something follows its end".into()));
        }
        let saved = Self::decode(&unpacked, memory_bytes)?;
        saved.check()?;
        Ok(saved)
    }

    fn decode(bytes: &[u8], memory_bytes: u64) -> Result<Self, SavedError> {
        let meter = meter::Meter::new(memory_bytes);
        let mut decoder = postcard::Deserializer::from_bytes(bytes);
        let read = Self::deserialize(meter::Metered::new(&mut decoder, &meter));
        if meter.is_exhausted() {
            return Err(SavedError::TooLarge("it takes too much memory"));
        }
        let saved = read.map_err(|error| SavedError::Damaged(error.into()))?;
        match decoder.finalize() {
            Ok([]) => Ok(saved),
            _ => Err(SavedError::Damaged(
                "something follows its last part".into(),
            )),
        }
    }

    fn check(&self) -> Result<(), SavedError> {
        self.snapshot.check()?;
        if !self.names.is_whole() {
            return Err(SavedError::Damaged(
                "a frame has a name that is not there".into(),
            ));
        }
        Ok(())
    }
}

/// Reads the head, and answers what follows.
fn head(file: &[u8]) -> Result<&[u8], SavedError> {
    let incomplete = || SavedError::Damaged("it ends within its head".into());
    let rest = file.strip_prefix(&MARK).ok_or(SavedError::Foreign)?;
    let (format, rest) = rest.split_first_chunk().ok_or_else(incomplete)?;
    let format = u16::from_le_bytes(*format);
    let (length, rest) = rest.split_first().ok_or_else(incomplete)?;
    let length = usize::from(*length);
    if length > MAX_VERSION_BYTES || length > rest.len() {
        return Err(incomplete());
    }
    let (version, packed) = rest.split_at(length);
    if format != FORMAT {
        let version = String::from_utf8_lossy(version);
        return Err(SavedError::Format {
            format,
            version: version.chars().filter(|c| !c.is_control()).collect(),
        });
    }
    Ok(packed)
}

/// Takes so many bytes and refuses the next.
struct Bounded<W> {
    out: W,
    left: u64,
}

impl<W: Write> Write for Bounded<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let length = bytes.len() as u64;
        if length > self.left {
            return Err(io::Error::other(format!(
                "the profile takes more than {MAX_BYTES} bytes"
            )));
        }
        let written = self.out.write(bytes)?;
        self.left -= written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.out.flush()
    }
}
