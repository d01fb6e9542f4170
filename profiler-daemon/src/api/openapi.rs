//! The description of the interface, as an OpenAPI document: paths and parameters as they are
//! declared (`endpoints`, `parameters`), answers as the types that are written (`described`).
//!
//! `docs/openapi.json` is this document. It says nothing that is not declared elsewhere, but what
//! requests send (`bodies`) and what each status code means (`refusals`).

mod bodies;
mod refusals;

use utoipa::openapi::path::{
    Operation, OperationBuilder, Parameter, ParameterBuilder, ParameterIn,
};
use utoipa::openapi::schema::{
    AnyOfBuilder, Components, KnownFormat, ObjectBuilder, SchemaFormat, SchemaType, Type,
};
use utoipa::openapi::{
    ComponentsBuilder, Content, ContentBuilder, HeaderBuilder, InfoBuilder, LicenseBuilder,
    OpenApi, OpenApiBuilder, PathItem, PathsBuilder, Ref, RefOr, Required, Response,
    ResponseBuilder, Schema,
};

use super::change::{ChangeRequest, Method};
use super::described::{self, Described, Schemas};
use super::endpoint::{Does, Endpoint};
use super::endpoints::ENDPOINTS;
use super::format::Format;
use super::parameter::{self, Declared, FORMAT, FUNCTION, SORT, Without};
use super::value::{Describe as _, PROCESS, SessionName, words};

use crate::metrics;

use bodies::body;
use refusals::{
    OF_ALL, OF_BODIES, OF_BOTH, OF_CHANGES, OF_FORMATS, OF_IMAGES, OF_INSTRUMENTATIONS,
    OF_PROCESSES, OF_SESSIONS, Refusal,
};

/// What holds for all of it.
const ABOUT: &str = "Reads the profile of a running daemon, and says what is profiled. HEAD works wherever GET does. Errors are \
problems (RFC 9457). Further fields, parameters and endpoints may be added. What the numbers mean is in docs/semantics.md, the rest in \
docs/http-api.md.";

/// The document as it is served and kept: indented JSON.
///
/// # Panics
///
/// Never: a document of strings and numbers can be written.
#[must_use]
pub fn document() -> String {
    let mut text = describe()
        .to_pretty_json()
        .expect("a document of strings and numbers can be written");
    text.push('\n');
    text
}

fn describe() -> OpenApi {
    let mut schemas = Schemas::new();
    let mut paths = PathsBuilder::new();
    for endpoint in ENDPOINTS {
        let mut item = PathItem::default();
        item.get = endpoint.get.map(|does| asked(endpoint, does, &mut schemas));
        for change in endpoint.changes {
            let operation = Some(changed(endpoint, *change, &mut schemas));
            match change.method() {
                Method::Put => item.put = operation,
                Method::Post => item.post = operation,
                Method::Delete => item.delete = operation,
            }
        }
        paths = paths.path(endpoint.path, item);
    }
    let info = InfoBuilder::new()
        .title("profiler-daemon")
        .version(env!("CARGO_PKG_VERSION"))
        .description(Some(ABOUT))
        .license(Some(
            LicenseBuilder::new()
                .name("MIT OR Apache-2.0")
                .identifier(Some("MIT OR Apache-2.0"))
                .build(),
        ));
    OpenApiBuilder::new()
        .info(info)
        .paths(paths)
        .components(Some(components(schemas)))
        .build()
}

