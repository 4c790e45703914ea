//! The view of a service for metrics and health pages.

use std::time::Instant;

use fdguard_proc::process::name;
use fdguard_proc::status::{number_of, resident};

use super::{Service, State};
use crate::budget::{HighestFd, ProcessReading};
use crate::health;
use crate::metrics;
use crate::supervisor::ago;

impl Service<'_> {
    pub(crate) fn shown(&self, now: Instant) -> metrics::ServiceMetrics {
        let reading = self.thrift.reading.as_ref();
        let processes = reading.map(|reading| &reading.processes[..]);
        let zombies = reading.and_then(|reading| reading.zombies.seen().copied());
        let mut processes: Vec<metrics::ProcessMetrics> =
            processes.unwrap_or_default().iter().map(process).collect();
        if let Some(first) = processes.first_mut() {
            first.zombies = zombies;
        }
        let states = self.checks.iter().map(health::HealthCheck::state);
        metrics::ServiceMetrics {
            name: self.name().to_owned(),
            processes: if self.run.is_some() {
                processes
            } else {
                Vec::new()
            },
            up_since: self.uptime(now).and_then(ago),
            ready: self
                .ready
                .as_ref()
                .map(|_| matches!(self.state, State::Ready | State::Draining)),
            healthy: all_well(states),
            reason: None,
            restarts: self.reasons.clone(),
            breaches: self.thrift.breaches,
            last_breach: self.thrift.last_breach,
            eta: self.time_left(),
            survivors: self.killed,
            lines_dropped: self
                .output
                .as_ref()
                .map_or(0, |output| output.dropped().lines),
            targets: self.thrift.targets(),
        }
    }
}

/// Absent without checks, and before the first result.
fn all_well(states: impl Iterator<Item = health::HealthState>) -> Option<bool> {
    let mut well = None;
    for state in states {
        match state {
            health::HealthState::Failing => return Some(false),
            health::HealthState::Healthy => well = Some(true),
            health::HealthState::Unknown => {}
        }
    }
    well
}

fn process(seen: &ProcessReading) -> metrics::ProcessMetrics {
    let status = std::fs::read(format!("/proc/{}/status", seen.pid)).unwrap_or_default();
    metrics::ProcessMetrics {
        pid: seen.pid,
        comm: name(seen.pid).unwrap_or_default(),
        open_fds: seen.count.seen().copied(),
        soft: seen.limits.soft,
        hard: seen.limits.hard,
        highest: match seen.highest {
            HighestFd::Is(number) => Some(number),
            _ => None,
        },
        threads: number_of(&status, b"Threads"),
        resident: resident(&status),
        zombies: None,
        classes: seen.classes.seen().cloned(),
    }
}
