//! The call trees in scope as one tree of functions: stacks that differ only in the place within a
//! function, or in frames that are not shown, become one. All reports on functions, modules and
//! call trees are made from it.
//!
//! Nodes that stand for no function: `[unknown: cause]` (the stack was lost), `[dropped]` (no room
//! for the rest of the stack), `[folded]` (the rest of the stack gave its room to others),
//! `[incomplete: reason]` (what called the outermost known frame is not known), `[no user stack]`
//! (user frames asked for, only kernel frames seen), and `[hidden]` (frames that are not shown,
//! called by none that is).

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashSet},
};

use profiler_common::kinds::Primary;

use super::{
    accuracy::Accuracy,
    completeness::Unknown,
    divided::Divided,
    figures::Figures,
    node::{MergedNode, ROOT},
    product::Values,
    sections::StackSection,
    walks::{DataLosses, Stacks},
};
use crate::{
    processes::module::ModuleId,
    report::names::{Lines, Names},
    symbols::{
        lines::{NoLine, SourceLine},
        names::FunctionKind,
    },
    units::{ModuleAddress, ModuleOffset},
};

/// The names of what was folded.
pub(super) const FOLDED: [&str; 2] = ["[folded]", "[unknown: folded]"];
/// The function of the root.
pub(super) const NO_FUNCTION: u32 = u32::MAX;

/// What counts as one function.
#[derive(Clone, Copy)]
pub(super) enum Label<'n> {
    /// A name in a module.
    Functions(&'n dyn Names),
    /// A place in a function.
    Frames(&'n dyn Names),
    /// The whole module. Names only say where threads begin.
    Modules(&'n dyn Names),
    /// What debug information tells apart.
    Code(&'n dyn Names, &'n dyn Lines, CodeLevel),
}

/// What counts as one, of what debug information tells apart.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum CodeLevel {
    /// A function, inlined or not.
    Functions,
    /// A line of a function.
    Lines {
        /// Whether inlined functions have lines of their own; else theirs are those of the function
        /// that they are in.
        inlines: bool,
    },
    /// A place in a function.
    Instructions,
}

impl<'n> Label<'n> {
    /// The names.
    pub(super) fn names(self) -> &'n dyn Names {
        match self {
            Self::Functions(names)
            | Self::Frames(names)
            | Self::Modules(names)
            | Self::Code(names, ..) => names,
        }
    }
}

/// A function (or a module), by its index in [`MergedTree::functions`].
pub(super) struct TreeFunction<'n> {
    pub(super) module: ModuleId,
    pub(super) name: Cow<'n, str>,
    pub(super) address: Option<ModuleAddress>,
    pub(super) kind: FunctionKind,
    /// The place in the module, where places are told apart.
    pub(super) offset: Option<ModuleOffset>,
    /// It is no function but the beginning of a section.
    pub(super) section: Option<StackSection>,
    /// It has no symbol: the compiler put it into the function that calls it.
    pub(super) inlined: bool,
    /// The line, where lines are told apart.
    pub(super) source: Option<&'n SourceLine>,
    /// Why debug information says nothing of it, where it was asked.
    pub(super) no_line: Option<NoLine>,
    /// The virtual address of the place, where places are told apart and files were asked.
    pub(super) code_address: Option<ModuleAddress>,
    pub(super) standing: Standing,
}

impl<'n> TreeFunction<'n> {
    /// Something in no known module.
    pub(super) fn unknown(name: Cow<'n, str>, standing: Standing) -> Self {
        Self {
            module: ModuleId::UNKNOWN,
            name,
            address: None,
            kind: FunctionKind::Unknown,
            offset: None,
            section: None,
            inlined: false,
            source: None,
            no_line: None,
            code_address: None,
            standing,
        }
    }
}

/// Why something has no name: what was on the stack is not known.
pub(super) const NO_FRAME: &str = "no_frame";
/// The same: nobody looked.
pub(super) const NOT_LOOKED_UP: &str = "not_looked_up";

#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Standing {
    Named,
    /// For this reason: one of [`Unnamed`](crate::symbols::names::Unnamed), or of those below.
    Unnamed(&'static str),
    /// Not a frame at all: it says something about the stack.
    PseudoFrame,
}

/// See the module.
pub(super) struct MergedTree<'n> {
    pub(super) functions: Vec<TreeFunction<'n>>,
    /// Root first, parents before children.
    pub(super) nodes: Vec<MergedNode>,
    pub(super) stacks: Stacks,
    pub(super) losses: DataLosses,
    /// Of a difference: what was there earlier and is not any more.
    pub(super) shrunk: Primary,
    pub(super) divided: Divided,
    /// Time of which the function is not known, and of kinds in which no mark fell.
    pub(super) of_no_function_ns: u64,
    /// Nodes that stand for what was folded.
    pub(super) folded: HashSet<u32>,
    /// What these nodes tell.
    pub(super) tells_folded: TellsFolded,
}

/// What the nodes of a merged tree tell of what was folded.
#[derive(Clone, Copy)]
pub(super) enum TellsFolded {
    /// All that was folded in the view, and which functions lack callers.
    All,
    /// Which functions of a difference lack callers: nothing else tells that.
    Callers,
    /// Nothing that is the same to the nanosecond in every report of the view: how time is divided
    /// among nodes, and rounded, depends on which there are.
    Not {
        /// Whether kernel frames have nodes.
        all_frames: bool,
    },
}

/// What folding did to the time of a merged tree.
#[derive(Default)]
pub(super) struct FoldedTime {
    /// Time of what was folded: it has no function.
    pub(super) own_ns: u64,
    /// Time of functions some of whose callers were folded.
    pub(super) without_callers_ns: u64,
}

