//! All stacks with what each received, for export in the formats of other tools; of the session, of
//! a window, or of the time between two snapshots.

use std::collections::HashMap;

use super::{
    calltree::{CUT, visible},
    completeness::{CALLERS_FOLDED, Completeness},
    error::ReportError,
    fold::Folding,
    member::Member,
    member::find,
    merged_tree::{Label, MergedTree, NO_FUNCTION, kind_name},
    node::ROOT,
    places::Places,
    product::Values,
    query::{Scope, StackQuery, Window},
    scope::View,
    sections::StackSection,
    tree_builder::TreeBuilder,
    tree_options::TreeOptions,
    values::percent,
};
use crate::{
    processes::module::{ModuleId, ModuleKind},
    profile::{over::Span, snapshot::Snapshot},
    report::names::Names,
    units::{ModuleOffset, UnixNs},
};

/// Most nodes of an answer, those that stand for cut ones not counted; of more, the smallest are
/// cut. So an export never holds more different stacks, which is what servers for profiles take at
/// a time.
pub const MAX_STACK_NODES: usize = 16_000;

/// The answer.
#[derive(Clone, Debug)]
pub struct StackTree {
    /// Name of the process; `session`.
    pub title: String,
    /// The process.
    pub pid: Option<u32>,
    /// Path of the process's program.
    pub exe: Option<String>,
    /// Time of the drain pass it was made from, nanoseconds since 1970.
    pub as_of_unix_ns: UnixNs,
    /// When the time it covers began, nanoseconds since 1970.
    pub from_unix_ns: UnixNs,
    /// How long that is.
    pub duration_ns: u64,
    /// What it lacks.
    pub completeness: Completeness,
    /// The modules of the functions.
    pub modules: Vec<StackModule>,
    /// What the nodes stand for.
    pub functions: Vec<StackFunction>,
    /// The stacks as a tree: root first, callers before what they call.
    pub nodes: Vec<StackNode>,
    /// How many nodes were cut; their values are in nodes named `(cut)`.
    pub cut_nodes: u64,
    /// Of the time between two snapshots: nanoseconds that moved to another stack meanwhile, and
    /// are in neither.
    pub shrunk_ns: u64,
}

/// A module of exported stacks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackModule {
    /// Path, or a name in brackets.
    pub name: String,
    /// Hexadecimal.
    pub build_id: Option<String>,
    /// What places in it are.
    pub kind: ModuleKind,
}

/// A function, or a place in one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StackFunction {
    /// Demangled; in brackets where it is no function.
    pub name: String,
    /// Index of its module.
    pub module: usize,
    /// `user`, `kernel`, `jit` or `unknown`.
    pub kind: &'static str,
    /// The place in the module, where places are told apart: offset in the file, or address.
    pub offset: Option<u64>,
    /// It is code of its module.
    pub in_module: bool,
    /// It is no function: its stacks belong to this process or group.
    pub section: Option<StackSection>,
}

/// A function called from one place.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StackNode {
    /// Index of the caller; the root is its own.
    pub parent: u32,
    /// Index of the function; of no meaning for the root.
    pub function: u32,
    /// What it received itself.
    pub own: Values,
}

impl StackTree {
    /// The functions from the outermost to that of the node.
    #[must_use]
    pub fn path(&self, node: usize) -> Vec<u32> {
        let mut path = Vec::new();
        let mut at = node;
        while at != 0 {
            path.push(self.nodes[at].function);
            at = self.nodes[at].parent as usize;
        }
        path.reverse();
        path
    }
}

/// The stacks of a process or of the session.
///
/// # Errors
/// No such process, module or window.
pub fn stacks(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &StackQuery,
    names: &dyn Names,
) -> Result<StackTree, ReportError> {
    let view = View::new(snapshot, scope, query.tree.window)?;
    let tree = MergedTree::new(&view, shape(snapshot, query, names)?);
    let completeness = Completeness::new(&view, &tree.seen(&view, names));
    let (from_ns, to_ns) = (view.coverage.from_ns, view.coverage.to_ns);
    Ok(StackTree {
        from_unix_ns: view.coverage.from_unix_ns,
        duration_ns: to_ns.saturating_since(from_ns),
        completeness,
        ..flat(&view, &tree, query)
    })
}

