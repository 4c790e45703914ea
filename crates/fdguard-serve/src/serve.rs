//! The whole program: the loop in one thread, the network in another, the history in a third.

use std::net::SocketAddr;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::thread::JoinHandle;
use std::time::Duration;

use fdguard_core::log_event::LogEvent;
use fdguard_core::rule::RuleSettings;
use fdguard_http::ListeningSocket;
use fdguard_probe::Probe;
use http::{HeaderName, header};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::oneshot;

use crate::delivery::client::PostClient;
use crate::delivery::sender::{self, Courier, DeliveryTask};
use crate::delivery::signature::WebhookSecret;
use crate::engine::{Engine, EngineOptions, ServeEvent, TickTime};
use crate::evidence::{EvidenceKeeper, EvidenceOptions};
use crate::extra_headers::ExtraHeaders;
use crate::finding_book::{FindingBook, FindingPace, FindingState};
use crate::fleet::FleetOptions;
use crate::host_clock::{HostClock, HostClocks, SystemClocks};
use crate::http_client::ReceiverUrl;
use crate::overview::Overview;
use crate::past_services::PastServices;
use crate::push;
use crate::reporter::{Couriers, ReportPace, Reporter};
use crate::store::{StoreFile, StoreOptions, StoreWriter};
use crate::trace_keeper::{TraceKeeper, TraceOptions};
use crate::web::{
    BLOCKING_THREADS, LoopOrder, Published, WebApi, WebServer, WebSettings, WebSources,
};

/// Requests that may wait for the loop.
const ORDERS: usize = 16;
/// Time for the last answers and messages.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// A finding that was open before the start is over when it was not seen for this many times
/// `resolve_after`: a new watch must first see enough to judge.
const RESTORED: f64 = 5.0;

/// What to serve.
#[derive(Debug)]
pub struct ServeOptions {
    /// The host's name in alerts.
    pub host: String,
    /// Between two scans.
    pub every: Duration,
    /// Share of one core.
    pub budget: f64,
    /// The most processes under watch.
    pub max_watched: usize,
    /// A finding that was not seen for this long is over.
    pub resolve_after: Duration,
    /// At most one sample of a service in this time.
    pub sample_every: Duration,
    /// The history; `None`: none is kept.
    pub history: Option<StoreOptions>,
    /// Bundles for critical findings; `None`: none are kept.
    pub evidence: Option<EvidenceOptions>,
    /// The base address of Alertmanager.
    pub alertmanager: Option<ReceiverUrl>,
    /// A webhook and its secret.
    pub webhook: Option<(ReceiverUrl, WebhookSecret)>,
    /// Metrics that are pushed.
    pub push: PushOptions,
    /// Traces of confirmed leaks; `None`: none are made.
    pub trace: Option<TraceOptions>,
    /// Where metrics of all hosts are, for the page.
    pub fleet: Option<FleetOptions>,
    /// The program that reports traces: fdguard itself.
    pub program: Option<PathBuf>,
    /// Where temporary files go if the directory of the system cannot be written.
    pub scratch: Option<PathBuf>,
    /// The HTTP side.
    pub web: WebSettings,
}

/// Receivers of metrics.
#[derive(Clone, Debug, Default)]
pub struct PushOptions {
    /// The address for Prometheus remote write; without a path, the usual one.
    pub remote_write: Option<ReceiverUrl>,
    /// What its receiver needs besides.
    pub remote_write_headers: ExtraHeaders,
    /// The address for OTLP over HTTP; without a path, the usual one.
    pub otlp: Option<ReceiverUrl>,
    /// What its receiver needs besides.
    pub otlp_headers: ExtraHeaders,
    /// Between two pushes.
    pub every: Duration,
}

/// Where log events go.
pub type LogSink = Arc<dyn Fn(&LogEvent) + Send + Sync>;

