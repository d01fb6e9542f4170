//! Every endpoint, declared once: where it is, what may be asked of it, what it is for.

use super::page;
use super::speedscope;
use crate::api::query::{
    DIFF, FORMAT, FUNCTIONS, INSTRUCTIONS, LINES, NEIGHBOURS, PPROF, PROCESS_DIFF, RECORDING,
    SCREEN, TABLE, TIMELINE, TREE, VIEW,
};

/// An endpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Endpoint {
    /// Its path; `{pid}` stands for a process, `{id}` for an image.
    pub path: &'static str,
    /// What may be done to it, beside `HEAD`.
    pub methods: &'static [&'static str],
    /// The parameters it takes.
    pub parameters: &'static [&'static str],
    /// Which handler answers it, also as the label of its metric.
    pub handler: &'static str,
    /// What it answers.
    pub about: &'static str,
}

const fn get(
    path: &'static str,
    parameters: &'static [&'static str],
    handler: &'static str,
    about: &'static str,
) -> Endpoint {
    Endpoint {
        path,
        methods: &["GET"],
        parameters,
        handler,
        about,
    }
}

/// Every endpoint, in the order in which a person would try them.
pub const ENDPOINTS: &[Endpoint] = &[
    get(
        "/",
        &[],
        "index",
        "the same as /top for the recent time; in a browser, the page over these reports",
    ),
    get(
        "/top",
        SCREEN,
        "top",
        "one screen of text: who is busiest and who waits longest, for what, and in which function",
    ),
    get("/api/v1", &[], "listing", "this list"),
    get(
        "/healthz",
        &[],
        "healthy",
        "200 as soon as the server answers",
    ),
    get("/-/healthy", &[], "healthy", "the same"),
    get(
        "/readyz",
        &[],
        "ready",
        "200 when every program is attached and the kernel has been read once, else 503",
    ),
    get("/-/ready", &[], "ready", "the same"),
    get("/metrics", &[], "metrics", "metrics for Prometheus"),
    get(
        "/api/v1/status",
        FORMAT,
        "status",
        "version, settings, what is attached, what is degraded, own cost",
    ),
    get(
        "/api/v1/openapi.json",
        &[],
        "openapi",
        "this interface as an OpenAPI document",
    ),
    Endpoint {
        path: "/api/v1/targets",
        methods: &["GET", "PUT"],
        parameters: FORMAT,
        handler: "targets",
        about: "what is profiled; PUT changes it",
    },
    Endpoint {
        path: "/api/v1/sessions",
        methods: &["GET", "POST"],
        parameters: FORMAT,
        handler: "sessions",
        about: "the named sessions; POST starts one",
    },
    Endpoint {
        path: "/api/v1/sessions/{name}",
        methods: &["GET", "DELETE"],
        parameters: FORMAT,
        handler: "named_session",
        about: "totals of a named session and its spans; DELETE stops it, a second DELETE removes it",
    },
    Endpoint {
        path: "/api/v1/marks",
        methods: &["POST"],
        parameters: &[],
        handler: "marks",
        about: "begins a new span in the sessions that run",
    },
    get("/api/v1/session", VIEW, "session", "totals of the session"),
    get("/api/v1/processes", TABLE, "processes", "a row per process"),
    get(
        "/api/v1/functions",
        FUNCTIONS,
        "functions",
        "a row per function, whole session",
    ),
    get(
        "/api/v1/lines",
        LINES,
        "lines",
        "a row per line of source, whole session",
    ),
    get(
        "/api/v1/instructions",
        INSTRUCTIONS,
        "instructions",
        "a row per instruction, whole session",
    ),
    get(
        "/api/v1/modules",
        TABLE,
        "modules",
        "a row per module, whole session",
    ),
    get(
        "/api/v1/threads",
        TABLE,
        "threads",
        "a row per thread, whole session",
    ),
    get(
        "/api/v1/callers",
        NEIGHBOURS,
        "callers",
        "a row per caller of a function, whole session",
    ),
    get(
        "/api/v1/callees",
        NEIGHBOURS,
        "callees",
        "a row per function that a function calls, whole session",
    ),
    get(
        "/api/v1/calltree",
        TREE,
        "calltree",
        "the call tree, whole session",
    ),
    get(
        "/api/v1/diff",
        DIFF,
        "diff",
        "two windows, named sessions or processes, compared by function",
    ),
    get(
        "/api/v1/diff/processes",
        PROCESS_DIFF,
        "process_diff",
        "two windows or named sessions, compared by process",
    ),
    get(
        "/api/v1/os-events",
        VIEW,
        "os_events",
        "time by class and by system call, whole session",
    ),
    get(
        "/api/v1/timeline",
        TIMELINE,
        "process_timeline",
        "what each process did when: its time by class in each span of the recent past",
    ),
    get(
        "/api/v1/processes/{pid}",
        VIEW,
        "process",
        "totals of one process",
    ),
    get(
        "/api/v1/processes/{pid}/functions",
        FUNCTIONS,
        "functions",
        "a row per function of one process",
    ),
    get(
        "/api/v1/processes/{pid}/lines",
        LINES,
        "lines",
        "a row per line of source of one process",
    ),
    get(
        "/api/v1/processes/{pid}/instructions",
        INSTRUCTIONS,
        "instructions",
        "a row per instruction of one process",
    ),
    get(
        "/api/v1/processes/{pid}/modules",
        TABLE,
        "modules",
        "a row per module of one process",
    ),
    get(
        "/api/v1/processes/{pid}/threads",
        TABLE,
        "threads",
        "a row per thread of one process",
    ),
    get(
        "/api/v1/processes/{pid}/callers",
        NEIGHBOURS,
        "callers",
        "a row per caller of a function of one process",
    ),
    get(
        "/api/v1/processes/{pid}/callees",
        NEIGHBOURS,
        "callees",
        "a row per function that a function calls of one process",
    ),
    get(
        "/api/v1/processes/{pid}/calltree",
        TREE,
        "calltree",
        "the call tree of one process",
    ),
    get(
        "/api/v1/processes/{pid}/os-events",
        VIEW,
        "os_events",
        "time by class and by system call of one process",
    ),
    get(
        "/api/v1/processes/{pid}/timeline",
        TIMELINE,
        "thread_timeline",
        "what each thread of one process did when: its time by class in each span of the recent past",
    ),
    get(
        "/api/v1/processes/{pid}/pprof",
        PPROF,
        "pprof",
        "everything about the stacks of one process, for pprof",
    ),
    get(
        "/api/v1/images/{id}",
        VIEW,
        "process",
        "totals of the ended processes of one image, which left the list",
    ),
    get(
        "/api/v1/images/{id}/functions",
        FUNCTIONS,
        "functions",
        "a row per function of them",
    ),
    get(
        "/api/v1/images/{id}/lines",
        LINES,
        "lines",
        "a row per line of source of them",
    ),
    get(
        "/api/v1/images/{id}/instructions",
        INSTRUCTIONS,
        "instructions",
        "a row per instruction of them",
    ),
    get(
        "/api/v1/images/{id}/modules",
        TABLE,
        "modules",
        "a row per module of them",
    ),
    get(
        "/api/v1/images/{id}/threads",
        TABLE,
        "threads",
        "their threads, as one row",
    ),
    get(
        "/api/v1/images/{id}/callers",
        NEIGHBOURS,
        "callers",
        "a row per caller of a function of them",
    ),
    get(
        "/api/v1/images/{id}/callees",
        NEIGHBOURS,
        "callees",
        "a row per function that a function of them calls",
    ),
    get(
        "/api/v1/images/{id}/calltree",
        TREE,
        "calltree",
        "their call tree",
    ),
    get(
        "/api/v1/images/{id}/os-events",
        VIEW,
        "os_events",
        "time by class and by system call of them",
    ),
    get(
        "/api/v1/images/{id}/timeline",
        TIMELINE,
        "thread_timeline",
        "what they did when",
    ),
    get(
        "/api/v1/images/{id}/pprof",
        PPROF,
        "pprof",
        "everything about their stacks, for pprof",
    ),
    get(
        "/api/v1/profile",
        &[],
        "profile",
        "the whole profile as a file, for profiler-daemon --replay",
    ),
    get(
        "/debug/pprof/profile",
        RECORDING,
        "pprof_profile",
        "samples and processor time of the next seconds, for pprof",
    ),
    get(
        "/debug/pprof/wall",
        RECORDING,
        "pprof_wall",
        "all time and application time of the next seconds, for pprof",
    ),
];

