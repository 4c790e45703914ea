//! A short watch of some processes, recorded entry by entry.

use std::time::{Duration, Instant};

use fdguard_core::Pid;
use fdguard_core::diagnosis::WatchEnd;
use fdguard_core::evidence::ProcessVisit;
use fdguard_core::recording::{Appearance, RecordingEntry, RecordingHeader};
use fdguard_core::select_use::SelectUse;
use fdguard_core::timeline::{Look, LookChange, Sighting};
use fdguard_probe::{Error as ProbeError, Probe};
use jiff::Timestamp;

use super::gather::{DoctorPlan, DoctorStep};
use crate::Error;
use crate::watching::{LiveWatch, OnSignal, WatchPlan, WatchProgress};

/// A recording in memory.
pub(super) struct RecordedWatch {
    pub(super) header: RecordingHeader,
    pub(super) entries: Vec<RecordingEntry>,
}

/// Watches until the time is up, all processes have ended, or the user interrupts. A process that
/// ended before the watch began keeps its first look.
pub(super) fn short_watch(
    probe: &Probe,
    visits: &[ProcessVisit],
    plan: DoctorPlan<'_>,
    on_step: &dyn Fn(DoctorStep<'_>),
) -> Result<RecordedWatch, Error> {
    let (length, every) = (plan.length, plan.every);
    let mut pids: Vec<Pid> = visits.iter().map(|visit| visit.begin.process.pid).collect();
    while !pids.is_empty() {
        let watched = WatchPlan {
            pids: pids.clone(),
            name: None,
            groups: Vec::new(),
            tree: false,
            every,
            jitter: Duration::ZERO,
            length: Some(length),
            on_signal: OnSignal::End,
        };
        match LiveWatch::start(probe, watched) {
            Ok(live) => return watch_to_the_end(live, plan.length, on_step),
            Err(error) => match ended(&error) {
                Some(pid) if pids.contains(&pid) => pids.retain(|other| *other != pid),
                _ => return Err(error),
            },
        }
    }
    Ok(RecordedWatch::of_one_look(visits, every))
}

fn watch_to_the_end(
    mut live: LiveWatch<'_>,
    length: Duration,
    on_step: &dyn Fn(DoctorStep<'_>),
) -> Result<RecordedWatch, Error> {
    // The watch ends by itself; there is nothing else to serve.
    while live.advance(Instant::now() + length)? != WatchProgress::Ended {
        on_step(DoctorStep::Watch(live.watch()));
    }
    Ok(RecordedWatch {
        header: live.watch().header().clone(),
        entries: live.take_entries(),
    })
}

/// The process that is gone, if that is the error.
fn ended(error: &Error) -> Option<Pid> {
    match error {
        Error::Probe(
            ProbeError::NoSuchProcess(pid)
            | ProbeError::Vanished(pid)
            | ProbeError::Zombie { pid, .. },
        ) => Some(*pid),
        _ => None,
    }
}

impl RecordedWatch {
    /// The first look, as a watch that ended with it.
    fn of_one_look(visits: &[ProcessVisit], every: Duration) -> Self {
        let now = Timestamp::now();
        let entries = visits.iter().zip(0..).flat_map(|(visit, id)| {
            let begin = &visit.begin;
            let opened = begin.fds.as_ref();
            let look = Look {
                count: begin.count,
                table: opened.map(|fds| LookChange {
                    opened: fds.iter().map(Sighting::from).collect(),
                    ..LookChange::default()
                }),
                limits: Some(begin.limits),
                host: Some(begin.host),
                ..Look::default()
            };
            [
                RecordingEntry::Process(Box::new(Appearance {
                    id,
                    at: 0.0,
                    process: begin.process.clone(),
                    tier: begin.tier,
                    select: None,
                    successor_of: None,
                })),
                RecordingEntry::Look {
                    id,
                    look: Box::new(look),
                },
                RecordingEntry::Gone { id, at: 0.0 },
            ]
        });
        let end = RecordingEntry::End {
            ended: WatchEnd::ProcessEnded,
            ended_at: now,
        };
        Self {
            header: RecordingHeader::new(now, every.as_secs_f64()),
            entries: entries.chain([end]).collect(),
        }
    }

    /// Whether a process can call `select()`: determined when it was first seen.
    pub(super) fn select_of(&self, pid: Pid) -> Option<SelectUse> {
        self.entries.iter().find_map(|entry| match entry {
            RecordingEntry::Process(appearance) if appearance.process.pid == pid => {
                appearance.select.clone()
            }
            _ => None,
        })
    }
}