/// Why serving cannot begin.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// `/proc` cannot be read.
    #[error(transparent)]
    Probe(#[from] fdguard_probe::Error),
    /// The history cannot be opened.
    #[error("history: {0}")]
    Store(#[from] crate::store::StoreError),
    /// A socket, thread or runtime.
    #[error("{what}: {source}")]
    Io {
        /// What failed.
        what: &'static str,
        /// Why.
        source: std::io::Error,
    },
    /// A receiver of messages.
    #[error("{0}")]
    Receiver(String),
}

fn io(what: &'static str) -> impl FnOnce(std::io::Error) -> ServeError {
    move |source| ServeError::Io { what, source }
}

/// A serving fdguard.
#[derive(Debug)]
pub struct Serving {
    addresses: Vec<SocketAddr>,
    stop: Option<oneshot::Sender<()>>,
    orders: SyncSender<LoopOrder>,
    loop_thread: Option<JoinHandle<()>>,
    web_thread: Option<JoinHandle<()>>,
}

impl Serving {
    /// Starts everything. The sockets listen already.
    pub fn start(
        options: ServeOptions,
        settings: RuleSettings,
        sockets: Vec<OwnedFd>,
        log: LogSink,
    ) -> Result<Self, ServeError> {
        let probe = Probe::new()?;
        let parts = LoopParts::prepare(&options, settings, &log)?;
        let (couriers, tasks) = couriers(&options)?;
        let (orders, received) = sync_channel(ORDERS);
        let sources = WebSources {
            history: options.history.as_ref().map(|store| store.path.clone()),
            fleet: options.fleet.clone(),
            program: options.program.clone(),
            traces: options.trace.as_ref().map(|trace| trace.dir.clone()),
            scratch: options.scratch.clone(),
        };
        let published = Arc::clone(&parts.published);
        let api = WebApi::new(options.web.clone(), published, orders.clone(), sources);
        let (addresses, stop, web_thread) = start_web(api, sockets, tasks)?;
        let ticks = ServeLoop {
            every: options.every,
            orders: received,
            clocks: SystemClocks::default(),
        };
        let thread = std::thread::Builder::new().name("fdguard-loop".to_owned());
        let spawned = thread.spawn(move || ticks.run(&probe, parts, couriers));
        let loop_thread = spawned.map_err(io("cannot start the loop"))?;
        Ok(Self {
            addresses,
            stop: Some(stop),
            orders,
            loop_thread: Some(loop_thread),
            web_thread: Some(web_thread),
        })
    }

    /// Where it listens; nothing for sockets with a path.
    #[must_use]
    pub fn addresses(&self) -> &[SocketAddr] {
        &self.addresses
    }

    /// Ends everything: the loop first, so that its last messages are sent.
    pub fn stop(mut self) {
        // The loop takes what was asked before; if it is gone, nothing is left to stop.
        let _gone = self.orders.send(LoopOrder::Stop);
        if let Some(thread) = self.loop_thread.take() {
            drop(thread.join());
        }
        if let Some(stop) = self.stop.take() {
            // The receiver is gone if the network ended first.
            let _ended = stop.send(());
        }
        if let Some(thread) = self.web_thread.take() {
            drop(thread.join());
        }
    }
}

/// A courier and a task for each receiver.
fn couriers(options: &ServeOptions) -> Result<(Couriers, Vec<DeliveryTask>), ServeError> {
    let mut tasks = Vec::new();
    let mut start =
        |url: Option<ReceiverUrl>, secret: Option<&WebhookSecret>, headers: &Headers| {
            let Some(url) = url else { return Ok(None) };
            let label = url.label();
            let client = PostClient::new(url, &headers.0, headers.1)
                .map_err(|why| ServeError::Receiver(format!("{label}: {why}")))?;
            let (courier, task) = sender::pair(client, secret.cloned());
            tasks.push(task);
            Ok::<Option<Courier>, ServeError>(Some(courier))
        };
    let none = ExtraHeaders::default();
    let json: Headers = (vec![(header::CONTENT_TYPE, "application/json")], &none);
    let (alerts, hook) = (&options.alertmanager, &options.webhook);
    let alerts = alerts.as_ref().map(|url| url.below("/api/v2/alerts"));
    let hook_url = hook.as_ref().map(|(url, _)| url.clone());
    let secret = hook.as_ref().map(|(_, secret)| secret);
    let push = &options.push;
    let remote_write = push.remote_write.as_ref();
    let remote_write = remote_write.map(|url| url.or_at(push::REMOTE_WRITE_PATH));
    let remote_headers = (push::remote_write_headers(), &push.remote_write_headers);
    let otlp = push.otlp.as_ref().map(|url| url.or_at(push::OTLP_PATH));
    let otlp_headers = (push::otlp_headers(), &push.otlp_headers);
    let couriers = Couriers {
        alertmanager: start(alerts, None, &json)?,
        webhook: start(hook_url, secret, &json)?,
        remote_write: start(remote_write, None, &remote_headers)?,
        otlp: start(otlp, None, &otlp_headers)?,
    };
    Ok((couriers, tasks))
}

/// The headers of a protocol, and those that a receiver needs besides.
type Headers<'a> = (Vec<(HeaderName, &'static str)>, &'a ExtraHeaders);

type WebParts = (Vec<SocketAddr>, oneshot::Sender<()>, JoinHandle<()>);

