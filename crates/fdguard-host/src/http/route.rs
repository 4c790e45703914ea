//! One route: its name, input, output and handler. The router and the OpenAPI document are both
//! built from routes.

use std::sync::Arc;

use axum::extract::{FromRequestParts as _, RawPathParams, Request};
use axum::response::{IntoResponse, Response};
use futures_util::future::BoxFuture;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode, header};
use schemars::{JsonSchema, Schema, SchemaGenerator};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::accept::{self, EVENTS, JSON};
use super::api::Api;
use super::body;
use crate::document::Document;
use fdguard_http::Door;
use fdguard_http::Problem;
use fdguard_http::guard;

/// Makes the schema of a type.
pub(super) type SchemaOf = fn(&mut SchemaGenerator) -> Schema;
type Handler = Arc<
    dyn Fn(ApiRequest, bytes::Bytes) -> BoxFuture<'static, Result<Response, Problem>> + Send + Sync,
>;

/// One route.
#[derive(Clone)]
pub(super) struct Route {
    pub(super) method: Method,
    pub(super) path: &'static str,
    /// Its name for generated clients.
    pub(super) name: &'static str,
    pub(super) summary: &'static str,
    pub(super) body: Option<BodyOf>,
    pub(super) answer: Answer,
    /// Error statuses of this route, in addition to those of every route.
    pub(super) refusals: &'static [u16],
    /// Whether it is answered without a token, and beyond the cap of requests.
    pub(super) is_open: bool,
    handler: Handler,
}

/// What a route takes.
#[derive(Clone)]
pub(super) struct BodyOf {
    pub(super) schema: SchemaOf,
    /// Whether nothing is too little.
    pub(super) is_required: bool,
    pub(super) example: Value,
    /// Reads the example as a request's body is read.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "asked by the test of the table")
    )]
    pub(super) check: fn(&[u8]) -> Result<(), Problem>,
}

/// The response of a route.
#[derive(Clone)]
pub(super) struct Answer {
    pub(super) status: StatusCode,
    /// The name in the document's `schema`, with the schema of the rest; absent where it gives no
    /// JSON.
    pub(super) document: Option<(&'static str, SchemaOf)>,
    /// A media type other than JSON, and its description.
    pub(super) other: Option<(&'static str, &'static str)>,
    /// Whether it may be 202 with a ticket.
    pub(super) may_be_later: bool,
}

/// A request, but for its body.
pub(super) struct ApiRequest {
    pub(super) api: Arc<Api>,
    pub(super) headers: HeaderMap,
    /// Where it came in.
    pub(super) door: Option<Door>,
    ids: Vec<(String, String)>,
}

impl ApiRequest {
    /// The id in the path.
    pub(super) fn id(&self) -> &str {
        self.ids.first().map_or("", |(_, value)| value.as_str())
    }
}

/// The result of a handler: a value, and where to find it later.
pub(super) struct Reply<T> {
    value: T,
    headers: Vec<(HeaderName, HeaderValue)>,
}

impl<T> Reply<T> {
    pub(super) fn new(value: T) -> Self {
        let headers = Vec::new();
        Self { value, headers }
    }

