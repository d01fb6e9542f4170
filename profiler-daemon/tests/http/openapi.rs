//! The description of the interface against the interface itself.

use axum::http::header;
use jsonschema::Validator;
use profiler_daemon::api::{ENDPOINTS, openapi_document};
use serde_json::{Value, json};

use super::reports::{target, with};
use super::{ask, get, request, server};

fn document() -> Value {
    serde_json::from_str(&openapi_document()).unwrap()
}

/// A validator of what a schema of the document describes, which refuses members that it does not
/// describe.
fn validator(document: &Value, schema: &Value) -> Validator {
    let mut whole = schema.clone();
    close(&mut whole);
    whole["components"] = document["components"].clone();
    for schema in whole["components"]["schemas"]
        .as_object_mut()
        .unwrap()
        .values_mut()
    {
        close_members(schema);
    }
    jsonschema::draft202012::options()
        .should_validate_formats(true)
        .build(&whole)
        .unwrap()
}

/// Lets a schema, where it is used, take no members but those it describes.
fn close(schema: &mut Value) {
    if ["$ref", "allOf", "properties"]
        .iter()
        .any(|key| schema.get(key).is_some())
    {
        schema["unevaluatedProperties"] = false.into();
    }
    close_members(schema);
}

/// The same for all that a schema holds.
fn close_members(schema: &mut Value) {
    for (key, close) in [
        ("properties", close as fn(&mut Value)),
        // Each of these describes a part of the members.
        ("allOf", close_members),
    ] {
        match schema.get_mut(key) {
            Some(Value::Object(members)) => members.values_mut().for_each(close),
            Some(Value::Array(parts)) => parts.iter_mut().for_each(close),
            _ => {}
        }
    }
    if let Some(items) = schema.get_mut("items") {
        close(items);
    }
}

/// The answer that is described for a status code, references followed.
fn response<'a>(document: &'a Value, operation: &'a Value, status: u16) -> &'a Value {
    let response = &operation["responses"][status.to_string()];
    match response.get("$ref").and_then(Value::as_str) {
        Some(reference) => document.pointer(reference.trim_start_matches('#')).unwrap(),
        None => response,
    }
}

#[track_caller]
fn check(document: &Value, operation: &Value, answer: &super::Answer, asked: &str) {
    let status = answer.status.as_u16();
    let described = response(document, operation, status);
    let content_type = answer.header(header::CONTENT_TYPE);
    let media = content_type.split(';').next().unwrap();
    let content = &described["content"][media];
    assert!(
        content.is_object(),
        "{asked} answers {status} as {media}, which is not described"
    );
    if media.ends_with("json") && content["schema"].get("anyOf").is_none() {
        let validator = validator(document, &content["schema"]);
        let errors: Vec<_> = validator
            .iter_errors(&answer.json())
            .map(|error| format!("{}: {error}", error.instance_path()))
            .collect();
        assert!(errors.is_empty(), "{asked}: {errors:#?}");
    }
}

#[tokio::test]
async fn answers_are_as_described() {
    // Check that each endpoint is described, and that its answers in every described format have a
    // described type and, as JSON, exactly the described members.
    let served = get("/api/v1/openapi.json").await;
    assert_eq!(served.text(), openapi_document());
    let document = document();
    for endpoint in ENDPOINTS {
        if !endpoint.methods().contains(&"GET") {
            assert!(document["paths"][endpoint.path].is_object());
            continue;
        }
        let operation = &document["paths"][endpoint.path]["get"];
        let target = target(endpoint.path);
        check(&document, operation, &get(&target).await, &target);
        let parameters = operation["parameters"].as_array();
        let format = parameters
            .into_iter()
            .flatten()
            .find(|parameter| parameter["name"] == "format");
        let formats = format.map_or(&Value::Null, |format| &format["schema"]["enum"]);
        let once = |format: &&Value| **format != "events";
        for format in formats.as_array().into_iter().flatten().filter(once) {
            let target = with(&target, &format!("format={}", format.as_str().unwrap()));
            check(&document, operation, &get(&target).await, &target);
        }
    }
}