/// Whether an endpoint waits for as long as it is asked to.
pub(super) fn waits(path: Option<&str>) -> bool {
    matches!(handler_of(path), "pprof_profile" | "pprof_wall")
}

/// The label of a path's metric; `none` for what is no endpoint.
pub(super) fn handler_of(path: Option<&str>) -> &'static str {
    let of_page = [page::ROUTE, speedscope::ROUTE, speedscope::FILES_ROUTE];
    if path.is_some_and(|path| of_page.contains(&path)) {
        return "page";
    }
    let endpoint = path.and_then(|path| ENDPOINTS.iter().find(|endpoint| endpoint.path == path));
    endpoint.map_or("none", |endpoint| endpoint.handler)
}

/// The endpoints for people: a line each.
pub(super) fn listing() -> String {
    let width = ENDPOINTS
        .iter()
        .map(|endpoint| endpoint.path.len())
        .max()
        .unwrap_or(0);
    let lines = ENDPOINTS.iter().map(|endpoint| {
        let about = if endpoint.parameters.is_empty() {
            endpoint.about.to_owned()
        } else {
            format!("{} ({})", endpoint.about, endpoint.parameters.join(", "))
        };
        format!(
            "{:8} {:width$}  {about}\n",
            endpoint.methods.join(","),
            endpoint.path
        )
    });
    lines.collect()
}
