//! The call tree. What is cut is folded into one `(cut)` child of its caller, so that at every node
//! inclusive = exclusive + the children's inclusive, exactly.

use serde::Serialize;

use super::{
    accuracy::Accuracy,
    completeness::Completeness,
    error::ReportError,
    figures::Figures,
    fold::Folding,
    merged_tree::{Label, MergedTree, kind_name},
    product::Values,
    query::SectionMode,
    query::{Scope, TreeQuery},
    scope::View,
    sections::StackSection,
    times::WindowSpan,
    tree_options::TreeOptions,
    values::RowValues,
};
use crate::{profile::snapshot::Snapshot, report::names::Names};

/// Most nodes of an answer, `(cut)` nodes not counted; of more, the smallest are cut.
pub const MAX_NODES: usize = 20_000;

/// The name of nodes that stand for what was cut.
pub const CUT: &str = "(cut)";

/// The answer.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct CallTree {
    /// Time of the drain pass it was made from, RFC 3339.
    #[schema(format = DateTime)]
    pub as_of: String,
    /// The time it covers.
    pub window: WindowSpan,
    /// What it lacks.
    pub completeness: Completeness,
    /// Whether nodes were cut.
    pub truncated: bool,
    /// How many were cut.
    pub cut_nodes: u64,
    /// The process, or the session.
    pub root: TreeNode,
}

/// A function called from one place.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct TreeNode {
    /// Its name; that of the process, or of what else it stands for, where it is none.
    pub function: String,
    /// Path of its module; of the process's program for the root. Null where it is no function.
    #[schema(required)]
    pub module: Option<String>,
    /// `user`, `kernel`, `jit`, `unknown`; `process` or `session` for the root; below that of the
    /// session `process` for all processes of a name; `idle` for the waits of threads that idle;
    /// `cut`.
    #[schema(pattern = "^(user|kernel|jit|unknown|process|session|idle|cut)$")]
    pub kind: &'static str,
    /// The three groups.
    #[serde(flatten)]
    pub values: RowValues,
    /// How many nodes a `cut` node stands for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cut_nodes: Option<u64>,
    /// What it called, most of the value first that the question names, else most time.
    #[schema(no_recursion)]
    pub children: Vec<TreeNode>,
}

/// The call tree of a process or of the session.
///
/// # Errors
/// No such process or window.
pub fn calltree(
    snapshot: &Snapshot,
    scope: &Scope,
    query: &TreeQuery,
    names: &dyn Names,
) -> Result<CallTree, ReportError> {
    let view = View::new(snapshot, scope, query.window)?;
    let sections = match scope {
        Scope::Session => SectionMode::Name,
        Scope::Process(_) | Scope::Named(_) | Scope::Image(_) => SectionMode::None,
    };
    let shape = TreeOptions {
        folding: Folding::new(snapshot, &query.fold)?,
        sections,
        idle_apart: query.idle_apart,
        ..TreeOptions::plain(query.frames, Label::Functions(names))
    };
    let tree = MergedTree::new(&view, shape);
    let visible = visible(&tree, query, MAX_NODES);
    let (root, cut_nodes) = nest(&view, &tree, &visible, query);
    Ok(CallTree {
        as_of: view.as_of(),
        window: view.window(),
        completeness: Completeness::new(&view, &tree.seen(&view, names)),
        truncated: cut_nodes > 0,
        cut_nodes,
        root,
    })
}

/// What decides which of two nodes is the larger.
fn size(query: &TreeQuery, values: &Values) -> (u64, u64) {
    match query.value {
        Some(value) => (value.of(values), values.elapsed_ns()),
        None => (values.elapsed_ns(), values.samples),
    }
}

/// Which nodes are shown: a node is never shown without its callers. Of too many, the smallest are
/// cut.
pub(super) fn visible(tree: &MergedTree<'_>, query: &TreeQuery, max_nodes: usize) -> Vec<bool> {
    let nodes = &tree.nodes;
    let mut visible = vec![true; nodes.len()];
    let mut depth = vec![0usize; nodes.len()];
    let enough =
        |part: u64, whole: u64| part as f64 * 100.0 >= query.min_percent * whole as f64 && part > 0;
    let whole = &nodes[0].total;
    for (index, node) in nodes.iter().enumerate().skip(1) {
        let parent = node.parent as usize;
        depth[index] = depth[parent] + 1;
        let large = query.min_percent <= 0.0
            || match query.value {
                Some(value) => enough(value.of(&node.total), value.of(whole)),
                None => {
                    enough(node.total.elapsed_ns(), whole.elapsed_ns())
                        || enough(node.total.samples, whole.samples)
                }
            };
        visible[index] =
            visible[parent] && large && query.depth.is_none_or(|most| depth[index] <= most);
    }
    let mut shown: Vec<usize> = (1..nodes.len()).filter(|index| visible[*index]).collect();
    if shown.len() > max_nodes {
        // A caller has at least what its callees have and a lower number, so it is never cut before
        // them.
        let size = |index: usize| size(query, &nodes[index].total);
        shown.sort_by(|a, b| size(*b).cmp(&size(*a)).then(a.cmp(b)));
        for index in &shown[max_nodes..] {
            visible[*index] = false;
        }
    }
    visible
}

