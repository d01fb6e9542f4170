//! How a [`MergedTree`] grows out of the aggregates in scope: what each node of a profile's tree
//! stands for.

use std::{
    borrow::Cow,
    collections::{BTreeMap, HashMap},
    ops::Range,
};

use profiler_common::{
    Class, StackEnd,
    division::kernel_parts,
    kinds::{KindNs, MARK_BLOCKED, MARK_RUNNABLE, Primary, Tick, WaitNs},
};

use super::{
    accuracy::IntoKernel,
    divided::{Divided, MemberCell},
    identity::{Identity, functions_at},
    idle::idle_waits,
    member::Member,
    merged_tree::{FOLDED, Label, MergedTree, NO_FRAME, Standing, TellsFolded, TreeFunction},
    node::MergedNode,
    node::ROOT,
    product::Values,
    query::FrameScope,
    scope::View,
    sections::StackSection,
    strata::strata,
    tree_options::TreeOptions,
    walks::{is_of_no_function, named_entry},
};
use crate::profile::{
    frames::FrameId,
    input::LossCause,
    over::Span,
    tree::{Node, NodeId, NodePlace},
    values::WAIT_CLASSES,
};

/// The place of frames that are folded although nothing shown called them.
const HIDDEN: u32 = u32::MAX;

/// Whose code a frame is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mode {
    User,
    Kernel,
}

/// Looked up at each node of each tree. Seeded anew each time, so that nobody can choose names and
/// addresses that collide.
type FastMap<K, V> = HashMap<K, V, foldhash::fast::RandomState>;

/// Takes aggregates in, one after the other.
pub(super) struct TreeBuilder<'v, 'n> {
    view: &'v View<'v>,
    shape: TreeOptions<'n>,
    pub(super) tree: MergedTree<'n>,
    /// Which frames each node of the merged tree stands for; the first that were found.
    modes: Vec<Option<Mode>>,
    cells: Vec<MemberCell>,
    /// Those whose function is not known, by index.
    lost_cells: Vec<usize>,
    /// The members' exact totals.
    kinds: Vec<KindNs>,
    /// What was there at an earlier moment: taken away in the end.
    earlier: HashMap<(u32, u32), Primary>,
    /// The functions that a frame counts as, outermost first: a stretch of `chains`.
    by_frame: FastMap<(FrameId, bool), Range<usize>>,
    chains: Vec<u32>,
    by_name: FastMap<Identity<'n>, u32>,
    children: FastMap<(u32, u32), u32>,
    /// What the stacks of the aggregate that is taken in hang from: the root, or its section.
    base: u32,
}

impl<'v, 'n> TreeBuilder<'v, 'n> {
    pub(super) fn new(view: &'v View<'v>, shape: TreeOptions<'n>) -> Self {
        Self {
            view,
            shape,
            tree: MergedTree::empty(),
            modes: Vec::new(),
            cells: Vec::new(),
            lost_cells: Vec::new(),
            kinds: view.totals.iter().map(|totals| totals.kinds).collect(),
            earlier: HashMap::new(),
            by_frame: FastMap::default(),
            chains: Vec::new(),
            by_name: FastMap::default(),
            children: FastMap::default(),
            base: ROOT,
        }
    }

    /// Adds what the aggregate of a member of the view received over `span`.
    pub(super) fn add(&mut self, index: u32, span: Span) {
        let view = self.view;
        let member = &view.members[index as usize];
        let mut held = member.aggregate.held_over(span);
        let names = self.shape.label.names();
        for (node, held) in &held {
            let node = &member.aggregate.nodes()[node.index()];
            self.tree.stacks.count(node, held, names);
            self.tree.losses.note(node, held);
        }
        if self.shape.idle_apart {
            let idle = idle_waits(member.aggregate, span, view.span_ns());
            let idle = taken(&mut held, &idle);
            if !idle.is_empty() {
                self.base = self.idle_section(member);
                self.place_all(index, idle);
            }
        }
        if !held.is_empty() {
            self.base = self.section(member);
            self.place_all(index, held);
        }
    }

