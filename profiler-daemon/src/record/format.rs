//! Which format a file's name asks for.

use std::path::Path;

use crate::args::RecordFormat;
use crate::export::saved::ENDING;

/// Endings of names. The first that fits decides, so longer ones stand before those they end in.
const ENDINGS: [(&str, RecordFormat); 10] = [
    (".speedscope.json", RecordFormat::Speedscope),
    (".firefox.json", RecordFormat::Firefox),
    (".json", RecordFormat::Json),
    (".pb.gz", RecordFormat::Pprof),
    (".pprof", RecordFormat::Pprof),
    (".svg", RecordFormat::Svg),
    (".folded", RecordFormat::Folded),
    (".csv", RecordFormat::Csv),
    (".txt", RecordFormat::Text),
    (ENDING, RecordFormat::Profile),
];

/// The format that the ending of a file's name asks for.
///
/// # Errors
/// A sentence that lists the endings, where it has none of them.
pub(super) fn of_name(path: &Path) -> Result<RecordFormat, String> {
    let name = path
        .file_name()
        .map(|name| name.to_string_lossy().to_lowercase())
        .unwrap_or_default();
    let found = ENDINGS.iter().find(|(ending, _)| name.ends_with(ending));
    found.map(|(_, format)| *format).ok_or_else(|| {
        let endings: Vec<&str> = ENDINGS.iter().map(|(ending, _)| *ending).collect();
        format!(
            "the name {} does not tell the format: give --format, or one of the endings {}",
            path.display(),
            endings.join(" ")
        )
    })
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::of_name;
    use crate::args::RecordFormat;

    // Check that each ending asks for its format, in any case and in any folder, and that other names are refused.
    #[test]
    fn endings() {
        for (name, format) in [
            ("a.svg", RecordFormat::Svg),
            ("a.b/c.SVG", RecordFormat::Svg),
            ("a.folded", RecordFormat::Folded),
            ("a.json", RecordFormat::Json),
            ("a.speedscope.json", RecordFormat::Speedscope),
            ("a.firefox.json", RecordFormat::Firefox),
            ("speedscope.json", RecordFormat::Json),
            ("a.pb.gz", RecordFormat::Pprof),
            ("a.pprof", RecordFormat::Pprof),
            ("a.csv", RecordFormat::Csv),
            ("a.txt", RecordFormat::Text),
            ("a.profile", RecordFormat::Profile),
        ] {
            assert_eq!(of_name(Path::new(name)), Ok(format), "{name}");
        }
        for name in ["a", "a.gz", "a.json.gz", "svg", "a.svg/", "..", ""] {
            let found = of_name(Path::new(name));
            // A slash at the end is no part of a name.
            assert_eq!(found.is_err(), name != "a.svg/", "{name}: {found:?}");
        }
    }
}
