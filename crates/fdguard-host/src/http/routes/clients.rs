//! Clients: a lease, its renewals and its end, or a connection that is the lease.

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
use crate::http::problem::Problem;
use crate::http::route::{ApiRequest, Reply, Route};
use crate::receipt::{Receipt, SessionEndReason};

/// A day; who needs more renews.
const LONGEST_LEASE: u64 = 86_400;

/// A client that is to be known.
#[derive(Debug, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
struct NewClient {
    /// What people call it.
    #[schemars(length(max = 200))]
    name: Option<String>,
    /// Its sessions end when it is not renewed for so long; 0: only when it is ended.
    #[schemars(range(max = 86_400))]
    lease_seconds: Option<u64>,
}

/// A client.
#[derive(Debug, Serialize, JsonSchema)]
struct Client {
    /// Its id, for `client` of a session.
    id: String,
    /// `null`: until it is ended.
    lease_seconds: Option<u64>,
}

/// A lease began anew.
#[derive(Debug, Serialize, JsonSchema)]
struct Renewed {
    /// Whose.
    id: String,
}

/// What was closed.
#[derive(Debug, Serialize, JsonSchema)]
struct Receipts {
    /// One for each session.
    receipts: Vec<Receipt>,
}

pub(in crate::http) fn routes() -> Vec<Route> {
    let made = (StatusCode::CREATED, "fdguard.client/1");
    let found = |schema| (StatusCode::OK, schema);
    vec![
        Route::tell((Method::POST, "/v1/clients"), "open_client", made, open)
            .summary("Make a client: its sessions end with it")
            .example(json!({"name": "my agent", "lease_seconds": 60})),
        Route::ask(
            (Method::POST, "/v1/clients/{id}/renew"),
            "renew_client",
            found("fdguard.renewed/1"),
            renew,
        )
        .summary("Begin a client's lease anew")
        .refuses(&[404]),
        Route::ask(
            (Method::DELETE, "/v1/clients/{id}"),
            "end_client",
            found("fdguard.receipts/1"),
            end,
        )
        .summary("End a client and all its sessions")
        .refuses(&[404]),
        Route::raw(
            (Method::GET, "/v1/clients/{id}/attach"),
            "attach_client",
            attach,
        )
        .summary("Tie a client to this connection: its sessions end when the connection does")
        .gives_other(EVENTS, "`attached` at once, then `alive` every few seconds")
        .refuses(&[404]),
    ]
}

async fn open(asked: ApiRequest, body: NewClient) -> Result<Reply<Client>, Problem> {
    let settings = &asked.api.settings;
    let seconds = body.lease_seconds.unwrap_or(settings.lease.as_secs());
    if seconds > LONGEST_LEASE {
        let detail = format!("a lease has {LONGEST_LEASE} seconds at most");
        return Err(Problem::senseless(detail).at("lease_seconds".to_owned()));
    }
    let name = body.name.as_deref();
    if name.is_some_and(|name| name.chars().count() > 200) {
        let problem = Problem::senseless("a name has 200 characters at most");
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