/// The stacks that were seen after one snapshot and until another of the same profile. The query's
/// window does not matter.
///
/// # Errors
/// No such process or module.
pub fn stacks_between(
    earlier: &Snapshot,
    later: &Snapshot,
    scope: &Scope,
    query: &StackQuery,
    names: &dyn Names,
) -> Result<StackTree, ReportError> {
    let view = View::new(later, scope, Window::Session)?;
    let before = match scope {
        Scope::Session => View::new(earlier, scope, Window::Session).ok(),
        Scope::Image(_) | Scope::Named(_) => View::new(earlier, scope, Window::Session).ok(),
        // The same process, not the same number.
        Scope::Process(selector) => {
            let key = find(later, selector)?.0;
            let known = earlier.processes().contains_key(&key);
            let start_ticks = Some(key.start_ticks());
            let same = Scope::Process(super::ProcessSelector {
                pid: key.pid,
                start_ticks,
            });
            known
                .then(|| View::new(earlier, &same, Window::Session).ok())
                .flatten()
        }
    };
    // Whether a thread idles may be otherwise at an earlier moment: what it then had could not be
    // taken away.
    let shape = TreeOptions {
        idle_apart: false,
        ..shape(later, query, names)?
    };
    let mut builder = TreeBuilder::new(&view, shape);
    for index in 0..view.members.len() as u32 {
        builder.add(index, Span::Session);
    }
    for member in before.iter().flat_map(|before| &before.members) {
        if let Some(index) = part_of(&view, member) {
            builder.take_away(index, member);
        }
    }
    let tree = builder.finish();
    let mut seen = tree.seen(&view, names);
    let mut completeness = match &before {
        Some(before) => {
            let places = Places::new(before);
            seen.stacks = seen.stacks.since(&places.all_stacks(before, names));
            let mut before = Completeness::of_totals(before, &places, names);
            // What the merged tree has of it is of the time in between already.
            before.causes.remove(CALLERS_FOLDED);
            Completeness::new(&view, &seen).since(&before)
        }
        None => Completeness::new(&view, &seen),
    };
    let total = |view: &View<'_>| view.totals().elapsed_ns();
    let gained = total(&view).saturating_sub(before.as_ref().map_or(0, total));
    completeness.callers_folded_percent = percent(seen.losses.callers_folded_ns, gained);
    seen.unattributed_ns = gained.saturating_sub(tree.nodes[ROOT as usize].total.elapsed_ns());
    completeness.elapsed_unattributed_ns = seen.unattributed_ns;
    let completeness = completeness.of_elapsed(gained);
    Ok(StackTree {
        from_unix_ns: earlier.as_of_unix_ns(),
        duration_ns: later.now_ns().saturating_since(earlier.now_ns()),
        completeness,
        ..flat(&view, &tree, query)
    })
}

/// The member of a later view that one of an earlier view is, or is a part of: a process that was
/// dropped meanwhile is one of the ended ones of the file that it executed last, which need not be
/// the one it had earlier. Where it is no longer known which, it is taken for one of the earlier
/// file's.
fn part_of(later: &View<'_>, earlier: &Member<'_>) -> Option<u32> {
    let find = |is: &dyn Fn(&Member<'_>) -> bool| later.members.iter().position(is);
    let key = earlier.process.map(|(key, _)| key);
    let same = key.and_then(|of| find(&|member| member.process.is_some_and(|(key, _)| key == of)));
    let merged = key.and_then(|of| later.snapshot.merged_with(of));
    let ended = |member: &Member<'_>| {
        member.process.is_none() && member.kernel_thread == earlier.kernel_thread
    };
    let index = match (same, merged) {
        (Some(index), _) => Some(index),
        (None, Some(image)) => find(&|member| std::ptr::eq(member.aggregate, &image.aggregate)),
        (None, None) => find(&|member| ended(member) && member.image == earlier.image)
            .or_else(|| find(&|member| ended(member) && member.image.is_none())),
    }?;
    u32::try_from(index).ok()
}

fn shape<'n>(
    snapshot: &Snapshot,
    query: &StackQuery,
    names: &'n dyn Names,
) -> Result<TreeOptions<'n>, ReportError> {
    let label = if query.places {
        Label::Frames(names)
    } else {
        Label::Functions(names)
    };
    Ok(TreeOptions {
        folding: Folding::new(snapshot, &query.tree.fold)?,
        sections: query.sections,
        idle_apart: query.tree.idle_apart,
        ..TreeOptions::plain(query.tree.frames, label)
    })
}

