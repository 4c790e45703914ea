//! The remedy for a breached budget: evidence, drain, stop, start, and the proof that a newer
//! process answers.
//!
//! Every stage has a bound, so that it always ends. Only one service at a time has a remedy in
//! progress ([`RemedyLock`]). And it never loops: if a budget is breached again at once, a restart
//! cannot help, and the service is left alone with an explanation.

use std::time::{Duration, Instant};

use fdguard_core::units::exact_seconds;
use fdguard_proc::ProcKey;

use super::input::{Action, Again, Breach, DrainResult, Notice, RemedyNotice, RestartProof};
use super::lock::{RemedyLock, Ticket};
use super::settings::{CALM, RepeatPolicy};
use super::{Ending, Lifecycle, Phase, RestartWhen};
use crate::budget::Measure;
use crate::report;

/// Why there is no evidence for a breach that could not wait for it.
pub(super) const URGENT: &str = "skipped because the budget is far exceeded";

/// The remedies of one service.
#[derive(Debug)]
pub(super) struct Remedy {
    lock: RemedyLock,
    progress: Progress,
    /// When the last remedy ended, and how long the service was interrupted.
    last: Option<(Instant, Duration)>,
    /// Remedies so far.
    count: u32,
}

#[derive(Debug)]
enum Progress {
    /// There is nothing to do.
    Idle,
    /// Another service's remedy is in progress.
    Waiting(Breach),
    Active(ActiveRemedy),
    /// No more remedies; it has been quiet since this moment.
    Resting(Instant),
}

/// A remedy in progress.
#[derive(Debug)]
struct ActiveRemedy {
    breach: Breach,
    before: Option<ProcKey>,
    began: Instant,
    /// When the drain began.
    down: Instant,
    stage: Stage,
    /// When this stage ends at the latest.
    until: Instant,
    /// Held for its drop.
    _ticket: Ticket,
}

/// Evidence and draining belong to a running service. Proving outlasts a run that is being ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Evidence,
    Draining,
    Stopping,
    Starting,
    Proving,
}

impl Remedy {
    pub(super) fn new(lock: RemedyLock) -> Self {
        Self {
            lock,
            progress: Progress::Idle,
            last: None,
            count: 0,
        }
    }

    /// The service begins again: earlier breaches do not count.
    pub(super) fn forget(&mut self) {
        (self.progress, self.last) = (Progress::Idle, None);
    }

    fn active(&self) -> Option<&ActiveRemedy> {
        match &self.progress {
            Progress::Active(active) => Some(active),
            _ => None,
        }
    }

    fn stage(&self) -> Option<Stage> {
        self.active().map(|active| active.stage)
    }

    pub(super) fn deadline(&self) -> Option<Instant> {
        self.active().map(|active| active.until)
    }

    pub(super) fn is_draining(&self) -> bool {
        self.stage() == Some(Stage::Draining)
    }

    /// The reason of a restart by a remedy: `fd_budget` and similar.
    pub(super) fn reason(&self) -> Option<&'static str> {
        self.active()
            .map(|active| report::reason(&active.breach.what))
    }

    fn enter(&mut self, stage: Stage, until: Instant) {
        if let Progress::Active(active) = &mut self.progress {
            (active.stage, active.until) = (stage, until);
        }
    }

    /// Ends the remedy, and returns it with the time for which the service was interrupted.
    fn finish(&mut self, now: Instant) -> Option<(ActiveRemedy, Duration)> {
        match std::mem::replace(&mut self.progress, Progress::Idle) {
            Progress::Active(active) => {
                let down = now.saturating_duration_since(active.down);
                self.last = Some((now, down));
                Some((active, down))
            }
            other => {
                self.progress = other;
                None
            }
        }
    }
}

/// Breaches.
impl Lifecycle {
    pub(super) fn breached(&mut self, now: Instant, breach: Breach) {
        let Phase::Running { .. } = self.phase else {
            return;
        };
        match self.remedy.progress {
            Progress::Waiting(_) | Progress::Active(_) => return,
            // After a long quiet time, a breach is a new one.
            Progress::Resting(quiet)
                if now.saturating_duration_since(quiet) < self.repeat_within() * CALM =>
            {
                self.remedy.progress = Progress::Resting(now);
                return;
            }
            Progress::Resting(_) | Progress::Idle => {}
        }
        match self.find_again(now, &breach) {
            Some(again) => self.give_in(now, again),
            None => self.begin_remedy(now, breach),
        }
    }

    /// The measure fell back by itself.
    pub(super) fn cleared(&mut self, what: &Measure) {
        self.is_broken = false;
        if matches!(&self.remedy.progress, Progress::Waiting(breach) if breach.what == *what) {
            self.stop_waiting();
        }
    }