/// The visible nodes as a tree, and how many were cut.
fn nest(
    view: &View<'_>,
    tree: &MergedTree<'_>,
    visible: &[bool],
    query: &TreeQuery,
) -> (TreeNode, u64) {
    let nodes = &tree.nodes;
    // Nodes that are shown have rows, the root the first; the row of one that is cut is that of the
    // nearest of its callers that are shown. So what is cut takes no room.
    let mut rows = 0;
    let mut row_of = vec![0_u32; nodes.len()];
    for index in 0..nodes.len() {
        row_of[index] = if visible[index] {
            rows += 1;
            rows - 1
        } else {
            row_of[nodes[index].parent as usize]
        };
    }
    let shown_row = |node: u32| visible[node as usize].then(|| row_of[node as usize]);
    let (inclusive, own) = tree.accuracy_of_nodes(rows as usize, shown_row);
    let figures = |index: usize| {
        let (node, row) = (&nodes[index], row_of[index] as usize);
        let of = |values, accuracy: &Accuracy| Figures {
            values,
            accuracy: Some(*accuracy),
        };
        (of(node.total, &inclusive[row]), of(node.own, &own[row]))
    };
    let mut children: Vec<SizedChildren> = (0..rows).map(|_| Vec::new()).collect();
    let mut cut: Vec<(u64, Values)> = vec![(0, Values::default()); rows as usize];
    let mut cut_nodes = 0;
    for index in (1..nodes.len()).rev() {
        let (row, parent) = (row_of[index] as usize, nodes[index].parent as usize);
        if visible[index] {
            let below = finish(view, std::mem::take(&mut children[row]), &cut[row], query);
            let size = size(query, &nodes[index].total);
            let node = node(view, tree, index, &figures(index), below);
            children[row_of[parent] as usize].push((size, node));
        } else {
            cut_nodes += 1;
            cut[row].0 += 1;
            if visible[parent] {
                cut[row].1.add(&nodes[index].total);
            }
        }
    }
    let below = finish(view, std::mem::take(&mut children[0]), &cut[0], query);
    (root(view, &nodes[0].total, below), cut_nodes)
}

/// What a function called, each with its size.
type SizedChildren = Vec<((u64, u64), TreeNode)>;

/// The children in order, with the one that stands for what was cut.
fn finish(
    view: &View<'_>,
    mut children: SizedChildren,
    (cut_nodes, values): &(u64, Values),
    query: &TreeQuery,
) -> Vec<TreeNode> {
    if *cut_nodes > 0 {
        let cut = TreeNode {
            function: CUT.to_owned(),
            module: None,
            kind: "cut",
            values: RowValues::new(
                &Figures::from(*values),
                &Figures::from(*values),
                &view.denominators,
            ),
            cut_nodes: Some(*cut_nodes),
            children: Vec::new(),
        };
        children.push((size(query, values), cut));
    }
    children.sort_by(|(a_size, a), (b_size, b)| {
        let by_size = b_size.cmp(a_size);
        by_size.then_with(|| (&a.function, &a.module).cmp(&(&b.function, &b.module)))
    });
    children.into_iter().map(|(_, node)| node).collect()
}

fn node(
    view: &View<'_>,
    tree: &MergedTree<'_>,
    index: usize,
    (inclusive, own): &(Figures, Figures),
    children: Vec<TreeNode>,
) -> TreeNode {
    let node = &tree.nodes[index];
    let function = &tree.functions[node.function as usize];
    let section: Option<&StackSection> = function.section.as_ref();
    TreeNode {
        function: function.name.clone().into_owned(),
        module: section
            .is_none()
            .then(|| view.snapshot.module(function.module).name.to_string()),
        kind: section.map_or(kind_name(function.kind), |section| section.kind),
        values: RowValues::new(inclusive, own, &view.denominators),
        cut_nodes: None,
        children,
    }
}

fn root(view: &View<'_>, total: &Values, children: Vec<TreeNode>) -> TreeNode {
    let process = match view.members.as_slice() {
        [member] => member.process,
        _ => None,
    };
    let (function, module, kind) = match process {
        Some((_, process)) => {
            let exe = process.info.exe.as_deref().map(str::to_owned);
            (process.info.comm.to_string(), exe, "process")
        }
        None => match view.members.as_slice() {
            [ended] if !view.is_session() => {
                let path = ended.image.map(|image| image.path.to_string());
                (ended.title(), path, "process")
            }
            _ => ("session".to_owned(), None, "session"),
        },
    };
    TreeNode {
        function,
        module,
        kind,
        values: RowValues::new(
            &Figures::from(*total),
            &Figures::default(),
            &view.denominators,
        ),
        cut_nodes: None,
        children,
    }
}
