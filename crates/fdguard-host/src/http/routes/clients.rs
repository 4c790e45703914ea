//! Clients: a lease that is renewed and ends, or a connection that acts as the lease.

use std::convert::Infallible;
use std::time::Duration;

use axum::response::sse::{Event, Sse};
use axum::response::{IntoResponse as _, Response};
use futures_util::stream;
use http::{Method, StatusCode};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::{Interval, MissedTickBehavior, interval};
use tokio_util::sync::CancellationToken;

use super::sessions::whole;
use crate::host::{ClientGuard, Host};
use crate::http::accept::EVENTS;
use crate::http::route::{ApiRequest, Reply, Route};
use crate::receipt::{Receipt, SessionEndReason};
use fdguard_http::Problem;

/// One day; a client that needs longer renews.
const LONGEST_LEASE: u64 = 86_400;

/// A client to register.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub(super) struct NewClient {
    /// Name for people.
    #[schemars(length(max = 200))]
    name: Option<String>,
    /// Sessions end when the lease is not renewed for this long. 0: the lease does not expire.
    #[schemars(range(max = 86_400))]
    lease_seconds: Option<u64>,
}

/// A client.
#[derive(Debug, Serialize, JsonSchema)]
struct Client {
    /// Client id, for `client` of a session.
    id: String,
    /// `null`: the lease does not expire.
    lease_seconds: Option<u64>,
}

/// A renewed lease.
#[derive(Debug, Serialize, JsonSchema)]
struct Renewed {
    /// Client id.
    id: String,
}

/// Sessions closed with the client.
#[derive(Debug, Serialize, JsonSchema)]
struct Receipts {
    /// One receipt per session.
    receipts: Vec<Receipt>,
}

pub(in crate::http) fn routes() -> Vec<Route> {
    let made = (StatusCode::CREATED, "fdguard.client/1");
    let found = |schema| (StatusCode::OK, schema);
    vec![
        Route::tell((Method::POST, "/v1/clients"), "open_client", made, open)
            .summary("Register a client. Its sessions end with it.")
            .example(json!({"name": "my agent", "lease_seconds": 60})),
        Route::ask(
            (Method::POST, "/v1/clients/{id}/renew"),
            "renew_client",
            found("fdguard.renewed/1"),
            renew,
        )
        .summary("Renew a client's lease")
        .refuses(&[404]),
        Route::ask(
            (Method::DELETE, "/v1/clients/{id}"),
            "end_client",
            found("fdguard.receipts/1"),
            end,
        )
        .summary("Remove a client and close all its sessions")
        .refuses(&[404]),
        Route::raw(
            (Method::GET, "/v1/clients/{id}/attach"),
            "attach_client",
            attach,
        )
        .summary("Tie a client to this connection. Its sessions end when the connection closes.")
        .gives_other(EVENTS, "First `attached`, then `alive` every few seconds")
        .refuses(&[404]),
    ]
}

async fn open(asked: ApiRequest, body: NewClient) -> Result<Reply<Client>, Problem> {
    let settings = &asked.api.settings;
    let seconds = body.lease_seconds.unwrap_or(settings.lease.as_secs());
    if seconds > LONGEST_LEASE {
        let detail = format!("lease_seconds must not exceed {LONGEST_LEASE}");
        return Err(Problem::senseless(detail).at("lease_seconds".to_owned()));
    }
    let name = body.name.as_deref();
    if name.is_some_and(|name| name.chars().count() > 200) {
        let problem = Problem::senseless("name must not exceed 200 characters");
        return Err(problem.at("name".to_owned()));
    }
    let lease_seconds = Some(seconds).filter(|seconds| *seconds > 0);
    let lease = lease_seconds.map(Duration::from_secs);
    let id = asked.api.host.client(name, lease)?;
    let path = format!("/v1/clients/{id}");
    Ok(Reply::new(Client { id, lease_seconds }).at(&path))
}

async fn renew(asked: ApiRequest) -> Result<Reply<Renewed>, Problem> {
    asked.api.host.renew(asked.id())?;
    let id = asked.id().to_owned();
    Ok(Reply::new(Renewed { id }))
}

async fn end(asked: ApiRequest) -> Result<Reply<Receipts>, Problem> {
    let receipts = whole(async move {
        let host = &asked.api.host;
        host.end_client(asked.id(), SessionEndReason::ClientGone)
            .await
    });
    let receipts = receipts.await?;
    Ok(Reply::new(Receipts { receipts }))
}

async fn attach(asked: ApiRequest, _body: bytes::Bytes) -> Result<Response, Problem> {
    let host = asked.api.host.clone();
    let client = host.attach_client(asked.id())?;
    let mut ticks = interval(asked.api.settings.heartbeat);
    ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let closing = asked.api.closing.clone();
    let events = stream::unfold((host, client, ticks, closing, true), next);
    Ok(Sse::new(events).into_response())
}

type Beat = (Host, ClientGuard, Interval, CancellationToken, bool);

async fn next(
    (host, client, mut ticks, closing, is_first): Beat,
) -> Option<(Result<Event, Infallible>, Beat)> {
    tokio::select! {
        _ = ticks.tick() => {}
        () = closing.cancelled() => return None,
    }
    // The connection is the lease: while it lives, the other one never runs out.
    host.renew(client.id()).ok()?;
    let name = if is_first { "attached" } else { "alive" };
    let event = Event::default().event(name).data("{}");
    Some((Ok(event), (host, client, ticks, closing, false)))
}
