//! Reports what a tick found: to the API, the log, the history, the receivers, the evidence.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use fdguard_core::Gap;
use fdguard_core::lint::Severity;
use fdguard_core::log_event::LogEvent;
use jiff::Timestamp;
use serde_json::json;

use crate::delivery::sender::Courier;
use crate::delivery::{alertmanager, webhook};
use crate::engine::{Engine, ServeEvent, TickTime};
use crate::evidence::EvidenceKeeper;
use crate::finding_book::{FindingBook, FindingChange, FindingRecord, FindingState};
use crate::history_record::{FindingNote, HistoryBatch, HistoryEvent, SampleFilter};
use crate::host_clock::ClockNews;
use crate::metrics;
use crate::overview::{DeliveryCounts, Overview};
use crate::past_services::KeptService;
use crate::push::{self, MetricPush, PushedSeries};
use crate::serve::LogSink;
use crate::service::ServiceKey;
use crate::store::{Attachments, RunningNote, StoreWriter};
use crate::trace_keeper::TraceKeeper;
use crate::web::{Published, SuppressOrder};

/// Seconds between two repetitions of open alerts.
const REPEAT: f64 = 60.0;
/// Seconds between two notes that fdguard serve runs.
const HEARTBEAT: f64 = 15.0;
/// What the history says about that time.
const PAST: &str = "while fdguard serve did not run";

/// The receivers of messages.
#[derive(Debug, Default)]
pub(crate) struct Couriers {
    pub(crate) alertmanager: Option<Courier>,
    pub(crate) webhook: Option<Courier>,
    pub(crate) remote_write: Option<Courier>,
    pub(crate) otlp: Option<Courier>,
}

/// How often, and how much.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ReportPace {
    /// At most one sample of a service in this time.
    pub(crate) sample_every: Duration,
    /// Between two pushes of metrics.
    pub(crate) push_every: Duration,
    /// The most series of a push.
    pub(crate) max_series: usize,
}

impl Couriers {
    fn all(&self) -> impl Iterator<Item = (&'static str, &Courier)> {
        let alerts = self.alertmanager.as_ref().map(|one| ("alertmanager", one));
        let hook = self.webhook.as_ref().map(|one| ("webhook", one));
        let write = self.remote_write.as_ref().map(|one| ("remote-write", one));
        let otlp = self.otlp.as_ref().map(|one| ("otlp", one));
        [alerts, hook, write, otlp].into_iter().flatten()
    }

    fn counts(&self) -> DeliveryCounts {
        self.all().fold(DeliveryCounts::default(), |sum, (_, one)| {
            let counts = one.counts();
            DeliveryCounts {
                sent: sum.sent + counts.sent,
                failed: sum.failed + counts.failed,
                dropped: sum.dropped + counts.dropped,
                queued: sum.queued + counts.queued,
            }
        })
    }
}

/// All outputs of the loop.
pub(crate) struct Reporter {
    host: String,
    published: Arc<Published>,
    store: Option<StoreWriter>,
    couriers: Couriers,
    evidence: Option<EvidenceKeeper>,
    tracer: Option<TraceKeeper>,
    filter: SampleFilter,
    pace: ReportPace,
    log: LogSink,
    repeated: f64,
    /// When metrics were pushed last, and which.
    pushed: Option<f64>,
    pushed_series: PushedSeries,
    /// When the first tick was.
    started_at: Option<Timestamp>,
    /// Rows that the log knows to be lost.
    lost: u64,
    /// The services that the history knows to run, and when it was told last.
    running: HashMap<ServiceKey, KeptService>,
    noted: Option<f64>,
}

impl Reporter {
    pub(crate) fn new(host: &str, published: Arc<Published>, store: Option<StoreWriter>) -> Self {
        Self {
            host: host.to_owned(),
            published,
            store,
            couriers: Couriers::default(),
            evidence: None,
            tracer: None,
            filter: SampleFilter::new(60.0),
            pace: ReportPace {
                sample_every: Duration::from_secs(60),
                push_every: Duration::from_secs(15),
                max_series: 10_000,
            },
            log: Arc::new(|_| {}),
            repeated: 0.0,
            pushed: None,
            pushed_series: PushedSeries::default(),
            started_at: None,
            lost: 0,
            running: HashMap::new(),
            noted: None,
        }
    }

