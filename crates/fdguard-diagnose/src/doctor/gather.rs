//! Gathers everything about some processes, in the order of the playbook.

use std::time::Duration;

use fdguard_core::evidence::{EvidenceInput, ProcessVisit};
use fdguard_core::explain;
use fdguard_core::playbook::Playbook;
use fdguard_core::watch::Watch;
use fdguard_core::{Class, Gap, Pid, Snapshot, Summary, TcpState};
use fdguard_probe::{Options, Probe, Radar, read_or_gaps};

use super::{family, machine, runtime, watch};
use crate::Error;
use crate::log::OpenLog;

/// How to look.
#[derive(Clone, Copy, Debug)]
pub struct DoctorPlan<'a> {
    /// How long to watch.
    pub length: Duration,
    /// How often to look in that time.
    pub every: Duration,
    /// Which lines of a log mean what.
    pub playbook: &'a Playbook,
}

/// What is being done, for whoever waits.
#[derive(Clone, Copy, Debug)]
pub enum DoctorStep<'a> {
    /// The first look.
    Read,
    /// The watch, so far.
    Watch(&'a Watch),
    /// The second look.
    ReadAgain,
}

/// Looks, watches, looks again. A named process that could not be read is a gap.
///
/// # Errors
///
/// If no process could be read, or a log is not one.
pub fn gather(
    probe: &Probe,
    pids: &[Pid],
    plan: DoctorPlan<'_>,
    logs: Vec<OpenLog>,
    on_step: &dyn Fn(DoctorStep<'_>),
) -> Result<EvidenceInput, Error> {
    on_step(DoctorStep::Read);
    let (mut visits, mut gaps) = first_look(probe, pids)?;
    let taken = watch::short_watch(probe, &visits, plan, on_step)?;
    on_step(DoctorStep::ReadAgain);
    let ends = second_look(probe, &visits);
    for (visit, end) in visits.iter_mut().zip(ends) {
        if end.is_none() {
            let pid = visit.begin.process.pid;
            gaps.push(Gap::new(
                format!("process {pid} after the watch"),
                "the process exited",
                "examine its successor: fdguard doctor --name NAME",
            ));
        }
        visit.select = taken.select_of(visit.begin.process.pid);
        visit.end = end;
    }
    let (relatives, relatives_more) = related(probe, &visits, &mut gaps);
    let walls = visits
        .iter()
        .flat_map(|visit| Summary::summarize(visit.latest()).walls);
    let near = explain::near(&walls.collect::<Vec<_>>());
    let read = |log: OpenLog| log.read(plan.playbook, &near);
    let logs: Result<_, Error> = logs.into_iter().map(read).collect();
    Ok(EvidenceInput {
        header: taken.header,
        entries: taken.entries,
        visits,
        relatives,
        relatives_more,
        machine: machine::read(),
        logs: logs?,
        gaps,
    })
}

fn first_look(probe: &Probe, pids: &[Pid]) -> Result<(Vec<ProcessVisit>, Vec<Gap>), Error> {
    let seen = probe.snapshots(pids, Options::default());
    let (begins, gaps) = read_or_gaps(seen, |_| false)?;
    Ok((begins.into_iter().map(visit).collect(), gaps))
}

pub(super) fn visit(begin: Snapshot) -> ProcessVisit {
    let exe = begin.process.exe.as_ref();
    ProcessVisit {
        runtime: exe.and_then(|exe| runtime::detect(exe.as_bytes())),
        select: None,
        begin,
        end: None,
    }
}

/// The same processes again; `None` if the pid was reused.
fn second_look(probe: &Probe, visits: &[ProcessVisit]) -> Vec<Option<Snapshot>> {
    let pids: Vec<Pid> = visits.iter().map(|visit| visit.begin.process.pid).collect();
    let seen = probe
        .snapshots(&pids, Options::default())
        .into_iter()
        .zip(visits);
    seen.map(|(end, visit)| {
        end.ok()
            .filter(|end| end.process.key() == visit.begin.process.key())
    })
    .collect()
}

fn related(
    probe: &Probe,
    visits: &[ProcessVisit],
    gaps: &mut Vec<Gap>,
) -> (Vec<fdguard_core::evidence::Relative>, u64) {
    let named: Vec<Pid> = visits.iter().map(|visit| visit.begin.process.pid).collect();
    match Radar::single(true).scan(probe) {
        Ok(view) => family::relatives(&view.rows, &named, &sharers(visits)),
        Err(error) => {
            let remedy = "check that /proc is mounted and readable";
            gaps.push(Gap::new(
                "parents and descendants",
                error.to_string(),
                remedy,
            ));
            (Vec::new(), 0)
        }
    }
}

/// Other processes that hold a database or a listener of these.
fn sharers(visits: &[ProcessVisit]) -> Vec<Pid> {
    let entries = visits
        .iter()
        .flat_map(|visit| visit.latest().fds.iter().flatten());
    let shared = entries.filter(|entry| {
        matches!(
            entry.class,
            Class::SqliteDb
                | Class::SqliteWal
                | Class::SqliteShm
                | Class::SqliteJournal
                | Class::Tcp(TcpState::Listen)
                | Class::Unix
        )
    });
    let mut pids: Vec<Pid> = shared
        .flat_map(|entry| entry.shared_with.iter().map(|holder| holder.pid))
        .collect();
    pids.sort_unstable();
    pids.dedup();
    pids
}
