//! Which modules' frames are shown: those of the others are folded into their callers, so no total
//! changes.

use std::collections::HashSet;

use super::error::ReportError;
use super::query::Fold;
use crate::{
    processes::module::{Module, ModuleId},
    profile::snapshot::Snapshot,
};

/// Looks whether each name is that of a module.
///
/// # Errors
/// [`ReportError::UnknownModule`].
pub fn check_fold(snapshot: &Snapshot, fold: &Fold) -> Result<(), ReportError> {
    Folding::new(snapshot, fold).map(drop)
}

/// A [`Fold`] with each module looked up.
#[derive(Clone, Debug, Default)]
pub(super) struct Folding {
    /// All others are shown.
    hidden: HashSet<ModuleId>,
}

impl Folding {
    /// Whether all frames are shown.
    pub(super) fn is_empty(&self) -> bool {
        self.hidden.is_empty()
    }

    /// Looks up every name.
    ///
    /// # Errors
    /// When a name is that of no module.
    pub(super) fn new(snapshot: &Snapshot, fold: &Fold) -> Result<Self, ReportError> {
        if fold.modules.is_empty() && fold.hide.is_empty() {
            return Ok(Self::default());
        }
        for (parameter, names) in [("modules", &fold.modules), ("hide", &fold.hide)] {
            for name in names {
                let mut all = snapshot.modules().iter();
                if !all.any(|(_, module)| is_named(module, name)) {
                    return Err(ReportError::UnknownModule {
                        parameter,
                        given: name.clone(),
                    });
                }
            }
        }
        let named = |names: &[String], module: &Module| names.iter().any(|n| is_named(module, n));
        let hidden = snapshot.modules().iter().filter(|(_, module)| {
            let wanted = fold.modules.is_empty() || named(&fold.modules, module);
            !wanted || named(&fold.hide, module)
        });
        Ok(Self {
            hidden: hidden.map(|(id, _)| id).collect(),
        })
    }

    /// What shows this module alone.
    ///
    /// # Errors
    /// When the name is that of no module.
    pub(super) fn only(snapshot: &Snapshot, module: &str) -> Result<Self, ReportError> {
        let all = snapshot.modules().iter();
        let (shown, hidden): (Vec<_>, Vec<_>) = all.partition(|(_, known)| is_named(known, module));
        if !shown.is_empty() {
            Ok(Self {
                hidden: hidden.into_iter().map(|(id, _)| id).collect(),
            })
        } else {
            Err(ReportError::UnknownModule {
                parameter: "module",
                given: module.to_owned(),
            })
        }
    }

    /// Whether frames of this module are folded into their callers.
    pub(super) fn hides(&self, module: ModuleId) -> bool {
        self.hidden.contains(&module)
    }
}

/// Whether `pattern` names this module, by its whole name or the last part of it.
pub(super) fn is_named(module: &Module, pattern: &str) -> bool {
    matches(&module.name, pattern) || matches(module.basename(), pattern)
}

/// Whether `text` is `pattern`, where `*` stands for any text. Takes at most the product of their
/// lengths.
fn matches(text: &str, pattern: &str) -> bool {
    let Some((first, rest)) = pattern.split_once('*') else {
        return text == pattern;
    };
    let Some(mut text) = text.strip_prefix(first) else {
        return false;
    };
    let mut parts: Vec<&str> = rest.split('*').collect();
    let last = parts.pop().unwrap_or_default();
    for part in parts {
        match text.find(part) {
            Some(at) => text = &text[at + part.len()..],
            None => return false,
        }
    }
    text.ends_with(last)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::processes::module::ModuleKind;

    // Check that a module is found by its path, its last part and with wildcards, and not by what
    // only looks like it.
    #[test]
    fn patterns() {
        let module = Module::named("/usr/lib/libc.so.6", ModuleKind::User);
        for pattern in [
            "/usr/lib/libc.so.6",
            "libc.so.6",
            "libc*",
            "*libc*",
            "/usr/*",
            "*",
            "lib*so*6",
            "l*i*b*6",
        ] {
            assert!(is_named(&module, pattern), "{pattern}");
        }
        for pattern in [
            "libc",
            "",
            "lib",
            "LIBC*",
            "libc.so.6*x",
            "*so",
            "libc.so.6/",
        ] {
            assert!(!is_named(&module, pattern), "{pattern}");
        }
        assert!(!matches("ab", "ab*b"), "a part is not counted twice");
    }
}