    pub(crate) fn set_outputs(
        &mut self,
        couriers: Couriers,
        evidence: Option<EvidenceKeeper>,
        tracer: Option<TraceKeeper>,
        pace: ReportPace,
        log: LogSink,
    ) {
        self.couriers = couriers;
        self.evidence = evidence;
        self.tracer = tracer;
        self.pace = pace;
        self.filter = SampleFilter::new(pace.sample_every.as_secs_f64());
        self.log = log;
    }

    /// One tick.
    pub(crate) fn report(
        &mut self,
        book: &mut FindingBook,
        mut overview: Overview,
        events: &[ServeEvent],
        now: f64,
    ) {
        let at = overview.taken_at;
        self.report_history(book, &mut overview);
        overview.own.deliveries = self.couriers.counts();
        self.report_trouble(&overview);
        // Published before the events are sent, so that a client that receives one can read its
        // finding.
        let overview = self.published.show(overview);
        let mut batch = HistoryBatch::default();
        for event in events {
            batch.events.extend(self.follow(book, event, at));
        }
        self.collect_evidence(book, at);
        self.collect_traces(book, at);
        self.repeat_alerts(book, now, at);
        self.push_metrics(&overview, now);
        batch.samples = self.filter.samples(&overview, now);
        if let Some(store) = &self.store {
            store.write(at, batch);
        }
        self.published.tell(
            "tick",
            &json!({
                "taken_at": at,
                "processes": overview.processes,
                "services": overview.services.len(),
                "watched": overview.watched.len(),
                "open_findings": open(&overview.findings).count(),
            }),
        );
    }

    /// How the history fares. A file that was begun anew gets what the loop knows.
    fn report_history(&mut self, book: &FindingBook, overview: &mut Overview) {
        let Some(store) = &self.store else { return };
        overview.own.history = store.health();
        if let Some(why) = &overview.own.history.error {
            overview.gaps.push(Gap::new(
                "the history",
                format!("it is not written: {why}"),
                "free space on its disk, or name another directory with --state DIR",
            ));
        }
        for why in store.take_begun_anew() {
            (self.log)(&LogEvent::new("history_begun_anew").with("why", why));
            self.running.clear();
            self.noted = None;
            for accepted in book.accepted() {
                store.accept(accepted.clone());
            }
        }
    }

    /// Writes down that fdguard serve runs, and which services: after an event of one of them, and
    /// now and then.
    pub(crate) fn note_running(&mut self, engine: &Engine<'_>, time: TickTime, is_news: bool) {
        let now = time.now.as_secs_f64();
        let is_due = self.noted.is_none_or(|last| now - last >= HEARTBEAT);
        let Some(store) = self.store.as_ref().filter(|_| is_due || is_news) else {
            return;
        };
        let Some((moment, running)) = engine.running(time) else {
            return;
        };
        self.noted = Some(now);
        let ended = std::mem::take(&mut self.running);
        let running = running.into_iter().map(|one| (one.key.clone(), one));
        self.running = running.collect();
        let is_new = |one: &&KeptService| ended.get(&one.key) != Some(*one);
        store.note_running(RunningNote {
            moment,
            running: self.running.values().filter(is_new).cloned().collect(),
            ended: ended
                .into_keys()
                .filter(|key| !self.running.contains_key(key))
                .collect(),
        });
    }

    fn follow(
        &mut self,
        book: &FindingBook,
        event: &ServeEvent,
        at: Timestamp,
    ) -> Option<(ServiceKey, HistoryEvent)> {
        let plain = |service: &ServiceKey, event: &str, text: String, deploy| {
            let event = HistoryEvent {
                at,
                event: event.to_owned(),
                text,
                deploy,
                finding: None,
            };
            Some((service.clone(), event))
        };
        match event {
            ServeEvent::Appeared(service) => plain(service, "appeared", String::new(), None),
            ServeEvent::Stopped { service, is_past } => {
                let text = if *is_past {
                    PAST.to_owned()
                } else {
                    String::new()
                };
                plain(service, "stopped", text, None)
            }
            ServeEvent::Restarted {
                service,
                old,
                new,
                deploy,
                past,
            } => {
                let event = LogEvent::for_service("service_restarted", &service.name)
                    .with("kind", service.kind.word())
                    .with("old_pid", *old)
                    .with("pid", *new)
                    .with("deploy", *deploy);
                (self.log)(&event);
                let mut text = match deploy {
                    Some(true) => format!("pid {old} -> {new}, the program was replaced"),
                    Some(false) => format!("pid {old} -> {new}, the same program"),
                    None => format!("pid {old} -> {new}"),
                };
                if past.is_some() {
                    text = format!("{text}, {PAST}");
                }
                let (service, event) = plain(service, "restarted", text, *deploy)?;
                let at = past.unwrap_or(event.at).min(event.at);
                Some((service, HistoryEvent { at, ..event }))
            }
            ServeEvent::Finding { change, id } => self.tell_finding(book.record(*id)?, *change, at),
        }
    }

