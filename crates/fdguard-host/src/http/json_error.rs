//! Messages of JSON errors without the values: a body may contain secrets, and error details end up
//! in logs.

/// The message of an error, without values of the body.
pub(crate) fn message(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match text.strip_suffix(&place) {
        Some(what) => bare(what, error.is_data()) + &place,
        None => bare(&text, error.is_data()),
    }
}

/// Syntax errors have fixed messages. In all others, what was found is removed, and what was
/// expected stays.
fn bare(what: &str, is_data: bool) -> String {
    if !is_data {
        return what.to_owned();
    }
    let fixed = ["missing field", "duplicate field", "invalid length"];
    if fixed.iter().any(|start| what.starts_with(start)) {
        return what.to_owned();
    }
    // The value may contain these words as well: the parser's own come last.
    let expected = what
        .rsplit_once(", expected ")
        .map(|(_, expected)| expected);
    let expected = expected.map_or_else(String::new, |it| format!(", expected {it}"));
    for start in ["invalid type: ", "invalid value: "] {
        if let Some(found) = what.strip_prefix(start) {
            let kind = found.split(['"', '`', ',']).next().unwrap_or_default();
            return format!("{start}{}{expected}", kind.trim());
        }
    }
    for start in ["unknown field", "unknown variant"] {
        if what.starts_with(start) {
            return format!("{start}{expected}");
        }
    }
    "invalid value".to_owned()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde::Deserialize;

    use super::message;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Body {
        #[expect(dead_code, reason = "only read")]
        number: Option<u8>,
        #[expect(dead_code, reason = "only read")]
        word: Option<Word>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(rename_all = "kebab-case")]
    enum Word {
        One,
    }

    fn told(body: &str) -> String {
        message(&serde_json::from_str::<Body>(body).unwrap_err())
    }

    #[test]
    fn what_was_expected_is_told_and_what_was_found_is_not() {
        for (body, expected) in [
            (
                r#"{"number":"hunter2"}"#,
                "invalid type: string, expected u8 at line 1 column 19",
            ),
            (
                r#"{"number":4711}"#,
                "invalid value: integer, expected u8 at line 1 column 14",
            ),
            (
                r#"{"word":"hunter2, expected `x`"}"#,
                "unknown variant, expected `one` at line 1 column 31",
            ),
            (
                r#"{"hunter2":1}"#,
                "unknown field, expected `number` or `word` at line 1 column 10",
            ),
            ("{", "EOF while parsing an object at line 1 column 1"),
        ] {
            assert_eq!(told(body), expected);
        }
    }

    proptest! {
        #[test]
        fn no_value_is_told(word in "[a-z\"`,: ]{0,20}SECRET[a-z\"`,: ]{0,20}") {
            let value = serde_json::to_string(&word).unwrap();
            for body in [
                format!("{{\"number\":{value}}}"),
                format!("{{\"word\":{value}}}"),
                format!("{{{value}:1}}"),
                value.clone(),
            ] {
                prop_assert!(!told(&body).contains("SECRET"), "{}", told(&body));
            }
        }
    }
}
