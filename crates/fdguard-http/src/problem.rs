//! Error responses: RFC 9457 problem documents with a stable code.

use axum::response::{IntoResponse, Response};
use http::{HeaderName, HeaderValue, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;

/// Maximum length of `path` in characters.
const LONGEST_PATH: usize = 200;

/// The media type of an error response.
pub const MEDIA_TYPE: &str = "application/problem+json";

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(transparent)]
pub struct Problem(Box<Words>);

/// An error response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(rename = "Refusal")]
struct Words {
    /// `fdguard.problem/1`.
    schema: &'static str,
    /// The code as a URN: `urn:fdguard:problem:busy`.
    #[serde(rename = "type")]
    kind: String,
    /// Meaning of the HTTP status.
    title: &'static str,
    /// HTTP status.
    status: u16,
    /// Stable error code for programs.
    code: &'static str,
    /// One-line description for people.
    detail: String,
    /// Field of the request body, for example `limits.processes`; `null` if the problem is not
    /// about one field.
    path: Option<String>,
    #[serde(skip)]
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl Problem {
    /// A refusal with this status.
    #[must_use]
    pub fn new(status: StatusCode, code: &'static str, detail: impl Into<String>) -> Self {
        Self(Box::new(Words {
            schema: "fdguard.problem/1",
            kind: format!("urn:fdguard:problem:{code}"),
            title: status.canonical_reason().unwrap_or("Refused"),
            status: status.as_u16(),
            code,
            detail: one_line(&detail.into()),
            path: None,
            headers: Vec::new(),
        }))
    }

    /// A stable word for programs.
    #[must_use]
    pub fn code(&self) -> &'static str {
        self.0.code
    }

    /// One line for people.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.detail
    }

    /// Where in the body.
    #[must_use]
    pub fn path(&self) -> Option<&str> {
        self.0.path.as_deref()
    }

    /// About this place of the body.
    #[must_use]
    pub fn at(mut self, path: String) -> Self {
        // The reader of JSON calls the whole document a point.
        let mut path = path;
        if let Some((end, _)) = path.char_indices().nth(LONGEST_PATH) {
            // A name of the caller's may be as long as a body.
            path.truncate(end);
        }
        self.0.path = Some(path).filter(|path| path != ".");
        self
    }

    /// With one more header.
    #[must_use]
    pub fn with(mut self, name: HeaderName, value: HeaderValue) -> Self {
        self.0.headers.push((name, value));
        self
    }

    /// The status.
    #[must_use]
    pub fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.0.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The request is well-formed but invalid.
    #[must_use]
    pub fn senseless(detail: impl Into<String>) -> Self {
        Self::new(StatusCode::UNPROCESSABLE_ENTITY, "bad-request", detail)
    }
}

/// Errors quote program output: newlines in it would break the one-line rule.
fn one_line(text: &str) -> String {
    text.split(['\n', '\r'])
        .map(str::trim)
        .filter(|line| !line.is_empty())
        .collect::<Vec<_>>()
        .join("; ")
}

impl IntoResponse for Problem {
    fn into_response(self) -> Response {
        // Text and numbers always can be written.
        let body = serde_json::to_vec(&self).unwrap_or_default();
        let mut response = (self.status(), body).into_response();
        let headers = response.headers_mut();
        let media_type = HeaderValue::from_static(MEDIA_TYPE);
        headers.insert(header::CONTENT_TYPE, media_type);
        headers.extend(self.0.headers);
        response
    }
}

#[cfg(test)]
mod tests {
    use super::Problem;

    #[test]
    fn a_refusal_is_a_document_of_its_kind() {
        let problem = Problem::senseless("too many").at("limits.processes".to_owned());
        let text = serde_json::to_string(&problem).unwrap();
        assert_eq!(
            text,
            "{\"schema\":\"fdguard.problem/1\",\"type\":\"urn:fdguard:problem:bad-request\",\
             \"title\":\"Unprocessable Entity\",\"status\":422,\"code\":\"bad-request\",\
             \"detail\":\"too many\",\"path\":\"limits.processes\"}"
        );
    }
}
