//! Reshapes the document for client generators, which support less of JSON Schema than OpenAPI 3.1
//! allows. The meaning stays the same. Pure.

use serde_json::{Map, Value, json};

/// The path of definitions in the document.
const PLACE: &str = "#/components/schemas/";

/// Gives the objects among the variants of a definition their own names. A generator names an
/// unnamed object after its position, reaches the same position twice, and omits what it has
/// already named.
pub(super) fn with_names(definitions: Map<String, Value>) -> Map<String, Value> {
    let mut all = Map::new();
    for (name, mut schema) in definitions {
        for form in forms(&mut schema) {
            if is_object(form) {
                hoist(form, &name, &mut all);
            }
        }
        all.insert(name, schema);
    }
    all
}

/// The forms that a value may have.
fn forms(schema: &mut Value) -> impl Iterator<Item = &mut Value> {
    let lists = schema.as_object_mut().into_iter().flat_map(Map::iter_mut);
    let lists = lists.filter(|(key, _)| matches!(key.as_str(), "oneOf" | "anyOf"));
    lists.filter_map(|(_, list)| list.as_array_mut()).flatten()
}

fn is_object(schema: &Value) -> bool {
    schema["type"] == "object" && schema["properties"].is_object()
}

/// Moves one form, and the object that it holds, among the definitions: `NewResource` and `session`
/// become `NewResourceSession` and `NewResourceSessionBody`.
fn hoist(form: &mut Value, parent: &str, all: &mut Map<String, Value>) {
    let name = format!("{parent}{}", pascal(&own_word(form)));
    let properties = form["properties"].as_object_mut();
    for (_, property) in properties.into_iter().flat_map(Map::iter_mut) {
        if is_object(property) {
            move_away(property, format!("{name}Body"), all);
        }
    }
    move_away(form, name, all);
}

/// The word that distinguishes a variant: the value of its tag, else its first required field.
fn own_word(form: &Value) -> String {
    let properties = form["properties"].as_object().into_iter().flatten();
    let mut tags = properties.filter_map(|(_, property)| property["const"].as_str());
    let field = || form["required"][0].as_str();
    tags.next().or_else(field).unwrap_or("other").to_owned()
}

fn move_away(schema: &mut Value, name: String, all: &mut Map<String, Value>) {
    let link = json!({"$ref": format!("{PLACE}{name}")});
    all.insert(name, std::mem::replace(schema, link));
}

/// `timed-out` as `TimedOut`.
fn pascal(word: &str) -> String {
    let part = |part: &str| {
        let mut letters = part.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    };
    word.split(['-', '_']).map(part).collect()
}

/// Writes a schema that accepts anything as an object: most generators do not accept `true`.
pub(super) fn open_schemas(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            for (key, value) in fields {
                match (key.as_str(), &mut *value) {
                    ("items", Value::Bool(true)) => *value = json!({}),
                    ("properties", Value::Object(properties)) => {
                        let open = properties.values_mut().filter(|it| **it == json!(true));
                        open.for_each(|it| *it = json!({}));
                    }
                    _ => {}
                }
                open_schemas(value);
            }
        }
        Value::Array(items) => items.iter_mut().for_each(open_schemas),
        _ => {}
    }
}

/// Removes empty defaults of body fields. They have no meaning, and type generators take a field
/// with a default for one that is always present.
pub(super) fn drop_empty_defaults(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            let is_empty = |value: &Value| {
                let list = value.as_array().is_some_and(Vec::is_empty);
                list || value.as_object().is_some_and(Map::is_empty) || value.is_null()
            };
            if fields.get("default").is_some_and(is_empty) {
                fields.remove("default");
            }
            fields.values_mut().for_each(drop_empty_defaults);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_empty_defaults),
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::{drop_empty_defaults, open_schemas, with_names};

    #[test]
    fn a_default_that_says_nothing_is_dropped() {
        let mut schema = json!({"properties": {"a": {"default": {}}, "b": {"default": false}}});
        drop_empty_defaults(&mut schema);
        let expected = json!({"properties": {"a": {}, "b": {"default": false}}});
        assert_eq!(schema, expected);
    }

    #[test]
    fn objects_among_forms_have_names_and_mean_the_same() {
        let inner = json!({"type": "object", "properties": {"id": {"type": "string"}}});
        let form = json!({"type": "object", "properties": {"a-session": inner}, "required": ["a-session"]});
        let tagged = json!({"type": "object", "properties": {"how": {"const": "timed-out"}}});
        let text = json!({"type": "string", "const": "pipes"});
        let given = json!({"Thing": {"oneOf": [form, tagged, text]}, "Other": {"type": "string"}});
        let all = with_names(given.as_object().unwrap().clone());
        let links = &all["Thing"]["oneOf"];
        assert_eq!(links[0]["$ref"], "#/components/schemas/ThingASession");
        assert_eq!(links[1]["$ref"], "#/components/schemas/ThingTimedOut");
        assert_eq!(links[2], text);
        let link = &all["ThingASession"]["properties"]["a-session"]["$ref"];
        assert_eq!(link, "#/components/schemas/ThingASessionBody");
        assert_eq!(all["ThingASessionBody"], inner);
        assert_eq!(all["ThingTimedOut"], tagged);
        assert_eq!(all.len(), 5);
    }

    #[test]
    fn a_schema_that_takes_anything_is_an_object() {
        let mut schema = json!({
            "properties": {"files": {"items": true}, "to": true, "items": {"type": "string"}},
            "additionalProperties": true, "default": true,
        });
        open_schemas(&mut schema);
        assert_eq!(schema["properties"]["files"]["items"], json!({}));
        assert_eq!(schema["properties"]["to"], json!({}));
        assert_eq!(schema["additionalProperties"], true);
        assert_eq!(schema["default"], true);
        open_schemas(&mut Value::Null);
    }
}