    /// Another process runs: it has not breached anything yet.
    pub(super) fn stop_waiting(&mut self) {
        if let Progress::Waiting(_) = self.remedy.progress {
            self.remedy.progress = Progress::Idle;
        }
    }

    fn repeat_within(&self) -> Duration {
        let down = self.remedy.last.map(|(_, down)| down);
        self.settings.remedy.again(down)
    }

    /// Whether this breach comes so soon that a restart cannot help.
    fn find_again(&self, now: Instant, breach: &Breach) -> Option<Again> {
        let (within, at_start) = (self.repeat_within(), self.settings.remedy.at_start);
        let since = |moment: Instant| now.saturating_duration_since(moment);
        let last = self.remedy.last.map(|(at, _)| since(at));
        let after_remedy = last.filter(|passed| *passed < within);
        let after_start = self.running.map_or(Duration::MAX, |(_, at)| since(at));
        (after_remedy.is_some() || after_start < at_start).then(|| Again {
            breach: breach.clone(),
            after_remedy,
            after_start,
            within: after_remedy.map_or(at_start, |_| within),
            then: self.settings.remedy.when_again,
        })
    }

    fn give_in(&mut self, now: Instant, again: Again) {
        let then = again.then;
        self.is_broken = true;
        self.remedy.progress = Progress::Resting(now);
        self.log(Notice::Remedy(RemedyNotice::Again(again)));
        if then == RepeatPolicy::Stop {
            self.end(Ending::Down(1), self.settings.grace);
        }
    }

    pub(super) fn can_begin_remedy(&self) -> bool {
        matches!(self.phase, Phase::Running { .. })
            && matches!(self.remedy.progress, Progress::Waiting(_))
            && !self.remedy.lock.is_taken()
    }

    fn begin_remedy(&mut self, now: Instant, breach: Breach) {
        let Some(ticket) = self.remedy.lock.acquire() else {
            self.log(Notice::Remedy(RemedyNotice::Waits(breach.clone())));
            self.remedy.progress = Progress::Waiting(breach);
            return;
        };
        let is_urgent = breach.is_urgent();
        let bound = match is_urgent {
            true => Duration::ZERO,
            false => self.settings.remedy.evidence_within(breach.left),
        };
        let before = self.running.and_then(|(instance, _)| instance);
        let pid = breach.passed.pid.or(before.map(|instance| instance.pid));
        self.log(Notice::Remedy(RemedyNotice::Begun(breach.clone())));
        self.remedy.progress = Progress::Active(ActiveRemedy {
            breach,
            before,
            began: now,
            down: now,
            stage: Stage::Evidence,
            until: now + bound,
            _ticket: ticket,
        });
        if !bound.is_zero() {
            return self.act(Action::WriteEvidence(pid, bound));
        }
        if is_urgent && !self.settings.remedy.evidence.is_zero() {
            self.log_evidence(Err(URGENT.to_owned()));
        }
        self.drain(now);
    }
}

/// The stages.
impl Lifecycle {
    /// The breach whose evidence is being written.
    pub(crate) fn waits_for_evidence(&self) -> Option<&Breach> {
        let active = self.remedy.active()?;
        (active.stage == Stage::Evidence).then_some(&active.breach)
    }

    fn log_evidence(&mut self, outcome: Result<String, String>) {
        self.log(Notice::Remedy(RemedyNotice::Evidence(outcome)));
    }

    pub(super) fn evidence_done(&mut self, now: Instant, outcome: Result<String, String>) {
        if self.remedy.stage() == Some(Stage::Evidence) {
            self.log_evidence(outcome);
            self.drain(now);
        }
    }

    pub(super) fn give_up_evidence(&mut self, now: Instant, why: &str) {
        if self.remedy.stage() == Some(Stage::Evidence) {
            self.act(Action::StopEvidence);
            self.evidence_done(now, Err(why.to_owned()));
        }
    }

    fn drain(&mut self, now: Instant) {
        if let Progress::Active(active) = &mut self.remedy.progress {
            active.down = now;
        }
        let within = self.settings.remedy.drain;
        if within.is_zero() {
            return self.stop_for_remedy(now);
        }
        self.remedy.enter(Stage::Draining, now + within);
        self.act(Action::BeginDrain(within));
    }

    pub(super) fn drained(&mut self, now: Instant, how: DrainResult) {
        if self.remedy.is_draining() {
            self.stop_drain(now, how);
            self.stop_for_remedy(now);
        }
    }

