//! How a [`Forest`] grows out of the accounts in scope: what each node of a profile's tree stands for.

use std::{borrow::Cow, collections::HashMap, ops::Range};

use profiler_common::StackEnd;

use super::{
    completeness::named_entry,
    fold::Folding,
    forest::{Forest, ForestNode, Function, Label, ROOT, Standing},
    identity::{Identity, functions_at},
    query::Frames,
    scope::{Member, View},
    sections::{Section, Sections},
};
use crate::profile::{
    frames::FrameId,
    over::Span,
    tree::{Node, NodeId, Place},
    values::Values,
};

/// The place of frames that are folded although nothing shown called them.
const HIDDEN: u32 = u32::MAX;

/// What a forest shows.
pub(super) struct Shape<'n> {
    pub(super) frames: Frames,
    pub(super) label: Label<'n>,
    pub(super) folding: Folding,
    pub(super) sections: Sections,
}

impl<'n> Shape<'n> {
    /// All functions, not told apart by process.
    pub(super) fn plain(frames: Frames, label: Label<'n>) -> Self {
        Self {
            frames,
            label,
            folding: Folding::default(),
            sections: Sections::None,
        }
    }
}

/// Takes accounts in, one after the other.
pub(super) struct Grower<'v, 'n> {
    view: &'v View<'v>,
    shape: Shape<'n>,
    pub(super) forest: Forest<'n>,
    /// What each node had at an earlier moment: taken away in the end.
    earlier: Vec<Values>,
    /// The functions that a frame counts as, outermost first: a stretch of `chains`.
    by_frame: HashMap<(FrameId, bool), Range<usize>>,
    chains: Vec<u32>,
    by_name: HashMap<Identity<'n>, u32>,
    children: HashMap<(u32, u32), u32>,
    /// What the stacks of the account that is taken in hang from: the root, or its section.
    base: u32,
}

impl<'v, 'n> Grower<'v, 'n> {
    pub(super) fn new(view: &'v View<'v>, shape: Shape<'n>) -> Self {
        Self {
            view,
            shape,
            forest: Forest::empty(),
            earlier: Vec::new(),
            by_frame: HashMap::new(),
            chains: Vec::new(),
            by_name: HashMap::new(),
            children: HashMap::new(),
            base: ROOT,
        }
    }

    /// Adds what the account received over `span`.
    pub(super) fn add(&mut self, member: &Member<'_>, span: Span) {
        let weights = member.account.weights_over(span);
        self.forest
            .stacks
            .count(member.account, &weights, self.shape.label.names());
        let targets = self.targets(member, &weights);
        for (target, values) in targets.into_iter().zip(&weights) {
            if let Some(target) = target {
                self.forest.nodes[target as usize].own.add(values);
            }
        }
    }

    /// Notes what the account had received at an earlier moment. It is taken away by [`Self::finish`].
    pub(super) fn take_away(&mut self, member: &Member<'_>) {
        let weights = member.account.weights_over(Span::Session);
        let targets = self.targets(member, &weights);
        self.earlier
            .resize(self.forest.nodes.len(), Values::default());
        for (target, values) in targets.into_iter().zip(&weights) {
            if let Some(target) = target {
                self.earlier[target as usize].add(values);
            }
        }
    }

