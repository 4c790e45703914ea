//! `/metrics`: the overview as Prometheus or OpenMetrics text, with a bounded number of series.
//!
//! The services with findings come first, then those nearest to a limit. What does not fit is added
//! up under one service `(other)`, and a metric says how many that are. docs/guide/serve-metrics.md
//! lists every name.

use std::collections::BTreeMap;

use fdguard_core::exposition::{Exposition, MetricType};
use fdguard_core::judge::Verdict;

use crate::finding_book::{FindingRecord, FindingState};
use crate::metric_sink::{MetricSample, MetricSeries, MetricSink};
use crate::overview::{ClassTally, Overview, ServiceView, WatchedView};

/// Classes of a service that have a series of their own; the rest is `other`.
const MOST_CLASSES: usize = 12;
/// The name of what was folded.
const OTHER: &str = "(other)";
/// Services in each ranking of this host.
const RANKED: usize = 5;
/// What must fit in any case: the sums of what was folded, and four rankings.
const RESERVED: usize = 7 + 4 * RANKED;

/// How metrics are written.
#[derive(Clone, Copy, Debug)]
pub struct MetricsOptions {
    /// The most series about services and processes.
    pub max_series: usize,
    /// OpenMetrics instead of the Prometheus text format.
    pub open_metrics: bool,
}

/// The page.
#[must_use]
pub fn render(overview: &Overview, options: MetricsOptions) -> String {
    let page = match options.open_metrics {
        true => Exposition::open_metrics(),
        false => Exposition::default(),
    };
    match write_all(MetricSink::Page(page), overview, options.max_series) {
        MetricSink::Page(page) => page.finish(),
        MetricSink::List(_) => String::new(),
    }
}

/// The same as a list.
pub(crate) fn series(overview: &Overview, max_series: usize) -> Vec<MetricSeries> {
    match write_all(MetricSink::List(Vec::new()), overview, max_series) {
        MetricSink::List(list) => list,
        MetricSink::Page(_) => Vec::new(),
    }
}

fn write_all(mut sink: MetricSink, overview: &Overview, max_series: usize) -> MetricSink {
    let page = MetricsPage::new(overview, max_series);
    page.write_services(&mut sink);
    page.write_findings(&mut sink);
    page.write_processes(&mut sink);
    page.write_folded(&mut sink);
    write_own(&mut sink, overview);
    sink
}

/// One service as it is shown.
struct ShownService<'a> {
    name: &'a str,
    kind: &'static str,
    view: &'a ServiceView,
    classes: Vec<(&'a str, f64)>,
}

struct MetricsPage<'a> {
    services: Vec<ShownService<'a>>,
    findings: FindingCounts<'a>,
    processes: Vec<(String, std::borrow::Cow<'a, str>, &'a WatchedView)>,
    /// Services that are in the sums only.
    folded: Vec<&'a ServiceView>,
    folded_processes: usize,
}

impl<'a> MetricsPage<'a> {
    fn new(overview: &'a Overview, max_series: usize) -> Self {
        let mut ranked: Vec<&ServiceView> = overview.services.iter().collect();
        ranked.sort_by(|a, b| rank(b).total_cmp(&rank(a)).then_with(|| a.key.cmp(&b.key)));
        let mut room = max_series.saturating_sub(RESERVED);
        let mut services = Vec::new();
        let mut folded = Vec::new();
        for view in ranked {
            let shown = ShownService::new(view);
            let cost = shown.series();
            if folded.is_empty() && cost <= room {
                room -= cost;
                services.push(shown);
            } else {
                folded.push(view);
            }
        }
        let findings = FindingCounts::new(overview, &folded, room);
        let room = room - findings.counts.len();
        let wanted = overview.watched.iter().filter(|one| one.has_findings);
        let wanted: Vec<&WatchedView> = wanted.collect();
        let fit = wanted.len().min(room / 3);
        let process = |view: &&'a WatchedView| (view.pid.to_string(), view.comm.to_lossy(), *view);
        Self {
            services,
            findings,
            processes: wanted[..fit].iter().map(process).collect(),
            folded,
            folded_processes: wanted.len() - fit,
        }
    }

