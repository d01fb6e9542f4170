//! The description of the interface, as an OpenAPI document: paths and parameters as they are declared (`endpoints`, `parameters`),
//! answers as the types that are written (`answers`).
//!
//! `docs/openapi.json` is this document. It says nothing that is not declared elsewhere, but what requests send (`bodies`) and what each
//! status code means (`refusals`).

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

use super::answers::{self, Answer, Schemas};
use super::endpoints::{ENDPOINTS, Endpoint};
use super::format::Format;
use crate::api::parameter::{self, Declared, FORMAT, FUNCTION, SORT, Without};
use crate::api::value::{Describe as _, PROCESS, SessionName, words};

use bodies::body;
use refusals::{
    OF_ALL, OF_BODIES, OF_BOTH, OF_CHANGES, OF_FORMATS, OF_IMAGES, OF_PROCESSES, OF_SESSIONS,
    Refusal,
};

/// What holds for all of it.
const ABOUT: &str = "Reads the profile of a running daemon, and says what is profiled. HEAD works wherever GET does. Errors are \
problems (RFC 9457). Further fields, parameters and endpoints may be added. What the numbers mean is in docs/semantics.md, the rest in \
docs/http-api.md.";

/// The document as it is served and kept: indented JSON.
///
/// # Panics
///
/// Where an endpoint is declared with a parameter or handler that nothing describes.
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
        for method in endpoint.methods {
            let operation = operation(endpoint, method, &mut schemas);
            match *method {
                "GET" => item.get = Some(operation),
                "PUT" => item.put = Some(operation),
                "POST" => item.post = Some(operation),
                "DELETE" => item.delete = Some(operation),
                unknown => unreachable!("nothing says how {unknown} is described"),
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

fn operation(endpoint: &Endpoint, method: &str, schemas: &mut Schemas) -> Operation {
    let answer = answers::of(match (endpoint.handler, method) {
        // A session that was started is answered like one that is asked for.
        ("sessions", "POST") => "named_session",
        (handler, _) => handler,
    });
    let changes = method != "GET";
    let made = match method {
        "POST" => "201",
        _ => "200",
    };
    let of_process = endpoint.path.contains("{pid}");
    let mut operation = OperationBuilder::new()
        .operation_id(Some(operation_id(endpoint, method)))
        .summary(Some(endpoint.about))
        .tag(tag(endpoint.path))
        .response(made, good(answer, changes, schemas));
    let mut refusals = vec![OF_ALL];
    if of_process {
        operation = operation.parameter(
            ParameterBuilder::new()
                .name("pid")
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .description(Some(
                    "The process: its number, as in 1234, or number and start, as in 1234.5678, where the number was used again.",
                ))
                .schema(Some(string().pattern(Some(format!("^{PROCESS}$"))))),
        );
    }
    if endpoint.path.contains("{id}") {
        refusals.push(OF_IMAGES);
        operation = operation.parameter(
            ParameterBuilder::new()
                .name("id")
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .description(Some(
                    "The image, by the image_id of its row of /api/v1/processes.",
                ))
                .schema(Some(
                    string().pattern(Some("^([0-9a-f]{16}|kernel|other)$")),
                )),
        );
    }
    let of_session = endpoint.path.contains("{name}");
    if of_session {
        operation = operation.parameter(
            ParameterBuilder::new()
                .name("name")
                .parameter_in(ParameterIn::Path)
                .required(Required::True)
                .description(Some("The session."))
                .schema(Some(SessionName.schema())),
        );
    }
    let mut names_process = of_process;
    let mut names_session = of_session || endpoint.handler == "marks";
    if method == "DELETE" {
        let removed = "It was stopped already, and is removed.";
        operation = operation.response("204", ResponseBuilder::new().description(removed));
        refusals.push(OF_CHANGES);
    } else if changes {
        operation = operation.request_body(Some(body(endpoint.handler)));
        refusals.push(OF_CHANGES);
        refusals.push(OF_BODIES);
    } else {
        for name in endpoint.parameters {
            let declared = declared(name);
            names_process |= declared.kind().names_process();
            names_session |= declared.kind().names_session();
            operation = match of_endpoint(declared, answer) {
                Some(schema) => operation.parameter(parameter(declared, schema, endpoint.handler)),
                None => {
                    operation.parameter_ref(Ref::new(format!("#/components/parameters/{name}")))
                }
            };
        }
        if matches!(answer, Answer::Report { .. }) {
            refusals.push(OF_FORMATS);
        }
    }
    match (names_process, names_session) {
        (true, false) => refusals.push(OF_PROCESSES),
        (false, true) => refusals.push(OF_SESSIONS),
        (true, true) => refusals.push(OF_BOTH),
        (false, false) => {}
    }
    for Refusal(code, name, _) in refusals.into_iter().flatten() {
        operation = operation.response(code.to_string(), Ref::from_response_name(*name));
    }
    operation.build()
}

/// The declaration of a parameter.
fn declared(name: &str) -> &'static dyn Declared {
    let found = parameter::ALL.iter().find(|known| known.name() == name);
    match found {
        Some(declared) => *declared,
        None => unreachable!("the parameter {name} is not declared in http/parameters.rs"),
    }
}

/// What a parameter may be that is not the same at all endpoints.
fn of_endpoint(declared: &dyn Declared, answer: Answer) -> Option<ObjectBuilder> {
    match answer {
        Answer::Report { formats, .. } if declared.name() == FORMAT.name => {
            Some(words(formats.iter().map(|format| format.name())))
        }
        Answer::Report { columns, .. } if declared.name() == SORT.name => {
            Some(words(columns.iter().copied()))
        }
        _ if matches!(declared.without(), Without::RefusalBy(_)) => Some(declared.kind().schema()),
        _ => None,
    }
}

fn parameter(declared: &dyn Declared, mut schema: ObjectBuilder, handler: &str) -> Parameter {
    if let Without::Default(text) = declared.without() {
        schema = schema.default(Some(declared.kind().json(text)));
    }
    let required = match declared.without() {
        Without::Refusal => Required::True,
        Without::RefusalBy(handlers) if handlers.contains(&handler) => Required::True,
        Without::RefusalBy(_) => Required::False,
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
fn good(answer: Answer, changes: bool, schemas: &mut Schemas) -> Response {
    let mut response = ResponseBuilder::new();
    match answer {
        Answer::Fixed(bodies) => {
            let about: Vec<_> = bodies.iter().map(|(_, about)| *about).collect();
            response = response.description(about.join("; or "));
            for (content_type, _) in bodies {
                let media = content_type.split(';').next().unwrap_or_default();
                response = response.content(media, content_of(media));
            }
        }
        Answer::Report { formats, json, .. } => {
            response = response.description("The answer.");
            let json = Ref::from_schema_name(json(schemas));
            // What is changed is answered as JSON.
            let formats = if changes { &[Format::Json] } else { formats };
            for format in formats {
                let media = format.media_type();
                let of_others = formats.iter().any(|other| {
                    *other != Format::Json && other.media_type() == Format::Json.media_type()
                });
                let content = match format {
                    Format::Json if of_others => {
                        content(AnyOfBuilder::new().item(json.clone()).item(
                            ObjectBuilder::new().description(Some(
                                "The JSON of another tool, where its format is asked for.",
                            )),
                        ))
                    }
                    Format::Json => content(json.clone()),
                    Format::Events { .. } => content(event(json.clone())),
                    other if other.media_type() == Format::Json.media_type() => continue,
                    _ => content_of(media),
                };
                response = response.content(media, content);
            }
        }
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
    let problem = Ref::from_schema_name(answers::describe_problem(&mut schemas));
    let mut components = ComponentsBuilder::new();
    // The last one would count.
    for (name, schema) in schemas.into_iter().rev() {
        components = components.schema(name, schema);
    }
    for declared in parameter::ALL {
        if ![FORMAT.name, SORT.name, FUNCTION.name].contains(&declared.name()) {
            let parameter = parameter(*declared, declared.kind().schema(), "");
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
