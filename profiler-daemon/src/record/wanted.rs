//! What is made of a recording, once it is known to make sense together.

use anyhow::anyhow;

use crate::args::{RecordArgs, RecordFormat, RecordFrames, RecordValue};
use crate::report::recording::function_column;
use crate::report::{Frames, StackValue};

use super::{format, output};

/// What the report holds and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Wanted {
    /// How it is written.
    pub(super) format: RecordFormat,
    /// What stacks are drawn by, or functions sorted by.
    pub(super) value: StackValue,
    /// Whose functions are shown.
    pub(super) frames: Frames,
    /// Time between two samples of one processor, nanoseconds.
    pub(super) sampling_period_ns: u64,
}

impl Wanted {
    /// What was typed, with what the name of the file says where nothing was.
    ///
    /// # Errors
    /// The name does not tell the format, or the value has no meaning in it.
    pub(super) fn read(args: &RecordArgs, frequency_hz: u32) -> anyhow::Result<Self> {
        let format = match (args.format, &args.output) {
            (Some(format), _) => format,
            (None, Some(path)) if !output::is_standard(path) => {
                format::of_name(path).map_err(anyhow::Error::msg)?
            }
            (None, _) => RecordFormat::Text,
        };
        let value = stack_value(args.value.unwrap_or_default());
        match format {
            RecordFormat::Pprof | RecordFormat::Profile if args.value.is_some() => {
                return Err(anyhow!(
                    "--value has no meaning for pprof and profile, which have all values"
                ));
            }
            RecordFormat::Text | RecordFormat::Json | RecordFormat::Csv
                if function_column(value).is_none() =>
            {
                return Err(anyhow!(
                    "--value {} is for folded, svg, speedscope and firefox: functions cannot be sorted by it",
                    value.name()
                ));
            }
            _ => {}
        }
        Ok(Self {
            format,
            value,
            frames: match args.frames {
                RecordFrames::User => Frames::User,
                RecordFrames::All => Frames::All,
            },
            sampling_period_ns: 1_000_000_000 / u64::from(frequency_hz.max(1)),
        })
    }

    /// Whether it is no text.
    pub(super) fn is_binary(&self) -> bool {
        matches!(self.format, RecordFormat::Pprof | RecordFormat::Profile)
    }
}

fn stack_value(value: RecordValue) -> StackValue {
    match value {
        RecordValue::Samples => StackValue::Samples,
        RecordValue::Elapsed => StackValue::Elapsed,
        RecordValue::Application => StackValue::Application,
        RecordValue::Running => StackValue::Running,
        RecordValue::OffProcessor => StackValue::OffProcessor,
        RecordValue::Blocked => StackValue::Blocked,
        RecordValue::Runnable => StackValue::Runnable,
        RecordValue::Syscall => StackValue::Syscall,
    }
}

#[cfg(test)]
mod tests {
    use super::Wanted;
    use crate::args::{RecordArgs, RecordFormat, RecordValue};
    use crate::report::StackValue;

    fn read(
        format: Option<RecordFormat>,
        output: Option<&str>,
        value: Option<RecordValue>,
    ) -> Result<Wanted, String> {
        let args = RecordArgs {
            format,
            output: output.map(Into::into),
            value,
            ..RecordArgs::default()
        };
        Wanted::read(&args, 99).map_err(|error| error.to_string())
    }

    // Check that what was typed goes before the file's name, which goes before text, and that - is no file.
    #[test]
    fn formats() {
        let format = |format, output| read(format, output, None).unwrap().format;
        assert_eq!(format(None, None), RecordFormat::Text);
        assert_eq!(format(None, Some("-")), RecordFormat::Text);
        assert_eq!(format(None, Some("a.svg")), RecordFormat::Svg);
        let csv = Some(RecordFormat::Csv);
        assert_eq!(format(csv, Some("a.svg")), RecordFormat::Csv);
        assert_eq!(format(csv, Some("a")), RecordFormat::Csv);
        assert!(read(None, Some("a"), None).is_err());
    }

    // Check that a value without a meaning is refused with the formats that have one.
    #[test]
    fn values() {
        let off = Some(RecordValue::OffProcessor);
        let elapsed = Some(RecordValue::Elapsed);
        assert_eq!(read(None, None, None).unwrap().value, StackValue::Samples);
        assert_eq!(
            read(None, None, elapsed).unwrap().value,
            StackValue::Elapsed
        );
        assert_eq!(
            read(None, Some("a.svg"), off).unwrap().value,
            StackValue::OffProcessor
        );
        assert!(read(None, None, off).unwrap_err().contains("folded, svg"));
        assert!(read(None, Some("a.pprof"), elapsed).is_err());
    }
}
