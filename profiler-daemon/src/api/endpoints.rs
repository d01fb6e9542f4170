//! Every endpoint, a line each: where it is, what is asked there, what it is for.

use super::change::ChangeRequest;
use super::endpoint::{Does, Endpoint, Get};
use super::questions::{
    CALLEES, CALLERS, CALLTREE, DIFF, FUNCTIONS, INSTRUCTIONS, INSTRUMENTATION, INSTRUMENTATIONS,
    LINES, MODULES, NAMED_SESSION, OS_EVENTS, OVERVIEW, PPROF, PROCESS, PROCESS_DIFF,
    PROCESS_TIMELINE, PROCESSES, PROFILE, RECORD_CPU, RECORD_WALL, SESSION, SESSIONS, STATUS,
    TARGETS, THREAD_TIMELINE, THREADS,
};

/// An endpoint that takes no method but `GET`.
const fn get(path: &'static str, get: Get, about: &'static str) -> Endpoint {
    Endpoint {
        path,
        handler: get.handler,
        about,
        parameters: get.parameters,
        get: Some(get.does),
        changes: &[],
    }
}

/// What takes no parameter and is no report.
const fn fixed(handler: &'static str, does: Does) -> Get {
    Get {
        handler,
        parameters: &[],
        does,
    }
}

const INDEX: Get = fixed("index", Does::Index);
const LISTING: Get = fixed("listing", Does::Listing);
const HEALTHY: Get = fixed("healthy", Does::Healthy);
const READY: Get = fixed("ready", Does::Ready);
const METRICS: Get = fixed("metrics", Does::Metrics);
const OPENAPI: Get = fixed("openapi", Does::OpenApi);

