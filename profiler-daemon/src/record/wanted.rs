//! What is made of a recording, once it is known to make sense together.

use std::path::Path;

use anyhow::anyhow;

use crate::api::Format;
use crate::api::question::AnyQuestion;
use crate::api::questions::{AllValuesOf, Functions, OneValueOf, WholeRecording, sections};
use crate::args::RecordArgs;
use crate::report::recording::{all_functions, function_column};
use crate::report::{FrameScope, Measured, Scope, StackQuery, StackValue, TreeQuery, ViewQuery};

use super::output;

/// What the report holds and how it is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct OutputRequest {
    /// How it is written.
    pub(super) format: Format,
    /// What stacks are drawn by, or functions sorted by.
    pub(super) value: StackValue,
    /// Whose functions are shown.
    pub(super) frames: FrameScope,
    /// Time between two samples of one processor, nanoseconds.
    pub(super) sampling_period_ns: u64,
}

impl OutputRequest {
    /// What was typed, with what the name of the file says where nothing was.
    ///
    /// # Errors
    /// The name does not tell the format, or the value has no meaning in it.
    pub(super) fn read(args: &RecordArgs, frequency_hz: u32) -> anyhow::Result<Self> {
        let format = match (args.format, &args.output) {
            (Some(format), _) => format,
            (None, Some(path)) if !output::is_standard(path) => of_name(path)?,
            (None, _) => Format::Text,
        };
        let value = args.value.unwrap_or_default();
        match format {
            Format::Pprof | Format::Profile if args.value.is_some() => {
                return Err(anyhow!(
                    "--value has no meaning for pprof and profile, which have all values"
                ));
            }
            Format::Text | Format::Json | Format::Csv if function_column(value).is_none() => {
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
            frames: args.frames,
            sampling_period_ns: 1_000_000_000 / u64::from(frequency_hz.max(1)),
        })
    }

    /// Whether what was measured exactly is in the report.
    pub(super) const fn holds_measured(&self) -> bool {
        matches!(self.format, Format::Text | Format::Json)
    }

    /// What is asked for it; nothing where all of the profile is taken.
    pub(super) fn question(
        &self,
        scope: Scope,
        view: ViewQuery,
        measured: Option<Measured>,
    ) -> Option<Box<dyn AnyQuestion>> {
        let value = self.value;
        let tree = TreeQuery {
            frames: view.frames,
            window: view.window,
            value: Some(value),
            ..TreeQuery::default()
        };
        Some(match self.format {
            Format::Profile => return None,
            Format::Pprof => Box::new(AllValuesOf {
                scope,
                query: StackQuery {
                    tree,
                    places: true,
                    sections: sections(&scope),
                },
                sampling_period_ns: self.sampling_period_ns,
            }),
            Format::Csv => Box::new(Functions {
                scope,
                table: all_functions(value, &view),
                inlines: false,
            }),
            format if format.is_of_stacks() => Box::new(OneValueOf { scope, tree }),
            _ => Box::new(WholeRecording {
                scope,
                value,
                view,
                measured,
            }),
        })
    }
}

/// The format of a file, by its name.
fn of_name(path: &Path) -> anyhow::Result<Format> {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy())
        .unwrap_or_default();
    Format::of_file(&name).map_err(|endings| {
        anyhow!(
            "the name {} does not tell the format: give --format, or one of the endings {endings}",
            path.display(),
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::{OutputRequest, of_name};
    use crate::api::Format;
    use crate::args::RecordArgs;
    use crate::report::StackValue;

    fn read(
        format: Option<Format>,
        output: Option<&str>,
        value: Option<StackValue>,
    ) -> Result<OutputRequest, String> {
        let args = RecordArgs {
            format,
            output: output.map(Into::into),
            value,
            ..RecordArgs::default()
        };
        OutputRequest::read(&args, 99).map_err(|error| error.to_string())
    }

    // Check that what was typed goes before the file's name, which goes before text, and that - is
    // no file.
    #[test]
    fn formats() {
        let format = |format, output| read(format, output, None).unwrap().format;
        assert_eq!(format(None, None), Format::Text);
        assert_eq!(format(None, Some("-")), Format::Text);
        assert_eq!(format(None, Some("a.svg")), Format::Svg);
        let csv = Some(Format::Csv);
        assert_eq!(format(csv, Some("a.svg")), Format::Csv);
        assert_eq!(format(csv, Some("a")), Format::Csv);
        assert!(read(None, Some("a"), None).is_err());
    }

    // Check that a value without a meaning is refused with the formats that have one.
    #[test]
    fn values() {
        let off = Some(StackValue::OffProcessor);
        let elapsed = Some(StackValue::Elapsed);
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

    // Check that each ending asks for its format, in any case and in any folder, and that other
    // names are refused.
    #[test]
    fn endings() {
        for (name, format) in [
            ("a.svg", Format::Svg),
            ("a.b/c.SVG", Format::Svg),
            ("a.folded", Format::Folded),
            ("a.json", Format::Json),
            ("a.speedscope.json", Format::Speedscope),
            ("a.firefox.json", Format::Firefox),
            ("speedscope.json", Format::Json),
            ("a.pb.gz", Format::Pprof),
            ("a.pprof", Format::Pprof),
            ("a.csv", Format::Csv),
            ("a.txt", Format::Text),
            ("a.profile", Format::Profile),
        ] {
            assert_eq!(of_name(Path::new(name)).unwrap(), format, "{name}");
        }
        for name in ["a", "a.gz", "a.json.gz", "svg", "a.svg/", "..", ""] {
            let found = of_name(Path::new(name));
            // A slash at the end is no part of a name.
            assert_eq!(found.is_err(), name != "a.svg/", "{name}: {found:?}");
        }
    }
}
