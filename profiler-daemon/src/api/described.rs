//! What answers are like: in which formats they come, and their types as schemas, for the
//! description of the interface.

use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema as _, ToSchema};

use super::format::Format;
use super::problem::ProblemBody;
use crate::report::Columns;

/// What answers are like that come in several formats.
#[derive(Clone, Copy)]
pub(crate) struct Described {
    /// The formats; the first is that of clients that want nothing else.
    pub(crate) formats: &'static [Format],
    /// What the JSON holds.
    pub(crate) json: fn(&mut Schemas) -> String,
    /// The columns that `sort` takes.
    pub(crate) columns: &'static [&'static str],
}

/// The formats of every report.
pub(crate) const REPORT: &[Format] = &[Format::Json, Format::Text, Format::Events];
/// The formats of a table.
pub(crate) const TABLE: &[Format] = &[Format::Json, Format::Text, Format::Csv, Format::Events];

/// Schemas by name. Of one name the first counts.
pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;

impl Described {
    /// A report without rows.
    pub(crate) const fn report<T: ToSchema>(formats: &'static [Format]) -> Self {
        Self {
            formats,
            json: describe::<T>,
            columns: &[],
        }
    }

    /// A report with rows.
    pub(crate) const fn table<T: ToSchema, Row: ToSchema + Columns>() -> Self {
        Self {
            formats: TABLE,
            // utoipa does not see what a generic list holds.
            json: |schemas| {
                describe::<Row>(schemas);
                describe::<T>(schemas)
            },
            columns: Row::COLUMNS,
        }
    }
}

/// Adds the schema of a type and of all it holds; answers with its name.
pub(crate) fn describe<T: ToSchema>(schemas: &mut Schemas) -> String {
    let name = name_of(std::any::type_name::<T>());
    schemas.push((name.clone(), T::schema()));
    T::schemas(schemas);
    name
}

/// Adds the schema of a problem; answers with its name.
pub(crate) fn describe_problem(schemas: &mut Schemas) -> String {
    let name = "Problem".to_owned();
    schemas.push((name.clone(), ProblemBody::schema()));
    ProblemBody::schemas(schemas);
    name
}

/// The name of a type without its path, as utoipa's derive names it where another type holds it:
/// `List_ProcessRow`.
fn name_of(path: &str) -> String {
    let words = path.split(['<', '>', ',', ' ']);
    let names = words.filter_map(|word| word.rsplit("::").next().filter(|name| !name.is_empty()));
    names.collect::<Vec<_>>().join("_")
}
