//! Calls: outgoing HTTP requests that any client can abort. Disconnecting aborts the call.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, KeepAlive, Sse};
use axum::response::{IntoResponse as _, Response};
use base64::Engine as _;
use futures_util::stream;
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::sessions::within;
use crate::Error;
use crate::call::{AbortResult, Call, CallInfo, CallRequest};
use crate::http::accept::{self, EVENTS, JSON};
use crate::http::body;
use crate::http::route::{self, ApiRequest, Reply, Route};
use fdguard_http::Problem;

const SCHEMA: &str = "fdguard.call/1";
/// What is larger is streamed.
const LARGEST_ANSWER: usize = 64 << 20;
const LONGEST: u64 = 86_400_000;
const SILENCE: Duration = Duration::from_secs(15);

/// An HTTP request to make.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewCall {
    /// `http://…` or `https://…`.
    url: String,
    /// HTTP method; default `POST` with a body, `GET` without.
    method: Option<String>,
    /// Request headers.
    #[serde(default)]
    headers: BTreeMap<String, String>,
    /// Request body as text.
    body: Option<String>,
    /// Request body as base64, for binary data.
    body_base64: Option<String>,
    /// Total time limit in milliseconds; default: none.
    #[schemars(range(min = 1, max = 86_400_000))]
    timeout_ms: Option<u64>,
}

impl NewCall {
    fn request(self) -> Result<CallRequest, Problem> {
        let sent = match (self.body, self.body_base64) {
            (Some(_), Some(_)) => {
                let problem = Problem::senseless("`body` and `body_base64` are mutually exclusive");
                return Err(problem.at("body_base64".to_owned()));
            }
            (text, None) => text.map(String::into_bytes),
            (None, Some(text)) => {
                let engine = base64::engine::general_purpose::STANDARD;
                let bytes = engine.decode(text).map_err(|error| {
                    Problem::senseless(error.to_string()).at("body_base64".to_owned())
                })?;
                Some(bytes)
            }
        };
        let mut request = match sent {
            Some(bytes) => CallRequest::post(&self.url, bytes),
            None => CallRequest::get(&self.url),
        };
        if let Some(method) = self.method {
            request.method = method;
        }
        request.headers.extend(self.headers);
        if let Some(ms) = self.timeout_ms {
            let ms = within(ms, 1, LONGEST, "timeout_ms")?;
            request.timeouts.total = Some(Duration::from_millis(ms));
        }
        Ok(request)
    }
}

/// Response to a call.
#[derive(Debug, Serialize, JsonSchema)]
struct Answered {
    /// Call id.
    id: String,
    /// HTTP status of the response.
    status: u16,
    /// Response headers in order of arrival.
    headers: Vec<(String, String)>,
    /// Response body, if it is text.
    text: Option<String>,
    /// Response body as base64, if it is not text.
    base64: Option<String>,
}

/// Running calls.
#[derive(Debug, Serialize, JsonSchema)]
struct Calls {
    /// Oldest first.
    calls: Vec<CallInfo>,
}

pub(in crate::http) fn routes() -> Vec<Route> {
    let events = "First `call` with the id, then `response` {status, headers}, a `chunk` {text or base64} for each part of the body, and finally `done`, or `problem` on failure";
    let found = |schema| (StatusCode::OK, schema);
    vec![
        Route::raw((Method::POST, "/v1/calls"), "call", call)
            .summary("Make an HTTP request that can be aborted. Disconnecting aborts it.")
            .takes::<NewCall>()
            .gives::<Answered>(StatusCode::OK, SCHEMA)
            .gives_other(EVENTS, events)
            .example(json!({"url": "http://127.0.0.1:8080/v1/messages", "body": "{}", "headers": {"content-type": "application/json"}}))
            .refuses(&[409, 502, 504]),
        Route::ask((Method::GET, "/v1/calls"), "list_calls", found("fdguard.calls/1"), list)
            .summary("List running calls"),
        Route::ask((Method::POST, "/v1/calls/{id}/abort"), "abort_call", found("fdguard.aborted/1"), abort)
            .summary("Abort a call by shutting down its socket")
            .refuses(&[404]),
    ]
}

async fn list(asked: ApiRequest) -> Result<Reply<Calls>, Problem> {
    let calls = asked.api.calls()?.list();
    Ok(Reply::new(Calls { calls }))
}

async fn abort(asked: ApiRequest) -> Result<Reply<AbortResult>, Problem> {
    Ok(Reply::new(asked.api.calls()?.abort(asked.id())?))
}

async fn call(asked: ApiRequest, bytes: bytes::Bytes) -> Result<Response, Problem> {
    let body: NewCall = body::decode(&asked.headers, &bytes)?;
    let mut call = asked.api.calls()?.start(body.request()?)?;
    if accept::negotiate(&asked.headers, &[JSON, EVENTS])? == EVENTS {
        let keep = KeepAlive::new().interval(SILENCE);
        let events = stream::unfold(Some((call, Step::Begin)), next);
        return Ok(Sse::new(events).keep_alive(keep).into_response());
    }
    let failed = |failure| Problem::from(Error::Call(failure));
    let head = call.response().await.map_err(failed)?;
    let whole = call.collect(LARGEST_ANSWER).await.map_err(failed)?;
    let (text, base64) = text_or_base64(whole);
    let answered = Answered {
        id: call.id().to_owned(),
        status: head.status,
        headers: head.headers,
        text,
        base64,
    };
    let _ended = call.finish();
    route::document(StatusCode::OK, SCHEMA, answered)
}

fn text_or_base64(bytes: Vec<u8>) -> (Option<String>, Option<String>) {
    match String::from_utf8(bytes) {
        Ok(text) => (Some(text), None),
        Err(error) => {
            let engine = base64::engine::general_purpose::STANDARD;
            (None, Some(engine.encode(error.as_bytes())))
        }
    }
}

/// How far a stream is.
enum Step {
    Begin,
    Head,
    Body,
}

type Live = Option<(Call, Step)>;

/// One event, and what is left; nothing is left after the last. Dropped, the call's socket is
/// closed.
async fn next(live: Live) -> Option<(Result<Event, Infallible>, Live)> {
    let (mut call, step) = live?;
    let failed = |failure| {
        let problem = Problem::from(Error::Call(failure));
        Some((Ok(event("problem", &problem)), None))
    };
    match step {
        Step::Begin => {
            let event = event("call", &json!({"id": call.id()}));
            Some((Ok(event), Some((call, Step::Head))))
        }
        Step::Head => match call.response().await {
            Err(failure) => failed(failure),
            Ok(head) => {
                let head = json!({"status": head.status, "headers": head.headers});
                Some((Ok(event("response", &head)), Some((call, Step::Body))))
            }
        },
        Step::Body => match call.chunk().await {
            Err(failure) => failed(failure),
            Ok(Some(bytes)) => {
                let (text, base64) = text_or_base64(bytes);
                let piece = match text {
                    Some(text) => json!({"text": text}),
                    None => json!({"base64": base64}),
                };
                Some((Ok(event("chunk", &piece)), Some((call, Step::Body))))
            }
            Ok(None) => {
                let ended = call.finish();
                let ended = json!({"bytes_in": ended.bytes_in, "bytes_out": ended.bytes_out});
                Some((Ok(event("done", &ended)), None))
            }
        },
    }
}

fn event(name: &str, value: &impl Serialize) -> Event {
    // Text and numbers always can be written.
    let text = serde_json::to_string(value).unwrap_or_default();
    Event::default().event(name).data(text)
}
