//! Budgets of a service: measure, judge, and run the remedy.
//!
//! The meter measures, the judgement compares with the budgets, and the remedy chooses the next
//! step; this module performs the steps.

use std::time::{Duration, Instant};

use fdguard_core::count::as_f64;
use fdguard_core::{Pid, command_line};
use fdguard_probe::Probe;
use fdguard_proc::ProcKey;
use jiff::Timestamp;

use super::end::seconds;
use super::run::Ending;
use super::wording::{class, drained, measured, shown, suspected};
use super::{Context, Service};
use crate::budget::{Budget, BudgetHistory, BudgetVerdict, Excess, Kind, ServiceReading, judge};
use crate::config;
use crate::event::LogEvent;
use crate::meter::{Leak, Meter};
use crate::metrics::TargetMetrics;
use crate::policy::RestartWhen;
use crate::poll::{Interest, Readiness};
use crate::remedy::{self, Breach, Remedy, RemedyAction, RemedyLock};
use crate::report::{self, RemedyReport};

/// Meter, judgement and remedy of one service.
#[derive(Debug)]
pub(super) struct ServiceBudgets<'p> {
    pub(super) meter: Meter<'p>,
    budgets: Vec<Budget>,
    memory: BudgetHistory,
    relief: Remedy,
    is_on: bool,
    /// The last reading.
    pub(super) reading: Option<ServiceReading>,
    /// The breach in progress, and what leaks, for the events.
    pub(super) breach: Option<(Breach, Vec<Leak>)>,
    /// The line that opened it, if an injected tracer knows.
    pub(super) line: Option<String>,
    pub(super) breaches: u64,
    pub(super) last_breach: Option<Timestamp>,
    evidence: Option<String>,
    /// A restart was not proven, or a budget is exceeded and nothing helps.
    is_broken: bool,
}

impl<'p> ServiceBudgets<'p> {
    pub(super) fn new(
        probe: &'p Probe,
        settings: &config::ServiceConfig,
        flight: &RemedyLock,
    ) -> Self {
        let budgets = settings.budgets.clone();
        Self {
            meter: Meter::new(probe, &budgets, Instant::now()),
            budgets,
            memory: BudgetHistory::default(),
            relief: Remedy::new(settings.relief, flight.clone()),
            is_on: false,
            reading: None,
            breach: None,
            line: None,
            breaches: 0,
            last_breach: None,
            evidence: None,
            is_broken: false,
        }
    }

    /// What leaks, by target.
    pub(super) fn targets(&self) -> Vec<TargetMetrics> {
        let leaks = self.meter.leaks();
        let named = leaks.iter().filter_map(|leak| {
            let name = shown(leak.target.as_ref()?);
            Some(TargetMetrics {
                name,
                count: leak.count,
            })
        });
        named.collect()
    }

    /// Whether the parent may get a watchdog message.
    pub(super) fn holds(&self) -> bool {
        !self.is_broken
    }

    pub(super) fn wants(&self, wants: &mut Interest<'_>) {
        if self.is_on {
            self.meter.wants(wants);
        }
        if let Some(at) = self.relief.deadline() {
            wants.until(at);
        }
    }

    /// No looks while it is being stopped.
    pub(super) fn pause(&mut self) {
        self.is_on = false;
    }

    /// Adds what the following restart is about.
    pub(super) fn told_restart(&self, event: LogEvent) -> LogEvent {
        match &self.breach {
            Some((breach, leaks)) => measured(
                event,
                &breach.what,
                &breach.passed,
                class(&breach.what, leaks.first()),
            ),
            None => event,
        }
    }
}

/// Time until the limit at the rate since the start.
fn at_this_rate(passed: &Excess) -> Option<Duration> {
    let (first, since) = passed.first?;
    let per_second = (passed.value - first) / since.as_secs_f64();
    let left = (passed.wall? - passed.value).max(0.0) / per_second;
    Duration::try_from_secs_f64(left).ok()
}

