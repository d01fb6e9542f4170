//! The types of answers as schemas, for the description of the interface.

use utoipa::openapi::{RefOr, Schema};
use utoipa::{PartialSchema as _, ToSchema};

use super::problem::ProblemBody;

/// Schemas by name. Of one name the first counts.
pub(crate) type Schemas = Vec<(String, RefOr<Schema>)>;

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

/// The name of a type without its path, as utoipa's derive names it where another type holds it: `List_ProcessRow`.
fn name_of(path: &str) -> String {
    let words = path.split(['<', '>', ',', ' ']);
    let names = words.filter_map(|word| word.rsplit("::").next().filter(|name| !name.is_empty()));
    names.collect::<Vec<_>>().join("_")
}
