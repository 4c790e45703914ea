//! Reads a request body: bounded in size and time, JSON, and of the expected shape.

use std::time::Duration;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use fdguard_core::units::exact_seconds;
use http::{HeaderMap, StatusCode, header};
use http_body_util::BodyExt as _;
use serde::de::{DeserializeOwned, IgnoredAny};
use serde_json::Value;

use super::json_error;
use fdguard_http::Problem;

/// Time limit from the end of the headers to the end of the body.
const WITHIN: Duration = Duration::from_secs(30);
/// Fields of bodies that are lists.
const LISTS: [&str; 3] = ["files", "program.command", "program.repl.command"];
/// How much of a refused body is read, and for how long.
const DISCARDED: usize = 64 << 20;
const DISCARDED_WITHIN: Duration = Duration::from_secs(2);

/// Reads all of it.
pub(crate) async fn read(headers: &HeaderMap, body: Body, most: usize) -> Result<Bytes, Problem> {
    let too_large = || {
        let detail = format!("request body exceeds {most} bytes");
        Problem::new(StatusCode::PAYLOAD_TOO_LARGE, "too-large", detail)
    };
    let announced = headers.get(header::CONTENT_LENGTH);
    let announced = announced.and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    if announced.is_some_and(|length| length > most) {
        // A client that sends `Expect` gets the answer at once; any other client reads it only
        // after it has sent the body.
        if !headers.contains_key(header::EXPECT) {
            discard(body).await;
        }
        return Err(too_large());
    }
    match tokio::time::timeout(WITHIN, collect(body, most)).await {
        Ok(Ok(Some(whole))) => Ok(whole),
        Ok(Ok(None)) => Err(too_large()),
        Ok(Err(error)) => {
            let detail = format!("cannot read the request body: {error}");
            Err(Problem::new(StatusCode::BAD_REQUEST, "bad-body", detail))
        }
        Err(_) => {
            let detail = format!("request body not received within {}", exact_seconds(WITHIN));
            let status = StatusCode::REQUEST_TIMEOUT;
            Err(Problem::new(status, "too-slow", detail))
        }
    }
}

/// The whole body; `None` if it is too large.
async fn collect(mut body: Body, most: usize) -> Result<Option<Bytes>, axum::Error> {
    let mut whole = BytesMut::new();
    while let Some(frame) = body.frame().await {
        let Ok(data) = frame?.into_data() else {
            continue;
        };
        if whole.len() + data.len() > most {
            discard(body).await;
            return Ok(None);
        }
        whole.extend_from_slice(&data);
    }
    Ok(Some(whole.freeze()))
}

/// Reads the rest of the body, within limits: closing a connection with unread bytes resets it, and
/// the refusal would be lost.
async fn discard(mut body: Body) {
    let taken = async {
        let mut count = 0;
        while let Some(Ok(frame)) = body.frame().await {
            count += frame.data_ref().map_or(0, Bytes::len);
            if count > DISCARDED {
                return;
            }
        }
    };
    // Whether it timed out or not, the refusal is sent next.
    let _late = tokio::time::timeout(DISCARDED_WITHIN, taken).await;
}

/// Decodes a value. An empty body counts as an empty object.
pub(super) fn decode<T: DeserializeOwned>(headers: &HeaderMap, body: &[u8]) -> Result<T, Problem> {
    if body.is_empty() {
        return parse(b"{}");
    }
    let given = headers.get(header::CONTENT_TYPE);
    let given = given.map(|value| value.to_str().unwrap_or("?"));
    if !given.is_some_and(is_json) {
        let detail = match given {
            Some(given) => format!("unsupported Content-Type {given:?}: send application/json"),
            None => "missing Content-Type: send application/json".to_owned(),
        };
        let status = StatusCode::UNSUPPORTED_MEDIA_TYPE;
        return Err(Problem::new(status, "not-json", detail));
    }
    parse(body)
}

fn is_json(media_type: &str) -> bool {
    let essence = media_type.split(';').next().unwrap_or_default().trim();
    essence.eq_ignore_ascii_case("application/json")
}

