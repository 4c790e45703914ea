//! Checks client input before the protocol library reads it: a message, a batch, or neither. The
//! library drops what it cannot read or answers without an id, but a client waits for its id. Pure.

use rmcp::model::ErrorCode;
use serde_json::{Value, json};

/// The versions whose clients may send several messages as a list. 2025-06-18 removed that.
const WITH_BATCHES: [&str; 2] = ["2024-11-05", "2025-03-26"];
/// UTF-8 text may start with this mark (RFC 8259, section 8.1).
const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// The input.
#[derive(Debug, PartialEq)]
pub(super) enum Intake {
    /// One JSON value: a message, if [`check`] finds nothing wrong with it.
    One(Value),
    /// A list of them, with at least one.
    Batch(Vec<Value>),
}

/// Why something is not a message, as the answer to it.
#[derive(Debug, PartialEq)]
pub(super) struct Refusal {
    /// The id of the request; `null` if it cannot be read.
    id: Value,
    code: ErrorCode,
    message: String,
}

impl Refusal {
    pub(super) fn invalid(id: Value, message: impl Into<String>) -> Self {
        Self {
            id,
            code: ErrorCode::INVALID_REQUEST,
            message: message.into(),
        }
    }

    /// Whether it is not even JSON.
    pub(super) fn is_unreadable(&self) -> bool {
        self.code == ErrorCode::PARSE_ERROR
    }

    /// The answer.
    pub(super) fn to_json(&self) -> Value {
        let error = json!({"code": self.code, "message": self.message});
        json!({"jsonrpc": "2.0", "id": self.id, "error": error})
    }
}

/// Reads the input.
pub(super) fn read(bytes: &[u8]) -> Result<Intake, Refusal> {
    let bytes = bytes.strip_prefix(BYTE_ORDER_MARK).unwrap_or(bytes);
    match serde_json::from_slice(bytes) {
        Ok(Value::Array(list)) if list.is_empty() => {
            Err(Refusal::invalid(Value::Null, "empty batch"))
        }
        Ok(Value::Array(list)) => Ok(Intake::Batch(list)),
        Ok(value) => Ok(Intake::One(value)),
        Err(error) => Err(Refusal {
            id: Value::Null,
            code: ErrorCode::PARSE_ERROR,
            message: format!(
                "invalid JSON at line {}, column {}",
                error.line(),
                error.column()
            ),
        }),
    }
}

/// Whether a value has the form of a request, a notification or an answer.
pub(super) fn check(message: &Value) -> Result<(), Refusal> {
    let Some(fields) = message.as_object() else {
        return Err(Refusal::invalid(Value::Null, "message must be an object"));
    };
    let id = request_id(message);
    let refuse = |why: &str| {
        let id = id.cloned().unwrap_or_default();
        Err(Refusal::invalid(id, why))
    };
    if fields.get("jsonrpc") != Some(&json!("2.0")) {
        return refuse("jsonrpc must be \"2.0\"");
    }
    if fields.contains_key("id") && id.is_none() {
        return refuse("id must be a string or an integer");
    }
    match fields.get("method") {
        Some(Value::String(_)) => {}
        Some(_) => return refuse("method must be a string"),
        None if fields.contains_key("result") || fields.contains_key("error") => return Ok(()),
        None => return refuse("method is missing"),
    }
    match fields.get("params") {
        None | Some(Value::Object(_)) => Ok(()),
        Some(_) => refuse("params must be an object"),
    }
}

/// The id of a message, if it has one that the protocol allows.
pub(super) fn request_id(message: &Value) -> Option<&Value> {
    let id = message.get("id")?;
    (id.is_string() || id.is_i64() || id.is_u64()).then_some(id)
}

/// Whether the client waits for an answer to it.
pub(super) fn is_request(message: &Value) -> bool {
    message.get("method").is_some() && message.get("id").is_some()
}

/// The version that a client requests in its first message.
pub(super) fn version(message: &Value) -> Option<&str> {
    let is_first = message.get("method") == Some(&json!("initialize"));
    message["params"]["protocolVersion"]
        .as_str()
        .filter(|_| is_first)
}

/// Whether batches belong to a version of the protocol.
pub(super) fn has_batches(version: &str) -> bool {
    WITH_BATCHES.contains(&version)
}

