//! USDT points and spans that a recording follows (`--trace-usdt`, `--trace-span`): found in the
//! files of the programs, and handed over to be probed.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::os::unix::fs::MetadataExt as _;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use profiler_common::spans::{Argument, role};

use super::progress;
use crate::args::RecordArgs;
use crate::collect::{PlannedItem, PlannedPlace, Traced};
use crate::stages::choosing::Module;
use crate::symbols::chosen::{FilePoint, NoChoice};
use crate::symbols::spans::{Endpoint, Key, SpanText, UsdtText, argument_of, places};
use crate::symbols::usdt::{self, ChosenUsdt};

/// Most USDT points that may be meant, and most spans.
const MAX_ITEMS: usize = 256;
/// Sentences about places of one file that cannot be probed, or not well.
const MAX_SAID: usize = 20;

/// See the module.
#[derive(Default)]
pub(super) struct Spanned {
    usdt: Vec<UsdtText>,
    spans: Vec<SpanText>,
    /// Files that were looked through: device and inode.
    seen: HashSet<(u64, u64)>,
    /// What was found somewhere.
    found: HashSet<Sought>,
    /// The number of the next item; spans have the first ones.
    next_id: u32,
}

/// Something to be found in files: by its place among what was typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Sought {
    Usdt(usize),
    Start(usize),
    End(usize),
}

