//! From where a program waits: of a library's function that spent its own time outside user mode
//! (`epoll_wait`), the nearest function of the program behind it (`ProcSleep`), whatever other
//! libraries lie between.

use std::collections::{BTreeMap, HashSet};

use serde::Serialize;

use super::{
    entry::is_entry,
    figures::Figures,
    merged_tree::{MergedTree, Standing, TreeFunction},
    node::ROOT,
    product::Values,
    scope::View,
    values::percent,
};
use crate::{
    processes::module::{Module, ModuleId, ModuleKind},
    symbols::names::FunctionKind,
};

/// The function of the program from which a library's function was called.
#[derive(Clone, Debug, PartialEq, Serialize, utoipa::ToSchema)]
pub struct CalledFrom {
    /// Its name.
    pub function: String,
    /// Path of its module.
    pub module: String,
    /// Of the row's exclusive elapsed time, what was spent in calls from it.
    pub percent: f64,
}

/// Of each function of the merged tree the one with most of its time, where it has any: of
/// functions that are not the program's own, and spent at least half of their exclusive time
/// outside user mode.
pub(super) fn called_from(
    view: &View<'_>,
    tree: &MergedTree<'_>,
    exclusive: &[Figures],
) -> Vec<Option<CalledFrom>> {
    let whose = ModuleOwners::new(view);
    let wanted: Vec<bool> = tree
        .functions
        .iter()
        .zip(exclusive)
        .map(|(function, figures)| whose.is_library(function) && is_wait(&figures.values))
        .collect();
    let mut sums: BTreeMap<(u32, u32), u64> = BTreeMap::new();
    let mut behind = vec![Behind::default(); tree.nodes.len()];
    for (index, node) in tree.nodes.iter().enumerate().skip(1) {
        let mut callers = behind[node.parent as usize];
        if node.parent != ROOT {
            let caller = tree.nodes[node.parent as usize].function;
            callers.pass(caller, &tree.functions[caller as usize], &whose);
        }
        behind[index] = callers;
        if wanted[node.function as usize]
            && let Some(caller) = callers.nearest()
        {
            let sum = sums.entry((node.function, caller)).or_default();
            *sum = sum.saturating_add(node.own.elapsed_ns());
        }
    }
    let mut most: Vec<Option<(u32, u64)>> = vec![None; wanted.len()];
    let name = |function: u32| {
        let function = &tree.functions[function as usize];
        (&function.name, function.module)
    };
    for ((function, caller), ns) in sums {
        let best = &mut most[function as usize];
        // Of two with the same time, the first by name.
        let is_more = best.is_none_or(|(other, most_ns)| {
            most_ns < ns || (most_ns == ns && name(caller) < name(other))
        });
        if ns > 0 && is_more {
            *best = Some((caller, ns));
        }
    }
    let rows = most.into_iter().zip(exclusive);
    let rows = rows.map(|(most, figures)| {
        let (caller, ns) = most?;
        let function = &tree.functions[caller as usize];
        Some(CalledFrom {
            function: function.name.clone().into_owned(),
            module: view.snapshot.module(function.module).name.to_string(),
            percent: percent(ns, figures.values.elapsed_ns()),
        })
    });
    rows.collect()
}

/// Whether at least half of it passed in system calls or off the processor.
fn is_wait(exclusive: &Values) -> bool {
    let elapsed_ns = exclusive.elapsed_ns();
    elapsed_ns > 0 && exclusive.application_ns() <= elapsed_ns / 2
}

/// The functions that a stack leads through, as far as they can stand for what is called from
/// there.
#[derive(Clone, Copy, Default)]
struct Behind {
    /// The innermost of the program's own.
    program: Option<u32>,
    /// The innermost outside the C library: programs whose code is all in libraries, or in scripts,
    /// have no other.
    library: Option<u32>,
}

impl Behind {
    fn pass(&mut self, number: u32, function: &TreeFunction<'_>, whose: &ModuleOwners<'_>) {
        if whose.is_program(function) && !is_first(&function.name) {
            self.program = Some(number);
        }
        if whose.is_outside_c_library(function) {
            self.library = Some(number);
        }
    }

