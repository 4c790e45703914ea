//! Runs the doctor on a recording instead of a running process.

use fdguard_core::detail::{InetDetail, OtherDetail};
use fdguard_core::evidence::{EvidenceInput, Machine, ProcessVisit};
use fdguard_core::playbook::Playbook;
use fdguard_core::recording::{RecordingEntry, RecordingHeader};
use fdguard_core::snapshot::{Snapshot, Via};
use fdguard_core::timeline::Timeline;
use fdguard_core::watch::{Watch, WatchedProcess};
use fdguard_core::{Class, Detail, Fd, FdEntry, Gap, Text, Tier};

use super::gather;
use crate::Error;
use crate::log::OpenLog;
use crate::recording::Replay;

/// The material that a recording contains.
///
/// # Errors
///
/// If a log cannot be read.
pub fn from_recording(
    mut replay: Replay,
    playbook: &Playbook,
    logs: Vec<OpenLog>,
) -> Result<EvidenceInput, Error> {
    let header = replay.header().clone();
    let entries: Vec<RecordingEntry> = (&mut replay).collect();
    let cut = replay.cut();
    let mut gaps = vec![Gap::new(
        "modes, peers, parents, children and the machine",
        "a recording contains only classes, names and counts",
        "run fdguard doctor on the running process",
    )];
    gaps.extend(cut.map(|why| {
        let remedy = "none: data that is missing or damaged cannot be recovered";
        Gap::new("the end of the recording", why, remedy)
    }));
    let logs = logs.into_iter().map(|log| log.read(playbook, &[]));
    Ok(EvidenceInput {
        visits: visits(&header, &entries),
        machine: machine(&header),
        header,
        entries,
        relatives: Vec::new(),
        relatives_more: 0,
        logs: logs.collect::<Result<_, Error>>()?,
        gaps,
    })
}

/// Each process as it was at its first listing and at the end.
fn visits(header: &RecordingHeader, entries: &[RecordingEntry]) -> Vec<ProcessVisit> {
    let mut watch = Watch::new(header.clone());
    let mut begins: Vec<(u32, Snapshot)> = Vec::new();
    for entry in entries {
        watch.record(entry);
        let RecordingEntry::Look { id, .. } = entry else {
            continue;
        };
        let subject = watch.subjects().find(|subject| subject.id == *id);
        if let Some(subject) = subject.filter(|_| !begins.iter().any(|(known, _)| known == id)) {
            begins.push((*id, snapshot(subject, &watch)));
        }
    }
    let ends = |id: u32| watch.subjects().find(|subject| subject.id == id);
    begins
        .into_iter()
        .filter_map(|(id, begin)| {
            let subject = ends(id)?;
            Some(ProcessVisit {
                select: subject.select.clone(),
                end: Some(snapshot(subject, &watch)),
                ..gather::visit(begin)
            })
        })
        .collect()
}

fn snapshot(subject: &WatchedProcess, watch: &Watch) -> Snapshot {
    let timeline: &Timeline = &subject.timeline;
    let fds = timeline.is_listed().then(|| {
        let held = timeline.live().iter();
        held.map(|(fd, held)| entry(fd, &held.class, &held.target))
            .collect()
    });
    Snapshot {
        taken_at: watch.wall_time(),
        tier: if timeline.is_listed() {
            Tier::Full
        } else {
            Tier::Radar
        },
        via: Via::Proc,
        process: subject.process.clone(),
        limits: timeline.limits(),
        count: timeline.count(),
        table_size: None,
        host: *timeline.host(),
        fds,
        gaps: Vec::new(),
    }
}

/// A descriptor from a recording; its other fields are unknown.
fn entry(fd: Fd, class: &Class, target: &Text) -> FdEntry {
    FdEntry {
        fd,
        class: class.clone(),
        target: target.clone(),
        mode: None,
        cloexec: None,
        deleted: *class == Class::Deleted,
        detail: detail(class, target),
        id: None,
        shared_with: Vec::new(),
        shared_more: 0,
        open_file: None,
        flags: None,
    }
}

/// Parses the addresses from a connection's name, to find its siblings.
fn detail(class: &Class, target: &Text) -> Detail {
    let ends = target.as_str().and_then(|target| target.split_once("->"));
    match ends {
        Some((local, remote)) if class.is_tcp() || *class == Class::Udp => {
            Detail::Inet(Box::new(InetDetail {
                local: Some(local.to_owned()),
                remote: Some(remote.to_owned()),
                ..InetDetail::default()
            }))
        }
        _ => Detail::Fields(OtherDetail::default()),
    }
}

/// A recording contains only the version that wrote it, nothing else about the machine.
fn machine(header: &RecordingHeader) -> Machine {
    Machine {
        fdguard: header.version.clone(),
        ..Machine::default()
    }
}