/// The network in a thread of its own, with one runtime.
fn start_web(
    api: Arc<WebApi>,
    sockets: Vec<OwnedFd>,
    tasks: Vec<DeliveryTask>,
) -> Result<WebParts, ServeError> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .max_blocking_threads(BLOCKING_THREADS)
        .thread_keep_alive(Duration::from_secs(1))
        .build()
        .map_err(io("cannot start the network"))?;
    let listening = {
        let _entered = runtime.enter();
        let listening = sockets.into_iter().map(ListeningSocket::from_fd);
        let listening: std::io::Result<Vec<ListeningSocket>> = listening.collect();
        listening.map_err(io("cannot use the listening socket"))?
    };
    let addresses = listening
        .iter()
        .filter_map(ListeningSocket::address)
        .collect();
    let (stop, stopped) = oneshot::channel();
    let work = move || {
        runtime.block_on(async {
            let deliveries: Vec<_> = tasks
                .into_iter()
                .map(|task| tokio::spawn(task.run()))
                .collect();
            let server = WebServer::start(&api, listening);
            // An error means that everything else has ended.
            let _gone = stopped.await;
            server.close(LAST_WORDS).await;
            for delivery in deliveries {
                drop(tokio::time::timeout(LAST_WORDS, delivery).await);
            }
        });
        runtime.shutdown_timeout(LAST_WORDS);
    };
    let thread = std::thread::Builder::new().name("fdguard-http".to_owned());
    let thread = thread.spawn(work).map_err(io("cannot start the network"))?;
    Ok((addresses, stop, thread))
}

/// What the loop needs besides processes.
pub(crate) struct LoopParts {
    pub(crate) engine: EngineOptions,
    pub(crate) settings: RuleSettings,
    pub(crate) book: FindingBook,
    pub(crate) past: PastServices,
    pub(crate) published: Arc<Published>,
    pub(crate) store: Option<StoreWriter>,
    pub(crate) evidence: Option<EvidenceKeeper>,
    pub(crate) tracer: Option<TraceKeeper>,
    pub(crate) pace: ReportPace,
    pub(crate) log: LogSink,
}

impl LoopParts {
    fn prepare(
        options: &ServeOptions,
        settings: RuleSettings,
        log: &LogSink,
    ) -> Result<Self, ServeError> {
        let now = Timestamp::now();
        let resolve_after = options.resolve_after.as_secs_f64();
        let pace = FindingPace {
            resolve_after,
            restored_for: RESTORED * resolve_after,
            ..FindingPace::default()
        };
        let (book, past, store) = match options.history.clone() {
            None => (FindingBook::new(pace, 0), PastServices::default(), None),
            Some(wanted) => {
                let (book, past, store) = open_history(wanted, pace, now, log)?;
                (book, past, Some(store))
            }
        };
        let every = options.every.as_secs_f64();
        let first = Overview::empty(options.host.clone(), every, now);
        Ok(Self {
            engine: EngineOptions {
                host: options.host.clone(),
                every: options.every,
                budget: options.budget,
                max_watched: options.max_watched,
            },
            settings,
            book,
            past,
            published: Arc::new(Published::new(first)),
            store,
            evidence: options.evidence.clone().map(EvidenceKeeper::new),
            tracer: options.trace.clone().map(TraceKeeper::new),
            pace: ReportPace {
                sample_every: options.sample_every,
                push_every: options.push.every,
                max_series: options.web.max_series,
            },
            log: Arc::clone(log),
        })
    }
}

/// The history, with the findings and the services that it has. On a full disk what it has is
/// read, and writing begins when there is room.
fn open_history(
    wanted: StoreOptions,
    pace: FindingPace,
    now: Timestamp,
    log: &LogSink,
) -> Result<(FindingBook, PastServices, StoreWriter), ServeError> {
    let cannot_start = io("cannot start the history");
    let (mut file, aside) = match StoreFile::open(wanted.clone(), now) {
        Err(error) if error.is_full() => {
            let why = error.to_string();
            log(&LogEvent::new("history_waits").with("why", why.as_str()));
            let kept = StoreFile::open_unchangeable(wanted.clone());
            let book = kept.as_ref().map(|file| restored(file, pace, now, log));
            let book = book.and_then(Result::ok);
            let past = kept.and_then(|mut file| past_services(&mut file, now).ok());
            let store = StoreWriter::start_later(wanted, why).map_err(cannot_start)?;
            let empty = || FindingBook::new(pace, 0);
            return Ok((book.unwrap_or_else(empty), past.unwrap_or_default(), store));
        }
        opened => opened?,
    };
    if let Some(aside) = aside {
        let event = LogEvent::new("history_set_aside").with("why", aside.why.as_str());
        log(&event.with("file", aside.to.display().to_string()));
        // A disk that is full by now has its own report.
        drop(file.write_loss(now, 0, &aside.text()));
    }
    let book = restored(&file, pace, now, log)?;
    let past = past_services(&mut file, now)?;
    let store = StoreWriter::start(file).map_err(cannot_start)?;
    Ok((book, past, store))
}