#[tokio::test]
async fn the_call_tree_is_as_described() {
    // Check the JSON of a call tree, whose media type it shares with other tools' formats.
    let document = document();
    let schema = json!({"$ref": "#/components/schemas/CallTree"});
    let errors = validator(&document, &schema)
        .iter_errors(&get("/api/v1/calltree").await.json())
        .count();
    assert_eq!(errors, 0);
    let mut other = get("/api/v1/calltree").await.json();
    other["root"]["children"][0]["extra"] = 1.into();
    assert!(
        !validator(&document, &schema).is_valid(&other),
        "this test finds nothing"
    );
}

#[tokio::test]
async fn refusals_are_as_described() {
    // Check that wrong parameters, processes, formats, hosts and bodies are answered with a
    // described problem.
    let document = document();
    let functions = &document["paths"]["/api/v1/processes/{pid}/functions"]["get"];
    for (asked, status) in [
        ("/api/v1/processes/x/functions", 400),
        ("/api/v1/processes/42/functions?limit=x", 400),
        ("/api/v1/processes/43/functions", 410),
        ("/api/v1/processes/9/functions", 404),
    ] {
        let answer = get(asked).await;
        assert_eq!(answer.status, status, "{asked}");
        check(&document, functions, &answer, asked);
    }
    for (name, value, status) in [
        (header::ACCEPT, "image/png", 406),
        (header::HOST, "evil.example", 421),
    ] {
        let mut wrong = request("GET", "/api/v1/processes/42/functions");
        wrong.headers_mut().insert(name, value.parse().unwrap());
        let answer = ask(server(), wrong).await;
        assert_eq!(answer.status, status);
        check(&document, functions, &answer, value);
    }
    let targets = &document["paths"]["/api/v1/targets"]["put"];
    for (media, body, status) in [
        ("application/json", r#"{"all":true}"#, 200),
        ("application/json", r#"{"all":1}"#, 400),
        ("application/json", r#"{"cgroups":["/missing"]}"#, 409),
        ("text/plain", "{}", 415),
    ] {
        let mut put = request("PUT", "/api/v1/targets");
        put.headers_mut()
            .insert(header::CONTENT_TYPE, media.parse().unwrap());
        *put.body_mut() = body.into();
        let answer = ask(server(), put).await;
        assert_eq!(answer.status, status, "{body}");
        check(&document, targets, &answer, body);
    }
}

#[test]
fn names_are_used_once() {
    // Check that every question has a name of its own, that every reference leads somewhere, and
    // that nothing refers to code.
    let document = document();
    let paths = document["paths"].as_object().unwrap();
    let operations = paths
        .values()
        .flat_map(|item| item.as_object().unwrap().values());
    let mut names: Vec<_> = operations
        .map(|operation| operation["operationId"].as_str().unwrap())
        .collect();
    names.sort_unstable();
    let count = names.len();
    names.dedup();
    assert_eq!(names.len(), count, "{names:?}");
    let mut references = 0;
    follow(&document, &document, &mut references);
    assert!(references > 100, "{references} references");
    assert!(
        !openapi_document().contains("[`"),
        "a sentence of the document is meant for readers of the code"
    );
}

fn follow(document: &Value, value: &Value, references: &mut usize) {
    match value {
        Value::Object(members) => {
            if let Some(reference) = members.get("$ref").and_then(Value::as_str) {
                let found = document.pointer(reference.trim_start_matches('#'));
                assert!(found.is_some(), "{reference} leads nowhere");
                *references += 1;
            }
            members
                .values()
                .for_each(|member| follow(document, member, references));
        }
        Value::Array(items) => items
            .iter()
            .for_each(|item| follow(document, item, references)),
        _ => {}
    }
}
