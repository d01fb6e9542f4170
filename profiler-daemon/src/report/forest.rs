//! The call trees in scope as one tree of functions: stacks that differ only in the place within a function, or in frames
//! that are not shown, become one. All reports on functions, modules and call trees are made from it.
//!
//! Nodes that stand for no function: `[unknown: cause]` (the stack was lost), `[dropped]` (no room for the rest of the
//! stack), `[folded]` (the rest of the stack gave its room to others), `[incomplete: reason]` (what called the outermost known frame
//! is not known) and `[no user stack]` (user frames asked for, only kernel frames seen).

use std::{borrow::Cow, collections::HashMap};

use profiler_common::StackEnd;

use super::{
    completeness::{Seen, Stacks, named_entry},
    query::Frames,
    scope::{Member, View},
    values::percent,
};
use crate::{
    processes::module::ModuleId,
    profile::{
        frames::FrameId,
        tree::{Node, Place},
        values::Values,
    },
    report::names::Names,
    symbols::names::FunctionKind,
};

/// The root of every forest.
const ROOT: u32 = 0;
/// The function of the root.
const NO_FUNCTION: u32 = u32::MAX;

/// What counts as one function.
#[derive(Clone, Copy)]
pub(super) enum Label<'n> {
    /// A name in a module.
    Functions(&'n dyn Names),
    /// The whole module.
    Modules,
}

/// A function (or a module), by its index in [`Forest::functions`].
pub(super) struct Function<'n> {
    pub(super) module: ModuleId,
    pub(super) name: Cow<'n, str>,
    pub(super) address: Option<u64>,
    pub(super) kind: FunctionKind,
    standing: Standing,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Standing {
    Named,
    Unnamed,
    /// Not a frame at all: it says something about the stack.
    Remark,
}

/// A function called from one place in the tree.
pub(super) struct ForestNode {
    pub(super) parent: u32,
    pub(super) function: u32,
    pub(super) own: Values,
    pub(super) total: Values,
}

/// See the module.
pub(super) struct Forest<'n> {
    pub(super) functions: Vec<Function<'n>>,
    /// Root first, parents before children.
    pub(super) nodes: Vec<ForestNode>,
    stacks: Stacks,
}

impl<'n> Forest<'n> {
    pub(super) fn new(view: &View<'_>, frames: Frames, label: Label<'n>) -> Self {
        let mut builder = Builder {
            view,
            label,
            forest: Self {
                functions: Vec::new(),
                nodes: vec![ForestNode::new(ROOT, NO_FUNCTION)],
                stacks: Stacks::default(),
            },
            by_frame: HashMap::new(),
            by_name: HashMap::new(),
            children: HashMap::new(),
        };
        for member in &view.members {
            builder.add(member, frames);
        }
        let mut forest = builder.forest;
        for index in (1..forest.nodes.len()).rev() {
            let total = forest.nodes[index].total;
            let parent = forest.nodes[index].parent as usize;
            forest.nodes[parent].total.add(&total);
        }
        forest
    }

    /// What each function received itself.
    pub(super) fn exclusive(&self) -> Vec<Values> {
        let mut exclusive = vec![Values::default(); self.functions.len()];
        for node in &self.nodes[1..] {
            exclusive[node.function as usize].add(&node.own);
        }
        exclusive
    }

    /// What each function received with everything it called. A stack counts once, however often the function is on it.
    pub(super) fn inclusive(&self) -> Vec<Values> {
        let mut inclusive = vec![Values::default(); self.functions.len()];
        let mut on_path = vec![0u32; self.functions.len()];
        let children = self.children();
        let mut steps: Vec<Step> = children.of(ROOT).map(Step::Enter).collect();
        while let Some(step) = steps.pop() {
            match step {
                Step::Enter(index) => {
                    let node = &self.nodes[index as usize];
                    let function = node.function as usize;
                    if on_path[function] == 0 {
                        inclusive[function].add(&node.total);
                    }
                    on_path[function] += 1;
                    steps.push(Step::Leave(node.function));
                    steps.extend(children.of(index).map(Step::Enter));
                }
                Step::Leave(function) => on_path[function as usize] -= 1,
            }
        }
        inclusive
    }

    /// What the receipt needs to know of the stacks.
    pub(super) fn seen(&self, view: &View<'_>) -> Seen {
        let attributed_ns = self.nodes[0].total.elapsed_ns();
        Seen {
            stacks: self.stacks,
            unattributed_ns: view.totals().elapsed_ns().saturating_sub(attributed_ns),
            frames_unknown_percent: self.frames_unknown_percent(),
        }
    }

    /// Frames weighted by time, or by samples where no time was measured.
    fn frames_unknown_percent(&self) -> f64 {
        let share = |weight: fn(&Values) -> u64| {
            let (mut all, mut unnamed) = (0u64, 0u64);
            for node in &self.nodes[1..] {
                let weight = weight(&node.total);
                match self.functions[node.function as usize].standing {
                    Standing::Named => all = all.saturating_add(weight),
                    Standing::Unnamed => {
                        all = all.saturating_add(weight);
                        unnamed = unnamed.saturating_add(weight);
                    }
                    Standing::Remark => {}
                }
            }
            (all > 0).then(|| percent(unnamed, all))
        };
        share(Values::elapsed_ns)
            .or_else(|| share(|values| values.samples))
            .unwrap_or_default()
    }