    /// Reports a change of a finding to every output.
    fn tell_finding(
        &mut self,
        record: &FindingRecord,
        change: FindingChange,
        at: Timestamp,
    ) -> Option<(ServiceKey, HistoryEvent)> {
        let (key, finding) = (&record.key, &record.finding);
        (self.log)(&log_event(record, change));
        let message = webhook::message(&self.host, change, record, at);
        self.published.tell("finding", &message);
        if let Some(courier) = &self.couriers.webhook {
            courier.send(message.to_string().into_bytes(), false);
        }
        if let Some(courier) = &self.couriers.alertmanager {
            let mut alert = alertmanager::alert(&self.host, record, at);
            if change == FindingChange::Suppressed {
                alert["endsAt"] = json!(at.to_string());
            }
            courier.send(json!([alert]).to_string().into_bytes(), false);
        }
        let is_critical = finding.severity == Severity::Critical;
        let is_new = change != FindingChange::Resolved && change != FindingChange::Suppressed;
        if let Some(evidence) = self.evidence.as_mut().filter(|_| is_critical && is_new) {
            evidence.keep(&key.service, finding.pid, record.id, at);
        }
        let is_confirmed = is_new && finding.rule == "leak";
        if let Some(tracer) = self.tracer.as_mut().filter(|_| is_confirmed)
            && tracer.begin(&key.service, finding.pid, record.id, at)
        {
            let event = LogEvent::for_service("trace_started", &key.service.name);
            (self.log)(&event.with("finding", record.id).with("pid", finding.pid));
        }
        let event = HistoryEvent {
            at,
            event: change.word().to_owned(),
            text: finding.why.clone(),
            deploy: None,
            finding: Some(FindingNote {
                id: record.id,
                rule: key.rule.clone(),
                severity: crate::severity_word(finding.severity).to_owned(),
                class: key.class.clone(),
                target: key.target.clone(),
                pid: Some(finding.pid),
                comm: Some(finding.comm.clone()),
                count: finding.count,
                opened_at: Some(record.opened_at),
            }),
        };
        Some((key.service.clone(), event))
    }

    /// Alertmanager takes an alert that is not repeated for resolved.
    fn repeat_alerts(&mut self, book: &FindingBook, now: f64, at: Timestamp) {
        let Some(courier) = &self.couriers.alertmanager else {
            return;
        };
        if now - self.repeated < REPEAT {
            return;
        }
        self.repeated = now;
        let records = book.records();
        let open = records
            .iter()
            .filter(|record| record.state == FindingState::Open);
        let alerts: Vec<_> = open
            .map(|record| alertmanager::alert(&self.host, record, at))
            .collect();
        if !alerts.is_empty() {
            courier.send(json!(alerts).to_string().into_bytes(), true);
        }
    }

    fn collect_evidence(&mut self, book: &mut FindingBook, at: Timestamp) {
        let Some(evidence) = &mut self.evidence else {
            return;
        };
        while let Some(done) = evidence.take() {
            let event = match &done.path {
                Ok(path) => {
                    let path = path.display().to_string();
                    book.attach_evidence(done.finding, &path);
                    if let Some(store) = &self.store {
                        let evidence = Some(path.clone());
                        let trace = None;
                        store.attach(done.finding, at, Attachments { evidence, trace });
                    }
                    LogEvent::new("evidence_kept")
                        .with("finding", done.finding)
                        .with("file", path)
                }
                Err(why) => LogEvent::new("evidence_missing")
                    .with("finding", done.finding)
                    .with("why", why.as_str()),
            };
            (self.log)(&event);
        }
    }

    fn collect_traces(&mut self, book: &mut FindingBook, at: Timestamp) {
        let Some(tracer) = &mut self.tracer else {
            return;
        };
        while let Some(done) = tracer.take() {
            let event = LogEvent::new("trace_done")
                .with("finding", done.finding)
                .with(
                    "line",
                    done.note.lines.first().map(|line| line.place.clone()),
                )
                .with("why", done.note.error.clone());
            (self.log)(&event);
            if let Some(store) = &self.store {
                let trace = Some(done.note.clone());
                let evidence = None;
                store.attach(done.finding, at, Attachments { evidence, trace });
            }
            book.attach_trace(done.finding, done.note);
        }
    }

