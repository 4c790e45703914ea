//! A request of somebody who may view, with its query.

use std::sync::Arc;

use axum::extract::{FromRequestParts, Query};
use fdguard_http::Problem;
use http::StatusCode;
use http::request::Parts;
use serde::de::DeserializeOwned;

use super::api::WebApi;

/// The query, after the right to view was checked: who may not view learns nothing about queries.
pub(super) struct Viewed<Q>(pub(super) Q);

impl<Q: DeserializeOwned> FromRequestParts<Arc<WebApi>> for Viewed<Q> {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, api: &Arc<WebApi>) -> Result<Self, Problem> {
        api.settings.may_view(&parts.headers)?;
        let Query(query) = Query::try_from_uri(&parts.uri).map_err(|error| {
            Problem::new(StatusCode::BAD_REQUEST, "bad-query", error.to_string())
        })?;
        Ok(Self(query))
    }
}