/// The visible nodes with anything in or below them, and only the functions and modules that they
/// need.
fn flat(view: &View<'_>, tree: &MergedTree<'_>, query: &StackQuery) -> StackTree {
    let visible = visible(tree, &query.tree, MAX_STACK_NODES);
    let title = match view.members.as_slice() {
        [member] => member.process,
        _ => None,
    };
    let mut stacks = StackTree {
        title: match view.members.as_slice() {
            [member] if !view.is_session() => member.title(),
            _ => "session".to_owned(),
        },
        pid: title.map(|(key, _)| key.pid),
        exe: title.and_then(|(_, process)| process.info.exe.as_deref().map(str::to_owned)),
        as_of_unix_ns: view.snapshot.as_of_unix_ns(),
        from_unix_ns: UnixNs::ZERO,
        duration_ns: 0,
        completeness: Completeness::default(),
        modules: Vec::new(),
        functions: Vec::new(),
        nodes: vec![StackNode {
            parent: ROOT,
            function: NO_FUNCTION,
            own: tree.nodes[ROOT as usize].own,
        }],
        cut_nodes: 0,
        shrunk_ns: tree.shrunk_ns(),
    };
    let mut tables = NumberTables {
        modules: HashMap::new(),
        functions: vec![None; tree.functions.len()],
        cut: None,
    };
    // The new number of each node; of a cut one, that of the node that stands for it.
    let mut numbers: Vec<u32> = vec![ROOT; tree.nodes.len()];
    let mut cut_below: Vec<Option<u32>> = vec![None; tree.nodes.len()];
    for (index, node) in tree.nodes.iter().enumerate().skip(1) {
        let parent = node.parent as usize;
        if node.total == Values::default() {
            continue;
        }
        if visible[index] {
            let function = tables.function(&mut stacks, view, tree, node.function);
            numbers[index] = push(&mut stacks.nodes, numbers[parent], function, node.own);
            continue;
        }
        stacks.cut_nodes += 1;
        if !visible[parent] && parent != ROOT as usize {
            numbers[index] = numbers[parent];
        } else {
            numbers[index] = *cut_below[parent].get_or_insert_with(|| {
                let function = tables.cut(&mut stacks, view);
                push(
                    &mut stacks.nodes,
                    numbers[parent],
                    function,
                    Values::default(),
                )
            });
        }
        stacks.nodes[numbers[index] as usize].own.add(&node.own);
    }
    stacks
}

fn push(nodes: &mut Vec<StackNode>, parent: u32, function: u32, own: Values) -> u32 {
    nodes.push(StackNode {
        parent,
        function,
        own,
    });
    u32::try_from(nodes.len() - 1).expect("there are no more nodes than in the tree, twice")
}

/// The new numbers of modules and functions.
struct NumberTables {
    modules: HashMap<ModuleId, usize>,
    functions: Vec<Option<u32>>,
    cut: Option<u32>,
}

impl NumberTables {
    fn function(
        &mut self,
        stacks: &mut StackTree,
        view: &View<'_>,
        tree: &MergedTree<'_>,
        function: u32,
    ) -> u32 {
        if let Some(number) = self.functions[function as usize] {
            return number;
        }
        let of = &tree.functions[function as usize];
        let module = self.module(stacks, view, of.module);
        let number = next(stacks);
        stacks.functions.push(StackFunction {
            name: of.name.clone().into_owned(),
            module,
            kind: kind_name(of.kind),
            offset: of.offset.map(ModuleOffset::get),
            in_module: of.module != ModuleId::UNKNOWN,
            section: of.section.clone(),
        });
        self.functions[function as usize] = Some(number);
        number
    }

    fn cut(&mut self, stacks: &mut StackTree, view: &View<'_>) -> u32 {
        if let Some(number) = self.cut {
            return number;
        }
        let module = self.module(stacks, view, ModuleId::UNKNOWN);
        let number = next(stacks);
        stacks.functions.push(StackFunction {
            name: CUT.to_owned(),
            module,
            kind: "unknown",
            offset: None,
            in_module: false,
            section: None,
        });
        self.cut = Some(number);
        number
    }

    fn module(&mut self, stacks: &mut StackTree, view: &View<'_>, id: ModuleId) -> usize {
        let modules = &mut stacks.modules;
        *self.modules.entry(id).or_insert_with(|| {
            let module = view.snapshot.module(id);
            modules.push(StackModule {
                name: module.name.to_string(),
                build_id: module.build_id_hex(),
                kind: module.kind,
            });
            modules.len() - 1
        })
    }
}

fn next(stacks: &StackTree) -> u32 {
    u32::try_from(stacks.functions.len()).expect("there are no more functions than frames")
}