/// A message of a batch, if it can be one of it.
pub(super) fn check_member(message: &Value) -> Result<(), Refusal> {
    check(message)?;
    match version(message) {
        Some(_) => {
            let id = request_id(message).cloned().unwrap_or_default();
            Err(Refusal::invalid(id, "initialize must not be in a batch"))
        }
        None => Ok(()),
    }
}

/// Reads any message, for the fuzz target: what is refused gets an answer with the id it came with.
#[cfg(feature = "fuzzing")]
pub fn fuzz_message(bytes: &[u8]) {
    let messages = match read(bytes) {
        Ok(Intake::One(message)) => vec![message],
        Ok(Intake::Batch(messages)) => messages,
        Err(refusal) => return assert!(refusal.to_json()["error"]["code"].is_i64()),
    };
    assert!(!messages.is_empty());
    for message in messages {
        let _first = version(&message).map(has_batches);
        if let Err(refusal) = check(&message) {
            let id = request_id(&message).cloned().unwrap_or_default();
            assert_eq!(refusal.to_json()["id"], id);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::{Intake, check, check_member, has_batches, is_request, read, version};

    fn refused(message: Value) -> (Value, Value) {
        let answer = check(&message).unwrap_err().to_json();
        (answer["id"].clone(), answer["error"]["code"].clone())
    }

    #[test]
    fn a_refusal_has_the_id_of_its_request_or_null() {
        let invalid = json!(-32600);
        for (message, id) in [
            (
                json!({"jsonrpc": "1.0", "id": 7, "method": "ping"}),
                json!(7),
            ),
            (json!({"id": "a", "method": "ping"}), json!("a")),
            (json!({"jsonrpc": "2.0", "id": 7, "method": 8}), json!(7)),
            (json!({"jsonrpc": "2.0", "id": 7}), json!(7)),
            (
                json!({"jsonrpc": "2.0", "id": 7, "method": "x", "params": "y"}),
                json!(7),
            ),
            (
                json!({"jsonrpc": "2.0", "id": null, "method": "ping"}),
                Value::Null,
            ),
            (
                json!({"jsonrpc": "2.0", "id": 1.5, "method": "ping"}),
                Value::Null,
            ),
            (json!({"no": "message"}), Value::Null),
            (json!(1), Value::Null),
        ] {
            assert_eq!(refused(message.clone()), (id, invalid.clone()), "{message}");
        }
    }

    #[test]
    fn messages_pass() {
        for message in [
            json!({"jsonrpc": "2.0", "id": 7, "method": "ping"}),
            json!({"jsonrpc": "2.0", "id": "7", "method": "x", "params": {}}),
            json!({"jsonrpc": "2.0", "method": "notifications/initialized"}),
            json!({"jsonrpc": "2.0", "id": 7, "result": {}}),
            json!({"jsonrpc": "2.0", "id": 7, "error": {"code": 1, "message": "no"}}),
        ] {
            assert_eq!(check(&message), Ok(()), "{message}");
        }
        assert!(!is_request(
            &json!({"jsonrpc": "2.0", "id": 7, "result": {}})
        ));
    }

    #[test]
    fn a_list_is_a_batch_of_one_version() {
        assert_eq!(read(b"\xEF\xBB\xBF[1]"), Ok(Intake::Batch(vec![json!(1)])));
        assert!(!read(b"[]").unwrap_err().is_unreadable());
        let answer = read(b"{\"a\":").unwrap_err().to_json();
        assert_eq!(
            (&answer["id"], &answer["error"]["code"]),
            (&Value::Null, &json!(-32700))
        );
        let first = json!({"jsonrpc": "2.0", "id": 1, "method": "initialize",
                           "params": {"protocolVersion": "2025-03-26"}});
        assert!(version(&first).is_some_and(has_batches));
        assert!(!has_batches("2025-06-18"));
        assert_eq!(check_member(&first).unwrap_err().to_json()["id"], 1);
    }

    proptest! {
        #[test]
        fn whatever_comes_is_read_or_refused(bytes in any::<Vec<u8>>(), text in "[\\[{\":0-9a-z, }\\]]*") {
            for bytes in [&bytes[..], text.as_bytes()] {
                if let Ok(Intake::One(value)) = read(bytes) {
                    let _checked = check_member(&value);
                }
            }
        }
    }
}
