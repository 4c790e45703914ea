//! How the host is, for load balancers, for Prometheus, and the description of this interface.

use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, Method, StatusCode, header};

use super::metrics;
use crate::host::HostHealth;
use crate::http::accept::JSON;
use crate::http::openapi;
use crate::http::problem::Problem;
use crate::http::route::{self, ApiRequest, Route};

pub(in crate::http) fn routes() -> Vec<Route> {
    vec![
        Route::raw((Method::GET, "/v1/health"), "health", health)
            .summary("How the host is: counts, and nobody's names; needs no token")
            .gives::<HostHealth>(StatusCode::OK, "fdguard.health/1")
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

async fn health(asked: ApiRequest, _body: bytes::Bytes) -> Result<Response, Problem> {
    route::json(StatusCode::OK, &asked.api.host.health())
}

async fn page(asked: ApiRequest, _body: bytes::Bytes) -> Result<Response, Problem> {
    let media_type = HeaderValue::from_static(fdguard_core::exposition::CONTENT_TYPE);
    let text = metrics::write(&metrics::State::read(&asked.api));
    Ok(([(header::CONTENT_TYPE, media_type)], text).into_response())
}

async fn description(_asked: ApiRequest, _body: bytes::Bytes) -> Result<Response, Problem> {
    let media_type = [(header::CONTENT_TYPE, HeaderValue::from_static(JSON))];
    Ok((media_type, openapi::document().to_string()).into_response())
}
