//! The remedy for a breached budget, step by step: evidence, drain, stop, start, and the proof that
//! a newer process answers.
//!
//! A state machine without I/O and without a clock: events go in with their time, actions come out.
//! Every step has a bound, so that it always ends. Only one service at a time has a remedy in
//! progress ([`RemedyLock`]). And it never loops: if a budget is breached again at once, a restart
//! cannot help, and the service is left alone with an explanation.

mod event;
mod lock;
mod settings;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use fdguard_proc::ProcKey;
use lock::Ticket;

pub use event::{
    Again, Breach, DrainResult, RemedyAction, RemedyEvent, RemedyNotice, RestartProof,
};
pub use lock::RemedyLock;
pub use settings::{RemedySettings, RepeatPolicy};

/// Why there is no evidence for a breach that could not wait for it.
const URGENT: &str = "skipped because the budget is far exceeded";

/// The remedy of one service.
#[derive(Debug)]
pub struct Remedy {
    rules: RemedySettings,
    flight: RemedyLock,
    state: State,
    /// The running process, and since when.
    running: Option<(ProcKey, Instant)>,
    /// When the last remedy ended, and how long the service was interrupted.
    last: Option<(Instant, Duration)>,
    restarts: u32,
}

#[derive(Debug)]
enum State {
    /// There is nothing to do.
    Idle,
    /// Another service's remedy is in progress.
    Waiting(Breach),
    /// In a step, until this moment at the latest.
    In(Step, Instant, Run),
    /// No more remedies; it has been quiet since this moment.
    Resting(Instant),
    /// The service was stopped for good.
    GivenUp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Evidence,
    Draining,
    Stopping,
    Starting,
    Proving,
}

/// One remedy in progress.
#[derive(Debug)]
struct Run {
    breach: Breach,
    before: Option<ProcKey>,
    began: Instant,
    /// When the drain began.
    down: Instant,
    /// Held for its drop.
    _ticket: Ticket,
}

impl Remedy {
    /// Nothing happened yet.
    #[must_use]
    pub fn new(rules: RemedySettings, flight: RemedyLock) -> Self {
        Self {
            rules: rules.bounded(),
            flight,
            state: State::Idle,
            running: None,
            last: None,
            restarts: 0,
        }
    }

