//! Chooses USDT points and spans to be followed: from what was written of them and the files that
//! processes have mapped to the places that are to be probed. It reads files of others, which takes
//! a while: not for a thread that serves.

use std::collections::{BTreeMap, HashSet};
use std::fs::File;
use std::sync::Arc;

use profiler_common::spans::{Argument, role};
use thiserror::Error;

use super::choosing::{
    CodeFile, Failures, LookTime, MAX_ITEMS, MAX_POINT_FILES, NotChosen, PutOff,
};
use crate::collect::{MoreFunctions, PlannedItem, PlannedPlace, Traced};
use crate::symbols::chosen::{FilePoint, NoChoice};
use crate::symbols::spans::{
    SpanEndpoint, SpanKey, SpanPlace, SpanText, UsdtText, argument_of, places,
};
use crate::symbols::usdt::{self, ChosenUsdt, UsdtPlace, UsdtRefused};
use crate::sys::code_file::CodeFileIdentity;
use crate::units::FileOffset;

/// Sentences about places of one item in one file that cannot be probed, or not well.
const MAX_SAID: usize = 20;

/// What is to be followed, as it was written.
#[derive(Clone, Debug, Default)]
pub struct Followed {
    usdt: Vec<UsdtText>,
    spans: Vec<SpanText>,
}

/// What is too much, or cannot be told apart.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
pub enum NotFollowed {
    /// More than may be.
    #[error("at most {MAX_ITEMS} of each may be given")]
    TooMany,
    /// Spans are told apart by their names.
    #[error("two spans are called {0}")]
    Twice(String),
}

impl Followed {
    /// These, if they are few enough and spans have names of their own.
    ///
    /// # Errors
    /// [`NotFollowed`].
    pub fn new(usdt: Vec<UsdtText>, spans: Vec<SpanText>) -> Result<Self, NotFollowed> {
        if usdt.len().max(spans.len()) > MAX_ITEMS {
            return Err(NotFollowed::TooMany);
        }
        let mut names = HashSet::new();
        match spans.iter().find(|span| !names.insert(&span.name)) {
            Some(twice) => Err(NotFollowed::Twice(twice.name.clone())),
            None => Ok(Self { usdt, spans }),
        }
    }

    /// Is nothing to be followed?
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.usdt.is_empty() && self.spans.is_empty()
    }
}

/// What was found nowhere.
#[derive(Clone, Copy, Debug)]
pub enum Missing<'a> {
    /// A USDT point.
    Usdt(&'a UsdtText),
    /// Where a span starts or ends.
    End(&'a SpanText, &'a SpanEndpoint),
}

impl Missing<'_> {
    /// The path, where it is a whole one without `*`.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        match self {
            Self::Usdt(text) => text.pattern.path(),
            Self::End(_, end) => end.path(),
        }
    }

    /// As it was written, by the field that it stands in.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Usdt(text) => format!("usdt: {}", text.pattern.text()),
            Self::End(span, end) => format!("spans: {}: {end}", span.name),
        }
    }

    fn names_module(&self) -> bool {
        match self {
            Self::Usdt(text) => text.pattern.names_module(),
            Self::End(_, SpanEndpoint::Usdt(pattern)) => pattern.names_module(),
            Self::End(_, SpanEndpoint::Function(pattern)) => pattern.names_module(),
        }
    }
}

/// Something to be found in files: by its place among what was written.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Sought {
    Usdt(usize),
    Start(usize),
    End(usize),
}

/// See the module.
#[derive(Default)]
pub struct SpanChooser {
    followed: Followed,
    time: LookTime,
    /// Files that were looked through, and for what.
    seen: Vec<(CodeFileIdentity, HashSet<Sought>)>,
    /// What was found somewhere. Of a span: where it can be probed.
    found: HashSet<Sought>,
    /// What is somewhere of that name, be it that it cannot be probed.
    named: HashSet<Sought>,
    /// What a file was looked through for.
    looked: HashSet<Sought>,
    failures: Failures<Sought>,
    /// USDT points that were found, and files with anything that was.
    points: usize,
    files: usize,
}

