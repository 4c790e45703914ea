//! The metrics page: established metric names where they exist, and fdguard's own. Labels are
//! reasons and classes, never names.

use fdguard_core::exposition::{Exposition, MetricSample, MetricType};
use fdguard_proc::{file_nr, statm};

use crate::host::HostHealth;
use crate::http::api::Api;

/// What the page shows; unknown values are omitted.
#[derive(Debug)]
pub(super) struct State {
    pub(super) health: HostHealth,
    /// Since the epoch.
    pub(super) started: Option<f64>,
    pub(super) resident: Option<u64>,
    /// Allocated on this machine, and the most there can be.
    pub(super) machine: (Option<u64>, Option<u64>),
    pub(super) requests: Vec<(&'static str, u64)>,
    pub(super) connections: u64,
    pub(super) refused: u64,
    pub(super) too_slow: u64,
    pub(super) evicted: u64,
    pub(super) unread: u64,
    pub(super) abandoned: u64,
}

/// A name, its description, and its value if known.
type Gauge = (&'static str, &'static str, Option<f64>);

impl State {
    /// As it is now.
    pub(super) fn read(api: &Api) -> Self {
        let health = api.host.health();
        let now = jiff::Timestamp::now().as_duration().as_secs_f64();
        Self {
            started: Some(now - health.uptime_seconds),
            health,
            resident: resident(),
            machine: machine(),
            requests: api.counts.by_class(),
            connections: api.counts.connections.get(),
            refused: api.counts.refused.get(),
            too_slow: api.counts.too_slow.get(),
            evicted: api.counts.evicted.get(),
            unread: api.counts.unread.get(),
            abandoned: api.counts.abandoned.get(),
        }
    }

    /// Metrics with established names.
    fn gauges(&self) -> Vec<Gauge> {
        let health = &self.health;
        let known = |value: Option<u64>| value.map(number);
        vec![
            (
                "process_open_fds",
                "Number of open file descriptors.",
                known(health.fd_count),
            ),
            (
                "process_max_fds",
                "Maximum number of open file descriptors.",
                known(health.fd_soft_limit),
            ),
            (
                "process_start_time_seconds",
                "Start time of the process since unix epoch in seconds.",
                self.started,
            ),
            (
                "process_resident_memory_bytes",
                "Resident memory size in bytes.",
                known(self.resident),
            ),
            (
                "process_threads",
                "Number of OS threads in the process.",
                known(health.thread_count),
            ),
            (
                "node_filefd_allocated",
                "File descriptor statistics: allocated.",
                known(self.machine.0),
            ),
            (
                "node_filefd_maximum",
                "File descriptor statistics: maximum.",
                known(self.machine.1),
            ),
        ]
    }

    /// Metrics that only fdguard has.
    fn own_gauges(&self) -> Vec<Gauge> {
        let health = &self.health;
        let sessions = &health.sessions;
        let known = |value: Option<u64>| value.map(number);
        let whole = |count: usize| u64::try_from(count).ok().map(number);
        vec![
            (
                "fdguard_fd_ratio",
                "Open descriptors divided by the soft limit.",
                health.fd_usage_percent.map(|it| it / 100.0),
            ),
            (
                "fdguard_host_highest_fd",
                "Highest open descriptor number.",
                known(health.fd_highest),
            ),
            (
                "fdguard_host_children",
                "Child processes; each session has one.",
                known(health.children),
            ),
            (
                "fdguard_host_zombies",
                "Child processes that have ended and are not reaped yet.",
                known(health.zombies),
            ),
            (
                "fdguard_host_sessions",
                "Open sessions.",
                whole(sessions.open),
            ),
            (
                "fdguard_host_sessions_busy",
                "Sessions that are running a command.",
                whole(sessions.busy),
            ),
            (
                "fdguard_host_sessions_max",
                "Maximum number of open sessions.",
                whole(sessions.cap),
            ),
            (
                "fdguard_host_clients",
                "Clients with a lease.",
                whole(health.clients),
            ),
        ]
    }

    fn counters(&self) -> [(&'static str, &'static str, u64); 8] {
        [
            (
                "fdguard_host_reaper_runs_total",
                "Scans for idle sessions.",
                self.health.reaper.runs,
            ),
            (
                "fdguard_host_reaped_sessions_total",
                "Sessions closed because they were idle.",
                self.health.reaper.closed,
            ),
            (
                "fdguard_host_http_connections_total",
                "Accepted connections.",
                self.connections,
            ),
            (
                "fdguard_host_http_connections_refused_total",
                "Connections refused because of the connection limit.",
                self.refused,
            ),
            (
                "fdguard_host_http_connections_evicted_total",
                "Unauthenticated connections closed to make room for newer ones.",
                self.evicted,
            ),
            (
                "fdguard_host_http_unread_answers_total",
                "Connections closed because the client did not read the response.",
                self.unread,
            ),
            (
                "fdguard_host_http_slow_heads_total",
                "Connections closed because the request headers arrived too slowly.",
                self.too_slow,
            ),
            (
                "fdguard_host_abandoned_commands_total",
                "Commands interrupted because the client disconnected.",
                self.abandoned,
            ),
        ]
    }
}

/// The whole page.
pub(super) fn write(state: &State) -> String {
    let mut text = Exposition::default();
    for (name, help, value) in state.gauges().into_iter().chain(state.own_gauges()) {
        let sample = value.map(|value| MetricSample::new(&[], value));
        text.family(name, MetricType::Gauge, help, sample);
    }
    let requests = state.requests.iter();
    text.family(
        "fdguard_host_http_requests_total",
        MetricType::Counter,
        "Completed requests by status class.",
        requests.map(|(class, count)| MetricSample::new(&[("code", class)], number(*count))),
    );
    for (name, help, value) in state.counters() {
        text.family(
            name,
            MetricType::Counter,
            help,
            [MetricSample::new(&[], number(value))],
        );
    }
    text.finish()
}

#[expect(
    clippy::cast_precision_loss,
    reason = "the format knows only such numbers"
)]
fn number(value: u64) -> f64 {
    value as f64
}

fn resident() -> Option<u64> {
    let statm = std::fs::read("/proc/self/statm").ok()?;
    statm::resident(&statm, rustix::param::page_size())
}

fn machine() -> (Option<u64>, Option<u64>) {
    file_nr::used_and_most(&std::fs::read("/proc/sys/fs/file-nr").unwrap_or_default())
}