    /// Adds cells for what a member holds, below the base.
    fn place_all(&mut self, index: u32, held: BTreeMap<NodeId, Primary>) {
        let view = self.view;
        let member = &view.members[index as usize];
        let targets = self.targets(member, &held);
        let nodes = member.aggregate.nodes();
        for (node, primary) in held {
            let Some(target) = targets[node.index()] else {
                continue;
            };
            if is_of_no_function(nodes, &nodes[node.index()], member.kernel_thread) {
                self.lost_cells.push(self.cells.len());
            }
            self.cells.push(MemberCell {
                member: index,
                node: target,
                primary,
            });
        }
    }

    /// Notes what an aggregate had received at an earlier moment, that is now a part of the member
    /// `index`. It is taken away by [`Self::finish`].
    pub(super) fn take_away(&mut self, index: u32, earlier: &Member<'_>) {
        let over = earlier.aggregate.threads_over(Span::Session);
        let kinds = over.total().kinds;
        for (now, then) in self.kinds[index as usize].iter_mut().zip(kinds) {
            *now = now.saturating_sub(then);
        }
        let held = earlier.aggregate.held_over(Span::Session);
        // Its stacks hang from the section of the member that it is a part of.
        let member = Member {
            aggregate: earlier.aggregate,
            ..self.view.members[index as usize]
        };
        self.base = self.section(&member);
        let targets = self.targets(&member, &held);
        for (node, primary) in held {
            if let Some(target) = targets[node.index()] {
                self.earlier
                    .entry((index, target))
                    .or_default()
                    .add(&primary);
            }
        }
    }

