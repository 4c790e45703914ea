//! The view of a service for metrics and health pages.

use std::time::Instant;

use fdguard_proc::process::name;
use fdguard_proc::status::{number_of, resident};

use super::Service;
use crate::budget::{HighestFd, ProcessReading};
use crate::lifecycle::State;
use crate::metrics;
use crate::supervisor::ago;

impl Service<'_> {
    pub(crate) fn shown(&self, now: Instant) -> metrics::ServiceMetrics {
        let reading = self.budgets.reading.as_ref();
        let processes = reading.map(|reading| &reading.processes[..]);
        let zombies = reading.and_then(|reading| reading.zombies.seen().copied());
        let mut processes: Vec<metrics::ProcessMetrics> =
            processes.unwrap_or_default().iter().map(process).collect();
        if let Some(first) = processes.first_mut() {
            first.zombies = zombies;
        }
        metrics::ServiceMetrics {
            name: self.name().to_owned(),
            processes: if self.run.is_some() {
                processes
            } else {
                Vec::new()
            },
            up_since: self.uptime(now).and_then(ago),
            ready: self
                .health
                .has_readiness()
                .then(|| matches!(self.lifecycle.state(), State::Ready | State::Draining)),
            healthy: self.health.is_well(),
            reason: None,
            restarts: self.lifecycle.reasons().clone(),
            breaches: self.budgets.breaches,
            last_breach: self.budgets.last_breach,
            eta: self.budgets.time_left(),
            survivors: self.killed,
            lines_dropped: self.output.lines_dropped(),
            targets: self.budgets.targets(),
        }
    }
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
