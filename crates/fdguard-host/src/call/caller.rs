//! Starts calls, pools idle connections, and tracks running calls.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{SocketAddr, ToSocketAddrs as _};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use tokio::sync::Semaphore;
use tokio_rustls::TlsConnector;

use super::abort::{AbortHandle, AbortReason, AbortResult};
use super::connect::Connector;
use super::event::{CallEvent, CallEventKind, CallSink};
use super::failure::CallFailure;
use super::owner::Call;
use super::pool::{Bounds, Pool};
use super::request::{CallRequest, Ready, shown};
use super::state::{CallInfo, CallPhase, State};

/// Finds the addresses of a name. It may block: it runs in a thread of its own.
pub type Lookup = Arc<dyn Fn(&str, u16) -> std::io::Result<Vec<SocketAddr>> + Send + Sync>;

/// Choices for a caller.
#[derive(Clone)]
pub struct Options {
    /// Certificates to trust in addition to the system's, PEM.
    pub extra_roots: Vec<u8>,
    /// Trust the system's certificates.
    pub system_roots: bool,
    /// Receives events.
    pub sink: Option<CallSink>,
    /// A call without a byte for this long is stale. Five minutes is longer than the usual time
    /// limits, so it finds calls that their owner does not poll.
    pub stale_after: Duration,
    /// How long a connection may be idle before it is closed.
    pub idle_timeout: Duration,
    /// Maximum number of idle connections for one origin.
    pub idle_per_origin: usize,
    /// Maximum number of idle connections in all.
    pub idle_connections: usize,
    /// Maximum number of concurrent name lookups; a lookup cannot be cancelled.
    pub lookups: usize,
    /// Finds addresses; the system does by default.
    pub lookup: Lookup,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            extra_roots: Vec::new(),
            system_roots: true,
            sink: None,
            stale_after: Duration::from_secs(300),
            idle_timeout: Duration::from_secs(10),
            idle_per_origin: 4,
            idle_connections: 16,
            lookups: 16,
            lookup: Arc::new(|host, port| Ok((host, port).to_socket_addrs()?.collect())),
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("system_roots", &self.system_roots)
            .field("stale_after", &self.stale_after)
            .field("idle_timeout", &self.idle_timeout)
            .field("idle_per_origin", &self.idle_per_origin)
            .field("idle_connections", &self.idle_connections)
            .field("lookups", &self.lookups)
            .finish_non_exhaustive()
    }
}

/// A small HTTP/1.1 client. Clones are the same caller.
#[derive(Clone, Debug)]
pub struct Caller {
    pub(super) inner: Arc<Inner>,
}

/// The result of a close.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CallerClose {
    /// Connections that waited and are closed now.
    pub idle: usize,
    /// Calls in flight: the last of them finishes the close. Their connections are not kept.
    pub in_flight: usize,
}

impl Caller {
    /// Reads the system's certificates, a few milliseconds; no connection is made. A system without
    /// certificates is an error at the first `https` call only.
    pub fn new(options: Options) -> Result<Self, CallFailure> {
        let extra = extra_roots(&options.extra_roots)?;
        let bounds = Bounds {
            per_origin: options.idle_per_origin,
            all: options.idle_connections,
            idle: options.idle_timeout,
        };
        let connector = Connector {
            lookup: options.lookup,
            lookups: Arc::new(Semaphore::new(options.lookups.clamp(1, 1024))),
            tls: tls(extra, options.system_roots),
        };
        Ok(Self {
            inner: Arc::new(Inner {
                connector,
                pool: Arc::new(Pool::new(bounds)),
                book: Mutex::default(),
                stale_after: options.stale_after,
                sink: options.sink,
            }),
        })
    }

    /// Begins a call. Nothing is sent before its owner waits for the answer.
    pub fn start(&self, request: CallRequest) -> Result<Call, CallFailure> {
        self.begin_within(request, usize::MAX)
    }

    /// The same, if fewer than `cap` are running.
    pub(super) fn begin_within(
        &self,
        request: CallRequest,
        cap: usize,
    ) -> Result<Call, CallFailure> {
        let url = shown(&request.url);
        let ready = Ready::try_from_request(request)?;
        let mut book = self.inner.book();
        if book.closing.is_some() {
            return Err(CallFailure::Closing);
        }
        if book.running.len() >= cap {
            return Err(CallFailure::Full(book.running.len()));
        }
        book.last += 1;
        let id = format!("call-{}", book.last);
        let method = ready.method.to_string();
        let state = State::new(
            id,
            method,
            url,
            self.inner.stale_after,
            self.inner.sink.clone(),
        );
        let state = Arc::new(state);
        let number = book.last;
        book.running.insert(number, Arc::clone(&state));
        drop(book);
        Ok(Call::new(Arc::clone(&self.inner), number, state, ready))
    }