/// What was found of one file.
struct Found {
    usdt: Vec<(usize, Vec<ChosenUsdt>)>,
    /// Of each span: its places, with what is done there.
    spans: Vec<(Sought, Vec<crate::symbols::spans::SpanPlace>)>,
    said: Vec<String>,
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
        if usdt.len().max(spans.len()) > MAX_ITEMS {
            return Err(anyhow!(
                "--trace-usdt and --trace-span: at most {MAX_ITEMS} of each may be given"
            ));
        }
        let mut names = HashSet::new();
        if let Some(twice) = spans.iter().find(|span| !names.insert(&span.name)) {
            return Err(anyhow!("--trace-span: two spans are called {}", twice.name));
        }
        Ok(Self {
            next_id: spans.len() as u32,
            usdt,
            spans,
            ..Self::default()
        })
    }

    /// Whole paths that were typed.
    pub(super) fn paths(&self) -> impl Iterator<Item = &str> {
        let usdt = self.usdt.iter().map(|text| text.pattern.path());
        let spans = self.spans.iter();
        let spans = spans.flat_map(|span| [span.start.path(), span.end.path()]);
        usdt.chain(spans).flatten()
    }

    /// Is that file meant by anything that was typed?
    pub(super) fn is_meant(&self, path: &str) -> bool {
        let mut usdt = self.usdt.iter();
        let mut spans = self.spans.iter();
        usdt.any(|text| text.pattern.is_of_module(path))
            || spans.any(|span| span.start.is_of_module(path) || span.end.is_of_module(path))
    }

    /// What was found nowhere yet, as it was typed; `known`: whose file is known by its path.
    pub(super) fn missing(&self, known: bool) -> Vec<String> {
        let is_missing = |sought: Sought| !self.found.contains(&sought);
        let usdt = self.usdt.iter().enumerate();
        let usdt = usdt
            .filter(|(at, text)| {
                is_missing(Sought::Usdt(*at)) && (!known || text.pattern.path().is_some())
            })
            .map(|(_, text)| format!("--trace-usdt {}", text.pattern.text()));
        let spans = self.spans.iter().enumerate().flat_map(|(at, span)| {
            let ends = [
                (Sought::Start(at), &span.start),
                (Sought::End(at), &span.end),
            ];
            ends.into_iter()
                .filter(|(sought, end)| is_missing(*sought) && (!known || end.path().is_some()))
                .map(|(_, end)| format!("--trace-span {}: {end}", span.name))
        });
        usdt.chain(spans).collect()
    }

    /// What is meant of a file that was not looked at yet.
    ///
    /// # Errors
    /// The file cannot be looked through, or too much is meant.
    pub(super) async fn plan(&mut self, module: &Module) -> anyhow::Result<Vec<PlannedItem>> {
        let metadata = module.file.metadata();
        let metadata = metadata.with_context(|| format!("cannot look at {}", module.path))?;
        let usdt = self.usdt.iter().enumerate();
        let usdt: Vec<(usize, UsdtText)> = usdt
            .filter(|(_, text)| text.pattern.is_of_module(&module.path))
            .map(|(at, text)| (at, text.clone()))
            .collect();
        let ends = self.spans.iter().enumerate().flat_map(|(at, span)| {
            let both = [
                (Sought::Start(at), &span.start),
                (Sought::End(at), &span.end),
            ];
            both.map(|(sought, end)| (sought, end.clone(), span.key))
        });
        let ends: Vec<(Sought, Endpoint, Key)> = ends
            .filter(|(_, end, _)| end.is_of_module(&module.path))
            .collect();
        if usdt.is_empty() && ends.is_empty() || !self.seen.insert((metadata.dev(), metadata.ino()))
        {
            return Ok(Vec::new());
        }
        // It may take a second: signals are heard meanwhile.
        let file = Arc::new(module.file.try_clone()?);
        let of = Arc::clone(&file);
        let found = tokio::task::spawn_blocking(move || look(&of, &usdt, ends));
        let found = found.await.context("looking for USDT points failed")?;
        let found =
            found.with_context(|| format!("--trace-usdt, --trace-span: {}", module.path))?;
        for why in found.said.iter().take(MAX_SAID) {
            progress::say(&format!("{}: {why}", module.path));
        }
        let items = self.items(module, &file, found);
        if self.next_id as usize > 2 * MAX_ITEMS {
            return Err(anyhow!(
                "--trace-usdt: more than {MAX_ITEMS} USDT points are meant"
            ));
        }
        Ok(items)
    }

    fn items(&mut self, module: &Module, file: &Arc<File>, found: Found) -> Vec<PlannedItem> {
        let mut items = Vec::new();
        let place = |point: FilePoint, semaphore, roles, argument| PlannedPlace {
            module: module.path.as_str().into(),
            file: Arc::clone(file),
            shared: !module.is_program,
            offset: point.offset,
            stepped: point.stepped,
            semaphore,
            roles,
            argument,
        };
        let mut taken = HashSet::new();
        for (at, chosen) in found.usdt {
            for point in chosen {
                self.found.insert(Sought::Usdt(at));
                let argument = self.usdt[at].argument;
                if !taken.insert((point.provider.clone(), point.name.clone(), argument)) {
                    continue;
                }
                let mut places = Vec::new();
                for of in &point.places {
                    let value =
                        argument.map_or(Ok(Argument::NONE), |number| argument_of(of, number));
                    let probed = of.point.clone().map_err(|why| why.to_string());
                    match probed.and_then(|probed| Ok((probed, value?))) {
                        Ok((probed, value)) => {
                            if of.is_unraised {
                                progress::say(&format!(
                                    "--trace-usdt: {}:{}: {}",
                                    point.provider,
                                    point.name,
                                    usdt::UNRAISED
                                ));
                            }
                            places.push(place(probed, of.semaphore, role::HIT, value));
                        }
                        Err(why) => progress::say(&format!(
                            "--trace-usdt: {}:{} at {:#x} is not followed: {why}",
                            point.provider, point.name, of.address
                        )),
                    }
                }
                items.push(PlannedItem {
                    id: self.next_id,
                    what: Arc::new(Traced::Usdt {
                        provider: point.provider,
                        name: point.name,
                        module: module.path.as_str().into(),
                        argument,
                    }),
                    places,
                });
                self.next_id += 1;
            }
        }
        // A place where a span ends and the next one starts is probed once.
        let mut spans: BTreeMap<usize, BTreeMap<u64, PlannedPlace>> = BTreeMap::new();
        for (sought, places) in found.spans {
            let (at, role) = match sought {
                Sought::Start(at) => (at, role::START),
                Sought::End(at) => (at, role::END),
                Sought::Usdt(_) => continue,
            };
            for found in places {
                self.found.insert(sought);
                let of = spans.entry(at).or_default().entry(found.point.offset);
                of.or_insert_with(|| place(found.point, found.semaphore, 0, found.key))
                    .roles |= role;
            }
        }
        for (at, places) in spans {
            let span = &self.spans[at];
            items.push(PlannedItem {
                id: at as u32,
                what: Arc::new(Traced::Span {
                    name: span.name.clone(),
                    start: span.start.to_string(),
                    end: span.end.to_string(),
                    key: span.key.to_string(),
                }),
                places: places.into_values().collect(),
            });
        }
        items
    }
}

/// All that is meant of a file.
fn look(
    file: &File,
    usdt: &[(usize, UsdtText)],
    ends: Vec<(Sought, Endpoint, Key)>,
) -> Result<Found, NoChoice> {
    let mut found = Found {
        usdt: Vec::new(),
        spans: Vec::new(),
        said: Vec::new(),
    };
    for (at, text) in usdt {
        found
            .usdt
            .push((*at, usdt::choose(file, &[&text.pattern])?));
    }
    for (sought, end, key) in ends {
        let (places, said) = places(file, &end, key)?;
        found.spans.push((sought, places));
        found.said.extend(said);
    }
    Ok(found)
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
