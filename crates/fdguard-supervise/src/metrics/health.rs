//! `/health`: the fields that health endpoints usually have, so that one page fits all readers.
//! Callers without the token get only counts.

use fdguard_core::wall::{CRITICAL_FROM, WARNING_ABOVE};
use jiff::Timestamp;
use serde::Serialize;

use super::state::{MetricsState, ServiceMetrics, TargetMetrics, number};

/// The page and its status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HealthPage {
    /// JSON.
    pub body: String,
    /// 200, or 503 when a service is down, not ready, failing its check, or has less than a tenth
    /// of its descriptors left.
    pub is_well: bool,
}

#[derive(Serialize)]
struct Page<'s> {
    schema: &'static str,
    status: &'static str,
    #[serde(flatten)]
    worst: Counts,
    services_total: usize,
    services_up: usize,
    services_ready: usize,
    restarts: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    services: Option<Vec<Details<'s>>>,
}

/// Counts of one process: the one nearest to its limit.
#[derive(Clone, Serialize)]
struct Counts {
    fd_count: Option<u64>,
    fd_soft_limit: Option<u64>,
    fd_hard_limit: Option<u64>,
    fd_usage_percent: Option<f64>,
    thread_count: Option<u64>,
}

/// With names: only for callers with the token.
#[derive(Serialize)]
struct Details<'s> {
    name: &'s str,
    status: &'static str,
    up_since: Option<Timestamp>,
    ready: Option<bool>,
    healthy: Option<bool>,
    reason: Option<&'s str>,
    pid: Option<u32>,
    comm: Option<&'s str>,
    #[serde(flatten)]
    counts: Counts,
    fd_highest: Option<u64>,
    exhaustion_seconds: Option<f64>,
    last_breach: Option<Timestamp>,
    restarts: u64,
    classes: Option<Vec<CountView>>,
    targets: Vec<CountView>,
}

#[derive(Serialize)]
struct CountView {
    name: String,
    count: u64,
}

/// The statuses, from best to worst.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Status {
    Ok,
    Warning,
    Degraded,
    Critical,
}

impl Status {
    fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Warning => "warning",
            Self::Degraded => "degraded",
            Self::Critical => "critical",
        }
    }

    fn of(service: &ServiceMetrics) -> Self {
        let percent = service.worst().and_then(|one| percent(one.ratio()?));
        match percent {
            Some(percent) if percent >= CRITICAL_FROM => Self::Critical,
            _ if !works(service) => Self::Degraded,
            Some(percent) if percent > WARNING_ABOVE => Self::Warning,
            _ => Self::Ok,
        }
    }
}

fn works(service: &ServiceMetrics) -> bool {
    service.up_since.is_some() && service.ready != Some(false) && service.healthy != Some(false)
}

/// Writes the page; `is_known` is a caller with the token.
#[must_use]
pub fn write(state: &MetricsState, is_known: bool) -> HealthPage {
    let status = state
        .services
        .iter()
        .map(Status::of)
        .max()
        .unwrap_or(Status::Ok);
    let known = state
        .services
        .iter()
        .filter_map(|one| Some((one, one.worst()?.ratio()?)));
    let worst = known
        .max_by(|a, b| a.1.total_cmp(&b.1))
        .map(|(service, _)| service);
    let count =
        |test: fn(&ServiceMetrics) -> bool| state.services.iter().filter(|one| test(one)).count();
    let page = Page {
        schema: "fdguard.health/1",
        status: status.name(),
        worst: Counts::of(worst.or_else(|| state.services.first())),
        services_total: state.services.len(),
        services_up: count(|one| one.up_since.is_some()),
        services_ready: count(|one| one.up_since.is_some() && one.ready != Some(false)),
        restarts: state.services.iter().map(restarts).sum(),
        services: is_known.then(|| state.services.iter().map(Details::of).collect()),
    };
    HealthPage {
        // Only maps with non-string keys cannot be serialised.
        body: serde_json::to_string(&page).unwrap_or_default() + "\n",
        is_well: status <= Status::Warning,
    }
}

fn restarts(service: &ServiceMetrics) -> u64 {
    service.restarts.values().sum()
}

fn percent(ratio: f64) -> Option<f64> {
    let percent = (ratio * 1000.0).round() / 10.0;
    percent.is_finite().then_some(percent)
}

impl Counts {
    fn of(service: Option<&ServiceMetrics>) -> Self {
        let process = service.and_then(ServiceMetrics::worst);
        Self {
            fd_count: process.and_then(|one| one.open_fds),
            fd_soft_limit: process.and_then(|one| one.soft),
            fd_hard_limit: process.and_then(|one| one.hard),
            fd_usage_percent: process.and_then(|one| percent(one.ratio()?)),
            thread_count: process.and_then(|one| one.threads),
        }
    }
}

impl<'s> Details<'s> {
    fn of(service: &'s ServiceMetrics) -> Self {
        let process = service.worst();
        let classes = process.and_then(|one| one.classes.as_ref());
        Self {
            name: &service.name,
            status: Status::of(service).name(),
            up_since: service.up_since,
            ready: service.ready,
            healthy: service.healthy,
            reason: service.reason.as_deref(),
            pid: process.map(|one| one.pid),
            comm: process.map(|one| one.comm.as_str()),
            counts: Counts::of(Some(service)),
            fd_highest: process.and_then(|one| one.highest),
            exhaustion_seconds: service.eta.map(|eta| number(eta.as_secs())),
            last_breach: service.last_breach,
            restarts: restarts(service),
            classes: classes.map(|classes| {
                let counted = classes.iter().map(|(class, count)| CountView {
                    name: class.to_string(),
                    count: *count,
                });
                counted.collect()
            }),
            targets: service.targets.iter().map(CountView::of).collect(),
        }
    }
}

impl CountView {
    fn of(target: &TargetMetrics) -> Self {
        Self {
            name: target.name.clone(),
            count: target.count,
        }
    }
}
