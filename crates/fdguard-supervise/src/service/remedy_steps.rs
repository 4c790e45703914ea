//! The long steps of a remedy: evidence and drain.

use std::time::{Duration, Instant};

use fdguard_core::Pid;

use super::{Context, Service, State};
use crate::drain::{self, Drain};
use crate::event::LogEvent;
use crate::evidence::{self, EvidenceJob};
use crate::poll::{Interest, Readiness};
use crate::remedy::{self, DrainResult, RemedyAction};

/// The steps in progress.
#[derive(Debug, Default)]
pub(super) struct Steps {
    evidence: Option<EvidenceJob>,
    drain: Option<Drain>,
}

impl Steps {
    pub(super) fn wants<'f>(&'f self, wants: &mut Interest<'f>) {
        if let Some(evidence) = &self.evidence {
            evidence.wants(wants);
        }
        if let Some(drain) = &self.drain {
            drain.wants(wants);
        }
    }
}

impl Service<'_> {
    /// Begins or ends a step. Returns its result, if it ended at once.
    pub(super) fn do_step(
        &mut self,
        step: &RemedyAction,
        cx: &mut Context<'_>,
    ) -> Option<remedy::RemedyEvent> {
        match step {
            RemedyAction::WriteEvidence(pid, within) => {
                let begun = self.begin_evidence(*pid, *within, cx);
                begun
                    .err()
                    .map(|why| remedy::RemedyEvent::Evidence(Err(why)))
            }
            RemedyAction::BeginDrain(within) => {
                let begun = self.begin_drain(*within, cx);
                begun.err().map(remedy::RemedyEvent::Drained)
            }
            RemedyAction::StopEvidence => {
                self.steps.evidence = None;
                None
            }
            RemedyAction::StopDrain => {
                self.steps.drain = None;
                None
            }
            RemedyAction::StopTree | RemedyAction::StartTree | RemedyAction::Tell(_) => None,
        }
    }

    fn begin_evidence(
        &mut self,
        pid: Option<u32>,
        within: Duration,
        cx: &mut Context<'_>,
    ) -> Result<(), String> {
        let dir = cx.evidence.ok_or("disabled by --evidence off")?;
        let pid = pid.or(self.main()).ok_or("the process has ended")?;
        let settings = evidence::EvidenceSettings::new(dir.to_owned());
        let of = (self.settings.name.as_str(), pid);
        let begun = cx
            .reserve
            .lend(|| EvidenceJob::start(&settings, of, cx.null, cx.now, within));
        self.steps.evidence = Some(begun?);
        Ok(())
    }

    fn begin_drain(&mut self, within: Duration, cx: &mut Context<'_>) -> Result<(), DrainResult> {
        let Some(run) = &mut self.run else {
            return Err(DrainResult::Ended);
        };
        let given = drain::DrainContext {
            pid: run.main,
            within,
            listens: !self.sockets.is_empty(),
            null: cx.null,
        };
        let spec = &self.settings.drain;
        let begun = cx.reserve.lend(|| Drain::start(spec, &given, cx.now));
        self.steps.drain = Some(begun?);
        if let Some(signal) = spec.signal() {
            run.tree.signal(signal);
        }
        self.state = State::Draining;
        let event =
            LogEvent::for_service("drain", &self.settings.name).with("within_s", within.as_secs());
        cx.sink.emit(&event);
        Ok(())
    }

    /// Continues the steps in progress.
    pub(super) fn turn_steps(&mut self, cx: &mut Context<'_>, ready: &Readiness) {
        if let Some(evidence) = &mut self.steps.evidence
            && let Some(outcome) = evidence.poll(cx.now, ready)
        {
            self.steps.evidence = None;
            self.relieve(remedy::RemedyEvent::Evidence(outcome), cx);
        }
        if let Some(how) = self.turn_drain(cx.now, ready) {
            self.steps.drain = None;
            self.relieve(remedy::RemedyEvent::Drained(how), cx);
        }
    }

    fn turn_drain(&mut self, now: Instant, ready: &Readiness) -> Option<DrainResult> {
        let drain = self.steps.drain.as_mut()?;
        let run = self.run.as_ref()?;
        let (meter, ports) = (&self.thrift.meter, self.ports.as_slice());
        let count = || {
            let pids: Vec<Pid> = run.tree.members();
            meter.connections(&pids, ports)
        };
        drain.poll(now, ready, count)
    }
}
