//! The life of a service: one state machine that alone decides when its program is started, stopped
//! and restarted.
//!
//! It has no I/O and no clock. The parts of a service report what happened as an `Input`, with
//! its time; `Lifecycle::step` returns the `Action`s to perform. An action that has a result
//! returns it as the next input, so nothing calls back into the machine.
//!
//! `policy` computes what follows an exit: another start, now or later, or none. `remedy` is
//! the corrective restart after a breached budget.

mod input;
mod lock;
mod policy;
mod remedy;
mod settings;
#[cfg(test)]
mod stories;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use fdguard_proc::ProcKey;
use fdguard_process::tree::Exit;

use crate::config::Background;
use policy::{EndCause, NextStep, RestartHistory};
use remedy::{Remedy, URGENT};

pub(crate) use input::{Action, Input, LeftProcesses, Notice, Request, RunEnd, Unhealthy};
pub use input::{Again, Breach, DrainResult, RemedyNotice, RestartProof};
pub use lock::RemedyLock;
pub(crate) use policy::Halt;
pub use policy::{CrashLoop, RestartPolicy, RestartWhen, Spacing};
pub(crate) use settings::LifecycleSettings;
pub use settings::{RemedySettings, RepeatPolicy};

/// A process left behind by a program does no useful work, and delays its successor.
const LEFT_GRACE: Duration = Duration::from_millis(500);

/// The state of a service, for events, metrics and the services that depend on it.
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

/// The machine of one service.
#[derive(Debug)]
pub(crate) struct Lifecycle {
    settings: LifecycleSettings,
    phase: Phase,
    history: RestartHistory,
    remedy: Remedy,
    /// The last started process, if it could be identified, and since when it runs.
    running: Option<(Option<ProcKey>, Instant)>,
    /// A restart was not proven, or a budget is exceeded and nothing helps.
    is_broken: bool,
    restarts: u64,
    reasons: BTreeMap<String, u64>,
    outcome: Option<u8>,
    /// The result of the current step.
    actions: Vec<Action>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// Others must be ready first.
    Waiting,
    /// A start was requested; its result is the next input.
    Launching,
    Running {
        is_ready: bool,
    },
    /// The run is being ended.
    Stopping(Ending),
    /// The next start is at this moment.
    BackingOff(Instant),
    Stopped,
    Failed,
}

