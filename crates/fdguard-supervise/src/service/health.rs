//! The health of a service: its checks, and the deadlines of its current run.

use std::io;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_process::notify::{NotifyMessage, Watchdog};

use super::instance;
use super::run::Run;
use crate::config::ServiceConfig;
use crate::health::{
    CheckInputs, CommandContext, HealthChange, HealthCheck, HealthState, HeartbeatPipe, Kind,
    Listener, queue,
};
use crate::lifecycle::{Input, Unhealthy};
use crate::poll::{Interest, Readiness};

/// The interval between searches for a service's listening sockets.
const LISTENERS: Duration = Duration::from_secs(5);

/// Checks and deadlines.
#[derive(Debug)]
pub(super) struct Health {
    ready: Option<HealthCheck>,
    checks: Vec<HealthCheck>,
    /// Whether a check needs the listening sockets.
    needs_listeners: bool,
    /// Where it listens, and when that was looked up.
    listeners: (Vec<Listener>, Option<Instant>),
    /// It sent `READY=1`.
    notified: bool,
    /// When it must be ready.
    ready_until: Option<Instant>,
    /// Its watchdog interval, and the current deadline.
    watchdog: Option<(Duration, Instant)>,
}

impl Health {
    /// The error is the reason why its checks cannot work.
    pub(super) fn new(
        settings: &ServiceConfig,
        scene: &Arc<CommandContext>,
    ) -> Result<Self, String> {
        let check = |spec| HealthCheck::new(spec, scene);
        let checks = settings.health.iter().map(check);
        let is_accept = |kind: &Kind| matches!(kind, Kind::Accept);
        Ok(Self {
            ready: settings.ready.as_ref().map(check).transpose()?,
            checks: checks.collect::<Result<_, _>>()?,
            needs_listeners: settings.health.iter().any(|spec| is_accept(&spec.kind)),
            listeners: (Vec::new(), None),
            notified: false,
            ready_until: None,
            watchdog: None,
        })
    }

    /// Whether the service has a readiness check.
    pub(super) fn has_readiness(&self) -> bool {
        self.ready.is_some()
    }

    /// Whether all checks succeed; absent without checks, and before the first result.
    pub(super) fn is_well(&self) -> Option<bool> {
        let states: Vec<HealthState> = self.checks.iter().map(HealthCheck::state).collect();
        if states.contains(&HealthState::Failing) {
            return Some(false);
        }
        states.contains(&HealthState::Healthy).then_some(true)
    }

    /// A program is about to be started.
    pub(super) fn begin(&mut self, now: Instant) -> io::Result<Option<HeartbeatPipe>> {
        self.notified = false;
        self.listeners = (Vec::new(), None);
        match &mut self.ready {
            Some(check) => check.start(now),
            None => Ok(None),
        }
    }

    /// It was started, and must be ready by this moment.
    pub(super) fn started(&mut self, ready_until: Instant) {
        self.ready_until = self.ready.as_ref().map(|_| ready_until);
    }

    /// It is ready from now on.
    pub(super) fn serve(&mut self, now: Instant, watchdog: Option<Duration>) {
        self.ready_until = None;
        self.watchdog = watchdog.map(|within| (within, now + within));
        if let Some(check) = &mut self.ready {
            check.end();
        }
        for check in &mut self.checks {
            // Only readiness checks have pipes.
            drop(check.start(now));
        }
    }

    /// The run is ending.
    pub(super) fn end(&mut self) {
        self.ready_until = None;
        self.watchdog = None;
        for check in self.ready.iter_mut().chain(&mut self.checks) {
            check.end();
        }
    }

    pub(super) fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        let watchdog = self.watchdog.map(|(_, until)| until);
        let moments = self.ready_until.into_iter().chain(watchdog);
        moments.for_each(|moment| wants.until(moment));
        for check in self.ready.iter().chain(&self.checks) {
            check.wants(wants);
        }
    }

    /// A line of the program's output.
    pub(super) fn hear_line(&mut self, line: &[u8]) {
        if let Some(check) = &mut self.ready {
            check.hear(line);
        }
    }

    /// A notification from the program.
    pub(super) fn hear(&mut self, message: &NotifyMessage, now: Instant) -> Option<Unhealthy> {
        self.notified |= message.ready;
        if let (Some(more), Some(until)) = (message.extend_timeout, self.ready_until) {
            self.ready_until = Some(until.max(now + more));
        }
        if let Some((within, until)) = &mut self.watchdog {
            *within = message.watchdog_interval.unwrap_or(*within);
            if message.watchdog == Some(Watchdog::Ping) {
                *until = now + *within;
            }
        }
        let is_trigger = message.watchdog == Some(Watchdog::Trigger);
        is_trigger.then_some(Unhealthy::Watchdog("received WATCHDOG=trigger"))
    }

    /// Runs the checks and compares the deadlines.
    pub(super) fn poll(&mut self, now: Instant, ready: &Readiness, run: &Run) -> Option<Input> {
        self.find_listeners(now, run);
        let feeds = CheckInputs {
            notified: self.notified,
            listeners: &self.listeners.0,
        };
        let mut is_ready = false;
        if let Some(check) = &mut self.ready {
            is_ready = check.poll(now, ready, &feeds) == Some(HealthChange::Healthy);
        }
        let mut failing = None;
        for check in &mut self.checks {
            let change = check.poll(now, ready, &feeds);
            if let Some(HealthChange::Failing { reason, failures }) = change
                && failing.is_none()
            {
                let why = reason;
                failing = Some(Unhealthy::Check { why, failures });
            }
        }
        let is_silent = self.watchdog.is_some_and(|(_, until)| until <= now);
        let silent = is_silent.then_some(Unhealthy::Watchdog("no WATCHDOG=1 received in time"));
        if let Some(how) = failing.or(silent) {
            return Some(Input::Unhealthy(how));
        }
        if is_ready {
            return Some(Input::Ready(instance(run.main)));
        }
        let late = self.ready_until.take_if(|until| *until <= now);
        late.map(|_| Input::Unhealthy(Unhealthy::NotReady))
    }

    /// Finds its listening sockets, for checks that need them.
    fn find_listeners(&mut self, now: Instant, run: &Run) {
        let is_fresh = self.listeners.1.is_some_and(|at| now < at + LISTENERS);
        if self.needs_listeners && !is_fresh {
            let found = queue::find(&run.members()).unwrap_or_default();
            self.listeners = (found, Some(now));
        }
    }
}
