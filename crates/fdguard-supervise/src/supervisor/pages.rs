//! The state shown by the metrics and health pages.

use std::time::{Duration, Instant};

use fdguard_proc::file_nr;
use jiff::Timestamp;

use super::{Supervisor, self_check};
use crate::metrics::{HostMetrics, MetricsServer, MetricsState, SupervisorMetrics, read_token};
use crate::poll::Readiness;
use crate::{config, limit, trim};

/// Starts to listen at the configured address.
pub(super) fn open(settings: &config::RunSettings) -> Result<Option<MetricsServer>, String> {
    let Some(address) = settings.metrics else {
        return Ok(None);
    };
    let token = settings.metrics_token.as_ref().map(read_token);
    let token = token.transpose()?;
    let server = MetricsServer::bind(address, token);
    server
        .map(Some)
        .map_err(|error| format!("cannot serve --metrics on {address}: {error}"))
}

impl Supervisor<'_> {
    pub(super) fn turn_pages(&mut self, ready: &Readiness) {
        let Some(mut pages) = self.pages.take() else {
            return;
        };
        pages.poll(Instant::now(), ready, &mut || self.shown());
        self.pages = Some(pages);
    }

    fn shown(&self) -> MetricsState {
        let now = Instant::now();
        let own = SupervisorMetrics {
            open_fds: self_check::descriptors(),
            max_fds: limit::read().soft,
            started: ago(now.saturating_duration_since(self.began)),
            resident: trim::resident(),
        };
        let services = self.services.iter().map(|service| service.shown(now));
        MetricsState {
            own,
            host: host(),
            services: services.collect(),
            prevented: self
                .injector
                .as_ref()
                .map(|one| one.prevented())
                .unwrap_or_default(),
        }
    }
}

/// The wall-clock time that long ago.
pub(crate) fn ago(passed: Duration) -> Option<Timestamp> {
    let passed = jiff::SignedDuration::try_from(passed).ok()?;
    Timestamp::now().checked_sub(passed).ok()
}

fn host() -> HostMetrics {
    let text = std::fs::read("/proc/sys/fs/file-nr").unwrap_or_default();
    let (allocated, maximum) = file_nr::used_and_most(&text);
    HostMetrics { allocated, maximum }
}
