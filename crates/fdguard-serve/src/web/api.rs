//! The routes. Viewing and acting are separate rights: a token for viewing cannot suppress a
//! finding.

use std::collections::HashSet;
use std::path::PathBuf;
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::{Path, State};
use axum::response::{IntoResponse as _, Response};
use axum::routing::{get, post};
use axum::{Json, Router};
use fdguard_core::bearer::BearerToken;
use fdguard_core::exposition::{CONTENT_TYPE, OPEN_METRICS_TYPE};
use fdguard_http::{AccessRules, Problem, guard};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::{Semaphore, broadcast, oneshot};
use tokio_util::sync::CancellationToken;

use super::query::{FindingQuery, OverviewQuery};
use super::tls::TlsFiles;
use super::viewed::Viewed;
use super::{assets, detail, events, processes};
use crate::fleet::FleetOptions;
use crate::metrics::{self, MetricsOptions};
use crate::overview::{Overview, ProcessView};
use crate::store;

/// Events that a slow client may fall behind.
const BEHIND: usize = 64;
/// Snapshots and histories at a time.
const DEAR: usize = 2;
/// Questions to the server of the fleet at a time. They have places of their own: a server that
/// hangs must not keep anybody from a snapshot of this host.
const FLEET: usize = 2;
/// Threads for both, and two more for the names of receivers.
pub(crate) const BLOCKING_THREADS: usize = DEAR + FLEET + 2;
/// The longest reason of a suppression.
const LONGEST_REASON: usize = 500;
/// Access rights and limits.
#[derive(Clone, Debug)]
pub struct WebSettings {
    /// The token for viewing; `None`: every client that can connect can view.
    pub view: Option<BearerToken>,
    /// The token for acting; `None`: acting is disabled.
    pub act: Option<BearerToken>,
    /// Whether `/metrics` is readable without a token.
    pub public_metrics: bool,
    /// Accepted names in the Host header.
    pub hosts: Vec<String>,
    /// Accepted origins of web pages.
    pub origins: Vec<String>,
    /// Connections at a time.
    pub max_connections: usize,
    /// The most series of `/metrics`.
    pub max_series: usize,
    /// The certificate; `None`: no TLS.
    pub tls: Option<TlsFiles>,
}

impl WebSettings {
    pub(super) fn access(&self) -> AccessRules<'_> {
        AccessRules {
            token: self.view.as_ref(),
            as_password: true,
            hosts: &self.hosts,
            origins: &self.origins,
            tls: self.tls.is_some(),
        }
    }

    /// Whether a request may view: with the token for it, or with that for acting.
    pub(super) fn may_view(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let may_act = self.act.is_some() && self.may_act(headers).is_ok();
        if may_act {
            Ok(())
        } else {
            guard::check_token(&self.access(), headers)
        }
    }

    fn may_act(&self, headers: &HeaderMap) -> Result<(), Problem> {
        let Some(token) = &self.act else {
            let detail = "acting is not enabled: start fdguard serve with --act-token-file";
            return Err(Problem::new(StatusCode::FORBIDDEN, "no-acting", detail));
        };
        let rules = AccessRules {
            token: Some(token),
            ..self.access()
        };
        guard::check_token(&rules, headers)
    }
}

/// What the loop publishes.
#[derive(Debug)]
pub(crate) struct Published {
    overview: RwLock<Arc<Overview>>,
    /// Every process; apart, because most requests want no list of thousands.
    processes: RwLock<Arc<[ProcessView]>>,
    events: broadcast::Sender<Arc<str>>,
}

impl Published {
    pub(crate) fn new(first: Overview) -> Self {
        Self {
            overview: RwLock::new(Arc::new(first)),
            processes: RwLock::new(Arc::new([])),
            events: broadcast::channel(BEHIND).0,
        }
    }

    /// Replaces what is shown.
    pub(crate) fn show(&self, overview: Overview) -> Arc<Overview> {
        let overview = Arc::new(overview);
        let mut shown = self
            .overview
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *shown = Arc::clone(&overview);
        overview
    }

    /// Replaces the list of processes.
    pub(crate) fn show_processes(&self, processes: Vec<ProcessView>) {
        let mut shown = self
            .processes
            .write()
            .unwrap_or_else(PoisonError::into_inner);
        *shown = processes.into();
    }

