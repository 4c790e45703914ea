//! JSON schemas of `structuredContent`: the fields that a client may rely on. Every result that is
//! not an error matches the schema of its tool; it may have more fields.

use std::sync::Arc;

use rmcp::handler::server::tool::schema_for_type;
use rmcp::model::JsonObject;
use schemars::JsonSchema;
use serde_json::{Value, json};

use super::say::{InterruptedExec, Ran};

/// Result of a command: `fdguard.exec/1`.
pub(super) fn exec() -> Arc<JsonObject> {
    named::<Ran>("fdguard.exec/1")
}

/// Whether there was something to interrupt: `fdguard.interrupted/1`.
pub(super) fn interrupted() -> Arc<JsonObject> {
    named::<InterruptedExec>("fdguard.interrupted/1")
}

/// The receipt `fdguard.receipt/1`, or `fdguard.reset/1` if there was no session.
pub(super) fn reset() -> Arc<JsonObject> {
    object(json!({
        "type": "object",
        "properties": {
            "schema": {"enum": ["fdguard.receipt/1", "fdguard.reset/1"]},
            "was_open": {"type": "boolean", "description": "Only in fdguard.reset/1: false, because there was no session."},
            "clean": {"type": "boolean", "description": "Nothing of the old session is left."},
            "survivors": {"type": ["integer", "null"], "description": "Processes still running; null if unknown."},
            "killed": {"type": ["integer", "null"], "description": "Processes that had to be killed; null if unknown."},
        },
        "required": ["schema"],
    }))
}

/// What became of each file: `fdguard.archive/1` of the guide.
pub(super) fn archive() -> Arc<JsonObject> {
    object(json!({
        "type": "object",
        "properties": {
            "schema": {"const": "fdguard.archive/1"},
            "success": {"type": "boolean", "description": "Every file is now in the archive."},
            "files": {"type": "array", "items": {"type": "object"}, "description": "One receipt per file."},
            "took_ms": {"type": "number"},
        },
        "required": ["schema", "success", "files"],
    }))
}

/// What every diagnosis has. There is more in it: `fdguard.diagnosis/1` of the guide.
pub(super) fn diagnosis() -> Arc<JsonObject> {
    let finding = json!({
        "type": "object",
        "properties": {
            "rule": {"type": "string"},
            "severity": {"enum": ["info", "warning", "critical"]},
            "pid": {"type": "integer"},
            "why": {"type": "string"},
            "next_step": {"type": "string"},
            "origin": {"type": ["object", "null"], "description": "The code that opened it: culprit {file, line, function} and its stack."},
        },
        "required": ["rule", "severity", "why"],
    });
    object(json!({
        "type": "object",
        "properties": {
            "schema": {"type": "string", "description": "fdguard.diagnosis/1"},
            "verdict": {"type": "string", "description": "leaking, growing, bounded, stable or unknown"},
            "process": {"type": "object"},
            "findings": {"type": "array", "items": finding},
            "hazards": {"type": "array", "items": {"type": "object"}},
            "gaps": {"type": "array", "items": {"type": "object"}, "description": "What could not be examined: what, why, remedy."},
            "check": {"type": "object", "description": "Only from check: passed, and what was left open."},
            "run": {"type": "object", "description": "Only from trace and check: status, ms, stdout and stderr of the program."},
        },
        "required": ["schema", "verdict", "findings"],
    }))
}

/// Which objects hold the descriptors: `fdguard.why/1` of the guide.
pub(super) fn why() -> Arc<JsonObject> {
    object(json!({
        "type": "object",
        "properties": {
            "schema": {"const": "fdguard.why/1"},
            "processes": {"type": "array", "items": {
                "type": "object",
                "properties": {
                    "pid": {"type": "integer"},
                    "comm": {"type": "string"},
                    "refusal": {"type": ["string", "null"], "description": "Why there is no answer, and what works instead."},
                    "sites": {"type": "array", "items": {"type": "object"}, "description": "Per opening line: culprit, what, fds, and why with its chains: basis, count, holders, root, text."},
                },
                "required": ["pid", "comm", "sites"],
            }},
        },
        "required": ["schema", "processes"],
    }))
}

/// What every snapshot has: `fdguard.snapshot/1` of the guide.
pub(super) fn snapshot() -> Arc<JsonObject> {
    object(json!({
        "type": "object",
        "properties": {
            "schema": {"type": "string", "description": "fdguard.snapshot/1"},
            "process": {"type": "object"},
            "count": {"type": ["integer", "null"]},
            "limits": {"type": "object"},
            "classes": {"type": ["array", "null"], "items": {"type": "object"}},
            "lints": {"type": "array", "items": {"type": "object"}},
        },
        "required": ["schema", "process", "count"],
    }))
}

/// The schema of a type, with the name of its document.
fn named<T: JsonSchema + std::any::Any>(name: &str) -> Arc<JsonObject> {
    let mut schema = Value::Object(JsonObject::clone(&schema_for_type::<T>()));
    drop_formats(&mut schema);
    let mut schema = JsonObject::clone(&object(schema));
    let properties = schema.entry("properties").or_insert_with(|| json!({}));
    properties["schema"] = json!({"const": name});
    let required = schema.entry("required").or_insert_with(|| json!([]));
    if let Some(required) = required.as_array_mut() {
        required.insert(0, json!("schema"));
    }
    Arc::new(schema)
}

/// Validators know no formats of numbers (`uint64`), and each client would complain about them.
fn drop_formats(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            if fields.get("format").is_some_and(Value::is_string) {
                fields.remove("format");
            }
            fields.values_mut().for_each(drop_formats);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_formats),
        _ => {}
    }
}

fn object(value: Value) -> Arc<JsonObject> {
    match value {
        Value::Object(fields) => Arc::new(fields),
        _ => Arc::default(),
    }
}