    fn nearest(self) -> Option<u32> {
        self.program.or(self.library)
    }
}

/// Whether a function is on every stack of its thread, so that it says nothing.
fn is_first(function: &str) -> bool {
    function == "main" || is_entry(function)
}

/// Which modules are whose.
struct ModuleOwners<'v> {
    view: &'v View<'v>,
    programs: HashSet<ModuleId>,
}

impl<'v> ModuleOwners<'v> {
    fn new(view: &'v View<'v>) -> Self {
        let paths: HashSet<&str> = view
            .members
            .iter()
            .flat_map(|member| {
                let exe = member.process.and_then(|(_, of)| of.info.exe.as_deref());
                let image = member.image.map(|image| &*image.path);
                exe.into_iter().chain(image)
            })
            .collect();
        let modules = view.snapshot.modules().iter();
        let programs = modules.filter(|(_, module)| {
            paths.contains(&*module.name) && !is_c_library(module.basename())
        });
        Self {
            view,
            programs: programs.map(|(id, _)| id).collect(),
        }
    }

    fn module(&self, function: &TreeFunction<'_>) -> &'v Module {
        self.view.snapshot.module(function.module)
    }

    /// Whether a function is the program's own: of the file that a process executes, or made at run
    /// time.
    fn is_program(&self, function: &TreeFunction<'_>) -> bool {
        self.programs.contains(&function.module)
            || function.kind == FunctionKind::Jit
            || self.module(function).kind == ModuleKind::Jit
    }

    /// Whether it is code of something else: of a library, or of the kernel.
    fn is_library(&self, function: &TreeFunction<'_>) -> bool {
        function.module != ModuleId::UNKNOWN && !self.is_program(function)
    }

    fn is_outside_c_library(&self, function: &TreeFunction<'_>) -> bool {
        let module = self.module(function);
        function.standing != Standing::PseudoFrame
            && matches!(module.kind, ModuleKind::User | ModuleKind::Jit)
            && !is_c_library(module.basename())
    }
}

/// Whether a file of this name is a part of the C library: glibc's, its threads and its loader in
/// older versions apart, or musl's.
fn is_c_library(basename: &str) -> bool {
    const STEMS: [&str; 6] = ["libc", "libpthread", "ld", "ld-linux", "ld-musl", "librt"];
    let stem = basename.split(".so").next().unwrap_or(basename);
    // ld-linux-x86-64.so.2, libc-2.31.so, libc.musl-x86_64.so.1
    let is_part = |of: &str| {
        let rest = stem.strip_prefix(of);
        rest.is_some_and(|rest| rest.is_empty() || rest.starts_with(['-', '.']))
    };
    basename.contains(".so") && STEMS.into_iter().any(is_part)
}

#[cfg(test)]
mod tests {
    use super::*;

    // Check that the files of the C libraries are told from others whose names only begin alike.
    #[test]
    fn c_libraries() {
        for name in [
            "libc.so.6",
            "libc-2.31.so",
            "libpthread-2.31.so",
            "libpthread.so.0",
            "ld-linux-x86-64.so.2",
            "ld-2.31.so",
            "ld-musl-x86_64.so.1",
            "libc.musl-x86_64.so.1",
        ] {
            assert!(is_c_library(name), "{name}");
        }
        for name in [
            "libcurl.so.4",
            "libc",
            "ld",
            "libcap.so.2",
            "libstdc++.so.6",
            "postgres",
            "ldd",
            "",
        ] {
            assert!(!is_c_library(name), "{name}");
        }
    }

    // Check that half of the time outside user mode makes a wait, and that nothing makes none.
    #[test]
    fn waits() {
        let values = |user_ns, blocked_ns| Values {
            classes: [user_ns, 0, blocked_ns, 0, 0],
            ..Values::default()
        };
        assert!(is_wait(&values(5, 5)) && is_wait(&values(0, 1)));
        assert!(!is_wait(&values(6, 5)) && !is_wait(&Values::default()));
    }
}
