//! The first screen: who is busy and who waits.

use crate::api::answer::Shown;
use crate::api::described::Described;
use crate::api::endpoint::{Context, Does, Get};
use crate::api::format::Format;
use crate::api::query::SCREEN;
use crate::api::question::{Known, NeededFrames, Question};
use crate::export::overview;
use crate::profile::snapshot::Snapshot;
use crate::report::error::ReportError;
use crate::report::query::Window;
use crate::report::{self, Overview, OverviewQuery};

/// See the module.
pub(crate) struct Screen(OverviewQuery);

/// `/top`.
pub(crate) const OVERVIEW: Get = Get {
    handler: "top",
    parameters: SCREEN,
    does: Does::Report(
        |params, context| Box::new(Screen::of(params.recent(), context)),
        // It is for people first.
        Described::report::<Overview>(&[Format::Text, Format::Json, Format::Events]),
    ),
};

impl Screen {
    /// The screen of this time.
    pub(crate) fn of(window: Window, context: &Context) -> Self {
        Self(OverviewQuery {
            window,
            // Who made a saved profile is not known.
            own_pid: context.source.replay().is_none().then(std::process::id),
        })
    }
}

impl Question for Screen {
    type Answer = Shown<Overview>;

    fn needs(&self, snapshot: &Snapshot) -> NeededFrames {
        report::overview_frames(snapshot, &self.0)
    }

    fn answer(&self, snapshot: &Snapshot, known: Known<'_>) -> Result<Self::Answer, ReportError> {
        let overview = report::overview(snapshot, &self.0, known.names)?;
        Ok(Shown(overview, |overview, mut out| {
            overview::write(overview, &mut out)
        }))
    }
}
