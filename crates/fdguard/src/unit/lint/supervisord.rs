//! Traps in files of supervisord.

use fdguard_core::lint::Severity;

use super::{Hit, Rule, Unit, daemonises, rule};
use crate::unit::read::UnitNode;
use crate::unit::supervisord::split;

pub(super) const RULES: &[Rule] = &[
    rule(
        "supervisord-daemonises",
        "the option that keeps the program in the foreground, and `exec` in shells",
        daemonises,
    )
    .with(Severity::Critical),
    rule(
        "supervisord-no-group",
        "stopasgroup=true and killasgroup=true",
        no_group,
    ),
    rule(
        "supervisord-no-minfds",
        "minfds=4096 in [supervisord]",
        no_minfds,
    )
    .with(Severity::Info),
    rule("supervisord-no-startsecs", "startsecs=3", no_startsecs),
    rule(
        "supervisord-restart-of-no-use",
        "autorestart=unexpected and exitcodes=0,2,64,78",
        of_no_use,
    ),
    rule(
        "supervisord-stop-too-soon",
        "stopwaitsecs= at least 15 s above the grace of `fdguard run --stop-grace`",
        too_soon,
    ),
];

pub(super) fn units(file: &UnitNode) -> Vec<Unit<'_>> {
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
    let why = "children of the program survive its stop and hold the port at the next start";
    // The first implies the second.
    unit.missing(!yes("stopasgroup") && !yes("killasgroup"), why)
}

fn no_minfds(unit: &Unit<'_>) -> Vec<Hit> {
    // A file of conf.d has no such section: then it cannot be known.
    let Some(daemon) = unit.file.get("supervisord") else {
        return Vec::new();
    };
    let why =
        "programs inherit the limit of supervisord: 1024 descriptors unless minfds says otherwise";
    let hit = daemon
        .get("minfds")
        .is_none()
        .then(|| (daemon.line, why.to_owned()));
    hit.into_iter().collect()
}

fn no_startsecs(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("startsecs", |node| {
        let why = "startsecs=0 takes every start for a success: a program that dies at once is started for ever, startretries or not";
        (node.text() == Some("0")).then(|| why.to_owned())
    })
}

fn of_no_use(unit: &Unit<'_>) -> Vec<Hit> {
    unit.when("autorestart", |node| {
        let why = "autorestart=true starts fdguard again when it was done, and when a restart cannot help (78, 64, 2)";
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
            "supervisord kills fdguard after {seconds} s, before its own grace of {} s is over",
            grace.as_secs()
        )
    };
    let hit = (seconds <= grace.as_secs()).then(|| (line, why()));
    hit.into_iter().collect()
}
