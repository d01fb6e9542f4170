//! Whom `top` asks: a daemon, over its HTTP interface, or the profiler of this process, which needs
//! no server for that. Both are asked the same, and answer with the same names of fields.

use std::fmt;
use std::sync::Arc;

use anyhow::{Context as _, anyhow};
use serde::Serialize;
use serde_json::Value;

use crate::api::Source;
use crate::api::parameter::WINDOW;
use crate::api::question::ask;
use crate::api::questions::{
    Functions, ProcessQuestion, ProcessesQuestion, SessionQuestion, Threads,
};
use crate::api::value::ParameterKind as _;
use crate::http::Client;
use crate::report::{Scope, TableQuery, ViewQuery};

use super::question::{MAX_ROWS, ScreenQuestion, ScreenView};

/// See the module. Cheap to clone.
#[derive(Clone)]
pub(super) enum Peer {
    /// A daemon.
    Daemon(Client),
    /// The profiler of this process.
    Own(Arc<dyn Source>),
}

/// What is answered to a question: totals, table, and how the profiler is.
pub(super) struct Answers {
    pub(super) totals: Value,
    pub(super) table: Value,
    pub(super) status: Value,
}

impl Peer {
    /// Whether there is something to ask for.
    ///
    /// # Errors
    /// A sentence that says what is missing.
    pub(super) async fn is_ready(&self) -> anyhow::Result<()> {
        match self {
            Self::Daemon(client) => {
                client.get("/readyz").await?;
                Ok(())
            }
            Self::Own(source) => {
                let ready = source.readiness();
                ready.map_err(|missing| anyhow!(missing.join("; ")))
            }
        }
    }

    /// Asks all of a question.
    ///
    /// # Errors
    /// A sentence of who is asked, or why it cannot be asked.
    pub(super) async fn ask(&self, question: &ScreenQuestion) -> anyhow::Result<Answers> {
        let (totals, table, status) = match self {
            Self::Daemon(client) => {
                let (totals, table) = (question.totals_path(), question.table_path());
                let answers = tokio::join!(
                    client.json(&totals),
                    client.json(&table),
                    client.json("/api/v1/status"),
                );
                (answers.0?, answers.1?, answers.2?)
            }
            Self::Own(source) => {
                let (totals, table, ()) = tokio::join!(
                    totals(&**source, question),
                    table(&**source, question),
                    source.renew_status(),
                );
                (totals?, table?, value(&source.status())?)
            }
        };
        Ok(Answers {
            totals,
            table,
            status,
        })
    }
}

/// The totals of the session, or of one process.
async fn totals(source: &dyn Source, question: &ScreenQuestion) -> anyhow::Result<Value> {
    let view = ViewQuery {
        window: WINDOW
            .kind
            .read(question.window)
            .map_err(anyhow::Error::msg)?,
        ..ViewQuery::default()
    };
    match question.view.process() {
        None => value(&ask(source, SessionQuestion(view)).await?.0),
        Some(process) => value(&ask(source, ProcessQuestion(scope(process)?, view)).await?.0),
    }
}

/// The rows that are looked at.
async fn table(source: &dyn Source, question: &ScreenQuestion) -> anyhow::Result<Value> {
    let table = TableQuery {
        sort: Some(question.sort.to_owned()),
        limit: MAX_ROWS,
        q: Some(question.filter.clone()).filter(|filter| !filter.is_empty()),
        window: WINDOW
            .kind
            .read(question.window)
            .map_err(anyhow::Error::msg)?,
        ..TableQuery::default()
    };
    match &question.view {
        ScreenView::Processes => value(&ask(source, ProcessesQuestion(table)).await?.0),
        ScreenView::Functions(process) => {
            let functions = Functions {
                scope: scope(process)?,
                table,
                inlines: false,
            };
            value(&ask(source, functions).await?.0)
        }
        ScreenView::Threads(process) => {
            value(&ask(source, Threads(scope(process)?, table)).await?.0)
        }
    }
}

/// Whom a part of a path names: `processes/PID.START_TICKS` or `images/ID`.
fn scope(process: &str) -> anyhow::Result<Scope> {
    Ok(match process.split_once('/') {
        Some(("images", id)) => Scope::Image(id.parse()?),
        Some((_, pid)) => Scope::Process(pid.parse()?),
        None => return Err(anyhow!("{process} names no process")),
    })
}

/// The fields of an answer by their names.
fn value(answer: &impl Serialize) -> anyhow::Result<Value> {
    serde_json::to_value(answer).context("an answer has no fields")
}

/// Who it is, for people.
impl fmt::Display for Peer {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Daemon(client) => client.fmt(out),
            Self::Own(_) => out.write_str("this process"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::scope;
    use crate::report::query::ImageId;
    use crate::report::{ProcessSelector, Scope};

    // Check that the keys of rows name the same processes and images here as in a path.
    #[test]
    fn scopes() {
        let process = ProcessSelector {
            pid: 12,
            start_ticks: Some(34),
        };
        assert_eq!(scope("processes/12.34").unwrap(), Scope::Process(process));
        assert_eq!(scope("images/other").unwrap(), Scope::Image(ImageId::Other));
        for wrong in ["", "12", "processes/x", "images/x"] {
            assert!(scope(wrong).is_err(), "{wrong}");
        }
    }
}
