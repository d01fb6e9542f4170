//! USDT points and spans that a recording follows (`--trace-usdt`, `--trace-span`): what was typed,
//! and what is told of it.

use anyhow::{Context as _, anyhow};

use super::progress;
use crate::args::RecordArgs;
use crate::collect::{PlannedItem, Traced};
use crate::stages::spanning::{Followed, Missing, NotFollowed, SpanChooser};
use crate::symbols::spans::{SpanText, UsdtText};

/// What was typed.
///
/// # Errors
/// What cannot be understood, or is too much.
pub(super) fn read(args: &RecordArgs) -> anyhow::Result<Followed> {
    let usdt = args.trace_usdt.iter().map(|text| text.parse());
    let usdt = usdt.collect::<Result<Vec<UsdtText>, _>>();
    let spans = args.trace_span.iter().map(|text| text.parse());
    let spans = spans.collect::<Result<Vec<SpanText>, _>>();
    let (usdt, spans) = (
        usdt.context("--trace-usdt")?,
        spans.context("--trace-span")?,
    );
    Followed::new(usdt, spans).map_err(|why| match why {
        NotFollowed::TooMany => anyhow!("--trace-usdt and --trace-span: {why}"),
        NotFollowed::Twice(_) => anyhow!("--trace-span: {why}"),
    })
}

/// What was found nowhere yet, as it was typed; `known`: whose file is known by its path.
pub(super) fn missing(chooser: &SpanChooser, known: bool) -> Vec<String> {
    let missing = chooser.missing();
    missing
        .filter(|missing| !known || missing.path().is_some())
        .map(|missing| match missing {
            Missing::Usdt(text) => format!("--trace-usdt {}", text.pattern.text()),
            Missing::End(span, end) => format!("--trace-span {}: {end}", span.name),
        })
        .collect()
}

/// Tells what cannot be followed.
pub(super) fn tell(items: &[PlannedItem]) {
    for item in items {
        for why in &item.said {
            progress::say(&match &*item.what {
                Traced::Usdt { .. } => format!("--trace-usdt: {why}"),
                Traced::Span { name, .. } => format!("--trace-span {name}: {why}"),
            });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn typed(usdt: &[&str], spans: &[&str]) -> Result<SpanChooser, String> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let args = RecordArgs {
            trace_usdt: owned(usdt),
            trace_span: owned(spans),
            ..RecordArgs::default()
        };
        let followed = read(&args).map_err(|error| format!("{error:#}"))?;
        Ok(SpanChooser::new(followed, 0))
    }

    // Check that what is missing is told as it was typed, at first only where the file is known,
    // and that what makes no sense is refused by the option's name.
    #[test]
    fn what_is_missing_is_told() {
        let chooser = typed(
            &["/usr/bin/app:app:begin", "app:end"],
            &["request=app:begin,usdt:/usr/bin/app:app:done,tid"],
        )
        .expect("all make sense");
        assert_eq!(
            missing(&chooser, true),
            [
                "--trace-usdt /usr/bin/app:app:begin",
                "--trace-span request: usdt:/usr/bin/app:app:done"
            ]
        );
        assert_eq!(missing(&chooser, false).len(), 4);
        let paths: Vec<&str> = chooser.paths().collect();
        assert_eq!(paths, ["/usr/bin/app", "/usr/bin/app"]);
        let why = |usdt: &[&str], spans: &[&str]| typed(usdt, spans).err().expect("refused");
        assert!(why(&["app"], &[]).starts_with("--trace-usdt: "));
        assert!(why(&[], &["a=b:c,d:e"]).starts_with("--trace-span: "));
        let twice = why(&[], &["a=b:c,d:e,tid", "a=b:c,d:f,tid"]);
        assert!(twice.contains("two spans are called a"), "{twice}");
    }
}