    /// Samples of services: of each, and summed or at its worst from the folded ones.
    fn samples(
        &self,
        value: impl Fn(&ServiceView) -> Option<f64>,
        fold: fn(f64, f64) -> f64,
    ) -> Vec<MetricSample<'a>> {
        let folded = self.folded.iter().filter_map(|view| value(view));
        let folded = folded.reduce(fold);
        let folded = folded.map(|value| sample(OTHER, "other", value));
        let shown = self.services.iter();
        let shown = shown.filter_map(|one| Some(sample(one.name, one.kind, value(one.view)?)));
        shown.chain(folded).collect()
    }

    /// A gauge over services.
    fn gauge(
        &self,
        text: &mut MetricSink,
        (name, help): (&'static str, &'static str),
        value: impl Fn(&ServiceView) -> Option<f64>,
        fold: fn(f64, f64) -> f64,
    ) {
        let samples = self.samples(value, fold);
        text.family(name, MetricType::Gauge, help, samples);
    }

    /// The same, and the first of them under a name of its own: a server that ranks the services of
    /// all hosts reads a few series of each host instead of all.
    fn ranked_gauge(
        &self,
        text: &mut MetricSink,
        [all, first]: [(&'static str, &'static str); 2],
        value: impl Fn(&ServiceView) -> Option<f64>,
        fold: fn(f64, f64) -> f64,
    ) {
        let mut samples = self.samples(&value, fold);
        self.gauge(text, all, value, fold);
        samples.sort_by(|a, b| b.value().total_cmp(&a.value()));
        samples.truncate(RANKED);
        text.family(first.0, MetricType::Gauge, first.1, samples);
    }

    fn write_services(&self, text: &mut MetricSink) {
        self.gauge(
            text,
            (
                "fdguard_fd_limit",
                "Soft limit of the process of a service that is nearest to its limit.",
            ),
            |view| view.limit.map(|limit| limit as f64),
            f64::min,
        );
        self.gauge(
            text,
            ("fdguard_processes", "Processes of a service."),
            |view| Some(view.processes as f64),
            |a, b| a + b,
        );
        self.write_counts(text);
        self.write_judgement(text);
        self.write_classes(text);
        self.write_times(text);
        self.write_restarts(text);
    }

    fn write_counts(&self, text: &mut MetricSink) {
        self.ranked_gauge(
            text,
            [
                (
                    "fdguard_open_fds",
                    "Open file descriptors of all processes of a service.",
                ),
                (
                    "fdguard_top_open_fds",
                    "The five highest values of fdguard_open_fds on this host.",
                ),
            ],
            |view| view.open_fds.map(|count| count as f64),
            |a, b| a + b,
        );
        self.ranked_gauge(
            text,
            [
                (
                    "fdguard_fd_usage_ratio",
                    "Share of the soft limit that this process uses, 0 to 1.",
                ),
                (
                    "fdguard_top_fd_usage_ratio",
                    "The five highest values of fdguard_fd_usage_ratio on this host.",
                ),
            ],
            |view| view.usage_ratio,
            f64::max,
        );
    }

    fn write_judgement(&self, text: &mut MetricSink) {
        self.ranked_gauge(
            text,
            [
                (
                    "fdguard_fd_growth_per_second",
                    "Change of the open file descriptors of a service per second.",
                ),
                (
                    "fdguard_top_fd_growth_per_second",
                    "The five highest values of fdguard_fd_growth_per_second on this host.",
                ),
            ],
            |view| view.growth_per_second,
            |a, b| a + b,
        );
        self.ranked_gauge(
            text,
            [
                (
                    "fdguard_verdict",
                    "Verdict on a service: 0 unknown, 1 stable, 2 bounded, 3 growing, 4 leaking.",
                ),
                (
                    "fdguard_top_verdict",
                    "The five highest values of fdguard_verdict on this host.",
                ),
            ],
            |view| Some(verdict_number(view.verdict)),
            f64::max,
        );
    }

    fn write_restarts(&self, text: &mut MetricSink) {
        let restarts = self.services.iter();
        let restarts = restarts.map(|one| sample(one.name, one.kind, one.view.restarts as f64));
        text.family(
            "fdguard_restarts_total",
            MetricType::Counter,
            "Restarts of a service since fdguard serves.",
            restarts,
        );
    }

    fn write_classes(&self, text: &mut MetricSink) {
        let samples = self.services.iter().flat_map(|one| {
            one.classes.iter().map(|(class, count)| {
                let mut sample = sample(one.name, one.kind, *count);
                sample.label("class", class);
                sample
            })
        });
        text.family(
            "fdguard_fds",
            MetricType::Gauge,
            "Open file descriptors of the watched processes of a service by class.",
            samples,
        );
    }

    fn write_times(&self, text: &mut MetricSink) {
        let samples = self.services.iter().flat_map(|one| {
            one.view.seconds_to_limit.iter().map(|time| {
                let mut sample = sample(one.name, one.kind, time.seconds);
                sample.label("limit", &time.limit);
                sample
            })
        });
        text.family(
            "fdguard_seconds_to_limit",
            MetricType::Gauge,
            "Seconds until a limit is reached at the present rate; absent if nothing grows.",
            samples,
        );
    }

    fn write_findings(&self, text: &mut MetricSink) {
        let samples = self.findings.counts.iter().map(|(labels, count)| {
            let [service, kind, rule, severity] = labels;
            let mut sample = sample(service, kind, *count as f64);
            sample.label("rule", rule);
            sample.label("severity", severity);
            sample
        });
        text.family(
            "fdguard_findings",
            MetricType::Gauge,
            "Open findings by rule and severity.",
            samples,
        );
    }

    /// Under names of their own, so that a sum over services counts nothing twice.
    fn write_processes(&self, text: &mut MetricSink) {
        let each = |value: fn(&WatchedView) -> Option<f64>| {
            let all = self.processes.iter();
            all.filter_map(move |one| Some(process_sample(one, value(one.2)?)))
                .collect::<Vec<_>>()
        };
        text.family(
            "fdguard_process_open_fds",
            MetricType::Gauge,
            "Open file descriptors of a process with findings.",
            each(|view| view.count.map(|count| count as f64)),
        );
        text.family(
            "fdguard_process_fd_limit",
            MetricType::Gauge,
            "Soft limit of a process with findings.",
            each(|view| view.limits.soft.map(|soft| soft as f64)),
        );
        text.family(
            "fdguard_process_verdict",
            MetricType::Gauge,
            "Verdict on a process with findings, as in fdguard_verdict.",
            each(|view| Some(verdict_number(view.verdict))),
        );
    }

    fn write_folded(&self, text: &mut MetricSink) {
        let mut folded = |name: &'static str, help: &'static str, count: usize| {
            let count = [MetricSample::new(&[], count as f64)];
            text.family(name, MetricType::Gauge, help, count);
        };
        folded(
            "fdguard_folded_services",
            "Services that are only in the sums of service (other), because of --max-series.",
            self.folded.len(),
        );
        folded(
            "fdguard_folded_processes",
            "Processes with findings without series of their own, because of --max-series.",
            self.folded_processes,
        );
        folded(
            "fdguard_folded_findings",
            "Open findings that are in no series, because of --max-series.",
            self.findings.folded,
        );
    }
}

