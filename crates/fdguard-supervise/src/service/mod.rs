//! One service: its state, its current run, and what is kept across restarts.
//!
//! [`start`] begins a run, [`end`] handles its end and what follows, [`health`] handles the
//! program's notifications and checks, [`budgets`] watches its usage. All of them are steps of the
//! one loop and never block.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use fdguard_probe::Probe;
use fdguard_process::listen::ListenAddress;
use fdguard_process::notify::{FdStore, NotifyServer};
use fdguard_process::plan::{FIRST_HANDED, InheritedFd};
use fdguard_process::tree::StopPlan;

use crate::config;
use crate::event::LogEvent;
use crate::health::{CommandContext, HealthCheck, Kind};
use crate::output::ServiceOutput;
use crate::policy::RestartHistory;
use crate::poll::{Interest, Readiness};
use crate::remedy::RemedyLock;

mod budgets;
mod end;
mod health;
mod injection;
mod listening;
mod metrics_view;
mod output;
mod remedy_steps;
mod run;
mod start;
mod wording;

pub(crate) use start::Context;

use run::{Ending, Run};

/// The state of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum State {
    /// Others must be ready first.
    Waiting,
    /// It runs and is not ready yet.
    Starting,
    /// It is ready.
    Ready,
    /// It finishes its current work, before a restart.
    Draining,
    /// It is being stopped.
    Stopping,
    /// It exited, and will be restarted later.
    BackingOff,
    /// It is down, as intended.
    Stopped,
    /// It is down, unintentionally.
    Failed,
}

impl State {
    /// The name in events and metrics.
    #[must_use]
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Waiting => "waiting",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::Draining => "draining",
            Self::Stopping => "stopping",
            Self::BackingOff => "backing_off",
            Self::Stopped => "stopped",
            Self::Failed => "failed",
        }
    }

    /// Whether it is a final state.
    #[must_use]
    pub(crate) fn is_final(self) -> bool {
        matches!(self, Self::Stopped | Self::Failed)
    }
}

/// Processes that are still running although they should not be. Absent is unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Survivors(pub(crate) Option<u64>);

impl Default for Survivors {
    fn default() -> Self {
        Self(Some(0))
    }
}

impl Survivors {
    pub(crate) fn add(&mut self, more: Self) {
        self.0 = self.0.zip(more.0).map(|(before, more)| before + more);
    }
}

/// A service.
#[derive(Debug)]
pub(crate) struct Service<'p> {
    pub(crate) settings: config::ServiceConfig,
    pub(crate) state: State,
    history: RestartHistory,
    /// Sockets that are passed to it at each start.
    sockets: Vec<InheritedFd>,
    notify: Option<NotifyServer>,
    store: FdStore,
    ready: Option<HealthCheck>,
    checks: Vec<HealthCheck>,
    run: Option<Run>,
    thrift: budgets::ServiceBudgets<'p>,
    steps: remedy_steps::Steps,
    /// Where it is known to listen.
    ports: Vec<u16>,
    output: Option<ServiceOutput>,
    next_start: Option<Instant>,
    pub(crate) restarts: u64,
    /// The same by reason.
    reasons: BTreeMap<String, u64>,
    /// The exit status of fdguard, once the service stays down.
    pub(crate) outcome: Option<u8>,
    /// Processes killed because they did not exit when requested, in all runs.
    pub(crate) killed: u64,
    /// Processes that could not be ended, in all runs.
    pub(crate) survivors: Survivors,
    /// It was removed from the file.
    pub(crate) is_removed: bool,
}

impl<'p> Service<'p> {
    /// Creates a service that waits for its start. The error is the reason why its checks cannot
    /// work.
    pub(crate) fn new(
        settings: config::ServiceConfig,
        sockets: Vec<InheritedFd>,
        scene: &Arc<CommandContext>,
        probe: &'p Probe,
        flight: &RemedyLock,
    ) -> Result<Self, String> {
        let taken = u32::try_from(sockets.len()).unwrap_or(u32::MAX);
        let free = FIRST_HANDED.saturating_add(taken);
        if let Some(Kind::Newline(number)) = settings.ready.as_ref().map(|check| &check.kind)
            && *number < free
        {
            return Err(format!(
                "ready: descriptor {number} is used by a socket: use fd:{free}"
            ));
        }
        let check = |spec| HealthCheck::new(spec, scene);
        let ready = settings.ready.as_ref().map(check).transpose()?;
        let checks = settings
            .health
            .iter()
            .map(check)
            .collect::<Result<_, _>>()?;
        Ok(Self {
            thrift: budgets::ServiceBudgets::new(probe, &settings, flight),
            steps: remedy_steps::Steps::default(),
            ports: ports(&settings),
            output: None,
            state: State::Waiting,
            history: RestartHistory::default(),
            sockets,
            notify: None,
            store: FdStore::default(),
            ready,
            checks,
            run: None,
            next_start: None,
            restarts: 0,
            reasons: BTreeMap::new(),
            outcome: None,
            killed: 0,
            survivors: Survivors::default(),
            is_removed: false,
            settings,
        })
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    /// The program's process, while it runs.
    pub(crate) fn main(&self) -> Option<u32> {
        self.run.as_ref().map(|run| run.main)
    }

    /// Whether anything of it runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.run.is_some()
    }