    /// The running calls, oldest first.
    #[must_use]
    pub fn running(&self) -> Vec<CallInfo> {
        self.inner
            .states()
            .iter()
            .map(|state| state.info())
            .collect()
    }

    /// Those of them that are stale.
    #[must_use]
    pub fn stale(&self) -> Vec<CallInfo> {
        let mut calls = self.running();
        calls.retain(|call| call.stale);
        calls
    }

    /// Aborts the stale ones, with that reason.
    pub fn abort_stale(&self) -> Vec<(CallInfo, AbortResult)> {
        let infos = self
            .inner
            .states()
            .into_iter()
            .map(|state| (state.info(), state));
        infos
            .filter(|(info, _)| info.stale)
            .map(|(info, state)| (info, AbortHandle { state }.abort_for(AbortReason::Stale)))
            .collect()
    }

    /// The handle of a running call.
    #[must_use]
    pub fn handle(&self, id: &str) -> Option<AbortHandle> {
        let state = self
            .inner
            .states()
            .into_iter()
            .find(|state| state.id == id)?;
        Some(AbortHandle { state })
    }

    /// Connections that wait for a call.
    #[must_use]
    pub fn idle_connections(&self) -> usize {
        self.inner.pool.idle()
    }

    /// Rejects new calls and closes idle connections. Running calls continue; the last of them
    /// completes the close.
    pub fn close(&self) -> CallerClose {
        let in_flight = {
            let mut book = self.inner.book();
            book.closing.get_or_insert_with(Instant::now);
            book.running.len()
        };
        let idle = self.inner.pool.close();
        let what = if in_flight == 0 {
            CallEventKind::CallerClosed
        } else {
            CallEventKind::CloseParked
        };
        self.inner
            .tell(&CallEvent::new(what, None, CallPhase::Over, 0.0));
        CallerClose { idle, in_flight }
    }
}

/// Shared by all clones and calls.
pub(super) struct Inner {
    pub(super) connector: Connector,
    pub(super) pool: Arc<Pool>,
    book: Mutex<Book>,
    stale_after: Duration,
    pub(super) sink: Option<CallSink>,
}

#[derive(Default)]
struct Book {
    last: u64,
    running: BTreeMap<u64, Arc<State>>,
    closing: Option<Instant>,
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Inner")
            .field("pool", &self.pool)
            .finish_non_exhaustive()
    }
}

impl Inner {
    fn book(&self) -> MutexGuard<'_, Book> {
        self.book.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn states(&self) -> Vec<Arc<State>> {
        self.book().running.values().map(Arc::clone).collect()
    }

    /// The call has ended. The last call of a closing caller reports it.
    pub(super) fn strike(&self, number: u64, id: &str) {
        let since = {
            let mut book = self.book();
            book.running.remove(&number);
            book.closing.filter(|_| book.running.is_empty())
        };
        if let Some(since) = since {
            let ms = since.elapsed().as_secs_f64() * 1e3;
            self.tell(&CallEvent::new(
                CallEventKind::CallerClosed,
                Some(id.to_owned()),
                CallPhase::Over,
                ms,
            ));
        }
    }

    pub(super) fn tell(&self, event: &CallEvent) {
        if let Some(sink) = &self.sink {
            sink(event);
        }
    }
}

fn extra_roots(pem: &[u8]) -> Result<Vec<CertificateDer<'static>>, CallFailure> {
    let bad = |why: String| CallFailure::Bad(format!("invalid extra certificates: not PEM: {why}"));
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem).collect();
    let found = found.map_err(|error| bad(error.to_string()))?;
    if found.is_empty() && !pem.is_empty() {
        return Err(bad("no certificate found".to_owned()));
    }
    Ok(found)
}

/// The TLS client, or why it is unavailable.
fn tls(extra: Vec<CertificateDer<'static>>, with_system: bool) -> Result<TlsConnector, String> {
    let mut roots = rustls::RootCertStore::empty();
    for certificate in extra {
        roots.add(certificate).map_err(|error| error.to_string())?;
    }
    if with_system {
        // An unreadable system certificate is not a reason to reject the others.
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
    }
    if roots.is_empty() {
        return Err(
            "no trusted certificates: the system has none, and none were configured".to_owned(),
        );
    }
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = rustls::ClientConfig::builder_with_provider(provider);
    let builder = builder
        .with_safe_default_protocol_versions()
        .map_err(|error| error.to_string())?;
    let mut config = builder.with_root_certificates(roots).with_no_client_auth();
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}