impl Service<'_> {
    /// A program has started.
    pub(super) fn begin_thrift(&mut self, main: u32, cx: &mut Context<'_>) {
        self.thrift.memory.restarted();
        self.thrift.reading = None;
        self.thrift.is_on = !cx.once && !self.thrift.budgets.is_empty();
        if let Ok(instance) = ProcKey::read(main) {
            self.relieve(remedy::RemedyEvent::Started(instance), cx);
        }
    }

    /// It answers.
    pub(super) fn answered(&mut self, cx: &mut Context<'_>) {
        if !self.thrift.relief.is_resting() {
            self.thrift.is_broken = false;
        }
        let main = self.run.as_ref().map(|run| run.main);
        if let Some(instance) = main.and_then(|main| ProcKey::read(main).ok()) {
            self.relieve(remedy::RemedyEvent::Answered(instance), cx);
        }
    }

    /// Nothing of it is left. Returns whether the remedy wants another start, whatever the policy
    /// is.
    pub(super) fn end_thrift(&mut self, cx: &mut Context<'_>) -> bool {
        self.thrift.is_on = false;
        self.relieve(remedy::RemedyEvent::Ended, cx)
    }

    /// Measures, judges, acts.
    pub(super) fn watch_budgets(&mut self, cx: &mut Context<'_>, ready: &Readiness) {
        self.turn_steps(cx, ready);
        let due = self.thrift.relief.deadline().is_some_and(|at| at <= cx.now);
        if due || self.thrift.relief.can_begin() {
            self.relieve(remedy::RemedyEvent::Time, cx);
        }
        let Some(run) = self
            .run
            .as_ref()
            .filter(|run| self.thrift.is_on && run.settle.is_none())
        else {
            return;
        };
        let mut pids: Vec<Pid> = Vec::new();
        if self.thrift.meter.is_due(cx.now) {
            let members = run.tree.members();
            let main = members.iter().filter(|pid| **pid == run.main);
            let others = members.iter().filter(|pid| **pid != run.main);
            pids.extend(main.chain(others).map(|pid| Pid::from(*pid)));
        }
        let Some(reading) = self.thrift.meter.poll(cx.now, &pids) else {
            return;
        };
        let verdicts = judge(&self.thrift.budgets, &reading, &mut self.thrift.memory);
        self.thrift.reading = Some(reading);
        for verdict in verdicts {
            self.judged(verdict, cx);
        }
        if self.is_urgent() {
            self.relieve(remedy::RemedyEvent::Urgent, cx);
        }
    }

    /// Whether the breached measure kept growing while its evidence is being written.
    fn is_urgent(&self) -> bool {
        let memory = self.thrift.reading.as_ref();
        let memory = memory.and_then(|reading| reading.memory.seen());
        let breach = self.thrift.relief.waits_for_evidence();
        breach.zip(memory).is_some_and(|(breach, memory)| {
            let now = Excess {
                value: as_f64(memory.bytes),
                ..breach.passed.clone()
            };
            now.is_urgent(&breach.what)
        })
    }

    fn judged(&mut self, verdict: BudgetVerdict, cx: &mut Context<'_>) {
        let BudgetVerdict { what, kind } = verdict;
        match kind {
            Kind::Warn(passed) => {
                let event = LogEvent::for_service("breach_warn", self.name());
                let class = class(&what, self.thrift.meter.leaks().first());
                cx.sink.emit(&measured(event, &what, &passed, class));
            }
            Kind::Cleared(passed) => {
                let event = LogEvent::for_service("breach_cleared", self.name());
                cx.sink
                    .emit(&measured(event, &what, &passed, class(&what, None)));
                self.thrift.is_broken = false;
                self.relieve(remedy::RemedyEvent::Cleared(what), cx);
            }
            Kind::Unmeasured(gap) => {
                let event = LogEvent::for_service("unmeasured", self.name())
                    .with("budget", what.to_string());
                let text = format!("{}: {} ({})", gap.what, gap.why, gap.remedy);
                cx.sink.emit(&event.with("text", text));
            }
            Kind::Act(passed) => {
                self.thrift.breaches += 1;
                self.thrift.last_breach = Some(Timestamp::now());
                let breach = Breach {
                    left: self.time_left().or_else(|| at_this_rate(&passed)),
                    what,
                    passed,
                };
                self.relieve(remedy::RemedyEvent::Breached(breach), cx);
            }
        }
    }

    pub(super) fn time_left(&self) -> Option<Duration> {
        let reading = self.thrift.reading.as_ref()?;
        Some(reading.wall.seen()?.as_ref()?.left)
    }

    /// Passes an event to the remedy and performs its actions. Returns whether it wants a start.
    pub(super) fn relieve(&mut self, event: remedy::RemedyEvent, cx: &mut Context<'_>) -> bool {
        let mut wants_start = false;
        let mut actions = self.thrift.relief.handle(cx.now, event);
        while !actions.is_empty() {
            let mut next = Vec::new();
            for action in actions {
                match action {
                    RemedyAction::StartTree => wants_start = true,
                    RemedyAction::StopTree => self.stop_for_budget(cx),
                    RemedyAction::Tell(told) => self.tell_relief(told, cx),
                    step => {
                        if let Some(event) = self.do_step(&step, cx) {
                            next.extend(self.thrift.relief.handle(cx.now, event));
                        }
                    }
                }
            }
            actions = next;
        }
        wants_start
    }

    fn stop_for_budget(&mut self, cx: &mut Context<'_>) {
        let is_final = self.thrift.relief.has_given_up();
        let ending = if is_final {
            Ending::Down(1)
        } else if self.settings.policy.restart == RestartWhen::Never {
            // With restarts disabled, ask the parent for a restart.
            Ending::Down(if cx.is_supervised { 75 } else { 1 })
        } else {
            Ending::Renew(self.reason())
        };
        self.end_run(ending);
    }

    /// `fd_budget` and similar.
    pub(super) fn reason(&self) -> &'static str {
        let breach = self.thrift.breach.as_ref();
        breach.map_or("fd_budget", |(breach, _)| report::reason(&breach.what))
    }

    fn tell_relief(&mut self, told: remedy::RemedyNotice, cx: &mut Context<'_>) {
        let name = self.settings.name.clone();
        self.find_line_of(&told, cx);
        let event = match told {
            remedy::RemedyNotice::Begun(breach) => {
                let leaks = self.thrift.meter.leaks();
                let event = self.breached(&breach, &leaks);
                self.thrift.evidence = None;
                self.thrift.breach = Some((breach, leaks));
                event
            }
            remedy::RemedyNotice::Waits(breach) => self
                .breached(&breach, &[])
                .with("waits", "another service is being restarted"),
            remedy::RemedyNotice::Evidence(Ok(place)) => {
                self.thrift.evidence = Some(place.clone());
                LogEvent::for_service("evidence", &name).with("place", place)
            }
            remedy::RemedyNotice::Evidence(Err(why)) => {
                LogEvent::for_service("evidence", &name).with("failed", why)
            }
            remedy::RemedyNotice::Drained(how, took) => LogEvent::for_service("drained", &name)
                .with("how", drained(&how))
                .with("took_s", seconds(took)),
            remedy::RemedyNotice::Proven(proof) => {
                self.thrift.is_broken = false;
                let leaks = self.thrift.breach.take().map(|(_, leaks)| leaks);
                let text = self.reported(&proof.breach, &leaks.unwrap_or_default(), |report| {
                    report.proven(&proof)
                });
                LogEvent::for_service("proven", &name)
                    .with("pid", proof.now.pid)
                    .with("before", proof.before.map(|before| before.pid))
                    .with("took_s", seconds(proof.took))
                    .with("down_s", seconds(proof.down))
                    .with("leak_line", self.thrift.line.take())
                    .with("text", text)
            }
            remedy::RemedyNotice::Unproven(breach, why) => {
                self.thrift.is_broken = true;
                let leaks = self.thrift.breach.take().map(|(_, leaks)| leaks);
                let text = self.reported(&breach, &leaks.unwrap_or_default(), |report| {
                    report.unproven(&why)
                });
                LogEvent::for_service("unproven", &name)
                    .with("leak_line", self.thrift.line.take())
                    .with("text", text)
            }
            remedy::RemedyNotice::Again(again) => {
                self.thrift.is_broken = true;
                let leaks = self.thrift.meter.leaks();
                let text = self.reported(&again.breach, &leaks, |report| report.again(&again));
                self.breached(&again.breach, &leaks)
                    .with("again", true)
                    .with("text", text)
            }
        };
        cx.sink.emit(&event);
    }

    fn breached(&self, breach: &Breach, leaks: &[Leak]) -> LogEvent {
        let class = class(&breach.what, leaks.first());
        let event = LogEvent::for_service("breach", self.name())
            .with("reason", report::reason(&breach.what));
        let event = measured(event, &breach.what, &breach.passed, class);
        suspected(event, leaks.first()).with("leak_line", self.thrift.line.clone())
    }

    fn reported(
        &self,
        breach: &Breach,
        leaks: &[Leak],
        text: impl FnOnce(&RemedyReport<'_>) -> String,
    ) -> String {
        let words = self.settings.command.iter();
        let command = command_line::quoted(words.map(|word| word.as_encoded_bytes()));
        text(&RemedyReport {
            service: self.name(),
            breach,
            leaks,
            line: self.thrift.line.as_deref(),
            evidence: self.thrift.evidence.as_deref(),
            command: &command,
        })
    }
}