    /// The merged tree with totals.
    pub(super) fn finish(mut self) -> MergedTree<'n> {
        let (is_whole, all_frames) = (
            self.earlier.is_empty(),
            self.shape.frames == FrameScope::All,
        );
        let shows_all = all_frames && self.shape.folding.is_empty();
        let tells_folded = match self.shape.label {
            _ if !is_whole => TellsFolded::Callers,
            Label::Functions(_) if shows_all => TellsFolded::All,
            _ => TellsFolded::Not { all_frames },
        };
        self.subtract();
        let span_ns = self
            .view
            .coverage
            .to_ns
            .saturating_since(self.view.coverage.from_ns);
        // Of a difference, what was there earlier is in no stratum.
        let periods = self.view.snapshot.mark_periods();
        let strata = strata(&self.view.members, &self.kinds, periods);
        let mut divided = Divided::new(&strata, &self.kinds, &self.cells, span_ns);
        for (cell, values) in self.cells.iter().zip(&divided.values) {
            self.tree.nodes[cell.node as usize].own.add(values);
        }
        let lost = self.lost_cells.iter().map(|cell| &divided.values[*cell]);
        let of_no_function = lost.chain(&divided.not_sampled).map(Values::elapsed_ns);
        let of_no_function_ns = of_no_function.fold(0, u64::saturating_add);
        let view = self.view;
        for (member, values) in view.members.iter().zip(&divided.not_sampled) {
            if *values != Values::default() {
                self.base = self.section(member);
                let node = self.unnamed(self.base, LossCause::NotSampled.row_name());
                self.tree.nodes[node as usize].own.add(values);
            }
        }
        if self.shape.frames == FrameScope::All {
            let moves = self.divide_among_kernel_functions(&divided.values);
            divided.holdings.move_into_kernel(moves);
        }
        // Nodes have them by now.
        divided.values = Vec::new();
        let mut tree = self.tree;
        for node in &mut tree.nodes {
            node.total = node.own;
        }
        for index in (1..tree.nodes.len()).rev() {
            let total = tree.nodes[index].total;
            let parent = tree.nodes[index].parent as usize;
            tree.nodes[parent].total.add(&total);
        }
        tree.divided = divided;
        tree.of_no_function_ns = of_no_function_ns;
        tree.tells_folded = tells_folded;
        tree
    }

    /// Of what a user function has in the kernel, the running time inside calls is divided among
    /// kernel functions by the ticks that found calls at its stack. Where there are none, and of
    /// waits that were not walked, its function is not known. Says where that of each user function
    /// went.
    fn divide_among_kernel_functions(&mut self, values: &[Values]) -> BTreeMap<u32, IntoKernel> {
        let mut moves = BTreeMap::new();
        let mut ticks: BTreeMap<u32, BTreeMap<u32, u64>> = BTreeMap::new();
        // Of walked waits it is what was walked.
        let mut walked: HashMap<u32, WaitNs> = HashMap::new();
        for (cell, values) in self.cells.iter().zip(values) {
            let walked = walked.entry(cell.node).or_default();
            for (wait, to) in walked.iter_mut().enumerate() {
                // Where marks at gaps have a part in it, only what is exact is sure to have been
                // walked.
                let found_ns = match cell.primary.marks[[MARK_BLOCKED, MARK_RUNNABLE][wait]] {
                    0 => values.classes[WAIT_CLASSES[wait] as usize],
                    _ => cell.primary.exact[wait],
                };
                *to = to.saturating_add(found_ns);
            }
            let count = cell.primary.ticks[Tick::Call as usize];
            if count > 0
                && self.mode_of(cell.node) == Some(Mode::Kernel)
                && let Some(user) = self.user_ancestor(cell.node)
            {
                let of_node = ticks.entry(user).or_default().entry(cell.node).or_default();
                *of_node = of_node.saturating_add(count);
            }
        }
        for node in 0..self.modes.len() as u32 {
            if self.mode_of(node) != Some(Mode::User) {
                continue;
            }
            let walked = walked.get(&node).copied().unwrap_or_default();
            let own = &mut self.tree.nodes[node as usize].own;
            let in_kernel = own.take_kernel_time(&walked);
            let call_ns = in_kernel.classes[Class::Syscall as usize];
            let found = ticks.remove(&node).unwrap_or_default();
            let found: Vec<(u32, u64)> = found.into_iter().collect();
            let weights: Vec<u64> = found.iter().map(|(_, count)| *count).collect();
            let (parts, unknown_ns) = kernel_parts(call_ns, &weights);
            for ((kernel, _), ns) in found.iter().zip(parts) {
                let values = Values::of_class(Class::Syscall, ns);
                self.tree.nodes[*kernel as usize].own.add(&values);
            }
            let mut rest = in_kernel;
            rest.classes[Class::Syscall as usize] = unknown_ns;
            rest.estimated_ns = in_kernel.estimated_ns.min(rest.elapsed_ns());
            self.tree.nodes[node as usize].own.estimated_ns +=
                in_kernel.estimated_ns - rest.estimated_ns;
            let unknown = (rest != Values::default()).then(|| {
                let unknown = self.unnamed(node, "[kernel, not sampled]");
                self.tree.nodes[unknown as usize].own.add(&rest);
                unknown
            });
            if in_kernel != Values::default() {
                let to = IntoKernel {
                    call_ns,
                    ticks: found,
                    unknown,
                };
                moves.insert(node, to);
            }
        }
        moves
    }

    fn mode_of(&self, node: u32) -> Option<Mode> {
        self.modes.get(node as usize).copied().flatten()
    }

    fn user_ancestor(&self, mut node: u32) -> Option<u32> {
        while node != ROOT {
            if self.mode_of(node) == Some(Mode::User) {
                return Some(node);
            }
            node = self.tree.nodes[node as usize].parent;
        }
        None
    }

    /// Notes which frames a node of the merged tree stands for.
    fn note_mode(&mut self, node: u32, place: NodePlace) {
        let mode = match place {
            NodePlace::User(_) => Mode::User,
            NodePlace::Kernel(_) | NodePlace::Folded { kernel: true } => Mode::Kernel,
            NodePlace::Lost(_) | NodePlace::Cut | NodePlace::Folded { .. } => return,
        };
        if node != HIDDEN {
            let nodes = self.tree.nodes.len();
            self.modes.resize(nodes, None);
            self.modes[node as usize].get_or_insert(mode);
        }
    }

    /// Takes away what was there earlier. What a node has no longer was folded meanwhile: it went
    /// to the remainder of one of its callers. What is not there either is counted.
    fn subtract(&mut self) {
        if self.earlier.is_empty() {
            return;
        }
        let mut known = CellPlaces::new();
        for (place, cell) in self.cells.iter().enumerate() {
            known
                .entry((cell.member, cell.node))
                .or_default()
                .push(place);
        }
        let folded = FOLDED.map(|name| {
            let remainder = TreeFunction::unknown(Cow::Borrowed(name), Standing::Unnamed(NO_FRAME));
            self.by_name.get(&Identity::of(&remainder)).copied()
        });
        let mut left = Vec::new();
        for ((member, node), mut earlier) in std::mem::take(&mut self.earlier) {
            self.take(&known, (member, node), &mut earlier);
            if earlier != Primary::default() {
                left.push((member, node, earlier));
            }
        }
        for (member, node, mut rest) in left {
            let mut at = node;
            while at != ROOT && rest != Primary::default() {
                at = self.tree.nodes[at as usize].parent;
                for place in self.folded_below(at, node, &folded) {
                    self.take(&known, (member, place), &mut rest);
                }
            }
            self.tree.shrunk.add(&rest);
        }
    }

    /// Where what a node had may have gone, if it was folded below `at`: to the same function
    /// without the callers in between, that of the user code which called it included, or to the
    /// remainder.
    fn folded_below(&self, at: u32, node: u32, folded: &[Option<u32>]) -> Vec<u32> {
        let child = |parent: u32, function: u32| self.children.get(&(parent, function)).copied();
        let function = |node: u32| self.tree.nodes[node as usize].function;
        let mut places = Vec::new();
        for remainder in folded.iter().flatten().filter_map(|name| child(at, *name)) {
            places.extend(child(remainder, function(node)));
            let user = self.user_ancestor(node).filter(|user| *user != node);
            if let Some(user) = user.and_then(|user| child(remainder, function(user))) {
                places.extend(child(user, function(node)));
                let inside = folded
                    .iter()
                    .flatten()
                    .filter_map(|name| child(user, *name));
                places.extend(inside.filter_map(|inside| child(inside, function(node))));
            }
            places.push(remainder);
        }
        places
    }

    /// Takes what there is of `earlier` away from a place.
    fn take(&mut self, known: &CellPlaces, of: (u32, u32), earlier: &mut Primary) {
        for place in known.get(&of).into_iter().flatten() {
            self.cells[*place].primary.take(earlier);
        }
    }

    /// The node of the merged tree, below the base, that each node of the aggregate's tree counts
    /// for, where it has anything.
    fn targets(
        &mut self,
        member: &Member<'_>,
        held: &BTreeMap<NodeId, Primary>,
    ) -> Vec<Option<u32>> {
        let nodes = member.aggregate.nodes();
        let live = live(nodes, held);
        let hide_kernel = self.shape.frames == FrameScope::User && !member.kernel_thread;
        let mut places: Vec<u32> = vec![self.base; live.len()];
        let mut targets = vec![None; live.len()];
        let holds = |index: usize| {
            u32::try_from(index).is_ok_and(|index| held.contains_key(&NodeId(index)))
        };
        for (index, node) in nodes.iter().enumerate().skip(1) {
            if !live[index] {
                continue;
            }
            let place = self.place(places[node.parent.index()], node, hide_kernel);
            self.note_mode(place, node.place);
            let in_kernel = node.place == NodePlace::Folded { kernel: true };
            if node.place.is_folded() && !(in_kernel && hide_kernel) {
                self.tree.folded.insert(place);
            }
            places[index] = place;
            if place != HIDDEN {
                targets[index] = Some(place);
            } else if holds(index) {
                targets[index] = Some(self.remark(self.base, "[hidden]"));
            }
        }
        targets
    }

    fn section(&mut self, member: &Member<'_>) -> u32 {
        self.section_below(ROOT, member)
    }

    fn idle_section(&mut self, member: &Member<'_>) -> u32 {
        let idle = self.section_node(ROOT, StackSection::idle());
        self.section_below(idle, member)
    }

    fn section_below(&mut self, parent: u32, member: &Member<'_>) -> u32 {
        match StackSection::of(member, self.shape.sections) {
            Some(section) => self.section_node(parent, section),
            None => parent,
        }
    }

    fn section_node(&mut self, parent: u32, section: StackSection) -> u32 {
        let function = self.function(TreeFunction {
            section: Some(section.clone()),
            ..TreeFunction::unknown(Cow::Owned(section.name), Standing::PseudoFrame)
        });
        self.child(parent, function)
    }

    /// The node that stands for a profile node below `parent`.
    fn place(&mut self, parent: u32, node: &Node, hide_kernel: bool) -> u32 {
        let outermost = node.parent == NodeId::ROOT;
        match node.place {
            NodePlace::Kernel(_) if hide_kernel && !outermost => parent,
            NodePlace::Kernel(_) if hide_kernel => self.remark(self.base, "[no user stack]"),
            NodePlace::Kernel(frame) => self.frame(parent, frame, true),
            NodePlace::User(frame) if outermost => {
                let parent = self.caller(frame, node.end);
                self.frame(parent, frame, false)
            }
            NodePlace::User(frame) => self.frame(parent, frame, false),
            NodePlace::Lost(cause) => self.unnamed(parent, cause.row_name()),
            NodePlace::Cut => self.unnamed(parent, "[dropped]"),
            NodePlace::Folded { kernel: true } if hide_kernel => parent,
            NodePlace::Folded { .. } => self.unnamed(parent, "[folded]"),
        }
    }

    /// What the outermost known frame hangs from: the base, or a remark that its callers are not
    /// known.
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

    fn function(&mut self, function: TreeFunction<'n>) -> u32 {
        let functions = &mut self.tree.functions;
        *self
            .by_name
            .entry(Identity::of(&function))
            .or_insert_with(|| {
                functions.push(function);
                u32::try_from(functions.len() - 1).expect("there are no more functions than frames")
            })
    }

    fn unnamed(&mut self, parent: u32, name: &'static str) -> u32 {
        self.special(parent, name, Standing::Unnamed(NO_FRAME))
    }

    fn remark(&mut self, parent: u32, name: &'static str) -> u32 {
        self.special(parent, name, Standing::PseudoFrame)
    }

    fn special(&mut self, parent: u32, name: &'static str, standing: Standing) -> u32 {
        let name = match self.shape.label {
            Label::Functions(_) | Label::Frames(_) | Label::Code(..) => name,
            Label::Modules(_) => "",
        };
        let function = self.function(TreeFunction::unknown(Cow::Borrowed(name), standing));
        self.child(parent, function)
    }

    fn child(&mut self, parent: u32, function: u32) -> u32 {
        let parent = if parent == HIDDEN { self.base } else { parent };
        let nodes = &mut self.tree.nodes;
        *self.children.entry((parent, function)).or_insert_with(|| {
            nodes.push(MergedNode::new(parent, function));
            u32::try_from(nodes.len() - 1).expect("the profile's budget keeps nodes far below 2^32")
        })
    }
}

