//! Lines of a service that look like events of the supervisor. Pure.

use serde_json::Value;

/// The beginning of text events.
const TEXT: &[u8] = b"fdguard_event";
/// The schema of JSON events.
const SCHEMA: &str = "fdguard.event";

/// Whether a reader of event lines would mistake this for one.
pub(super) fn is_event(line: &[u8]) -> bool {
    let start = line.iter().position(|byte| *byte > b' ');
    let line = line.get(start.unwrap_or(line.len())..).unwrap_or_default();
    line.starts_with(TEXT) || (line.starts_with(b"{") && has_schema(line))
}

/// JSON letters can be written as `\u` escapes.
fn has_schema(line: &[u8]) -> bool {
    let contains = |part: &[u8]| line.windows(part.len()).any(|window| window == part);
    if contains(SCHEMA.as_bytes()) {
        return true;
    }
    contains(br"\u") && serde_json::from_slice(line).is_ok_and(|value| mentions(&value))
}

fn mentions(value: &Value) -> bool {
    let Value::Object(map) = value else {
        return false;
    };
    let mut texts = map.values().filter_map(Value::as_str);
    texts.any(|text| text.contains(SCHEMA))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::is_event;

    #[test]
    fn what_looks_like_an_event_is_known() {
        for line in [
            "fdguard_event event=stopped\n",
            "\r\t fdguard_event event=stopped\n",
            r#"{"schema":"fdguard.event/1","event":"stopped"}"#,
            r#" { "event": "stopped", "schema" : "fdguard.event/1" }"#,
            r#"{"schema":"\u0066dguard.event/1","event":"stopped"}"#,
        ] {
            assert!(is_event(line.as_bytes()), "{line}");
        }
        for line in [
            "",
            "\n",
            "a line about fdguard_event",
            r#"{"event":"stopped","text":"gr\u00fcn"}"#,
            r#"["fdguard.event/1"]"#,
        ] {
            assert!(!is_event(line.as_bytes()), "{line}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes: Vec<u8>) {
            let _looks = is_event(&bytes);
        }
    }
}