/// What was found of one file.
#[derive(Default)]
struct FoundPlaces {
    usdt: Vec<(usize, Vec<ChosenUsdt>)>,
    /// Of each end of a span: its places, and what is to be known of others.
    spans: Vec<(Sought, Vec<SpanPlace>, Vec<String>)>,
}

impl SpanChooser {
    /// Nothing was looked at yet; all looks together may take this thread, or another, so much of
    /// its processor time.
    #[must_use]
    pub fn new(followed: Followed, budget_ns: u64) -> Self {
        Self {
            followed,
            time: LookTime::of(budget_ns),
            ..Self::default()
        }
    }

    /// Gives it so much processor time for the next look.
    pub fn allow(&mut self, budget_ns: u64) {
        self.time = LookTime::of(budget_ns);
    }

    /// Whole paths that were written.
    pub fn paths(&self) -> impl Iterator<Item = &str> {
        let usdt = self.followed.usdt.iter().map(|text| text.pattern.path());
        let spans = self.followed.spans.iter();
        let spans = spans.flat_map(|span| [span.start.path(), span.end.path()]);
        usdt.chain(spans).flatten()
    }

    /// Is that file meant by anything that was written?
    #[must_use]
    pub fn is_meant(&self, path: &str) -> bool {
        let mut usdt = self.followed.usdt.iter();
        let mut spans = self.followed.spans.iter();
        usdt.any(|text| text.pattern.is_of_module(path))
            || spans.any(|span| span.start.is_of_module(path) || span.end.is_of_module(path))
    }

    /// All that is sought.
    fn sought(&self) -> impl Iterator<Item = (Sought, Missing<'_>)> {
        let usdt = self.followed.usdt.iter().enumerate();
        let usdt = usdt.map(|(at, text)| (Sought::Usdt(at), Missing::Usdt(text)));
        let spans = self.followed.spans.iter().enumerate();
        let spans = spans.flat_map(|(at, span)| {
            [
                (Sought::Start(at), Missing::End(span, &span.start)),
                (Sought::End(at), Missing::End(span, &span.end)),
            ]
        });
        usdt.chain(spans)
    }

