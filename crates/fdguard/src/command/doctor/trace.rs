//! `doctor --trace`: attaches to the processes while they are watched, so that the report has the
//! lines.

use std::cell::RefCell;
use std::sync::Arc;

use fdguard_core::diagnosis::Diagnosis;
use fdguard_core::evidence::Evidence;
use fdguard_core::rule::RuleSettings;
use fdguard_core::watch::Watch;
use fdguard_core::{Gap, Pid};
use fdguard_diagnose::doctor::DoctorStep;
use fdguard_diagnose::trace::{self, FdNames, LaunchedProgram, LaunchedTrace, TraceReport};
use fdguard_process::signals::Signals;
use fdguard_trace::{
    AttachedTrace, HeapWatch, ObservedTrace, Options, SiteDetail, StateParts, TraceSession,
    monotonic,
};
use jiff::Timestamp;

use crate::cli::DoctorArgs;
use crate::command::trace::attach;
use crate::exit::{self, HintedError};
use crate::report::why;

/// The trace beside a doctor's watch.
#[derive(Debug)]
pub(super) enum DoctorTrace {
    /// None was requested.
    Absent,
    /// No process allowed it: the doctor goes on without lines, for this reason.
    Refused(Gap),
    /// It runs.
    Running(Box<RefCell<BesideWatch>>),
    /// Another fdguard traces the process: its records are read.
    Observed(Box<RefCell<ObservedWatch>>),
}

/// The trace of another fdguard.
#[derive(Debug)]
pub(super) struct ObservedWatch {
    pid: Pid,
    session: TraceSession,
    why: Option<HeapWatch>,
}

/// A trace, and what the watch saw meanwhile.
#[derive(Debug)]
pub(super) struct BesideWatch {
    attached: AttachedTrace,
    /// Held until the processes are left: the watch ends at a signal, but the looks around it do
    /// not receive any.
    _signals: Arc<Signals>,
    names: FdNames,
    began: Timestamp,
    /// Which objects hold the descriptors, if that is asked.
    why: Option<HeapWatch>,
}

impl DoctorTrace {
    /// Attaches to these processes, if that was requested. A signal meanwhile is an error.
    pub(super) fn start(args: &DoctorArgs, pids: &[Pid]) -> anyhow::Result<Self> {
        if args.trace.is_none() && !args.why {
            return Ok(Self::Absent);
        }
        // A program that is already traced is read, not entered a second time.
        if let [pid] = *pids
            && let Ok(observed) = ObservedTrace::find(pid)
        {
            return Ok(Self::Observed(Box::new(RefCell::new(ObservedWatch {
                pid,
                session: observed.session(),
                why: args.why.then(HeapWatch::default),
            }))));
        }
        // From here on a signal ends the trace and not fdguard, which would not detach.
        let signals = Signals::listen_for_end()?;
        let options = Options {
            no_inspector: args.no_inspector,
            users: args.why,
            ..Options::default()
        };
        let attached = match attach::attach_to(pids, &options, &signals) {
            Ok(attached) => attached,
            Err(error) if exit::is_signalled(&error) => return Err(error),
            Err(error) => return Ok(Self::Refused(attach::error_gap(&error))),
        };
        if let Some(received) = signals.next() {
            attach::leave(&attached);
            return Err(HintedError::signalled(received.signal).into());
        }
        Ok(Self::Running(Box::new(RefCell::new(BesideWatch {
            attached,
            _signals: signals,
            names: FdNames::default(),
            began: Timestamp::now(),
            why: args.why.then(HeapWatch::default),
        }))))
    }

    /// The doctor has taken a step.
    pub(super) fn note(&self, step: DoctorStep<'_>) {
        match (step, self) {
            (DoctorStep::Watch(watch), Self::Running(trace)) => trace.borrow_mut().note(watch),
            (DoctorStep::Watch(_), Self::Observed(trace)) => trace.borrow_mut().note(),
            _ => {}
        }
    }