/// What was there of each member and node of the merged tree: the places in the list of cells.
type CellPlaces = HashMap<(u32, u32), Vec<usize>>;

/// Takes these blocked nanoseconds out of what nodes hold, as far as they hold them exactly, and
/// answers what that was.
fn taken(
    held: &mut BTreeMap<NodeId, Primary>,
    blocked: &BTreeMap<NodeId, u64>,
) -> BTreeMap<NodeId, Primary> {
    let mut taken = BTreeMap::new();
    for (node, ns) in blocked {
        let Some(of_node) = held.get_mut(node) else {
            continue;
        };
        let mut part = Primary::default();
        part.exact[0] = of_node.exact[0].min(*ns);
        of_node.exact[0] -= part.exact[0];
        if part.exact[0] > 0 {
            taken.insert(*node, part);
        }
    }
    held.retain(|_, primary| *primary != Primary::default());
    taken
}

/// Which nodes have received anything, themselves or below.
fn live(nodes: &[Node], held: &BTreeMap<NodeId, Primary>) -> Vec<bool> {
    let mut live = vec![false; nodes.len()];
    for node in held.keys() {
        live[node.index()] = true;
    }
    for index in (1..nodes.len()).rev() {
        if live[index] {
            live[nodes[index].parent.index()] = true;
        }
    }
    live
}