    /// The duration of the current run.
    pub(crate) fn uptime(&self, now: Instant) -> Option<std::time::Duration> {
        self.run
            .as_ref()
            .map(|run| now.saturating_duration_since(run.started))
    }

    /// The last status that it reported.
    pub(crate) fn status(&self) -> Option<&str> {
        self.run.as_ref()?.status.as_deref()
    }

    /// Forwards a signal to the program.
    pub(crate) fn forward(&mut self, signal: i32) {
        if let Some(run) = &mut self.run {
            run.tree.signal(signal);
        }
    }

    /// Stops it for good.
    pub(crate) fn stop(&mut self) {
        self.next_start = None;
        match &self.run {
            Some(_) => self.end_run(Ending::Stop),
            None if !self.state.is_final() => self.state = State::Stopped,
            None => {}
        }
    }

    /// Kills it at once.
    pub(crate) fn kill(&mut self) {
        if let Some(run) = &mut self.run {
            run.ending = Some(Ending::Stop);
            run.tree.stop(StopPlan {
                signal: rustix::process::Signal::KILL.as_raw(),
                grace: std::time::Duration::ZERO,
            });
        }
    }

    /// Ends the run gracefully and begins another, with these settings: sockets and stored
    /// descriptors stay.
    pub(crate) fn renew(&mut self, fresh: Self) {
        if self.settings.output != fresh.settings.output {
            self.output = None;
        }
        self.settings = fresh.settings;
        self.ports = fresh.ports;
        self.steps = remedy_steps::Steps::default();
        self.thrift = fresh.thrift;
        self.history.forget();
        self.outcome = None;
        self.sockets = fresh.sockets;
        if self.run.is_some() {
            // Its checks do not matter for a run that is ending: the new ones begin with the next.
            (self.ready, self.checks) = (fresh.ready, fresh.checks);
            self.end_run(Ending::Renew("reload"));
        } else {
            (self.ready, self.checks) = (fresh.ready, fresh.checks);
            self.state = State::Waiting;
            self.next_start = None;
        }
    }

    /// Begins, if it has not begun.
    pub(crate) fn start_waiting(&mut self, cx: &mut Context<'_>) {
        if self.state == State::Waiting {
            self.start(cx);
        }
    }

    /// It cannot start: a dependency is down.
    pub(crate) fn give_up_waiting(&mut self, on: &str, cx: &mut Context<'_>) {
        if self.state == State::Waiting {
            let event = LogEvent::for_service("down", self.name());
            cx.sink
                .emit(&event.with("reason", "dependency").with("dependency", on));
            self.state = State::Failed;
            self.outcome = Some(1);
        }
    }

    /// Registers its descriptors and deadline.
    pub(crate) fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        if let Some(output) = &self.output {
            output.wants(wants);
        }
        if let Some(at) = self.next_start {
            wants.until(at);
        }
        if let Some(server) = &self.notify {
            wants.read(server.fd());
        }
        for fd in self.store.polled() {
            wants.hang_up(fd);
        }
        let Some(run) = &self.run else { return };
        wants.tree(&run.tree);
        let moments = [
            run.ready_until,
            run.watchdog.map(|(_, until)| until),
            run.settle.map(|settle| settle.next),
        ];
        for moment in moments.into_iter().flatten() {
            wants.until(moment);
        }
        for check in self.ready.iter().chain(&self.checks) {
            check.wants(wants);
        }
        self.thrift.wants(wants);
        self.steps.wants(wants);
    }

    /// Continues.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, ready: &Readiness) {
        self.hear_output(cx, ready);
        self.hear_program(cx, ready);
        self.hear_keeper(cx, ready);
        self.finish_run(cx);
        self.check(cx, ready);
        self.watch_budgets(cx, ready);
        if self.next_start.is_some_and(|at| at <= cx.now) {
            self.start(cx);
        }
    }
}

impl Service<'_> {
    /// Whether the parent may get a watchdog message.
    pub(crate) fn holds(&self) -> bool {
        self.state != State::Failed && self.thrift.holds()
    }

    /// Its state as an event.
    pub(crate) fn told_state(&self, now: Instant) -> LogEvent {
        let reading = self.thrift.reading.as_ref();
        let main = reading.and_then(crate::budget::ServiceReading::of_main);
        let count = main.and_then(|main| main.count.seen().copied());
        LogEvent::for_service("state", self.name())
            .with("state", self.state.name())
            .with("pid", self.main())
            .with("uptime_s", self.uptime(now).map(|up| up.as_secs()))
            .with("restarts", self.restarts)
            .with("fds", count)
            .with("limit", main.and_then(|main| main.limits.soft))
            .with("stored", self.store.len())
            .with("status", self.status())
    }

    /// Reopens its log files.
    pub(crate) fn reopen_logs(&mut self) {
        if let Some(output) = &mut self.output {
            output.reopen();
        }
    }
}

/// The ports that fdguard bound for it.
fn ports(settings: &config::ServiceConfig) -> Vec<u16> {
    let port = |socket: &config::SocketConfig| match socket {
        config::SocketConfig::Bind(listen) => match listen.at {
            ListenAddress::Tcp(address) => Some(address.port()),
            ListenAddress::Any(port) => Some(port),
            ListenAddress::Unix(_) => None,
        },
        config::SocketConfig::Inherited(_) => None,
    };
    settings.listen.iter().filter_map(port).collect()
}
