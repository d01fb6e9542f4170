//! Which functions of a merged tree a question means by name.

use super::{
    error::ReportError,
    fold::is_named,
    merged_tree::{MergedTree, TreeFunction},
    scope::View,
};

/// Most names that a refusal suggests.
const MAX_SIMILAR: usize = 5;

/// For each function whether it is meant: it has that name, in that module, as far as they are
/// given.
///
/// # Errors
/// No function has that name.
pub(super) fn meant(
    view: &View<'_>,
    tree: &MergedTree<'_>,
    function: Option<&str>,
    module: Option<&str>,
) -> Result<Vec<bool>, ReportError> {
    let in_module = |function: &TreeFunction<'_>| {
        let of = view.snapshot.module(function.module);
        module.is_none_or(|module| is_named(of, module))
    };
    let is_meant =
        |f: &TreeFunction<'_>| function.is_none_or(|function| *f.name == *function) && in_module(f);
    let meant: Vec<bool> = tree.functions.iter().map(is_meant).collect();
    let Some(given) = function.filter(|_| !meant.contains(&true)) else {
        return Ok(meant);
    };
    let part = given.to_lowercase();
    let mut similar: Vec<String> = tree
        .functions
        .iter()
        .filter(|f| f.name.to_lowercase().contains(&part) && in_module(f))
        .map(|f| f.name.to_string())
        .collect();
    similar.sort();
    similar.dedup();
    similar.truncate(MAX_SIMILAR);
    Err(ReportError::UnknownFunction {
        given: given.to_owned(),
        similar,
    })
}
