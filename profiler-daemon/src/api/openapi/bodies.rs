//! What requests send that change something.

use utoipa::openapi::Required;
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder, Type};

use super::super::change::Change;
use super::super::value::{Describe as _, SessionName};
use super::{content, string};
use crate::config::targets::{
    MAX_CGROUP_BYTES, MAX_CGROUPS, MAX_COMM_BYTES, MAX_COMMS, MAX_PID, MAX_PIDS,
};

/// What a request that changes something sends, where it sends anything.
pub(super) fn body(change: Change) -> Option<RequestBody> {
    let fields = match change {
        Change::StartSession => ObjectBuilder::new()
            .property("name", name_of("The name; without it one is made."))
            .description(Some("The session to start.")),
        Change::Mark => ObjectBuilder::new()
            .property("name", name_of("The name of the span that begins."))
            .required("name")
            .property(
                "session",
                name_of("Only in this session; without it in all that run."),
            )
            .description(Some("The mark to make.")),
        Change::SetTargets => targets(),
        Change::EndSession => return None,
    };
    let body = RequestBodyBuilder::new()
        .required(Some(Required::True))
        .content(
            "application/json",
            content(fields.additional_properties(Some(AdditionalProperties::FreeForm(false)))),
        );
    Some(body.build())
}

fn name_of(about: &str) -> ObjectBuilder {
    SessionName.schema().description(Some(about))
}

/// The body of `PUT /api/v1/targets`.
fn targets() -> ObjectBuilder {
    let list = |items: ObjectBuilder, max: usize, about: &str| {
        ArrayBuilder::new()
            .items(items)
            .max_items(Some(max))
            .description(Some(about))
    };
    let flag = |about: &str| {
        ObjectBuilder::new()
            .schema_type(Type::Boolean)
            .default(Some(false.into()))
            .description(Some(about))
    };
    let pid = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .minimum(Some(1))
        .maximum(Some(MAX_PID));
    let comm = string()
        .min_length(Some(1))
        .max_length(Some(MAX_COMM_BYTES));
    let cgroup = string()
        .pattern(Some("^/"))
        .max_length(Some(MAX_CGROUP_BYTES));
    ObjectBuilder::new()
        .property("all", flag("Whether everything is profiled."))
        .property("pids", list(pid, MAX_PIDS, "Processes by number."))
        .property(
            "comms",
            list(comm, MAX_COMMS, "Processes by the name of their program, bounded in bytes."),
        )
        .property(
            "cgroups",
            list(
                cgroup,
                MAX_CGROUPS,
                "Processes by the path of their control group, bounded in bytes, without . and .. in it.",
            ),
        )
        .property(
            "children",
            flag("Whether children of the named processes are profiled too."),
        )
        .description(Some(
            "What is profiled from now on. What is left out is empty or false; `all` or one name is needed.",
        ))
}