    /// Detaches, and adds what was recorded to the evidence.
    pub(super) fn finish(
        self,
        evidence: &mut Evidence,
        settings: &RuleSettings,
    ) -> anyhow::Result<()> {
        match self {
            Self::Absent => {}
            Self::Refused(gap) => evidence.gaps.push(gap),
            Self::Observed(trace) => trace.into_inner().report(evidence)?,
            Self::Running(trace) => {
                let diagnosis = trace.into_inner().report(evidence, settings)?.diagnosis;
                add_gaps(evidence, &diagnosis);
                evidence.diagnosis = diagnosis;
            }
        }
        Ok(())
    }
}

impl BesideWatch {
    fn note(&mut self, watch: &Watch) {
        self.names.note_sample(watch, monotonic());
        // If records cannot be read now, the next look or the end reads them.
        drop(self.attached.session.poll());
        if let Some(why) = &mut self.why {
            why.look(&mut self.attached.session);
        }
    }

    fn report(
        mut self,
        evidence: &mut Evidence,
        settings: &RuleSettings,
    ) -> anyhow::Result<TraceReport> {
        let has_ended = self.attached.has_ended();
        if let Some(why) = &mut self.why {
            why.finish(&mut self.attached.session);
        }
        attach::leave(&self.attached);
        let session = &mut self.attached.session;
        let state = session.finish(SiteDetail::Every, has_ended)?;
        let watch = watch_of(evidence);
        let traced = LaunchedTrace {
            state: &state,
            watch: Some(&watch),
            names: &self.names,
            settings,
        };
        let mut report = traced.report(&LaunchedProgram {
            pid: evidence.diagnosis.process.pid,
            command: &[],
            began: self.began,
        });
        let refused = self.attached.refused().iter().map(attach::refusal_gap);
        report.diagnosis.gaps.extend(refused);
        add_holders(self.why.as_ref(), evidence, &mut report.diagnosis)?;
        Ok(report)
    }
}

impl ObservedWatch {
    fn note(&mut self) {
        // If records cannot be read now, the next look or the end reads them.
        drop(self.session.poll());
        if let Some(why) = &mut self.why {
            why.look(&mut self.session);
        }
    }

    fn report(mut self, evidence: &mut Evidence) -> anyhow::Result<()> {
        self.session.poll()?;
        if let Some(why) = &mut self.why {
            why.finish(&mut self.session);
        }
        let (before, after) = self.session.states_around(StateParts::OBSERVED);
        let diagnosis = evidence.diagnosis.clone();
        let watch = watch_of(evidence);
        let mut report = trace::observed((&before, &after), self.pid, &watch, diagnosis);
        add_holders(self.why.as_ref(), evidence, &mut report.diagnosis)?;
        add_gaps(evidence, &report.diagnosis);
        evidence.diagnosis = report.diagnosis;
        Ok(())
    }
}

/// The watch that the evidence is about.
fn watch_of(evidence: &Evidence) -> Watch {
    let mut watch = Watch::new(evidence.material.header.clone());
    for entry in &evidence.material.entries {
        watch.record(entry);
    }
    watch
}

fn add_gaps(evidence: &mut Evidence, diagnosis: &Diagnosis) {
    let known = evidence.gaps.clone();
    let is_new = |gap: &&Gap| !known.contains(gap);
    let new = diagnosis.gaps.iter().filter(is_new).cloned();
    evidence.gaps.extend(new);
}

/// Adds which objects hold the descriptors, if that was asked.
fn add_holders(
    why: Option<&HeapWatch>,
    evidence: &mut Evidence,
    diagnosis: &mut Diagnosis,
) -> anyhow::Result<()> {
    let Some(whys) = why.map(HeapWatch::answers) else {
        return Ok(());
    };
    why::add_to_findings(&mut diagnosis.findings, &whys);
    why::add_to_sites(diagnosis.sites.as_deref_mut().unwrap_or_default(), &whys)?;
    diagnosis.gaps.extend(why::gaps(&whys));
    evidence.holders = Some(why::holders(&whys)?);
    Ok(())
}
