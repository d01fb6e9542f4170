//! The call tree, or one value of its stacks in the format of another tool.

use std::io::{self, Write};

use crate::api::answer::{Answer, OneValue, Report};
use crate::api::described::Described;
use crate::api::endpoint::{Does, Get};
use crate::api::format::Format;
use crate::api::query::TREE;
use crate::api::question::{Known, NeededFrames, Question};
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::{Scope, SectionMode, StackQuery, TreeQuery};
use crate::report::{self, CallTree};

/// The formats of a call tree.
const FORMATS: &[Format] = &[
    Format::Json,
    Format::Text,
    Format::Folded,
    Format::Svg,
    Format::Speedscope,
    Format::Firefox,
];

/// The tree, or its stacks.
struct CallTreeQuestion {
    scope: Scope,
    tree: TreeQuery,
    of_stacks: bool,
}

/// `…/calltree`.
pub(crate) const CALLTREE: Get = Get {
    handler: "calltree",
    parameters: TREE,
    does: Does::Report(
        |params, context| {
            Box::new(CallTreeQuestion {
                scope: context.scope,
                tree: TreeQuery {
                    idle_apart: params.idle_apart(&context.scope),
                    ..params.tree()
                },
                of_stacks: false,
            })
        },
        Described::report::<CallTree>(FORMATS),
    ),
};

/// What either is answered with.
enum TreeOrStacks {
    Tree(Box<Report<CallTree>>),
    Stacks(Box<OneValue>),
}

impl Answer for TreeOrStacks {
    fn write(&self, format: Format, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Self::Tree(tree) => tree.write(format, out),
            Self::Stacks(stacks) => stacks.write(format, out),
        }
    }
}

impl Question for CallTreeQuestion {
    type Answer = TreeOrStacks;

    fn in_format(&mut self, format: Format) {
        self.of_stacks = format.is_of_stacks();
    }

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::frames_needed(snapshot, &self.scope)
    }

    fn names_nodes(&self) -> bool {
        true
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        let Self { scope, tree, .. } = self;
        if self.of_stacks {
            let stacks = OneValueOf {
                scope: *scope,
                tree: tree.clone(),
            };
            let stacks = stacks.answer(snapshot, known)?;
            return Ok(TreeOrStacks::Stacks(Box::new(stacks)));
        }
        let tree = report::calltree(snapshot, scope, tree, known.names)?;
        Ok(TreeOrStacks::Tree(Box::new(Report(tree))))
    }
}

/// One value of the stacks of a tree, samples where it says none.
pub(crate) struct OneValueOf {
    pub(crate) scope: Scope,
    pub(crate) tree: TreeQuery,
}

impl Question for OneValueOf {
    type Answer = OneValue;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::frames_needed(snapshot, &self.scope)
    }

    fn names_nodes(&self) -> bool {
        true
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        let value = self.tree.value.unwrap_or_default();
        let query = StackQuery {
            tree: TreeQuery {
                value: Some(value),
                ..self.tree.clone()
            },
            places: false,
            sections: sections(&self.scope),
        };
        let stacks = report::stacks(snapshot, &self.scope, &query, known.names)?;
        Ok(OneValue { stacks, value })
    }
}

/// Under what stacks are put where several processes may have them: their process.
pub(crate) fn sections(scope: &Scope) -> SectionMode {
    match scope {
        Scope::Session => SectionMode::Process,
        Scope::Process(_) | Scope::Image(_) | Scope::Named(_) => SectionMode::None,
    }
}
