//! How the host is, for load balancers, for Prometheus, and the description of this interface.

use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, Method, StatusCode, header};
use schemars::JsonSchema;
use serde::Serialize;

use super::metrics;
use crate::http::accept::JSON;
use crate::http::openapi;
use crate::http::problem::Problem;
use crate::http::route::{Asked, Reply, Route};

/// How the host is: counts, and nobody's names.
#[derive(Debug, Serialize, JsonSchema)]
struct Shown {
    /// `ok`, or `closing`.
    status: &'static str,
    /// Sessions that are open.
    sessions: usize,
    /// Sessions in which a command runs.
    busy: usize,
}

pub(in crate::http) fn routes() -> Vec<Route> {
    let shown = (StatusCode::OK, "fdguard.host-health/1");
    vec![
        Route::ask((Method::GET, "/v1/health"), "health", shown, health)
            .summary("How the host is; needs no token")
            .open_to_all(),
        Route::raw((Method::GET, "/metrics"), "metrics", page)
            .summary("Metrics for Prometheus")
            .gives_other(METRICS, "The text format of Prometheus, version 0.0.4"),
        Route::raw((Method::GET, "/v1/openapi.json"), "openapi", description)
            .summary("This document")
            .gives_other(JSON, "OpenAPI 3.1"),
    ]
}

const METRICS: &str = "text/plain";

async fn health(asked: Asked) -> Result<Reply<Shown>, Problem> {
    let sessions = asked.api.host.sessions();
    let is_closing = asked.api.closing.is_cancelled();
    Ok(Reply::new(Shown {
        status: if is_closing { "closing" } else { "ok" },
        sessions: sessions.len(),
        busy: sessions.iter().filter(|one| one.busy_ms.is_some()).count(),
    }))
}

async fn page(asked: Asked, _body: bytes::Bytes) -> Result<Response, Problem> {
    let media_type = HeaderValue::from_static(fdguard_core::exposition::CONTENT_TYPE);
    let text = metrics::write(&metrics::State::read(&asked.api));
    Ok(([(header::CONTENT_TYPE, media_type)], text).into_response())
}

async fn description(_asked: Asked, _body: bytes::Bytes) -> Result<Response, Problem> {
    let media_type = [(header::CONTENT_TYPE, HeaderValue::from_static(JSON))];
    Ok((media_type, openapi::document().to_string()).into_response())
}
