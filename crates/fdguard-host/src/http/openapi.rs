//! The OpenAPI 3.1 document, generated from the same table of routes as the router.

use schemars::generate::SchemaSettings;
use schemars::{JsonSchema as _, Schema, SchemaGenerator};
use serde_json::{Map, Value, json};

use super::accept::JSON;
use super::openapi_shape;
use super::route::{BodyOf, Route};
use super::table;
use crate::scope::AcceptedClose;
use fdguard_http::{Problem, problem};

/// The default address of a host.
const ADDRESS: &str = "127.0.0.1:7878";
/// Statuses that every route may return: an invalid path, an unknown host, an unavailable media
/// type, too many requests, shutdown.
const EVERYWHERE: [u16; 7] = [400, 403, 406, 421, 429, 500, 503];

/// The document.
#[must_use]
pub fn document() -> Value {
    let mut makers = Makers::new();
    let mut paths = Map::new();
    for route in table::routes() {
        let operation = operation(&route, &mut makers);
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        path[route.method.as_str().to_ascii_lowercase()] = operation;
    }
    let refusal = makers.answers.subschema_for::<Problem>();
    let mut paths = Value::Object(paths);
    openapi_shape::open_schemas(&mut paths);
    json!({
        "openapi": "3.1.0",
        "info": {
            "title": "fdguard host",
            "version": "1",
            "summary": "Agent sessions, cleanup, log archiving and abortable HTTP calls, without leaked descriptors or processes",
            "license": {"name": "MIT OR Apache-2.0", "identifier": "MIT OR Apache-2.0"},
        },
        "servers": [{
            "url": "http://{address}",
            "description": "Address of `fdguard host` (`--listen`).",
            "variables": {"address": {"default": ADDRESS}},
        }],
        "security": [{"token": []}],
        "paths": paths,
        "components": {
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
            "responses": {"Refusal": {
                "description": "The request failed (RFC 9457). `code` is stable.",
                "content": {problem::MEDIA_TYPE: {"schema": refusal}},
            }},
            "schemas": makers.definitions(),
        },
    })
}

/// A type can differ between input and output: fields with a default need not be sent but are
/// always returned.
struct Makers {
    bodies: SchemaGenerator,
    answers: SchemaGenerator,
}

impl Makers {
    fn new() -> Self {
        let settings = || {
            let mut settings = SchemaSettings::draft2020_12();
            settings.definitions_path = "/components/schemas".into();
            settings.meta_schema = None;
            settings
        };
        Self {
            bodies: settings().for_deserialize().into_generator(),
            answers: settings().for_serialize().into_generator(),
        }
    }

    fn definitions(mut self) -> Map<String, Value> {
        let mut all = self.bodies.take_definitions(true);
        all.values_mut()
            .for_each(openapi_shape::drop_empty_defaults);
        all.extend(self.answers.take_definitions(true));
        let mut all = openapi_shape::with_names(all);
        all.values_mut().for_each(openapi_shape::open_schemas);
        all
    }
}

fn operation(route: &Route, makers: &mut Makers) -> Value {
    let mut operation = json!({
        "operationId": route.name,
        "summary": route.summary,
        "tags": [tag(route.path)],
        "responses": responses(route, makers),
    });
    let ids: Vec<Value> = route
        .path
        .split('/')
        .filter_map(|word| word.strip_prefix('{')?.strip_suffix('}'))
        .map(parameter)
        .collect();
    if !ids.is_empty() {
        operation["parameters"] = ids.into();
    }
    if let Some(body) = &route.body {
        operation["requestBody"] = request_body(body, makers);
    }
    if route.is_open {
        operation["security"] = json!([]);
    }
    operation
}

fn parameter(name: &str) -> Value {
    json!({
        "name": name,
        "in": "path",
        "required": true,
        "schema": {"type": "string", "minLength": 1},
    })
}

fn tag(path: &str) -> &str {
    let mut words = path.split('/').filter(|word| !word.is_empty());
    let first = words.next().unwrap_or("host");
    words.next().filter(|_| first == "v1").unwrap_or(first)
}

fn request_body(body: &BodyOf, makers: &mut Makers) -> Value {
    let mut schema = Value::from((body.schema)(&mut makers.bodies));
    openapi_shape::drop_empty_defaults(&mut schema);
    json!({
        "required": body.is_required,
        "content": {JSON: {"schema": schema, "example": body.example}},
    })
}

