//! Traps in files of supervisord.

use std::time::Duration;

use fdguard_core::lint::Severity;
use fdguard_core::units::exact_seconds;

use super::{Check, Hit, RuleTable, Unit, daemonises, trap};
use crate::unit::read::UnitNode;
use crate::unit::supervisord::split;

pub(in crate::unit) const RULES: RuleTable<Check> = &[
    daemonises("supervisord-daemonises"),
    (
        trap(
            "supervisord-no-group",
            Severity::Warning,
            "neither stopasgroup nor killasgroup: child processes survive a stop",
            "set stopasgroup=true and killasgroup=true",
        ),
        no_group,
    ),
    (
        trap(
            "supervisord-no-minfds",
            Severity::Info,
            "no minfds: programs inherit a limit of 1024 descriptors",
            "set minfds=4096 in [supervisord]",
        ),
        no_minfds,
    ),
    (
        trap(
            "supervisord-no-startsecs",
            Severity::Warning,
            "startsecs=0, which counts every start as a success",
            "set startsecs=3",
        ),
        no_startsecs,
    ),
    (
        trap(
            "supervisord-restart-of-no-use",
            Severity::Warning,
            "autorestart=true around `fdguard run`, which restarts it after exit codes that a restart cannot fix",
            "set autorestart=unexpected and exitcodes=0,2,64,78",
        ),
        of_no_use,
    ),
    (
        trap(
            "supervisord-stop-too-soon",
            Severity::Warning,
            "a stop timeout that is shorter than the grace period of `fdguard run`",
            "set stopwaitsecs= at least 15 s above `fdguard run --stop-grace`",
        ),
        too_soon,
    ),
];

pub(in crate::unit) fn units(file: &UnitNode) -> Vec<Unit<'_>> {
    let sections = file.pairs().iter();
    let programs = sections
        .filter(|(name, _)| name.starts_with("program:") || name.starts_with("fcgi-program:"));
    programs
        .map(|(_, service)| {
            let command = service.get("command");
            let words = command.map(|node| {
                (
                    node.line,
                    split(node.text().unwrap_or_default()).unwrap_or_default(),
                )
            });
            Unit {
                file,
                service,
                words: words.unwrap_or_default(),
            }
        })
        .collect()
}

fn no_group(unit: &Unit<'_>) -> Vec<Hit> {
    let yes = |name: &str| unit.service.get(name).is_some_and(UnitNode::is_yes);
    let why = "child processes survive a stop and hold the port at the next start";
    // The first implies the second.
    unit.missing(!yes("stopasgroup") && !yes("killasgroup"), why)
}

fn no_minfds(unit: &Unit<'_>) -> Vec<Hit> {
    // A file in conf.d has no such section: then it is unknown.
    let Some(daemon) = unit.file.get("supervisord") else {
        return Vec::new();
    };
    let why = "programs inherit supervisord's descriptor limit, which is 1024 without minfds";
    let hit = daemon
        .get("minfds")
        .is_none()
        .then(|| (daemon.line, why.to_owned()));
    hit.into_iter().collect()
}

fn no_startsecs(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("startsecs", |node| {
        let why = "startsecs=0 counts every start as a success: a program that dies at once is restarted forever, whatever startretries is";
        (node.text() == Some("0")).then(|| why.to_owned())
    })
}

fn of_no_use(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("autorestart", |node| {
        let why = "autorestart=true restarts fdguard when it has finished and when a restart cannot help (78, 64, 2)";
        (unit.is_fdguard() && node.is_yes()).then(|| why.to_owned())
    })
}

fn too_soon(unit: &Unit<'_>) -> Vec<Hit> {
    let Some(grace) = unit.grace() else {
        return Vec::new();
    };
    let node = unit.service.get("stopwaitsecs");
    let given = node
        .and_then(UnitNode::text)
        .and_then(|text| text.parse::<u64>().ok());
    let seconds = given.unwrap_or(10);
    let line = node.map_or(unit.service.line, |node| node.line);
    let why = || {
        format!(
            "supervisord kills fdguard after {}, before its grace period of {} ends",
            exact_seconds(Duration::from_secs(seconds)),
            exact_seconds(grace)
        )
    };
    let hit = (seconds <= grace.as_secs()).then(|| (line, why()));
    hit.into_iter().collect()
}