    pub(crate) fn processes(&self) -> Arc<[ProcessView]> {
        let shown = self.processes.read();
        Arc::clone(&shown.unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends an event to every connected client.
    pub(crate) fn tell(&self, name: &str, news: &impl Serialize) {
        if self.events.receiver_count() == 0 {
            return;
        }
        let json = serde_json::to_string(news).unwrap_or_default();
        // The last client may have left by now.
        drop(self.events.send(events::frame(name, &json)));
    }

    pub(crate) fn overview(&self) -> Arc<Overview> {
        let shown = self.overview.read().unwrap_or_else(PoisonError::into_inner);
        Arc::clone(&shown)
    }
}

/// What the loop is woken for before its next tick.
#[derive(Debug)]
pub(crate) enum LoopOrder {
    /// Accept a finding.
    Suppress(SuppressOrder),
    /// The program ends.
    Stop,
}

/// A person accepts a finding.
#[derive(Debug)]
pub(crate) struct SuppressOrder {
    pub(crate) id: u64,
    pub(crate) reason: String,
    pub(crate) until: Option<Timestamp>,
    pub(crate) answer: oneshot::Sender<bool>,
}

/// What requests read besides the overview.
#[derive(Debug, Default)]
pub(crate) struct WebSources {
    /// The file of the history.
    pub(crate) history: Option<PathBuf>,
    /// Where metrics of all hosts are.
    pub(crate) fleet: Option<FleetOptions>,
    /// The program that reports traces: fdguard itself.
    pub(crate) program: Option<PathBuf>,
    /// Where traces are kept.
    pub(crate) traces: Option<PathBuf>,
    /// Where temporary files go if the directory of the system cannot be written.
    pub(crate) scratch: Option<PathBuf>,
}

/// Shared by all requests.
#[derive(Debug)]
pub(crate) struct WebApi {
    pub(crate) settings: WebSettings,
    pub(crate) published: Arc<Published>,
    pub(crate) orders: std::sync::mpsc::SyncSender<LoopOrder>,
    pub(crate) sources: WebSources,
    pub(crate) closing: CancellationToken,
    dear: Semaphore,
    fleet: Semaphore,
}

pub(super) type Api = State<Arc<WebApi>>;

impl WebApi {
    pub(crate) fn new(
        settings: WebSettings,
        published: Arc<Published>,
        orders: std::sync::mpsc::SyncSender<LoopOrder>,
        sources: WebSources,
    ) -> Arc<Self> {
        Arc::new(Self {
            settings,
            published,
            orders,
            sources,
            closing: CancellationToken::new(),
            dear: Semaphore::new(DEAR),
            fleet: Semaphore::new(FLEET),
        })
    }

    pub(super) fn router(api: &Arc<Self>) -> Router {
        assets::routes(Router::new())
            .route("/healthz", get(health))
            .route("/metrics", get(metrics_page))
            .route("/api/v1/overview", get(overview))
            .route("/api/v1/processes", get(processes::processes))
            .route("/api/v1/service", get(detail::service))
            .route("/api/v1/moment", get(detail::moment))
            .route("/api/v1/findings", get(findings))
            .route("/api/v1/findings/{id}/suppress", post(suppress))
            .route("/api/v1/snapshot", get(detail::snapshot))
            .route("/api/v1/trace", get(detail::trace))
            .route("/api/v1/fleet", get(detail::fleet))
            .route("/debug/pprof/fds", get(detail::profile))
            .route("/api/v1/events", get(live))
            .fallback(nothing)
            .method_not_allowed_fallback(wrong_method)
            .with_state(Arc::clone(api))
    }

    /// Work that blocks, a bounded number at a time.
    pub(super) async fn dear<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        blocking(&self.dear, work).await
    }

    /// A question to the server of the fleet, a bounded number at a time.
    pub(super) async fn ask_fleet<T: Send + 'static>(
        &self,
        work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
    ) -> Result<T, Problem> {
        blocking(&self.fleet, work).await
    }
}

async fn blocking<T: Send + 'static>(
    places: &Semaphore,
    work: impl FnOnce() -> Result<T, Problem> + Send + 'static,
) -> Result<T, Problem> {
    let closing = |_| {
        Problem::new(
            StatusCode::SERVICE_UNAVAILABLE,
            "closing",
            "fdguard is stopping",
        )
    };
    let _permit = places.acquire().await.map_err(closing)?;
    let done = tokio::task::spawn_blocking(work).await;
    done.unwrap_or_else(|_| {
        let detail = "the request failed unexpectedly";
        Err(Problem::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            "failed",
            detail,
        ))
    })
}

