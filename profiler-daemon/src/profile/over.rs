//! What an account weighs over the session or over its last segments: the one place that knows where weights come from.
//! Reports never see the difference.

use std::{borrow::Cow, collections::BTreeMap};

use super::{
    account::{AccountView, Open},
    calls::CallTotals,
    segments::{FOLDED, What},
    threads::Thread,
    tree::Node,
    values::{Totals, Values, add_classes},
};
use crate::processes::ids::ThreadKey;

/// What a report covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Span {
    /// Everything since the session began.
    Session,
    /// The segments from this number on.
    Since(u32),
}

/// The threads of an account over a [`Span`].
#[derive(Debug)]
pub struct ThreadsOver<'a> {
    /// A row per thread that is still known.
    pub rows: Vec<(ThreadKey, &'a Thread, Totals)>,
    /// The other threads together.
    pub folded: Totals,
    /// How many those are, in the whole session.
    pub folded_count: u64,
}

impl ThreadsOver<'_> {
    /// Rows and folded threads together.
    #[must_use]
    pub fn total(&self) -> Totals {
        let mut total = self.folded;
        for (_, _, totals) in &self.rows {
            total.add(totals);
        }
        total
    }
}

impl AccountView {
    /// The call tree's nodes, root first, parents before children.
    #[must_use]
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// How many threads it has or had.
    #[must_use]
    pub fn thread_count(&self) -> u64 {
        self.threads.len() as u64 + self.folded.count
    }

    /// What each node received itself, by node number, open intervals included.
    #[must_use]
    pub fn weights_over(&self, span: Span) -> Vec<Values> {
        let mut weights = match span {
            Span::Session => self.weights.to_vec(),
            Span::Since(first) => {
                let mut weights = vec![Values::default(); self.nodes.len()];
                for segment in self.ring.since(first) {
                    for (node, values) in &segment.nodes {
                        weights[node.index()].add(values);
                    }
                }
                weights
            }
        };
        weights.resize(self.nodes.len(), Values::default());
        for open in self.open_over(span) {
            add_classes(&mut weights[open.leaf.index()].classes, &open.classes);
        }
        weights
    }

    /// The exact totals of each thread.
    #[must_use]
    pub fn threads_over(&self, span: Span) -> ThreadsOver<'_> {
        let mut by_index = self.totals_by_index(span);
        for open in self.open_over(span) {
            add_classes(
                &mut by_index.entry(open.thread).or_default().attributed,
                &open.classes,
            );
        }
        let rows = self
            .threads
            .iter()
            .map(|(key, thread)| {
                (
                    *key,
                    thread,
                    by_index.remove(&thread.index).unwrap_or_default(),
                )
            })
            .collect();
        let mut folded = Totals::default();
        for totals in by_index.values() {
            folded.add(totals);
        }
        ThreadsOver {
            rows,
            folded,
            folded_count: self.folded.count,
        }
    }

    /// System calls by number.
    #[must_use]
    pub fn calls_over(&self, span: Span) -> Cow<'_, BTreeMap<u32, CallTotals>> {
        match span {
            Span::Session => Cow::Borrowed(&self.calls),
            Span::Since(first) => {
                let mut calls: BTreeMap<u32, CallTotals> = BTreeMap::new();
                for segment in self.ring.since(first) {
                    for (number, totals) in &segment.calls {
                        calls.entry(*number).or_default().add(totals);
                    }
                }
                Cow::Owned(calls)
            }
        }
    }

    fn totals_by_index(&self, span: Span) -> BTreeMap<u32, Totals> {
        let mut by_index: BTreeMap<u32, Totals> = BTreeMap::new();
        match span {
            Span::Session => {
                by_index.extend(
                    self.threads
                        .values()
                        .map(|thread| (thread.index, thread.totals)),
                );
                by_index.insert(FOLDED, self.folded.totals);
            }
            Span::Since(first) => {
                for segment in self.ring.since(first) {
                    for (thread, what, cell) in segment.cells() {
                        let totals = by_index.entry(thread).or_default();
                        match what {
                            What::Class(class) => {
                                totals.classes[class] += cell.total;
                                totals.attributed[class] += cell.attributed;
                            }
                            What::Unobserved => totals.unobserved_ns += cell.total,
                            What::Samples => totals.samples += cell.total,
                        }
                    }
                }
            }
        }
        by_index
    }

    /// The open intervals, cut to the span.
    fn open_over(&self, span: Span) -> impl Iterator<Item = Open> {
        self.open.iter().map(move |open| match span {
            Span::Session => *open,
            Span::Since(first) => Open {
                classes: self.ring.open_since(first, open.thread, &open.classes),
                ..*open
            },
        })
    }
}