/// The findings of earlier starts.
fn restored(
    file: &StoreFile,
    pace: FindingPace,
    now: Timestamp,
    log: &LogSink,
) -> Result<FindingBook, ServeError> {
    let (accepted, highest) = file.accepted()?;
    let mut book = FindingBook::new(pace, highest);
    for one in accepted {
        book.restore(one);
    }
    for one in file.findings()? {
        book.restore_finding(one, now);
    }
    let records = book.records().into_iter();
    let open = records.filter(|record| record.state == FindingState::Open);
    let open = open.count();
    if open > 0 {
        log(&LogEvent::new("findings_restored").with("open", open as u64));
    }
    Ok(book)
}

/// A shorter time without fdguard serve is no gap: its notes are this far apart.
const SHORT_GAP: SignedDuration = SignedDuration::from_secs(30);

/// What ran before this start. The time since then is a gap in the history.
fn past_services(file: &mut StoreFile, now: Timestamp) -> Result<PastServices, ServeError> {
    let Some((moment, services)) = file.running()? else {
        return Ok(PastServices::default());
    };
    if now.duration_since(moment.at) > SHORT_GAP {
        let time = |at: Timestamp| at.strftime("%Y-%m-%d %H:%M:%SZ").to_string();
        let (from, to) = (time(moment.at), time(now));
        let why = format!("not recorded from {from} to {to}: fdguard serve did not run");
        // On a full disk the history begins with a loss anyway.
        drop(file.write_loss(now, 0, &why));
    }
    Ok(PastServices::new(moment, services))
}

/// The loop: a tick when it is due, requests in between.
struct ServeLoop<C> {
    every: Duration,
    orders: Receiver<LoopOrder>,
    clocks: C,
}

impl<C: HostClocks> ServeLoop<C> {
    fn run(mut self, probe: &Probe, parts: LoopParts, couriers: Couriers) {
        let published = Arc::clone(&parts.published);
        let mut reporter = Reporter::new(&parts.engine.host, parts.published, parts.store);
        reporter.set_outputs(
            couriers,
            parts.evidence,
            parts.tracer,
            parts.pace,
            parts.log,
        );
        let mut engine = Engine::new(probe, parts.engine, parts.settings, parts.book, parts.past);
        let began = self.clocks.monotonic();
        let mut next = Duration::ZERO;
        let mut clock = HostClock::default();
        loop {
            let now = self.clocks.monotonic().saturating_sub(began);
            if now >= next {
                let uptime = self.clocks.awake_and_asleep();
                let (at, news) = clock.read(uptime, self.clocks.time_of_day());
                if let Some(news) = news {
                    reporter.report_clock(news, at);
                }
                let time = TickTime { now, at, uptime };
                let (overview, events) = engine.tick(time);
                published.show_processes(engine.processes());
                reporter.report(&mut engine.book, overview, &events, now.as_secs_f64());
                reporter.note_running(&engine, time, events.iter().any(ServeEvent::is_of_service));
                let done = self.clocks.monotonic().saturating_sub(began);
                next = self.next_tick(&mut engine, next, done);
            }
            let wait = next.saturating_sub(self.clocks.monotonic().saturating_sub(began));
            match self.clocks.wait(&self.orders, wait) {
                Ok(LoopOrder::Suppress(order)) => reporter.suppress(&mut engine.book, order),
                Ok(LoopOrder::Stop) => break,
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => std::thread::sleep(wait),
            }
        }
        // The next start knows when this one ended.
        let uptime = self.clocks.awake_and_asleep();
        let (at, _) = clock.read(uptime, self.clocks.time_of_day());
        let now = self.clocks.monotonic().saturating_sub(began);
        reporter.note_running(&engine, TickTime { now, at, uptime }, true);
    }

    /// In step with the first tick, however long one took.
    fn next_tick(&self, engine: &mut Engine<'_>, last: Duration, now: Duration) -> Duration {
        let mut next = last + self.every;
        if next <= now {
            engine.was_late();
            let behind = (now - next).as_nanos() / self.every.as_nanos().max(1);
            let steps = u32::try_from(behind + 1).unwrap_or(u32::MAX);
            next += self.every * steps;
        }
        next
    }
}

#[cfg(test)]
#[path = "serve_tests.rs"]
mod tests;