    /// The forest with totals.
    pub(super) fn finish(mut self) -> Forest<'n> {
        if !self.earlier.is_empty() {
            self.subtract();
        }
        let mut forest = self.forest;
        for node in &mut forest.nodes {
            node.total = node.own;
        }
        for index in (1..forest.nodes.len()).rev() {
            let total = forest.nodes[index].total;
            let parent = forest.nodes[index].parent as usize;
            forest.nodes[parent].total.add(&total);
        }
        forest
    }

    /// Takes away what was there earlier. What a node has no longer was folded meanwhile: it went to the remainder of one
    /// of its callers. What is not there either is counted.
    fn subtract(&mut self) {
        self.earlier
            .resize(self.forest.nodes.len(), Values::default());
        let folded = ["[folded]", "[unknown: folded]"].map(|name| {
            let remainder = Function::unknown(Cow::Borrowed(name), Standing::Unnamed);
            self.by_name.get(&Identity::of(&remainder)).copied()
        });
        let nodes = &mut self.forest.nodes;
        let mut left = Vec::new();
        for (index, earlier) in self.earlier.iter_mut().enumerate() {
            nodes[index].own.take(earlier);
            if *earlier != Values::default() {
                left.push((index, *earlier));
            }
        }
        for (index, mut rest) in left {
            let mut at = index as u32;
            while at != ROOT && rest != Values::default() {
                at = nodes[at as usize].parent;
                for function in folded.into_iter().flatten() {
                    if let Some(remainder) = self.children.get(&(at, function)) {
                        nodes[*remainder as usize].own.take(&mut rest);
                    }
                }
            }
            self.forest.shrunk.add(&rest);
        }
    }

    /// The node of the forest that each node of the account's tree counts for, where it has anything.
    fn targets(&mut self, member: &Member<'_>, weights: &[Values]) -> Vec<Option<u32>> {
        let nodes = member.account.nodes();
        let live = live(nodes, weights);
        self.base = self.section(member);
        let hide_kernel = self.shape.frames == Frames::User && !member.kernel_thread;
        let mut places: Vec<u32> = vec![self.base; live.len()];
        let mut targets = vec![None; live.len()];
        for (index, node) in nodes.iter().enumerate().skip(1) {
            if !live[index] {
                continue;
            }
            let place = self.place(places[node.parent.index()], node, hide_kernel);
            places[index] = place;
            if place != HIDDEN {
                targets[index] = Some(place);
            } else if weights[index] != Values::default() {
                targets[index] = Some(self.remark(self.base, "[hidden]"));
            }
        }
        targets
    }

    fn section(&mut self, member: &Member<'_>) -> u32 {
        let Some(section) = Section::of(member, self.shape.sections) else {
            return ROOT;
        };
        let function = self.function(Function {
            section: Some(section.clone()),
            ..Function::unknown(Cow::Owned(section.name), Standing::Remark)
        });
        self.child(ROOT, function)
    }

    /// The node that stands for a profile node below `parent`.
    fn place(&mut self, parent: u32, node: &Node, hide_kernel: bool) -> u32 {
        let outermost = node.parent == NodeId::ROOT;
        match node.place {
            Place::Kernel(_) if hide_kernel && !outermost => parent,
            Place::Kernel(_) if hide_kernel => self.remark(self.base, "[no user stack]"),
            Place::Kernel(frame) => self.frame(parent, frame, true),
            Place::User(frame) if outermost => {
                let parent = self.caller(frame, node.end);
                self.frame(parent, frame, false)
            }
            Place::User(frame) => self.frame(parent, frame, false),
            Place::Lost(cause) => self.unnamed(parent, cause.row_name()),
            Place::Cut => self.unnamed(parent, "[dropped]"),
            Place::Folded { kernel: true } if hide_kernel => parent,
            Place::Folded { .. } => self.unnamed(parent, "[folded]"),
        }
    }

    /// What the outermost known frame hangs from: the base, or a remark that its callers are not known.
    fn caller(&mut self, frame: FrameId, end: StackEnd) -> u32 {
        let StackEnd::Incomplete(failure) = end else {
            return self.base;
        };
        match self.shape.label {
            Label::Modules(_) => self.base,
            label if named_entry(frame, label.names()) => self.base,
            _ => self.remark(self.base, failure.row_name()),
        }
    }

    fn frame(&mut self, parent: u32, frame: FrameId, kernel: bool) -> u32 {
        if self
            .shape
            .folding
            .hides(self.view.snapshot.frame(frame).module)
        {
            return if parent == self.base { HIDDEN } else { parent };
        }
        let chain = match self.by_frame.get(&(frame, kernel)) {
            Some(chain) => chain.clone(),
            None => {
                let from = self.chains.len();
                for function in functions_at(self.view, self.shape.label, frame, kernel) {
                    let number = self.function(function);
                    self.chains.push(number);
                }
                let chain = from..self.chains.len();
                self.by_frame.insert((frame, kernel), chain.clone());
                chain
            }
        };
        chain.fold(parent, |at, index| self.child(at, self.chains[index]))
    }

    fn function(&mut self, function: Function<'n>) -> u32 {
        let functions = &mut self.forest.functions;
        *self
            .by_name
            .entry(Identity::of(&function))
            .or_insert_with(|| {
                functions.push(function);
                u32::try_from(functions.len() - 1).expect("there are no more functions than frames")
            })
    }

    fn unnamed(&mut self, parent: u32, name: &'static str) -> u32 {
        self.special(parent, name, Standing::Unnamed)
    }

    fn remark(&mut self, parent: u32, name: &'static str) -> u32 {
        self.special(parent, name, Standing::Remark)
    }

    fn special(&mut self, parent: u32, name: &'static str, standing: Standing) -> u32 {
        let name = match self.shape.label {
            Label::Functions(_) | Label::Frames(_) | Label::Code(..) => name,
            Label::Modules(_) => "",
        };
        let function = self.function(Function::unknown(Cow::Borrowed(name), standing));
        self.child(parent, function)
    }

    fn child(&mut self, parent: u32, function: u32) -> u32 {
        let parent = if parent == HIDDEN { self.base } else { parent };
        let nodes = &mut self.forest.nodes;
        *self.children.entry((parent, function)).or_insert_with(|| {
            nodes.push(ForestNode::new(parent, function));
            u32::try_from(nodes.len() - 1).expect("the profile's budget keeps nodes far below 2^32")
        })
    }
}

/// Which nodes have received anything, themselves or below.
fn live(nodes: &[Node], weights: &[Values]) -> Vec<bool> {
    let mut live: Vec<bool> = weights
        .iter()
        .map(|values| *values != Values::default())
        .collect();
    for index in (1..nodes.len()).rev() {
        if live[index] {
            live[nodes[index].parent.index()] = true;
        }
    }
    live
}