/// Open findings by service, kind, rule and severity.
struct FindingCounts<'a> {
    counts: BTreeMap<[&'a str; 4], u64>,
    /// Findings that had no room.
    folded: usize,
}

impl<'a> FindingCounts<'a> {
    /// At most as many series as there is room.
    fn new(overview: &'a Overview, folded_services: &[&ServiceView], room: usize) -> Self {
        let mut counts = BTreeMap::new();
        let mut folded = 0;
        for record in open(&overview.findings) {
            let service = &record.key.service;
            let is_folded = folded_services.iter().any(|view| view.key == *service);
            let (name, kind) = match is_folded {
                true => (OTHER, "other"),
                false => (service.name.as_str(), service.kind.word()),
            };
            let labels = [name, kind, record.key.rule.as_str(), severity(record)];
            if counts.contains_key(&labels) || counts.len() < room {
                *counts.entry(labels).or_insert(0) += 1;
            } else {
                folded += 1;
            }
        }
        Self { counts, folded }
    }
}

impl<'a> ShownService<'a> {
    fn new(view: &'a ServiceView) -> Self {
        let classes = view.classes.as_deref().unwrap_or_default();
        let (own, rest) = classes.split_at(classes.len().min(MOST_CLASSES));
        let one = |class: &'a ClassTally| (class.class.as_str(), class.count as f64);
        let mut classes: Vec<(&str, f64)> = own.iter().map(one).collect();
        if !rest.is_empty() {
            let rest = rest.iter().map(|class| class.count).sum::<u64>();
            classes.push(("other", rest as f64));
        }
        Self {
            name: &view.key.name,
            kind: view.key.kind.word(),
            view,
            classes,
        }
    }

    fn series(&self) -> usize {
        let view = self.view;
        let optional = [
            view.open_fds.is_some(),
            view.limit.is_some(),
            view.usage_ratio.is_some(),
            view.growth_per_second.is_some(),
        ];
        let optional = optional.into_iter().filter(|has| *has).count();
        // Verdict, processes and restarts are always there.
        3 + optional + self.classes.len() + view.seconds_to_limit.len()
    }
}

fn sample<'a>(service: &'a str, kind: &'a str, value: f64) -> MetricSample<'a> {
    MetricSample::new(&[("service", service), ("kind", kind)], value)
}

fn process_sample<'a>(
    (pid, comm, view): &'a (String, std::borrow::Cow<'_, str>, &'a WatchedView),
    value: f64,
) -> MetricSample<'a> {
    let mut sample = sample(&view.service.name, view.service.kind.word(), value);
    sample.label("pid", pid);
    sample.label("comm", comm);
    sample
}