/// Every endpoint, in the order in which a person would try them.
pub const ENDPOINTS: &[Endpoint] = &[
    get(
        "/",
        INDEX,
        "the same as /top for the recent time; in a browser, the page over these reports",
    ),
    get(
        "/top",
        OVERVIEW,
        "one screen of text: who is busiest and who waits longest, for what, and in which function",
    ),
    get("/api/v1", LISTING, "this list"),
    get("/healthz", HEALTHY, "200 as soon as the server answers"),
    get("/-/healthy", HEALTHY, "the same"),
    get(
        "/readyz",
        READY,
        "200 when every program is attached and the kernel has been read once, else 503",
    ),
    get("/-/ready", READY, "the same"),
    get("/metrics", METRICS, "metrics for Prometheus"),
    get(
        "/api/v1/status",
        STATUS,
        "version, settings, what is attached, what is degraded, own cost",
    ),
    get(
        "/api/v1/openapi.json",
        OPENAPI,
        "this interface as an OpenAPI document",
    ),
    Endpoint {
        changes: &[ChangeRequest::SetTargets],
        ..get(
            "/api/v1/targets",
            TARGETS,
            "what is profiled; PUT changes it",
        )
    },
    Endpoint {
        changes: &[ChangeRequest::StartSession],
        ..get(
            "/api/v1/sessions",
            SESSIONS,
            "the named sessions; POST starts one",
        )
    },
    Endpoint {
        changes: &[ChangeRequest::EndSession],
        ..get(
            "/api/v1/sessions/{name}",
            NAMED_SESSION,
            "totals of a named session and its spans; DELETE stops it, a second DELETE removes it",
        )
    },
    Endpoint {
        path: "/api/v1/marks",
        handler: "marks",
        about: "begins a new span in the sessions that run",
        parameters: &[],
        get: None,
        changes: &[ChangeRequest::Mark],
    },
    Endpoint {
        changes: &[ChangeRequest::Instrument],
        ..get(
            "/api/v1/instrumentations",
            INSTRUMENTATIONS,
            "functions whose calls are measured exactly; POST has more measured",
        )
    },
    Endpoint {
        changes: &[ChangeRequest::EndInstrumentation],
        ..get(
            "/api/v1/instrumentations/{number}",
            INSTRUMENTATION,
            "what an instrumentation has measured; DELETE ends it, a second DELETE removes it",
        )
    },
    get("/api/v1/session", SESSION, "totals of the session"),
    get("/api/v1/processes", PROCESSES, "a row per process"),
    get(
        "/api/v1/functions",
        FUNCTIONS,
        "a row per function, whole session",
    ),
    get(
        "/api/v1/lines",
        LINES,
        "a row per line of source, whole session",
    ),
    get(
        "/api/v1/instructions",
        INSTRUCTIONS,
        "a row per instruction, whole session",
    ),
    get(
        "/api/v1/modules",
        MODULES,
        "a row per module, whole session",
    ),
    get(
        "/api/v1/threads",
        THREADS,
        "a row per thread, whole session",
    ),
    get(
        "/api/v1/callers",
        CALLERS,
        "a row per caller of a function, whole session",
    ),
    get(
        "/api/v1/callees",
        CALLEES,
        "a row per function that a function calls, whole session",
    ),
    get("/api/v1/calltree", CALLTREE, "the call tree, whole session"),
    get(
        "/api/v1/diff",
        DIFF,
        "two windows, named sessions or processes, compared by function",
    ),
    get(
        "/api/v1/diff/processes",
        PROCESS_DIFF,
        "two windows or named sessions, compared by process",
    ),
    get(
        "/api/v1/os-events",
        OS_EVENTS,
        "time by class and by system call, whole session",
    ),
    get(
        "/api/v1/timeline",
        PROCESS_TIMELINE,
        "what each process did when: its time by class in each span of the recent past",
    ),
    get("/api/v1/processes/{pid}", PROCESS, "totals of one process"),
    get(
        "/api/v1/processes/{pid}/functions",
        FUNCTIONS,
        "a row per function of one process",
    ),
    get(
        "/api/v1/processes/{pid}/lines",
        LINES,
        "a row per line of source of one process",
    ),
    get(
        "/api/v1/processes/{pid}/instructions",
        INSTRUCTIONS,
        "a row per instruction of one process",
    ),
    get(
        "/api/v1/processes/{pid}/modules",
        MODULES,
        "a row per module of one process",
    ),
    get(
        "/api/v1/processes/{pid}/threads",
        THREADS,
        "a row per thread of one process",
    ),
    get(
        "/api/v1/processes/{pid}/callers",
        CALLERS,
        "a row per caller of a function of one process",
    ),
    get(
        "/api/v1/processes/{pid}/callees",
        CALLEES,
        "a row per function that a function calls of one process",
    ),
    get(
        "/api/v1/processes/{pid}/calltree",
        CALLTREE,
        "the call tree of one process",
    ),
    get(
        "/api/v1/processes/{pid}/os-events",
        OS_EVENTS,
        "time by class and by system call of one process",
    ),
    get(
        "/api/v1/processes/{pid}/timeline",
        THREAD_TIMELINE,
        "what each thread of one process did when: its time by class in each span of the recent past",
    ),
    get(
        "/api/v1/processes/{pid}/pprof",
        PPROF,
        "everything about the stacks of one process, for pprof",
    ),
    get(
        "/api/v1/images/{id}",
        PROCESS,
        "totals of the ended processes of one image, which left the list",
    ),
    get(
        "/api/v1/images/{id}/functions",
        FUNCTIONS,
        "a row per function of them",
    ),
    get(
        "/api/v1/images/{id}/lines",
        LINES,
        "a row per line of source of them",
    ),
    get(
        "/api/v1/images/{id}/instructions",
        INSTRUCTIONS,
        "a row per instruction of them",
    ),
    get(
        "/api/v1/images/{id}/modules",
        MODULES,
        "a row per module of them",
    ),
    get(
        "/api/v1/images/{id}/threads",
        THREADS,
        "their threads, as one row",
    ),
    get(
        "/api/v1/images/{id}/callers",
        CALLERS,
        "a row per caller of a function of them",
    ),
    get(
        "/api/v1/images/{id}/callees",
        CALLEES,
        "a row per function that a function of them calls",
    ),
    get("/api/v1/images/{id}/calltree", CALLTREE, "their call tree"),
    get(
        "/api/v1/images/{id}/os-events",
        OS_EVENTS,
        "time by class and by system call of them",
    ),
    get(
        "/api/v1/images/{id}/timeline",
        THREAD_TIMELINE,
        "what they did when",
    ),
    get(
        "/api/v1/images/{id}/pprof",
        PPROF,
        "everything about their stacks, for pprof",
    ),
    get(
        "/api/v1/profile",
        PROFILE,
        "the whole profile as a file, for profiler-daemon --replay",
    ),
    get(
        "/debug/pprof/profile",
        RECORD_CPU,
        "samples and processor time of the next seconds, for pprof",
    ),
    get(
        "/debug/pprof/wall",
        RECORD_WALL,
        "all time and application time of the next seconds, for pprof",
    ),
];

/// The endpoint of a path with its placeholders.
pub(crate) fn find(path: &str) -> Option<&'static Endpoint> {
    ENDPOINTS.iter().find(|endpoint| endpoint.path == path)
}

/// The endpoints for people: a line each.
pub(crate) fn listing() -> String {
    let width = ENDPOINTS
        .iter()
        .map(|endpoint| endpoint.path.len())
        .max()
        .unwrap_or(0);
    let lines = ENDPOINTS.iter().map(|endpoint| {
        let about = if endpoint.parameters.is_empty() {
            endpoint.about.to_owned()
        } else {
            format!("{} ({})", endpoint.about, endpoint.parameters().join(", "))
        };
        format!(
            "{:8} {:width$}  {about}\n",
            endpoint.methods().join(","),
            endpoint.path
        )
    });
    lines.collect()
}
