//! A place to be named, and what is needed for that.

use std::sync::Arc;

use crate::processes::{files::ModuleFile, mappings::Place, module::Module, seen::Seen};

/// One place to be named.
#[derive(Clone, Debug)]
pub struct Request {
    /// The place.
    pub place: Place,
    /// Its module.
    pub module: Arc<Module>,
    /// The module's file; `None` for the kernel, and where it could not be opened.
    pub file: Option<Arc<ModuleFile>>,
    /// Where that was mapped last, to find what belongs to it.
    pub seen: Option<Seen>,
}