    fn stop_drain(&mut self, now: Instant, how: DrainResult) {
        let began = self.remedy.active().map_or(now, |active| active.down);
        let took = now.saturating_duration_since(began);
        self.act(Action::StopDrain);
        self.log(Notice::Remedy(RemedyNotice::Drained(how, took)));
    }

    fn stop_for_remedy(&mut self, now: Instant) {
        let until = now + self.settings.remedy.stop;
        self.remedy.enter(Stage::Stopping, until);
        let ending = match (self.settings.policy.restart, self.remedy.reason()) {
            // With restarts disabled, ask the parent for a restart.
            (RestartWhen::Never, _) if self.settings.is_supervised => Ending::Down(75),
            (RestartWhen::Never, _) | (_, None) => Ending::Down(1),
            (_, Some(reason)) => Ending::Renew(reason),
        };
        self.end(ending, self.settings.grace);
    }

    /// The run is ending for another reason. The restart that follows still has to be proven.
    pub(super) fn interrupt_remedy(&mut self, now: Instant) {
        match self.remedy.stage() {
            Some(Stage::Evidence) => self.act(Action::StopEvidence),
            Some(Stage::Draining) => self.stop_drain(now, DrainResult::Ended),
            _ => return,
        }
        let until = now + self.settings.remedy.stop;
        self.remedy.enter(Stage::Stopping, until);
    }

    /// Nothing of the run is left.
    pub(super) fn restart_for_remedy(&mut self, now: Instant) {
        match self.remedy.stage() {
            None => self.stop_waiting(),
            Some(Stage::Proving) => {
                self.remedy_failed(now, "the new process ended before it was ready");
            }
            Some(_) => {
                self.remedy.count += 1;
                let until = now + self.settings.remedy.start;
                self.remedy.enter(Stage::Starting, until);
            }
        }
    }

    /// A process was started.
    pub(super) fn prove_remedy(&mut self, now: Instant) {
        let until = now + self.settings.remedy.prove;
        self.remedy.enter(Stage::Proving, until);
    }

    /// This process answered the readiness check.
    pub(super) fn answered(&mut self, now: Instant, instance: Option<ProcKey>) {
        if !matches!(self.remedy.progress, Progress::Resting(_)) {
            self.is_broken = false;
        }
        let before = self.remedy.active().and_then(|active| active.before);
        let is_newer = |one: &ProcKey| before.is_none_or(|before| one.is_newer_than(before));
        if self.remedy.stage() == Some(Stage::Proving)
            && let Some(instance) = instance.filter(is_newer)
            && let Some((active, down)) = self.remedy.finish(now)
        {
            let proof = RestartProof {
                before: active.before,
                now: instance,
                took: now.saturating_duration_since(active.began),
                down,
                restarts: self.remedy.count,
                breach: active.breach,
            };
            self.log(Notice::Remedy(RemedyNotice::Proven(proof)));
        }
    }

    /// No newer process answers. From here on the restart policy controls the service.
    pub(super) fn remedy_failed(&mut self, now: Instant, why: &str) {
        if let Some((active, _)) = self.remedy.finish(now) {
            self.is_broken = true;
            let notice = RemedyNotice::Unproven(active.breach, why.to_owned());
            self.log(Notice::Remedy(notice));
        }
    }

    /// Drops a remedy without a result: it no longer matters.
    pub(super) fn cancel_remedy(&mut self) {
        match self.remedy.stage() {
            Some(Stage::Evidence) => self.act(Action::StopEvidence),
            Some(Stage::Draining) => self.act(Action::StopDrain),
            _ => {}
        }
        if !matches!(self.remedy.progress, Progress::Resting(_)) {
            self.remedy.progress = Progress::Idle;
        }
    }

    pub(super) fn remedy_time(&mut self, now: Instant) {
        if self.can_begin_remedy()
            && let Progress::Waiting(breach) = &self.remedy.progress
        {
            return self.begin_remedy(now, breach.clone());
        }
        let late = self.remedy.active().filter(|active| active.until <= now);
        match late.map(|active| active.stage) {
            None => {}
            Some(Stage::Evidence) => self.give_up_evidence(now, "not written in time"),
            Some(Stage::Draining) => self.drained(now, DrainResult::TimeUp),
            Some(Stage::Stopping) => self.remedy_failed(now, "the old processes did not end"),
            Some(Stage::Starting) => {
                self.remedy_failed(now, "the new process did not start in time");
            }
            Some(Stage::Proving) => {
                let within = exact_seconds(self.settings.remedy.prove);
                self.remedy_failed(now, &format!("no new process was ready within {within}"));
            }
        }
    }
}