/// Parses a value: invalid JSON is 400; valid JSON of the wrong shape is 422, with its position.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Problem> {
    let mut reader = serde_json::Deserializer::from_slice(body);
    let value: T = serde_path_to_error::deserialize(&mut reader).map_err(|error| {
        let path = error.path().to_string();
        refused(error.inner(), body).at(path)
    })?;
    reader.end().map_err(|error| refused(&error, body))?;
    match misplaced_list(&serde_json::from_slice(body).unwrap_or_default(), "") {
        None => Ok(value),
        Some(path) if path.is_empty() => Err(Problem::senseless(
            "request body must be a JSON object, not an array",
        )),
        Some(path) => {
            let detail = format!("{path} must be a JSON object, not an array");
            Err(Problem::senseless(detail).at(path))
        }
    }
}

/// The path of an unexpected list. Derived deserializers also accept an object's values as a list,
/// which the API description does not allow.
fn misplaced_list(value: &Value, path: &str) -> Option<String> {
    match value {
        Value::Array(_) => (!LISTS.contains(&path)).then(|| path.to_owned()),
        Value::Object(fields) => fields.iter().find_map(|(name, value)| {
            let path = match path {
                "" => name.clone(),
                path => format!("{path}.{name}"),
            };
            misplaced_list(value, &path)
        }),
        _ => None,
    }
}

fn refused(error: &serde_json::Error, body: &[u8]) -> Problem {
    let detail = format!("invalid request body: {}", json_error::message(error));
    // serde_json also reports a number in place of a string as a syntax error.
    if error.is_data() || serde_json::from_slice::<IgnoredAny>(body).is_ok() {
        return Problem::senseless(detail);
    }
    Problem::new(StatusCode::BAD_REQUEST, "bad-json", detail)
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderValue, header};
    use serde::Deserialize;
    use serde_json::Value;

    use super::{decode, parse};

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[serde(default)]
        inner: Inner,
    }

    #[derive(Debug, Default, Deserialize)]
    #[serde(deny_unknown_fields, default)]
    struct Inner {
        number: u8,
    }

    #[test]
    fn what_is_no_json_is_400_and_what_makes_no_sense_is_422_with_its_place() {
        let deep = format!("{}1{}", "[".repeat(200), "]".repeat(200));
        for (body, status, path) in [
            (&b"{"[..], 400, None),
            (b"{} {}", 400, None),
            (b"{\"inner\":{\"number\":\xff}}", 400, Some("inner.number")),
            (b"{\"inner\":{\"number\":256}}", 422, Some("inner.number")),
            (b"{\"inner\":{\"numbre\":1}}", 422, Some("inner.numbre")),
            (b"{\"inner\":[1,2,3]}", 422, Some("inner")),
            (b"{\"inner\":[1]}", 422, Some("inner")),
            (b"[{\"number\":1}]", 422, None),
            (b"7", 422, None),
        ] {
            let problem = parse::<Outer>(body).unwrap_err();
            let text = String::from_utf8_lossy(body);
            assert_eq!(problem.status().as_u16(), status, "{text}");
            if status == 422 {
                assert_eq!(problem.path(), path, "{text}");
            }
        }
        let problem = parse::<Value>(deep.as_bytes()).unwrap_err();
        assert_eq!(problem.status().as_u16(), 422, "{problem:?}");
        assert_eq!(
            parse::<Outer>(b"{\"inner\":{\"number\":7}}")
                .unwrap()
                .inner
                .number,
            7
        );
    }

    #[test]
    fn only_json_is_read_and_nothing_is_an_empty_object() {
        let mut headers = HeaderMap::new();
        assert!(decode::<Outer>(&headers, b"").is_ok());
        assert_eq!(decode::<Outer>(&headers, b"{}").unwrap_err().status(), 415);
        for (media_type, is_read) in [
            ("application/json", true),
            ("Application/JSON; charset=utf-8", true),
            ("text/plain", false),
            ("application/jsonp", false),
        ] {
            headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(media_type));
            assert_eq!(
                decode::<Outer>(&headers, b"{}").is_ok(),
                is_read,
                "{media_type}"
            );
        }
    }
}
