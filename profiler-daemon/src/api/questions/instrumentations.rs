//! Instrumentations: which there are, and what one has measured.

use std::io::{self, Write};

use crate::api::answer::{Answer, Shown, write_json};
use crate::api::described::Described;
use crate::api::endpoint::{Does, Get};
use crate::api::format::Format;
use crate::api::parameter::{Declarations, FORMAT};
use crate::api::problem::Problem;
use crate::export::csv;
use crate::export::instrumentations::{write_list, write_one};
use crate::report::{Instrumentation, Instrumentations};

/// What both take.
const PARAMETERS: Declarations = &[&FORMAT];

/// `/api/v1/instrumentations`.
pub(crate) const INSTRUMENTATIONS: Get = Get {
    handler: "instrumentations",
    parameters: PARAMETERS,
    does: Does::Later(
        |source, _| {
            Box::pin(async move {
                let instrumentations = source.instrumentations().await?;
                let all = Instrumentations { instrumentations };
                Ok(
                    Box::new(Shown(all, |all, mut out| write_list(all, &mut out)))
                        as Box<dyn Answer>,
                )
            })
        },
        Described::report::<Instrumentations>(&[Format::Json, Format::Text]),
    ),
};

/// `/api/v1/instrumentations/{number}`.
pub(crate) const INSTRUMENTATION: Get = Get {
    handler: "instrumentation",
    parameters: PARAMETERS,
    does: Does::Later(
        |source, number| {
            Box::pin(async move {
                let id = number.unwrap_or_default();
                let one = source.instrumentation(id).await?;
                let one = one.ok_or_else(|| unknown(id))?;
                Ok(Box::new(One(one)) as Box<dyn Answer>)
            })
        },
        Described::report::<Instrumentation>(&[Format::Json, Format::Text, Format::Csv]),
    ),
};

/// There is no such instrumentation.
pub(crate) fn unknown(id: u32) -> Problem {
    Problem::new(
        404,
        "unknown-instrumentation",
        "There is no such instrumentation",
        format!(
            "there is no instrumentation {id}: it was removed, or never begun (/api/v1/instrumentations lists all)"
        ),
    )
}

struct One(Instrumentation);

impl Answer for One {
    fn write(&self, format: Format, mut out: &mut dyn Write) -> io::Result<()> {
        match format {
            Format::Text => write_one(&self.0, &mut out),
            Format::Csv => csv::write(&self.0, &mut out),
            _ => write_json(&self.0, out),
        }
    }
}
