//! What every answer carries around its rows: when it was made, what it covers, what it lacks.

use serde::Serialize;

use super::{
    completeness::Completeness,
    error::ReportError,
    query::TableQuery,
    scope::View,
    table::{Row, arrange},
    times::WindowSpan,
};

/// The answer to a question for a table.
#[derive(Clone, Debug, Serialize, utoipa::ToSchema)]
pub struct List<Row> {
    /// Time of the drain pass it was made from, RFC 3339.
    #[schema(format = DateTime)]
    pub as_of: String,
    /// The time it covers.
    pub window: WindowSpan,
    /// What it lacks.
    pub completeness: Completeness,
    /// Rows there are, those cut by `limit` included.
    pub total_rows: usize,
    /// Whether `limit` cut rows.
    pub truncated: bool,
    /// The rows, in the order asked for.
    pub rows: Vec<Row>,
}

impl<R> List<R> {
    /// The answer with those of all `rows` that the query wants, in its order.
    pub(super) fn of(
        view: &View<'_>,
        completeness: Completeness,
        rows: Vec<R>,
        query: &TableQuery,
    ) -> Result<Self, ReportError>
    where
        R: Row,
    {
        let cut = arrange(rows, query)?;
        Ok(Self {
            as_of: view.as_of(),
            window: view.window(),
            completeness,
            total_rows: cut.total_rows,
            truncated: cut.rows.len() < cut.total_rows,
            rows: cut.rows,
        })
    }
}
