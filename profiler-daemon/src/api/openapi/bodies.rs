//! What requests send that change something.

use utoipa::openapi::Required;
use utoipa::openapi::request_body::{RequestBody, RequestBodyBuilder};
use utoipa::openapi::schema::{AdditionalProperties, ArrayBuilder, ObjectBuilder, Type};

use super::super::change::ChangeRequest;
use super::super::instrumentation::{
    MAX_BUDGET_PERCENT, MAX_PATTERN_BYTES, MAX_PATTERNS, MIN_BUDGET_PERCENT,
};
use super::super::value::{Describe as _, SessionName, words};
use super::{content, string};
use crate::config::targets::{
    MAX_CGROUP_BYTES, MAX_CGROUPS, MAX_COMM_BYTES, MAX_COMMS, MAX_PID, MAX_PIDS,
};
use crate::stages::choosing::MAX_ITEMS;
use crate::symbols::spans::MAX_SPAN_NAME_BYTES;

/// What a request that changes something sends, where it sends anything.
pub(super) fn body(change: ChangeRequest) -> Option<RequestBody> {
    let fields = match change {
        ChangeRequest::StartSession => ObjectBuilder::new()
            .property("name", name_of("The name; without it one is made."))
            .description(Some("The session to start.")),
        ChangeRequest::Mark => ObjectBuilder::new()
            .property("name", name_of("The name of the span that begins."))
            .required("name")
            .property(
                "session",
                name_of("Only in this session; without it in all that run."),
            )
            .description(Some("The mark to make.")),
        ChangeRequest::SetTargets => targets(),
        ChangeRequest::Instrument => instrumentation(),
        ChangeRequest::EndSession | ChangeRequest::EndInstrumentation => return None,
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

fn list(items: ObjectBuilder, max: usize, about: &str) -> ArrayBuilder {
    ArrayBuilder::new()
        .items(items)
        .max_items(Some(max))
        .description(Some(about))
}

fn flag(default: bool, about: &str) -> ObjectBuilder {
    ObjectBuilder::new()
        .schema_type(Type::Boolean)
        .default(Some(default.into()))
        .description(Some(about))
}

/// The body of `POST /api/v1/instrumentations`.
fn instrumentation() -> ObjectBuilder {
    let pattern = string()
        .pattern(Some("^[^:]+:[^:]"))
        .max_length(Some(MAX_PATTERN_BYTES));
    let functions = list(
        pattern,
        MAX_PATTERNS,
        "Which functions: MODULE:FUNCTION, in both * stands for any text; MODULE is a path or its last part, FUNCTION a name as linkers write it or as it reads, or +0x1234.",
    );
    let point = string()
        .pattern(Some("^[^:]+:[^:]"))
        .max_length(Some(MAX_PATTERN_BYTES));
    let usdt = list(
        point,
        MAX_ITEMS,
        "Which USDT points have their hits counted: PROVIDER:NAME, or MODULE:PROVIDER:NAME, in each * stands for any text; with ,arg0 to ,arg5 behind, the values of that argument too.",
    );
    let exits = words(["auto", "sites", "trampolines", "none"].into_iter());
    let length = string().default(Some("60s".into()));
    let budget = ObjectBuilder::new()
        .schema_type(Type::Number)
        .minimum(Some(MIN_BUDGET_PERCENT))
        .maximum(Some(MAX_BUDGET_PERCENT))
        .default(Some(5.into()));
    named_processes()
        .property("name", name_of("What it is called."))
        .property("functions", functions)
        .property("usdt", usdt)
        .property("spans", list(span(), MAX_ITEMS, "Which spans: the time from a start to the end with the same key, in whichever threads; names are told apart."))
        .property("all", flag(false, "Whether it is of every process; no others are named then."))
        .property("children", flag(true, "Whether children of the named processes are measured too."))
        .property(
            "exits",
            exits.default(Some("auto".into())).description(Some(
                "How ends of calls are found: at the function's own returns (auto, sites), or not at all: calls are counted. trampolines is refused.",
            )),
        )
        .property(
            "callers",
            flag(true, "Whether it is told where measured functions are called from."),
        )
        .property(
            "for",
            length.description(Some("How long, 1s to 1h; everything is detached by itself then.")),
        )
        .property(
            "budget_percent",
            budget.description(Some("What probes may take of one processor from a process.")),
        )
        .property("dry_run", flag(false, "Whether to attach nothing, and only say what would be."))
        .description(Some(
            "What to measure, functions, usdt or spans, at least one of them; and of whom: pids, comms, cgroups, or all. Allowed only where the configuration says instrumentation.over_http = true.",
        ))
}

/// A span of an instrumentation.
fn span() -> ObjectBuilder {
    let end = |about: &str| {
        let end = string().pattern(Some("^[^:]+:[^:]"));
        let end = end.max_length(Some(MAX_PATTERN_BYTES));
        end.description(Some(about))
    };
    let name = string()
        .min_length(Some(1))
        .max_length(Some(MAX_SPAN_NAME_BYTES))
        .description(Some("What it is called."));
    let keys = ["tid", "arg0", "arg1", "arg2", "arg3", "arg4", "arg5"];
    let key = words(keys.into_iter()).description(Some(
        "Which end belongs to which start: that in the same thread (tid), or that with the same value of an argument in the same process.",
    ));
    ObjectBuilder::new()
        .property("name", name)
        .required("name")
        .property("start", end("Where it starts: at entries of functions, MODULE:FUNCTION, or at USDT points, usdt:[MODULE:]PROVIDER:NAME."))
        .required("start")
        .property("end", end("Where it ends, in the same way."))
        .required("end")
        .property("key", key)
        .required("key")
        .additional_properties(Some(AdditionalProperties::FreeForm(false)))
}

/// The body of `PUT /api/v1/targets`.
fn targets() -> ObjectBuilder {
    named_processes()
        .property("all", flag(false, "Whether everything is profiled."))
        .property(
            "children",
            flag(false, "Whether children of the named processes are profiled too."),
        )
        .description(Some(
            "What is profiled from now on. What is left out is empty or false; `all` or one name is needed.",
        ))
}

/// Processes by number, name and group.
fn named_processes() -> ObjectBuilder {
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
}
