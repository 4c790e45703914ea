//! The metric families, with established names. Labels are names and classes, never paths.

use std::collections::BTreeMap;

use fdguard_core::Class;
use fdguard_core::exposition::{Exposition, MetricSample, MetricType};
use jiff::Timestamp;

use super::state::{
    HostMetrics, MetricsState, ProcessMetrics, ServiceMetrics, SupervisorMetrics, number,
};

/// How many processes of a service get their own samples: those with the most descriptors.
const PROCESSES: usize = 32;

/// The whole page.
#[must_use]
pub fn write(state: &MetricsState) -> String {
    let mut text = Exposition::default();
    own(&mut text, &state.own);
    host(&mut text, state.host);
    processes(&mut text, &state.services);
    groups(&mut text, &state.services);
    services(&mut text, &state.services);
    restarts(&mut text, &state.services);
    let prevented = state.prevented.iter();
    text.family(
        "fdguard_prevented_total",
        MetricType::Counter,
        "Descriptor misuse prevented by fdguard, by rule.",
        prevented.map(|(rule, count)| MetricSample::new(&[("rule", rule)], number(*count))),
    );
    text.finish()
}

fn one(text: &mut Exposition, name: &str, help: &str, value: Option<f64>) {
    let sample = value.map(|value| MetricSample::new(&[], value));
    text.family(name, MetricType::Gauge, help, sample);
}

fn own(text: &mut Exposition, own: &SupervisorMetrics) {
    one(
        text,
        "process_open_fds",
        "Number of open file descriptors.",
        own.open_fds.map(number),
    );
    one(
        text,
        "process_max_fds",
        "Maximum number of open file descriptors.",
        own.max_fds.map(number),
    );
    let help = "Start time of the process since unix epoch in seconds.";
    one(
        text,
        "process_start_time_seconds",
        help,
        own.started.map(seconds),
    );
    one(
        text,
        "process_resident_memory_bytes",
        "Resident memory size in bytes.",
        own.resident.map(number),
    );
}

fn host(text: &mut Exposition, host: HostMetrics) {
    let help = "File descriptor statistics: allocated.";
    one(
        text,
        "node_filefd_allocated",
        help,
        host.allocated.map(number),
    );
    let help = "File descriptor statistics: maximum.";
    one(text, "node_filefd_maximum", help, host.maximum.map(number));
}

/// A process with the texts of its labels.
struct Row<'s> {
    service: &'s str,
    pid: String,
    process: &'s ProcessMetrics,
}

impl Row<'_> {
    fn sample(&self, value: f64) -> MetricSample<'_> {
        let labels = [
            ("service", self.service),
            ("pid", &self.pid),
            ("comm", &self.process.comm),
        ];
        MetricSample::new(&labels, value)
    }
}

type Value = fn(&ProcessMetrics) -> Option<f64>;

const BY_PROCESS: [(&str, &str, Value); 7] = [
    (
        "fdguard_process_open_fds",
        "Open file descriptors, by process.",
        |one| one.open_fds.map(number),
    ),
    (
        "fdguard_process_max_fds",
        "Soft limit on open file descriptors, by process.",
        |one| one.soft.map(number),
    ),
    (
        "fdguard_process_hard_max_fds",
        "Hard limit on open file descriptors, by process.",
        |one| one.hard.map(number),
    ),
    (
        "fdguard_process_highest_fd",
        "Highest open descriptor number, by process.",
        |one| one.highest.map(number),
    ),
    (
        "fdguard_process_threads",
        "Number of threads, by process.",
        |one| one.threads.map(number),
    ),
    (
        "fdguard_process_resident_memory_bytes",
        "Resident memory size in bytes, by process.",
        |one| one.resident.map(number),
    ),
    (
        "fdguard_process_zombies",
        "Exited child processes that were not reaped, by process.",
        |one| one.zombies.map(number),
    ),
];

fn processes(text: &mut Exposition, services: &[ServiceMetrics]) {
    let mut rows = Vec::new();
    for service in services {
        let mut largest: Vec<&ProcessMetrics> = service.processes.iter().collect();
        largest.sort_by_key(|one| std::cmp::Reverse(one.open_fds));
        largest.truncate(PROCESSES);
        rows.extend(largest.into_iter().map(|process| Row {
            service: &service.name,
            pid: process.pid.to_string(),
            process,
        }));
    }
    for (name, help, value) in BY_PROCESS {
        let known = rows
            .iter()
            .filter_map(|row| Some(row.sample(value(row.process)?)));
        text.family(name, MetricType::Gauge, help, known);
    }
    kinds(text, &rows);
}

