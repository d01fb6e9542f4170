//! What a frame counts as: which function, line or place, and which further ones were inlined
//! there.

use std::borrow::Cow;

use super::{
    merged_tree::{CodeLevel, Label, NOT_LOOKED_UP, Standing, TreeFunction},
    names::Names,
    scope::View,
};
use crate::{
    processes::{mappings::Place, module::ModuleId},
    profile::frames::FrameId,
    symbols::{
        lines::{Code, NoLine, Step},
        names::{FunctionKind, Unnamed},
    },
    units::ModuleOffset,
};

/// An inlined function that the debug information does not name.
const NAMELESS: &str = "[inlined]";

/// What makes two frames the same.
#[derive(PartialEq, Eq, Hash)]
pub(super) struct Identity<'n> {
    module: ModuleId,
    name: Cow<'n, str>,
    /// Told apart where frames are.
    offset: Option<ModuleOffset>,
    /// It is no function but the beginning of a section of this kind.
    section: Option<&'static str>,
    inlined: bool,
    source: Option<(&'n str, Option<u32>)>,
    no_line: Option<NoLine>,
}

impl<'n> Identity<'n> {
    pub(super) fn of(function: &TreeFunction<'n>) -> Self {
        Self {
            module: function.module,
            name: function.name.clone(),
            offset: function.offset,
            section: function.section.as_ref().map(|section| section.kind),
            inlined: function.inlined,
            source: function.source.map(|source| (&*source.file, source.line)),
            no_line: function.no_line,
        }
    }
}

/// What a frame counts as: one function, or several where inlined ones count, each called by the
/// one before.
pub(super) fn functions_at<'n>(
    view: &View<'_>,
    label: Label<'n>,
    frame: FrameId,
    kernel: bool,
) -> Vec<TreeFunction<'n>> {
    let place = view.snapshot.frame(frame);
    let module = place.module;
    let place = Place {
        module,
        offset: place.offset,
    };
    match label {
        Label::Modules(_) => vec![whole_module(view, module)],
        Label::Functions(names) => vec![named(names, frame, module, kernel)],
        Label::Frames(names) => vec![TreeFunction {
            offset: Some(place.offset),
            ..named(names, frame, module, kernel)
        }],
        Label::Code(names, lines, level) => {
            let function = named(names, frame, module, kernel);
            at_line(function, lines.code(place), level, place.offset)
        }
    }
}

fn whole_module(view: &View<'_>, module: ModuleId) -> TreeFunction<'static> {
    let standing = if module == ModuleId::UNKNOWN {
        Standing::Unnamed(Unnamed::UnknownModule.name())
    } else {
        Standing::Named
    };
    TreeFunction {
        module,
        kind: view.snapshot.module(module).kind.into(),
        ..TreeFunction::unknown(Cow::Borrowed(""), standing)
    }
}

fn named<'n>(
    names: &'n dyn Names,
    frame: FrameId,
    module: ModuleId,
    kernel: bool,
) -> TreeFunction<'n> {
    let name = names.function(frame);
    let standing = if name.known {
        Standing::Named
    } else {
        Standing::Unnamed(names.unnamed(frame).map_or(NOT_LOOKED_UP, Unnamed::name))
    };
    TreeFunction {
        module,
        address: name.address,
        kind: if kernel {
            FunctionKind::Kernel
        } else {
            name.kind
        },
        ..TreeFunction::unknown(Cow::Borrowed(&*name.name), standing)
    }
}

/// The function of the symbol, with what the debug information says of the place.
fn at_line<'n>(
    function: TreeFunction<'n>,
    code: Option<&'n Code>,
    level: CodeLevel,
    offset: ModuleOffset,
) -> Vec<TreeFunction<'n>> {
    let known: &[Step] = match code.map(|code| &code.steps) {
        Some(Ok(steps)) => steps,
        // Or it was not asked for.
        Some(Err(_)) | None => &[],
    };
    let source = code.map(Code::source);
    let innermost = source.and_then(Result::ok);
    let no_line = source.and_then(Result::err);
    let steps = match level {
        CodeLevel::Functions => {
            let inlined = known.iter().skip(1).map(|step| inlined_in(&function, step));
            let inlined: Vec<TreeFunction<'n>> = inlined.collect();
            return std::iter::once(function).chain(inlined).collect();
        }
        CodeLevel::Lines { inlines: true } if known.len() > 1 => known,
        CodeLevel::Lines { .. } => {
            return vec![TreeFunction {
                source: innermost,
                no_line,
                ..function
            }];
        }
        CodeLevel::Instructions => {
            return vec![TreeFunction {
                offset: Some(offset),
                code_address: code.and_then(|code| code.address),
                source: innermost,
                no_line,
                ..function
            }];
        }
    };
    let with_line = |function: TreeFunction<'n>, step: &'n Step| TreeFunction {
        source: step.source.as_ref(),
        no_line: step.source.is_none().then_some(NoLine::NoLineThere),
        ..function
    };
    let inlined = steps[1..]
        .iter()
        .map(|step| with_line(inlined_in(&function, step), step));
    let inlined: Vec<TreeFunction<'n>> = inlined.collect();
    std::iter::once(with_line(function, &steps[0]))
        .chain(inlined)
        .collect()
}

/// The function of a step, which has no symbol of its own.
fn inlined_in<'n>(function: &TreeFunction<'n>, step: &'n Step) -> TreeFunction<'n> {
    TreeFunction {
        module: function.module,
        kind: function.kind,
        inlined: true,
        ..TreeFunction::unknown(
            Cow::Borrowed(step.function.as_deref().unwrap_or(NAMELESS)),
            Standing::Named,
        )
    }
}