    fn children(&self) -> Children {
        let mut children = Children {
            first: vec![ROOT; self.nodes.len()],
            next: vec![ROOT; self.nodes.len()],
        };
        for (index, node) in self.nodes.iter().enumerate().skip(1) {
            let parent = node.parent as usize;
            children.next[index] = children.first[parent];
            children.first[parent] = u32::try_from(index).expect("nodes are numbered by u32");
        }
        children
    }
}

enum Step {
    Enter(u32),
    Leave(u32),
}

/// The children of each node as linked lists; the root is nobody's child and ends them.
struct Children {
    first: Vec<u32>,
    next: Vec<u32>,
}

impl Children {
    fn of(&self, parent: u32) -> impl Iterator<Item = u32> {
        let listed = |index: u32| (index != ROOT).then_some(index);
        std::iter::successors(listed(self.first[parent as usize]), move |index| {
            listed(self.next[*index as usize])
        })
    }
}

impl ForestNode {
    fn new(parent: u32, function: u32) -> Self {
        Self {
            parent,
            function,
            own: Values::default(),
            total: Values::default(),
        }
    }
}

struct Builder<'v, 'n> {
    view: &'v View<'v>,
    label: Label<'n>,
    forest: Forest<'n>,
    by_frame: HashMap<(FrameId, bool), u32>,
    by_name: HashMap<(ModuleId, Cow<'n, str>), u32>,
    children: HashMap<(u32, u32), u32>,
}

impl<'n> Builder<'_, 'n> {
    fn add(&mut self, member: &Member<'_>, frames: Frames) {
        let weights = member.account.weights_over(self.view.coverage.span);
        let names = match self.label {
            Label::Functions(names) => Some(names),
            Label::Modules => None,
        };
        self.forest.stacks.count(
            member.account,
            &weights,
            names.map(|names| names as &dyn Names),
        );
        let live = live(member.account.nodes(), &weights);
        let hide_kernel = frames == Frames::User && !member.kernel_thread;
        let mut places: Vec<u32> = vec![ROOT; live.len()];
        for (index, node) in member.account.nodes().iter().enumerate().skip(1) {
            if !live[index] {
                continue;
            }
            let parent = places[node.parent.index()];
            let place = self.place(parent, node, hide_kernel);
            places[index] = place;
            let target = &mut self.forest.nodes[place as usize];
            target.own.add(&weights[index]);
            target.total.add(&weights[index]);
        }
    }

    /// The node that stands for a profile node below `parent`.
    fn place(&mut self, parent: u32, node: &Node, hide_kernel: bool) -> u32 {
        match node.place {
            Place::Kernel(_) if hide_kernel && parent != ROOT => parent,
            Place::Kernel(_) if hide_kernel => self.remark(parent, "[no user stack]"),
            Place::Kernel(frame) => self.frame(parent, frame, true),
            Place::User(frame) if parent == ROOT => {
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

    /// What the outermost known frame hangs from: the root, or a remark that its callers are not known.
    fn caller(&mut self, frame: FrameId, end: StackEnd) -> u32 {
        let StackEnd::Incomplete(failure) = end else {
            return ROOT;
        };
        match self.label {
            Label::Functions(names) if !named_entry(frame, Some(names)) => {
                self.remark(ROOT, failure.row_name())
            }
            _ => ROOT,
        }
    }

    fn frame(&mut self, parent: u32, frame: FrameId, kernel: bool) -> u32 {
        let function = match self.by_frame.get(&(frame, kernel)) {
            Some(function) => *function,
            None => {
                let function = self.function_of(frame, kernel);
                self.by_frame.insert((frame, kernel), function);
                function
            }
        };
        self.child(parent, function)
    }

    fn function_of(&mut self, frame: FrameId, kernel: bool) -> u32 {
        let module = self.view.snapshot.frame(frame).module;
        let kind_of = |kind| if kernel { FunctionKind::Kernel } else { kind };
        let function = match self.label {
            Label::Functions(names) => {
                let function = names.function(frame);
                Function {
                    module,
                    name: Cow::Borrowed(&*function.name),
                    address: function.address,
                    kind: kind_of(function.kind),
                    standing: if function.known {
                        Standing::Named
                    } else {
                        Standing::Unnamed
                    },
                }
            }
            Label::Modules => Function {
                module,
                name: Cow::Borrowed(""),
                address: None,
                kind: self.view.snapshot.module(module).kind.into(),
                standing: if module == ModuleId::UNKNOWN {
                    Standing::Unnamed
                } else {
                    Standing::Named
                },
            },
        };
        self.function(function)
    }

    fn function(&mut self, function: Function<'n>) -> u32 {
        let functions = &mut self.forest.functions;
        *self
            .by_name
            .entry((function.module, function.name.clone()))
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
        let name = match self.label {
            Label::Functions(_) => name,
            Label::Modules => "",
        };
        let function = self.function(Function {
            module: ModuleId::UNKNOWN,
            name: Cow::Borrowed(name),
            address: None,
            kind: FunctionKind::Unknown,
            standing,
        });
        self.child(parent, function)
    }

    fn child(&mut self, parent: u32, function: u32) -> u32 {
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

/// The name of a kind in reports.
pub(super) fn kind_name(kind: FunctionKind) -> &'static str {
    match kind {
        FunctionKind::User => "user",
        FunctionKind::Kernel => "kernel",
        FunctionKind::Jit => "jit",
        FunctionKind::Unknown => "unknown",
    }
}