/// What must not be folded first: findings, then what is near a limit, then what is large.
fn rank(view: &ServiceView) -> f64 {
    let findings = view.findings.len() as f64;
    let ratio = view.usage_ratio.unwrap_or(0.0);
    let count = view.open_fds.unwrap_or(0) as f64;
    findings * 1e6 + ratio * 1e3 + count / (count + 1000.0)
}

fn open(records: &[FindingRecord]) -> impl Iterator<Item = &FindingRecord> {
    records
        .iter()
        .filter(|record| record.state == FindingState::Open)
}

fn severity(record: &FindingRecord) -> &'static str {
    crate::severity_word(record.finding.severity)
}

fn verdict_number(verdict: Verdict) -> f64 {
    match verdict {
        Verdict::Unknown => 0.0,
        Verdict::Stable => 1.0,
        Verdict::Bounded => 2.0,
        Verdict::Growing => 3.0,
        Verdict::Leaking => 4.0,
    }
}

/// What serving costs.
#[expect(clippy::too_many_lines, reason = "a table of names and texts")]
fn write_own(text: &mut MetricSink, overview: &Overview) {
    let own = &overview.own;
    let mut one = |name: &'static str, kind, help: &'static str, value: Option<f64>| {
        let samples = value.map(|value| MetricSample::new(&[], value));
        text.family(name, kind, help, samples);
    };
    let (gauge, counter) = (MetricType::Gauge, MetricType::Counter);
    let number = |count: u64| Some(count as f64);
    let bytes = own.history.bytes;
    for (name, kind, help, value) in [
        (
            "fdguard_serve_cpu_seconds_total",
            counter,
            "Processor time that fdguard has used.",
            Some(own.cpu_seconds),
        ),
        (
            "fdguard_serve_children_cpu_seconds_total",
            counter,
            "Processor time of ended commands that fdguard started: evidence, traces, profiles.",
            own.children_cpu_seconds,
        ),
        (
            "fdguard_serve_tick_seconds",
            gauge,
            "Wall-clock time of the last tick.",
            Some(own.tick_seconds),
        ),
        (
            "fdguard_serve_tick_cpu_seconds",
            gauge,
            "Processor time of the last tick.",
            Some(own.tick_cpu_seconds),
        ),
        (
            "fdguard_serve_ticks_total",
            counter,
            "Ticks.",
            number(own.ticks),
        ),
        (
            "fdguard_serve_late_ticks_total",
            counter,
            "Ticks that began late.",
            number(own.late_ticks),
        ),
        (
            "fdguard_serve_open_fds",
            gauge,
            "Open file descriptors of fdguard itself.",
            own.open_fds.map(|count| count as f64),
        ),
        (
            "fdguard_serve_resident_memory_bytes",
            gauge,
            "Resident memory of fdguard itself.",
            own.resident_bytes.map(|bytes| bytes as f64),
        ),
        (
            "fdguard_serve_watched_processes",
            gauge,
            "Processes under watch.",
            number(overview.watched.len() as u64),
        ),
        (
            "fdguard_serve_unwatched_processes",
            gauge,
            "Processes that deserve a watch and have none, because there are too many.",
            number(own.unwatched),
        ),
        (
            "fdguard_serve_deferred_looks_total",
            counter,
            "Looks that were put off because the processor budget was used up.",
            number(own.deferred_looks),
        ),
        (
            "fdguard_serve_dropped_findings_total",
            counter,
            "Findings that had no room.",
            number(own.dropped_findings),
        ),
        (
            "fdguard_serve_history_bytes",
            gauge,
            "Size of the history on disk.",
            number(bytes).filter(|_| own.history.enabled),
        ),
        (
            "fdguard_serve_history_lost_rows_total",
            counter,
            "Rows that could not be written to the history.",
            number(own.history.lost_rows),
        ),
        (
            "fdguard_serve_deliveries_total",
            counter,
            "Messages delivered to Alertmanager and webhooks.",
            number(own.deliveries.sent),
        ),
        (
            "fdguard_serve_delivery_failures_total",
            counter,
            "Attempts to deliver a message that failed.",
            number(own.deliveries.failed),
        ),
        (
            "fdguard_serve_dropped_deliveries_total",
            counter,
            "Messages that were given up or had no room.",
            number(own.deliveries.dropped),
        ),
        (
            "fdguard_visible_processes",
            gauge,
            "Processes that fdguard sees.",
            number(overview.processes),
        ),
        (
            "fdguard_gaps",
            gauge,
            "Things that fdguard could not see; the overview lists them with their remedy.",
            number(overview.gaps.len() as u64),
        ),
    ] {
        one(name, kind, help, value);
    }
}

#[cfg(test)]
#[path = "metrics_tests.rs"]
mod tests;