    /// Metrics for receivers that do not scrape. One that is away gets the newest when it is back.
    fn push_metrics(&mut self, overview: &Overview, now: f64) {
        let is_due = |last: f64| now - last >= self.pace.push_every.as_secs_f64();
        if !self.pushed.is_none_or(is_due) {
            return;
        }
        self.pushed = Some(now);
        let (remote_write, otlp) = (&self.couriers.remote_write, &self.couriers.otlp);
        if remote_write.is_none() && otlp.is_none() {
            return;
        }
        let taken_at = overview.taken_at;
        let most = self.pace.max_series;
        let series = metrics::series(overview, most);
        let series = self.pushed_series.next(series, overview, now, most);
        let push = MetricPush {
            host: &overview.host,
            taken_at,
            started_at: *self.started_at.get_or_insert(taken_at),
            series: &series,
            workloads: self.pushed_series.workloads(),
        };
        if let Some(courier) = remote_write {
            courier.send(push::encode_remote_write(&push), true);
        }
        if let Some(courier) = otlp {
            courier.send(push::encode_otlp(&push), true);
        }
    }

    /// What was lost since the last tick.
    fn report_trouble(&mut self, overview: &Overview) {
        let history = &overview.own.history;
        if history.lost_rows > self.lost {
            let event = LogEvent::new("history_lost")
                .with("rows", history.lost_rows - self.lost)
                .with("why", history.error.clone());
            self.lost = history.lost_rows;
            (self.log)(&event);
        }
        for (to, courier) in self.couriers.all() {
            if let Some(why) = courier.take_trouble() {
                let counts = courier.counts();
                let event = LogEvent::new("delivery_failed")
                    .with("to", to)
                    .with("why", why)
                    .with("queued", counts.queued)
                    .with("dropped", counts.dropped);
                (self.log)(&event);
            }
        }
    }

    /// The system clock was set.
    pub(crate) fn report_clock(&mut self, news: ClockNews, at: Timestamp) {
        (self.log)(&news.event());
        if let Some((store, why)) = self.store.as_ref().zip(news.note()) {
            store.note(at, why);
        }
    }

    /// A request of a person.
    pub(crate) fn suppress(&mut self, book: &mut FindingBook, order: SuppressOrder) {
        let accepted = book.accept(order.id, &order.reason, order.until);
        let is_known = accepted.is_some();
        if let (Some(accepted), Some(record)) = (accepted, book.record(order.id).cloned()) {
            let at = self.published.overview().taken_at;
            let mut shown = Overview::clone(&self.published.overview());
            shown.findings = book.records().into_iter().cloned().collect();
            self.published.show(shown);
            let event = self.tell_finding(&record, FindingChange::Suppressed, at);
            if let Some(store) = &self.store {
                store.accept(accepted);
                let batch = HistoryBatch {
                    events: event.into_iter().collect(),
                    ..HistoryBatch::default()
                };
                store.write(at, batch);
            }
        }
        // The client may have gone.
        let _gone = order.answer.send(is_known);
    }
}

fn open(records: &[FindingRecord]) -> impl Iterator<Item = &FindingRecord> {
    records
        .iter()
        .filter(|record| record.state == FindingState::Open)
}

/// The rest is noise of the measurement.
fn tenths(number: f64) -> f64 {
    (number * 10.0).round() / 10.0
}

fn log_event(record: &FindingRecord, change: FindingChange) -> LogEvent {
    let (key, finding) = (&record.key, &record.finding);
    let name = match change {
        FindingChange::Opened => "finding_opened",
        FindingChange::Updated => "finding_updated",
        FindingChange::Reopened => "finding_reopened",
        FindingChange::Resolved => "finding_resolved",
        FindingChange::Suppressed => "finding_suppressed",
    };
    LogEvent::for_service(name, &key.service.name)
        .with("kind", key.service.kind.word())
        .with("finding", record.id)
        .with("rule", key.rule.as_str())
        .with("severity", crate::severity_word(finding.severity))
        .with("pid", finding.pid)
        .with("comm", finding.comm.to_lossy().into_owned())
        .with("class", key.class.clone())
        .with("target", key.target.clone())
        .with("count", finding.count)
        .with("rate_per_min", finding.rate_per_min.map(tenths))
        .with(
            "eta_seconds",
            finding.walls.first().map(|wall| wall.eta_seconds.round()),
        )
        .with("reason", record.reason.clone())
        .with("why", finding.why.as_str())
}