    /// Whether it controls the service: then nothing else starts or stops it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self.state, State::In(..))
    }

    /// Whether the service was stopped for good.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        matches!(self.state, State::GivenUp)
    }

    /// Whether it no longer acts.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        matches!(self.state, State::Resting(_))
    }

    /// Remedies so far.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// When [`RemedyEvent::Time`] must be sent at the latest.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        match &self.state {
            State::In(_, until, _) => Some(*until),
            _ => None,
        }
    }

    /// The breach whose evidence is being written.
    #[must_use]
    pub fn waits_for_evidence(&self) -> Option<&Breach> {
        match &self.state {
            State::In(Step::Evidence, _, run) => Some(&run.breach),
            _ => None,
        }
    }

    /// Whether to try again to begin: it waited, and no other remedy is in progress.
    #[must_use]
    pub fn can_begin(&self) -> bool {
        matches!(self.state, State::Waiting(_)) && !self.flight.is_taken()
    }

    /// Acts again after it had stopped: the user requested it, or changed the budgets.
    pub fn resume(&mut self) {
        if self.is_resting() {
            self.state = State::Idle;
            self.last = None;
        }
    }

    /// Handles an event and returns the actions to perform.
    pub fn handle(&mut self, now: Instant, event: RemedyEvent) -> Vec<RemedyAction> {
        if let RemedyEvent::Started(instance) = event {
            self.running = Some((instance, now));
        }
        let state = std::mem::replace(&mut self.state, State::Idle);
        match (state, event) {
            (State::Idle, RemedyEvent::Breached(breach)) => self.breached(now, breach),
            (State::Resting(quiet), RemedyEvent::Breached(breach)) => {
                self.breached_again(now, quiet, breach)
            }
            (State::Waiting(breach), event) => self.waited(now, breach, &event),
            (State::In(step, until, run), event) => self.step(now, step, until, run, event),
            (state, _) => {
                self.state = state;
                Vec::new()
            }
        }
    }

    fn breached(&mut self, now: Instant, breach: Breach) -> Vec<RemedyAction> {
        match self.again(now, &breach) {
            Some(again) => self.give_in(now, again),
            None => self.start_remedy(now, breach),
        }
    }

    /// After a long quiet time, a breach is a new one.
    fn breached_again(
        &mut self,
        now: Instant,
        quiet: Instant,
        breach: Breach,
    ) -> Vec<RemedyAction> {
        let calm = self.within() * settings::CALM;
        if now.saturating_duration_since(quiet) >= calm {
            return self.breached(now, breach);
        }
        self.state = State::Resting(now);
        Vec::new()
    }

    fn within(&self) -> Duration {
        self.rules.again(self.last.map(|(_, down)| down))
    }

    /// Whether this breach comes so soon that a restart cannot help.
    fn again(&self, now: Instant, breach: &Breach) -> Option<Again> {
        let within = self.within();
        let since = |moment: Instant| now.saturating_duration_since(moment);
        let after_relief = self
            .last
            .map(|(at, _)| since(at))
            .filter(|passed| *passed < within);
        let after_start = self.running.map_or(Duration::MAX, |(_, at)| since(at));
        let at_start = after_start < self.rules.at_start;
        (after_relief.is_some() || at_start).then(|| Again {
            breach: breach.clone(),
            after_relief,
            after_start,
            within: if after_relief.is_some() {
                within
            } else {
                self.rules.at_start
            },
            then: self.rules.when_again,
        })
    }

    fn give_in(&mut self, now: Instant, again: Again) -> Vec<RemedyAction> {
        let tell = RemedyAction::Tell(RemedyNotice::Again(again));
        match self.rules.when_again {
            RepeatPolicy::Keep => {
                self.state = State::Resting(now);
                vec![tell]
            }
            RepeatPolicy::Stop => {
                self.state = State::GivenUp;
                vec![tell, RemedyAction::StopTree]
            }
        }
    }

    fn start_remedy(&mut self, now: Instant, breach: Breach) -> Vec<RemedyAction> {
        let Some(ticket) = self.flight.acquire() else {
            let tell = RemedyAction::Tell(RemedyNotice::Waits(breach.clone()));
            self.state = State::Waiting(breach);
            return vec![tell];
        };
        let is_urgent = breach.is_urgent();
        let bound = if is_urgent {
            Duration::ZERO
        } else {
            self.rules.evidence_within(breach.left)
        };
        let tell = RemedyAction::Tell(RemedyNotice::Begun(breach.clone()));
        let pid = breach
            .passed
            .pid
            .or(self.running.map(|(instance, _)| instance.pid));
        let run = Run {
            breach,
            before: self.running.map(|(instance, _)| instance),
            began: now,
            down: now,
            _ticket: ticket,
        };
        if bound.is_zero() {
            let mut actions = vec![tell];
            if is_urgent && !self.rules.evidence.is_zero() {
                actions.push(RemedyAction::Tell(RemedyNotice::Evidence(Err(
                    URGENT.to_owned()
                ))));
            }
            actions.extend(self.drain(now, run));
            return actions;
        }
        self.state = State::In(Step::Evidence, now + bound, run);
        vec![tell, RemedyAction::WriteEvidence(pid, bound)]
    }

    fn waited(&mut self, now: Instant, breach: Breach, event: &RemedyEvent) -> Vec<RemedyAction> {
        let over = match event {
            // The new process has not breached anything yet.
            RemedyEvent::Ended | RemedyEvent::Started(_) => true,
            RemedyEvent::Cleared(what) => *what == breach.what,
            _ => false,
        };
        if over {
            return Vec::new();
        }
        if self.flight.is_taken() {
            self.state = State::Waiting(breach);
            return Vec::new();
        }
        self.start_remedy(now, breach)
    }

    fn step(
        &mut self,
        now: Instant,
        step: Step,
        until: Instant,
        run: Run,
        event: RemedyEvent,
    ) -> Vec<RemedyAction> {
        let late = now >= until;
        match (step, event) {
            (Step::Evidence, RemedyEvent::Evidence(outcome)) => {
                self.evidence(now, run, outcome, false)
            }
            (Step::Evidence, RemedyEvent::Ended) => {
                let mut actions = vec![RemedyAction::StopEvidence];
                actions.extend(self.start(now, run));
                actions
            }
            (Step::Evidence, RemedyEvent::Urgent) => {
                self.evidence(now, run, Err(URGENT.to_owned()), true)
            }
            (Step::Evidence, _) if late => {
                let why = "not written in time".to_owned();
                self.evidence(now, run, Err(why), true)
            }
            (Step::Draining, RemedyEvent::Drained(how)) => self.drained(now, run, how),
            (Step::Draining, RemedyEvent::Ended) => self.drained(now, run, DrainResult::Ended),
            (Step::Draining, _) if late => self.drained(now, run, DrainResult::TimeUp),
            (Step::Stopping, RemedyEvent::Ended) => self.start(now, run),
            (Step::Stopping, _) if late => {
                self.unproven(now, run, "the old processes did not end".to_owned())
            }
            (Step::Starting, RemedyEvent::Started(_)) => {
                self.state = State::In(Step::Proving, now + self.rules.prove, run);
                Vec::new()
            }
            (Step::Starting, RemedyEvent::StartFailed(why)) => self.unproven(now, run, why),
            (Step::Starting, _) if late => {
                self.unproven(now, run, "the new process did not start in time".to_owned())
            }
            (Step::Proving, RemedyEvent::Answered(instance)) if is_newer(instance, run.before) => {
                self.proven(now, run, instance)
            }
            (Step::Proving, RemedyEvent::Ended) => self.unproven(
                now,
                run,
                "the new process ended before it was ready".to_owned(),
            ),
            (Step::Proving, _) if late => {
                let why = format!(
                    "no new process was ready within {} s",
                    self.rules.prove.as_secs()
                );
                self.unproven(now, run, why)
            }
            (step, _) => {
                self.state = State::In(step, until, run);
                Vec::new()
            }
        }
    }

    fn evidence(
        &mut self,
        now: Instant,
        run: Run,
        outcome: Result<String, String>,
        late: bool,
    ) -> Vec<RemedyAction> {
        let mut actions = Vec::new();
        if late {
            actions.push(RemedyAction::StopEvidence);
        }
        actions.push(RemedyAction::Tell(RemedyNotice::Evidence(outcome)));
        actions.extend(self.drain(now, run));
        actions
    }

    fn drain(&mut self, now: Instant, run: Run) -> Vec<RemedyAction> {
        let run = Run { down: now, ..run };
        if self.rules.drain.is_zero() {
            return self.stop(now, run);
        }
        self.state = State::In(Step::Draining, now + self.rules.drain, run);
        vec![RemedyAction::BeginDrain(self.rules.drain)]
    }

    fn drained(&mut self, now: Instant, run: Run, how: DrainResult) -> Vec<RemedyAction> {
        let ended = how == DrainResult::Ended;
        let took = now.saturating_duration_since(run.down);
        let mut actions = vec![
            RemedyAction::StopDrain,
            RemedyAction::Tell(RemedyNotice::Drained(how, took)),
        ];
        actions.extend(if ended {
            self.start(now, run)
        } else {
            self.stop(now, run)
        });
        actions
    }

    fn stop(&mut self, now: Instant, run: Run) -> Vec<RemedyAction> {
        self.state = State::In(Step::Stopping, now + self.rules.stop, run);
        vec![RemedyAction::StopTree]
    }

    fn start(&mut self, now: Instant, run: Run) -> Vec<RemedyAction> {
        self.restarts += 1;
        self.state = State::In(Step::Starting, now + self.rules.start, run);
        vec![RemedyAction::StartTree]
    }

    fn proven(&mut self, now: Instant, run: Run, instance: ProcKey) -> Vec<RemedyAction> {
        let down = now.saturating_duration_since(run.down);
        self.last = Some((now, down));
        vec![RemedyAction::Tell(RemedyNotice::Proven(RestartProof {
            before: run.before,
            now: instance,
            took: now.saturating_duration_since(run.began),
            down,
            restarts: self.restarts,
            breach: run.breach,
        }))]
    }

    fn unproven(&mut self, now: Instant, run: Run, why: String) -> Vec<RemedyAction> {
        self.last = Some((now, now.saturating_duration_since(run.down)));
        vec![RemedyAction::Tell(RemedyNotice::Unproven(run.breach, why))]
    }
}

fn is_newer(instance: ProcKey, before: Option<ProcKey>) -> bool {
    before.is_none_or(|before| instance.is_newer_than(before))
}
