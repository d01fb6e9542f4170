//! USDT points and spans that a recording follows (`--trace-usdt`, `--trace-span`): what was typed,
//! and what is told of it.

use anyhow::{Context as _, anyhow};

use super::progress;
use crate::args::RecordArgs;
use crate::collect::{PlannedItem, Traced};
use crate::stages::choosing::CodeFile;
use crate::stages::spanning::{Followed, Missing, NotFollowed, SpanChooser};
use crate::symbols::chosen::BUDGET_NS;
use crate::symbols::spans::{SpanText, UsdtText};

/// See the module.
#[derive(Default)]
pub(super) struct Spanned {
    chooser: SpanChooser,
}

impl Spanned {
    /// What was typed.
    ///
    /// # Errors
    /// What cannot be understood, or is too much.
    pub(super) fn read(args: &RecordArgs) -> anyhow::Result<Self> {
        let usdt = args.trace_usdt.iter().map(|text| text.parse());
        let usdt = usdt.collect::<Result<Vec<UsdtText>, _>>();
        let spans = args.trace_span.iter().map(|text| text.parse());
        let spans = spans.collect::<Result<Vec<SpanText>, _>>();
        let (usdt, spans) = (
            usdt.context("--trace-usdt")?,
            spans.context("--trace-span")?,
        );
        let followed = Followed::new(usdt, spans).map_err(|why| match why {
            NotFollowed::TooMany => anyhow!("--trace-usdt and --trace-span: {why}"),
            NotFollowed::Twice(_) => anyhow!("--trace-span: {why}"),
        });
        Ok(Self {
            chooser: SpanChooser::new(followed?, BUDGET_NS),
        })
    }

    /// Whole paths that were typed.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        self.chooser.paths()
    }

    /// Is that file meant by anything that was typed?
    pub(super) fn is_meant(&self, path: &str) -> bool {
        self.chooser.is_meant(path)
    }

    /// What was found nowhere yet, as it was typed; `known`: whose file is known by its path.
    pub(super) fn missing(&self, known: bool) -> Vec<String> {
        let missing = self.chooser.missing();
        missing
            .filter(|missing| !known || missing.path().is_some())
            .map(|missing| match missing {
                Missing::Usdt(text) => format!("--trace-usdt {}", text.pattern.text()),
                Missing::End(span, end) => format!("--trace-span {}: {end}", span.name),
            })
            .collect()
    }

    /// What is meant of files that were not looked at yet; what cannot be followed is told at once.
    /// Answers the files too.
    ///
    /// # Errors
    /// A file cannot be looked through, or too much is meant.
    pub(super) async fn plan(
        &mut self,
        modules: Vec<CodeFile>,
    ) -> anyhow::Result<(Vec<CodeFile>, Vec<PlannedItem>)> {
        let mut chooser = std::mem::take(&mut self.chooser);
        // It may take a second: signals are heard meanwhile.
        let chosen = tokio::task::spawn_blocking(move || {
            let mut items = Vec::new();
            for module in &modules {
                chooser.allow(BUDGET_NS);
                match chooser.choose(module) {
                    Ok(chosen) => {
                        items.extend(chosen.into_iter().map(|item| (module.path.clone(), item)));
                    }
                    Err(why) => return (chooser, Err(why)),
                }
            }
            (chooser, Ok((modules, items)))
        });
        let (chooser, chosen) = chosen.await.context("looking for USDT points failed")?;
        self.chooser = chooser;
        let (modules, items) =
            chosen.map_err(|why| anyhow!("--trace-usdt, --trace-span: {why}"))?;
        for (path, item) in &items {
            for why in &item.said {
                match &*item.what {
                    Traced::Usdt { .. } => progress::say(&format!("--trace-usdt: {why}")),
                    Traced::Span { .. } => progress::say(&format!("{path}: {why}")),
                }
            }
        }
        Ok((modules, items.into_iter().map(|(_, item)| item).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(usdt: &[&str], spans: &[&str]) -> Result<Spanned, String> {
        let owned = |texts: &[&str]| texts.iter().map(|text| (*text).to_owned()).collect();
        let args = RecordArgs {
            trace_usdt: owned(usdt),
            trace_span: owned(spans),
            ..RecordArgs::default()
        };
        Spanned::read(&args).map_err(|error| format!("{error:#}"))
    }

    // Check that what is missing is told as it was typed, at first only where the file is known,
    // and that what makes no sense is refused by the option's name.
    #[test]
    fn what_is_missing_is_told() {
        let spanned = read(
            &["/usr/bin/app:app:begin", "app:end"],
            &["request=app:begin,usdt:/usr/bin/app:app:done,tid"],
        )
        .expect("all make sense");
        assert_eq!(
            spanned.missing(true),
            [
                "--trace-usdt /usr/bin/app:app:begin",
                "--trace-span request: usdt:/usr/bin/app:app:done"
            ]
        );
        assert_eq!(spanned.missing(false).len(), 4);
        let paths: Vec<&str> = spanned.paths().collect();
        assert_eq!(paths, ["/usr/bin/app", "/usr/bin/app"]);
        let why = |usdt: &[&str], spans: &[&str]| read(usdt, spans).err().expect("refused");
        assert!(why(&["app"], &[]).starts_with("--trace-usdt: "));
        assert!(why(&[], &["a=b:c,d:e"]).starts_with("--trace-span: "));
        let twice = why(&[], &["a=b:c,d:e,tid", "a=b:c,d:f,tid"]);
        assert!(twice.contains("two spans are called a"), "{twice}");
    }
}