fn responses(route: &Route, makers: &mut Makers) -> Value {
    let mut content = Map::new();
    if let Some((name, schema)) = route.answer.document {
        let schema = named(schema(&mut makers.answers), name);
        content.insert(JSON.to_owned(), json!({"schema": schema}));
    }
    if let Some((media_type, what)) = route.answer.other {
        let kind = if media_type == JSON {
            "object"
        } else {
            "string"
        };
        let schema = json!({"type": kind, "description": what});
        content.insert(media_type.to_owned(), json!({"schema": schema}));
    }
    let status = route.answer.status;
    let mut given = json!({"description": status.canonical_reason(), "content": content});
    if status == http::StatusCode::CREATED {
        let schema = json!({"type": "string", "format": "uri-reference"});
        given["headers"] = json!({"Location": {"schema": schema}});
    }
    let mut responses = Map::new();
    responses.insert(status.as_str().to_owned(), given);
    if route.answer.may_be_later {
        let schema = named(
            AcceptedClose::json_schema(&mut makers.answers),
            "fdguard.accepted/1",
        );
        let given = json!({"description": "Accepted. The scope will be closed shortly; poll the ticket for the result.", "content": {JSON: {"schema": schema}}});
        responses.insert("202".to_owned(), given);
    }
    for status in refusals(route) {
        let refusal = json!({"$ref": "#/components/responses/Refusal"});
        responses.insert(status.to_string(), refusal);
    }
    responses.into()
}

/// All statuses with which a route may refuse.
fn refusals(route: &Route) -> Vec<u16> {
    let token: &[u16] = if route.is_open { &[] } else { &[401] };
    let body: &[u16] = match route.body {
        Some(_) => &[408, 413, 415, 422],
        None => &[],
    };
    let groups = [&EVERYWHERE, token, body, route.refusals];
    let mut all: Vec<u16> = groups.into_iter().flatten().copied().collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// The schema of a document: the fields, and its name among them.
fn named(mut schema: Schema, name: &str) -> Schema {
    let object = schema.ensure_object();
    let properties = object.entry("properties").or_insert_with(|| json!({}));
    properties["schema"] = json!({"const": name});
    let required = object.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut() {
        required.retain(|field| field != "schema");
        required.insert(0, json!("schema"));
    }
    schema
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use serde_json::Value;

    use super::{document, table};

    #[test]
    fn every_route_is_in_the_document_and_nothing_else_is() {
        let document = document();
        let mut written = BTreeSet::new();
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let name = operation["operationId"].as_str().unwrap();
                assert!(!operation["summary"].as_str().unwrap().is_empty(), "{name}");
                written.insert((method.to_uppercase(), path.clone(), name.to_owned()));
            }
        }
        let routes = table::routes();
        let names: BTreeSet<&str> = routes.iter().map(|route| route.name).collect();
        assert_eq!(names.len(), routes.len(), "two routes have one name");
        let known = routes.iter().map(|route| {
            let method = route.method.to_string();
            (method, route.path.to_owned(), route.name.to_owned())
        });
        assert_eq!(known.collect::<BTreeSet<_>>(), written);
    }

    #[test]
    fn every_example_is_taken_by_its_handler() {
        for route in table::routes() {
            let Some(body) = &route.body else { continue };
            let example = serde_json::to_vec(&body.example).unwrap();
            (body.check)(&example).unwrap_or_else(|problem| panic!("{route:?}: {problem:?}"));
        }
    }

    #[test]
    fn every_reference_leads_somewhere() {
        let document = document();
        let mut seen = 0;
        each_reference(&document, &mut |reference| {
            let pointer = reference.strip_prefix('#').unwrap();
            assert!(document.pointer(pointer).is_some(), "{reference}");
            seen += 1;
        });
        assert!(seen > 20, "{seen} references");
    }

    fn each_reference(value: &Value, see: &mut impl FnMut(&str)) {
        match value {
            Value::Object(fields) => {
                for (key, value) in fields {
                    match value {
                        Value::String(to) if key == "$ref" => see(to),
                        value => each_reference(value, see),
                    }
                }
            }
            Value::Array(items) => items.iter().for_each(|item| each_reference(item, see)),
            _ => {}
        }
    }
}