/// Why a run is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ending {
    /// The program exited by itself; only what it left is being stopped.
    Itself,
    /// It does not work.
    Sick(&'static str),
    /// It will be restarted.
    Renew(&'static str),
    /// It stays down, with this as fdguard's exit status.
    Down(u8),
    /// A stop was requested.
    Stop,
}

impl Lifecycle {
    /// A service that waits for its start. Services that share a lock have one remedy at a time.
    pub(crate) fn new(settings: LifecycleSettings, lock: RemedyLock) -> Self {
        Self {
            settings,
            phase: Phase::Waiting,
            history: RestartHistory::default(),
            remedy: Remedy::new(lock),
            running: None,
            is_broken: false,
            restarts: 0,
            reasons: BTreeMap::new(),
            outcome: None,
            actions: Vec::new(),
        }
    }

    pub(crate) fn settings(&self) -> &LifecycleSettings {
        &self.settings
    }

    pub(crate) fn state(&self) -> State {
        match self.phase {
            Phase::Waiting => State::Waiting,
            Phase::Running { .. } if self.remedy.is_draining() => State::Draining,
            Phase::Running { is_ready: true } => State::Ready,
            Phase::Launching | Phase::Running { is_ready: false } => State::Starting,
            Phase::Stopping(_) => State::Stopping,
            Phase::BackingOff(_) => State::BackingOff,
            Phase::Stopped => State::Stopped,
            Phase::Failed => State::Failed,
        }
    }

    /// Whether the parent may get a watchdog message.
    pub(crate) fn holds(&self) -> bool {
        self.phase != Phase::Failed && !self.is_broken
    }

    pub(crate) fn restarts(&self) -> u64 {
        self.restarts
    }

    /// Restarts by reason.
    pub(crate) fn reasons(&self) -> &BTreeMap<String, u64> {
        &self.reasons
    }

    /// The exit status of fdguard, once the service stays down.
    pub(crate) fn outcome(&self) -> Option<u8> {
        self.outcome
    }

    /// Whether it had a short run recently: the next one may show a crash loop.
    pub(crate) fn is_troubled(&self) -> bool {
        self.history.is_troubled()
    }

    /// When [`Input::Time`] must be sent at the latest.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        let start = match self.phase {
            Phase::BackingOff(at) => Some(at),
            _ => None,
        };
        start.into_iter().chain(self.remedy.deadline()).min()
    }

    /// Whether [`Input::Time`] would do something.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.deadline().is_some_and(|at| at <= now) || self.can_begin_remedy()
    }

    /// Handles an input and returns the actions to perform, in this order.
    #[must_use]
    pub(crate) fn step(&mut self, now: Instant, input: Input) -> Vec<Action> {
        match input {
            Input::Asked(request) => self.asked(request),
            Input::Started(instance) => self.started(now, instance),
            Input::StartFailed { code, chance } => self.start_failed(now, code, chance),
            Input::Ready(instance) => self.ready(now, instance),
            Input::Unhealthy(how) => self.unhealthy(now, how),
            Input::Left(left) => self.left(now, left),
            Input::Adopted(instance) => self.adopted(now, instance),
            Input::Exited { end, chance } => self.exited(now, end, chance),
            Input::Breached(breach) => self.breached(now, breach),
            Input::Urgent => self.give_up_evidence(now, URGENT),
            Input::Cleared(what) => self.cleared(&what),
            Input::EvidenceDone(outcome) => self.evidence_done(now, outcome),
            Input::Drained(how) => self.drained(now, how),
            Input::Time => self.time(now),
        }
        std::mem::take(&mut self.actions)
    }

    fn act(&mut self, action: Action) {
        self.actions.push(action);
    }

    fn log(&mut self, notice: Notice) {
        self.act(Action::Log(notice));
    }

    fn asked(&mut self, request: Request) {
        match request {
            Request::Start if self.phase == Phase::Waiting => self.launch(),
            Request::FailWaiting(on) if self.phase == Phase::Waiting => {
                self.log(Notice::DependencyFailed(on));
                self.stay_down(Phase::Failed, Some(1));
            }
            Request::Start | Request::FailWaiting(_) => {}
            Request::Stop => self.stop(false),
            Request::Kill => self.stop(true),
            Request::Reload(settings) => self.reload(*settings),
        }
    }

    /// Stops for good. A request to stop overrides every other reason.
    fn stop(&mut self, at_once: bool) {
        self.cancel_remedy();
        self.phase = match self.phase {
            Phase::Waiting | Phase::BackingOff(_) => Phase::Stopped,
            phase @ (Phase::Running { .. } | Phase::Stopping(_)) => {
                if at_once {
                    self.act(Action::Kill);
                } else if matches!(phase, Phase::Running { .. }) {
                    self.act(Action::End(self.settings.grace));
                }
                Phase::Stopping(Ending::Stop)
            }
            phase => phase,
        };
    }

    /// Begins again with other settings, after the end of the current run.
    fn reload(&mut self, settings: LifecycleSettings) {
        self.settings = settings;
        self.cancel_remedy();
        self.remedy.forget();
        self.history.forget();
        self.running = None;
        self.is_broken = false;
        self.outcome = None;
        let renewed = Ending::Renew("reload");
        match self.phase {
            Phase::Running { .. } => self.end(renewed, self.settings.grace),
            Phase::Stopping(Ending::Stop) | Phase::Launching => {}
            Phase::Stopping(_) => self.phase = Phase::Stopping(renewed),
            _ => self.phase = Phase::Waiting,
        }
    }

    fn launch(&mut self) {
        self.phase = Phase::Launching;
        self.act(Action::Start);
    }

    fn started(&mut self, now: Instant, instance: Option<ProcKey>) {
        if self.phase != Phase::Launching {
            return;
        }
        self.history.started(now);
        self.running = Some((instance, now));
        self.phase = Phase::Running { is_ready: false };
        self.prove_remedy(now);
    }

    fn start_failed(&mut self, now: Instant, code: u8, chance: f64) {
        if self.phase == Phase::Launching {
            self.history.started(now);
            let exit = Exit::Code(code);
            self.follow(now, exit, EndCause::Itself, "start_failed", chance);
        }
    }

    fn ready(&mut self, now: Instant, instance: Option<ProcKey>) {
        if self.state() != State::Starting || self.phase == Phase::Launching {
            return;
        }
        self.phase = Phase::Running { is_ready: true };
        self.act(Action::Serve);
        self.answered(now, instance);
    }

    fn unhealthy(&mut self, now: Instant, how: Unhealthy) {
        let Phase::Running { .. } = self.phase else {
            return;
        };
        if matches!(how, Unhealthy::NotReady) && self.state() != State::Starting {
            return;
        }
        let reason = how.reason();
        let is_hanging = matches!(how, Unhealthy::Watchdog(_));
        self.log(Notice::Unhealthy(how));
        if is_hanging {
            self.act(Action::Abort);
        }
        self.interrupt_remedy(now);
        self.end(Ending::Sick(reason), self.settings.grace);
    }

    /// The program exited and left processes. Restarting a program that starts its server in the
    /// background would loop.
    fn left(&mut self, now: Instant, left: LeftProcesses) {
        let Phase::Running { .. } = self.phase else {
            return;
        };
        let grace = self.settings.grace;
        let (ending, grace) = if left.listening.is_empty() {
            (Ending::Itself, grace.min(LEFT_GRACE))
        } else {
            self.log(Notice::Background(left));
            match self.settings.background {
                Background::Adopt => return self.act(Action::Adopt),
                Background::End => (Ending::Itself, grace),
                Background::Fail => (Ending::Down(1), grace),
            }
        };
        self.log(Notice::Orphans);
        self.interrupt_remedy(now);
        self.end(ending, grace);
    }

    fn adopted(&mut self, now: Instant, instance: Option<ProcKey>) {
        if let Phase::Running { .. } = self.phase {
            self.running = Some((instance, now));
            self.stop_waiting();
        }
    }

    /// Starts ending the run.
    fn end(&mut self, ending: Ending, grace: Duration) {
        self.phase = Phase::Stopping(ending);
        self.act(Action::End(grace));
    }

    /// Nothing of the run is left.
    fn exited(&mut self, now: Instant, end: RunEnd, chance: f64) {
        let ending = match self.phase {
            Phase::Running { .. } => Ending::Itself,
            Phase::Stopping(ending) => ending,
            _ => return,
        };
        self.interrupt_remedy(now);
        self.restart_for_remedy(now);
        let exit = end.exit.unwrap_or(Exit::Code(1));
        self.log(Notice::Exited(end));
        match ending {
            Ending::Stop => {
                let own = self.settings.once.then(|| status(exit));
                self.stay_down(Phase::Stopped, Some(own.unwrap_or(0)));
            }
            Ending::Down(code) => self.stay_down(Phase::Failed, Some(code)),
            Ending::Sick(reason) => self.follow(now, exit, EndCause::Sick, reason, chance),
            Ending::Renew(reason) => self.follow(now, exit, EndCause::Asked, reason, chance),
            Ending::Itself => self.ended_by_itself(now, exit, chance),
        }
    }

    fn ended_by_itself(&mut self, now: Instant, exit: Exit, chance: f64) {
        if self.settings.policy.restart == RestartWhen::Never {
            self.cancel_remedy();
        }
        let (cause, reason) = match (self.remedy.reason(), exit) {
            (Some(budget), _) => (EndCause::Asked, budget),
            (None, Exit::Code(_)) => (EndCause::Itself, "exit"),
            (None, Exit::Signal(_)) => (EndCause::Itself, "signal"),
        };
        self.follow(now, exit, cause, reason, chance);
    }

    /// Another start, now or later, or none.
    fn follow(
        &mut self,
        now: Instant,
        exit: Exit,
        cause: EndCause,
        reason: &'static str,
        chance: f64,
    ) {
        let policy = &self.settings.policy;
        match self.history.ended(policy, now, exit, cause, chance) {
            NextStep::Start { at } => {
                self.restarts += 1;
                *self.reasons.entry(reason.to_owned()).or_default() += 1;
                self.log(Notice::Restart { reason, exit });
                let delay = at.saturating_duration_since(now);
                if delay.is_zero() {
                    return self.launch();
                }
                self.log(Notice::BackOff(delay));
                self.phase = Phase::BackingOff(at);
            }
            NextStep::Done => {
                self.remedy_failed(now, "the service stays down");
                self.stay_down(Phase::Stopped, Some(0));
            }
            NextStep::Halt(halt) => {
                self.log(Notice::Halted { halt, exit });
                self.remedy_failed(now, "the service stays down");
                // A service that exited with 0 repeatedly has no failing status of its own.
                self.stay_down(Phase::Failed, Some(status(exit).max(1)));
            }
        }
    }

    fn stay_down(&mut self, phase: Phase, outcome: Option<u8>) {
        self.cancel_remedy();
        self.phase = phase;
        self.outcome = outcome;
    }

    fn time(&mut self, now: Instant) {
        self.remedy_time(now);
        if let Phase::BackingOff(at) = self.phase
            && at <= now
        {
            self.launch();
        }
    }
}

/// The status that a shell would report.
fn status(exit: Exit) -> u8 {
    match exit {
        Exit::Code(code) => code,
        Exit::Signal(signal) => 128_u8.saturating_add(u8::try_from(signal).unwrap_or(127)),
    }
}