async fn health(State(api): Api) -> Response {
    let overview = api.published.overview();
    Json(json!({
        "schema": "fdguard.serve.health/1",
        "ticks": overview.own.ticks,
        "taken_at": overview.taken_at,
        "history": overview.own.history,
    }))
    .into_response()
}

async fn metrics_page(State(api): Api, headers: HeaderMap) -> Result<Response, Problem> {
    if !api.settings.public_metrics {
        api.settings.may_view(&headers)?;
    }
    let mut accepted = headers.get_all(header::ACCEPT).iter();
    let open_metrics = accepted.any(|accept| {
        accept
            .to_str()
            .is_ok_and(|accept| accept.contains("application/openmetrics-text"))
    });
    let options = MetricsOptions {
        max_series: api.settings.max_series,
        open_metrics,
    };
    let text = metrics::render(&api.published.overview(), options);
    let kind = if open_metrics {
        OPEN_METRICS_TYPE
    } else {
        CONTENT_TYPE
    };
    Ok((
        [(header::CONTENT_TYPE, HeaderValue::from_static(kind))],
        text,
    )
        .into_response())
}

async fn overview(
    State(api): Api,
    Viewed(query): Viewed<OverviewQuery>,
) -> Result<Response, Problem> {
    let mut shown = query.apply(&api.published.overview())?;
    shown.fleet = api.sources.fleet.is_some();
    Ok(Json(shown).into_response())
}

async fn findings(
    State(api): Api,
    Viewed(query): Viewed<FindingQuery>,
) -> Result<Response, Problem> {
    let overview = api.published.overview();
    let (mut records, history_error) = match api.sources.history.clone() {
        Some(path) if query.older => {
            match api.dear(move || Ok(store::read_findings(&path))).await? {
                Ok(older) => (older, None),
                Err(error) => (Vec::new(), Some(error.to_string())),
            }
        }
        _ => (Vec::new(), None),
    };
    let known: HashSet<u64> = overview.findings.iter().map(|one| one.id).collect();
    records.retain(|one| !known.contains(&one.id));
    records.extend(overview.findings.iter().cloned());
    records.sort_by_key(|one| one.id);
    let findings = query.apply(records)?;
    Ok(Json(json!({
        "schema": "fdguard.serve.findings/1",
        "taken_at": overview.taken_at,
        "findings": findings,
        "history_error": history_error,
    }))
    .into_response())
}

/// Why a finding is accepted.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct SuppressBody {
    reason: String,
    until: Option<Timestamp>,
}

async fn suppress(
    State(api): Api,
    headers: HeaderMap,
    Path(id): Path<String>,
    body: axum::body::Bytes,
) -> Result<Response, Problem> {
    api.settings.may_act(&headers)?;
    let unknown = || {
        let detail = format!("no finding has the number {id:?}");
        Problem::new(StatusCode::NOT_FOUND, "unknown", detail)
    };
    let id: u64 = id.parse().ok().ok_or_else(unknown)?;
    let body: SuppressBody = serde_json::from_slice(&body).map_err(|error| {
        Problem::senseless(format!(
            "request body must be {{\"reason\": TEXT, \"until\": TIME}}: {error}"
        ))
    })?;
    let reason = body.reason.trim().to_owned();
    if reason.is_empty() || reason.chars().count() > LONGEST_REASON {
        let detail = "reason must be 1 to 500 characters that say why this is acceptable";
        return Err(Problem::senseless(detail).at("reason".to_owned()));
    }
    let (answer, answered) = oneshot::channel();
    let order = LoopOrder::Suppress(SuppressOrder {
        id,
        reason,
        until: body.until,
        answer,
    });
    let busy = || {
        let detail = "too many requests are waiting";
        Problem::new(StatusCode::SERVICE_UNAVAILABLE, "busy", detail)
    };
    api.orders.try_send(order).ok().ok_or_else(busy)?;
    match answered.await {
        Ok(true) => Ok(StatusCode::NO_CONTENT.into_response()),
        Ok(false) => Err(unknown()),
        Err(_) => Err(busy()),
    }
}

async fn live(State(api): Api, headers: HeaderMap) -> Result<Response, Problem> {
    api.settings.may_view(&headers)?;
    let receiver = api.published.events.subscribe();
    Ok(events::stream(receiver, api.closing.clone()))
}

async fn nothing() -> Problem {
    Problem::new(StatusCode::NOT_FOUND, "unknown", "this path does not exist")
}

async fn wrong_method() -> Problem {
    let detail = "this endpoint does not accept this method";
    Problem::new(StatusCode::METHOD_NOT_ALLOWED, "wrong-method", detail)
}
