//! One service: its parts, and the loop that joins them with its lifecycle.
//!
//! Each part owns its state: [`Run`] the processes, [`Health`] checks and deadlines,
//! [`Notifications`] the socket and the stored descriptors, [`Output`] what the program writes,
//! [`Budgets`] its usage, [`Steps`] evidence and drain. What they find is an input of the
//! [`Lifecycle`], which decides; the actions are performed here. None of this blocks.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use fdguard_core::snapshot::Limits;
use fdguard_probe::Probe;
use fdguard_proc::ProcKey;
use fdguard_process::listen::ListenAddress;
use fdguard_process::plan::{FIRST_HANDED, InheritedFd};
use fdguard_process::random;
use fdguard_process::reserve::Reserve;
use fdguard_process::tree::StopPlan;
use rustix::process::Signal;

use crate::budget::ServiceReading;
use crate::config;
use crate::drain::{Drain, DrainContext};
use crate::event::{EventSink, LogEvent};
use crate::health::{CommandContext, Kind};
use crate::inject::Injector;
use crate::lifecycle::{Action, DrainResult, Input, Lifecycle, Request};
use crate::poll::{Interest, Readiness};

mod budgets;
mod events;
mod health;
mod listening;
mod metrics_view;
mod notify;
mod output;
mod remedy_log;
mod run;
mod start;
mod steps;

use budgets::Budgets;
use events::millis;
use health::Health;
use notify::Notifications;
use output::Output;
use remedy_log::RemedyLog;
use run::Run;
use steps::Steps;

/// What a service needs from the loop.
#[derive(Debug)]
pub(crate) struct Context<'c> {
    /// The event sink.
    pub(crate) sink: &'c mut EventSink,
    /// The time of this poll.
    pub(crate) now: Instant,
    /// The part of fdguard's environment that a program gets.
    pub(crate) environment: &'c [(OsString, OsString)],
    /// Whether the run ends with the program.
    pub(crate) once: bool,
    /// Where evidence goes.
    pub(crate) evidence: Option<&'c Path>,
    /// Reserved descriptors for a start when the table is full.
    pub(crate) reserve: &'c mut Reserve,
    /// `/dev/null`, for reading and writing.
    pub(crate) null: &'c OwnedFd,
    /// The tracer or protection to inject.
    pub(crate) injector: Option<&'c mut (dyn Injector + 'static)>,
    /// The limits at the start of fdguard.
    pub(crate) limits: Limits,
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
    lifecycle: Lifecycle,
    run: Option<Run>,
    health: Health,
    notify: Notifications,
    output: Output,
    budgets: Budgets<'p>,
    steps: Steps,
    remedy_log: RemedyLog,
    /// Sockets that are passed to it at each start.
    sockets: Vec<InheritedFd>,
    /// Where it is known to listen.
    ports: Vec<u16>,
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
        lifecycle: Lifecycle,
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
        Ok(Self {
            lifecycle,
            run: None,
            health: Health::new(&settings, scene)?,
            notify: Notifications::default(),
            output: Output::default(),
            budgets: Budgets::new(probe, &settings),
            steps: Steps::default(),
            remedy_log: RemedyLog::default(),
            ports: ports(&settings),
            sockets,
            killed: 0,
            survivors: Survivors::default(),
            is_removed: false,
            settings,
        })
    }

    /// Ends the run gracefully and begins another, with these settings: sockets and stored
    /// descriptors stay.
    pub(crate) fn renew(&mut self, fresh: Self, cx: &mut Context<'_>) {
        if self.settings.output != fresh.settings.output {
            self.output = Output::default();
        }
        self.settings = fresh.settings;
        self.ports = fresh.ports;
        self.sockets = fresh.sockets;
        // Its checks do not matter for a run that is ending: the new ones begin with the next.
        self.health = fresh.health;
        self.budgets = fresh.budgets;
        self.remedy_log = RemedyLog::default();
        let settings = Box::new(fresh.lifecycle.settings().clone());
        self.ask(Request::Reload(settings), cx);
    }

    /// Its name.
    pub(crate) fn name(&self) -> &str {
        &self.settings.name
    }

    pub(crate) fn lifecycle(&self) -> &Lifecycle {
        &self.lifecycle
    }

    /// The program's process, while it runs.
    pub(crate) fn main(&self) -> Option<u32> {
        self.run.as_ref().map(|run| run.main)
    }

    /// Whether anything of it runs.
    pub(crate) fn is_alive(&self) -> bool {
        self.run.is_some()
    }

    /// Whether all of its output has been written.
    pub(crate) fn is_written(&self) -> bool {
        self.output.is_written()
    }

    /// The duration of the current run.
    pub(crate) fn uptime(&self, now: Instant) -> Option<Duration> {
        self.run.as_ref().map(|run| run.uptime(now))
    }

    /// The last status that it reported.
    pub(crate) fn status(&self) -> Option<&str> {
        self.run.as_ref()?.status.as_deref()
    }

    /// Its state as an event.
    pub(crate) fn told_state(&self, now: Instant) -> LogEvent {
        let reading = self.budgets.reading.as_ref();
        let main = reading.and_then(ServiceReading::of_main);
        let count = main.and_then(|main| main.count.seen().copied());
        LogEvent::for_service("state", self.name())
            .with("state", self.lifecycle.state().name())
            .with("pid", self.main())
            .with("uptime_s", self.uptime(now).map(|up| up.as_secs()))
            .with("restarts", self.lifecycle.restarts())
            .with("fds", count)
            .with("limit", main.and_then(|main| main.limits.soft))
            .with("stored", self.notify.store.len())
            .with("status", self.status())
    }

    /// Reopens its log files.
    pub(crate) fn reopen_logs(&mut self) {
        self.output.reopen();
    }

    /// Forwards a signal to the program.
    pub(crate) fn forward(&mut self, signal: i32) {
        if let Some(run) = &mut self.run {
            run.signal(signal);
        }
    }

    /// Registers its descriptors and deadline.
    pub(crate) fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        if let Some(at) = self.lifecycle.deadline() {
            wants.until(at);
        }
        self.output.wants(wants);
        self.notify.wants(wants);
        if let Some(run) = &self.run {
            run.wants(wants);
            self.health.wants(wants);
            self.budgets.wants(wants);
            self.steps.wants(wants);
        }
    }
}

