//! The long steps of a remedy: evidence and drain.

use std::time::Duration;

use super::Context;
use super::run::Run;
use crate::drain::Drain;
use crate::evidence::{EvidenceJob, EvidenceSettings};
use crate::lifecycle::Input;
use crate::meter::Meter;
use crate::poll::{Interest, Readiness};

/// The steps in progress.
#[derive(Debug, Default)]
pub(super) struct Steps {
    pub(super) evidence: Option<EvidenceJob>,
    pub(super) drain: Option<Drain>,
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

    pub(super) fn begin_evidence(
        &mut self,
        (service, pid): (&str, Option<u32>),
        within: Duration,
        cx: &mut Context<'_>,
    ) -> Result<(), String> {
        let dir = cx.evidence.ok_or("disabled by --evidence off")?;
        let pid = pid.ok_or("the process has ended")?;
        let settings = EvidenceSettings::new(dir.to_owned());
        let begun = cx
            .reserve
            .lend(|| EvidenceJob::start(&settings, (service, pid), cx.null, cx.now, within));
        self.evidence = Some(begun?);
        Ok(())
    }

    /// Continues the steps in progress.
    pub(super) fn poll(
        &mut self,
        run: Option<&Run>,
        (meter, ports): (&Meter<'_>, &[u16]),
        cx: &Context<'_>,
        ready: &Readiness,
    ) -> Vec<Input> {
        let mut inputs = Vec::new();
        if let Some(evidence) = &mut self.evidence
            && let Some(outcome) = evidence.poll(cx.now, ready)
        {
            self.evidence = None;
            inputs.push(Input::EvidenceDone(outcome));
        }
        if let Some((drain, run)) = self.drain.as_mut().zip(run) {
            let count = || meter.connections(&run.members(), ports);
            let how = drain.poll(cx.now, ready, count);
            inputs.extend(how.map(Input::Drained));
        }
        inputs
    }
}
