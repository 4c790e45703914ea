//! What is done about a breached budget, step by step: evidence, drain, stop, start, and the proof that a newer process answers.
//!
//! A state machine without I/O and without a clock: events go in with their moment, actions come out. Every step has a bound, so that
//! it always comes to an end. One service at a time is relieved ([`Flight`]). And it never loops: a budget that is breached again at
//! once is one that a restart cannot help, and is left alone with an explanation.

mod flight;
mod news;
mod rules;
#[cfg(test)]
mod tests;

use std::time::{Duration, Instant};

use flight::Ticket;

pub use flight::Flight;
pub use news::{Action, Again, Breach, Drained, Event, Instance, Proof, Told};
pub use rules::{Rules, WhenAgain};

/// Why there is no evidence of a breach that could not wait for it.
const URGENT: &str = "skipped because the budget is far exceeded";

/// The relief of one service.
#[derive(Debug)]
pub struct Relief {
    rules: Rules,
    flight: Flight,
    state: State,
    /// The process that runs, and since when.
    running: Option<(Instance, Instant)>,
    /// When the last relief ended, and how long the service was not itself.
    last: Option<(Instant, Duration)>,
    restarts: u32,
}

#[derive(Debug)]
enum State {
    /// Nothing is to be done.
    Idle,
    /// Another service is being relieved.
    Waiting(Breach),
    /// In a step, until this moment at the latest.
    In(Step, Instant, Run),
    /// No relief any more; since this moment it was quiet.
    Resting(Instant),
    /// The service was ended for good.
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

/// One relief on its way.
#[derive(Debug)]
struct Run {
    breach: Breach,
    before: Option<Instance>,
    began: Instant,
    /// When the drain began.
    down: Instant,
    /// Held for its drop.
    _ticket: Ticket,
}

impl Relief {
    /// Nothing happened yet.
    #[must_use]
    pub fn new(rules: Rules, flight: Flight) -> Self {
        Self {
            rules: rules.bounded(),
            flight,
            state: State::Idle,
            running: None,
            last: None,
            restarts: 0,
        }
    }

    /// Whether it controls the service: then nothing else starts or ends it.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        matches!(self.state, State::In(..))
    }

    /// Whether the service was ended for good.
    #[must_use]
    pub fn has_given_up(&self) -> bool {
        matches!(self.state, State::GivenUp)
    }

    /// Whether it stopped to act.
    #[must_use]
    pub fn is_resting(&self) -> bool {
        matches!(self.state, State::Resting(_))
    }

    /// Reliefs so far.
    #[must_use]
    pub fn restarts(&self) -> u32 {
        self.restarts
    }

    /// When [`Event::Time`] is due at the latest.
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

    /// Whether another try to begin is worth it: it waited, and nobody else is being relieved any more.
    #[must_use]
    pub fn can_begin(&self) -> bool {
        matches!(self.state, State::Waiting(_)) && !self.flight.is_taken()
    }

    /// Acts again after it had stopped: the user asked for it, or changed the budgets.
    pub fn resume(&mut self) {
        if self.is_resting() {
            self.state = State::Idle;
            self.last = None;
        }
    }