/// The loop: what the parts report goes to the lifecycle, and its actions to the parts.
impl Service<'_> {
    /// Continues.
    pub(crate) fn poll(&mut self, cx: &mut Context<'_>, ready: &Readiness) {
        self.output
            .poll(&self.settings, &mut self.health, cx, ready);
        let parts = [
            Self::poll_notifications,
            Self::poll_run,
            Self::poll_health,
            Self::poll_steps,
            Self::poll_clock,
            Self::poll_budgets,
        ];
        for poll in parts {
            for input in poll(self, cx, ready) {
                self.step(input, cx);
            }
        }
    }

    /// Handles a request from the supervisor.
    pub(crate) fn ask(&mut self, request: Request, cx: &mut Context<'_>) {
        self.step(Input::Asked(request), cx);
    }

    fn step(&mut self, input: Input, cx: &mut Context<'_>) {
        let mut inputs = VecDeque::from([input]);
        while let Some(input) = inputs.pop_front() {
            for action in self.lifecycle.step(cx.now, input) {
                self.perform(action, &mut inputs, cx);
            }
        }
    }

    fn poll_notifications(&mut self, cx: &mut Context<'_>, ready: &Readiness) -> Vec<Input> {
        let run = self.run.as_ref();
        let messages = self.notify.poll(&self.settings, run, cx, ready);
        let Some(run) = &mut self.run else {
            return Vec::new();
        };
        let mut inputs = Vec::new();
        for message in messages {
            run.hear(&message);
            let unhealthy = self.health.hear(&message, cx.now);
            inputs.extend(unhealthy.map(Input::Unhealthy));
        }
        inputs
    }

    fn poll_run(&mut self, cx: &mut Context<'_>, ready: &Readiness) -> Vec<Input> {
        let Some(run) = &mut self.run else {
            return Vec::new();
        };
        let inputs = run.poll(cx.now, ready, cx.once);
        if let Some(Input::Exited { end, .. }) = inputs.last() {
            self.killed += u64::from(end.killed);
            if let Some(left) = run.lost {
                self.keeper_lost(left, cx);
            }
            self.run_over(cx);
        }
        inputs
    }

    fn keeper_lost(&mut self, left: Survivors, cx: &mut Context<'_>) {
        self.survivors.add(left);
        let text = match left.0 {
            Some(0) => "its keeper process was killed or stopped; all of its processes were ended",
            Some(_) => {
                "its keeper process was killed or stopped; some of its processes could not be ended"
            }
            None => "its keeper process was killed; all known processes were ended",
        };
        let event = LogEvent::for_service("keeper_lost", self.name()).with("survivors", left.0);
        cx.sink.emit(&event.with("text", text));
    }

    /// Nothing of the run is left.
    fn run_over(&mut self, cx: &mut Context<'_>) {
        self.run = None;
        self.end_injected(cx);
        self.health.end();
        self.budgets.pause();
        self.output.end();
    }

    /// Ends the injection: nothing of a run is left, or there was none.
    fn end_injected(&self, cx: &mut Context<'_>) {
        if let Some(injector) = &mut cx.injector {
            for event in injector.ended(&self.settings.name) {
                cx.sink.emit(&event);
            }
        }
    }

    fn poll_health(&mut self, cx: &mut Context<'_>, ready: &Readiness) -> Vec<Input> {
        let run = self.run.as_ref().filter(|run| run.is_watched());
        let input = run.and_then(|run| self.health.poll(cx.now, ready, run));
        input.into_iter().collect()
    }

    fn poll_steps(&mut self, cx: &mut Context<'_>, ready: &Readiness) -> Vec<Input> {
        let counted = (&self.budgets.meter, &self.ports[..]);
        self.steps.poll(self.run.as_ref(), counted, cx, ready)
    }

    fn poll_clock(&mut self, cx: &mut Context<'_>, _: &Readiness) -> Vec<Input> {
        let is_due = self.lifecycle.is_due(cx.now);
        is_due.then_some(Input::Time).into_iter().collect()
    }

    fn poll_budgets(&mut self, cx: &mut Context<'_>, _: &Readiness) -> Vec<Input> {
        let waiting = self.lifecycle.waits_for_evidence();
        match self.run.as_ref().filter(|run| run.is_watched()) {
            Some(run) => self.budgets.poll(&self.settings, run, waiting, cx),
            None => Vec::new(),
        }
    }

    /// Performs an action. What it brings about at once is the next input.
    fn perform(&mut self, action: Action, inputs: &mut VecDeque<Input>, cx: &mut Context<'_>) {
        match action {
            Action::Start => inputs.extend(self.start(cx)),
            Action::Serve => self.serve(cx),
            Action::Abort => self.forward(Signal::ABORT.as_raw()),
            Action::End(grace) => self.end_run(StopPlan {
                grace,
                ..self.settings.stop
            }),
            Action::Kill => self.end_run(StopPlan {
                signal: Signal::KILL.as_raw(),
                grace: Duration::ZERO,
            }),
            Action::Adopt => inputs.extend(self.adopt(cx)),
            Action::WriteEvidence(pid, within) => {
                let of = (self.settings.name.as_str(), pid.or(self.main()));
                let begun = self.steps.begin_evidence(of, within, cx);
                inputs.extend(begun.err().map(|why| Input::EvidenceDone(Err(why))));
            }
            Action::StopEvidence => self.steps.evidence = None,
            Action::BeginDrain(within) => {
                let begun = self.begin_drain(within, cx);
                inputs.extend(begun.err().map(Input::Drained));
            }
            Action::StopDrain => self.steps.drain = None,
            Action::Log(notice) => self.log(notice, cx),
        }
    }

    fn serve(&mut self, cx: &mut Context<'_>) {
        if let Some(run) = self.run.as_ref().filter(|_| self.health.has_readiness()) {
            let event = LogEvent::for_service("ready", &self.settings.name)
                .with("after_ms", millis(run.uptime(cx.now)));
            cx.sink.emit(&event.with("pid", run.main));
        }
        self.health.serve(cx.now, self.settings.watchdog);
    }

    fn end_run(&mut self, plan: StopPlan) {
        if let Some(run) = &mut self.run {
            run.stop(plan);
        }
        self.health.end();
        self.budgets.pause();
    }

    fn adopt(&mut self, cx: &mut Context<'_>) -> Option<Input> {
        let run = self.run.as_mut()?;
        let count = run.adopt();
        let event = LogEvent::for_service("adopted", &self.settings.name).with("pid", run.main);
        cx.sink.emit(&event.with("count", count));
        self.budgets.start(cx.once);
        Some(Input::Adopted(instance(run.main)))
    }

    fn begin_drain(&mut self, within: Duration, cx: &mut Context<'_>) -> Result<(), DrainResult> {
        let Some(run) = &mut self.run else {
            return Err(DrainResult::Ended);
        };
        let given = DrainContext {
            pid: run.main,
            within,
            listens: !self.sockets.is_empty(),
            null: cx.null,
        };
        let spec = &self.settings.drain;
        let begun = cx.reserve.lend(|| Drain::start(spec, &given, cx.now));
        self.steps.drain = Some(begun?);
        if let Some(signal) = spec.signal() {
            run.signal(signal);
        }
        let event = LogEvent::for_service("drain", &self.settings.name);
        cx.sink.emit(&event.with("within_s", within.as_secs()));
        Ok(())
    }
}

/// The process that has this pid now.
fn instance(pid: u32) -> Option<ProcKey> {
    ProcKey::read(pid).ok()
}

/// A random number from 0 to 1.
fn chance() -> f64 {
    // Without random bytes the delay is in the middle of its range.
    let random = random::bytes().map_or(u64::MAX >> 1, u64::from_ne_bytes);
    #[expect(clippy::cast_precision_loss, reason = "a chance needs no 64 bits")]
    let share = (random >> 11) as f64 / (1_u64 << 53) as f64;
    share
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
