//! Health for load balancers, metrics for Prometheus, and the OpenAPI document.

use axum::response::{IntoResponse as _, Response};
use http::{HeaderValue, Method, StatusCode, header};

use super::metrics;
use crate::host::HostHealth;
use crate::http::accept::JSON;
use crate::http::openapi;
use crate::http::route::{self, ApiRequest, Route};
use fdguard_http::Problem;

pub(in crate::http) fn routes() -> Vec<Route> {
    vec![
        Route::raw((Method::GET, "/v1/health"), "health", health)
            .summary("Host health as counts, without names. Requires no token.")
            .gives::<HostHealth>(StatusCode::OK, "fdguard.health/1")
            .open_to_all(),
        Route::raw((Method::GET, "/metrics"), "metrics", page)
            .summary("Prometheus metrics")
            .gives_other(METRICS, "Prometheus text format, version 0.0.4"),
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