    /// Handles an event and returns the actions to perform.
    pub fn handle(&mut self, now: Instant, event: Event) -> Vec<Action> {
        if let Event::Started(instance) = event {
            self.running = Some((instance, now));
        }
        let state = std::mem::replace(&mut self.state, State::Idle);
        match (state, event) {
            (State::Idle, Event::Breached(breach)) => self.breached(now, breach),
            (State::Resting(quiet), Event::Breached(breach)) => {
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

    fn breached(&mut self, now: Instant, breach: Breach) -> Vec<Action> {
        match self.again(now, &breach) {
            Some(again) => self.give_in(now, again),
            None => self.begin(now, breach),
        }
    }

    /// After a long quiet time it is another story.
    fn breached_again(&mut self, now: Instant, quiet: Instant, breach: Breach) -> Vec<Action> {
        let calm = self.within() * rules::CALM;
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

    fn give_in(&mut self, now: Instant, again: Again) -> Vec<Action> {
        let tell = Action::Tell(Told::Again(again));
        match self.rules.when_again {
            WhenAgain::Keep => {
                self.state = State::Resting(now);
                vec![tell]
            }
            WhenAgain::Stop => {
                self.state = State::GivenUp;
                vec![tell, Action::StopTree]
            }
        }
    }

    fn begin(&mut self, now: Instant, breach: Breach) -> Vec<Action> {
        let Some(ticket) = self.flight.take() else {
            let tell = Action::Tell(Told::Waits(breach.clone()));
            self.state = State::Waiting(breach);
            return vec![tell];
        };
        let is_urgent = breach.is_urgent();
        let bound = if is_urgent {
            Duration::ZERO
        } else {
            self.rules.evidence_within(breach.left)
        };
        let tell = Action::Tell(Told::Begun(breach.clone()));
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
                actions.push(Action::Tell(Told::Evidence(Err(URGENT.to_owned()))));
            }
            actions.extend(self.drain(now, run));
            return actions;
        }
        self.state = State::In(Step::Evidence, now + bound, run);
        vec![tell, Action::WriteEvidence(pid, bound)]
    }

    fn waited(&mut self, now: Instant, breach: Breach, event: &Event) -> Vec<Action> {
        let over = match event {
            // Another process has not breached anything yet.
            Event::Ended | Event::Started(_) => true,
            Event::Cleared(what) => *what == breach.what,
            _ => false,
        };
        if over {
            return Vec::new();
        }
        if self.flight.is_taken() {
            self.state = State::Waiting(breach);
            return Vec::new();
        }
        self.begin(now, breach)
    }

    fn step(
        &mut self,
        now: Instant,
        step: Step,
        until: Instant,
        run: Run,
        event: Event,
    ) -> Vec<Action> {
        let late = now >= until;
        match (step, event) {
            (Step::Evidence, Event::Evidence(outcome)) => self.evidence(now, run, outcome, false),
            (Step::Evidence, Event::Ended) => {
                let mut actions = vec![Action::StopEvidence];
                actions.extend(self.start(now, run));
                actions
            }
            (Step::Evidence, Event::Urgent) => {
                self.evidence(now, run, Err(URGENT.to_owned()), true)
            }
            (Step::Evidence, _) if late => {
                let why = "not written in time".to_owned();
                self.evidence(now, run, Err(why), true)
            }
            (Step::Draining, Event::Drained(how)) => self.drained(now, run, how),
            (Step::Draining, Event::Ended) => self.drained(now, run, Drained::Ended),
            (Step::Draining, _) if late => self.drained(now, run, Drained::TimeUp),
            (Step::Stopping, Event::Ended) => self.start(now, run),
            (Step::Stopping, _) if late => {
                self.unproven(now, run, "the old processes did not end".to_owned())
            }
            (Step::Starting, Event::Started(_)) => {
                self.state = State::In(Step::Proving, now + self.rules.prove, run);
                Vec::new()
            }
            (Step::Starting, Event::StartFailed(why)) => self.unproven(now, run, why),
            (Step::Starting, _) if late => {
                self.unproven(now, run, "the new process did not start in time".to_owned())
            }
            (Step::Proving, Event::Answered(instance)) if is_newer(instance, run.before) => {
                self.proven(now, run, instance)
            }
            (Step::Proving, Event::Ended) => self.unproven(
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
    ) -> Vec<Action> {
        let mut actions = Vec::new();
        if late {
            actions.push(Action::StopEvidence);
        }
        actions.push(Action::Tell(Told::Evidence(outcome)));
        actions.extend(self.drain(now, run));
        actions
    }

    fn drain(&mut self, now: Instant, run: Run) -> Vec<Action> {
        let run = Run { down: now, ..run };
        if self.rules.drain.is_zero() {
            return self.stop(now, run);
        }
        self.state = State::In(Step::Draining, now + self.rules.drain, run);
        vec![Action::BeginDrain(self.rules.drain)]
    }

    fn drained(&mut self, now: Instant, run: Run, how: Drained) -> Vec<Action> {
        let ended = how == Drained::Ended;
        let took = now.saturating_duration_since(run.down);
        let mut actions = vec![Action::StopDrain, Action::Tell(Told::Drained(how, took))];
        actions.extend(if ended {
            self.start(now, run)
        } else {
            self.stop(now, run)
        });
        actions
    }

    fn stop(&mut self, now: Instant, run: Run) -> Vec<Action> {
        self.state = State::In(Step::Stopping, now + self.rules.stop, run);
        vec![Action::StopTree]
    }

    fn start(&mut self, now: Instant, run: Run) -> Vec<Action> {
        self.restarts += 1;
        self.state = State::In(Step::Starting, now + self.rules.start, run);
        vec![Action::StartTree]
    }

    fn proven(&mut self, now: Instant, run: Run, instance: Instance) -> Vec<Action> {
        let down = now.saturating_duration_since(run.down);
        self.last = Some((now, down));
        vec![Action::Tell(Told::Proven(Proof {
            before: run.before,
            now: instance,
            took: now.saturating_duration_since(run.began),
            down,
            restarts: self.restarts,
            breach: run.breach,
        }))]
    }

    fn unproven(&mut self, now: Instant, run: Run, why: String) -> Vec<Action> {
        self.last = Some((now, now.saturating_duration_since(run.down)));
        vec![Action::Tell(Told::Unproven(run.breach, why))]
    }
}

fn is_newer(instance: Instance, before: Option<Instance>) -> bool {
    before.is_none_or(|before| instance.is_newer_than(before))
}
