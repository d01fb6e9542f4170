//! What a question is answered with, and in which formats it can be written.

use std::io::{self, Write};

use serde::Serialize;

use super::format::Format;
use super::problem::Problem;
use crate::export::csv::{self, CsvReport};
use crate::export::pprof::{self, Content};
use crate::export::text::{self, TextReport};
use crate::report::{StackTree, StackValue};

/// What a question is answered with.
pub(crate) trait Answer: Send {
    /// Writes it in one of the formats that its question has.
    ///
    /// # Errors
    /// It cannot be written in this format.
    fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()>;
}

/// Writes an answer.
///
/// # Errors
/// It cannot be written in this format.
pub(crate) fn write_answer(
    answer: &dyn Answer,
    format: Format,
    out: &mut dyn Write,
) -> Result<(), Problem> {
    let written = answer.write(format, out);
    written.map_err(|error| Problem::internal(error.to_string()))
}

/// Writes JSON that ends in a line break.
///
/// # Errors
/// The value cannot be JSON.
pub(crate) fn write_json(value: &impl Serialize, out: &mut dyn Write) -> io::Result<()> {
    serde_json::to_writer(&mut *out, value)?;
    out.write_all(b"\n")
}

/// JSON, and text by a function of its own.
pub(crate) struct Shown<R>(
    pub(crate) R,
    pub(crate) fn(&R, &mut dyn Write) -> io::Result<()>,
);

impl<R: Serialize + Send> Answer for Shown<R> {
    fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Text => (self.1)(&self.0, out),
            _ => write_json(&self.0, out),
        }
    }
}

/// JSON, and the text of reports.
pub(crate) struct Report<R>(pub(crate) R);

impl<R: Serialize + TextReport + Send> Answer for Report<R> {
    fn write(&self, format: Format, mut out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Text => text::write(&self.0, &mut out),
            _ => write_json(&self.0, out),
        }
    }
}

/// JSON, the text of reports, and CSV.
pub(crate) struct AnswerTable<R>(pub(crate) R);

impl<R: Serialize + TextReport + CsvReport + Send> Answer for AnswerTable<R> {
    fn write(&self, format: Format, mut out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Text => text::write(&self.0, &mut out),
            Format::Csv => csv::write(&self.0, &mut out),
            _ => write_json(&self.0, out),
        }
    }
}

/// One value of stacks, in the formats of other tools.
pub(crate) struct OneValue {
    pub(crate) stacks: StackTree,
    pub(crate) value: StackValue,
}

impl Answer for OneValue {
    fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        format.write_stacks(&self.stacks, self.value, out)
    }
}

/// Stacks with their values, for pprof.
pub(crate) struct AllValues {
    pub(crate) stacks: StackTree,
    pub(crate) content: Content,
    /// Time between two samples of one processor, nanoseconds.
    pub(crate) sampling_period_ns: u64,
}

impl Answer for AllValues {
    fn write(&self, _: Format, mut out: &mut dyn Write) -> io::Result<()> {
        pprof::write(
            &self.stacks,
            self.content,
            self.sampling_period_ns,
            &mut out,
        )
    }
}