/// A separate family: otherwise the sum over `fdguard_process_open_fds` would count everything
/// twice.
fn kinds(text: &mut Exposition, rows: &[Row<'_>]) {
    let counted: Vec<(&Row<'_>, BTreeMap<String, u64>)> = rows
        .iter()
        .filter_map(|row| Some((row, by_kind(row.process.classes.as_ref()?))))
        .collect();
    let samples = counted.iter().flat_map(|(row, kinds)| {
        kinds.iter().map(|(kind, count)| {
            let mut sample = row.sample(number(*count));
            sample.label("kind", kind);
            sample
        })
    });
    let help = "Open file descriptors by class, as of the last listing.";
    text.family(
        "fdguard_process_open_fds_by_kind",
        MetricType::Gauge,
        help,
        samples,
    );
}

/// The classes are a fixed list except `other:NAME`, whose names come from the kernel: all of them
/// are one kind.
fn by_kind(classes: &[(Class, u64)]) -> BTreeMap<String, u64> {
    let mut kinds = BTreeMap::new();
    for (class, count) in classes {
        let kind = match class {
            Class::Other(_) => "other".to_owned(),
            class => class.to_string(),
        };
        *kinds.entry(kind).or_default() += count;
    }
    kinds
}

/// The same for dashboards made for process-exporter.
fn groups(text: &mut Exposition, services: &[ServiceMetrics]) {
    let open = services.iter().filter_map(|service| {
        let known = service.processes.iter().filter_map(|one| one.open_fds);
        let total = known.reduce(u64::saturating_add)?;
        Some(MetricSample::new(
            &[("groupname", &service.name)],
            number(total),
        ))
    });
    let help = "number of open file descriptors for this group";
    text.family(
        "namedprocess_namegroup_open_filedesc",
        MetricType::Gauge,
        help,
        open,
    );
    let worst = services.iter().filter_map(|service| {
        let ratio = service.worst()?.ratio()?;
        Some(MetricSample::new(&[("groupname", &service.name)], ratio))
    });
    let help =
        "the worst (closest to 1) ratio between open fds and max fds among all procs in this group";
    text.family(
        "namedprocess_namegroup_worst_fd_ratio",
        MetricType::Gauge,
        help,
        worst,
    );
}

type OfService = fn(&ServiceMetrics) -> Option<f64>;

const BY_SERVICE: [(&str, MetricType, &str, OfService); 11] = [
    (
        "fdguard_service_up",
        MetricType::Gauge,
        "Whether the service is running.",
        |one| Some(truth(one.up_since.is_some())),
    ),
    (
        "fdguard_service_start_time_seconds",
        MetricType::Gauge,
        "Start time of the service since unix epoch in seconds.",
        |one| one.up_since.map(seconds),
    ),
    (
        "fdguard_service_ready",
        MetricType::Gauge,
        "Whether the readiness check passed.",
        |one| one.ready.map(truth),
    ),
    (
        "fdguard_service_healthy",
        MetricType::Gauge,
        "Whether the liveness checks pass.",
        |one| one.healthy.map(truth),
    ),
    (
        "fdguard_service_processes",
        MetricType::Gauge,
        "Number of processes of the service.",
        |one| u64::try_from(one.processes.len()).ok().map(number),
    ),
    (
        "fdguard_fd_ratio",
        MetricType::Gauge,
        "Highest ratio of open descriptors to soft limit among the processes of the service.",
        |one| one.worst()?.ratio(),
    ),
    (
        "fdguard_exhaustion_seconds",
        MetricType::Gauge,
        "Seconds until descriptors run out at the current rate; absent while nothing grows.",
        |one| one.eta.map(|eta| eta.as_secs_f64()),
    ),
    (
        "fdguard_breaches_total",
        MetricType::Counter,
        "Number of budget breaches.",
        |one| Some(number(one.breaches)),
    ),
    (
        "fdguard_last_breach_timestamp_seconds",
        MetricType::Gauge,
        "Time of the last budget breach since unix epoch in seconds.",
        |one| one.last_breach.map(seconds),
    ),
    (
        "fdguard_survivors_total",
        MetricType::Counter,
        "Processes that did not exit when asked and were killed.",
        |one| Some(number(one.survivors)),
    ),
    (
        "fdguard_log_lines_dropped_total",
        MetricType::Counter,
        "Output lines that were dropped.",
        |one| Some(number(one.lines_dropped)),
    ),
];

fn services(text: &mut Exposition, services: &[ServiceMetrics]) {
    for (name, kind, help, value) in BY_SERVICE {
        let known = services
            .iter()
            .filter_map(|one| Some(MetricSample::new(&[("service", &one.name)], value(one)?)));
        text.family(name, kind, help, known);
    }
}

fn restarts(text: &mut Exposition, services: &[ServiceMetrics]) {
    let all = services.iter().flat_map(|service| {
        let reasons = service.restarts.iter();
        reasons.map(|(reason, count)| {
            MetricSample::new(
                &[("service", &service.name), ("reason", reason)],
                number(*count),
            )
        })
    });
    text.family(
        "fdguard_restarts_total",
        MetricType::Counter,
        "Service restarts, by reason.",
        all,
    );
}

fn truth(yes: bool) -> f64 {
    f64::from(u8::from(yes))
}

fn seconds(moment: Timestamp) -> f64 {
    moment.as_duration().as_secs_f64()
}
