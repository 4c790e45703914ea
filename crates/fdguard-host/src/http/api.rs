//! State shared by all requests: the host, access settings and request limits.

use std::sync::Arc;
use std::time::Duration;

use fdguard_core::bearer::BearerToken;
use fdguard_core::log_event::LogEvent;
use fdguard_http::{AccessRules, PaceLimits, Problem};
use http::StatusCode;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_util::sync::CancellationToken;

use super::counts::Counts;
use super::scope_events;
use crate::Error;
use crate::Roots;
use crate::call::{AbortReason, CallFailure, Caller, Calls, Options};
use crate::host::Host;
use crate::mcp;
use crate::scope::{CloseLimits, Journals, ScopeContext, ScopePhase, Scopes};

/// Access rules and limits of the server.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct ApiSettings {
    /// The token for everything but the health page; `None` if no token is needed.
    pub token: Option<BearerToken>,
    /// Accepted names in the Host header, in addition to the address itself and the names of the
    /// local machine.
    pub hosts: Vec<String>,
    /// Accepted origins of web pages, as `https://example.org`; all others are rejected.
    pub origins: Vec<String>,
    /// Bytes of a request's body.
    pub max_body: usize,
    /// Connections at a time.
    pub max_connections: usize,
    /// Requests at a time; the pages for health and metrics are answered beyond it.
    pub max_requests: usize,
    /// From the first byte of a request to the end of its headers.
    pub head_within: Duration,
    /// How long a connection without a request may stay open.
    pub idle_within: Duration,
    /// A client that reads no byte of its answer for this long counts as gone.
    pub read_within: Duration,
    /// Files below these directories may be archived; none if it is empty.
    pub roots: Roots,
    /// The lease of a client that does not request one.
    pub lease: Duration,
    /// Between two signs of life on an attached connection.
    pub heartbeat: Duration,
    /// Options of MCP clients at `/mcp`; their roots are those above.
    pub mcp: mcp::Options,
}

impl Default for ApiSettings {
    fn default() -> Self {
        Self {
            token: None,
            hosts: Vec::new(),
            origins: Vec::new(),
            max_body: 8 << 20,
            max_connections: 256,
            max_requests: 192,
            head_within: Duration::from_secs(10),
            idle_within: Duration::from_secs(120),
            read_within: Duration::from_secs(60),
            roots: Roots::default(),
            lease: Duration::from_secs(60),
            heartbeat: Duration::from_secs(5),
            mcp: mcp::Options::default(),
        }
    }
}

impl ApiSettings {
    /// Who may do what.
    pub(super) fn access(&self) -> AccessRules<'_> {
        AccessRules {
            token: self.token.as_ref(),
            as_password: false,
            hosts: &self.hosts,
            origins: &self.origins,
            tls: false,
        }
    }

    /// How long each part of a connection may take.
    pub(super) fn pace(&self) -> PaceLimits {
        PaceLimits {
            head_within: self.head_within,
            idle_within: self.idle_within,
            read_within: self.read_within,
        }
    }
}

/// Shared by all requests.
#[derive(Debug)]
pub(super) struct Api {
    pub(super) host: Host,
    pub(super) settings: ApiSettings,
    pub(super) counts: Counts,
    pub(super) scopes: Scopes,
    pub(super) mcp: Arc<mcp::Web>,
    /// The calls, or why they could not be set up.
    calls: Result<Calls, CallFailure>,
    /// Cancelled when the server closes: streams then end.
    pub(super) closing: CancellationToken,
    requests: Arc<Semaphore>,
}

impl Api {
    pub(super) fn new(host: Host, settings: ApiSettings, closing: CancellationToken) -> Arc<Self> {
        let means = ScopeContext {
            wills: wills(&host),
            registry: host.registry(),
            observer: scope_events::observer(host.events()),
            host: Some(host.clone()),
            roots: Some(settings.roots.clone()),
        };
        let mut options = settings.mcp.clone();
        options.roots.clone_from(&settings.roots);
        let mcp = mcp::Web::new(host.clone(), options, settings.max_body, closing.clone());
        Arc::new(Self {
            host,
            mcp,
            scopes: Scopes::new(means),
            calls: Caller::new(Options::default()).map(Calls::new),
            requests: Arc::new(Semaphore::new(settings.max_requests)),
            settings,
            counts: Counts::default(),
            closing,
        })
    }

    /// The calls.
    pub(super) fn calls(&self) -> Result<&Calls, Problem> {
        let calls = self.calls.as_ref();
        calls.map_err(|failure| Problem::from(Error::Call(failure.clone())))
    }

    /// Ends calls and scopes.
    pub(super) async fn release(&self) {
        if let Ok(calls) = &self.calls {
            calls.abort_all(AbortReason::Shutdown);
            let _closed = calls.caller().close();
        }
        let _told = self.scopes.shut_down(CloseLimits::default()).await;
    }

    /// Ends the scopes of clients that are gone, every second: a lease may run out anywhere.
    pub(super) async fn follow_clients(self: Arc<Self>) {
        let mut ticks = tokio::time::interval(Duration::from_secs(1));
        ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
        loop {
            tokio::select! {
                _ = ticks.tick() => {}
                () = self.closing.cancelled() => return,
            }
            let owners = self.scopes.list().into_iter();
            let owners = owners.filter(|scope| scope.phase == ScopePhase::Open);
            let mut owners: Vec<String> = owners.filter_map(|scope| scope.client).collect();
            if owners.is_empty() {
                continue;
            }
            owners.dedup();
            let known = self.host.clients();
            owners.retain(|owner| !known.iter().any(|client| client.id == *owner));
            for owner in owners {
                let _told = self
                    .scopes
                    .close_client(&owner, CloseLimits::default())
                    .await;
            }
        }
    }

    /// A place among the requests that are answered at a time.
    pub(super) fn place(&self) -> Result<OwnedSemaphorePermit, Problem> {
        let place = Arc::clone(&self.requests).try_acquire_owned();
        place.map_err(|_full| {
            let most = self.settings.max_requests;
            let detail = format!("too many requests: {most} are in progress, which is the limit");
            Problem::new(StatusCode::TOO_MANY_REQUESTS, "full", detail)
        })
    }
}

/// The journals of scopes. Scopes work without them, too.
fn wills(host: &Host) -> Option<Journals> {
    let made = Journals::make(host.state()?);
    if let Err(error) = &made {
        let event = LogEvent::new("scope_will_failed");
        host.events().tell(&event.with("error", error.to_string()));
    }
    made.ok()
}