/// What `GET` does.
fn asked(endpoint: &Endpoint, does: Does, schemas: &mut Schemas) -> Operation {
    let about = ApiAbout::of(endpoint);
    let operation = OperationBuilder::new()
        .operation_id(Some(operation_id(endpoint, "get")))
        .response("200", good(does, schemas));
    let described = match does {
        Does::Report(_, described) | Does::Now(_, described) | Does::Later(_, described) => {
            Some(described)
        }
        _ => None,
    };
    let mut operation = about
        .parameters
        .iter()
        .fold(operation, |operation, one| operation.parameter(one.clone()));
    let (mut names_process, mut names_session) = (about.names_process, about.names_session);
    for declared in endpoint.parameters {
        names_process |= declared.kind().names_process();
        names_session |= declared.kind().names_session();
        operation = match of_endpoint(*declared, described) {
            Some(schema) => operation.parameter(parameter(*declared, schema)),
            None => {
                let name = declared.name();
                operation.parameter_ref(Ref::new(format!("#/components/parameters/{name}")))
            }
        };
    }
    let is_refused_by_format =
        described.is_some() || matches!(does, Does::File(..) | Does::Record(_));
    let of_formats = if is_refused_by_format {
        OF_FORMATS
    } else {
        &[]
    };
    let refusals = [OF_ALL, about.refusals, of_formats];
    finish(endpoint, operation, &refusals, names_process, names_session)
}

/// What a change does.
fn changed(endpoint: &Endpoint, change: ChangeRequest, schemas: &mut Schemas) -> Operation {
    let about = ApiAbout::of(endpoint);
    let method = change.method();
    let made = match method {
        Method::Post => "201",
        Method::Put | Method::Delete => "200",
    };
    // What is changed is answered as JSON.
    let answers = Described {
        formats: &[Format::Json],
        ..change.answers()
    };
    let operation = OperationBuilder::new()
        .operation_id(Some(operation_id(endpoint, method.name())))
        .response(made, report(answers, schemas));
    let operation = match change {
        // A dry run makes nothing.
        ChangeRequest::Instrument => operation.response("200", report(answers, schemas)),
        _ => operation,
    };
    let mut operation = about
        .parameters
        .iter()
        .fold(operation, |operation, one| operation.parameter(one.clone()));
    let mut refusals = vec![OF_ALL, about.refusals, OF_CHANGES];
    match body(change) {
        Some(body) => {
            operation = operation.request_body(Some(body));
            refusals.push(OF_BODIES);
        }
        None => {
            let removed = "It was stopped already, and is removed.";
            operation = operation.response("204", ResponseBuilder::new().description(removed));
        }
    }
    let names_session = about.names_session || change == ChangeRequest::Mark;
    finish(
        endpoint,
        operation,
        &refusals,
        about.names_process,
        names_session,
    )
}

/// What the path of an endpoint says.
struct ApiAbout {
    parameters: Vec<Parameter>,
    refusals: &'static [Refusal],
    names_process: bool,
    names_session: bool,
}

impl ApiAbout {
    fn of(endpoint: &Endpoint) -> Self {
        let mut about = Self {
            parameters: Vec::new(),
            refusals: &[],
            names_process: endpoint.path.contains("{pid}"),
            names_session: endpoint.path.contains("{name}"),
        };
        let mut add = |name: &str, is: &str, schema: ObjectBuilder| {
            let parameter = ParameterBuilder::new()
                .name(name)
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .description(Some(is))
                .schema(Some(schema));
            about.parameters.push(parameter.build());
        };
        if about.names_process {
            add(
                "pid",
                "The process: its number, as in 1234, or number and start, as in 1234.5678, where the number was used again.",
                string().pattern(Some(format!("^{PROCESS}$"))),
            );
        }
        if endpoint.path.contains("{id}") {
            about.refusals = OF_IMAGES;
            add(
                "id",
                "The image, by the image_id of its row of /api/v1/processes.",
                string().pattern(Some("^([0-9a-f]{16}|kernel|other)$")),
            );
        }
        if endpoint.path.contains("{number}") {
            about.refusals = OF_INSTRUMENTATIONS;
            add(
                "number",
                "The instrumentation, by its id.",
                string().pattern(Some("^[1-9][0-9]{0,8}$")),
            );
        }
        if about.names_session {
            add("name", "The session.", SessionName.schema());
        }
        about
    }
}