    /// What was found nowhere yet, or nowhere that it can be probed.
    pub fn missing(&self) -> impl Iterator<Item = Missing<'_>> {
        self.sought()
            .filter(|(sought, _)| !self.found.contains(sought))
            .map(|(_, missing)| missing)
    }

    /// What is not in a file that is meant by its name, and was looked through.
    pub fn missing_in_their_files(&self) -> impl Iterator<Item = Missing<'_>> {
        let is_missing =
            |sought: &Sought| !self.named.contains(sought) && self.looked.contains(sought);
        self.sought()
            .filter(move |(sought, missing)| is_missing(sought) && missing.names_module())
            .map(|(_, missing)| missing)
    }

    /// Each span, with no place yet.
    #[must_use]
    pub fn spans(&self) -> Vec<PlannedItem> {
        (0..self.followed.spans.len())
            .map(|at| self.span(at, Vec::new(), Vec::new()))
            .collect()
    }

    /// See [`Chooser::take_failure`](super::choosing::Chooser::take_failure).
    pub fn take_failure(&mut self) -> Option<NotChosen> {
        let found = &self.found;
        let is_found = |sought| found.contains(&sought);
        let nothing_chosen = self.files == 0;
        self.failures.take_fatal(nothing_chosen, is_found)
    }

    /// Adds what is meant of a file, if that was not looked through for it yet. A file in which it
    /// cannot be looked for is a refused row, and so is one with more than may be.
    ///
    /// # Errors
    /// [`PutOff`]; nothing is then added.
    pub fn choose(&mut self, module: &CodeFile, more: &mut MoreFunctions) -> Result<(), PutOff> {
        let wanted: Vec<Sought> = self
            .sought()
            .filter(|(_, of)| match of {
                Missing::Usdt(text) => text.pattern.is_of_module(&module.path),
                Missing::End(_, end) => end.is_of_module(&module.path),
            })
            .map(|(sought, _)| sought)
            .collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let identity = match CodeFileIdentity::of(&module.file) {
            Ok(identity) => identity,
            Err(error) => {
                let why = NotChosen::Unreadable(module.path.clone(), error);
                self.leave_out(wanted[0], module, why, more);
                return Ok(());
            }
        };
        let seen = self
            .seen
            .iter()
            .position(|(file, _)| file.is_same(&identity));
        let is_new = |sought: &Sought| seen.is_none_or(|at| !self.seen[at].1.contains(sought));
        let wanted: Vec<Sought> = wanted.into_iter().filter(is_new).collect();
        if wanted.is_empty() {
            return Ok(());
        }
        let is_whole = self.time.is_whole();
        let mut found = FoundPlaces::default();
        let mut failed = Vec::new();
        let mut looked = Vec::new();
        for sought in wanted.iter().copied() {
            let mut time = self.time;
            let read = time.spend(|left_ns| self.read(&module.file, sought, left_ns, &mut found));
            self.time = time;
            match read {
                Ok(()) => looked.push(sought),
                Err(NoChoice::TooSlow) if !is_whole => return Err(PutOff),
                Err(why) => failed.push((sought, why)),
            }
        }
        match seen {
            Some(at) => self.seen[at].1.extend(wanted),
            None => self.seen.push((identity, wanted.into_iter().collect())),
        }
        self.looked.extend(&looked);
        for (sought, why) in failed {
            let why = NotChosen::File(module.path.clone(), why);
            self.leave_out(sought, module, why, more);
        }
        let mut items = self.items(module, found);
        let is_usdt = |item: &&PlannedItem| matches!(*item.what, Traced::Usdt { .. });
        let points = self.points + items.iter().filter(is_usdt).count();
        let files = self.files + usize::from(items.iter().any(|item| !item.places.is_empty()));
        let too_much = || {
            (points > MAX_ITEMS)
                .then_some(NotChosen::TooManyPoints)
                .or_else(|| (files > MAX_POINT_FILES).then_some(NotChosen::TooManyPointFiles))
        };
        if too_much().is_none() {
            (self.points, self.files) = (points, files);
            more.items.append(&mut items);
            return Ok(());
        }
        for sought in looked {
            if let Some(why) = too_much().filter(|_| self.named.contains(&sought)) {
                self.leave_out(sought, module, why, more);
            }
        }
        Ok(())
    }

    /// Nothing of a file is followed that is meant by this. What is no program, and means nobody
    /// who named a file, is not worth a word.
    fn leave_out(
        &mut self,
        sought: Sought,
        module: &CodeFile,
        why: NotChosen,
        more: &mut MoreFunctions,
    ) {
        let is_no_program = matches!(why, NotChosen::File(_, NoChoice::NoProgram));
        let of = self.sought().find(|(other, _)| *other == sought);
        let Some((_, missing)) = of else {
            return;
        };
        let is_named =
            module.is_named && missing.names_module() || missing.path() == Some(&module.path);
        if is_named || missing.names_module() || !is_no_program {
            more.refused.push(why.row(missing.text(), &module.path));
        }
        if why.is_limit() {
            self.found.insert(sought);
            self.named.insert(sought);
        }
        self.failures.add(sought, why, is_named);
    }

    fn read(
        &self,
        file: &File,
        sought: Sought,
        left_ns: u64,
        found: &mut FoundPlaces,
    ) -> Result<(), NoChoice> {
        let (usdt, spans) = (&self.followed.usdt, &self.followed.spans);
        let mut end = |end: &SpanEndpoint, key: SpanKey| {
            let (places, said) = places(file, end, key, left_ns)?;
            found.spans.push((sought, places, said));
            Ok(())
        };
        match sought {
            Sought::Start(at) => end(&spans[at].start, spans[at].key),
            Sought::End(at) => end(&spans[at].end, spans[at].key),
            Sought::Usdt(at) => {
                let chosen = usdt::choose_within(file, &[&usdt[at].pattern], left_ns)?;
                found.usdt.push((at, chosen));
                Ok(())
            }
        }
    }

    fn items(&mut self, module: &CodeFile, found: FoundPlaces) -> Vec<PlannedItem> {
        let mut items = Vec::new();
        let place = |point: FilePoint, semaphore, roles, argument| PlannedPlace {
            module: module.path.as_str().into(),
            file: Arc::clone(&module.file),
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
                self.failures.forget(Sought::Usdt(at));
                self.named.insert(Sought::Usdt(at));
                let argument = self.followed.usdt[at].argument;
                if !taken.insert((point.provider.clone(), point.name.clone(), argument)) {
                    continue;
                }
                let (mut places, mut said) = (Vec::new(), Vec::new());
                for of in &point.places {
                    let name = format!("{}:{}", point.provider, point.name);
                    match usdt_place(of, argument) {
                        Ok((probed, value)) => {
                            if of.is_unraised {
                                said.push(format!("{name}: {}", usdt::UNRAISED));
                            }
                            places.push(place(probed, of.semaphore, role::HIT, value));
                        }
                        Err(why) => {
                            said.push(format!(
                                "{name} at {:#x} is not followed: {why}",
                                of.address
                            ));
                        }
                    }
                }
                said.truncate(MAX_SAID);
                items.push(PlannedItem {
                    // Spans have the first numbers.
                    id: (self.followed.spans.len() + self.points + items.len()) as u32,
                    what: Arc::new(Traced::Usdt {
                        provider: point.provider,
                        name: point.name,
                        module: module.path.as_str().into(),
                        argument,
                    }),
                    places,
                    said,
                });
            }
        }
        // A place where a span ends and the next one starts is probed once.
        let mut spans: BTreeMap<usize, (BTreeMap<FileOffset, PlannedPlace>, Vec<String>)> =
            BTreeMap::new();
        for (sought, places, said) in found.spans {
            let (at, role) = match sought {
                Sought::Start(at) => (at, role::START),
                Sought::End(at) => (at, role::END),
                Sought::Usdt(_) => continue,
            };
            if !places.is_empty() {
                self.found.insert(sought);
                self.failures.forget(sought);
            }
            if !(places.is_empty() && said.is_empty()) {
                self.named.insert(sought);
                let of = spans.entry(at).or_default();
                of.1.extend(said);
                for found in places {
                    of.0.entry(found.point.offset)
                        .or_insert_with(|| place(found.point, found.semaphore, 0, found.key))
                        .roles |= role;
                }
            }
        }
        for (at, (places, mut said)) in spans {
            said.truncate(MAX_SAID);
            items.push(self.span(at, places.into_values().collect(), said));
        }
        items
    }

    fn span(&self, at: usize, places: Vec<PlannedPlace>, said: Vec<String>) -> PlannedItem {
        let span = &self.followed.spans[at];
        PlannedItem {
            id: at as u32,
            what: Arc::new(Traced::Span {
                name: span.name.clone(),
                start: span.start.to_string(),
                end: span.end.to_string(),
                key: span.key.to_string(),
            }),
            places,
            said,
        }
    }
}