    /// With the address of what was made.
    pub(super) fn at(mut self, path: &str) -> Self {
        if let Ok(path) = HeaderValue::from_str(path) {
            self.headers.push((header::LOCATION, path));
        }
        self
    }
}

/// JSON with its name.
pub(super) fn document<T: Serialize>(
    status: StatusCode,
    schema: &'static str,
    value: T,
) -> Result<Response, Problem> {
    json(status, &Document::new(schema, value))
}

/// Unmodified JSON.
pub(super) fn json(status: StatusCode, value: &impl Serialize) -> Result<Response, Problem> {
    let body = serde_json::to_vec(value).map_err(|error| {
        let detail = format!("cannot serialize the response: {error}");
        Problem::new(StatusCode::INTERNAL_SERVER_ERROR, "io", detail)
    })?;
    let media_type = [(header::CONTENT_TYPE, HeaderValue::from_static(JSON))];
    Ok((status, media_type, body).into_response())
}

impl Route {
    /// A route without a body that returns a document.
    pub(super) fn ask<R, F, W>(
        (method, path): (Method, &'static str),
        name: &'static str,
        (status, schema): (StatusCode, &'static str),
        handler: F,
    ) -> Self
    where
        R: Serialize + JsonSchema + 'static,
        F: Fn(ApiRequest) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Reply<R>, Problem>> + Send + 'static,
    {
        let answered: Handler = Arc::new(move |asked, _body| {
            let work = handler(asked);
            Box::pin(async move { finish(work.await?, status, schema) })
        });
        Self::new(method, path, name, answered).gives::<R>(status, schema)
    }

    /// A route with a body that returns a document.
    pub(super) fn tell<B, R, F, W>(
        (method, path): (Method, &'static str),
        name: &'static str,
        (status, schema): (StatusCode, &'static str),
        handler: F,
    ) -> Self
    where
        B: DeserializeOwned + JsonSchema + 'static,
        R: Serialize + JsonSchema + 'static,
        F: Fn(ApiRequest, B) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Reply<R>, Problem>> + Send + 'static,
    {
        let answered: Handler = Arc::new(move |asked, bytes| {
            let body = body::decode::<B>(&asked.headers, &bytes);
            let work = body.map(|body| handler(asked, body));
            Box::pin(async move { finish(work?.await?, status, schema) })
        });
        let route = Self::new(method, path, name, answered);
        route.gives::<R>(status, schema).takes::<B>()
    }

    /// A route whose handler makes the response itself.
    pub(super) fn raw<F, W>(
        (method, path): (Method, &'static str),
        name: &'static str,
        handler: F,
    ) -> Self
    where
        F: Fn(ApiRequest, bytes::Bytes) -> W + Send + Sync + 'static,
        W: Future<Output = Result<Response, Problem>> + Send + 'static,
    {
        let answered: Handler = Arc::new(move |asked, bytes| Box::pin(handler(asked, bytes)));
        Self::new(method, path, name, answered)
    }

    fn new(method: Method, path: &'static str, name: &'static str, handler: Handler) -> Self {
        Self {
            method,
            path,
            name,
            summary: "",
            body: None,
            answer: Answer {
                status: StatusCode::OK,
                document: None,
                other: None,
                may_be_later: false,
            },
            refusals: &[],
            is_open: false,
            handler,
        }
    }

    pub(super) fn summary(mut self, summary: &'static str) -> Self {
        self.summary = summary;
        self
    }

    pub(super) fn refuses(mut self, refusals: &'static [u16]) -> Self {
        self.refusals = refusals;
        self
    }

    /// Answered without a token, and beyond the cap of requests.
    pub(super) fn open_to_all(mut self) -> Self {
        self.is_open = true;
        self
    }

    pub(super) fn takes<B: DeserializeOwned + JsonSchema>(mut self) -> Self {
        self.body = Some(BodyOf {
            schema: |generator| generator.subschema_for::<B>(),
            is_required: body::parse::<B>(b"{}").is_err(),
            example: Value::Null,
            check: |bytes| body::parse::<B>(bytes).map(drop),
        });
        self
    }

    pub(super) fn gives<R: JsonSchema>(mut self, status: StatusCode, schema: &'static str) -> Self {
        self.answer.status = status;
        self.answer.document = Some((schema, |generator| R::json_schema(generator)));
        self
    }

    /// Also returns this media type, or only this one.
    pub(super) fn gives_other(mut self, media_type: &'static str, what: &'static str) -> Self {
        self.answer.other = Some((media_type, what));
        self
    }

    /// May answer that it will be done later.
    pub(super) fn accepts_later(mut self) -> Self {
        self.answer.may_be_later = true;
        self
    }

    /// An example body.
    pub(super) fn example(mut self, example: Value) -> Self {
        if let Some(body) = &mut self.body {
            body.example = example;
        }
        self
    }

    /// The media types that it can give.
    fn offers(&self) -> Vec<&'static str> {
        let json = self.answer.document.is_some().then_some(JSON);
        let other = self.answer.other.map(|(media_type, _)| media_type);
        json.into_iter().chain(other).collect()
    }

    /// Answers a request.
    pub(super) async fn answer(&self, api: Arc<Api>, request: Request) -> Response {
        let answered = self.try_answer(api, request).await;
        answered.unwrap_or_else(IntoResponse::into_response)
    }

    async fn try_answer(&self, api: Arc<Api>, request: Request) -> Result<Response, Problem> {
        let (mut parts, body) = request.into_parts();
        if !self.is_open {
            guard::check_token(&api.settings.access(), &parts.headers)?;
        }
        // HEAD on a stream would start and end it.
        if parts.method == Method::HEAD && self.offers().contains(&EVENTS) {
            return Err(not_allowed(&self.method));
        }
        let place = match self.is_open {
            true => None,
            false => Some(api.place()?),
        };
        accept::negotiate(&parts.headers, &self.offers())?;
        let ids = RawPathParams::from_request_parts(&mut parts, &()).await;
        let ids = ids.map_err(|error| {
            Problem::new(StatusCode::BAD_REQUEST, "bad-path", error.body_text())
        })?;
        let ids = ids
            .iter()
            .map(|(key, value)| (key.to_owned(), value.to_owned()));
        let ids = ids.collect();
        let bytes = match &self.body {
            Some(_) => body::read(&parts.headers, body, api.settings.max_body).await?,
            None => bytes::Bytes::new(),
        };
        let door = parts.extensions.get::<Door>().copied();
        let headers = parts.headers;
        let asked = ApiRequest {
            api,
            headers,
            door,
            ids,
        };
        let response = (self.handler)(asked, bytes).await?;
        // The slot is held until the end of a stream.
        Ok(fdguard_http::until_sent(response, place))
    }
}

fn finish<T: Serialize>(
    reply: Reply<T>,
    status: StatusCode,
    schema: &'static str,
) -> Result<Response, Problem> {
    let mut response = document(status, schema, reply.value)?;
    response.headers_mut().extend(reply.headers);
    Ok(response)
}

/// For a method that a path does not have; `allowed` goes into the header.
pub(super) fn not_allowed(allowed: impl std::fmt::Display) -> Problem {
    let allowed = allowed.to_string();
    let detail = format!("method not allowed: this endpoint accepts {allowed}");
    let problem = Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", detail);
    match HeaderValue::from_str(&allowed) {
        Ok(value) => problem.with(header::ALLOW, value),
        Err(_) => problem,
    }
}

impl std::fmt::Debug for Route {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.method, self.path)
    }
}
