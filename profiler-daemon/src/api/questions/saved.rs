//! The whole profile as a file, for `--replay`.

use std::io::{self, Write};
use std::sync::Arc;

use crate::api::answer::Answer;
use crate::api::endpoint::{Does, Get};
use crate::api::format::Format;
use crate::api::question::{Known, NeededFrames, Question};
use crate::api::source::Source;
use crate::api::status::Status;
use crate::export::saved::{Saved, SavedNames};
use crate::profile::snapshot::Snapshot;
use crate::report;
use crate::report::error::ReportError;
use crate::report::query::Scope;

/// See the module.
struct SavedQuestion {
    source: Arc<dyn Source>,
    sampling_period_ns: u64,
}

/// `/api/v1/profile`.
pub(crate) const PROFILE: Get = Get {
    handler: "profile",
    parameters: &[],
    does: Does::File(
        |_, context| {
            Box::new(SavedQuestion {
                source: Arc::clone(&context.source),
                sampling_period_ns: context.sampling_period_ns,
            })
        },
        Format::Profile,
        "a file for --replay",
    ),
};

impl Question for SavedQuestion {
    type Answer = serde_json::Result<Saved>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::frames_needed(snapshot, &Scope::Session)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        let names = SavedNames::new(&self.needs(snapshot)?, known.names);
        let snapshot = Arc::new(snapshot.clone());
        Ok(saved(
            &*self.source,
            snapshot,
            names,
            self.sampling_period_ns,
        ))
    }
}

impl Answer for serde_json::Result<Saved> {
    fn write(&self, _: Format, out: &mut dyn Write) -> io::Result<()> {
        match self {
            Ok(saved) => saved.write(out),
            Err(error) => Err(io::Error::other(error.to_string())),
        }
    }
}

/// A snapshot with its names, and how the daemon was. `names` knows every frame that a report on
/// the session needs; `sampling_period_ns` is the time between two samples of one processor.
///
/// # Errors
/// How the daemon was cannot be written as JSON.
pub fn saved(
    source: &dyn Source,
    snapshot: Arc<Snapshot>,
    names: SavedNames,
    sampling_period_ns: u64,
) -> serde_json::Result<Saved> {
    let status = Status {
        replay: None,
        ..source.status()
    };
    Ok(Saved {
        sampling_period_ns,
        status: serde_json::to_string(&status)?,
        targets: serde_json::to_string(&source.targets())?,
        snapshot,
        names,
    })
}
