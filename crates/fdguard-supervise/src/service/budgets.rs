//! Budgets of a service: measure and judge. What follows from a breach is decided by the lifecycle.

use std::time::{Duration, Instant};

use fdguard_core::count::as_f64;
use fdguard_probe::Probe;
use jiff::Timestamp;

use super::Context;
use super::remedy_log::{class, measured, shown};
use super::run::Run;
use crate::budget::{Budget, BudgetHistory, BudgetVerdict, Excess, Kind, ServiceReading, judge};
use crate::config::ServiceConfig;
use crate::event::LogEvent;
use crate::lifecycle::{Breach, Input};
use crate::meter::Meter;
use crate::metrics::TargetMetrics;
use crate::poll::Interest;

/// Meter and judgement of one service.
#[derive(Debug)]
pub(super) struct Budgets<'p> {
    pub(super) meter: Meter<'p>,
    budgets: Vec<Budget>,
    memory: BudgetHistory,
    is_on: bool,
    /// The last reading.
    pub(super) reading: Option<ServiceReading>,
    pub(super) breaches: u64,
    pub(super) last_breach: Option<Timestamp>,
}

impl<'p> Budgets<'p> {
    pub(super) fn new(probe: &'p Probe, settings: &ServiceConfig) -> Self {
        let budgets = settings.budgets.clone();
        Self {
            meter: Meter::new(probe, &budgets, Instant::now()),
            budgets,
            memory: BudgetHistory::default(),
            is_on: false,
            reading: None,
            breaches: 0,
            last_breach: None,
        }
    }

    /// A program has started.
    pub(super) fn start(&mut self, once: bool) {
        self.memory.restarted();
        self.reading = None;
        self.is_on = !once && !self.budgets.is_empty();
    }

    /// No looks while it is being stopped.
    pub(super) fn pause(&mut self) {
        self.is_on = false;
    }

    pub(super) fn wants(&self, wants: &mut Interest<'_>) {
        if self.is_on {
            self.meter.wants(wants);
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

    /// Time until the limit.
    pub(super) fn time_left(&self) -> Option<Duration> {
        let reading = self.reading.as_ref()?;
        Some(reading.wall.seen()?.as_ref()?.left)
    }

    /// Measures and judges. `waiting` is the breach whose evidence is being written.
    pub(super) fn poll(
        &mut self,
        settings: &ServiceConfig,
        run: &Run,
        waiting: Option<&Breach>,
        cx: &mut Context<'_>,
    ) -> Vec<Input> {
        if !self.is_on {
            return Vec::new();
        }
        let is_due = self.meter.is_due(cx.now);
        let pids = if is_due { run.members() } else { Vec::new() };
        let Some(reading) = self.meter.poll(cx.now, &pids) else {
            return Vec::new();
        };
        let verdicts = judge(&self.budgets, &reading, &mut self.memory);
        self.reading = Some(reading);
        let mut inputs = Vec::new();
        for verdict in verdicts {
            inputs.extend(self.judged(verdict, settings, cx));
        }
        if waiting.is_some_and(|breach| self.is_urgent(breach)) {
            inputs.push(Input::Urgent);
        }
        inputs
    }

    /// Whether the breached measure kept growing while its evidence is being written.
    fn is_urgent(&self, breach: &Breach) -> bool {
        let reading = self.reading.as_ref();
        let memory = reading.and_then(|reading| reading.memory.seen());
        memory.is_some_and(|memory| {
            let now = Excess {
                value: as_f64(memory.bytes),
                ..breach.passed.clone()
            };
            now.is_urgent(&breach.what)
        })
    }

    fn judged(
        &mut self,
        verdict: BudgetVerdict,
        settings: &ServiceConfig,
        cx: &mut Context<'_>,
    ) -> Option<Input> {
        let BudgetVerdict { what, kind } = verdict;
        let event = |name| LogEvent::for_service(name, &settings.name);
        match kind {
            Kind::Warn(passed) => {
                let class = class(&what, self.meter.leaks().first());
                cx.sink
                    .emit(&measured(event("breach_warn"), &what, &passed, class));
                None
            }
            Kind::Cleared(passed) => {
                let class = class(&what, None);
                cx.sink
                    .emit(&measured(event("breach_cleared"), &what, &passed, class));
                Some(Input::Cleared(what))
            }
            Kind::Unmeasured(gap) => {
                let text = format!("{}: {} ({})", gap.what, gap.why, gap.remedy);
                let event = event("unmeasured").with("budget", what.to_string());
                cx.sink.emit(&event.with("text", text));
                None
            }
            Kind::Act(passed) => {
                self.breaches += 1;
                self.last_breach = Some(Timestamp::now());
                Some(Input::Breached(Breach {
                    left: self.time_left().or_else(|| at_this_rate(&passed)),
                    what,
                    passed,
                }))
            }
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