/// Adds what every operation has, and what it is refused with.
fn finish(
    endpoint: &Endpoint,
    operation: OperationBuilder,
    refusals: &[&'static [Refusal]],
    names_process: bool,
    names_session: bool,
) -> Operation {
    let named = match (names_process, names_session) {
        (true, false) => OF_PROCESSES,
        (false, true) => OF_SESSIONS,
        (true, true) => OF_BOTH,
        (false, false) => &[],
    };
    let mut operation = operation
        .summary(Some(endpoint.about))
        .tag(tag(endpoint.path));
    for Refusal(code, name, _) in refusals.iter().copied().chain([named]).flatten() {
        operation = operation.response(code.to_string(), Ref::from_response_name(*name));
    }
    operation.build()
}

/// What a parameter may be that is not the same at all endpoints.
fn of_endpoint(declared: &dyn Declared, described: Option<Described>) -> Option<ObjectBuilder> {
    match described {
        Some(Described { formats, .. }) if declared.name() == FORMAT.name => {
            Some(words(formats.iter().map(|format| format.name())))
        }
        Some(Described { columns, .. }) if declared.name() == SORT.name => {
            Some(words(columns.iter().copied()))
        }
        // Some endpoints need it, others do not.
        _ if declared.name() == FUNCTION.name => Some(declared.kind().schema()),
        _ => None,
    }
}

fn parameter(declared: &dyn Declared, mut schema: ObjectBuilder) -> Parameter {
    if let Without::Default(text) = declared.without() {
        schema = schema.default(Some(declared.kind().json(text)));
    }
    let required = match declared.without() {
        Without::Refusal => Required::True,
        Without::Default(_) | Without::Nothing => Required::False,
    };
    ParameterBuilder::new()
        .name(declared.name())
        .parameter_in(ParameterIn::Query)
        .required(required)
        .description(Some(declared.about()))
        .schema(Some(schema))
        .build()
}

/// What a right question is answered with.
fn good(does: Does, schemas: &mut Schemas) -> Response {
    let text = "text/plain";
    let json = Format::Json.media_type();
    match does {
        Does::Report(_, described) | Does::Now(_, described) | Does::Later(_, described) => {
            report(described, schemas)
        }
        Does::File(_, format, about) => fixed(&[(format.media_type(), about)]),
        Does::Record(_) => fixed(&[(Format::Pprof.media_type(), "a profile for pprof, in gzip")]),
        Does::Index => fixed(&[
            (text, "who is busy and who waits, as at /top"),
            ("text/html", "the page over these reports"),
        ]),
        Does::Listing => fixed(&[(text, "every endpoint, a line each")]),
        Does::Healthy | Does::Ready => fixed(&[(text, "one word")]),
        Does::Metrics => fixed(&[(metrics::CONTENT_TYPE, "metrics in the Prometheus format")]),
        Does::OpenApi => fixed(&[(json, "this description")]),
    }
}

/// Media types, and what comes as each. The first is that of clients that want nothing else.
fn fixed(bodies: &[(&str, &str)]) -> Response {
    let about: Vec<_> = bodies.iter().map(|(_, about)| *about).collect();
    let mut response = ResponseBuilder::new().description(about.join("; or "));
    for (content_type, _) in bodies {
        let media = content_type.split(';').next().unwrap_or_default();
        response = response.content(media, content_of(media));
    }
    response.build()
}

/// An answer in several formats.
fn report(Described { formats, json, .. }: Described, schemas: &mut Schemas) -> Response {
    let mut response = ResponseBuilder::new().description("The answer.");
    let json = Ref::from_schema_name(json(schemas));
    for format in formats {
        let media = format.media_type();
        let is_json = |format: &Format| format.media_type() == Format::Json.media_type();
        let of_others = formats
            .iter()
            .any(|other| *other != Format::Json && is_json(other));
        let content = match format {
            Format::Json if of_others => content(AnyOfBuilder::new().item(json.clone()).item(
                ObjectBuilder::new().description(Some(
                    "The JSON of another tool, where its format is asked for.",
                )),
            )),
            Format::Json => content(json.clone()),
            Format::Events => content(event(json.clone())),
            other if is_json(other) => continue,
            _ => content_of(media),
        };
        response = response.content(media, content);
    }
    response.build()
}

/// One event of a stream: before OpenAPI 3.2 that is what the schema of this media type describes.
fn event(json: Ref) -> ObjectBuilder {
    let time = string().format(Some(SchemaFormat::KnownFormat(KnownFormat::DateTime)));
    let kind = string().description(Some(
        "Absent in an answer; `error` in the last event where the answer cannot be made any more: then the data is a problem.",
    ));
    let data = string()
        .content_media_type(Format::Json.media_type())
        .content_schema(Some(json));
    let retry = ObjectBuilder::new()
        .schema_type(Type::Integer)
        .description(Some("When to come back after the end, milliseconds."));
    ObjectBuilder::new()
        .description(Some(
            "One event. There is one at once, and one each interval.",
        ))
        .property("id", time.description(Some("The time of the data.")))
        .property("event", kind)
        .property("data", data)
        .required("data")
        .property("retry", retry)
}

/// A body that only its media type describes.
fn content_of(media: &str) -> Content {
    if media.starts_with("text/") || media == "image/svg+xml" {
        content(string())
    } else if media == Format::Json.media_type() {
        content(ObjectBuilder::new())
    } else {
        Content::default()
    }
}

fn content(schema: impl Into<RefOr<Schema>>) -> Content {
    ContentBuilder::new().schema(Some(schema)).build()
}

fn string() -> ObjectBuilder {
    ObjectBuilder::new().schema_type(Type::String)
}

fn components(mut schemas: Schemas) -> Components {
    let problem = Ref::from_schema_name(described::describe_problem(&mut schemas));
    let mut components = ComponentsBuilder::new();
    // The last one would count.
    for (name, schema) in schemas.into_iter().rev() {
        components = components.schema(name, schema);
    }
    for declared in parameter::ALL {
        if ![FORMAT.name, SORT.name, FUNCTION.name].contains(&declared.name()) {
            let parameter = parameter(*declared, declared.kind().schema());
            components = components.parameter(declared.name(), parameter);
        }
    }
    for Refusal(code, name, about) in refusals::ALL.iter().copied().flatten() {
        let mut response = ResponseBuilder::new()
            .description(*about)
            .content("application/problem+json", content(problem.clone()));
        if *code == 503 {
            let seconds = ObjectBuilder::new()
                .schema_type(SchemaType::new(Type::Integer))
                .minimum(Some(1));
            response = response.header(
                "Retry-After",
                HeaderBuilder::new().schema(Some(seconds)).build(),
            );
        }
        components = components.response(*name, response.build());
    }
    components.build()
}

/// A name for this question in programs: `get_processes_pid_functions`.
fn operation_id(endpoint: &Endpoint, method: &str) -> String {
    let path = endpoint.path;
    let path = path.strip_prefix("/api/v1").unwrap_or(path);
    let words = path.split(|c: char| !c.is_ascii_alphanumeric());
    let mut words: Vec<_> = words.filter(|word| !word.is_empty()).collect();
    if words.is_empty() {
        words.push(endpoint.handler);
    }
    format!("{}_{}", method.to_ascii_lowercase(), words.join("_"))
}

/// What an endpoint is listed under.
fn tag(path: &str) -> &'static str {
    if path.contains("{pid}") {
        "one process"
    } else if path.contains("{id}") {
        "ended processes of one image"
    } else if path.contains("pprof") {
        "pprof"
    } else if let Some(rest) = path.strip_prefix("/api/v1/") {
        match rest {
            "status" | "targets" | "openapi.json" => "daemon",
            "marks" => "named sessions",
            rest if rest.starts_with("sessions") => "named sessions",
            _ => "session",
        }
    } else if path == "/top" {
        "session"
    } else {
        "daemon"
    }
}
