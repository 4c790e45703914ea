//! Health of the host: its resource usage compared with the limits.

use std::sync::Arc;

use schemars::JsonSchema;
use serde::Serialize;

use super::entry::Entry;
use super::reaper::ReaperHealth;
use super::record::RegistryHealth;
use super::warm::WarmHealth;
use super::{Host, own};

/// From here on the host is in danger.
const WARNING_PERCENT: f64 = 70.0;
/// From here on the host opens nothing new.
const CRITICAL_PERCENT: f64 = 90.0;

/// Health of the host. Counts only: no paths, no peers (R10, R59).
#[derive(Clone, Debug, PartialEq, Serialize, JsonSchema)]
pub struct HostHealth {
    /// `fdguard.health/1`.
    pub schema: &'static str,
    /// Overall status.
    pub status: HostStatus,
    /// Descriptors the host holds; `null` if they cannot be counted.
    pub fd_count: Option<u64>,
    /// Soft limit of the host; `null` if unlimited.
    pub fd_soft_limit: Option<u64>,
    /// Hard limit of the host; `null` if unlimited.
    pub fd_hard_limit: Option<u64>,
    /// Descriptors as a percentage of the soft limit.
    pub fd_usage_percent: Option<f64>,
    /// Highest open descriptor number, which matters for `select`.
    pub fd_highest: Option<u64>,
    /// Threads of the host.
    pub thread_count: Option<u64>,
    /// Child processes of the host; each session has one, its keeper.
    pub children: Option<u64>,
    /// Child processes that have ended and are not reaped yet.
    pub zombies: Option<u64>,
    /// Session counts.
    pub sessions: SessionCounts,
    /// Clients with a lease.
    pub clients: usize,
    /// End-of-command messages that no command was waiting for: late or from unknown senders.
    pub strays: u64,
    /// Seconds since the host started.
    pub uptime_seconds: f64,
    /// Reaper of idle sessions.
    pub reaper: ReaperHealth,
    /// Warm interpreter; `null` if it is disabled.
    pub warm: Option<WarmHealth>,
    /// Registry; `null` if the host has none.
    pub registry: Option<RegistryHealth>,
    /// The host is shutting down.
    pub closing: bool,
}

/// Overall status, by share of the soft descriptor limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[serde(rename_all = "kebab-case")]
pub enum HostStatus {
    /// Below 70 %.
    Ok,
    /// 70 % or more.
    Warning,
    /// 90 % or more: the host opens nothing new.
    Critical,
}

/// Session counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, JsonSchema)]
pub struct SessionCounts {
    /// Open sessions, including those being opened or closed.
    pub open: usize,
    /// Sessions that are running a command.
    pub busy: usize,
    /// Maximum number of sessions.
    pub cap: usize,
}

fn status(percent: Option<f64>) -> HostStatus {
    match percent {
        Some(percent) if percent >= CRITICAL_PERCENT => HostStatus::Critical,
        Some(percent) if percent >= WARNING_PERCENT => HostStatus::Warning,
        _ => HostStatus::Ok,
    }
}

fn percent(used: Option<u64>, limit: Option<u64>) -> Option<f64> {
    // Descriptor numbers are far below the limit of exact floats.
    let float = |number: u64| u32::try_from(number).ok().map(f64::from);
    let (used, limit) = (float(used?)?, float(limit?)?);
    (limit > 0.0).then(|| (used / limit * 1000.0).round() / 10.0)
}

impl Host {
    /// How it is, now. Reads about a dozen small files of the kernel.
    #[must_use]
    pub fn health(&self) -> HostHealth {
        let inner = &self.inner;
        let limits = fdguard_process::own_limit::read();
        let count = own::count();
        let percent = percent(count, limits.soft);
        let children = own::children();
        let (sessions, clients, closing) = {
            let table = inner.table();
            let is_busy = |entry: &&Arc<Entry>| entry.session.busy_for().is_some();
            let sessions = SessionCounts {
                open: table.places.len(),
                busy: table.entries().filter(is_busy).count(),
                cap: inner.options.max_sessions,
            };
            (sessions, table.clients.len(), table.is_closing)
        };
        HostHealth {
            schema: "fdguard.health/1",
            status: status(percent),
            fd_count: count,
            fd_soft_limit: limits.soft,
            fd_hard_limit: limits.hard,
            fd_usage_percent: percent,
            fd_highest: own::highest(),
            thread_count: own::threads(),
            children: children.map(|(children, _)| children),
            zombies: children.map(|(_, zombies)| zombies),
            sessions,
            clients,
            strays: inner.hub.unexpected(),
            uptime_seconds: inner.started.elapsed().as_secs_f64(),
            reaper: inner.reaper.borrow().clone(),
            warm: inner.warm_health(),
            registry: inner.record().map(|record| record.seen()),
            closing,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn r12_levels_at_seventy_and_ninety_percent() {
        assert_eq!(status(percent(Some(699), Some(1000))), HostStatus::Ok);
        assert_eq!(status(percent(Some(700), Some(1000))), HostStatus::Warning);
        assert_eq!(status(percent(Some(899), Some(1000))), HostStatus::Warning);
        assert_eq!(status(percent(Some(900), Some(1000))), HostStatus::Critical);
        assert_eq!(status(percent(None, Some(1000))), HostStatus::Ok);
        assert_eq!(percent(Some(5), None), None);
        assert_eq!(percent(Some(5), Some(0)), None);
        assert_eq!(percent(Some(512), Some(4096)), Some(12.5));
    }
}
