//! Stories of services: starts, restarts, workers, renames.

use fdguard_core::host::{HostRow, HostView};
use fdguard_core::snapshot::Limits;
use fdguard_proc::ProcKey;
use jiff::Timestamp;
use proptest::prelude::*;

use super::{Roster, RosterEvent};
use crate::service::{ServiceKey, ServiceKind};

/// A host whose processes are written as `pid:command`; the start time is the pid.
#[derive(Default)]
struct Story {
    roster: Roster,
    now: f64,
}

fn key(pid: u32) -> ProcKey {
    ProcKey {
        pid,
        start_ticks: pid.into(),
    }
}

/// `unit-…` is a unit, anything else a command.
fn service(row: &HostRow) -> ServiceKey {
    let comm = row.comm.to_lossy();
    match comm.strip_prefix("unit-") {
        Some(unit) => ServiceKey::new(ServiceKind::Unit, unit),
        None => ServiceKey::new(ServiceKind::Command, &*comm),
    }
}

impl Story {
    fn scan(&mut self, processes: &[(u32, &str)]) -> Vec<RosterEvent> {
        self.now += 5.0;
        let row = |(pid, comm): &(u32, &str)| HostRow {
            pid: *pid,
            start_ticks: Some((*pid).into()),
            comm: (*comm).into(),
            count: Some(10),
            limits: Limits::default(),
            ..HostRow::default()
        };
        let view = HostView {
            rows: processes.iter().map(row).collect(),
            ..HostView::default()
        };
        let at = Timestamp::UNIX_EPOCH;
        self.roster.observe(&view, self.now, at, service)
    }

    /// Restarts of a service by name.
    fn restarts(&self, name: &str) -> u64 {
        let mut services = self.roster.services();
        let found = services.find(|(_, service)| service.key.name == name);
        found.map_or(0, |(_, service)| service.restarts)
    }
}

#[test]
fn a_service_that_gets_a_new_process_was_restarted() {
    let mut story = Story::default();
    let events = story.scan(&[(1, "unit-web")]);
    assert_eq!(events, [RosterEvent::Appeared { service: 0 }]);
    assert!(story.scan(&[(1, "unit-web")]).is_empty());
    let events = story.scan(&[(7, "unit-web")]);
    let exited = RosterEvent::Exited { process: key(1) };
    let restarted = RosterEvent::Restarted {
        service: 0,
        old: key(1),
        new: key(7),
    };
    assert_eq!(events, [exited, restarted]);
    assert_eq!(story.restarts("web"), 1);
}

#[test]
fn a_pause_between_two_runs_is_a_stop_and_then_a_restart() {
    let mut story = Story::default();
    story.scan(&[(1, "unit-web")]);
    story.scan(&[(1, "unit-web")]);
    let events = story.scan(&[]);
    assert!(
        events.contains(&RosterEvent::Stopped { service: 0 }),
        "{events:?}"
    );
    assert!(story.scan(&[]).is_empty());
    let events = story.scan(&[(9, "unit-web")]);
    assert!(
        matches!(events[..], [RosterEvent::Restarted { .. }]),
        "{events:?}"
    );
}

#[test]
fn workers_that_come_and_go_beside_their_master_are_not_a_restart() {
    let mut story = Story::default();
    story.scan(&[(1, "unit-web"), (2, "unit-web")]);
    story.scan(&[(1, "unit-web"), (3, "unit-web")]);
    story.scan(&[(1, "unit-web")]);
    story.scan(&[(1, "unit-web"), (8, "unit-web")]);
    // A hand-over: the old master stays until the new one runs.
    story.scan(&[(1, "unit-web"), (8, "unit-web"), (9, "unit-web")]);
    story.scan(&[(9, "unit-web")]);
    assert_eq!(story.restarts("web"), 0);
}

#[test]
fn a_process_on_its_way_to_its_unit_restarts_that_unit() {
    let mut story = Story::default();
    story.scan(&[(1, "unit-web")]);
    story.scan(&[(1, "unit-web")]);
    story.scan(&[(5, "systemd-start")]);
    let events = story.scan(&[(5, "unit-web")]);
    assert!(
        events
            .iter()
            .any(|event| matches!(event, RosterEvent::Restarted { .. })),
        "{events:?}"
    );
    let names: Vec<String> = story
        .roster
        .services()
        .map(|(_, one)| one.key.name.clone())
        .collect();
    assert_eq!(names, ["web"], "the name on the way is no service");
}

#[test]
fn a_process_that_only_left_its_unit_for_a_scan_restarts_it_once() {
    let mut story = Story::default();
    for _ in 0..3 {
        story.scan(&[(1, "unit-web")]);
    }
    story.scan(&[(7, "unit-web")]);
    assert_eq!(story.restarts("web"), 1);
    // As when the name of its container cannot be read for a moment.
    story.scan(&[(7, "runc")]);
    story.scan(&[(7, "unit-web")]);
    assert_eq!(story.restarts("web"), 1);
}

#[test]
fn a_command_that_is_typed_again_and_again_is_not_restarted() {
    let mut story = Story::default();
    for pid in 1..20 {
        story.scan(&[(pid, "ls")]);
    }
    assert_eq!(story.restarts("ls"), 0);
    for _ in 0..4 {
        story.scan(&[(50, "server")]);
    }
    story.scan(&[(51, "server")]);
    assert_eq!(story.restarts("server"), 1);
}

#[test]
fn long_idle_services_are_forgotten_and_churn_does_not_fill_the_memory() {
    let mut story = Story::default();
    story.scan(&[(1, "unit-web")]);
    story.scan(&[]);
    story.now += 4000.0;
    story.scan(&[]);
    assert_eq!(story.roster.services().count(), 0);
    for pid in 10..20_000 {
        story.scan(&[(pid, &format!("job-{pid}"))]);
    }
    assert!(story.roster.services().count() <= super::MOST_IDLE + 1);
    assert_eq!(story.roster.processes().count(), 1);
}

#[test]
fn zombies_and_processes_without_a_start_time_are_left_out() {
    let mut roster = Roster::default();
    let rows = vec![
        HostRow {
            pid: 1,
            ..HostRow::default()
        },
        HostRow {
            pid: 2,
            start_ticks: Some(2),
            zombie: true,
            ..HostRow::default()
        },
    ];
    let view = HostView {
        rows,
        ..HostView::default()
    };
    let events = roster.observe(&view, 1.0, Timestamp::UNIX_EPOCH, service);
    assert!(events.is_empty() && roster.processes().count() == 0);
}

proptest! {
    /// Whatever comes and goes: members are the visible processes, each in one service.
    #[test]
    fn members_are_always_the_visible_processes(
        scans in prop::collection::vec(
            prop::collection::btree_map(1_u32..12, 0_usize..4, 0..8), 1..30)
    ) {
        let names = ["unit-a", "unit-b", "sh", "ls"];
        let mut story = Story::default();
        for scan in scans {
            let processes: Vec<(u32, &str)> =
                scan.iter().map(|(pid, name)| (*pid, names[*name])).collect();
            story.scan(&processes);
            let mut members: Vec<u32> = story
                .roster
                .services()
                .flat_map(|(_, service)| service.members.iter().map(|key| key.pid))
                .collect();
            members.sort_unstable();
            let visible: Vec<u32> = scan.keys().copied().collect();
            prop_assert_eq!(members, visible);
        }
    }
}