/// Where to probe a place of a USDT point, and where the argument is whose values are taken.
fn usdt_place(of: &UsdtPlace, argument: Option<u8>) -> Result<(FilePoint, Argument), UsdtRefused> {
    let probed = of.point.clone()?;
    let value = argument.map_or(Ok(Argument::NONE), |number| argument_of(of, number))?;
    Ok((probed, value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sys::memory_file::memory_file;

    fn chooser(usdt: &[&str], spans: &[&str]) -> SpanChooser {
        let usdt = usdt.iter().map(|text| text.parse().expect("a point"));
        let spans = spans.iter().map(|text| text.parse().expect("a span"));
        let followed = Followed::new(usdt.collect(), spans.collect());
        SpanChooser::new(followed.expect("few, with names of their own"), u64::MAX)
    }

    fn own_program() -> CodeFile {
        CodeFile::own("/usr/bin/app")
    }

    fn junk(path: &str) -> CodeFile {
        CodeFile::made_up(path, memory_file(b"no program").expect("a file"))
    }

    fn of(chooser: &mut SpanChooser, module: &CodeFile) -> MoreFunctions {
        let mut more = MoreFunctions::default();
        chooser.choose(module, &mut more).expect("time enough");
        more
    }

    // Check that a span that starts at a function of a file and ends at none is planned with the
    // places that there are, that its end is told as missing in that file, and that a USDT point
    // that may be in any file is not.
    #[test]
    fn what_a_file_has_and_has_not() {
        let mut chooser = chooser(
            &["app:nowhere", "app:app:nowhere"],
            &["a=app:*sought_by_tests,app:no_such_function,tid"],
        );
        assert_eq!(chooser.missing().count(), 4);
        assert_eq!(chooser.missing_in_their_files().count(), 0);
        assert!(chooser.is_meant("/lib/any.so"));
        let items = of(&mut chooser, &own_program()).items;
        let [span] = items.as_slice() else {
            panic!("{items:?}")
        };
        assert_eq!(span.id, 0);
        let mut places = span.places.iter();
        assert!(places.all(|place| place.roles == role::START && !place.shared));
        assert!(!span.places.is_empty());
        let missing: Vec<String> = chooser
            .missing_in_their_files()
            .map(|missing| match missing {
                Missing::Usdt(text) => text.pattern.text(),
                Missing::End(span, end) => format!("{}: {end}", span.name),
            })
            .collect();
        assert_eq!(missing, ["app:app:nowhere", "a: app:no_such_function"]);
        assert_eq!(chooser.missing().count(), 3);
        assert!(of(&mut chooser, &own_program()).items.is_empty());
    }

    // Check that a file that the whole time of a look is not enough for is refused, by what was
    // sought in it, and that one that had only a part of it is looked at again.
    #[test]
    fn looking_takes_no_more_than_it_may() {
        let span = "a=app:*sought_by_tests,app:b,tid";
        let mut slow = chooser(&[], &[span]);
        slow.allow(0);
        let refused = of(&mut slow, &own_program()).refused;
        assert_eq!(refused.len(), 2);
        assert!(refused[1].name == "spans: a: app:b" && refused[1].module == "/usr/bin/app");
        assert!(refused[1].why.contains("takes too long"));
        let mut late = chooser(&[], &[span]);
        late.time = LookTime::spent(u64::MAX);
        let mut more = MoreFunctions::default();
        assert_eq!(late.choose(&own_program(), &mut more), Err(PutOff));
        assert!(more.refused.is_empty());
        late.allow(u64::MAX);
        assert_eq!(of(&mut late, &own_program()).items.len(), 1);
    }

    // Check that a file that is no program is met in silence by what may be in any file, that it is
    // a refused row where a file is meant by its name, and a failure where its path was given.
    #[test]
    fn what_is_no_program_is_left_out() {
        let mut of_any = chooser(&["app:*"], &[]);
        assert!(of(&mut of_any, &junk("/tmp/x.so")).refused.is_empty());
        assert!(of_any.take_failure().is_none());
        let mut by_name = chooser(&["x.so:app:*"], &[]);
        let refused = of(&mut by_name, &junk("/tmp/x.so")).refused;
        assert_eq!(refused.len(), 1);
        assert_eq!(refused[0].name, "usdt: x.so:app:*");
        assert!(refused[0].why.contains("no 64-bit program"));
        assert!(by_name.take_failure().is_none());
        let mut by_path = chooser(&["/tmp/x.so:app:*"], &[]);
        assert_eq!(of(&mut by_path, &junk("/tmp/x.so")).refused.len(), 1);
        let failure = by_path.take_failure().expect("its path was given");
        assert!(failure.to_string().starts_with("/tmp/x.so: "), "{failure}");
    }

    // Check that too many of either, and spans of one name, are refused.
    #[test]
    fn what_cannot_be_followed() {
        let usdt: UsdtText = "a:b".parse().expect("a point");
        let span: SpanText = "a=b:c,d:e,tid".parse().expect("a span");
        let refused = |usdt, spans| Followed::new(usdt, spans).expect_err("refused");
        let many = vec![usdt.clone(); MAX_ITEMS + 1];
        assert_eq!(refused(many, Vec::new()), NotFollowed::TooMany);
        let twice = refused(vec![usdt], vec![span.clone(), span]);
        assert_eq!(twice, NotFollowed::Twice("a".to_owned()));
    }
}