impl<'n> MergedTree<'n> {
    pub(super) fn empty() -> Self {
        Self {
            functions: Vec::new(),
            nodes: vec![MergedNode::new(ROOT, NO_FUNCTION)],
            stacks: Stacks::default(),
            losses: DataLosses::default(),
            shrunk: Primary::default(),
            divided: Divided::default(),
            of_no_function_ns: 0,
            folded: HashSet::new(),
            tells_folded: TellsFolded::Callers,
        }
    }

    /// What each function received itself.
    pub(super) fn exclusive(&self) -> Vec<Figures> {
        let mut exclusive = vec![Values::default(); self.functions.len()];
        for node in &self.nodes[1..] {
            exclusive[node.function as usize].add(&node.own);
        }
        let row_of = |node: u32| {
            let function = self.nodes[node as usize].function;
            (function != NO_FUNCTION).then_some(function)
        };
        let accuracy = self.divided.holdings.of_own(exclusive.len(), row_of);
        with_accuracy(exclusive, accuracy)
    }

    /// What each function received with everything it called. A stack counts once, however often
    /// the function is on it.
    pub(super) fn inclusive(&self) -> Vec<Figures> {
        let mut inclusive = vec![Values::default(); self.functions.len()];
        let mut outermost = vec![false; self.nodes.len()];
        let mut on_path = vec![0u32; self.functions.len()];
        let children = self.children();
        let mut steps: Vec<MergeStep> = children.of(ROOT).map(MergeStep::Enter).collect();
        while let Some(step) = steps.pop() {
            match step {
                MergeStep::Enter(index) => {
                    let node = &self.nodes[index as usize];
                    let function = node.function as usize;
                    if on_path[function] == 0 {
                        inclusive[function].add(&node.total);
                        outermost[index as usize] = true;
                    }
                    on_path[function] += 1;
                    steps.push(MergeStep::Leave(node.function));
                    steps.extend(children.of(index).map(MergeStep::Enter));
                }
                MergeStep::Leave(function) => on_path[function as usize] -= 1,
            }
        }
        let row_of = |node: u32| {
            let function = self.nodes[node as usize].function;
            outermost[node as usize].then_some(function)
        };
        let rows = inclusive.len();
        let accuracy = self
            .divided
            .holdings
            .with_callees(&self.nodes, rows, row_of);
        with_accuracy(inclusive, accuracy)
    }

    /// How good the inclusive and the own values are of `rows` nodes, which `row_of` numbers.
    pub(super) fn accuracy_of_nodes(
        &self,
        rows: usize,
        row_of: impl Fn(u32) -> Option<u32>,
    ) -> (Vec<Accuracy>, Vec<Accuracy>) {
        let holdings = &self.divided.holdings;
        (
            holdings.with_callees(&self.nodes, rows, &row_of),
            holdings.of_own(rows, &row_of),
        )
    }

    /// What folding did to its time.
    pub(super) fn folded(&self) -> FoldedTime {
        let mut found = FoldedTime::default();
        if self.folded.is_empty() {
            return found;
        }
        // Whether a node is of what was folded, or below that.
        let mut lacks_callers = vec![false; self.nodes.len()];
        for (index, node) in (0u32..).zip(&self.nodes).skip(1) {
            let is_folded = self.folded.contains(&index);
            let below = lacks_callers[node.parent as usize];
            lacks_callers[index as usize] = is_folded || below;
            let sum = match (is_folded, below) {
                (true, _) => &mut found.own_ns,
                (false, true) => &mut found.without_callers_ns,
                (false, false) => continue,
            };
            *sum = sum.saturating_add(node.own.elapsed_ns());
        }
        found
    }

    /// Frames without a name, weighted by time, or by samples where no time was measured.
    pub(super) fn frames_unknown(&self) -> Unknown {
        let shares = |weight: fn(&Values) -> u64| {
            let (mut all, mut unnamed) = (0u64, BTreeMap::<&'static str, u64>::new());
            for node in &self.nodes[1..] {
                let weight = weight(&node.total);
                let standing = self.functions[node.function as usize].standing;
                if let Standing::Unnamed(why) = standing {
                    let of = unnamed.entry(why).or_default();
                    *of = of.saturating_add(weight);
                }
                if standing != Standing::PseudoFrame {
                    all = all.saturating_add(weight);
                }
            }
            (all > 0).then(|| Unknown::of(&unnamed, all))
        };
        shares(Values::elapsed_ns)
            .or_else(|| shares(|values| values.samples))
            .unwrap_or_default()
    }

    /// Of a difference: exact time that was there earlier and is not any more.
    pub(super) fn shrunk_ns(&self) -> u64 {
        self.shrunk.exact.into_iter().fold(0, u64::saturating_add)
    }

    pub(super) fn children(&self) -> Children {
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

/// The values of rows with how good they are.
pub(super) fn with_accuracy(values: Vec<Values>, accuracy: Vec<Accuracy>) -> Vec<Figures> {
    let rows = values.into_iter().zip(accuracy);
    let figures = rows.map(|(values, accuracy)| Figures {
        values,
        accuracy: Some(accuracy),
    });
    figures.collect()
}

enum MergeStep {
    Enter(u32),
    Leave(u32),
}

/// The children of each node as linked lists; the root is nobody's child and ends them.
pub(super) struct Children {
    first: Vec<u32>,
    next: Vec<u32>,
}

impl Children {
    pub(super) fn of(&self, parent: u32) -> impl Iterator<Item = u32> {
        let listed = |index: u32| (index != ROOT).then_some(index);
        std::iter::successors(listed(self.first[parent as usize]), move |index| {
            listed(self.next[*index as usize])
        })
    }
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
